use gradchain::state::same_bits;

use super::{Problem, Subject, holds};
use crate::common::same_values;

pub(super) fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let straight = entry.run(params, grads);
    let (mut stepped, mut session) = (params.clone(), entry.init(params).unwrap());
    session.step(&mut stepped, &grads[0]).unwrap();
    let (params, state, mut copy) = (stepped.clone(), session.state(), session.copy());
    let mut wrong = grads[1].clone();
    wrong.insert("unexpected", ndarray::arr0(1.0_f32));
    wrong.insert("another", ndarray::arr1(&[1.0_f64]));
    let error = session.step(&mut stepped, &wrong).unwrap_err();
    assert_eq!(error.differences().len(), 2, "{name}: every difference is listed: {error}");
    let error = session.update(&wrong, &params).unwrap_err();
    assert!(error.is_structure(), "{name}: {error}");
    let mut other = wrong.clone();
    assert!(session.step(&mut other, &wrong).is_err(), "{name}: other parameters");
    same_values(&stepped, &params).unwrap_or_else(|at| panic!("{name}: parameters changed: {at}"));
    same_values(&other, &wrong).unwrap_or_else(|at| panic!("{name}: parameters changed: {at}"));
    assert!(same_bits(&session.state(), &state), "{name}: the state changed");
    // And the run goes on as if nothing had been; so does a copy.
    let mut of_copy = params;
    for (session, params) in [(&mut session, &mut stepped), (&mut copy, &mut of_copy)] {
        for grads in &grads[1..] {
            session.step(params, grads).unwrap();
        }
        same_values(params, &straight.params).unwrap_or_else(|at| panic!("{name}: {at}"));
        assert!(same_bits(&session.state(), &straight.state), "{name}: the states differ");
    }
}

#[test]
fn an_error_changes_nothing() {
    holds(law, 2);
}
