//! What `plan` warns of, and what it does not.

use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{scale, scale_by_lion, scale_by_schedule, set_to_zero, trace};
use gradchain::tree::DynTree;
use gradchain::wrapper::freezable;
use gradchain::{GradientTransformation, WarningKind};
use ndarray::{Array1, Array2, arr1, arr2};

fn params() -> DynTree {
    let mut params = DynTree::new();
    params.insert("w", arr2(&[[1.0_f32, 2.0], [3.0, 4.0]]));
    params.insert("b", arr1(&[1.0_f32, 2.0]));
    params
}

fn warnings<T: GradientTransformation>(transformation: T) -> Vec<(WarningKind, String)> {
    let plan = transformation.plan(&params()).unwrap();
    plan.warnings.into_iter().map(|warning| (warning.kind, warning.place)).collect()
}

fn kinds<T: GradientTransformation>(transformation: T) -> Vec<WarningKind> {
    warnings(transformation).into_iter().map(|(kind, _)| kind).collect()
}

const MATRICES: usize = 2;

#[test]
fn clipping_after_what_has_a_size_of_its_own() {
    let late = chain((adam(0.1), clip_by_global_norm(1.0)));
    assert_eq!(warnings(late), [(WarningKind::ClipAfterAdaptive, "$.chain[1].clip_by_global_norm".into())]);
    let nested = multi_steps(chain((chain((scale_by_lion(), clip(1.0))), scale_by_learning_rate(0.1))), 2);
    let place = "$.multi_steps.inner.chain[0].chain[1].clip";
    assert_eq!(warnings(nested), [(WarningKind::ClipAfterAdaptive, place.into())]);
    assert!(kinds(chain((clip_by_global_norm(1.0), adam(0.1)))).is_empty());
    assert!(kinds(chain((sgd(0.1), clip(1.0)))).is_empty(), "clipping steps of plain descent makes sense");
}

#[test]
fn no_learning_rate_and_one_too_many() {
    assert_eq!(kinds(chain((clip(1.0), scale_by_adam()))), [WarningKind::Climbs]);
    assert_eq!(kinds(chain((adam(0.1), scale(-1.0)))), [WarningKind::Climbs]);
    assert_eq!(kinds(chain((adam(0.1), scale_by_learning_rate(0.1)))), [WarningKind::Climbs]);
    assert_eq!(kinds(sgd(-0.1)), [WarningKind::Climbs]);
    assert_eq!(kinds(chain(vec![boxed(scale_by_adam()), boxed(scale(0.1))])), [WarningKind::Climbs]);
    let groups = partition((("a", adam(0.1)), ("b", scale_by_adam())), Labels::tree([("w", "a"), ("b", "b")]));
    assert_eq!(kinds(groups), [WarningKind::Climbs]);
    let groups = partition((("a", adam(0.1)), ("b", set_to_zero())), Labels::tree([("w", "a"), ("b", "b")]));
    assert!(kinds(groups).is_empty());
    assert!(kinds(chain((scale_by_adam(), scale(-0.1)))).is_empty());
    assert!(kinds(named_chain(["m", "rate"], (trace(0.9), scale_by_learning_rate(0.1)))).is_empty());
    let ascent = chain((scale_by_adam(), scale_by_schedule(linear(0.1, 0.0, 10))));
    assert!(kinds(ascent).is_empty(), "a schedule may give anything");
}

#[test]
fn decay_on_norms_and_biases() {
    assert_eq!(warnings(adamw(0.1)), [(WarningKind::DecayOnVectors, "$.adamw".into())]);
    assert!(kinds(adamw(0.1).weight_decay(0.0)).is_empty());
    assert!(kinds(adamw(0.1).mask(Mask::min_ndim(MATRICES))).is_empty());
    assert!(kinds(adamw(0.1).mask(!Mask::path("b"))).is_empty());
    assert!(kinds(adamw(0.1).mask(Mask::by(|leaf| leaf.ndim() > 1))).is_empty());
    let part = chain((add_decayed_weights(0.1), sgd(0.1)));
    assert_eq!(warnings(part), [(WarningKind::DecayOnVectors, "$.chain[0].add_decayed_weights".into())]);
    let masked_part = chain((masked(add_decayed_weights(0.1), Mask::min_ndim(MATRICES)), sgd(0.1)));
    assert!(kinds(masked_part).is_empty());
    let only_vectors = adamw(0.1).plan(&vec![0.0_f32; 3]).unwrap();
    assert!(only_vectors.warnings.is_empty(), "a linear model has nothing else");
}

