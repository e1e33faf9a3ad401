//! Trains a small transformer of candle with optimizer state in `f32` and in 8 bits, from several seeds.
//!
//! ```text
//! cargo run --release -p gradchain-candle --example transformer [FOLDER]
//! ```
//!
//! The text is this project's guide, or the Markdown files in `FOLDER`. The package has no guide, so it needs the
//! argument.
//!
//! A seed determines initial weights and the order of the text, the same for all three ways to keep the state. The
//! program plots the losses on held-out text. It fails if a run with 8-bit state differs more from the same seed's run
//! with `f32` state than seeds differ from each other.

mod model;
mod random;
mod text;

use std::error::Error;
use std::path::PathBuf;

use gradchain::needs::Nothing;
use gradchain::plot::Chart;
use gradchain::prelude::*;
use gradchain::state::Kind;
use gradchain_candle::{init, step};

use crate::model::Transformer;
use crate::random::Random;
use crate::text::Text;

const SEEDS: u64 = 4;
const STEPS: u64 = 300;
const BATCH: usize = 16;
/// Between evaluations.
const LOOK: u64 = 25;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let text = Text::read(std::env::args_os().nth(1).map(PathBuf::from))?;
    println!("{text}");
    let optimizer = adamw(warmup_cosine_decay(0.0, 3e-3, 40, STEPS)).weight_decay(0.1).mask(Mask::path("**/weight"));
    let single = Way::train("f32", &text, &optimizer)?;
    let few = [
        Way::train("8-bit, roots", &text, &quantized(optimizer.clone()).min_elements(0).except(None))?,
        Way::train("8-bit, logarithms", &text, &quantized(optimizer).min_elements(0).except(None).logarithmic(true))?,
    ];

    println!("\ntest loss: f32, minimum and maximum over {SEEDS} seeds; difference of 8-bit state, same seed");
    let mut within = true;
    for (look, step) in looks().enumerate() {
        let least = single.at(look).fold(f64::INFINITY, f64::min);
        let greatest = single.at(look).fold(f64::NEG_INFINITY, f64::max);
        let apart = few.each_ref().map(|way| way.apart(&single, look));
        println!("step {step:3}  {least:.4} {greatest:.4}  roots {:.4}  logarithms {:.4}", apart[0], apart[1]);
        within &= apart.iter().all(|apart| *apart < greatest - least);
    }

    let chart = [&single, &few[0], &few[1]].into_iter().fold(Chart::new("test loss"), |chart, way| {
        chart.points(way.name, looks().enumerate().map(|(look, step)| (step as f64, way.mean(look))))
    });
    let path = target()?.join("candle-transformer.svg");
    std::fs::write(&path, chart.svg([700, 320])?)?;
    println!("picture: {}", path.display());
    if within { Ok(()) } else { Err("8-bit state should train like f32 state".into()) }
}

/// A way to keep the state.
struct Way {
    name: &'static str,
    /// Held-out losses, by seed and evaluation.
    losses: Vec<Vec<f64>>,
}

impl Way {
    fn train<T: GradientTransformation<Needs = Nothing>>(
        name: &'static str,
        text: &Text,
        optimizer: &T,
    ) -> Result<Way> {
        let losses = (0..SEEDS).map(|seed| run(name, text, optimizer, seed)).collect::<Result<_>>()?;
        Ok(Way { name, losses })
    }

    /// Returns each seed's loss.
    fn at(&self, look: usize) -> impl Iterator<Item = f64> {
        self.losses.iter().map(move |run| run[look])
    }

    fn mean(&self, look: usize) -> f64 {
        self.at(look).sum::<f64>() / SEEDS as f64
    }

    /// Returns the largest difference of a seed's losses.
    fn apart(&self, other: &Way, look: usize) -> f64 {
        self.at(look).zip(other.at(look)).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(f64::NAN)
    }
}

fn looks() -> impl Iterator<Item = u64> {
    (1..=STEPS / LOOK).map(|look| look * LOOK)
}

fn run<T: GradientTransformation<Needs = Nothing>>(
    name: &str,
    text: &Text,
    optimizer: &T,
    seed: u64,
) -> Result<Vec<f64>> {
    let mut random = Random(seed);
    let model = Transformer::new(text.kinds(), &mut random)?;
    let mut state = init(optimizer, &model.vars)?;
    let (mut order, other) = (text.stretches(&mut random), text.other()?);
    let mut losses = Vec::new();
    for count in 1..=STEPS {
        let loss = model.loss(&order.next(BATCH)?)?;
        step(optimizer, &model.vars, &loss.backward()?, &mut state)?;
        if count % LOOK == 0 {
            losses.push(f64::from(model.loss(&other)?.to_scalar::<f32>()?));
        }
    }
    let (bytes, last) = (state.schema().size().bytes(Kind::Moment), losses[losses.len() - 1]);
    println!(
        "{name}, seed {seed}: {last:.4}, {:.2} bytes of moments a parameter",
        bytes as f64 / model.parameters() as f64
    );
    Ok(losses)
}

fn target() -> std::io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    std::fs::create_dir_all(&target)?;
    Ok(target)
}
