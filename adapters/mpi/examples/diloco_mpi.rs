//! Trains one network on several processes that communicate once in thirty steps: DiLoCo, as gradchain's `diloco`.
//!
//! ```text
//! mpirun -n 4 target/release/examples/diloco_mpi FILE [ROUNDS]
//! ```
//!
//! After every round the first rank writes the network and the outer optimizer to the file. A run that finds it resumes
//! from there, on any number of ranks; each worker's AdamW state starts anew. If a rank is lost, the others print the
//! round in the file and exit.

#[path = "../../../examples/train_digits/data.rs"]
mod data;
#[path = "../../../examples/train_digits/model.rs"]
mod model;
#[path = "../../../examples/diloco/worker.rs"]
mod worker;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::collective::{Collective, gather};

use crate::worker::{H, TRAIN, Worker};

/// Silence for this time means that a rank is lost.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("diloco_mpi FILE [ROUNDS]");
        return ExitCode::FAILURE;
    };
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    match train(&file, rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let saved = Checkpoint::open(&file).ok();
            let round = saved.as_ref().and_then(|saved| saved.note("round")).unwrap_or("0");
            eprintln!("{error}; resume from round {round} in {file}");
            ExitCode::FAILURE
        }
    }
}

fn train(file: &str, rounds: usize) -> Result<(), Box<dyn Error>> {
    let ranks = gradchain_mpi::world(TIMEOUT)?;
    let mut worker = Worker::new(&ranks)?;
    let mut begins = 0;
    if Path::new(file).exists() {
        let saved = Checkpoint::open(file)?;
        worker.outer_state = saved.load(&worker.outer, &mut worker.global)?;
        begins = saved.note("round").and_then(|round| round.parse().ok()).ok_or("a file without a round")?;
    }
    // No rank may write before all have read.
    ranks.barrier()?;
    for round in begins + 1..=rounds {
        let loss = worker.round(&ranks)?;
        if ranks.rank() == 0 {
            let save = Save::new(&worker.outer, &worker.outer_state).params(&worker.global);
            save.note("round", round).to_file(file)?;
            println!("round {round:2}  loss {loss:.4}  test accuracy {:.3}", worker.global.accuracy(&worker.test));
        }
    }
    let bits: Vec<u8> = worker.bits().into_iter().flat_map(u64::to_le_bytes).collect();
    let agree = gather(&ranks, &bits)?.iter().all(|others| *others == bits);
    if !agree {
        return Err("the workers should agree".into());
    }
    if ranks.rank() == 0 {
        println!("all workers are bitwise identical: {agree}");
        let messages = rounds - begins;
        println!("messages {messages}, of one network each, in {} steps on {TRAIN} images", messages * H);
    }
    Ok(())
}
