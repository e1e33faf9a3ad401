//! Line searches, L-BFGS with one, and minimizing, against the conditions, Optax and scipy.
#![allow(clippy::ptr_arg, reason = "functions of the parameters, which are vectors")]

use std::cell::{Cell, RefCell};

use gradchain::needs::{ValueAndGradFn, ValueFn};
use gradchain::part::WholeTreeTransformation;
use gradchain::prelude::*;
use gradchain::transform::{
    InitialGuess, Interpolation, scale, scale_by_backtracking_linesearch, scale_by_zoom_linesearch,
};
use gradchain::wrapper::sam;
use gradchain::{config, extra};
use half::bf16;
use ndarray::{Array1, Array2, ShapeBuilder, array};
use proptest::prelude::*;
use serde_json::{Value, json};

type Loss = fn(&Vec<f64>) -> (f64, Vec<f64>);

pub(crate) fn rosenbrock(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let (mut value, mut gradient) = (0.0, vec![0.0; x.len()]);
    for i in 0..x.len() - 1 {
        let (a, b) = (1.0 - x[i], x[i + 1] - x[i] * x[i]);
        value += a * a + 100.0 * b * b;
        gradient[i] += -2.0 * a - 400.0 * b * x[i];
        gradient[i + 1] += 200.0 * b;
    }
    (value, gradient)
}

fn himmelblau(p: &Vec<f64>) -> (f64, Vec<f64>) {
    let (x, y) = (p[0], p[1]);
    let (a, b) = (x * x + y - 11.0, x + y * y - 7.0);
    (a * a + b * b, vec![4.0 * a * x + 2.0 * b, 2.0 * a + 4.0 * b * y])
}

fn beale(p: &Vec<f64>) -> (f64, Vec<f64>) {
    let (x, y) = (p[0], p[1]);
    let (mut value, mut gradient) = (0.0, vec![0.0; 2]);
    for (k, c) in [(1, 1.5), (2, 2.25), (3, 2.625)] {
        let r = c - x + x * y.powi(k);
        value += r * r;
        gradient[0] += 2.0 * r * (y.powi(k) - 1.0);
        gradient[1] += 2.0 * r * f64::from(k) * x * y.powi(k - 1);
    }
    (value, gradient)
}

fn booth(p: &Vec<f64>) -> (f64, Vec<f64>) {
    let (a, b) = (p[0] + 2.0 * p[1] - 7.0, 2.0 * p[0] + p[1] - 5.0);
    (a * a + b * b, vec![2.0 * a + 4.0 * b, 4.0 * a + 2.0 * b])
}

fn matyas(p: &Vec<f64>) -> (f64, Vec<f64>) {
    let (x, y) = (p[0], p[1]);
    (0.26 * (x * x + y * y) - 0.48 * x * y, vec![0.52 * x - 0.48 * y, 0.52 * y - 0.48 * x])
}

fn zakharov(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let half = |i: usize| 0.5 * (i + 1) as f64;
    let s: f64 = x.iter().enumerate().map(|(i, x)| half(i) * x).sum();
    let value = x.iter().map(|x| x * x).sum::<f64>() + s.powi(2) + s.powi(4);
    (value, x.iter().enumerate().map(|(i, x)| 2.0 * x + (2.0 * s + 4.0 * s.powi(3)) * half(i)).collect())
}

fn styblinski_tang(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let value = x.iter().map(|x| x.powi(4) - 16.0 * x * x + 5.0 * x).sum::<f64>() / 2.0;
    (value, x.iter().map(|x| (4.0 * x.powi(3) - 32.0 * x + 5.0) / 2.0).collect())
}

fn logistic(w: &Vec<f64>) -> (f64, Vec<f64>) {
    let mut value = 0.05 * w.iter().map(|w| w * w).sum::<f64>();
    let mut gradient: Vec<f64> = w.iter().map(|w| 0.1 * w).collect();
    for i in 0..40_i32 {
        let row: Vec<f64> = (0..5_i32).map(|j| f64::from((i * 7 + j * j * 13 + i * j) % 11 - 5) / 5.0).collect();
        let y = if (i * 5) % 7 < 3 { 1.0 } else { 0.0 };
        let z: f64 = row.iter().zip(w).map(|(x, w)| x * w).sum();
        value += z.max(0.0) + (-z.abs()).exp().ln_1p() - y * z;
        let residual = 1.0 / (1.0 + (-z).exp()) - y;
        gradient.iter_mut().zip(&row).for_each(|(g, x)| *g += residual * x);
    }
    (value, gradient)
}

fn barrier(p: &Vec<f64>) -> (f64, Vec<f64>) {
    (p[0] + p[1] / 2.0 - p[0].ln() - p[1].ln(), vec![1.0 - 1.0 / p[0], 0.5 - 1.0 / p[1]])
}

