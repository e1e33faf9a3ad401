use gradchain::state::same_bits;
use gradchain::tree::DynTree;
use ndarray::{ArrayD, IxDyn};

use super::{Problem, Subject, holds, registry};
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
    // The run and a copy continue as if nothing had happened.
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

/// Steps an empty leaf with axes whose lengths multiply to more than fits, or nearly.
///
/// A failed allocation is an error like any other.
fn steps_with_leaf_of(entry: &dyn Subject, shape: &[usize]) -> gradchain::Result<()> {
    let mut params = DynTree::new();
    params.insert("empty", ArrayD::<f32>::zeros(IxDyn(shape)));
    params.insert("full", ndarray::arr2(&[[1.0_f64, -2.0], [0.5, 3.0]]));
    let (grads, mut session) = (params.clone(), entry.init(&params)?);
    (0..3).try_for_each(|_| session.step(&mut params, &grads).map(drop))
}

#[test]
fn a_leaf_without_elements_may_have_axes_of_any_length() {
    let (mut panicked, mut refused) = (Vec::new(), Vec::new());
    for entry in registry() {
        // An array along such an axis exceeds any allocation. A system that overcommits would grant smaller ones, and
        // end the process when they are written.
        for shape in [vec![usize::MAX >> 1, 0], vec![0, usize::MAX >> 1], vec![1 << 61, 0, 2], vec![0; 4]] {
            let what = format!("{} {shape:?}", entry.name());
            let steps = || steps_with_leaf_of(&*entry, &shape);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => refused.push(format!("{what}: {error}")),
                Err(_) => panicked.push(what),
            }
        }
    }
    assert!(panicked.is_empty(), "{panicked:#?}");
    let about_memory = |error: &String| error.contains("out of memory");
    assert!(refused.iter().all(about_memory), "{refused:#?}");
}
