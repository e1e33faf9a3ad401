//! Step outcomes, and `flush`, which emits accumulated updates.

use gradchain::WarningKind;
use gradchain::extra;
use gradchain::needs::Nothing;
use gradchain::optimizer::polyak_sgd;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::identity;
use gradchain::transform::{scale, scale_by_schedule, set_to_zero, trace};
use gradchain::wrapper::allow;
use gradchain::wrapper::{conditionally_mask, freezable, freeze, params_swa, schedule_free, skip_not_finite, step_lt};

/// Returns each step's `emitted`, and true if a parameter moved.
fn said<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, steps: usize) -> Vec<(bool, bool)> {
    let optimizer = allow(optimizer.clone(), [WarningKind::EmptyGroup]);
    let mut params = (4.0_f64, 4.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    let mut one = |step| {
        let before = params;
        let outcome = optimizer.step(&mut params, &(1.0, 1.0 + f64::from(step)), &mut state).unwrap();
        (outcome.emitted(), params != before)
    };
    (0..steps as i32).map(&mut one).collect()
}

/// Returns four steps' `emitted`, which must match the moves.
fn emitted<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) -> [bool; 4] {
    let said = said(optimizer, 4);
    assert!(said.iter().all(|(emitted, moved)| emitted == moved), "{optimizer:?}: {said:?}");
    core::array::from_fn(|i| said[i].0)
}

fn labels(first: &str, second: &str) -> Labels {
    Labels::tree([("0", first.to_owned()), ("1", second.to_owned())])
}

#[test]
fn an_update_was_emitted_if_a_parameter_moved() {
    const SECOND: [bool; 4] = [false, true, false, true];
    let windows = || multi_steps(sgd(0.5), 2);
    assert_eq!(emitted(&windows()), SECOND);
    // Zero stays zero.
    assert_eq!(emitted(&chain((windows(), scale(0.5), clip(1.0)))), SECOND);
    assert_eq!(emitted(&chain((windows(), clip_by_global_norm(1.0)))), SECOND);
    assert_eq!(emitted(&chain((windows(), masked(scale(0.5), Mask::path("0"))))), SECOND);
    assert_eq!(emitted(&chain(vec![boxed(clip(1.0)), boxed(windows()), boxed(scale(0.5))])), SECOND);
    // Stages that map zero to something else do not run.
    assert_eq!(emitted(&chain((windows(), add_decayed_weights(-0.1)))), SECOND);
    assert_eq!(emitted(&chain((windows(), trace(0.5)))), SECOND);
    assert_eq!(emitted(&lookahead(windows(), 1, 0.5)), SECOND);
    assert_eq!(emitted(&schedule_free(windows(), 0.5)), SECOND);
    let (a, b) = (("a", windows()), ("b", sgd(0.1)));
    assert_eq!(emitted(&partition((a.clone(), b.clone()), labels("a", "b"))), [true; 4]);
    assert_eq!(emitted(&partition((a.clone(), b), labels("a", "a"))), SECOND);
    assert_eq!(emitted(&partition((a.clone(), ("b", set_to_zero())), labels("a", "b"))), SECOND);
    let boxes = vec![("a", boxed(windows())), ("b", boxed(sgd(0.1)))];
    assert_eq!(emitted(&partition(boxes, labels("b", "a"))), [true; 4]);
    assert_eq!(emitted(&masked(windows(), Mask::path("0"))), [true; 4]);
    assert_eq!(emitted(&masked(windows(), Mask::path("0")).freeze_others()), SECOND);
    assert_eq!(emitted(&chain((sgd(0.1), freeze(Mask::path("0"))))), [true; 4]);
    assert_eq!(emitted(&chain((sgd(0.1), freeze(Mask::path("*"))))), [false; 4]);
    assert_eq!(emitted(&multi_steps(windows(), 2)), [false, false, false, true]);
}

