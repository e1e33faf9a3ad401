//! The laws, one a file: functions of an entry and a problem.

mod absent;
#[cfg(feature = "config")]
mod absent_advice;
mod absent_in_windows;
mod arguments;
mod barriers;
mod changed_arguments;
mod chunks;
#[cfg(feature = "config")]
mod configs;
mod cuts;
mod emissions;
mod errors;
#[cfg(feature = "half")]
mod evaluations;
mod exchanged;
mod fusing;
mod layouts;
mod masks;
#[cfg(feature = "half")]
mod masters;
#[cfg(feature = "checkpoint")]
mod may_differ;
mod mini_steps;
mod neighbours;
mod nestings;
mod programs;
#[cfg(all(feature = "checkpoint", feature = "rayon"))]
mod quantized;
mod readings;
mod replayed;
#[cfg(feature = "checkpoint")]
mod resuming;
mod rows;
mod schedules;
mod schemas;
#[cfg(feature = "checkpoint")]
mod shapes;
#[cfg(feature = "checkpoint")]
mod sharded;
mod simd_levels;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "half", feature = "rayon"))]
mod sixteen_bits;
mod step_and_update;
mod thawing;
mod types;
mod weights;
mod zero_gradients;

use core::cell::Cell;

use gradchain::state::{State, same_bits};
use proptest::test_runner::{Config, TestRunner};

use crate::common::chunk::CHUNK;
use crate::common::registry::{Locality, all_selected, assert_exceptions, registry};
use crate::common::subject::{AnyState, Subject};
use crate::common::trees::{LeafPlan, Number, Order, Problem, noise, problem, tree};

type Law = fn(&dyn Subject, &Problem);

/// Checks a law for every entry on random problems.
///
/// `PROPTEST_CASES` sets their number. Each entry takes every third, or all with `all_cases`.
fn holds(law: Law, steps: usize) {
    let entries = registry();
    let mut runner = TestRunner::new(config(cases()));
    let turn = Cell::new(0);
    runner
        .run(&problem(steps), |problem| {
            let turn = turn.replace(turn.get() + 1);
            let held = entries.iter().enumerate().filter(|(i, _)| (i + turn).is_multiple_of(3) || all_cases());
            held.for_each(|(_, entry)| law(&**entry, &problem));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

fn holds_on(law: Law, problem: &Problem) {
    registry().iter().for_each(|entry| law(&**entry, problem));
}

fn config(cases: u32) -> Config {
    Config { failure_persistence: None, ..Config::with_cases(cases) }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

/// Returns true with `GRADCHAIN_ALL_CASES`, as in `ci/deep`, or on the entries of `ENTRY`.
fn all_cases() -> bool {
    std::env::var_os("GRADCHAIN_ALL_CASES").is_some() || !all_selected()
}

/// Compares states of any types, such as boxed ones.
fn same_state<S: State>(ours: &AnyState, theirs: &S) -> bool {
    same_bits(ours, &AnyState::of(theirs))
}

/// Returns leaves large enough that threads share them, and small ones.
///
/// It has no more elements, since these laws dominate the tests' time.
fn large_problem() -> Problem {
    let leaf = |number, shape: &[usize], order| LeafPlan { number, shape: shape.into(), order };
    let mut plan = vec![
        leaf(Number::F32, &[2 * CHUNK + 232], Order::C),
        leaf(Number::F64, &[3], Order::C),
        // Threads share blocks of its products. It has few rows and columns, since decompositions cost the cube of
        // either.
        leaf(Number::F32, &[257, CHUNK / 256], Order::Fortran),
        leaf(Number::F64, &[CHUNK / 128 + 1, 131], Order::Strided),
        leaf(Number::F32, &[50], Order::Negative),
        leaf(Number::F32, &[], Order::C),
    ];
    if cfg!(feature = "half") {
        // Blocks in registers, and a remainder.
        plan.extend([leaf(Number::Bf16, &[1_000], Order::C), leaf(Number::F16, &[77], Order::C)]);
    }
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..2).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}
