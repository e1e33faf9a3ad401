//! Messages: bytes, time, rounding error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gradchain::DType;
use gradchain::collective::{Collective, Pending, Threads};
use gradchain::prelude::*;
use gradchain::wrapper::sharded;

use super::together;
use crate::chunk::CHUNK;

/// Counts messages and bytes sent.
#[derive(Debug)]
struct Counting(Threads, Arc<[AtomicUsize; 2]>);

impl Counting {
    fn new(ranks: Threads) -> (Counting, impl Fn() -> [usize; 2]) {
        let counts = Arc::new([0, 0].map(AtomicUsize::new));
        let read = counts.clone();
        (Counting(ranks, counts), move || [0, 1].map(|i| read[i].swap(0, Ordering::Relaxed)))
    }

    fn count(&self, bytes: usize) {
        self.1[0].fetch_add(1, Ordering::Relaxed);
        self.1[1].fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Collective for Counting {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.count(send.len() - to[self.rank()]);
        self.0.begin_all_to_all(send, to, got, from)
    }
    fn begin_all_gather(&self, send: Vec<u8>, got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.count(send.len() * (self.size() - 1));
        self.0.begin_all_gather(send, got, from)
    }
}

/// Two chunks for each of four ranks.
const N: usize = 8 * CHUNK;
/// A step's comparison: a word to each of three others.
const COMPARED: usize = 8 * 3;

/// Returns four ranks' traffic in later steps.
fn sent<T: GradientTransformation<Needs = Nothing>>(around: impl Fn(Counting) -> T + Sync) -> Vec<[usize; 2]> {
    let mut all = together(4, |rank| {
        let (rank, read) = Counting::new(rank);
        let optimizer = around(rank);
        let (mut params, gradient) = (vec![1.0_f32; N], vec![0.5_f32; N]);
        let mut state = optimizer.init(&params).unwrap();
        let steps: Vec<_> = (0..9)
            .map(|_| {
                optimizer.step(&mut params, &gradient, &mut state).unwrap();
                read()
            })
            .collect();
        steps[3..].to_vec()
    });
    all.dedup();
    assert_eq!(all.len(), 1, "each rank sends as much");
    all.remove(0)
}

#[test]
fn gradients_and_updates_travel_once_a_step() {
    let plain = 2 * 4 * N * 3 / 4 + COMPARED;
    assert_eq!(sent(|ranks| sharded(adamw(0.1), ranks)), [[3, plain]; 6]);
    // Two chunks' sums to three others, after the reducing pass.
    let sum = 8 * 2 * 3;
    assert_eq!(sent(|ranks| sharded(chain((clip_by_global_norm(1.0), adamw(0.1))), ranks)), [[4, plain + sum]; 6]);
    // The last pass's counts follow it, with the other sum.
    let counted = sent(|ranks| sharded(chain((clip_by_global_norm(1.0), zero_nans(), adamw(0.1))), ranks));
    assert_eq!(counted, [[5, plain + 2 * 2 * sum]; 6]);
    // Half of the bytes for gradients.
    let narrow = plain - 2 * N * 3 / 4;
    assert_eq!(sent(|ranks| sharded(adamw(0.1), ranks).reduce_dtype(DType::Bf16)), [[3, narrow]; 6]);
}

#[test]
fn around_the_wrapper_gradients_travel_once_a_window() {
    let (once, compared) = ([3, 2 * 4 * N * 3 / 4 + COMPARED], [1, COMPARED]);
    let outside = sent(|ranks| multi_steps(sharded(adamw(0.1), ranks), 3));
    assert_eq!(outside, [compared, compared, once, compared, compared, once]);
    // Gradients in every step, updates once a window.
    let (gradients, both) = ([2, 4 * N * 3 / 4 + COMPARED], once);
    let inside = sent(|ranks| sharded(multi_steps(adamw(0.1), 3), ranks));
    assert_eq!(inside, [gradients, gradients, both, gradients, gradients, both]);
}

/// Messages lose their last byte from some call on.
#[derive(Debug)]
struct Losing(Threads, AtomicUsize);

impl Losing {
    fn lose<'a>(&self, pending: Pending<'a>) -> Pending<'a> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        Pending::new(move || {
            let [sent, mut got] = pending.wait()?;
            if left.is_err() {
                got.pop();
            }
            Ok([sent, got])
        })
    }
}

impl Collective for Losing {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.lose(self.0.begin_all_to_all(send, to, got, from))
    }
    fn begin_all_gather(&self, send: Vec<u8>, got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.lose(self.0.begin_all_gather(send, got, from))
    }
}

