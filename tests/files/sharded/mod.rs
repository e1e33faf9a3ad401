//! Sharded optimizers on ranks that are threads.

mod alone;
mod checkpoints;
mod promises;
mod refusals;
#[cfg(feature = "half")]
mod travel;

use std::thread;
use std::time::Duration;

use gradchain::Tree;
use gradchain::collective::{Threads, threads};

use crate::chunk::CHUNK;

/// Three chunks.
const LARGE: usize = 2 * CHUNK + 3_232;

/// Longer than any machine takes, unless it hangs.
const LONG: Duration = Duration::from_secs(120);

fn together<R: Send>(ranks: usize, work: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    within(LONG, ranks, work)
}

/// Runs all ranks, with a time limit.
fn within<R: Send>(limit: Duration, ranks: usize, work: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let running: Vec<_> = threads(ranks, limit).into_iter().map(|rank| scope.spawn(|| work(rank))).collect();
        running.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
    })
}

/// Split and small leaves: 4 chunks, two dtypes.
#[derive(Clone, Debug, PartialEq, Tree)]
struct Model {
    large: Vec<f32>,
    small: Vec<f64>,
    double: Vec<f64>,
    single: f32,
}

impl Model {
    /// Returns numbers of both signs, around 1.
    fn of(seed: u64) -> Model {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f64 / f64::from(1 << 24) - 0.5) * f64::from(1 + (state & 7) as u32)
        };
        Model {
            large: (0..LARGE).map(|_| next() as f32).collect(),
            small: (0..5).map(|_| next()).collect(),
            double: (0..CHUNK + 616).map(|_| next()).collect(),
            single: next() as f32,
        }
    }

    fn bits(&self) -> Vec<u64> {
        let mut bits = Vec::new();
        gradchain::tree::for_each_leaf(self, |_, leaf| bits.extend(leaf.to_f64().into_iter().map(f64::to_bits)));
        bits
    }
}
