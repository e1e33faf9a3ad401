//! Trains one network on several workers that communicate once in many steps: DiLoCo.
//!
//! ```text
//! cargo run --release --features collective --example diloco
//! ```
//!
//! Each worker has its own images, a copy of the network, and AdamW. For `H` steps it trains alone. Then the workers
//! average their parameters, in one message of the network's size. The difference from the start of the round is the
//! gradient of a second optimizer: SGD with Nesterov momentum, a transformation like any other. Every worker computes
//! that second step locally, so nothing else is sent. At the end the program asserts that the workers' parameters are
//! bitwise identical.
//!
//! After Douillard and others, DiLoCo: distributed low-communication training of language models, 2023, algorithm 1
//! (<https://arxiv.org/abs/2311.08105>). The workers are threads here; `diloco_mpi` of the crate `gradchain-mpi` is the
//! same with MPI processes.

#[path = "../train_digits/data.rs"]
mod data;
#[path = "../train_digits/model.rs"]
mod model;
mod worker;

use std::error::Error;
use std::thread;
use std::time::Duration;

use gradchain::collective::{Collective, Threads, threads};

use crate::worker::{H, Worker};

const WORKERS: usize = 4;
const ROUNDS: usize = 20;

type Trained = (Vec<f64>, Vec<u64>, f64);

fn train(ranks: &Threads) -> Result<Trained, String> {
    let mut worker = Worker::new(ranks).map_err(|error| error.to_string())?;
    let mut losses = Vec::new();
    for round in 1..=ROUNDS {
        let loss = worker.round(ranks).map_err(|error| error.to_string())?;
        losses.push(loss);
        if ranks.rank() == 0 && (round == 1 || round % 5 == 0) {
            println!("round {round:2}  loss {loss:.4}  test accuracy {:.3}", worker.global.accuracy(&worker.test));
        }
    }
    Ok((losses, worker.bits(), worker.global.accuracy(&worker.test)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let trained: Result<Vec<Trained>, String> = thread::scope(|scope| {
        let ranks = threads(WORKERS, Duration::from_secs(60)).into_iter();
        let running: Vec<_> = ranks.map(|rank| scope.spawn(move || train(&rank))).collect();
        running.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let trained = trained?;
    let (losses, bits, accuracy) = &trained[0];
    let agree = trained.iter().all(|(_, others, _)| others == bits);
    println!("all workers are bitwise identical: {agree}");
    println!("messages {ROUNDS}, of one network each, in {} steps", ROUNDS * H);
    println!("test accuracy {accuracy:.3}");
    if !agree {
        return Err("the workers should agree".into());
    }
    if losses[ROUNDS - 1] >= 0.1 * losses[0] {
        return Err(format!("the loss should have decreased: {losses:?}").into());
    }
    if *accuracy < 0.95 {
        return Err(format!("the accuracy should be at least 0.95, and is {accuracy}").into());
    }
    Ok(())
}
