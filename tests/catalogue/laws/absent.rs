use gradchain::prelude::*;
use gradchain::state::{Entry, State, StateWalk, same_bits};
use gradchain::tree::DynTree;
use gradchain::wrapper::{freezable, skip_absent};

use super::{Problem, Subject, assert_exceptions, holds, registry};
use crate::common::extra_inputs::Registered;
use crate::common::{same_values, values};

/// Entries that cannot skip leaves, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("scale_by_lbfgs", "a history of all leaves together"),
    ("hutchinson_estimator_diag_hessian", "a random direction of all leaves together"),
    ("lbfgs", "a history of all leaves together"),
    ("sophia_hutchinson", "a random direction of all leaves together"),
    ("scale_by_backtracking_linesearch", "a line search"),
    ("scale_by_zoom_linesearch", "a line search"),
    ("sgd_backtracking", "a line search"),
    ("sgd_zoom", "a line search"),
    ("lbfgs_zoom", "a history of all leaves together"),
    ("lbfgs_backtracking", "a history of all leaves together"),
    ("zoom_in_groups", "a line search"),
    ("scale_by_galore", "an optimizer of other leaves inside"),
    ("galore", "an optimizer of other leaves inside"),
    ("project_simplex", "a set of all leaves together"),
    ("project_l1_ball", "a set of all leaves together"),
    ("project_l1_sphere", "a set of all leaves together"),
    ("project_l2_ball", "a set of all leaves together"),
    ("project_l2_sphere", "a set of all leaves together"),
    ("project_hyperplane", "a set of all leaves together"),
    ("project_halfspace", "a set of all leaves together"),
    ("project_vector", "a set of all leaves together"),
    ("project_masked", "a set of all leaves together"),
    ("project_windows", "a window"),
    ("dynamic_loss_scale_of_windows", "a window"),
    ("windows_of_dynamic_loss_scale", "a window"),
    ("multi_steps", "a window"),
    ("multi_steps_clip", "a window"),
    ("multi_steps_in_chain", "a window"),
    ("multi_steps_then_decay", "a window"),
    ("multi_steps_skip", "a window"),
    ("multi_steps_skip_large", "a window"),
    ("multi_steps_nested", "a window"),
    ("architecture_example", "a window"),
    ("master_of_windows", "a window"),
    ("graft", "updates of all leaves inside"),
    ("graft_in_chain", "updates of all leaves inside"),
    ("graft_polyak", "updates of all leaves inside"),
    ("flatten", "one vector of all leaves"),
    ("flatten_lamb", "one vector of all leaves"),
    ("flatten_in_chain", "one vector of all leaves"),
    ("flatten_lbfgs", "one vector of all leaves"),
    ("sam_opaque", "steps to other points"),
    ("sam_opaque_dog", "steps to other points"),
    ("params_swa_of_mini_steps", "a window"),
];

/// The first step size depends on the norm of all parameters.
const FROM_ALL_PARAMETERS: &[&str] = &["dog", "lookahead_reset_dog", "sam_dog"];

fn without(tree: &DynTree) -> DynTree {
    let mut tree = tree.clone();
    let gone: Vec<String> = tree.names().filter(|name| name.starts_with("layer1")).map(String::from).collect();
    gone.iter().for_each(|name| assert!(tree.remove(name)));
    tree
}

