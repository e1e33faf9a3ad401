//! Races the optimizers on the digits network: the picture and the table on the guide's page "Which optimizer?".
//!
//! ```text
//! cargo run --release --features contrib,faer,plot --example which_optimizer [-- FILE]
//! ```
//!
//! It prints the table, and writes the picture to FILE or to docs/images/which-optimizer.svg.
//!
//! Each optimizer runs with several learning rates, three times each, with different initial weights and batches. The
//! results are those of the rate with the lowest mean loss over the last epoch. No other argument is tuned, and the
//! rate is constant, so only the optimizers differ.

#[path = "../train_digits/data.rs"]
mod data;
#[path = "../train_digits/model.rs"]
mod model;
mod plot;

use std::error::Error;

use gradchain::optimizer::{
    adabelief, adam_mini, adan, ademamix, adopt, amsgrad, cautious_adamw, dog, mars, momo_adam, nadam, polyak_sgd,
    signum, soap,
};
use gradchain::prelude::*;
use gradchain::{extra, needs};

use crate::data::{Digits, Random};
use crate::model::Mlp;

const EPOCHS: usize = 20;
const BATCH: usize = 32;
const TRAIN: usize = 1200;
const SEEDS: u64 = 3;

/// Needs at most the loss.
type Racer = Boxed<needs::Value>;

/// Name, learning rates to try, constructor.
struct Entry {
    name: &'static str,
    rates: &'static [f64],
    make: fn(f64) -> Racer,
}

/// For steps along the gradient; of about the rate per element; with rates of their own.
const STEEP: &[f64] = &[0.01, 0.03, 0.1, 0.3, 1.0];
const ADAPTIVE: &[f64] = &[3e-4, 1e-3, 3e-3, 1e-2, 3e-2];
const OWN: &[f64] = &[1.0];

macro_rules! entries {
    ($($name:literal, $rates:expr, |$rate:ident| $make:expr;)*) => {
        &[$(Entry { name: $name, rates: $rates, make: |$rate| Box::new($make) }),*]
    };
}

#[rustfmt::skip]
const ENTRIES: &[Entry] = entries! {
    "sgd", STEEP, |rate| sgd(rate);
    "sgd, momentum 0.9", STEEP, |rate| sgd(rate).momentum(0.9);
    "adam", ADAPTIVE, |rate| adam(rate);
    "adamw", ADAPTIVE, |rate| adamw(rate).weight_decay(1e-2).mask(Mask::path("**/w*"));
    "nadam", ADAPTIVE, |rate| nadam(rate);
    "radam", ADAPTIVE, |rate| radam(rate);
    "amsgrad", ADAPTIVE, |rate| amsgrad(rate);
    "adabelief", ADAPTIVE, |rate| adabelief(rate);
    "ademamix", ADAPTIVE, |rate| ademamix(rate);
    "adopt", ADAPTIVE, |rate| adopt(rate);
    "adan", ADAPTIVE, |rate| adan(rate);
    "rmsprop", ADAPTIVE, |rate| rmsprop(rate);
    "adagrad", &[3e-3, 1e-2, 3e-2, 0.1, 0.3], |rate| adagrad(rate);
    "adafactor", ADAPTIVE, |rate| adafactor(rate).multiply_by_parameter_scale(false);
    "lion", &[3e-5, 1e-4, 3e-4, 1e-3, 3e-3], |rate| lion(rate);
    "signum", &[3e-5, 1e-4, 3e-4, 1e-3, 3e-3], |rate| signum(rate);
    "lamb", ADAPTIVE, |rate| lamb(rate);
    "muon", ADAPTIVE, |rate| muon(rate).consistent_rms(0.2);
    "soap", ADAPTIVE, |rate| soap(rate);
    "mars", ADAPTIVE, |rate| mars(rate);
    "cautious_adamw", ADAPTIVE, |rate| cautious_adamw(rate);
    "adam_mini", ADAPTIVE, |rate| adam_mini(rate);
    "momo_adam", ADAPTIVE, |rate| momo_adam().learning_rate(rate);
    "prodigy", OWN, |rate| prodigy().learning_rate(rate);
    "dog", OWN, |rate| dog().learning_rate(rate);
    "schedule_free_adamw", ADAPTIVE, |rate| schedule_free_adamw().learning_rate(rate);
    "polyak_sgd", OWN, |rate| polyak_sgd().max_learning_rate(rate);
};

pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) rate: f64,
    /// Mean loss by epoch, over the runs.
    pub(crate) losses: Vec<f64>,
    pub(crate) accuracy: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let digits = Digits::load()?;
    let mut curves = Vec::new();
    for entry in ENTRIES {
        let tried = entry.rates.iter().map(|&rate| race(&digits, entry, rate)).collect::<Result<Vec<_>, _>>()?;
        let last = |curve: &Curve| curve.losses.last().copied().unwrap_or(f64::NAN);
        let finite = tried.into_iter().filter(|curve| last(curve).is_finite());
        curves.extend(finite.min_by(|a, b| last(a).total_cmp(&last(b))));
    }
    curves.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy));
    println!("| optimizer | learning rate | loss, epoch 5 | loss, epoch {EPOCHS} | test accuracy |");
    println!("|---|---|---|---|---|");
    for Curve { name, rate, losses, accuracy } in &curves {
        println!("| {name} | {rate} | {:.4} | {:.4} | {accuracy:.3} |", losses[4], losses[EPOCHS - 1]);
    }
    let path = std::env::args().nth(1).unwrap_or("docs/images/which-optimizer.svg".into());
    std::fs::write(&path, plot::picture(&curves)?)?;
    println!("\npicture: {path}");
    Ok(())
}

/// Trains once for each seed.
fn race(digits: &Digits, entry: &Entry, rate: f64) -> gradchain::Result<Curve> {
    let (mut losses, mut accuracy) = (vec![0.0; EPOCHS], 0.0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let (train, test) = digits.shuffle_and_split(TRAIN, &mut random);
        let mut model = Mlp::new(64, 64, 10, &mut random);
        let mut gradient = model.zeros_like();
        let optimizer = (entry.make)(rate);
        let mut state = optimizer.init(&model)?;
        let mut order: Vec<usize> = (0..TRAIN).collect();
        for mean in &mut losses {
            random.shuffle(&mut order);
            for rows in order.chunks(BATCH) {
                let loss = model.loss(&train.rows(rows), &mut gradient);
                *mean += loss / (TRAIN.div_ceil(BATCH) as f64 * SEEDS as f64);
                optimizer.step_with(&mut model, &gradient, extra::value(loss), &mut state)?;
            }
        }
        accuracy += model.accuracy(&test) / SEEDS as f64;
    }
    Ok(Curve { name: entry.name, rate, losses, accuracy })
}
