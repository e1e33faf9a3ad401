//! Kills a training process repeatedly, resumes it, and compares the result bit for bit with an uninterrupted run.
//!
//! ```text
//! cargo run --release --example resume
//! ```
//!
//! The network and the digits are those of `train_digits`. First it is trained without interruption. Then this program
//! starts itself as another process, which trains the same network and writes checkpoints. The parent kills it with
//! `SIGKILL`, which no process can catch, at a random moment: during a step or during a write. The next process resumes
//! from the newest valid checkpoint, until one completes the run.

#[path = "../../examples/train_digits/data.rs"]
mod data;
#[path = "../../examples/train_digits/model.rs"]
mod model;

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use gradchain::checkpoint::{Rotation, Save, latest_valid};
use gradchain::prelude::*;

use crate::data::{Digits, Random};
use crate::model::Mlp;

/// Mini-batches, images per mini-batch, mini-batches per update.
const STEPS: u64 = 1200;
const BATCH: usize = 16;
const ACCUMULATED: u32 = 4;
/// Every other checkpoint is within an accumulated update.
const EVERY: u64 = 10;
const KILLS: u64 = 6;
const TRAIN: usize = 1200;

type Anything<T> = Result<T, Box<dyn Error>>;

fn main() -> Anything<ExitCode> {
    if let Some(folder) = std::env::args_os().nth(1) {
        train(Some(Path::new(&folder)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let straight = train(None)?;
    println!("the uninterrupted run: {STEPS} mini-batches, test accuracy {:.3}", accuracy(&straight)?);

    let folder = tempfile::tempdir()?;
    let mut random = Random(std::process::id().into());
    for kill in 1..=KILLS {
        // Each kill has a part of the run to itself; the last part has none.
        let part = STEPS / (KILLS + 1);
        let after = (kill - 1) * part + random.bits() % part;
        let hit = start_and_kill(folder.path(), after, Duration::from_micros(random.bits() % 3000))?;
        let begun = begun_files(folder.path())?;
        let newest = match latest_valid(folder.path())?.checkpoint {
            Some((step, _)) => format!("newest complete checkpoint: mini-batch {step}"),
            None => "no checkpoint yet".into(),
        };
        println!("kill {kill}: {hit}; {newest}{}", if begun > 0 { ", an incomplete one remains" } else { "" });
    }
    let resumed = run_to_the_end(folder.path())?;
    println!("the resumed run: test accuracy {:.3}", accuracy(&resumed)?);

    let (ours, theirs) = (bits(&resumed), bits(&straight));
    let differing = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
    if differing > 0 {
        println!("{differing} of {} parameters differ", theirs.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("after {KILLS} kills all {} parameters are bitwise identical to the uninterrupted run", theirs.len());
    Ok(ExitCode::SUCCESS)
}

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    let updates = STEPS / u64::from(ACCUMULATED);
    multi_steps(
        chain((
            clip_by_global_norm(1.0),
            adamw(warmup_cosine_decay(0.0, 1e-2, 30, updates).end_value(1e-5)).mask(Mask::path("**/w*")),
        )),
        ACCUMULATED,
    )
}

/// Trains; with a folder, resumes from the newest valid checkpoint there and writes new ones.
fn train(folder: Option<&Path>) -> Anything<Mlp> {
    let mut random = Random(0);
    let (train, _) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let mut model = Mlp::new(64, 32, 10, &mut random);
    let mut gradient = model.zeros_like();
    let optimizer = optimizer();

    // All of resuming: the state holds its counts and its position in a window.
    let latest = folder.map(latest_valid).transpose()?.and_then(|latest| latest.checkpoint);
    let (done, mut state) = match latest {
        Some((step, file)) => (step, file.load(&optimizer, &mut model)?),
        None => (0, optimizer.init(&model)?),
    };
    let rotation = folder.map(Rotation::new).transpose()?.map(|rotation| rotation.keep_last(3));

    for step in done + 1..=STEPS {
        // A mini-batch depends on its number alone, so that a resumed run sees the same data.
        let mut random = Random(step);
        let rows: Vec<usize> = (0..BATCH).map(|_| (random.uniform() * TRAIN as f64) as usize).collect();
        if folder.is_some() {
            println!("training on mini-batch {step}");
        }
        let loss = model.loss(&train.rows(&rows), &mut gradient);
        optimizer.step(&mut model, &gradient, &mut state)?;
        if let Some(rotation) = &rotation
            && (step.is_multiple_of(EVERY) || step == STEPS)
        {
            println!("writing the checkpoint of mini-batch {step}");
            rotation.save(step, Some(loss), Save::new(&optimizer, &state).params(&model))?;
        }
    }
    Ok(model)
}

/// Kills the process shortly after it begins a mini-batch; returns its last message.
fn start_and_kill(folder: &Path, after: u64, moment: Duration) -> Anything<String> {
    let mut child = Command::new(std::env::current_exe()?).arg(folder).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("the process has no standard output")?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let begun = line.trim().strip_prefix("training on mini-batch ").and_then(|step| step.parse::<u64>().ok());
        if begun.is_some_and(|step| step > after) {
            break;
        }
        line.clear();
    }
    std::thread::sleep(moment);
    child.kill()?;
    // Up to the kill, not up to the previous read.
    lines.read_to_string(&mut line)?;
    Ok(match child.wait()?.success() {
        true => "it had already finished".into(),
        false => format!("it was {}", line.lines().last().unwrap_or("starting")),
    })
}

/// Reads the parameters of the completed process.
fn run_to_the_end(folder: &Path) -> Anything<Mlp> {
    let status = Command::new(std::env::current_exe()?).arg(folder).stdout(Stdio::null()).status()?;
    let (step, file) = latest_valid(folder)?.checkpoint.ok_or("no checkpoint")?;
    if !status.success() || step != STEPS {
        return Err(format!("the last process ended at mini-batch {step}: {status}").into());
    }
    let mut model = Mlp::new(64, 32, 10, &mut Random(1));
    file.load_params(&mut model)?;
    Ok(model)
}

/// Returns the incomplete files of killed processes; the next writer removes them.
fn begun_files(folder: &Path) -> Anything<usize> {
    let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(names.iter().filter(|name| name.to_string_lossy().ends_with(".tmp")).count())
}

fn bits(model: &Mlp) -> Vec<u32> {
    let Mlp { w1, b1, w2, b2 } = model;
    w1.iter().chain(b1).chain(w2).chain(b2).map(|parameter| parameter.to_bits()).collect()
}

fn accuracy(model: &Mlp) -> Anything<f64> {
    Ok(model.accuracy(&Digits::load()?.shuffle_and_split(TRAIN, &mut Random(0)).1))
}
