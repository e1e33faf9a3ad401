//! The warnings of `plan`, and the chains that it accepts.

use gradchain::prelude::*;
use gradchain::schedule::{from_fn, linear};
use gradchain::transform::{ema, identity, scale, scale_by_lion, scale_by_schedule, set_to_zero, trace};
use gradchain::tree::DynTree;
use gradchain::wrapper::{allow, dynamic_loss_scale, freezable, schedule_free};
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
fn clipping_after_adaptive_scaling_warns() {
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
    assert_eq!(kinds(sgd(-0.1)), [WarningKind::NegativeRate]);
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

fn refused<T: GradientTransformation>(transformation: T) -> Option<String> {
    transformation.init(&params()).err().map(|error| error.to_string())
}

#[test]
fn certain_mistakes_are_refused_unless_allowed() {
    use WarningKind::{Climbs, EmptyGroup, NegativeDecay, NegativeRate};

    let groups = |pattern: &'static str| {
        let labels = Labels::paths([("*", "all"), (pattern, "rest")]);
        boxed(partition((("all", adam(0.1)), ("rest", sgd(0.1))), labels))
    };
    let matrices = |ndim| adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(ndim));
    let cases: [(Boxed, WarningKind); 9] = [
        (boxed(sgd(-0.1)), NegativeRate),
        (boxed(chain((clip(1.0), scale_by_adam(), scale_by_learning_rate(-0.1)))), NegativeRate),
        (boxed(multi_steps(inject_hyperparams(adam(-0.1)), 2)), NegativeRate),
        (boxed(matrices(MATRICES).weight_decay(-0.1)), NegativeDecay),
        (boxed(chain((sgd(0.1), masked(add_decayed_weights(0.1), "w")))), NegativeDecay),
        (boxed(chain((adam(0.1), scale_by_learning_rate(0.1)))), Climbs),
        (boxed(matrices(MATRICES).mask(Mask::path("w").and("b"))), EmptyGroup),
        (boxed(chain((masked(clip(1.0), !Mask::path("*")), sgd(0.1)))), EmptyGroup),
        (groups("w"), EmptyGroup),
    ];
    for (optimizer, kind) in cases {
        assert_eq!(kinds(optimizer.clone()), [kind], "`plan` warns, and does not refuse: {optimizer:?}");
        let error = refused(optimizer.clone()).unwrap();
        assert!(error.starts_with("init: $"), "{error}");
        assert!(
            error.ends_with(&format!("if intended, use `wrapper::allow(optimizer, [WarningKind::{kind:?}])`")),
            "{error}"
        );
        let meant = allow(optimizer.clone(), [kind]);
        assert_eq!((refused(meant.clone()), kinds(meant.clone())), (None, vec![]), "{optimizer:?}");
        let deep = chain((identity(), params_ema(meant, 0.9)));
        assert_eq!((refused(deep.clone()), kinds(deep)), (None, vec![]), "{optimizer:?}");
        let other = if kind == Climbs { NegativeRate } else { Climbs };
        assert!(refused(allow(optimizer, [other])).is_some());
    }
    let both = refused(chain((masked(clip(1.0), !Mask::path("*")), adam(-0.1)))).unwrap();
    assert!(
        both.ends_with("`wrapper::allow(optimizer, [WarningKind::NegativeRate, WarningKind::EmptyGroup])`"),
        "{both}"
    );
}

