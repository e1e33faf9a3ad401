//! Minimizing: evaluations, stopping criteria and their reports, errors of the function.
#![allow(clippy::ptr_arg, reason = "functions of the parameters, which are vectors")]

use std::cell::Cell;
use std::ops::ControlFlow;

use gradchain::minimize::{Minimization, Report, Stop};
use gradchain::optimizer::{Lbfgs, Sgd, sophia};
use gradchain::prelude::*;
use gradchain::transform::{
    hutchinson_estimator_diag_hessian, scale, scale_by_backtracking_linesearch, scale_by_lbfgs,
    scale_by_zoom_linesearch,
};
use gradchain::wrapper::allow;
use gradchain::wrapper::flatten;
use gradchain::{Error, extra};

use crate::linesearch::{dot, rosenbrock};

#[test]
fn known_points_are_not_evaluated_again() {
    let calls = Cell::new(0);
    let loss = |p: &Vec<f64>| {
        calls.set(calls.get() + 1);
        rosenbrock(p)
    };
    let optimizer = lbfgs();
    let mut p = vec![-1.2, 1.0];
    let mut state = optimizer.init(&p).unwrap();
    let mut total = 0;
    for _ in 0..10 {
        let before = rosenbrock(&p).0;
        let step = optimizer.minimize_step(&mut p, loss, &mut state).unwrap();
        assert_eq!(step.value, before);
        total += step.evaluations;
        assert_eq!(calls.get(), total);
    }
    // One evaluation at the start, then only the searches'.
    let (mut q, mut same) = (vec![-1.2, 1.0], optimizer.init(&p).unwrap());
    let mut searched = 1;
    for _ in 0..10 {
        let (value, gradient) = rosenbrock(&q);
        optimizer.step_with(&mut q, &gradient, extra::value_and_grad_fn(value, rosenbrock), &mut same).unwrap();
        searched += same.2.info.num_linesearch_steps.get();
    }
    assert_eq!(q, p);
    assert_eq!(calls.get(), searched as usize);

    // Also a change back.
    let kept = p.clone();
    for i in 0..2 {
        for other in [f64::from_bits(p[i].to_bits() + 1), -p[i], 0.0] {
            let (mut changed, mut state) = (kept.clone(), state.clone());
            changed[i] = other;
            let before = rosenbrock(&changed).0;
            let step = optimizer.minimize_step(&mut changed, loss, &mut state).unwrap();
            assert_eq!(step.value, before);
        }
    }
    calls.set(0);
    let step = optimizer.minimize_step(&mut p, loss, &mut state).unwrap();
    assert_eq!(step.evaluations, same_search(&state));
    // A replaced state has no cached evaluation: one more, and the same bits.
    let mut restored = optimizer.init(&p).unwrap();
    restored.replace((*state).clone()).unwrap();
    let mut other = p.clone();
    let a = optimizer.minimize_step(&mut p, loss, &mut state).unwrap();
    let b = optimizer.minimize_step(&mut other, loss, &mut restored).unwrap();
    assert_eq!(a.evaluations + 1, b.evaluations);
    assert_eq!((a.value, p), (b.value, other));
}

fn same_search(state: &OptState<Lbfgs>) -> usize {
    state.2.info.num_linesearch_steps.get() as usize
}

#[test]
fn another_function_is_not_taken_for_the_last_one() {
    let optimizer = lbfgs();
    let mut p = vec![0.0, 0.0];
    let mut state = optimizer.init(&p).unwrap();
    for target in [1.0, -2.0, 3.0] {
        let loss = |p: &Vec<f64>| {
            let (a, b) = (p[0] - target, p[1] + target);
            (a * a + b * b, vec![2.0 * a, 2.0 * b])
        };
        let report = optimizer.minimize(&mut p, loss, &mut state).run().unwrap();
        assert!(report.converged() && report.evaluations > 1, "{target}: {report}");
        assert!((p[0] - target).abs() < 1e-7 && (p[1] + target).abs() < 1e-7, "{target}: {p:?}");
    }
}

