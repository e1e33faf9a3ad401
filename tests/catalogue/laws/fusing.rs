use gradchain::prelude::*;

use super::{Problem, Subject, config, holds, problem, same_state};
use crate::common::given::member;
use crate::common::subject::AnyState;
use crate::common::{After, run, same_values};
use proptest::test_runner::TestRunner;

/// In a chain with something that cannot be fused, every part runs on tiles; what is behind `dyn` is such.
pub(super) fn apart(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, fused: &After<AnyState>) {
    let name = entry.name();
    let apart = run(&chain((member(identity()), entry.boxed(), member(identity()))), params, grads);
    same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{name} in a chain: {at}"));
    assert!(same_state(&fused.state, &apart.state.1), "{name} in a chain: the states differ");
}

pub(super) fn erased(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, fused: &After<AnyState>) {
    let name = entry.name();
    let erased = run(&entry.boxed(), params, grads);
    same_values(&fused.params, &erased.params).unwrap_or_else(|at| panic!("{name} boxed: {at}"));
    assert!(same_state(&fused.state, &*erased.state), "{name} boxed: the states differ");
}

pub(super) fn law(entry: &dyn Subject, problem: &Problem) {
    let fused = entry.run(&problem.params, &problem.grads);
    apart(entry, problem, &fused);
    erased(entry, problem, &fused);
}

#[test]
fn fused_equals_stage_by_stage() {
    holds(law, 3);
}

#[test]
fn a_chain_fused_equals_its_members_boxed_and_its_members_one_after_the_other() {
    let check = |Problem { params, grads, .. }: Problem| {
        let fused =
            run(&chain((zero_nans(), scale(0.5), clip_by_global_norm(0.4), ema(0.5), adamw(0.1))), &params, &grads);
        let members: Vec<Boxed> = vec![
            boxed(zero_nans()),
            boxed(scale(0.5)),
            boxed(clip_by_global_norm(0.4)),
            boxed(ema(0.5)),
            boxed(adamw(0.1)),
        ];
        let apart = run(&chain(members), &params, &grads);
        same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{at}"));
        Ok(())
    };
    TestRunner::new(config(super::cases())).run(&problem(3), check).unwrap_or_else(|failure| panic!("{failure}"));
}
