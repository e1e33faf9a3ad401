//! Results are bitwise identical at every SIMD level.
//!
//! Debug builds compile chains for one level (see `.cargo/config.toml`), so the law covers only explicit SIMD:
//! conversions, quantization, sums, matrices. `ci/deep` covers all loops and levels.

use gradchain::SimdLevel;
use gradchain::state::same_bits;

use super::{Problem, Subject, holds};
use crate::common::same_values;

fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let runs = [Some(SimdLevel::Baseline), Some(SimdLevel::Avx2), None].map(|simd| {
        gradchain::force_simd_level(simd);
        let after = entry.run(params, grads);
        gradchain::force_simd_level(None);
        after
    });
    for other in &runs[1..] {
        same_values(&runs[0].params, &other.params).unwrap_or_else(|at| panic!("{name}: {at}"));
        assert!(same_bits(&runs[0].state, &other.state), "{name}: the states differ");
    }
}

#[test]
fn every_simd_level_is_bitwise_identical() {
    holds(law, 2);
}