#[test]
fn changes_by_later_stages_are_evaluated() {
    let optimizer = chain((lbfgs(), scale(0.5)));
    let mut p = vec![-1.2, 1.0];
    let mut state = optimizer.init(&p).unwrap();
    let mut after = rosenbrock(&p).0;
    for _ in 0..5 {
        let step = optimizer.minimize_step(&mut p, rosenbrock, &mut state).unwrap();
        assert_eq!(step.value, after);
        assert!(step.evaluations >= 2, "the search ended elsewhere");
        after = rosenbrock(&p).0;
    }
}

#[test]
fn minimizing_says_why_it_ended() {
    let optimizer = lbfgs();
    let fresh = || (vec![-1.2, 1.0], optimizer.init(&vec![-1.2, 1.0]).unwrap());

    let (mut p, mut state) = fresh();
    let report = optimizer.minimize(&mut p, rosenbrock, &mut state).gradient_atol(1e-10).max_steps(5).run().unwrap();
    assert_eq!((report.stop, report.steps), (Stop::MaxSteps, 5));
    let (value, gradient) = rosenbrock(&p);
    assert_eq!((report.value, report.gradient_norm), (value, dot(&gradient, &gradient).sqrt()));
    // The run continues; a new call evaluates again, since the function may have changed.
    let (mut q, mut whole) = fresh();
    let all = optimizer.minimize(&mut q, rosenbrock, &mut whole).gradient_atol(1e-10).max_steps(200).run().unwrap();
    let rest = optimizer.minimize(&mut p, rosenbrock, &mut state).gradient_atol(1e-10).max_steps(200).run().unwrap();
    assert_eq!(
        (all.stop, all.steps, all.evaluations),
        (Stop::Gradient, 5 + rest.steps, report.evaluations + rest.evaluations - 1)
    );
    assert_eq!(p, q);
    let none = optimizer.minimize(&mut p, rosenbrock, &mut state).gradient_atol(1e-10).max_steps(200).run().unwrap();
    assert_eq!((none.steps, none.evaluations), (0, 1));

    // Rounding errors keep the norm above the tolerance.
    let flat = |p: &Vec<f64>| (1.0 + 1e-3 * (p[0] - 0.1).abs().sqrt(), vec![1.0, 1.0]);
    let (mut p, mut state) = fresh();
    let report = optimizer.minimize(&mut p, flat, &mut state).gradient_atol(1e-10).max_steps(1000).run().unwrap();
    assert_eq!(report.stop, Stop::Stalled);

    let (mut p, mut state) = fresh();
    let report = optimizer
        .minimize(&mut p, |_: &Vec<f64>| (f64::NAN, vec![1.0, 1.0]), &mut state)
        .gradient_atol(1e-10)
        .max_steps(9)
        .run()
        .unwrap();
    assert_eq!((report.stop, report.steps, report.evaluations), (Stop::NotFinite, 0, 1));
}

#[test]
fn everything_minimizes() {
    fn goes_down<T: GradientTransformation>(optimizer: T, steps: usize) {
        let mut p = vec![2.0, -1.0];
        let mut state = optimizer.init(&p).unwrap();
        let bowl = |p: &Vec<f64>| (p[0] * p[0] + 3.0 * p[1] * p[1], vec![2.0 * p[0], 6.0 * p[1]]);
        let report = optimizer.minimize(&mut p, bowl, &mut state).gradient_atol(1e-6).max_steps(steps).run().unwrap();
        assert!(report.converged(), "{optimizer:?}: {report:?}");
    }
    goes_down(adam(exponential_decay(0.3, 50, 0.5)), 1000);
    goes_down(multi_steps(sgd(0.1), 2), 1000);
    goes_down(chain((sgd(1.0), scale_by_backtracking_linesearch(30))), 200);
    goes_down(chain((sgd(1.0), scale_by_zoom_linesearch(30))), 200);
    goes_down(lbfgs().linesearch(scale_by_backtracking_linesearch(30)), 50);
    goes_down(lbfgs().without_linesearch(), 50);
    goes_down(boxed(lbfgs()), 50);
    goes_down(inject_hyperparams(lbfgs()), 50);
    goes_down(masked(lbfgs(), Mask::all()), 50);
    goes_down(partition((("all", lbfgs()),), Labels::by(|_| "all")), 50);
    goes_down(
        named_chain(["direction", "search"], (scale_by_lbfgs(), chain((scale(-1.0), scale_by_zoom_linesearch(20))))),
        50,
    );
    goes_down(apply_if_finite(lbfgs(), 3), 50);
}