pub(crate) fn problem(name: &str) -> Loss {
    match name {
        "rosenbrock" | "rosenbrock_2" | "rosenbrock_10" => rosenbrock,
        "himmelblau" => himmelblau,
        "beale" => beale,
        "booth" => booth,
        "matyas" => matyas,
        "zakharov" => zakharov,
        "styblinski_tang" => styblinski_tang,
        "logistic" => logistic,
        "barrier" => barrier,
        other => panic!("{other}"),
    }
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).unwrap()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn gradients_of_the_problems_are_right() {
    for name in [
        "rosenbrock_10",
        "himmelblau",
        "beale",
        "booth",
        "matyas",
        "zakharov",
        "styblinski_tang",
        "logistic",
        "barrier",
    ] {
        let n = match name {
            "himmelblau" | "beale" | "booth" | "matyas" | "barrier" => 2,
            _ => 5,
        };
        let at: Vec<f64> = (0..n).map(|i| 0.7 + 0.2 * i as f64).collect();
        let (_, gradient) = problem(name)(&at);
        for i in 0..n {
            let moved = |by: f64| {
                let mut moved = at.clone();
                moved[i] += by;
                problem(name)(&moved).0
            };
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((difference - gradient[i]).abs() < 1e-5 * (1.0 + difference.abs()), "{name} {i}");
        }
    }
}

/// `tests/data/record_scipy.py` recorded scipy's numbers.
#[test]
fn lbfgs_needs_no_more_evaluations_than_scipys() {
    let record: Value = serde_json::from_str(include_str!("../data/lbfgs_scipy.json")).unwrap();
    let (mut all, mut by_problem) = ((0, 0), std::collections::BTreeMap::<_, (u64, u64)>::new());
    for run in record["runs"].as_array().unwrap() {
        let (name, start) = (run["problem"].as_str().unwrap(), numbers(&run["start"]));
        let theirs = run["evaluations"].as_u64().unwrap();
        let first = !by_problem.contains_key(name);
        let (mut params, optimizer) = (start.clone(), lbfgs());
        let mut state = optimizer.init(&params).unwrap();
        let report = optimizer
            .minimize(&mut params, problem(name), &mut state)
            .gradient_atol(1e-8)
            .max_steps(1000)
            .run()
            .unwrap();
        assert!(report.converged(), "{name} from {start:?}: {report:?}");
        let ours = report.evaluations as u64;
        println!("{name:16} {ours:4} and {theirs:4} from {start:?}");
        // From the usual start, and over all starts.
        assert!(!first || 10 * ours <= 12 * theirs, "{name} from {start:?}: {ours} evaluations, {theirs} in scipy");
        let sums = by_problem.entry(name.to_owned()).or_default();
        (sums.0, sums.1) = (sums.0 + ours, sums.1 + theirs);
        (all.0, all.1) = (all.0 + ours, all.1 + theirs);
    }
    assert_eq!(by_problem.len(), 9);
    for (name, (ours, theirs)) in by_problem {
        println!("{name:16} {ours:4} and {theirs:4} together");
        assert!(10 * ours <= 12 * theirs, "{name}: {ours} evaluations, {theirs} in scipy");
    }
    println!("all              {:4} and {:4}", all.0, all.1);
    assert!(100 * all.0 <= 105 * all.1, "{} evaluations, {} in scipy", all.0, all.1);
}

