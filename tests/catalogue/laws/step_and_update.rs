use gradchain::apply_updates;
use gradchain::state::same_bits;
use gradchain::tree::{DynTree, Structure};

use super::{Problem, Subject, holds};
use crate::common::subject::AnyState;
use crate::common::{StateAfter, same_values};

pub(super) fn updated(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, stepped: &StateAfter<AnyState>) {
    let name = entry.name();
    let mut params = params.clone();
    let mut session = entry.init(&params).unwrap();
    let mut updates = session.zero_updates();
    for grads in grads {
        let outcome = session.update_into(grads, &params, &mut updates).unwrap();
        assert_eq!(outcome, updates.outcome(), "{name}");
        apply_updates(&mut params, &updates).unwrap();
    }
    same_values(&params, &stepped.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&session.state(), &stepped.state), "{name}: the states differ");
}

pub(super) fn law(entry: &dyn Subject, problem: &Problem) {
    updated(entry, problem, &entry.run(&problem.params, &problem.grads));
}

/// Owned gradients hold the updates if their dtypes are the parameters'; otherwise it is an error.
fn owned(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let stepped = entry.run(params, grads);
    let mut params = params.clone();
    let mut session = entry.init(&params).unwrap();
    let types =
        |tree: &DynTree| Structure::of(tree).unwrap().leaves().iter().map(|leaf| leaf.dtype()).collect::<Vec<_>>();
    let fits = types(&params) == types(&grads[0]);
    for grads in grads {
        match session.update_owned(grads.clone(), &params) {
            Ok((updates, _)) => apply_updates(&mut params, &updates).unwrap(),
            Err(error) => return assert!(!fits && error.is_structure(), "{name}: {error}"),
        }
        assert!(fits, "{name}: gradients of other types hold the updates");
    }
    same_values(&params, &stepped.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&session.state(), &stepped.state), "{name}: the states differ");
}

#[test]
fn gradients_given_by_value_come_back_as_the_updates() {
    holds(owned, 3);
}

#[test]
fn step_is_update_and_apply() {
    holds(law, 3);
}
