use std::io::Cursor;
use std::ops::RangeInclusive;

use gradchain::Migration;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::state::same_bits;

use super::{Problem, Subject, holds, same_state};
use crate::common::extra_inputs::Registered;
use crate::common::subject::AnyState;
use crate::common::trees::map;
use crate::common::{StateAfter, run, same_values};

/// Saves after each of these numbers of steps.
pub(super) fn saved(
    entry: &dyn Subject,
    Problem { params, grads, .. }: &Problem,
    cuts: RangeInclusive<usize>,
) -> Vec<Vec<u8>> {
    let transformation = entry.boxed();
    let mut before = run(&transformation, params, &grads[..*cuts.start()]);
    let mut files = Vec::new();
    for cut in cuts {
        if !files.is_empty() {
            transformation.step_with_inputs(&mut before.params, &grads[cut - 1], &mut before.state).unwrap();
        }
        let mut bytes = Cursor::new(Vec::new());
        Save::new(&transformation, &before.state).params(&before.params).to_writer(&mut bytes).unwrap();
        files.push(bytes.into_inner());
    }
    files
}

/// Resumes with new objects and other initial parameters, and ends as the uninterrupted run.
pub(super) fn resumed(
    entry: &dyn Subject,
    Problem { plan, params, grads }: &Problem,
    cut: usize,
    bytes: Vec<u8>,
    straight: &StateAfter<AnyState>,
) {
    let name = entry.name();
    let transformation = entry.boxed();
    let mut params = map(plan, params, |_, _| 0.5);
    let file = Checkpoint::from_bytes(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut state = file.load(&transformation, &mut params).unwrap_or_else(|error| panic!("{name}: {error}"));
    for grads in &grads[cut..] {
        transformation.step_with_inputs(&mut params, grads, &mut state).unwrap();
    }
    same_values(&straight.params, &params).unwrap_or_else(|at| panic!("{name}, cut after {cut}: {at}"));
    assert!(same_state(&straight.state, &*state), "{name}, cut after {cut}: the states differ");
}

#[test]
fn the_resumed_run_is_the_uninterrupted_one() {
    holds(
        |entry, problem| {
            let straight = entry.run(&problem.params, &problem.grads);
            for (cut, bytes) in saved(entry, problem, 0..=problem.grads.len() - 1).into_iter().enumerate() {
                resumed(entry, problem, cut, bytes, &straight);
            }
        },
        4,
    );
}

/// An empty migration changes nothing.
fn migrated(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let straight = run(&entry.boxed(), params, grads);
    let transformation = entry.boxed();
    let mut after = run(&transformation, params, &grads[..1]);
    let moved = after.state.migrate(&transformation, &after.params, &Migration::new());
    let mut state = moved.unwrap_or_else(|error| panic!("{name}: {error}"));
    for grads in &grads[1..] {
        transformation.step_with_inputs(&mut after.params, grads, &mut state).unwrap();
    }
    same_values(&straight.params, &after.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&*straight.state, &*state), "{name}: the states differ");
}

#[test]
fn a_migration_to_the_same_leaves_changes_nothing() {
    holds(migrated, 3);
}