/// `tests/data/record_linesearch.py` recorded Optax's step sizes.
#[test]
fn searches_end_where_optaxs_do() {
    let record: Value = serde_json::from_str(include_str!("../data/linesearch_optax.json")).unwrap();
    let (mut seen, mut stayed) = (0, 0);
    for run in record["runs"].as_array().unwrap() {
        let (config, loss) = (&run["config"], problem(run["problem"].as_str().unwrap()));
        let optimizer = config::build_with::<ValueAndGradFn>(config).unwrap();
        let mut params = numbers(&run["start"]);
        let mut state = optimizer.init(&params).unwrap();
        for expected in run["steps"].as_array().unwrap() {
            let (value, gradient) = loss(&params);
            let (before, calls) = (params.clone(), Cell::new(0));
            let counted = |p: &Vec<f64>| {
                calls.set(calls.get() + 1);
                loss(p)
            };
            optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, counted), &mut state).unwrap();
            assert_eq!(calls.get(), expected["evaluations"].as_u64().unwrap(), "{config}");
            let zoom = config.to_string().contains("zoom");
            if zoom && expected["value"].as_f64().unwrap() > value {
                // Optax moves uphill; here the parameters stay.
                assert_eq!(params, before, "{config}");
                stayed += 1;
                break;
            }
            for (ours, theirs) in params.iter().zip(numbers(&expected["params"])) {
                assert!((ours - theirs).abs() <= 1e-7 * (1.0 + theirs.abs()), "{config}: {ours} and {theirs}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 95 && stayed == 2, "{seen} steps, {stayed} stayed");
}

/// Squares, hyperbolic cosines and waves: smooth, and growing in every direction.
#[derive(Clone, Debug)]
struct Wavy {
    directions: Vec<[f64; 3]>,
    waves: f64,
}

impl Wavy {
    fn at(&self, x: &Vec<f64>) -> (f64, Vec<f64>) {
        let mut value = 0.05 * dot(x, x);
        let mut gradient: Vec<f64> = x.iter().map(|x| 0.1 * x).collect();
        for (k, direction) in self.directions.iter().enumerate() {
            let z = dot(direction, x) - k as f64;
            value += z.abs() + (-2.0 * z.abs()).exp().ln_1p() + self.waves * z.sin();
            gradient.iter_mut().zip(direction).for_each(|(g, d)| *g += (z.tanh() + self.waves * z.cos()) * d);
        }
        (value, gradient)
    }
}

fn wavy() -> impl Strategy<Value = Wavy> {
    (prop::collection::vec(prop::array::uniform3(-3.0..3.0), 1..5), 0.0..2.0)
        .prop_map(|(directions, waves)| Wavy { directions, waves })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn zoom_ends_where_the_wolfe_conditions_hold(
        f in wavy(),
        start in prop::collection::vec(-5.0..5.0, 3),
        tilt in prop::collection::vec(-0.5..0.5, 3),
        length in prop::sample::select(vec![1e-4, 1e-2, 1.0, 1e2, 1e4]),
        curvature in prop::sample::select(vec![0.1, 0.5, 0.9]),
        slopes in any::<bool>(),
    ) {
        let search = scale_by_zoom_linesearch(200)
            .curv_rtol(curvature)
            .stepsize_precision(0.0)
            .interpolation(if slopes { Interpolation::Slopes } else { Interpolation::Values });
        let mut x = start.clone();
        let (value, gradient) = f.at(&x);
        // Downhill, but not along the gradient.
        let size = dot(&gradient, &gradient).sqrt();
        let given: Vec<f64> = gradient.iter().zip(&tilt).map(|(g, t)| -length * (g + t * size)).collect();
        let slope = dot(&given, &gradient);
        prop_assume!(slope < -1e-6 * length);
        // The update is the direction; the gradient is the step's argument.
        let optimizer = chain((Instead(given.clone()), search));
        let mut state = optimizer.init(&x).unwrap();
        optimizer.step_with(&mut x, &gradient, extra::value_and_grad_fn(value, |p: &Vec<f64>| f.at(p)), &mut state).unwrap();

        let (after, gradient_after) = f.at(&x);
        let (t, slope_after) = (state.1.learning_rate.get(), dot(&given, &gradient_after));
        prop_assert_eq!(state.1.value.get(), after);
        prop_assert_eq!(state.1.grad.get::<f64>(0).unwrap(), &gradient_after[..]);
        let rounding = 1e-12 * slope.abs();
        prop_assert!(slope_after.abs() <= curvature * slope.abs() + rounding, "{slope} {slope_after} {t}");
        let armijo = after <= value + 1e-4 * t * slope + 1e-12 * value.abs();
        let approximate = slope_after <= (2e-4 - 1.0) * slope + rounding && after <= value + 1.000_001e-6 * value.abs();
        prop_assert!(armijo || approximate, "{value} {after} {t}");
        prop_assert_eq!(state.1.info.decrease_error.get(), 0.0);
        prop_assert_eq!(state.1.info.curvature_error.get(), 0.0);
    }

    #[test]
    fn backtracking_ends_at_the_first_point_low_enough(
        f in wavy(),
        start in prop::collection::vec(-5.0..5.0, 3),
        length in prop::sample::select(vec![1e-2, 1.0, 1e2]),
        slope_rtol in prop::sample::select(vec![1e-4, 0.1, 0.4]),
        factor in 0.2_f64..0.9,
    ) {
        let search = scale_by_backtracking_linesearch(400).slope_rtol(slope_rtol).decrease_factor(factor);
        let optimizer = chain((scale(-length), search));
        let mut x = start.clone();
        let (value, gradient) = f.at(&x);
        prop_assume!(dot(&gradient, &gradient) > 1e-6);
        let mut state = optimizer.init(&x).unwrap();
        let loss = |p: &Vec<f64>| f.at(p).0;
        optimizer.step_with(&mut x, &gradient, extra::value_fn(value, loss), &mut state).unwrap();

        let slope = -length * dot(&gradient, &gradient);
        let (t, tried) = (state.1.learning_rate.get(), state.1.info.num_linesearch_steps.get() as i32);
        let along = |t: f64| start.iter().zip(&gradient).map(|(x, g)| x - t * length * g).collect::<Vec<_>>();
        let enough = |t: f64, slack: f64| loss(&along(t)) <= value + slope_rtol * t * slope + slack;
        let slack = 1e-12 * value.abs();
        prop_assert_eq!(state.1.value.get(), loss(&x));
        prop_assert!((t - factor.powi(tried - 1)).abs() <= 1e-12 * t);
        prop_assert!(enough(t, slack));
        prop_assert!(tried == 1 || !enough(t / factor, -slack), "the point before was low enough");
    }
}

/// The tolerance is relative to the loss's magnitude.
#[test]
fn a_backtracking_search_lets_any_loss_be_a_little_higher() {
    for offset in [-10.0, 0.0, 10.0] {
        // A step of 1 raises the loss by 0.5, within a tenth of 10.
        let loss = |x: &f64| offset + if *x < -0.75 { 0.5 } else { -x.abs() };
        let optimizer = scale_by_backtracking_linesearch(5).rtol(0.1).decrease_factor(0.5);
        let optimizer = chain((scale(-1.0), optimizer));
        let mut x = 0.0_f64;
        let mut state = optimizer.init(&x).unwrap();
        optimizer.step_with(&mut x, &1.0, extra::value_fn(offset, loss), &mut state).unwrap();
        let expected = if offset == 0.0 { 0.5 } else { 1.0 };
        assert_eq!(state.1.learning_rate.get(), expected, "{offset}");
    }
}

#[derive(Clone, Debug)]
struct Instead(Vec<f64>);

impl gradchain::part::Part for Instead {
    const NAME: &'static str = "instead";
    type Form = gradchain::part::Whole;
}

impl WholeTreeTransformation for Instead {
    type State = ();

    fn start(&self, _: &gradchain::part::InitContext<'_>) -> gradchain::Result<()> {
        Ok(())
    }

    fn transform(&self, (): &mut (), _: &gradchain::part::StepContext<'_>, tree: &mut gradchain::part::WholeTree<'_>) {
        tree.leaf::<f64>(0).unwrap().u.copy_from_slice(&self.0);
    }
}

/// The loss is evaluated at rounded parameters, and that value stored.
#[test]
fn points_are_rounded_as_parameters_are() {
    type Mixed = (Array1<bf16>, Array1<f32>, f64);
    let loss = |p: &Mixed| {
        let (a, b) = (p.0.mapv(f64::from), p.1.mapv(f64::from));
        let value = a.mapv(|x| (x - 0.3).powi(2)).sum() + b.mapv(|x| (x + 0.7).powi(4)).sum() + (p.2 - 0.1).powi(2);
        let gradient: Mixed = (
            a.mapv(|x| bf16::from_f64(2.0 * (x - 0.3))),
            b.mapv(|x| (4.0 * (x + 0.7).powi(3)) as f32),
            2.0 * (p.2 - 0.1),
        );
        (value, gradient)
    };
    let bits = |p: &Mixed| {
        let a = p.0.iter().map(|x| u64::from(x.to_bits()));
        let b = p.1.iter().map(|x| u64::from(x.to_bits()));
        a.chain(b).chain([p.2.to_bits()]).collect::<Vec<_>>()
    };
    let start = || -> Mixed { (array![1.1, -0.4, 2.3].mapv(bf16::from_f64), array![0.3, -2.1], 1.7) };
    let seen = RefCell::new(Vec::new());
    let watched = |p: &Mixed| {
        seen.borrow_mut().push(bits(p));
        loss(p)
    };

    let mut params = start();
    let optimizer = chain((sgd(0.37), scale_by_zoom_linesearch(20)));
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..5 {
        let (value, gradient) = loss(&params);
        optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, watched), &mut state).unwrap();
        assert!(seen.borrow().contains(&bits(&params)));
        let (value, gradient) = loss(&params);
        assert_eq!(state.1.value.get(), value);
        assert_eq!(state.1.grad.get::<f64>(2).unwrap(), [gradient.2]);
        assert_eq!(state.1.grad.get::<f32>(1).unwrap(), gradient.1.as_slice().unwrap());
        assert_eq!(state.1.grad.to_array(0).unwrap(), gradient.0.mapv(f64::from).into_dyn());
    }

    let mut params = start();
    let optimizer = chain((sgd(0.9), scale_by_backtracking_linesearch(20)));
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..5 {
        let (value, gradient) = loss(&params);
        let value_only = |p: &Mixed| watched(p).0;
        optimizer.step_with(&mut params, &gradient, extra::value_fn(value, value_only), &mut state).unwrap();
        assert_eq!(seen.borrow().last(), Some(&bits(&params)));
        assert_eq!(state.1.value.get(), loss(&params).0);
    }

    let mut params = start();
    let optimizer = lbfgs();
    let mut state = optimizer.init(&params).unwrap();
    seen.borrow_mut().clear();
    let report = optimizer.minimize(&mut params, watched, &mut state).gradient_atol(1e-3).max_steps(30).run().unwrap();
    let mut distinct = seen.borrow().clone();
    assert_eq!(distinct.len(), report.evaluations);
    distinct.dedup();
    assert_eq!(distinct.len(), report.evaluations);
    assert_eq!(report.value, loss(&params).0);
}