#[test]
fn possible_mistakes_are_not_refused() {
    let none = Mask::none();
    for optimizer in [
        boxed(scale_by_adam()),
        boxed(chain((trace(0.9), add_decayed_weights(0.1)))),
        boxed(chain((clip(1.0), scale_by_adam()))),
        boxed(chain((adam(0.1), scale(-1.0)))),
        boxed(chain((scale(-1.0), adam(0.1)))),
        boxed(chain((sgd(0.1), scale(-1.0), masked(add_decayed_weights(-0.1), "w")))),
        boxed(chain((clip(1.0), scale_by_learning_rate(0.1).flip_sign(false)))),
        boxed(sgd(linear(-0.1, 0.1, 10))),
        boxed(sgd(0.0)),
        boxed(adamw(0.1).mask(none)),
        boxed(adamw(0.1).mask(Mask::any_paths(["norm/**"]))),
        boxed(adamw(0.1).mask(Mask::min_ndim(3))),
        boxed(masked(sgd(0.1), Mask::by(|leaf| leaf.ndim() > 4)).freeze_others()),
        boxed(masked(sgd(0.1), "w")),
        boxed(muon(0.1)),
    ] {
        assert_eq!(refused(optimizer.clone()), None, "{optimizer:?}");
    }
    let labels = Labels::by(|leaf| if leaf.ndim() > 4 { "conv" } else { "rest" });
    assert_eq!(refused(partition((("conv", adamw(0.1).mask(Mask::min_ndim(5))), ("rest", adam(0.1))), labels)), None);
    assert!(muon(0.1).init(&vec![0.0_f32; 3]).is_ok(), "a model without matrices");
}

#[test]
fn a_schedule_that_begins_with_nan_is_refused() {
    let nan = || from_fn("nan", |step| if step == 0 { f64::NAN } else { 0.1 });
    for error in [refused(sgd(nan())), refused(chain((clip(1.0), adam(0.1).b1(nan())))), refused(scale(nan()))] {
        let error = error.unwrap();
        assert!(error.ends_with("in the first step, found a schedule that is NaN there"), "{error}");
    }
}

#[test]
fn a_hyperparameter_is_not_set_to_a_negative_rate_unless_it_was_built_so() {
    let optimizer = inject_hyperparams(adamw(0.1).mask(Mask::min_ndim(MATRICES)));
    let mut state = optimizer.init(&params()).unwrap();
    let error = state.set_hyperparam("learning_rate", -0.1).unwrap_err().to_string();
    let said = "argument `learning_rate` must be at least 0, unless it is built with `wrapper::allow(.., [WarningKind::NegativeRate])`, \
                found -0.1";
    assert!(error.ends_with(said), "{error}");
    assert!(state.set_hyperparam("weight_decay", -0.1).is_err());
    assert_eq!(state.hyperparams().get("learning_rate"), Some(0.1));
    state.set_hyperparam("learning_rate", 0.0).unwrap();

    let meant = allow(inject_hyperparams(sgd(-0.1)), [WarningKind::NegativeRate]);
    meant.init(&params()).unwrap().set_hyperparam("learning_rate", -0.2).unwrap();
    let meant = inject_hyperparams(allow(sgd(0.1), [WarningKind::NegativeRate]));
    meant.init(&params()).unwrap().set_hyperparam("learning_rate", -0.2).unwrap();
    let factor = inject_hyperparams(scale(1.0));
    factor.init(&params()).unwrap().set_hyperparam("step_size", -1.0).unwrap();
}

#[test]
fn a_first_step_of_nothing() {
    assert_eq!(warnings(adam(linear(0.0, 0.1, 10))), [(WarningKind::NoFirstStep, "$.adam".into())]);
    let parts = chain((scale_by_adam(), scale_by_schedule(linear(0.0, -0.1, 10))));
    assert_eq!(warnings(parts), [(WarningKind::NoFirstStep, "$.chain[1].scale_by_schedule".into())]);
    assert!(kinds(adam(linear(0.1, 0.0, 10))).is_empty());
    assert!(refused(adam(linear(0.0, 0.1, 10))).is_none());
}

