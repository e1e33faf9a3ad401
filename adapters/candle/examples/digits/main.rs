//! Trains a small convolutional network of candle to read handwritten digits, with gradchain's optimizers.
//!
//! ```text
//! cargo run --release -p gradchain-candle --example digits
//! ```
//!
//! The model, the loss and the gradients are candle's. The optimizer is a chain: it accumulates the gradients of two
//! mini-batches and clips their norm, and AdamW decays the weights but not the biases, by their names in the `VarMap`.
//! At the end the program resumes from a checkpoint in the middle of the run, and asserts a bitwise identical result.

mod data;
mod model;
mod plot;

use std::error::Error;
use std::path::PathBuf;

use candle_core::Tensor;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain_candle::{Vars, init, step};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{Digits, Random};
use crate::model::{Batch, Network};
use crate::plot::{History, picture};

const TRAIN: usize = 1200;
const EPOCHS: u64 = 24;
const SAVED: u64 = 20;
const BATCH: usize = 24;
const ACCUMULATED: u32 = 2;
const UPDATES: u64 = EPOCHS * (TRAIN / BATCH) as u64 / ACCUMULATED as u64;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut Random(0));
    let network = Network::new(&mut Random(1))?;
    let vars = Vars::of(&network.map)?;

    let rate = warmup_cosine_decay(0.0, 6e-3, 40, UPDATES).end_value(1e-5);
    let decayed = adamw(rate).weight_decay(1e-2).mask(Mask::path("**/weight"));
    let optimizer = multi_steps(chain((clip_by_global_norm(1.0), decayed)), ACCUMULATED);
    println!("{}\n", vars.read(|params| optimizer.plan(params))??);
    let mut state = init(&optimizer, &vars)?;

    let file = target()?.join("candle-digits.safetensors");
    let bar = bar();
    let mut history = History::default();
    for epoch in 0..EPOCHS {
        if epoch == SAVED {
            vars.read(|params| Save::new(&optimizer, &state).params(params).to_file(&file))??;
        }
        let losses = train_epoch(&network, &vars, &optimizer, &mut state, &train, epoch, |state| {
            optimizer.readings(state).and_then(|readings| readings.get("learning_rate"))
        })?;
        for (loss, rate) in losses {
            history.losses.push(loss);
            history.learning_rates.push(rate);
        }
        let loss = history.losses.last().copied().unwrap_or(f64::NAN);
        bar.inc(1);
        bar.set_message(format!("loss {loss:.4}"));
        if bar.is_hidden() && (epoch + 1) % 6 == 0 {
            println!("epoch {:2} of {EPOCHS}  loss {loss:.4}", epoch + 1);
        }
    }
    bar.finish();

    // As another process would.
    let resumed = Network::new(&mut Random(2))?;
    let again = Vars::of(&resumed.map)?;
    let mut state = again.write(|params| Checkpoint::open(&file)?.load(&optimizer, params))??;
    for epoch in SAVED..EPOCHS {
        train_epoch(&resumed, &again, &optimizer, &mut state, &train, epoch, |_| Ok(0.0))?;
    }
    let same = bits(&vars)? == bits(&again)?;
    println!("\nresumed after epoch {SAVED}: {}", if same { "bitwise identical" } else { "different" });

    let title = format!("{UPDATES} updates of a convolutional network on {TRAIN} handwritten digits");
    let path = target()?.join("candle-digits.svg");
    std::fs::write(&path, picture(&history, &title)?)?;
    println!("plot of loss and learning rate: {}", path.display());
    println!("train accuracy {:.3}", network.accuracy(&train)?);
    println!("test accuracy {:.3}", network.accuracy(&test)?);
    if same { Ok(()) } else { Err("the resumed run should be bitwise identical".into()) }
}

/// Returns each update's loss, with `reading` after it.
fn train_epoch<T: GradientTransformation<Needs = Nothing>>(
    network: &Network,
    vars: &Vars,
    optimizer: &T,
    state: &mut OptState<T>,
    digits: &Digits,
    epoch: u64,
    reading: impl Fn(&OptState<T>) -> gradchain::Result<f64>,
) -> Result<Vec<(f64, f64)>> {
    let mut order: Vec<usize> = (0..TRAIN).collect();
    // A resumed run repeats the order.
    Random(100 + epoch).shuffle(&mut order);
    let (mut found, mut window) = (Vec::new(), 0.0);
    for rows in order.chunks(BATCH) {
        let loss = network.loss(&Batch::of(&digits.rows(rows))?)?;
        window += f64::from(loss.to_scalar::<f32>()?) / f64::from(ACCUMULATED);
        if step(optimizer, vars, &loss.backward()?, state)?.emitted() {
            found.push((std::mem::take(&mut window), reading(state)?));
        }
    }
    Ok(found)
}

fn bits(vars: &Vars) -> Result<Vec<u32>> {
    let numbers = vars.iter().map(|(_, var)| var.as_tensor().flatten_all()?.to_vec1::<f32>());
    let numbers: Vec<Vec<f32>> = numbers.collect::<candle_core::Result<_>>()?;
    Ok(numbers.into_iter().flatten().map(f32::to_bits).collect())
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos:>2}/{len} epochs  {msg}  {eta} to go");
    ProgressBar::new(EPOCHS).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn target() -> std::io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    std::fs::create_dir_all(&target)?;
    Ok(target)
}

impl Network {
    fn loss(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        candle_nn::loss::cross_entropy(&self.forward(&batch.images)?, &batch.labels)
    }
}