#[test]
fn a_collective_that_loses_bytes_is_an_error_in_every_call() {
    let trained = |calls: usize| {
        together(2, |rank| {
            let ranks = Losing(rank, AtomicUsize::new(calls));
            let optimizer = sharded(chain((clip_by_global_norm(1.0), adamw(0.1))), ranks);
            let mut params = vec![1.0_f32; 4 * CHUNK];
            let mut state = optimizer.init(&params)?;
            optimizer.step(&mut params, &vec![0.5_f32; 4 * CHUNK], &mut state)
        })
    };
    let fails = (0..100).take_while(|calls| {
        let done = trained(*calls);
        for error in done.iter().filter_map(|done| done.as_ref().err()) {
            assert!(error.is_collective() && error.to_string().contains("bytes, expected"), "{calls} calls: {error}");
        }
        assert_eq!(done[0].is_err(), done[1].is_err(), "{calls} calls");
        done[0].is_err()
    });
    // Comparisons of `init` and the step; gradients, two passes' reductions, updates.
    let fails = fails.count();
    assert!((6..100).contains(&fails), "{fails} calls");
}

/// Returns numbers of both signs, around 1, and extreme ones, by rank.
fn gradient(rank: usize) -> Vec<f32> {
    let smooth = (0..40_000).map(|i: i32| ((i * (rank as i32 + 3)) as f32 * 0.37).sin() * 10_f32.powi(i % 9 - 4));
    let last = [0.0, -0.0, 1.0, -1.0, 1.0 + 2_f32.powi(-9), f32::MIN_POSITIVE, -1e-30, 3e38, -3e38, 2_f32.powi(-130)];
    smooth.chain(last.map(|x| if rank.is_multiple_of(2) { x } else { x * 0.75 })).collect()
}

#[test]
fn narrowed_reductions_are_within_the_documented_error() {
    // Unit roundoff, smallest subnormal.
    for (dtype, unit, least, largest) in [
        (DType::Bf16, 2_f64.powi(-8), 2_f64.powi(-133), 3.39e38),
        (DType::F16, 2_f64.powi(-11), 2_f64.powi(-24), 65504.0),
        (DType::F32, 0.0, 0.0, f64::MAX),
    ] {
        for ranks in [1, 2, 3, 4] {
            let all = together(ranks, |rank| {
                let mine = gradient(rank.rank());
                let optimizer = sharded(sgd(1.0), rank).reduce_dtype(dtype);
                let mut params = vec![0.0_f32; mine.len()];
                let mut state = optimizer.init(&params).unwrap();
                optimizer.step(&mut params, &mine, &mut state).unwrap();
                params
            });
            assert!(all.iter().all(|params| params == &all[0]));
            let theirs: Vec<_> = (0..ranks).map(gradient).collect();
            for (i, found) in all[0].iter().enumerate() {
                let values: Vec<f64> = theirs.iter().map(|of_rank| f64::from(of_rank[i])).collect();
                // A gradient beyond the largest number is infinite.
                if values.iter().any(|x| x.abs() > largest) || values.iter().sum::<f64>().abs() > f64::from(f32::MAX) {
                    continue;
                }
                let exact = values.iter().sum::<f64>() / ranks as f64;
                let size = values.iter().map(|x| x.abs()).sum::<f64>() / ranks as f64;
                // Rounding of a sum of k and a division in `f32`, for numbers increased by `unit` at most.
                let bound = unit * size
                    + least / 2.0
                    + ranks as f64 * 2_f64.powi(-24) * size * (1.0 + unit)
                    + f64::from(f32::from_bits(1));
                let error = (f64::from(-found) - exact).abs();
                assert!(error <= bound, "{dtype}, {ranks} ranks, {values:?}: {error:e} of {bound:e}");
            }
        }
    }
}

#[test]
fn leaves_of_the_reduce_dtype_are_exact_and_differing_dtypes_are_errors() {
    let trained = |narrow| {
        together(2, |rank| {
            let mine: Vec<half::bf16> = gradient(rank.rank()).into_iter().map(half::bf16::from_f32).collect();
            let optimizer = sharded(adamw(0.1), rank);
            let optimizer = if narrow { optimizer.reduce_dtype(DType::Bf16) } else { optimizer };
            let mut params = vec![half::bf16::ONE; mine.len()];
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &mine, &mut state).unwrap();
            params.into_iter().map(half::bf16::to_bits).collect::<Vec<_>>()
        })
    };
    assert!(trained(true) == trained(false));
    let errors = together(2, |rank| {
        let dtype = if rank.rank() == 0 { DType::F32 } else { DType::Bf16 };
        sharded(sgd(0.1), rank).reduce_dtype(dtype).init(&1.0_f32).unwrap_err().to_string()
    });
    let expected = "the ranks differ in the optimizer: rank 0 has gradients sent as f32; rank 1 has gradients sent as \
                    bf16";
    assert!(errors.iter().all(|error| error.ends_with(expected)), "{errors:?}");
}
