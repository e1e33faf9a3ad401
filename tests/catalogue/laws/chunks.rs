//! Leaves of several chunks give the same bits on any number of threads, in all forms of a step.
//!
//! The forms are those of other laws, which check every entry on small leaves. With many entries, each takes one form
//! in turn, besides a step on many threads; with `PROPTEST_CASES`, as in `ci/deep`, all.

use super::{Problem, Subject, all_selected, fusing, large_problem, registry, step_and_update};
use crate::common::same_values;
use gradchain::state::same_bits;

#[cfg(feature = "rayon")]
fn on<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

#[cfg(not(feature = "rayon"))]
fn on<R>(_: usize, work: impl FnOnce() -> R) -> R {
    work()
}

fn law(number: usize, entry: &dyn Subject, problem: &Problem) {
    let name = entry.name();
    let run = || entry.run(&problem.params, &problem.grads);
    let one = on(1, run);
    let many = on(8, run);
    same_values(&one.params, &many.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&one.state, &many.state), "{name}: the states differ");
    let all = !all_selected() || std::env::var_os("PROPTEST_CASES").is_some();
    let goes = |way: usize| all || number % 3 == way;
    if goes(0) {
        on(2, || fusing::apart(entry, problem, &one));
    }
    if goes(1) {
        on(3, || step_and_update::updated(entry, problem, &one));
    }
    #[cfg(not(feature = "checkpoint"))]
    if goes(2) {
        on(4, || fusing::erased(entry, problem, &one));
    }
    // Also in a box.
    #[cfg(feature = "checkpoint")]
    if goes(2) {
        let bytes = on(3, || super::resuming::saved(entry, problem, 1..=1)).remove(0);
        on(2, || super::resuming::resumed(entry, problem, 1, bytes, &one));
    }
}

#[test]
fn chunked_leaves_are_bitwise_identical_across_threads_and_forms() {
    let problem = large_problem();
    registry().iter().enumerate().for_each(|(number, entry)| law(number, &**entry, &problem));
}
