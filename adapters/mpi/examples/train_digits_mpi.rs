//! Trains a network to read handwritten digits on several processes, each with a share of the optimizer's state.
//!
//! ```text
//! mpirun -n 4 target/release/examples/train_digits_mpi FOLDER [STEPS]
//! ```
//!
//! Each batch of 128 images is split into 8 parts, whatever the number of ranks: 1 to 8 ranks give bitwise identical
//! results. Every ten steps all ranks write a checkpoint to the folder. A run that finds one resumes from it, with any
//! number of ranks. If a rank is lost, the others print the checkpoint to resume from and exit.

#[path = "../../../examples/train_digits/data.rs"]
mod data;
#[path = "../../../examples/train_digits/model.rs"]
mod model;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gradchain::checkpoint::{Rotation, Save, latest_valid};
use gradchain::collective::{Collective, PairwiseMean, parts};
use gradchain::prelude::*;
use gradchain::tree::for_each_leaf;
use gradchain::wrapper::sharded;

use crate::data::{Digits, Random};
use crate::model::Mlp;

const BATCH: usize = 128;
const PARTS: usize = 8;
const TRAIN: usize = 1200;
const SAVED: u64 = 10;
/// Silence for this time means that a rank is lost.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A little more than four chunks of 16384 elements.
const HIDDEN: usize = 1024;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("train_digits_mpi FOLDER [STEPS]");
        return ExitCode::FAILURE;
    };
    let steps = arguments.next().and_then(|steps| steps.parse().ok()).unwrap_or(200);
    match train(Path::new(&folder), steps) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let latest = latest_valid(&folder).ok().and_then(|latest| latest.checkpoint);
            let step = latest.map_or("the beginning".into(), |(step, _)| format!("step {step}"));
            eprintln!("{error}; resume from {step} in {folder}");
            ExitCode::FAILURE
        }
    }
}

fn train(folder: &Path, steps: u64) -> Result<(), Box<dyn Error>> {
    let ranks = gradchain_mpi::world(TIMEOUT)?;
    let (rank, size, mine) = (ranks.rank(), ranks.size(), parts(&ranks, PARTS)?);
    let mut random = Random(0);
    let (images, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let mut params = Mlp::new(64, HIDDEN, 10, &mut random);
    let mut gradient = params.zeros_like();

    let learning_rate = warmup_cosine_decay(0.0, 3e-3, 20, 400);
    let optimizer = adamw(learning_rate).weight_decay(1e-2).mask(Mask::path("**/w*"));
    let optimizer = sharded(chain((clip_by_global_norm(1.0), zero_nans(), optimizer)), ranks).parts(mine.len());
    let rotation = Rotation::new(folder)?.keep_last(3);
    let (begins, mut state) = match latest_valid(folder)?.checkpoint {
        Some((step, file)) => (step, file.load(&optimizer, &mut params)?),
        None => (0, optimizer.init(&params)?),
    };
    let rows: Vec<usize> = (0..TRAIN).collect();
    for step in begins..steps {
        let mut order = rows.clone();
        Random(step + 1).shuffle(&mut order);
        let mut mean = PairwiseMean::new();
        for part in mine.clone() {
            let rows = &order[part * BATCH / PARTS..(part + 1) * BATCH / PARTS];
            params.loss(&images.rows(rows), &mut gradient);
            mean.add(gradient.clone())?;
        }
        let mean = mean.mean().ok_or("a rank without a part of the batch")?;
        optimizer.step(&mut params, &mean, &mut state)?;
        if (step + 1) % SAVED == 0 {
            let save = Save::new(&optimizer, &state).params(&params);
            rotation.save_shards(step + 1, None, save, &**optimizer.collective())?;
        }
    }
    if rank == 0 {
        println!("ranks {size}, from step {begins}");
        println!("bytes of state here {}", state.schema().size().total_bytes());
        println!("test accuracy {:.3}", params.accuracy(&test));
        println!("bits {:016x}", bits(&params));
    }
    Ok(())
}

/// Hashes the parameters' bits.
fn bits(params: &Mlp) -> u64 {
    let mut bits = 0xcbf2_9ce4_8422_2325_u64;
    for_each_leaf(params, |_, leaf| {
        leaf.to_f64().into_iter().for_each(|x| bits = (bits ^ x.to_bits()).wrapping_mul(0x0100_0000_01b3));
    });
    bits
}