type Bowl<'a> = Minimization<'a, Sgd, f64, fn(&f64) -> (f64, f64)>;

/// Minimizes `p²/2` by steps that halve `p`.
fn halving(start: f64, until: impl FnOnce(Bowl<'_>) -> Bowl<'_>) -> Report {
    let (mut p, optimizer) = (start, sgd(0.5));
    let mut state = optimizer.init(&p).unwrap();
    let bowl: fn(&f64) -> (f64, f64) = |p| (p * p / 2.0, *p);
    until(optimizer.minimize(&mut p, bowl, &mut state).gradient_atol(0.0).max_steps(50)).run().unwrap()
}

#[test]
fn each_tolerance_ends_it_where_the_formula_says() {
    let ends = |report: Report| (report.stop, report.steps);
    for start in [1.0, -1.0, 8.0, -0.125] {
        let size = f64::abs(start);
        let at = |part: f64| part * size;
        assert_eq!(ends(halving(start, |m| m.gradient_atol(at(0.03125)))), (Stop::Gradient, 5));
        assert_eq!(ends(halving(start, |m| m.gradient_rtol(0.03125))), (Stop::Gradient, 5));
        // Both tolerances add.
        let both = halving(start, |m| m.gradient_rtol(0.03125).gradient_atol(at(0.03125)));
        assert_eq!(ends(both), (Stop::Gradient, 4));
        // A step to `p` changes the value by `1.5·p²`; the criterion is strict.
        assert_eq!(ends(halving(start, |m| m.value_atol(at(at(1.5 / 64.0))))), (Stop::Value, 4));
        assert_eq!(ends(halving(start, |m| m.value_rtol(3.0))), (Stop::MaxSteps, 50));
        assert_eq!(ends(halving(start, |m| m.value_rtol(3.001))), (Stop::Value, 1));
        // The step is as long as the new `p`.
        assert_eq!(ends(halving(start, |m| m.step_atol(at(0.125)))), (Stop::Step, 4));
        assert_eq!(ends(halving(start, |m| m.step_rtol(1.0))), (Stop::MaxSteps, 50));
        assert_eq!(ends(halving(start, |m| m.step_rtol(1.001))), (Stop::Step, 1));
    }
    assert_eq!(ends(halving(1.0, |m| m.gradient_atol(f64::INFINITY))), (Stop::Gradient, 0));
    assert_eq!(ends(halving(1.0, |m| m.max_steps(0))), (Stop::MaxSteps, 0));
    assert_eq!(ends(halving(1.0, |m| m.max_evaluations(0))), (Stop::MaxEvaluations, 0));
    assert_eq!(ends(halving(1.0, |m| m.max_evaluations(4))), (Stop::MaxEvaluations, 3));
    let tiny = f64::MIN_POSITIVE;
    let tight = halving(1.0, |m| m.gradient_atol(tiny).value_atol(tiny).step_rtol(f64::EPSILON));
    assert_eq!(ends(tight), (Stop::MaxSteps, 50));
}

#[test]
fn a_step_that_went_nowhere_is_no_convergence() {
    let optimizer = sgd(0.0);
    let mut p = 1.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let minimization = optimizer.minimize(&mut p, |p| (p * p / 2.0, *p), &mut state);
    let report = minimization.value_atol(1.0).value_rtol(1.0).step_atol(1.0).step_rtol(1.0).run().unwrap();
    assert_eq!((report.stop, report.steps, report.evaluations, report.converged()), (Stop::Stalled, 20, 1, false));

    // Mini-steps are no stall.
    let optimizer = multi_steps(sgd(0.5), 150);
    let mut state = optimizer.init(&p).unwrap();
    let report = optimizer.minimize(&mut p, |p| (p * p / 2.0, *p), &mut state).gradient_atol(0.25).run().unwrap();
    assert_eq!((report.stop, report.steps, report.evaluations), (Stop::Gradient, 300, 3));
}

#[test]
fn it_stalls_where_nothing_gets_better() {
    let stalls = |optimizer: Sgd, f: fn(&f64) -> (f64, f64)| {
        let optimizer = allow(optimizer, [gradchain::WarningKind::NegativeRate]);
        let mut p = 1.0_f64;
        let mut state = optimizer.init(&p).unwrap();
        let report = optimizer.minimize(&mut p, f, &mut state).patience(7).run().unwrap();
        assert_eq!(report.stop, Stop::Stalled);
        report.steps
    };
    // Uphill; back and forth; up and down with a wrong gradient.
    assert_eq!(stalls(sgd(-0.5), |p| (p * p / 2.0, *p)), 7);
    assert_eq!(stalls(sgd(2.0), |p| (p * p / 2.0, *p)), 7);
    assert_eq!(stalls(sgd(0.5), |p| (p.cos(), 1.0)), 8 + 7);
    // A constant value with a changing gradient is no stall either.
    let (mut p, optimizer) = (1.0_f64, sgd(0.5));
    let mut state = optimizer.init(&p).unwrap();
    let report = optimizer.minimize(&mut p, |p| (1.0, *p), &mut state).patience(1).run().unwrap();
    assert_eq!(report.stop, Stop::Gradient);
}

#[test]
fn the_callback_sees_every_point_and_can_stop() {
    let optimizer = lbfgs();
    let mut p = vec![-1.2, 1.0];
    let mut state = optimizer.init(&p).unwrap();
    let mut seen = Vec::new();
    let report = optimizer
        .minimize(&mut p, rosenbrock, &mut state)
        .callback(|at| {
            assert_eq!((at.value, at.steps), (rosenbrock(at.params).0, seen.len()));
            seen.push((at.evaluations, at.gradient_norm));
            if at.steps < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .run()
        .unwrap();
    assert_eq!((report.stop, report.steps), (Stop::Callback, 5));
    assert_eq!(seen.len(), 6);
    assert_eq!(seen[5], (report.evaluations, report.gradient_norm));
    assert!(seen.is_sorted());
    let report = optimizer.minimize(&mut p, rosenbrock, &mut state).gradient_atol(1e9);
    assert_eq!(report.callback(|_| ControlFlow::Break(())).run().unwrap().stop, Stop::Gradient);
}

#[test]
fn evaluations_are_limited_but_for_the_last_step() {
    for limit in 1..40 {
        let optimizer = lbfgs();
        let mut p = vec![-1.2, 1.0];
        let mut state = optimizer.init(&p).unwrap();
        let report = optimizer.minimize(&mut p, rosenbrock, &mut state).max_evaluations(limit).run().unwrap();
        assert_eq!(report.stop, Stop::MaxEvaluations);
        assert!((limit..limit + 20).contains(&report.evaluations), "{report}");
    }
}

#[derive(Debug, PartialEq)]
enum Failure {
    Loss(u32),
    Step(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Step(error)
    }
}

/// An error is returned and moves nothing, in a step, a search, a Hessian, an adversary, and a wrapper with a search.
#[test]
fn an_error_of_the_function_comes_back_and_moves_nothing() {
    fn fails<T: GradientTransformation>(optimizer: T, at: u32) {
        let (start, mut points) = (vec![-1.2, 1.0], Vec::new());
        let (mut p, mut state) = (start.clone(), optimizer.init(&start).unwrap());
        let watched = optimizer.minimize(&mut p, rosenbrock, &mut state).max_steps(30).callback(|at| {
            points.push(at.params.clone());
            ControlFlow::Continue(())
        });
        watched.run().unwrap();
        let (mut p, mut state) = (start.clone(), optimizer.init(&start).unwrap());
        let mut calls = 0;
        let loss = |p: &Vec<f64>| {
            calls += 1;
            if calls == at { Err(Failure::Loss(calls)) } else { Ok(rosenbrock(p)) }
        };
        let error = optimizer.minimize(&mut p, loss, &mut state).run().unwrap_err();
        assert_eq!((error, calls), (Failure::Loss(at), at), "{optimizer:?}");
        assert!(points.contains(&p), "{optimizer:?}");
        let goes_on = optimizer.minimize_step(&mut p, rosenbrock, &mut state);
        assert!(goes_on.as_ref().err().is_none_or(Error::is_poisoned), "{optimizer:?}");
        assert!(at > 1 || goes_on.is_ok(), "{optimizer:?}");
    }
    for at in 1..12 {
        fails(lbfgs(), at);
        fails(chain((sgd(1e-3), scale_by_backtracking_linesearch(20), scale(0.5))), at);
        fails(sophia(1e-3, hutchinson_estimator_diag_hessian(3)), at);
        fails(flatten(lbfgs()), at);
        fails(multi_steps(lbfgs(), 2), at);
        fails(adam(1e-3), at);
    }
}

#[test]
fn a_function_may_fail_with_any_error() {
    let optimizer = adam(0.1);
    let mut p = 1.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let dynamic = |_: &f64| -> Result<(f64, f64), Box<dyn std::error::Error>> { Err("no value".into()) };
    assert_eq!(optimizer.minimize_step(&mut p, dynamic, &mut state).unwrap_err().to_string(), "no value");
    let own = |_: &f64| -> Result<(f64, f64), Error> { Err(Error::state("here", "nothing")) };
    assert_eq!(optimizer.minimize(&mut p, own, &mut state).run().unwrap_err().to_string(), "here: nothing");
    let fine = |p: &f64| -> Result<(f64, f64), Failure> { Ok((p * p, 2.0 * p)) };
    let error = optimizer.minimize(&mut p, fine, &mut state).step_rtol(-1e-3).run().unwrap_err();
    assert!(matches!(error, Failure::Step(error) if error.is_argument()));
}

#[test]
fn tolerances_out_of_range_are_refused_before_anything_is_evaluated() {
    type Set = fn(Bowl<'_>, f64) -> Bowl<'_>;
    let setters: [(&str, Set); 6] = [
        ("gradient_atol", |m, x| m.gradient_atol(x)),
        ("gradient_rtol", |m, x| m.gradient_rtol(x)),
        ("value_atol", |m, x| m.value_atol(x)),
        ("value_rtol", |m, x| m.value_rtol(x)),
        ("step_atol", |m, x| m.step_atol(x)),
        ("step_rtol", |m, x| m.step_rtol(x)),
    ];
    for (name, set) in setters {
        for wrong in [-1.0, -f64::MIN_POSITIVE, f64::NAN, f64::NEG_INFINITY] {
            let (mut p, optimizer) = (1.0, sgd(0.5));
            let mut state = optimizer.init(&p).unwrap();
            let untouched: fn(&f64) -> (f64, f64) = |_| panic!("evaluated");
            let error = set(optimizer.minimize(&mut p, untouched, &mut state), wrong).run().unwrap_err();
            assert_eq!(error.to_string(), format!("minimize: argument `{name}` must be not negative, found {wrong}"));
        }
    }
}
