//! What a step says that it did, and steps that emit what has been accumulated.

use gradchain::GradientTransformation;
use gradchain::needs::Nothing;
use gradchain::prelude::*;

/// For some steps, what each says and whether a parameter moved.
fn said<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, steps: usize) -> Vec<(bool, bool)> {
    let mut params = (4.0_f64, 4.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    let mut one = |step| {
        let before = params;
        let outcome = optimizer.step(&mut params, &(1.0, 1.0 + f64::from(step)), &mut state).unwrap();
        (outcome.emitted(), params != before)
    };
    (0..steps as i32).map(&mut one).collect()
}

/// What is said, which is what happened.
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
    // What makes nothing of nothing.
    assert_eq!(emitted(&chain((windows(), scale(0.5), clip(1.0)))), SECOND);
    assert_eq!(emitted(&chain((windows(), clip_by_global_norm(1.0)))), SECOND);
    assert_eq!(emitted(&chain((windows(), masked(scale(0.5), Mask::path("0"))))), SECOND);
    assert_eq!(emitted(&chain(vec![boxed(clip(1.0)), boxed(windows()), boxed(scale(0.5))])), SECOND);
    // What makes something of nothing.
    assert_eq!(emitted(&chain((windows(), add_decayed_weights(-0.1)))), [true; 4]);
    // On some leaves only.
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
    // Momentum of nothing is known only when it is there.
    assert_eq!(said(&chain((windows(), trace(0.5))), 3), [(true, false), (true, true), (true, true)]);
}

#[test]
fn each_group_says_what_was_done_to_it() {
    let groups = (("each", sgd(0.5)), ("second", multi_steps(sgd(0.5), 2)), ("none", adam(0.1)));
    let optimizer = partition(groups, labels("each", "second"));
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
    assert!(outcome.emitted() && outcome.skipped());
    assert!(state.outcome("a").unwrap().skipped() && !state.outcome("b").unwrap().skipped());
}

#[test]
fn averages_take_what_moved() {
    let optimizer = params_swa(chain((multi_steps(sgd(1.0), 2), add_decayed_weights(-0.5))));
    let mut p = 8.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        optimizer.step(&mut p, &0.0, &mut state).unwrap();
        seen.push(p);
    }
    assert_eq!(seen, [4.0, 2.0, 1.0]);
    assert_eq!(*state.eval_params(&p).unwrap(), 7.0 / 3.0);
}

#[test]
fn a_flush_reaches_the_windows_inside() {
    // Window of a window: outer of 2, inner of 3.
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
    // The outer window is empty, the inner one has one mean, of 1 and 3.
    assert_eq!(after(&[1.0, 3.0]), (true, -2.0));
    // Both have something: means of 2 and 5, which the inner window has at once.
    assert_eq!(after(&[1.0, 3.0, 5.0]), (true, -3.5));
    assert_eq!(after(&[1.0]), (true, -1.0));
    // Both are empty: the step was done.
    assert_eq!(after(&[1.0; 6]), (false, -1.0));

    // Beside a window that has something there may be one that has nothing: what is in it does no step.
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
fn a_weight_is_for_one_mini_step_also_if_that_is_thrown_away() {
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
fn what_freezes_leaves_goes_inside_windows() {
    for inner in
        [boxed(multi_steps(sgd(1.0), 2)), boxed(chain((clip(1.0), masked(multi_steps(adam(0.1), 2), Mask::path("0")))))]
    {
        let error = freezable(inner).init(&(1.0_f64, 1.0_f64)).unwrap_err();
        let expected = "without `multi_steps`, which goes around `freezable`, so that no leaf sees half of a window";
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(multi_steps(freezable(sgd(1.0)), 2).init(&1.0_f64).is_ok());
}