fn bits(tree: &DynTree) -> Vec<(String, Vec<u64>)> {
    let kept = values(tree).into_iter().filter(|(path, _)| path.starts_with("layer1"));
    kept.map(|(path, v)| (path, v.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Returns some leaves' state as text, so that [`same_bits`] means equal text.
fn of_leaves<S: State>(state: &S, leaves: impl Fn(usize) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    state.walk(&mut StateWalk::new(&mut |field, entry| {
        let mut add = |leaf: usize, what: String| out.extend(leaves(leaf).then(|| format!("{field}[{leaf}]: {what}")));
        match entry {
            Entry::Moments(moments) => moments.leaves().for_each(|leaf| {
                let array = moments.to_array(leaf).expect("a leaf of these");
                add(leaf, format!("{:?}", array.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
            }),
            Entry::Counts(counts) => counts.iter().for_each(|(leaf, count)| add(leaf, format!("{count:?}"))),
            Entry::Flags(flags) => flags.iter().for_each(|(leaf, flag)| add(leaf, format!("{flag:?}"))),
            Entry::Scalars(scalars) => {
                scalars.iter().for_each(|(leaf, scalar)| add(leaf, format!("{:x}", scalar.get().to_bits())));
            }
            _ => {}
        }
    }));
    out
}

/// Leaves never given a gradient do not affect the others.
fn in_all_steps(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let (name, optimizer) = (entry.name(), skip_absent(entry.boxed()));
    let Ok(mut state) = optimizer.init(params) else { return };
    let mut after = params.clone();
    for grads in grads {
        optimizer.step_with_inputs(&mut after, &without(grads), &mut state).unwrap();
    }
    assert_eq!(bits(&after), bits(params), "{name}: leaves without gradients keep their bits");
    if FROM_ALL_PARAMETERS.contains(&name) {
        return;
    }
    let alone = entry.run(&without(params), &grads.iter().map(without).collect::<Vec<_>>());
    same_values(&without(&after), &alone.params).unwrap_or_else(|at| panic!("{name}: {at}"));
}

/// Leaves without a gradient are frozen in that step.
fn in_some_steps(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let (name, skipping, freezing) = (entry.name(), skip_absent(entry.boxed()), freezable(entry.boxed()));
    let Ok(mut state) = skipping.init(params) else { return };
    let mut frozen = freezing.init(params).unwrap();
    let [mut after, mut other, mut updated] = [params, params, params].map(Clone::clone);
    let mut of_updates = state.clone();
    let layer1: Vec<bool> = params.names().map(|name| name.starts_with("layer1")).collect();
    let leaves = Mask::by(|leaf| leaf.path().starts_with("layer1"));
    for (step, grads) in grads.iter().enumerate() {
        let absent = step == 1 || step == 2;
        let given = if absent { without(grads) } else { grads.clone() };
        let before = of_leaves(&*state, |leaf| layer1[leaf]);
        skipping.step_with_inputs(&mut after, &given, &mut state).unwrap();
        assert!(!absent || of_leaves(&*state, |leaf| layer1[leaf]) == before, "{name}, step {step}: its state waits");

        // The same with frozen leaves.
        if absent && layer1.contains(&true) {
            frozen.freeze(&leaves).unwrap();
        } else if layer1.contains(&true) {
            frozen.thaw(&leaves).unwrap();
        }
        freezing.step_with_inputs(&mut other, grads, &mut frozen).unwrap();
        same_values(&after, &other).unwrap_or_else(|at| panic!("{name}, step {step}, frozen: {at}"));
        assert!(same_bits(state.inner(), frozen.inner()), "{name}, step {step}: the states differ");

        // `update` returns zeros for them.
        let updates = skipping.update_with_inputs(&given, &mut of_updates, &updated).unwrap();
        apply_updates(&mut updated, &updates).unwrap();
        same_values(&after, &updated).unwrap_or_else(|at| panic!("{name}, step {step}, by updates: {at}"));
    }
    assert!(same_bits(&*state, &*of_updates), "{name}: the states differ");
}

#[test]
fn a_leaf_that_never_has_a_gradient_is_as_if_it_were_not_there() {
    holds(in_all_steps, 2);
}

#[test]
fn a_leaf_without_a_gradient_rests() {
    holds(in_some_steps, 4);
}

#[test]
fn skip_absent_refuses_unsupported_entries_at_init() {
    let params = DynTree::new();
    let mut refused: Vec<String> = Vec::new();
    for entry in registry() {
        if skip_absent(entry.boxed()).init(&params).is_err() {
            refused.push(entry.name().to_owned());
        }
    }
    assert_exceptions(&refused, REFUSED, "refuse");
}
