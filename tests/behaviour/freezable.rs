//! Frozen leaves and their states wait, and others are unaffected.

use gradchain::optimizer::{
    acprop, adabelief, adadelta, adamax, adan, ademamix, adopt, amsgrad, momo, nadam, optimistic_adam_v2, yogi,
};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::state::{Moments, same_bits};
use gradchain::transform::{ema, scale};
use gradchain::wrapper::freezable;

type Params = (Vec<f32>, Vec<f64>, f32);

fn params() -> Params {
    (vec![1.0, -2.0, 3.0], vec![0.5; 4], 2.0)
}

fn gradient(step: i32) -> Params {
    let x = (0.7 * f64::from(step)).sin() + 0.1;
    (vec![x as f32, 1.0, -x as f32], vec![x; 4], -x as f32)
}

fn bits(moments: &Moments, leaf: usize) -> Vec<u64> {
    moments.to_array(leaf).expect("the leaf has one").iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_frozen_leaf_keeps_its_bits_and_resumes_from_its_moments() {
    let plain = sgd(0.1).momentum(0.9);
    let optimizer = freezable(plain.clone());
    let mut model = params();
    let mut state = optimizer.init(&model).unwrap();
    // Leaf 0 takes only steps in which it is not frozen.
    let mut expected = params();
    let mut expected_state = plain.init(&expected).unwrap();
    for step in 0..12 {
        match step {
            4 => state.freeze(Mask::path("0")).unwrap(),
            8 => state.thaw(Mask::path("0")).unwrap(),
            _ => {}
        }
        optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
        if !(4..8).contains(&step) {
            plain.step(&mut expected, &gradient(step), &mut expected_state).unwrap();
        }
        assert_eq!(model.0, expected.0, "step {step}");
    }
    assert_ne!(model.1, expected.1, "the other leaves went on");
}

#[test]
fn the_other_leaves_do_not_notice() {
    let optimizer = freezable(chain((clip(0.5), adamw(0.1))));
    let (mut model, mut other) = (params(), params());
    let mut state = optimizer.init(&model).unwrap();
    let mut other_state = state.clone();
    state.freeze(Mask::path("1")).unwrap();
    for step in 0..5 {
        optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
        optimizer.step(&mut other, &gradient(step), &mut other_state).unwrap();
    }
    assert_eq!((&model.0, model.2), (&other.0, other.2));
    assert_eq!(model.1, params().1);
    assert_eq!(state.schema(), other_state.schema());
    assert!(!same_bits(&*state, &*other_state), "which leaves are frozen is state");
}

#[test]
fn adams_moments_of_a_frozen_leaf_wait() {
    let optimizer = freezable(scale_by_adam());
    let mut model = params();
    let mut state = optimizer.init(&model).unwrap();
    optimizer.step(&mut model, &gradient(0), &mut state).unwrap();
    state.freeze(Mask::path("{0,2}")).unwrap();
    let before = state.clone();
    optimizer.step(&mut model, &gradient(1), &mut state).unwrap();
    for name in ["mu", "nu"] {
        let [old, new] = [&before, &state].map(|state| state.inner().moment(name).unwrap());
        assert_eq!([0, 2].map(|leaf| bits(old, leaf)), [0, 2].map(|leaf| bits(new, leaf)));
        assert_ne!(bits(old, 1), bits(new, 1));
    }
}

#[test]
fn a_norm_inside_is_over_the_others_and_one_outside_over_all() {
    let gradient = (3.0_f64, 4.0_f64);
    let step = |inside: bool| {
        let mut model = (0.0_f64, 0.0_f64);
        if inside {
            let optimizer = freezable(chain((clip_by_global_norm(1.0), scale(-1.0))));
            let mut state = optimizer.init(&model).unwrap();
            state.freeze(Mask::path("0")).unwrap();
            optimizer.step(&mut model, &gradient, &mut state).unwrap();
        } else {
            let optimizer = chain((clip_by_global_norm(1.0), freezable(scale(-1.0))));
            let mut state = optimizer.init(&model).unwrap();
            state.1.freeze(Mask::path("0")).unwrap();
            optimizer.step(&mut model, &gradient, &mut state).unwrap();
        }
        model
    };
    assert_eq!(step(true), (0.0, -1.0));
    assert_eq!(step(false), (0.0, -0.8));
}

#[test]
fn step_is_update_and_apply_and_boxing_changes_nothing() {
    let optimizer = multi_steps(chain((zero_nans(), freezable(adamw(0.1)), clip(0.05))), 2);
    let (mut a, mut b) = (params(), params());
    let mut a_state = optimizer.init(&a).unwrap();
    let mut b_state = optimizer.init(&b).unwrap();
    for step in 0..8 {
        if step == 3 {
            for state in [&mut a_state, &mut b_state] {
                state.inner_mut().1.freeze(Mask::path("1").or(Mask::path("2"))).unwrap();
            }
        }
        optimizer.step(&mut a, &gradient(step), &mut a_state).unwrap();
        let updates = optimizer.update(&gradient(step), &mut b_state, &b).unwrap();
        apply_updates(&mut b, &updates).unwrap();
        assert_eq!(a, b);
        assert!(same_bits(&*a_state, &*b_state));
    }
}

#[test]
fn mistakes_are_errors() {
    let mut state = freezable(sgd(0.1)).init(&params()).unwrap();
    assert!(state.freeze(Mask::path("body")).unwrap_err().is_no_match());
    let error = freezable(lbfgs()).init(&params()).unwrap_err();
    assert!(error.is_argument());
    assert!(error.to_string().contains("without parts that join leaves in memory"), "{error}");
}

/// A leaf frozen in the first steps trains afterwards as if these had not happened.
#[test]
fn a_thawed_leaf_begins_as_training_does() {
    fn check<T: gradchain::GradientTransformation<Needs = gradchain::needs::Nothing> + Clone>(plain: T) {
        let optimizer = freezable(plain.clone());
        let (mut model, mut expected) = (params(), params());
        let (mut state, mut other) = (optimizer.init(&model).unwrap(), plain.init(&expected).unwrap());
        state.freeze(Mask::path("0")).unwrap();
        for step in 0..12 {
            if step == 5 {
                state.thaw(Mask::path("0")).unwrap();
            }
            optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
            if step >= 5 {
                plain.step(&mut expected, &gradient(step), &mut other).unwrap();
                assert_eq!(model.0, expected.0, "{plain:?}, step {step}");
            }
        }
        // Its counts show all steps.
        let (mut all, mut other) = (params(), plain.init(&params()).unwrap());
        for step in 0..12 {
            plain.step(&mut all, &gradient(step), &mut other).unwrap();
        }
        assert_eq!((&model.1, model.2), (&all.1, all.2), "{plain:?}");
    }
    check(adam(0.1));
    check(chain((clip(0.5), boxed(adamw(0.1).weight_decay(0.01)))));
    check(apply_if_finite(nadam(0.1), 3));
    check(inject_hyperparams(radam(0.1)));
    check(partition((("a", adam(0.1)), ("b", rmsprop(0.1))), Labels::tree([("0", "a"), ("1", "b"), ("2", "a")])));
    check(freezable(adamax(0.1)));
    let more = [
        boxed(adan(0.1)),
        boxed(adopt(0.1).use_clipping(false)),
        boxed(acprop(0.1)),
        boxed(adabelief(0.1)),
        boxed(yogi(0.1)),
        boxed(amsgrad(0.1)),
        boxed(ademamix(0.1)),
        boxed(optimistic_adam_v2(0.1)),
        boxed(adadelta(0.1)),
        boxed(chain((ema(0.9), scale(-0.1)))),
    ];
    more.into_iter().for_each(check);
}

#[test]
fn an_inner_freezable_counts_steps_of_thawed_leaves_only() {
    let (plain, optimizer) = (adam(0.1), freezable(chain((freezable(adam(0.1)),))));
    let (mut model, mut expected) = (params(), params());
    let (mut state, mut other) = (optimizer.init(&model).unwrap(), plain.init(&expected).unwrap());
    state.freeze(Mask::path("0")).unwrap();
    for step in 0..9 {
        match step {
            3 => state.inner_mut().0.freeze(Mask::path("0")).unwrap(),
            4 => state.thaw(Mask::path("0")).unwrap(),
            6 => state.inner_mut().0.thaw(Mask::path("0")).unwrap(),
            _ => {}
        }
        optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
        if step >= 6 {
            plain.step(&mut expected, &gradient(step), &mut other).unwrap();
            assert_eq!(model.0, expected.0);
        }
    }
}

#[test]
fn a_reset_leaf_restarts_its_state() {
    let (plain, optimizer) = (adam(0.1), freezable(adam(0.1)));
    let mut model = params();
    let mut state = optimizer.init(&model).unwrap();
    for step in 0..5 {
        optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
    }
    state.reset(&optimizer, &model, Mask::path("1")).unwrap();
    let (mut expected, mut other) = (model.clone(), plain.init(&model).unwrap());
    for step in 5..9 {
        optimizer.step(&mut model, &gradient(step), &mut state).unwrap();
        plain.step(&mut expected, &gradient(step), &mut other).unwrap();
        assert_eq!(model.1, expected.1);
        assert_ne!(model.0, expected.0);
    }

    let optimizer = freezable(sgd(linear(1.0, 0.0, 4)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    state.freeze(Mask::path("0")).unwrap();
    optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
    state.thaw(Mask::path("0")).unwrap();
    optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
    assert_eq!(p, (-0.75, -1.75));
}

#[test]
fn counts_of_leaves_are_where_leaves_may_rest() {
    let counts = |schema: gradchain::state::Schema| {
        let is_count = |entry: &&gradchain::state::SchemaEntry| entry.kind == gradchain::state::Kind::Count;
        schema.entries.iter().filter(is_count).map(|entry| entry.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(counts(scale_by_adam().init(&params()).unwrap().schema()), ["count: count"]);
    assert_eq!(
        counts(freezable(scale_by_adam()).init(&params()).unwrap().schema()),
        ["inner.count: count", "inner.updates[0]: count", "inner.updates[1]: count", "inner.updates[2]: count"]
    );
}

/// A leaf added by migration starts like a new run.
#[test]
fn a_leaf_added_by_migration_starts_like_a_new_run() {
    use gradchain::Migration;
    use gradchain::tree::DynTree;
    let optimizer = adam(0.1);
    let tree = |leaves: &[(&str, f64)]| {
        let mut tree = DynTree::new();
        leaves.iter().for_each(|(path, x)| tree.insert(*path, ndarray::arr1(&[*x, -2.0 * x])));
        tree
    };
    let gradient = |step: i32, x: f64| (0.7 * f64::from(step) + x).sin();
    let mut params = tree(&[("body", 1.0)]);
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..50 {
        optimizer.step(&mut params, &tree(&[("body", gradient(step, 0.0))]), &mut state).unwrap();
    }
    let body = params.get::<f64>("body").unwrap().to_owned();
    let mut both = tree(&[("body", 0.0), ("head", 1.0)]);
    both.get_mut::<f64>("body").unwrap().assign(&body);
    let mut grown = state.migrate(&optimizer, &both, &Migration::new().fresh(Mask::path("head"))).unwrap();
    let (mut head, mut alone) = (tree(&[("head", 1.0)]), optimizer.init(&tree(&[("head", 1.0)])).unwrap());
    for step in 50..60 {
        let [g, h] = [gradient(step, 0.0), gradient(step, 1.0)];
        optimizer.step(&mut both, &tree(&[("body", g), ("head", h)]), &mut grown).unwrap();
        optimizer.step(&mut params, &tree(&[("body", g)]), &mut state).unwrap();
        optimizer.step(&mut head, &tree(&[("head", h)]), &mut alone).unwrap();
        assert_eq!(both.get::<f64>("body").unwrap(), params.get::<f64>("body").unwrap(), "step {step}");
        assert_eq!(both.get::<f64>("head").unwrap(), head.get::<f64>("head").unwrap(), "step {step}");
    }
    // Other migrations keep counts; one that adds nothing adds none.
    let again = grown.migrate(&optimizer, &both, &Migration::new()).unwrap();
    assert!(same_bits(&*again, &*grown));
    assert_eq!(state.migrate(&optimizer, &params, &Migration::new()).unwrap().schema(), state.schema());
}

/// A thawed leaf continues from its own means and its part of the plane.
#[test]
fn a_thawed_leaf_of_momo_resumes_from_its_own_means() {
    let optimizer = freezable(momo().learning_rate(0.1).lower_bound(-1.0));
    let run = |rest: core::ops::Range<usize>| {
        let mut params = (vec![1.0_f64, -2.0], 3.0_f64);
        let mut state = optimizer.init(&params).unwrap();
        for step in 0..8 + rest.len() {
            if rest.contains(&step) { state.freeze("0") } else { state.thaw("0") }.unwrap();
            // The other leaf has no slope and the loss is constant, so only the first leaf's means matter.
            let own = step - if step < rest.end { rest.len().min(step.saturating_sub(rest.start)) } else { rest.len() };
            let gradient = (vec![(own as f64).sin(), 0.25 - 0.125 * own as f64], 0.0);
            optimizer.step_with(&mut params, &gradient, gradchain::extra::value(2.0), &mut state).unwrap();
        }
        params.0
    };
    let straight = run(0..0);
    assert_eq!(run(4..11), straight, "frozen in between");
    assert_eq!(run(0..5), straight, "frozen from the first step on");
}

#[test]
fn leaves_are_frozen_wherever_the_freezable_is() {
    let deep = boxed(chain((clip(1.0), boxed(multi_steps(freezable(sgd(0.5).momentum(0.5)), 1)))));
    let mut model = params();
    let mut state = deep.init(&model).unwrap();
    state.freeze(Mask::paths(["0", "2"])).unwrap();
    deep.step(&mut model, &gradient(0), &mut state).unwrap();
    assert_eq!((&model.0, model.2), (&params().0, params().2));
    assert_ne!(model.1, params().1);
    state.thaw("0").unwrap();
    deep.step(&mut model, &gradient(1), &mut state).unwrap();
    assert_ne!(model.0, params().0);

    let error = state.freeze("3").unwrap_err();
    assert!(error.is_no_match(), "{error}");
    let plain = boxed(sgd(0.5));
    let error = plain.init(&model).unwrap().freeze("0").unwrap_err().to_string();
    assert_eq!(error, "freeze: this optimizer has no `freezable`; wrap every part that makes the update in one");

    // In several groups, but not in one without it.
    let labels = || Labels::tree([("0", "a"), ("1", "b"), ("2", "c")]);
    let groups = partition((("a", freezable(sgd(0.5))), ("b", freezable(adam(0.5))), ("c", sgd(0.5))), labels());
    let mut model = params();
    let mut state = groups.init(&model).unwrap();
    let error = state.freeze(Mask::all()).unwrap_err().to_string();
    assert_eq!(error, "freeze: no `freezable` holds `2`");
    groups.step(&mut model, &gradient(0), &mut state).unwrap();
    assert!(model.0 != params().0 && model.1 != params().1, "nothing was frozen");
    let before = model.clone();
    state.freeze(!Mask::path("2")).unwrap();
    groups.step(&mut model, &gradient(1), &mut state).unwrap();
    assert_eq!((&model.0, &model.1), (&before.0, &before.1));
    assert_ne!(model.2, before.2);
}
