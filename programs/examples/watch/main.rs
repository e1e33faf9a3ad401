//! Monitors a training run: a progress bar, a file for TensorBoard, lines of JSON, and a final picture.
//!
//! ```text
//! cargo run --release --example watch            writes to target/watch
//! cargo run --release --example watch -- DIR     writes to DIR
//! tensorboard --logdir target/watch
//! ```

#[path = "../../../examples/train_digits/data.rs"]
mod data;
#[path = "../../../examples/train_digits/model.rs"]
mod model;
mod tensorboard;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;

use gradchain::plot::{Chart, grid};
use gradchain::prelude::*;
use gradchain::transform::{GlobalNorm, monitor, of_params, ratio};
use gradchain::watch::{JsonLines, read_json_lines};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{Digits, Random};
use crate::model::Mlp;
use crate::tensorboard::TensorBoard;

const EPOCHS: usize = 20;
const BATCH: usize = 32;
const TRAIN: usize = 1200;

fn main() -> Result<(), Box<dyn Error>> {
    let target = || env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from).join("watch");
    let folder = env::args_os().nth(1).map_or_else(target, PathBuf::from);
    fs::create_dir_all(&folder)?;

    let mut random = Random(0);
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let mut model = Mlp::new(64, 64, 10, &mut random);
    let mut gradient = model.zeros_like();
    let steps = EPOCHS * TRAIN.div_ceil(BATCH);

    // The clip knows norms of gradients, per leaf too; a probe behind the optimizer measures steps.
    let layers = Labels::paths([("*1", "hidden"), ("*2", "output")]);
    let how_far = monitor().measure("ratio", ratio(GlobalNorm, of_params(GlobalNorm))).by_group(layers);
    let rate = warmup_cosine_decay(0.0, 1e-2, 50, steps as u64);
    let optimizer = named_chain(["clip", "adamw", "step"], (clip_by_global_norm(1.0), adamw(rate), how_far));
    let mut state = optimizer.init(&model)?;

    let mut board = TensorBoard::create(&folder)?;
    let lines = folder.join("readings.jsonl");
    let mut log = JsonLines::new(File::create(&lines)?);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {eta} to go")?;
    let bar = ProgressBar::new(steps as u64).with_style(style);

    let mut order: Vec<usize> = (0..TRAIN).collect();
    let mut step = 0;
    for _ in 0..EPOCHS {
        random.shuffle(&mut order);
        for rows in order.chunks(BATCH) {
            let loss = model.loss(&train.rows(rows), &mut gradient);
            optimizer.step(&mut model, &gradient, &mut state)?;
            let readings = optimizer.readings(&state)?.with("loss", loss);
            board.write(step, &readings)?;
            log.write(step, &readings)?;
            bar.set_message(format!("loss {loss:.4}  rate {:.5}", readings.get("learning_rate")?));
            bar.inc(1);
            step += 1;
        }
    }
    bar.finish();

    let picture = folder.join("watch.svg");
    fs::write(&picture, draw(&lines)?)?;
    println!("for TensorBoard, as JSON and as a picture: {}", folder.display());
    println!("test accuracy {:.3}", model.accuracy(&test));
    Ok(())
}

/// Draws the logged values; means of two steps halve the picture's size.
fn draw(lines: &PathBuf) -> Result<String, Box<dyn Error>> {
    let all: Vec<_> = read_json_lines(BufReader::new(File::open(lines)?)).collect::<Result<_, _>>()?;
    let column = |name: &str| -> Vec<(f64, f64)> {
        let mean = |steps: &[(u64, BTreeMap<String, f64>)]| {
            steps.iter().map(|(_, numbers)| numbers[name]).sum::<f64>() / steps.len() as f64
        };
        all.chunks(2).map(|steps| (steps[0].0 as f64, mean(steps))).collect()
    };
    let by_leaf = |name: &str| {
        let chart = Chart::new("norm of the gradient, by leaf").logarithmic(true);
        ["w1", "b1", "w2", "b2"]
            .into_iter()
            .fold(chart, |chart, leaf| chart.points(leaf, column(&format!("{name}[{leaf}]"))))
    };
    let far = Chart::new("norm of the step over that of the parameters").logarithmic(true);
    let charts = [
        Chart::new("loss").logarithmic(true).points("", column("loss")),
        Chart::new("learning rate").points("", column("adamw.learning_rate")),
        by_leaf("clip.norm"),
        far.points("hidden", column("step.by_group.ratio.hidden"))
            .points("output", column("step.by_group.ratio.output")),
    ];
    Ok(grid(&charts, 2, [480, 260])?)
}
