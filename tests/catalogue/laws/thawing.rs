use gradchain::prelude::*;
use gradchain::tree::DynTree;
use gradchain::wrapper::skip_absent;

use super::{LeafPlan, Number, Order, all_selected, assert_exceptions, noise, registry, tree};
use crate::common::extra_inputs::Registered;
use crate::common::values;

/// Entries in which a late leaf does not start like a new run, with the part that depends on all steps.
///
/// Parts that can count per leaf do: bias corrections, and the means of MoMo's plane.
const BY_ALL_STEPS: &[(&str, &str)] = &[
    ("scale_by_ademamix", "a schedule is of the step"),
    ("scale_by_madgrad", "a schedule is of the step"),
    ("ademamix", "a schedule is of the step"),
    ("optimistic_adam_v2", "a schedule is of the step"),
    ("inject_rmsprop", "a schedule is of the step"),
    ("scale_by_learning_rate", "a schedule is of the step"),
    ("scale_by_schedule", "a schedule is of the step"),
    ("polyak_sgd_plus", "a schedule is of the step"),
    ("momo_adapts", "the bound is one number, of all leaves"),
    ("momo_adam", "the correction of bias is one factor of the plane, which is of all leaves"),
    ("inject_muon", "a schedule is of the step"),
    ("add_noise", "noise is drawn by step and leaf, so that no other leaf changes it"),
    ("noisy_sgd", "noise is drawn by step and leaf, so that no other leaf changes it"),
    ("scale_by_dog", "the distance is one number, of all leaves"),
    ("scale_by_dowg", "the distance is one number, of all leaves"),
    ("schedule_free_stored", "a parameter that stands still is averaged as it stands"),
    ("dog", "the distance is one number, of all leaves"),
    ("dowg", "the distance is one number, of all leaves"),
    ("prodigy_in_chain", "the distance is one number, of all leaves"),
    ("dadapt_adamw", "the distance is one number, of all leaves"),
    ("dadapt_adamw_in_chain", "the distance is one number, of all leaves"),
    ("schedule_free_sgd", "a parameter that stands still is averaged as it stands"),
    ("schedule_free_adamw", "a parameter that stands still is averaged as it stands"),
    ("project_box", "a schedule is of the step"),
    ("project_injected", "a schedule is of the step"),
    ("signum", "a schedule is of the step"),
    ("reduce_on_plateau", "the loss is one number, of all leaves"),
    ("reduce_on_plateau_alone", "the loss is one number, of all leaves"),
    ("inject_hyperparams", "a schedule is of the step"),
    ("dynamic_loss_scale", "the scale is one number, of all leaves"),
    ("lookahead", "all leaves are taken back in the same step"),
    ("lookahead_reset_schedule_free", "all leaves are taken back in the same step"),
    ("lookahead_reset_dog", "all leaves are taken back in the same step"),
    ("lookahead_reset_prodigy", "all leaves are taken back in the same step"),
    ("lookahead_reset_settings", "all leaves are taken back in the same step"),
    ("lookahead_reset_of_windows", "all leaves are taken back in the same step"),
    ("mechanize", "the distance is one number, of all leaves"),
    ("mechanize_in_chain", "the distance is one number, of all leaves"),
    ("schedule_free", "a parameter that stands still is averaged as it stands"),
    ("schedule_free_in_chain", "a parameter that stands still is averaged as it stands"),
    ("conditionally_transform", "the condition is of the step"),
    ("conditionally_mask", "the condition is of the step"),
    ("conditionally_in_chain", "the condition is of the step"),
    ("sam", "a round is of all leaves: the adversary's point is one"),
    ("sam_of_matrices", "a round is of all leaves: the adversary's point is one"),
    ("sam_dog", "a round is of all leaves: the adversary's point is one"),
    ("skip_on_spike", "the norm is one number, of all leaves"),
    ("skip_on_spike_in_chain", "the norm is one number, of all leaves"),
];

/// Returns the end of a leaf without a gradient in the first steps, and of one without these steps.
///
/// Another leaf has its gradients in the other steps, so that no sum covers both.
fn late_and_plain(inner: crate::common::extra_inputs::Member) -> Option<[Vec<f64>; 2]> {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = [leaf(Number::F32, &[3, 4]), leaf(Number::F64, &[5])];
    let only = |tree: &DynTree, other: &str| {
        let mut tree = tree.clone();
        assert!(tree.remove(other));
        tree
    };
    let optimizer = skip_absent(inner.clone());
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads: Vec<_> = (0..7).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    // Windows go around it.
    let mut state = optimizer.init(&params).ok()?;
    let mut late = params.clone();
    for (step, grads) in grads.iter().enumerate() {
        let other = if step < 3 { "layer0/p0" } else { "layer1/p1" };
        optimizer.step_with_inputs(&mut late, &only(grads, other), &mut state).unwrap();
    }
    let mut plain = only(&params, "layer1/p1");
    let mut state = inner.init(&plain).unwrap();
    for grads in &grads[3..] {
        inner.step_with_inputs(&mut plain, &only(grads, "layer1/p1"), &mut state).unwrap();
    }
    let first = |tree| values(tree).into_iter().find(|(path, _)| path == "layer0/p0").unwrap().1;
    Some([first(&late), first(&plain)])
}

#[test]
fn a_leaf_that_comes_late_begins_as_training_does() {
    let (mut kept, mut tried) = (Vec::new(), 0);
    for entry in registry() {
        let Some([late, plain]) = late_and_plain(entry.boxed()) else { continue };
        tried += 1;
        if late != plain {
            kept.push(entry.name().to_owned());
        }
    }
    assert!(!all_selected() || tried > 60, "{tried} entries were tried");
    assert_exceptions(&kept, BY_ALL_STEPS, "go by the steps of all leaves");
}
