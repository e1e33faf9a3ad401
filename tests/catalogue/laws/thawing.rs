use gradchain::freezable;
use gradchain::prelude::*;

use super::{LeafPlan, Number, Order, noise, registry, tree};
use crate::common::given::Registered;
use crate::common::values;

/// Elementwise entries in which a leaf that is thawed late does not begin as training does, and what in them goes by the steps of all
/// leaves.
const BY_ALL_STEPS: &[(&str, &str)] = &[
    ("scale_by_ademamix", "a schedule"),
    ("scale_by_adopt", "the limit, which is a schedule"),
    ("scale_by_madgrad", "a schedule"),
    ("ademamix", "a schedule"),
    ("adopt", "the limit, which is a schedule"),
    ("optimistic_adam_v2", "a schedule"),
    ("inject_rmsprop", "a schedule"),
    ("scale_by_learning_rate", "a schedule"),
    ("scale_by_schedule", "a schedule"),
    ("schedule_free_stored", "the weights of the average"),
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
    ("lookahead_reset_settings", "when it synchronizes"),
    ("schedule_free", "the weights of the average"),
    ("conditionally_transform", "the condition"),
    ("conditionally_mask", "the condition"),
];

/// Of a leaf that was frozen in the first steps, and of the same leaf without them: its values in the end.
fn late_and_plain(inner: crate::common::given::Member) -> Option<[Vec<f64>; 2]> {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = [leaf(Number::F32, &[3, 4]), leaf(Number::F64, &[5])];
    let optimizer = freezable(inner.clone());
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads: Vec<_> = (0..7).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    // What holds windows goes around.
    let mut state = optimizer.init(&params).ok()?;
    let mut late = params.clone();
    state.freeze(&Mask::path("layer0/p0")).unwrap();
    for (step, grads) in grads.iter().enumerate() {
        if step == 3 {
            state.thaw(&Mask::path("layer0/p0")).unwrap();
        }
        optimizer.step_given(&mut late, grads, &mut state).unwrap();
    }
    let (mut plain, mut state) = (params.clone(), inner.init(&params).unwrap());
    for grads in &grads[3..] {
        inner.step_given(&mut plain, grads, &mut state).unwrap();
    }
    let first = |tree| values(tree).into_iter().find(|(path, _)| path == "layer0/p0").unwrap().1;
    Some([first(&late), first(&plain)])
}

#[test]
fn a_leaf_that_is_thawed_late_begins_as_training_does() {
    let (mut kept, mut tried) = (Vec::new(), 0);
    for entry in registry().iter().filter(|entry| entry.about().elementwise) {
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
