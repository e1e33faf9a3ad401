use std::io::Cursor;

use gradchain::Migration;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::state::same_bits;

use super::{Problem, Subject, holds};
#[cfg(feature = "rayon")]
use super::{holds_on, large_problem};
use crate::common::given::{Member, Registered};
use crate::common::trees::map;
use crate::common::{run, same_values};

type After = crate::common::After<gradchain::OptState<Member>>;

/// Runs until the cut, saves.
fn saved(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, cut: usize) -> Vec<u8> {
    let transformation = entry.boxed();
    let before = run(&transformation, params, &grads[..cut]);
    let mut bytes = Cursor::new(Vec::new());
    Save::new(&transformation, &before.state).params(&before.params).to_writer(&mut bytes).unwrap();
    bytes.into_inner()
}

/// Goes on, as far as a process can be told from another: everything is made anew, the parameters with other values.
fn resumed(entry: &dyn Subject, Problem { plan, params, grads }: &Problem, cut: usize, bytes: Vec<u8>) -> After {
    let name = entry.name();
    let transformation = entry.boxed();
    let mut params = map(plan, params, |_, _| 0.5);
    let file = Checkpoint::from_bytes(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut state = file.load(&transformation, &mut params).unwrap_or_else(|error| panic!("{name}: {error}"));
    for grads in &grads[cut..] {
        transformation.step_given(&mut params, grads, &mut state).unwrap();
    }
    After { params, state }
}

fn same(entry: &dyn Subject, cut: usize, straight: &After, resumed: &After) {
    let name = entry.name();
    same_values(&straight.params, &resumed.params).unwrap_or_else(|at| panic!("{name}, cut after {cut}: {at}"));
    assert!(same_bits(&*straight.state, &*resumed.state), "{name}, cut after {cut}: the states differ");
}

#[test]
fn the_resumed_run_is_the_run() {
    holds(
        |entry, problem| {
            let straight = run(&entry.boxed(), &problem.params, &problem.grads);
            for cut in 0..problem.grads.len() {
                same(entry, cut, &straight, &resumed(entry, problem, cut, saved(entry, problem, cut)));
            }
        },
        4,
    );
}

#[cfg(feature = "rayon")]
#[test]
fn the_resumed_run_is_the_run_on_another_number_of_threads() {
    let law = |entry: &dyn Subject, problem: &Problem| {
        let threads = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        let straight = threads(1).install(|| run(&entry.boxed(), &problem.params, &problem.grads));
        let bytes = threads(3).install(|| saved(entry, problem, 1));
        same(entry, 1, &straight, &threads(2).install(|| resumed(entry, problem, 1, bytes)));
    };
    holds_on(law, &large_problem());
}

/// Parameters of the same structure: a migration that says nothing changes nothing.
fn migrated(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let straight = run(&entry.boxed(), params, grads);
    let transformation = entry.boxed();
    let mut after = run(&transformation, params, &grads[..1]);
    let moved = after.state.migrate(&transformation, &after.params, &Migration::new());
    let mut state = moved.unwrap_or_else(|error| panic!("{name}: {error}"));
    for grads in &grads[1..] {
        transformation.step_given(&mut after.params, grads, &mut state).unwrap();
    }
    same_values(&straight.params, &after.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&*straight.state, &*state), "{name}: the states differ");
}

#[test]
fn a_migration_to_the_same_leaves_changes_nothing() {
    holds(migrated, 3);
}
