//! Not optimized, the loops of chains are compiled for one instruction set (`.cargo/config.toml` says why), so here the
//! law is about what is written differently for each: conversions, codes, sums, matrices. `ci/deep` holds it optimized,
//! with all loops for all sets.

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
fn every_instruction_set_gives_the_same_bits() {
    holds(law, 2);
}
