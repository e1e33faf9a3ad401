use gradchain::optimizer::dadapt_adamw;
use gradchain::prelude::*;
use gradchain::transform::{clip_by_block_rms, ema, identity, scale, scale_by_rms, scale_by_trust_ratio, trace};
use gradchain::tree::DynTree;
use gradchain::wrapper::cautious;

use super::{Problem, Subject, config, holds, noise, problem, same_state};
use crate::common::extra_inputs::{Registered, member};
use crate::common::subject::AnyState;
use crate::common::{StateAfter, run, same_values};
use proptest::test_runner::TestRunner;

/// Beside a box, every stage runs on tiles.
pub(super) fn apart(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, fused: &StateAfter<AnyState>) {
    let name = entry.name();
    let apart = run(&chain((member(identity()), entry.boxed(), member(identity()))), params, grads);
    same_values(&fused.params, &apart.params).unwrap_or_else(|at| panic!("{name} in a chain: {at}"));
    assert!(same_state(&fused.state, &apart.state.1), "{name} in a chain: the states differ");
}

pub(super) fn erased(entry: &dyn Subject, Problem { params, grads, .. }: &Problem, fused: &StateAfter<AnyState>) {
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

/// With state before sums, the loop over a block adds up last; these leaves have a remainder.
#[test]
fn sums_of_updates_that_state_has_changed_are_those_of_the_members_boxed() {
    fn check<T: Registered>(name: &str, fused: &T, apart: Vec<Boxed>) {
        let tree = |seed| {
            let mut tree = DynTree::new();
            for (leaf, len) in [100, 32, 7].into_iter().enumerate() {
                tree.insert(leaf.to_string(), ndarray::Array1::from_shape_fn(len, |i| noise(seed, leaf, i) as f32));
            }
            tree
        };
        let grads: Vec<_> = (1..6).map(tree).collect();
        let [fused, apart] = [run(fused, &tree(0), &grads).params, run(&chain(apart), &tree(0), &grads).params];
        same_values(&fused, &apart).unwrap_or_else(|at| panic!("{name}: {at}"));
        let moved = same_values(&fused, &tree(0)).is_err();
        assert!(moved, "{name}: nothing has moved");
    }
    let trust = || scale_by_trust_ratio().min_norm(0.1);
    check(
        "two barriers after state, and state after one",
        &chain((scale_by_adam(), trust(), ema(0.5), clip_by_global_norm(0.4), scale(-0.1))),
        vec![
            boxed(scale_by_adam()),
            boxed(trust()),
            boxed(ema(0.5)),
            boxed(clip_by_global_norm(0.4)),
            boxed(scale(-0.1)),
        ],
    );
    check(
        "a part with state of its own before its barrier",
        &chain((trace(0.9), dadapt_adamw(), clip_by_block_rms(0.3))),
        vec![boxed(trace(0.9)), boxed(dadapt_adamw()), boxed(clip_by_block_rms(0.3))],
    );
    check(
        "around others, some leaves alone",
        &chain((
            masked(chain((scale_by_rms(), trust())), Mask::path("0")),
            cautious(adam(0.1)),
            clip_by_global_norm(0.2),
        )),
        vec![
            boxed(masked(chain(vec![boxed(scale_by_rms()), boxed(trust())]), Mask::path("0"))),
            boxed(cautious(boxed(adam(0.1)))),
            boxed(clip_by_global_norm(0.2)),
        ],
    );
}