#[test]
fn rescaled_line_search_steps_warn() {
    for optimizer in [boxed(chain((lbfgs(), scale(0.5)))), boxed(chain((lbfgs(), clip(1.0), zero_nans())))] {
        assert_eq!(warnings(optimizer), [(WarningKind::RescaledLineSearch, "$.chain[1]".into())]);
    }
    assert!(kinds(chain((lbfgs(), scale(1.0)))).is_empty());
    assert!(kinds(chain((clip(1.0), lbfgs()))).is_empty());
    assert!(kinds(chain((lbfgs().without_linesearch(), scale(0.5)))).is_empty());
}

#[test]
fn momentum_twice() {
    assert_eq!(warnings(schedule_free(adam(0.1), 0.1)), [(WarningKind::MomentumTwice, "$.schedule_free".into())]);
    let inside = multi_steps(schedule_free(sgd(0.1).momentum(0.9), 0.1), 2);
    let place = "$.multi_steps.inner.schedule_free";
    assert_eq!(warnings(inside), [(WarningKind::MomentumTwice, place.into())]);
    assert!(kinds(schedule_free(adam(0.1).b1(0.0), 0.1)).is_empty());
    assert!(kinds(schedule_free(sgd(0.1), 0.1)).is_empty());
    assert!(kinds(schedule_free_adamw().learning_rate(0.1)).iter().all(|kind| *kind != WarningKind::MomentumTwice));
}

#[test]
fn a_clip_in_front_of_an_accumulation() {
    let place = || String::from("$.chain[0].clip_by_global_norm");
    let outside = chain((clip_by_global_norm(1.0), multi_steps(adam(0.1), 4)));
    assert_eq!(warnings(outside), [(WarningKind::ClipOutside, place())]);
    let scaled = chain((clip_by_global_norm(1.0), dynamic_loss_scale(adam(0.1))));
    assert_eq!(warnings(scaled), [(WarningKind::ClipOutside, place())]);
    assert!(kinds(multi_steps(chain((clip_by_global_norm(1.0), adam(0.1))), 4)).is_empty());
    assert!(kinds(dynamic_loss_scale(chain((clip_by_global_norm(1.0), adam(0.1))))).is_empty());
}

#[test]
fn a_mean_of_updates_that_have_a_rate() {
    assert_eq!(warnings(chain((sgd(0.1), ema(0.9)))), [(WarningKind::MeanAfterRate, "$.chain[1].ema".into())]);
    let parts = chain((scale_by_adam(), scale_by_learning_rate(0.1), chain((zero_nans(), identity())), ema(0.9)));
    assert_eq!(kinds(parts), [WarningKind::MeanAfterRate]);
    assert!(kinds(chain((ema(0.9), sgd(0.1)))).is_empty());
    assert!(kinds(adafactor(0.1).momentum(0.9)).is_empty(), "into named optimizers nobody looks");
}

/// Returns the parameters' factor in a step without gradients.
fn factor<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(transformation: T) -> f32 {
    let (mut params, mut gradients) = (params(), DynTree::new());
    gradients.insert("w", Array2::<f32>::zeros((2, 2)));
    gradients.insert("b", Array1::<f32>::zeros(2));
    let meant = allow(transformation, [WarningKind::NegativeDecay]);
    let mut state = meant.init(&params).unwrap();
    meant.step(&mut params, &gradients, &mut state).unwrap();
    params.get::<f32>("w").unwrap()[[0, 0]]
}

#[test]
fn weight_decay_that_grows_parameters_warns() {
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
    assert!(plan.to_string().contains("of 1 leaves (first `b`) ascend"), "{plan}");
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
    assert!(plan.to_string().contains("warning: $: the mask of clip selects no leaf of these parameters"), "{plan}");
}

#[test]
fn decay_behind_freezable_warns() {
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

    let (optimizer, mut params) = (behind(), params());
    let mut state = optimizer.init(&params).unwrap();
    state.freeze("w").unwrap();
    let (before, gradient) = (params.clone(), params.clone());
    optimizer.step(&mut params, &gradient, &mut state).unwrap();
    assert_ne!(params.get::<f32>("w"), before.get::<f32>("w"));
}