#[test]
fn each_group_reports_its_outcome() {
    let groups = (("each", sgd(0.5)), ("second", multi_steps(sgd(0.5), 2)), ("none", adam(0.1)));
    let optimizer = allow(partition(groups, labels("each", "second")), [WarningKind::EmptyGroup]);
    let mut params = (1.0_f64, 1.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    assert_eq!(state.outcome("each"), None);
    for step in 0..4 {
        let outcome = optimizer.step(&mut params, &(1.0, 1.0), &mut state).unwrap();
        assert!(outcome.emitted());
        assert!(state.outcome("each").unwrap().emitted());
        assert_eq!(state.outcome("second").unwrap().emitted(), step % 2 == 1);
    }
    assert_eq!(state.outcome("fourth"), None);
    let skips = partition((("a", apply_if_finite(sgd(0.5), 3)), ("b", sgd(0.5))), labels("a", "b"));
    let mut state = skips.init(&params).unwrap();
    let outcome = skips.step(&mut params, &(f64::NAN, 1.0), &mut state).unwrap();
    assert!(outcome.emitted() && !outcome.skipped(), "the other group has moved");
    assert!(state.outcome("a").unwrap().skipped() && !state.outcome("b").unwrap().skipped());
}

#[test]
fn averages_count_only_steps_that_moved_parameters() {
    let optimizer = params_swa(chain((multi_steps(sgd(1.0), 2), add_decayed_weights(-0.5))));
    let mut p = 8.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        optimizer.step(&mut p, &0.0, &mut state).unwrap();
        seen.push(p);
    }
    assert_eq!(seen, [8.0, 4.0, 4.0]);
    assert_eq!(*state.eval_params(&p).unwrap(), 4.0);
}

#[test]
fn a_flush_reaches_the_windows_inside() {
    // Outer of 2, inner of 3.
    let optimizer = multi_steps(chain((scale(1.0), boxed(multi_steps(sgd(1.0), 3)))), 2);
    let after = |steps: &[f64]| {
        let mut p = 0.0_f64;
        let mut state = optimizer.init(&p).unwrap();
        for g in steps {
            optimizer.step(&mut p, g, &mut state).unwrap();
        }
        let emitted = optimizer.flush(&mut p, &mut state).unwrap().emitted();
        assert!(!optimizer.flush(&mut p, &mut state).unwrap().emitted(), "nothing is left");
        (emitted, p)
    };
    assert_eq!(after(&[]), (false, 0.0));
    // The inner one holds the mean of 1 and 3.
    assert_eq!(after(&[1.0, 3.0]), (true, -2.0));
    // Means of 2 and 5, which the inner window averages.
    assert_eq!(after(&[1.0, 3.0, 5.0]), (true, -3.5));
    assert_eq!(after(&[1.0]), (true, -1.0));
    assert_eq!(after(&[1.0; 6]), (false, -1.0));

    // An empty window takes no step beside a filled one.
    let inside = partition((("a", multi_steps(sgd(1.0), 4)), ("b", multi_steps(adam(1.0), 1))), labels("a", "b"));
    let optimizer = multi_steps(inside, 1);
    let mut params = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(1.0, 1.0), &mut state).unwrap();
    let before = params;
    assert!(optimizer.flush(&mut params, &mut state).unwrap().emitted());
    assert_eq!(params, (-1.0, before.1));
    assert_eq!(state.inner().1.inner().0.count.get(), 1);
}

#[test]
fn a_weight_applies_to_one_mini_step_even_if_skipped() {
    let optimizer = multi_steps(sgd(1.0), 2).should_skip_update_fn(skip_not_finite());
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    state.set_weight(3.0).unwrap();
    assert!(optimizer.step(&mut p, &f64::NAN, &mut state).unwrap().skipped());
    optimizer.step(&mut p, &1.0, &mut state).unwrap();
    optimizer.step(&mut p, &3.0, &mut state).unwrap();
    assert_eq!(p, -2.0);
}

#[test]
fn a_mini_step_of_weight_0_counts_and_is_not_looked_at() {
    for mean in [true, false] {
        let optimizer = multi_steps(sgd(1.0), 3).use_grad_mean(mean);
        let mut p = 0.0_f64;
        let mut state = optimizer.init(&p).unwrap();
        for (weight, gradient) in [(3.0, 1.0), (0.0, f64::NAN), (1.0, 5.0)] {
            state.set_weight(weight).unwrap();
            assert_eq!(optimizer.step(&mut p, &gradient, &mut state).unwrap().emitted(), gradient == 5.0);
        }
        assert_eq!(p, if mean { -2.0 } else { -8.0 });
        // A window's last mini-step emits the available mean.
        for (weight, gradient) in [(1.0, 1.0), (0.0, f64::INFINITY), (0.0, f64::NAN)] {
            state.set_weight(weight).unwrap();
            optimizer.step(&mut p, &gradient, &mut state).unwrap();
        }
        assert_eq!(p, if mean { -3.0 } else { -9.0 });
        assert!(state.set_weight(-1.0).unwrap_err().is_argument() && state.set_weight(f64::NAN).is_err());
    }
}