/// What the parameters are multiplied by in a step without gradients.
fn factor<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(transformation: T) -> f32 {
    let (mut params, mut gradients) = (params(), DynTree::new());
    gradients.insert("w", Array2::<f32>::zeros((2, 2)));
    gradients.insert("b", Array1::<f32>::zeros(2));
    let mut state = transformation.init(&params).unwrap();
    transformation.step(&mut params, &gradients, &mut state).unwrap();
    params.get::<f32>("w").unwrap()[[0, 0]]
}

#[test]
fn decay_that_drives_away_is_told_by_what_turns_it_round() {
    let weights = |decay: f64| masked(add_decayed_weights(decay), Mask::min_ndim(MATRICES));
    for (decay, place) in [(0.25, 1), (-0.25, 1), (0.25, 0), (-0.25, 0)] {
        let chain: Vec<Boxed> = match place {
            0 => vec![boxed(weights(decay)), boxed(sgd(0.5))],
            _ => vec![boxed(sgd(0.5)), boxed(weights(decay))],
        };
        let grows = factor(chain.clone()) > 1.0;
        let found = warnings(chain);
        let place = format!("$.chain[{place}].masked.inner.add_decayed_weights");
        let expected = if grows { vec![(WarningKind::NegativeDecay, place)] } else { vec![] };
        assert_eq!(found, expected, "{decay}");
    }
    assert!(kinds(adamw(0.1).weight_decay(-0.1)).contains(&WarningKind::NegativeDecay));
    let plan = chain((sgd(0.1), add_decayed_weights(0.1))).plan(&params()).unwrap();
    assert!(plan.to_string().contains("put it before the learning rate"), "{plan}");
}

#[test]
fn leaves_outside_a_mask_that_climb() {
    assert_eq!(kinds(masked(sgd(0.1), "w")), [WarningKind::Climbs]);
    let twice = chain((masked(adam(0.1), "w"), masked(sgd(0.1), "w")));
    assert_eq!(kinds(twice), [WarningKind::Climbs]);
    let plan = masked(sgd(0.1), "w").plan(&params()).unwrap();
    assert!(plan.to_string().contains("of 1 leaves, `b` the first of them, go along"), "{plan}");
    assert!(plan.to_string().contains("freeze_others()"), "{plan}");
    assert!(kinds(masked(sgd(0.1), "w").freeze_others()).is_empty());
    assert!(kinds(chain((masked(sgd(0.1), "w"), masked(adam(0.1), "b")))).is_empty());
    assert!(kinds(masked(sgd(0.1), Mask::by(|_| true))).is_empty());
}

#[test]
fn a_group_that_takes_nothing() {
    let labels = Labels::by(|leaf| if leaf.ndim() > 4 { "conv" } else { "rest" });
    let groups = partition((("conv", sgd(0.1)), ("rest", adam(0.1))), labels);
    assert_eq!(kinds(groups), [WarningKind::EmptyGroup]);
    let nothing = chain((masked(clip(1.0), Mask::min_ndim(3)), sgd(0.1)));
    assert_eq!(kinds(nothing), [WarningKind::EmptyGroup]);
    let plan = chain(vec![boxed(masked(clip(1.0), Mask::none())), boxed(sgd(0.1))]).plan(&params()).unwrap();
    assert!(plan.to_string().contains("warning: $: the mask of clip takes no leaf of these parameters"), "{plan}");
}

#[test]
fn decay_behind_what_freezes() {
    let decay = || add_decayed_weights(-0.1);
    let behind = || chain((freezable(adam(0.1)), masked(decay(), Mask::min_ndim(MATRICES))));
    let place = "$.chain[1].masked.inner.add_decayed_weights";
    assert!(warnings(behind()).contains(&(WarningKind::DecayOnFrozen, place.into())));
    assert!(kinds(boxed(behind())).contains(&WarningKind::DecayOnFrozen));
    assert!(kinds(chain((freezable(adam(0.1)), adamw(0.1)))).contains(&WarningKind::DecayOnFrozen));
    for fine in [boxed(freezable(chain((adam(0.1), decay())))), boxed(chain((decay(), freezable(adam(0.1)))))] {
        assert!(!kinds(fine).contains(&WarningKind::DecayOnFrozen));
    }
    let apart = partition((("a", freezable(sgd(0.1))), ("b", adamw(0.1))), Labels::tree([("w", "a"), ("b", "b")]));
    assert!(!kinds(apart).contains(&WarningKind::DecayOnFrozen));

    // What the warning says happens.
    let (optimizer, mut params) = (behind(), params());
    let mut state = optimizer.init(&params).unwrap();
    state.freeze("w").unwrap();
    let (before, gradient) = (params.clone(), params.clone());
    optimizer.step(&mut params, &gradient, &mut state).unwrap();
    assert_ne!(params.get::<f32>("w"), before.get::<f32>("w"));
}
