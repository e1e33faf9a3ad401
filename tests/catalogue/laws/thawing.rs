use gradchain::prelude::*;
use gradchain::tree::DynTree;

use super::{LeafPlan, Number, Order, noise, registry, tree};
use crate::common::given::Registered;
use crate::common::values;

/// Entries in which a leaf that comes late does not begin as training does, and what in them goes by the steps of all leaves.
const BY_ALL_STEPS: &[(&str, &str)] = &[
    ("scale_by_ademamix", "a schedule"),
    ("scale_by_madgrad", "a schedule"),
    ("ademamix", "a schedule"),
    ("optimistic_adam_v2", "a schedule"),
    ("inject_rmsprop", "a schedule"),
    ("scale_by_learning_rate", "a schedule"),
    ("scale_by_schedule", "a schedule"),
    ("polyak_sgd_plus", "a schedule"),
    ("momo", "what is known of the loss"),
    ("momo_adapts", "what is known of the loss"),
    ("momo_adam", "what is known of the loss"),
    ("momo_in_chain", "what is known of the loss"),
    ("inject_muon", "a schedule"),
    ("add_noise", "the noise of a step"),
    ("noisy_sgd", "the noise of a step"),
    ("scale_by_dog", "the distance of all leaves"),
    ("scale_by_dowg", "the distance of all leaves"),
    ("schedule_free_stored", "the weights of the average"),
    ("dog", "the distance of all leaves"),
    ("dowg", "the distance of all leaves"),
    ("prodigy_in_chain", "the distance of all leaves"),
    ("dadapt_adamw", "the distance of all leaves"),
    ("dadapt_adamw_in_chain", "the distance of all leaves"),
    ("schedule_free_sgd", "the weights of the average"),
    ("schedule_free_adamw", "the weights of the average"),
    ("project_box", "a schedule"),
    ("project_injected", "a schedule"),
    ("signum", "a schedule"),
    ("reduce_on_plateau", "the steps since the loss was lower"),
    ("reduce_on_plateau_alone", "the steps since the loss was lower"),
    ("inject_hyperparams", "a schedule"),
    ("lookahead", "when it synchronizes"),
    ("lookahead_reset_schedule_free", "when it synchronizes"),
    ("lookahead_reset_dog", "when it synchronizes"),
    ("lookahead_reset_prodigy", "when it synchronizes"),
    ("lookahead_reset_settings", "when it synchronizes"),
    ("lookahead_reset_of_windows", "when it synchronizes"),
    ("mechanize", "the distance of all leaves"),
    ("mechanize_in_chain", "the distance of all leaves"),
    ("schedule_free", "the weights of the average"),
    ("schedule_free_in_chain", "the weights of the average"),
    ("conditionally_transform", "the condition"),
    ("conditionally_mask", "the condition"),
    ("conditionally_in_chain", "the condition"),
    ("sam", "which step of a round it is"),
    ("sam_of_matrices", "which step of a round it is"),
    ("sam_dog", "which step of a round it is"),
    ("skip_on_spike", "the norms before"),
    ("skip_on_spike_in_chain", "the norms before"),
];

/// Of a leaf that had no gradient in the first steps, and of the same leaf without them: its values in the end. Another has its
/// gradients in the other steps, so that no sum is over both.
fn late_and_plain(inner: crate::common::given::Member) -> Option<[Vec<f64>; 2]> {
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
    // What holds windows goes around.
    let mut state = optimizer.init(&params).ok()?;
    let mut late = params.clone();
    for (step, grads) in grads.iter().enumerate() {
        let other = if step < 3 { "layer0/p0" } else { "layer1/p1" };
        optimizer.step_given(&mut late, &only(grads, other), &mut state).unwrap();
    }
    let mut plain = only(&params, "layer1/p1");
    let mut state = inner.init(&plain).unwrap();
    for grads in &grads[3..] {
        inner.step_given(&mut plain, &only(grads, "layer1/p1"), &mut state).unwrap();
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
    let expected: Vec<&str> = BY_ALL_STEPS.iter().map(|(name, _)| *name).collect();
    let all = std::env::var("ENTRY").is_err();
    assert!(!all || tried > 60, "{tried} entries were tried");
    assert!(!all || kept == expected, "other entries go by the steps of all leaves: {kept:?}");
}
