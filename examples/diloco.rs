//! Trains one network on several workers that talk to each other once in many steps: DiLoCo.
//!
//! ```text
//! cargo run --release --example diloco
//! ```
//!
//! Each worker has images of its own, a copy of the network, and AdamW. For `H` steps it trains alone. Then all workers take
//! the mean of where they got to, which is one message of the network's size, and treat the way there as the gradient of a
//! second optimizer: SGD with Nesterov momentum, a transformation like any other. Every worker does that second step itself,
//! so that nothing more need be sent; at the end it is checked that they have not drifted apart by a single bit.
//!
//! After Douillard and others, DiLoCo: distributed low-communication training of language models, 2023, algorithm 1
//! (<https://arxiv.org/abs/2311.08105>). The workers are threads here; what crosses between them goes through
//! `average_params`.

#[path = "train_digits/data.rs"]
mod data;
#[path = "train_digits/model.rs"]
mod model;

use std::error::Error;
use std::thread;

use gradchain::average_params;
use gradchain::optimizer::{Adamw, Sgd};
use gradchain::prelude::*;
use gradchain::transform::Trace;
use gradchain::tree::{for_each_leaf, tree_add_scaled};

use crate::data::{Digits, Random};
use crate::model::Mlp;

const WORKERS: usize = 4;
const ROUNDS: usize = 20;
/// Steps between two messages.
const H: usize = 30;
const BATCH: usize = 16;
const TRAIN: usize = 1200;

/// What a worker has; the two optimizers are the same for all and have no state of their own.
struct Worker {
    images: Digits,
    random: Random,
    /// Where the round began: the same on all workers.
    global: Mlp,
    /// Where this worker has got to.
    local: Mlp,
    inner: OptState<Adamw>,
    outer: OptState<Sgd<Trace>>,
}

impl Worker {
    /// Trains alone for a round; the mean loss.
    fn train(&mut self, inner: &Adamw) -> gradchain::Result<f64> {
        self.local = self.global.clone();
        let mut gradient = self.local.zeros_like();
        let mut total = 0.0;
        for _ in 0..H {
            let rows: Vec<usize> = (0..BATCH).map(|_| self.pick()).collect();
            total += self.local.loss(&self.images.rows(&rows), &mut gradient);
            inner.step(&mut self.local, &gradient, &mut self.inner)?;
        }
        Ok(total / H as f64)
    }

    fn pick(&mut self) -> usize {
        (self.random.uniform() * self.images.labels.len() as f64) as usize
    }

    /// Follows the mean of all workers.
    fn follow(&mut self, mean: &Mlp, outer: &Sgd<Trace>) -> gradchain::Result<()> {
        // Against the way that the workers went, as a gradient is.
        let mut gradient = self.global.clone();
        tree_add_scaled(&mut gradient, -1.0, mean)?;
        outer.step(&mut self.global, &gradient, &mut self.outer)?;
        Ok(())
    }
}

fn bits(model: &Mlp) -> Vec<u64> {
    let mut bits = Vec::new();
    for_each_leaf(model, |_, leaf| bits.extend(leaf.to_f64().into_iter().map(f64::to_bits)));
    bits
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut random = Random(0);
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let start = Mlp::new(64, 64, 10, &mut random);

    let inner = adamw(2e-3);
    let outer = sgd(0.7).momentum(0.9).nesterov(true);
    let mut workers = Vec::new();
    for (number, rows) in (0..TRAIN).collect::<Vec<_>>().chunks(TRAIN / WORKERS).enumerate() {
        workers.push(Worker {
            images: train.rows(rows),
            random: Random(number as u64 + 1),
            global: start.clone(),
            local: start.clone(),
            inner: inner.init(&start)?,
            outer: outer.init(&start)?,
        });
    }

    let mut losses = Vec::new();
    for round in 1..=ROUNDS {
        let trained: Vec<gradchain::Result<f64>> = thread::scope(|scope| {
            let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.train(&inner))).collect();
            running.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
        });
        let loss = trained.into_iter().sum::<gradchain::Result<f64>>()? / WORKERS as f64;
        losses.push(loss);

        // The one message of the round: what an all-reduce over the network would give each worker.
        let locals: Vec<(&Mlp, f64)> = workers.iter().map(|worker| (&worker.local, 1.0)).collect();
        let mean = average_params(&locals)?;
        workers.iter_mut().try_for_each(|worker| worker.follow(&mean, &outer))?;
        if round == 1 || round % 5 == 0 {
            println!("round {round:2}  loss {loss:.4}  test accuracy {:.3}", workers[0].global.accuracy(&test));
        }
    }

    let agree = workers.iter().all(|worker| bits(&worker.global) == bits(&workers[0].global));
    println!("all workers have the same bits: {agree}");
    println!("messages {ROUNDS}, of one network each, in {} steps", ROUNDS * H);
    let accuracy = workers[0].global.accuracy(&test);
    println!("test accuracy {accuracy:.3}");
    if !agree {
        return Err("the workers should agree".into());
    }
    if losses[ROUNDS - 1] >= 0.1 * losses[0] {
        return Err(format!("the loss should have gone down: {losses:?}").into());
    }
    if accuracy < 0.95 {
        return Err(format!("the accuracy should be at least 0.95, and is {accuracy}").into());
    }
    Ok(())
}
