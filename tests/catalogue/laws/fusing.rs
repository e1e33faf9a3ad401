use gradchain::prelude::*;

use super::{Problem, Subject, config, holds, holds_on, large_problem, problem, same_state};
use crate::common::given::member;
use crate::common::{run, same_values};
use proptest::test_runner::TestRunner;

pub(super) fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let fused = entry.run(params, grads);
    // In a chain with something that cannot be fused, every part runs on tiles; what is behind `dyn` is such.
    let apart = run(&chain((member(identity()), entry.boxed(), member(identity()))), params, grads);
    same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{name} in a chain: {at}"));
    assert!(same_state(&fused.state, &apart.state.1), "{name} in a chain: the states differ");
    let erased = run(&entry.boxed(), params, grads);
    same_values(&fused.params, &erased.params).unwrap_or_else(|at| panic!("{name} boxed: {at}"));
    assert!(same_state(&fused.state, &*erased.state), "{name} boxed: the states differ");
}

#[test]
fn fused_equals_stage_by_stage() {
    holds(law, 3);
}

#[test]
fn fused_equals_stage_by_stage_on_leaves_of_several_pieces_too() {
    holds_on(law, &large_problem());
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
