//! Trains a network to read handwritten digits, and plots the run.
//!
//! ```text
//! cargo run --release --features plot --example train_digits
//! ```
//!
//! The files beside this one hold the model with its hand-written gradient, the data, and the picture. Except for
//! `#[derive(Tree)]` on the model they do not use gradchain. This file holds the training loop: gradient accumulation
//! over mini-batches, warmup and decay of the learning rate, weight decay on the weights but not on the biases,
//! clipping, a hyperparameter changed half way, and data with NaN in it.

mod data;
mod model;
mod plot;

use std::error::Error;
use std::path::PathBuf;

use gradchain::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{Digits, Random};
use crate::model::Mlp;
use crate::plot::{History, picture};

const EPOCHS: usize = 50;
/// Images a mini-batch, and mini-batches an update.
const BATCH: usize = 8;
const ACCUMULATED: u32 = 4;
const UPDATES: usize = EPOCHS * TRAIN / BATCH / ACCUMULATED as usize;
const TRAIN: usize = 1200;

/// Mini-batch and missing pixel.
const BROKEN: [(usize, usize); 5] = [(250, 27), (1401, 20), (2602, 36), (3803, 43), (6604, 28)];
/// From this mini-batch on decay is higher.
const DECAY_RAISED: usize = 4000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut random = Random(0);
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let mut model = Mlp::new(64, 64, 10, &mut random);
    let mut gradient = model.zeros_like();

    // From the innermost part outward: AdamW decays only `w1` and `w2`, and its hyperparameters can be read and set
    // during the run. Before it, NaN becomes 0, then the global norm is clipped to 1. The outermost wrapper runs all of
    // this once per four mini-batches, on the mean of their gradients.
    let optimizer = multi_steps(
        chain((
            zero_nans(),
            clip_by_global_norm(1.0),
            inject_hyperparams(
                adamw(warmup_cosine_decay(0.0, 1e-2, 100, UPDATES as u64).end_value(1e-5))
                    .weight_decay(1e-2)
                    .mask(Mask::path("**/w*")),
            )
            .static_args(["mask"]),
        )),
        ACCUMULATED,
    );
    println!("{}\n", optimizer.plan(&model)?);
    let mut state = optimizer.init(&model)?;

    let bar = Progress::new(EPOCHS * TRAIN / BATCH);
    let mut history = History::default();
    let mut order: Vec<usize> = (0..TRAIN).collect();
    let (mut batches, mut window) = (0, 0.0);
    for epoch in 1..=EPOCHS {
        random.shuffle(&mut order);
        for rows in order.chunks(BATCH) {
            if batches == DECAY_RAISED {
                state.inner_mut().2.hyperparams_mut().set("weight_decay", 0.3)?;
                history.notes.push((history.losses.len(), "weight_decay 0.01 → 0.3".into()));
            }
            let mut batch = train.rows(rows);
            if let Some((_, pixel)) = BROKEN.iter().find(|(broken, _)| *broken == batches) {
                batch.images[[0, *pixel]] = f32::NAN;
            }
            window += model.loss(&batch, &mut gradient) / f64::from(ACCUMULATED);
            let outcome = optimizer.step(&mut model, &gradient, &mut state)?;
            batches += 1;

            if outcome.emitted() {
                let (zeroed, _, adamw) = state.inner();
                if zeroed.found_any() {
                    history.repaired.push(history.losses.len());
                }
                history.losses.push(std::mem::take(&mut window));
                history.learning_rates.push(adamw.hyperparams().get("learning_rate").unwrap_or(f64::NAN));
            }
        }
        bar.epoch(epoch, batches, history.losses.last().copied().unwrap_or(f64::NAN));
    }
    bar.finish();
    // The last window is incomplete.
    optimizer.flush(&mut model, &mut state)?;

    let (zeroed, ..) = state.inner();
    println!("updates with NaN in their gradients: {}", history.repaired.len());
    for (leaf, n) in zeroed.zeroed.iter().filter(|(_, n)| n.get() > 0) {
        println!("elements set to 0 in `{}`: {}", state.structure().leaves()[leaf].path(), n.get());
    }
    println!("hyperparameters at the end: {}", state.inner().2.hyperparams());

    let title = format!("{UPDATES} updates of a 64-64-10 network on {TRAIN} handwritten digits");
    let path = picture_path()?;
    std::fs::write(&path, picture(&history, &title)?)?;
    println!("plot of loss and learning rate: {}", path.display());
    println!("train accuracy {:.3}", model.accuracy(&train));
    println!("test accuracy {:.3}", model.accuracy(&test));
    Ok(())
}

/// Returns a path in Cargo's target directory: `target`, or `CARGO_TARGET_DIR`.
fn picture_path() -> std::io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    std::fs::create_dir_all(&target)?;
    Ok(target.join("train_digits.svg"))
}

/// A bar in a terminal, a line now and then elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(batches: usize) -> Progress {
        let bar = ProgressBar::new(batches as u64);
        let style = "{bar:40} {pos:>4}/{len} mini-batches  {msg}  {eta} to go";
        Progress(bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    fn epoch(&self, epoch: usize, batches: usize, loss: f64) {
        self.0.set_position(batches as u64);
        self.0.set_message(format!("epoch {epoch:2}  loss {loss:.4}"));
        if self.0.is_hidden() && epoch.is_multiple_of(10) {
            println!("epoch {epoch:2} of {EPOCHS}  loss {loss:.4}");
        }
    }

    fn finish(&self) {
        self.0.finish();
        println!();
    }
}
