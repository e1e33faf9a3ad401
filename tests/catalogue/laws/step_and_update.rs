use gradchain::apply_updates;
use gradchain::state::same_bits;

use super::{Problem, Subject, holds, holds_on, large_problem};
use crate::common::same_values;

pub(super) fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let stepped = entry.run(params, grads);
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

#[test]
fn step_is_update_and_apply() {
    holds(law, 3);
}

#[test]
fn step_is_update_and_apply_on_leaves_of_several_pieces_too() {
    holds_on(law, &large_problem());
}