#[test]
fn a_window_without_weight_emits_nothing() {
    let optimizer = chain((multi_steps(adam(0.1), 2), scale_by_schedule(linear(1.0, 0.0, 4))));
    let mut p = 1.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &1.0, &mut state).unwrap();
    optimizer.step(&mut p, &1.0, &mut state).unwrap();
    let before = (p, state.0.inner().0.count, state.1.count);
    for _ in 0..2 {
        for _ in 0..2 {
            state.0.set_weight(0.0).unwrap();
            let outcome = optimizer.step(&mut p, &f64::NAN, &mut state).unwrap();
            assert!(!outcome.emitted() && !outcome.skipped());
        }
        assert_eq!((p, state.0.inner().0.count, state.1.count), before);
        assert_eq!((state.0.mini_step().get(), state.0.gradient_step().get()), (0, 1));
    }
    optimizer.step(&mut p, &1.0, &mut state).unwrap();
    assert!(optimizer.step(&mut p, &1.0, &mut state).unwrap().emitted());
    assert!(p < before.0);

    let flushed = multi_steps(sgd(1.0), 3);
    let mut state = flushed.init(&p).unwrap();
    state.set_weight(0.0).unwrap();
    flushed.step(&mut p, &f64::NAN, &mut state).unwrap();
    assert!(!flushed.flush(&mut p, &mut state).unwrap().emitted());
    assert_eq!(state.mini_step().get(), 0);
}

#[test]
fn a_loss_of_weight_0_is_not_looked_at() {
    let optimizer = multi_steps(polyak_sgd(), 2);
    let mut p = 2.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    state.set_weight(0.0).unwrap();
    optimizer.step_with(&mut p, &f64::NAN, extra::value(f64::NAN), &mut state).unwrap();
    optimizer.step_with(&mut p, &2.0, extra::value(2.0), &mut state).unwrap();
    assert_eq!(p, 1.0);
}

