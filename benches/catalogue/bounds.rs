//! The bound of a chain: its arithmetic or its bytes.
//!
//! Arithmetic is timed in L1 as the difference of two leaf sizes, which cancels the fixed costs of a step and a leaf.
//! The bytes are the bench's limit. A loop that overlaps both takes the larger of the two; one that waits for memory
//! takes their sum.

use std::time::Instant;

use gradchain::prelude::*;
use gradchain::{SimdLevel, detected_simd_level, force_simd_level};

use crate::bench::in_pool;
use crate::limit::{Limit, median};
use crate::trees::{Number, Shapes, flat};

/// Six arrays of the longer one are 36 KB as `f32`.
const SHORT_LEAF: usize = 512;
const LONG_LEAF: usize = 1536;
/// A step takes less than a microsecond.
const STEPS: usize = 64;
const ROUNDS: usize = 200;

/// Prints a line for each SIMD level, for one thread.
pub fn run<E: Number, T: GradientTransformation<Needs = Nothing>>(label: &str, t: &T) {
    let shapes = Shapes::one("1e7", &[10_000_000]);
    let mut params = flat::<E>(&shapes, |_| 0.5);
    let grads = flat::<E>(&shapes, |i| (i % 1000) as f64 * 1e-3 - 0.5);
    let elements = shapes.elements();
    let mut limit = Limit::of(&t.plan(&params).expect("a plan"), elements, E::DTYPE.size(), false);
    for (name, simd) in [("avx512", SimdLevel::Avx512), ("avx2", SimdLevel::Avx2), ("baseline", SimdLevel::Baseline)] {
        if simd > detected_simd_level() {
            continue;
        }
        force_simd_level(Some(simd));
        let ([arithmetic, fixed], (step, bytes, _)) = in_pool(1, || {
            let cached = in_cache::<E, T>(t);
            let mut state = t.init(&params).expect("a state");
            (cached, limit.measure(|| _ = t.step(&mut params, &grads, &mut state).expect("a step")))
        });
        force_simd_level(None);
        let [step, bytes] = [step, bytes].map(|time| time / elements as f64 * 1e9);
        println!(
            "bound {label} simd={name} step={step:.3} arithmetic={arithmetic:.3} bytes={bytes:.3} \
             of_larger={:.2} of_both={:.2} ns_of_a_leaf={fixed:.0}",
            step / arithmetic.max(bytes),
            step / (arithmetic + bytes),
        );
    }
}

/// Returns nanoseconds per element in the cache, and per step on one leaf without elements.
fn in_cache<E: Number, T: GradientTransformation<Needs = Nothing>>(t: &T) -> [f64; 2] {
    let mut leaves = [SHORT_LEAF, LONG_LEAF].map(|n| {
        let shapes = Shapes::one("cached", &[n]);
        let params = flat::<E>(&shapes, |_| 0.5);
        let grads = flat::<E>(&shapes, |i| (i % 1000) as f64 * 1e-3 - 0.5);
        let state = t.init(&params).expect("a state");
        (params, grads, state, Vec::new())
    });
    for _ in 0..ROUNDS {
        for (params, grads, state, times) in &mut leaves {
            let start = Instant::now();
            for _ in 0..STEPS {
                t.step(params, grads, state).expect("a step");
            }
            times.push(start.elapsed().as_secs_f64() / STEPS as f64 * 1e9);
        }
    }
    let [fewer, more] = leaves.map(|(.., mut times)| median(&mut times));
    let element = (more - fewer) / (LONG_LEAF - SHORT_LEAF) as f64;
    [element, fewer - element * SHORT_LEAF as f64]
}
