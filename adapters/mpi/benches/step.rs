//! Times a step of AdamW on several processes: prints the fastest step's time and the bytes that a rank sends.
//!
//! The result of `sharded` must be bitwise identical to that of one process.
//!
//! ```text
//! mpirun -n 4 .../step WAY [ELEMENTS]
//! ```
//!
//! The ways are: `sharded`, this crate's; `all_reduce`, MPI's own reduction of gradients with the whole state on every
//! rank; `bytes`, which only moves the bytes of `sharded` by two calls of MPI; and `messages`, which moves them by as
//! many calls of the same length as `sharded` makes. The script `bench` runs all in turn.
#![allow(missing_docs, reason = "a program")]

use std::time::{Duration, Instant};

use gradchain::collective::Collective;
use gradchain::prelude::*;
use gradchain::wrapper::sharded;
use mpi::collective::SystemOperation;
use mpi::traits::{Communicator, CommunicatorCollectives};

/// Timed, and warmup.
const STEPS: usize = 15;
const BEFORE: usize = 3;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let way = arguments.next().unwrap_or_else(|| "sharded".into());
    let n: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1 << 22);
    // Few bits, different in each chunk, so that the ranks' mean is exact.
    let (mut params, mut gradient) = (vec![1.0_f32; n], (0..n).map(|i| (i % 1009) as f32 - 504.0).collect::<Vec<_>>());
    if way == "sharded" {
        let ranks = gradchain_mpi::world(Duration::from_secs(60)).expect("MPI");
        let (rank, size) = (ranks.rank(), ranks.size());
        let optimizer = sharded(adamw(1e-3), ranks);
        let mut state = optimizer.init(&params).expect("a state");
        let took = fastest(|| optimizer.step(&mut params, &gradient, &mut state).expect("a step"));
        let (alone, mut expected) = (adamw(1e-3), vec![1.0_f32; n]);
        let mut state = alone.init(&expected).expect("a state");
        for _ in 0..BEFORE + STEPS {
            alone.step(&mut expected, &gradient, &mut state).expect("a step");
        }
        assert!(params == expected, "{size} ranks differ from one process");
        return report(rank, size, n, took);
    }
    let universe = mpi::initialize().expect("MPI");
    let world = universe.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let took = if way == "all_reduce" {
        let optimizer = adamw(1e-3);
        let mut state = optimizer.init(&params).expect("a state");
        let mut sum = vec![0.0_f32; n];
        fastest(|| {
            world.all_reduce_into(&gradient, &mut sum, SystemOperation::sum());
            gradient.iter_mut().zip(&sum).for_each(|(g, sum)| *g = sum / size as f32);
            optimizer.step(&mut params, &gradient, &mut state).expect("a step");
        })
    } else {
        let mut received = vec![0.0_f32; n];
        // Chunks of 16384 elements: 16 a rank, or fewer with more ranks.
        let most = if way == "bytes" { n } else { (256 / size).clamp(1, 16) * 16384 * size };
        fastest(|| {
            let rounds = || (0..n).step_by(most).map(|start| (n - start).min(most) / size);
            for each in rounds() {
                world.all_to_all_into(&gradient[..each * size], &mut received[..each * size]);
            }
            for each in rounds() {
                world.all_gather_into(&gradient[..each], &mut received[..each * size]);
            }
        })
    };
    report(rank, size, n, took);
}

fn fastest<R>(mut step: impl FnMut() -> R) -> f64 {
    let took = (0..BEFORE + STEPS).map(|_| {
        let start = Instant::now();
        step();
        start.elapsed().as_secs_f64()
    });
    took.skip(BEFORE).fold(f64::INFINITY, f64::min)
}

fn report(rank: usize, size: usize, n: usize, took: f64) {
    if rank == 0 {
        println!("{:.3} {}", took * 1e3, 2 * 4 * n * (size - 1) / size);
    }
}