/// Gradients and rates are finite; updates are not.
#[test]
fn a_guard_after_the_optimizer_skips_nonfinite_updates() {
    let optimizer = chain((sgd(1e10), apply_if_finite(identity(), 5)));
    let mut p = (1.0_f32, 1.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    assert!(optimizer.step(&mut p, &(1e30_f32, 1.0_f64), &mut state).unwrap().skipped());
    assert_eq!(p, (1.0, 1.0));
    assert!(optimizer.step(&mut p, &(1e-10_f32, 0.0_f64), &mut state).unwrap().emitted());
    assert_eq!(p, (0.0, 1.0));
}

#[test]
fn freezable_refuses_inner_windows() {
    for inner in
        [boxed(multi_steps(sgd(1.0), 2)), boxed(chain((clip(1.0), masked(multi_steps(adam(0.1), 2), Mask::path("0")))))]
    {
        let error = freezable(inner).init(&(1.0_f64, 1.0_f64)).unwrap_err();
        let expected = "without `multi_steps`: put it around `freezable`, so that no leaf misses part of a window";
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(multi_steps(freezable(sgd(1.0)), 2).init(&1.0_f64).is_ok());
}

fn course<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, grads: &[f64]) -> Vec<f64> {
    let optimizer = allow(optimizer.clone(), [WarningKind::NegativeDecay]);
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let mut step = |g: &f64| {
        let outcome = optimizer.step(&mut p, g, &mut state).unwrap();
        assert!(!(outcome.emitted() && outcome.skipped()), "{optimizer:?}");
        p
    };
    grads.iter().map(&mut step).collect()
}

#[test]
fn parts_around_or_after_a_window_count_windows() {
    let windows = || multi_steps(sgd(1.0), 2);
    let ones = [1.0; 8];
    // Each window moves 1 down; every second takes back half.
    let looking = [0.0, -1.0, -1.0, -1.0, -1.0, -2.0, -2.0, -2.0];
    assert_eq!(course(&lookahead(windows(), 2, 0.5), &ones), looking);
    assert_eq!(course(&boxed(lookahead(boxed(windows()), 2, 0.5)), &ones), looking);
    let plain = course(&schedule_free(sgd(1.0), 1.0).b1(0.5), &ones[..4]);
    let twice: Vec<f64> = [0.0].into_iter().chain(plain.iter().flat_map(|p| [*p, *p])).take(8).collect();
    assert_eq!(course(&schedule_free(windows(), 1.0).b1(0.5), &ones), twice);
    // Rates of 1, 1/2 and 0.
    let rate = linear(1.0, 0.0, 2);
    assert_eq!(
        course(&chain((windows(), scale_by_schedule(rate))), &ones),
        [0.0, -1.0, -1.0, -1.5, -1.5, -1.5, -1.5, -1.5]
    );
    let vector: Vec<Boxed> = vec![boxed(windows()), boxed(scale_by_schedule(rate))];
    assert_eq!(course(&chain(vector), &ones), [0.0, -1.0, -1.0, -1.5, -1.5, -1.5, -1.5, -1.5]);
    assert_eq!(course(&chain((windows(), trace(0.5))), &ones[..6]), [0.0, -1.0, -1.0, -2.5, -2.5, -4.25]);
    assert_eq!(
        course(&inject_hyperparams(lookahead(windows(), 2, linear(0.0, 1.0, 4))), &ones),
        [0.0, -1.0, -1.0, -0.5, -0.5, -1.5, -1.5, -2.0]
    );
    assert_eq!(course(&conditionally_mask(windows(), step_lt(2)), &ones[..6]), [0.0, -1.0, -1.0, -2.0, -2.0, -2.0]);
}

#[test]
fn parts_around_or_after_a_skipped_step_do_nothing() {
    let grads = [1.0, f64::NAN, 1.0, f64::NAN];
    let finite = || apply_if_finite(sgd(1.0), 3);
    assert_eq!(course(&lookahead(finite(), 1, 0.5), &grads), [-0.5, -0.5, -1.0, -1.0]);
    assert_eq!(course(&chain((finite(), trace(0.5))), &grads), [-1.0, -1.0, -2.5, -2.5]);
    assert_eq!(course(&chain((finite(), add_decayed_weights(1.0))), &grads), [-1.0, -1.0, -3.0, -3.0]);
    // A clip waits for all gradients, and so do later stages.
    let waits = chain((finite(), clip_by_global_norm(10.0), trace(0.5)));
    assert_eq!(course(&waits, &grads), [-1.0, -1.0, -2.5, -2.5]);
    let vector: Vec<Boxed> = vec![boxed(finite()), boxed(clip_by_global_norm(10.0)), boxed(trace(0.5))];
    assert_eq!(course(&chain(vector), &grads), [-1.0, -1.0, -2.5, -2.5]);
}

#[test]
fn a_window_inside_a_window_is_emptied() {
    let nested = multi_steps(multi_steps(sgd(1.0), 2), 2);
    assert_eq!(
        course(&nested, &[1.0, 3.0, 5.0, 7.0, 1.0, 1.0, 1.0, 1.0]),
        [0.0, 0.0, 0.0, -4.0, -4.0, -4.0, -4.0, -5.0]
    );
    let apart = multi_steps(chain((boxed(multi_steps(sgd(1.0), 2)), trace(0.5))), 2);
    assert_eq!(course(&apart, &[1.0; 8]), [0.0, 0.0, 0.0, -1.0, -1.0, -1.0, -1.0, -2.5]);
}

#[test]
fn only_leaves_whose_group_emits_nothing_rest() {
    let groups = || partition((("each", sgd(1.0)), ("second", multi_steps(sgd(1.0), 2))), labels("each", "second"));
    let optimizer = chain((groups(), trace(0.5)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    let mut course = Vec::new();
    for _ in 0..4 {
        optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
        course.push(p);
    }
    assert_eq!(course, [(-1.0, 0.0), (-2.5, -1.0), (-4.25, -1.0), (-6.125, -2.5)]);
    // Bias corrections count the updates of a leaf.
    let optimizer = chain((groups(), scale_by_adam(), scale(-1.0)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..4 {
        optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
    }
    assert!((p.0 - 4.0).abs() < 1e-6 && (p.1 - 2.0).abs() < 1e-6, "{p:?}");
    // Leaves outside a mask keep their gradients.
    let optimizer = chain((masked(multi_steps(sgd(1.0), 2), Mask::path("1")), trace(0.5)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..2 {
        optimizer.step(&mut p, &(1.0, 1.0), &mut state).unwrap();
    }
    assert_eq!(p, (2.5, -1.0));
}