#[test]
fn memory_order_changes_no_bit() {
    let loss = |p: &Array2<f32>| {
        let values: Vec<_> = p.iter().map(|x| f64::from(*x)).collect();
        let value = values.iter().enumerate().map(|(i, x)| (i + 1) as f64 * (x - 0.3).powi(2) + x.cos()).sum::<f64>();
        let gradient = values.iter().enumerate().map(|(i, x)| (2.0 * (i + 1) as f64 * (x - 0.3) - x.sin()) as f32);
        (value, Array2::from_shape_vec(p.dim(), gradient.collect()).unwrap())
    };
    let rows = Array2::from_shape_fn((5, 7), |(i, j)| (i as f32 - 1.3) * (j as f32 - 2.9));
    let mut columns = Array2::zeros((5, 7).f());
    columns.assign(&rows);
    let optimizer = lbfgs();
    let run = |mut params: Array2<f32>| {
        let mut state = optimizer.init(&params).unwrap();
        let report = optimizer.minimize(&mut params, loss, &mut state).gradient_atol(0.0).max_steps(8).run().unwrap();
        (report, params.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
    };
    assert_eq!(run(rows), run(columns));
}

/// Searches at most 30 points from 1, along minus the gradient.
fn zoom_from_one(f: impl Fn(f64) -> (f64, f64)) -> (f64, u64, [f64; 3]) {
    let optimizer = chain((sgd(1.0), scale_by_zoom_linesearch(30)));
    let mut p = 1.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let (value, gradient) = f(p);
    optimizer.step_with(&mut p, &gradient, extra::value_and_grad_fn(value, |p: &f64| f(*p)), &mut state).unwrap();
    let info = state.1.info;
    let numbers = [state.1.learning_rate.get(), info.decrease_error.get(), info.curvature_error.get()];
    assert!(p == 1.0 || state.1.value.get() == f(p).0);
    (p, info.num_linesearch_steps.get(), numbers)
}

#[test]
fn a_search_that_fails_does_not_step() {
    let stays = |f: fn(f64) -> (f64, f64), tried| {
        let (p, steps, [t, decrease, curvature]) = zoom_from_one(f);
        assert_eq!((p, t), (1.0, 0.0));
        assert!(decrease.is_infinite() && curvature.is_infinite());
        assert_eq!(steps, tried);
    };
    stays(|_| (f64::NAN, 1.0), 0);
    stays(|_| (1.0, f64::NAN), 0);
    stays(|_| (1.0, f64::INFINITY), 0);
    // The gradient belongs to another function.
    stays(|p| (p, -1.0), 30);
    stays(|p| if p == 1.0 { (1.0, 1.0) } else { (f64::NAN, 1.0) }, 30);
    stays(|p| if p == 1.0 { (1.0, 1.0) } else { (f64::INFINITY, 1.0) }, 30);
    stays(|p| if p == 1.0 { (1.0, 1.0) } else { (f64::NEG_INFINITY, 1.0) }, 30);
    stays(|p| if p == 1.0 { (1.0, 1.0) } else { (0.0, f64::NAN) }, 30);
}

#[test]
fn a_search_avoids_nonfinite_values() {
    // The loss is NaN below 0; half of the way to −1 has slope ∞.
    let (p, _, [t, decrease, curvature]) = zoom_from_one(|p: f64| (p - p.ln() / 8.0, 1.0 - 0.125 / p));
    assert!(p > 0.0 && t > 0.0 && decrease == 0.0 && curvature == 0.0);
    // From an infinite loss, any finite value improves.
    let (p, steps, _) = zoom_from_one(|p| if p == 1.0 { (f64::INFINITY, 1.0) } else { (p * p, 2.0 * p) });
    assert_eq!((p, steps), (0.0, 1));
}

#[test]
fn a_loss_without_bound_ends_with_the_number_of_points() {
    // The last of 30 points is 2^29 steps away, and taken since none is flatter.
    let (p, steps, [t, decrease, curvature]) = zoom_from_one(|p| (p, 1.0));
    assert_eq!((steps, t), (30, (1_u64 << 29) as f64));
    assert_eq!((p, decrease), (1.0 - t, 0.0));
    assert!((curvature - 0.1).abs() < 1e-15);
    // The search stops at its limit at once.
    let optimizer = chain((sgd(1.0), scale_by_zoom_linesearch(30).max_learning_rate(8.0)));
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_with(&mut p, &1.0, extra::value_and_grad_fn(0.0, |p: &f64| (*p, 1.0)), &mut state).unwrap();
    assert_eq!((p, state.1.info.num_linesearch_steps.get()), (-8.0, 4));
}

#[test]
fn the_search_after_a_failure_restarts() {
    let fails = |p: &f64| if *p == 1.0 { (0.5, 1.0) } else { (f64::NAN, 0.0) };
    let works = |p: &f64| (p * p / 2.0, *p);
    let mut p = 1.0_f64;
    let zoom = scale_by_zoom_linesearch(4);
    let optimizer = chain((sgd(1.0), zoom));
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_with(&mut p, &1.0, extra::value_and_grad_fn(0.5, fails), &mut state).unwrap();
    assert_eq!((p, state.1.learning_rate.get(), state.1.value.get()), (1.0, 0.0, 0.5));
    optimizer.step_with(&mut p, &1.0, extra::value_and_grad_fn(0.5, works), &mut state).unwrap();
    assert_eq!((p, state.1.learning_rate.get()), (0.0, 1.0));

    let mut p = 1.0_f64;
    let optimizer = chain((sgd(1.0), scale_by_backtracking_linesearch(4)));
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_with(&mut p, &1.0, extra::value_fn(0.5, |p: &f64| fails(p).0), &mut state).unwrap();
    assert_eq!((p, state.1.learning_rate.get(), state.1.value.get()), (1.0, 0.0, 0.5));
    assert!(state.1.info.decrease_error.get().is_infinite());
    assert_eq!(state.1.info.num_linesearch_steps.get(), 5);
    optimizer.step_with(&mut p, &1.0, extra::value_fn(0.5, |p: &f64| works(p).0), &mut state).unwrap();
    assert_eq!((p, state.1.learning_rate.get()), (0.0, 1.0));

    // They become zero, not 0·∞.
    for given in [f64::NAN, f64::INFINITY] {
        let mut p = 1.0_f64;
        let mut state = optimizer.init(&p).unwrap();
        optimizer.step_with(&mut p, &given, extra::value_fn(0.5, |p: &f64| works(p).0), &mut state).unwrap();
        assert_eq!(p, 1.0);
    }
}

#[test]
fn backtracking_that_runs_out_of_steps_takes_the_last() {
    // Uphill: 1, 0.8, 0.64 are all too high, as in Optax.
    let mut p = 1.0_f64;
    let optimizer = chain((scale(1.0), scale_by_backtracking_linesearch(2)));
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_with(&mut p, &1.0, extra::value_fn(0.5, |p: &f64| p * p / 2.0), &mut state).unwrap();
    assert!((p - 1.64).abs() < 1e-15);
    let error = state.1.info.decrease_error.get();
    assert!((error - (1.64 * 1.64 / 2.0 - 0.5 - 1e-4 * 0.64)).abs() < 1e-15);
}

#[test]
fn a_gradient_of_another_structure_is_an_error_and_changes_no_parameter() {
    let optimizer = lbfgs();
    let mut p = vec![1.0_f64, 2.0];
    let mut state = optimizer.init(&p).unwrap();
    let wrong = |p: &Vec<f64>| (dot(p, p), vec![0.0_f64; 3]);
    let error =
        optimizer.step_with(&mut p, &vec![2.0, 4.0], extra::value_and_grad_fn(5.0, wrong), &mut state).unwrap_err();
    assert!(error.is_structure(), "{error}");
    assert_eq!(p, [1.0, 2.0]);
    let right = |p: &Vec<f64>| (dot(p, p), p.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    let error = optimizer.minimize_step(&mut p, right, &mut state).unwrap_err();
    assert!(error.is_poisoned(), "{error}");

    // The state stays usable.
    let mut state = optimizer.init(&p).unwrap();
    assert!(optimizer.minimize_step(&mut p, wrong, &mut state).unwrap_err().is_structure());
    let wider = |p: &Vec<f32>| (0.0, p.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let mut narrow = vec![1.0_f32, 2.0];
    let mut of_narrow = optimizer.init(&narrow).unwrap();
    assert!(optimizer.minimize_step(&mut narrow, wider, &mut of_narrow).unwrap_err().is_structure());
    assert!(
        optimizer.minimize(&mut p, right, &mut state).gradient_atol(1e-10).max_steps(20).run().unwrap().converged()
    );

    let mut other = vec![1.0_f64; 3];
    assert!(optimizer.minimize_step(&mut other, right, &mut state).unwrap_err().is_structure());
    assert_eq!(other, [1.0; 3]);
}

/// Each search holds the other group's leaves fixed.
#[test]
fn searches_in_groups_do_not_see_each_other() {
    let points = RefCell::new(Vec::new());
    let loss = |p: &(f64, f64)| {
        points.borrow_mut().push(*p);
        (p.0 * p.0 + p.1 * p.1, (2.0 * p.0, 2.0 * p.1))
    };
    let search = || chain((sgd(0.25), scale_by_zoom_linesearch(10)));
    let labels = Labels::by(|leaf| if leaf.path() == "0" { "a" } else { "b" });
    let optimizer = partition((("a", search()), ("b", search())), labels);
    let mut p = (1.0, 3.0);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_with(&mut p, &(2.0, 6.0), extra::value_and_grad_fn(10.0, loss), &mut state).unwrap();
    assert_eq!(p, (0.5, 1.5));
    assert_eq!(*points.borrow(), [(0.5, 3.0), (1.0, 1.5)]);

    points.borrow_mut().clear();
    let optimizer = chain((masked(search(), Mask::path("0")), masked(sgd(0.25), Mask::path("1"))));
    let mut state = optimizer.init(&p).unwrap();
    let step = optimizer.minimize_step(&mut p, loss, &mut state).unwrap();
    assert_eq!((step.evaluations, p), (2, (0.25, 0.75)));
    optimizer.minimize_step(&mut p, loss, &mut state).unwrap();
    assert_eq!(*points.borrow(), [(0.5, 1.5), (0.25, 1.5), (0.25, 0.75), (0.125, 0.75)]);
}

#[test]
fn a_flushed_window_reuses_the_last_step_size() {
    let optimizer = multi_steps(chain((sgd(0.5), scale_by_zoom_linesearch(10))), 2);
    let loss = |p: &f64| (p * p / 2.0, *p);
    let mut p = 4.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..2 {
        optimizer.step_with(&mut p, &4.0, extra::value_and_grad_fn(8.0, loss), &mut state).unwrap();
    }
    assert_eq!(p, 2.0);
    optimizer.step_with(&mut p, &2.0, extra::value_and_grad_fn(2.0, loss), &mut state).unwrap();
    assert!(optimizer.flush(&mut p, &mut state).unwrap().emitted());
    assert_eq!(p, 1.0);
}

#[test]
fn leaves_without_elements_or_axes_are_fine() {
    let optimizer = lbfgs();
    let mut p = (Array1::<f32>::zeros(0), 3.0_f32, Array2::<f64>::ones((2, 2)));
    let loss = |p: &(Array1<f32>, f32, Array2<f64>)| {
        let value = f64::from(p.1 * p.1) + p.2.mapv(|x| (x - 2.0).powi(2)).sum();
        (value, (p.0.clone(), 2.0 * p.1, p.2.mapv(|x| 2.0 * (x - 2.0))))
    };
    let mut state = optimizer.init(&p).unwrap();
    let report = optimizer.minimize(&mut p, loss, &mut state).gradient_atol(1e-5).max_steps(30).run().unwrap();
    assert!(report.converged(), "{report:?}");
    let mut nothing = Array1::<f64>::zeros(0);
    let mut state = optimizer.init(&nothing).unwrap();
    let report = optimizer
        .minimize(&mut nothing, |p: &Array1<f64>| (0.0, p.clone()), &mut state)
        .gradient_atol(0.0)
        .max_steps(3)
        .run()
        .unwrap();
    assert!(report.converged());
}

#[test]
fn arguments_out_of_range_are_refused() {
    let zoom = || scale_by_zoom_linesearch(5);
    let back = || scale_by_backtracking_linesearch(5);
    let refused = [
        scale_by_zoom_linesearch(0).init(&0.0).err(),
        zoom().increase_factor(1.0).init(&0.0).err(),
        zoom().slope_rtol(1.0).init(&0.0).err(),
        zoom().curv_rtol(-0.1).init(&0.0).err(),
        zoom().tol(f64::NAN).init(&0.0).err(),
        zoom().max_learning_rate(0.0).init(&0.0).err(),
        zoom().approx_dec_rtol(-1.0).init(&0.0).err(),
        zoom().stepsize_precision(-1.0).init(&0.0).err(),
        back().decrease_factor(1.0).init(&0.0).err(),
        back().increase_factor(0.0).init(&0.0).err(),
        back().max_learning_rate(0.0).init(&0.0).err(),
        back().slope_rtol(-0.1).init(&0.0).err(),
        back().atol(-1.0).init(&0.0).err(),
        back().rtol(f64::INFINITY).init(&0.0).err(),
    ];
    assert!(refused.iter().all(|error| error.as_ref().is_some_and(gradchain::Error::is_argument)), "{refused:?}");
    assert!(zoom().curv_rtol(f64::INFINITY).approx_dec_rtol(None).init(&0.0).is_ok());
    assert!(back().increase_factor(f64::INFINITY).init(&0.0).is_ok());
}

#[test]
fn configs_choose_the_search() {
    let debug = |config: Value| format!("{:?}", config::build_with::<ValueAndGradFn>(&config).unwrap());
    assert_eq!(debug(json!({"lbfgs": {}})), format!("{:?}", lbfgs()));
    assert_eq!(debug(json!({"lbfgs": {"linesearch": null}})), format!("{:?}", lbfgs().without_linesearch()));
    assert_eq!(
        debug(
            json!({"lbfgs": {"learning_rate": 0.5, "memory_size": 3, "linesearch": {"scale_by_backtracking_linesearch": {
                "max_backtracking_steps": 7, "slope_rtol": 0.1, "decrease_factor": 0.5, "increase_factor": "inf",
                "max_learning_rate": 2.0, "atol": 0.1, "rtol": 0.2, "store_grad": false, "verbose": false,
            }}}})
        ),
        format!(
            "{:?}",
            lbfgs().learning_rate(0.5).memory_size(3).linesearch(
                scale_by_backtracking_linesearch(7)
                    .slope_rtol(0.1)
                    .decrease_factor(0.5)
                    .increase_factor(f64::INFINITY)
                    .max_learning_rate(2.0)
                    .atol(0.1)
                    .rtol(0.2)
            )
        )
    );
    assert_eq!(
        debug(json!({"scale_by_zoom_linesearch": {
            "max_linesearch_steps": 7, "max_learning_rate": 2.0, "tol": 0.1, "increase_factor": 3.0, "slope_rtol": 0.01,
            "curv_rtol": 0.5, "approx_dec_rtol": null, "stepsize_precision": 1e-3, "initial_guess_strategy": "one",
            "interpolation": "slopes", "verbose": false,
        }})),
        format!(
            "{:?}",
            scale_by_zoom_linesearch(7)
                .max_learning_rate(2.0)
                .tol(0.1)
                .increase_factor(3.0)
                .slope_rtol(0.01)
                .curv_rtol(0.5)
                .approx_dec_rtol(None)
                .stepsize_precision(1e-3)
                .initial_guess_strategy(InitialGuess::One)
                .interpolation(Interpolation::Slopes)
        )
    );
    assert!(config::build(&json!({"lbfgs": {}})).is_err());
    assert!(config::build(&json!({"lbfgs": {"linesearch": null}})).is_ok());
    let backtracking = json!({"scale_by_backtracking_linesearch": {"max_backtracking_steps": 3}});
    assert!(config::build_with::<ValueFn>(&backtracking).is_ok());
    assert!(config::build_with::<ValueFn>(&json!({"scale_by_zoom_linesearch": {"max_linesearch_steps": 3}})).is_err());
    for config in [
        json!({"scale_by_zoom_linesearch": {"max_linesearch_steps": 3, "verbose": true}}),
        json!({"scale_by_zoom_linesearch": {"max_linesearch_steps": 3, "initial_guess_strategy": "two"}}),
        json!({"scale_by_zoom_linesearch": {}}),
        json!({"scale_by_backtracking_linesearch": {"max_backtracking_steps": 3, "store_grad": true}}),
    ] {
        assert!(config::build_with::<ValueAndGradFn>(&config).is_err(), "{config}");
    }
    for config in
        [json!({"lbfgs": {}}), json!({"lbfgs": {"linesearch": null}}), json!({"lbfgs": {"linesearch": backtracking}})]
    {
        let built = config::build_with::<ValueAndGradFn>(&config).unwrap();
        let written = config::Config::of(&built).unwrap();
        assert_eq!(config::Config::of(&written.build_with::<ValueAndGradFn>().unwrap()).unwrap(), written);
    }
}

/// Leaves outside the mask included.
#[test]
fn a_search_inside_a_masked_adversary_evaluates_the_loss_at_all_leaves() {
    let adversary = chain((scale(-1.0), scale_by_backtracking_linesearch(10)));
    let optimizer = masked(sam(sgd(0.1), adversary).opaque_mode(), Mask::path("0")).freeze_others();
    let mut seen = Vec::new();
    let mut loss = |(a, b): &(f64, f64)| {
        seen.push(*b);
        (a * a / 2.0 + b, (*a, 1.0))
    };
    let mut params = (3.0, 5.0);
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..2 {
        let (value, gradient) = loss(&params);
        optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, &mut loss), &mut state).unwrap();
    }
    assert!(seen.len() >= 6 && seen.iter().all(|b| *b == 5.0), "{seen:?}");
    assert!(params.0.abs() < 3.0 && params.1 == 5.0, "{params:?}");
}
