//! Trains a small convolutional network of burn's to read handwritten digits.
//!
//! ```text
//! cargo run --release -p gradchain-burn --example digits
//! ```
//!
//! burn has the layers and the gradients, gradchain the optimizer: two mini-batches per update, clipping by the global
//! norm, and AdamW with warmup and decay of the learning rate. The decay applies to the weights only, selected by path.
//! Half way the program writes a checkpoint. At the end it resumes from there once more, to show that the result is
//! bitwise identical.

mod data;
mod net;
mod plot;

use std::error::Error;
use std::path::PathBuf;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain::tree::for_each_leaf;
use gradchain_burn::{init, params, params_mut, step};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{Digits, Random};
use crate::net::Net;
use crate::plot::{History, picture};

const EPOCHS: u64 = 16;
const HALF: u64 = EPOCHS / 2;
const TRAIN: usize = 1200;
const BATCH: usize = 20;
const ACCUMULATED: u32 = 2;
const UPDATES: u64 = EPOCHS * (TRAIN / BATCH) as u64 / ACCUMULATED as u64;

fn main() -> Result<(), Box<dyn Error>> {
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut Random(0));
    let device = Device::flex().autodiff();
    device.seed(0);
    let mut net = Net::new(&device);

    let optimizer = multi_steps(
        chain((
            clip_by_global_norm(1.0),
            adamw(warmup_cosine_decay(0.0, 1e-2, 40, UPDATES).end_value(1e-5))
                .weight_decay(1e-2)
                .mask(Mask::path("**/weight")),
        )),
        ACCUMULATED,
    );
    println!("{}\n", optimizer.plan(&params(&net)?)?);
    let mut state = init(&optimizer, &net)?;

    let checkpoint = target()?.join("burn_digits.safetensors");
    let mut history = History::default();
    let bar = progress(EPOCHS + EPOCHS - HALF);
    for epoch in 1..=EPOCHS {
        one_epoch(epoch, &train, &optimizer, &mut net, &mut state, &mut history)?;
        report(&bar, epoch, &history);
        if epoch == HALF {
            Save::new(&optimizer, &state).params(&params(&net)?).note("epoch", epoch).to_file(&checkpoint)?;
        }
    }

    // Another process would have other values.
    let mut again = Net::new(&device);
    let mut state = Checkpoint::open(&checkpoint)?.load(&optimizer, &mut params_mut(&mut again)?)?;
    let mut resumed = History::default();
    for epoch in HALF + 1..=EPOCHS {
        one_epoch(epoch, &train, &optimizer, &mut again, &mut state, &mut resumed)?;
        bar.inc(1);
    }
    bar.finish();
    if bits(&net)? != bits(&again)? {
        return Err("the resumed run should be bitwise identical".into());
    }
    println!("\nresumed after epoch {HALF}: bitwise identical");

    let path = target()?.join("burn_digits.svg");
    std::fs::write(&path, picture(&history, &format!("{UPDATES} updates of a convolutional network of burn's"))?)?;
    println!("plot of loss and learning rate: {}", path.display());
    let net = net.valid();
    println!("train accuracy {:.3}", net.accuracy(&train));
    println!("test accuracy {:.3}", net.accuracy(&test));
    Ok(())
}

/// Trains on all mini-batches once, in an order that depends on the epoch alone.
fn one_epoch<T: GradientTransformation<Needs = Nothing>>(
    epoch: u64,
    train: &Digits,
    optimizer: &T,
    net: &mut Net,
    state: &mut OptState<T>,
    history: &mut History,
) -> Result<(), Box<dyn Error>> {
    let mut order: Vec<usize> = (0..TRAIN).collect();
    Random(epoch).shuffle(&mut order);
    let mut window = 0.0;
    for rows in order.chunks(BATCH) {
        let loss = net.loss(&train.rows(rows));
        let grads = GradientsParams::from_grads(loss.backward(), net);
        window += loss.into_scalar::<f64>() / f64::from(ACCUMULATED);
        if step(optimizer, net, &grads, state)?.emitted() {
            history.losses.push(std::mem::take(&mut window));
            history.learning_rates.push(optimizer.readings(state)?.get("learning_rate")?);
        }
    }
    Ok(())
}

fn bits(net: &Net) -> gradchain::Result<Vec<u64>> {
    let (params, mut bits) = (params(net)?, Vec::new());
    for_each_leaf(&params, |_, leaf| bits.extend(leaf.to_f64().into_iter().map(f64::to_bits)));
    Ok(bits)
}

fn target() -> std::io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    std::fs::create_dir_all(&target)?;
    Ok(target)
}

fn progress(epochs: u64) -> ProgressBar {
    let style = "{bar:40} {pos:>2}/{len} epochs  {msg}  {eta} to go";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(epochs).with_style(style)
}

/// Prints a line now and then without a terminal.
fn report(bar: &ProgressBar, epoch: u64, history: &History) {
    let loss = history.losses.last().copied().unwrap_or(f64::NAN);
    bar.inc(1);
    bar.set_message(format!("loss {loss:.4}"));
    if bar.is_hidden() && epoch.is_multiple_of(4) {
        println!("epoch {epoch:2} of {EPOCHS}  loss {loss:.4}");
    }
}
