//! Bounds, second derivatives, gradient checks, plateaus and rate ranges, against scipy, statsmodels and naive
//! versions.
#![allow(clippy::ptr_arg, reason = "functions of the parameters, which are vectors")]

use std::cell::Cell;

use gradchain::extra;
use gradchain::minimize::{Covariance, Report, Stop, check_gradient, hessian};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{Plateau, PlateauMode, reduce_on_plateau, scale_by_backtracking_linesearch};
use gradchain::watch::rate_range;
use gradchain::wrapper::flatten;
use half::bf16;
use ndarray::{Array2, array};
use proptest::prelude::*;
use serde_json::Value;

use crate::linesearch::{dot, numbers, problem};

type Loss = fn(&Vec<f64>) -> (f64, Vec<f64>);

fn hilbert(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let n = x.len();
    let at = |i: usize, j: usize| 1.0 / (1 + i + j) as f64;
    let off = |j: usize| x[j] - if j.is_multiple_of(2) { 1.0 } else { -1.0 };
    let residual: Vec<f64> = (0..n).map(|i| (0..n).map(|j| at(i, j) * off(j)).sum()).collect();
    (dot(&residual, &residual) / 2.0, (0..n).map(|j| (0..n).map(|i| at(i, j) * residual[i]).sum()).collect())
}

fn steep(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let residual: Vec<f64> = x.iter().enumerate().map(|(i, x)| x - if i % 2 == 0 { 2.0 } else { -0.5 }).collect();
    let sum: f64 = residual.iter().sum();
    let curvature = |i: usize| 10.0_f64.powf(6.0 * i as f64 / (x.len() - 1) as f64);
    let slope: Vec<f64> = residual.iter().enumerate().map(|(i, r)| curvature(i) * r + sum).collect();
    (dot(&residual, &slope) / 2.0, slope)
}

fn powell(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let (a, b, c, d) = (x[0] + 10.0 * x[1], x[2] - x[3], x[1] - 2.0 * x[2], x[0] - x[3]);
    let (c3, d3) = (4.0 * c.powi(3), 40.0 * d.powi(3));
    let value = a * a + 5.0 * b * b + c.powi(4) + 10.0 * d.powi(4);
    (value, vec![2.0 * a + d3, 20.0 * a + c3, 10.0 * b - 2.0 * c3, -10.0 * b - d3])
}

fn obstacle(x: &Vec<f64>) -> (f64, Vec<f64>) {
    let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
    let slope: Vec<f64> = (0..x.len()).map(|i| 4.0 * x[i] - at(i + 1) - at(i.wrapping_sub(1))).collect();
    let load: Vec<f64> = (0..x.len()).map(|i| (i as f64).sin()).collect();
    let gradient = slope.iter().zip(&load).map(|(s, l)| s - l).collect();
    (dot(x, &slope) / 2.0 - dot(&load, x), gradient)
}

fn of_name(name: &str) -> Loss {
    match name.split(' ').next().unwrap() {
        "hilbert" => hilbert,
        "steep" => steep,
        "powell" => powell,
        "obstacle" => obstacle,
        other => problem(other),
    }
}

fn limits(value: &Value, unlimited: f64) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap_or(unlimited)).collect()
}

/// `tests/data/record_bounds.py` recorded scipy's numbers.
#[test]
fn bounds_lead_where_scipys_lead() {
    let record: Value = serde_json::from_str(include_str!("../data/bounds_scipy.json")).unwrap();
    let (mut ours, mut theirs) = (0, 0);
    for run in record["runs"].as_array().unwrap() {
        let name = run["problem"].as_str().unwrap();
        let (lower, upper) = (limits(&run["lower"], f64::NEG_INFINITY), limits(&run["upper"], f64::INFINITY));
        let inside = |p: &Vec<f64>| p.iter().zip(&lower).zip(&upper).all(|((p, l), u)| l <= p && p <= u);
        let loss = |p: &Vec<f64>| {
            assert!(inside(p), "{name} is evaluated at {p:?}");
            of_name(name)(p)
        };
        let optimizer = lbfgs();
        let mut p = numbers(&run["start"]);
        let mut state = optimizer.init(&p).unwrap();
        // Curvatures of 1e6 leave rounding errors above 1e-8.
        let tolerance = if name.starts_with("steep") { 1e-6 } else { 1e-8 };
        let minimization = optimizer.minimize(&mut p, loss, &mut state).bounds(&lower, &upper);
        let report = minimization.gradient_atol(tolerance).max_steps(500).run().unwrap();
        assert!(report.converged() && inside(&p), "{name}: {report}");
        let (value, at) = (run["value"].as_f64().unwrap(), numbers(&run["params"]));
        assert!((report.value - value).abs() <= 1e-10 * value.abs().max(1.0), "{name}: {report}, {value} in scipy");
        // At a minimum parameters are determined only up to the root of the value's rounding error.
        let apart = p.iter().zip(&at).map(|(p, at)| (p - at).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-5, "{name}: {p:?}, {at:?} in scipy");
        let (_, gradient) = of_name(name)(&p);
        let projected = (0..p.len()).map(|i| p[i] - (p[i] - gradient[i]).clamp(lower[i], upper[i]));
        let norm = projected.map(|g| g * g).sum::<f64>().sqrt();
        assert!((norm - report.gradient_norm).abs() <= 1e-12, "{name}: {norm}, {report}");
        println!("{name}: {} evaluations, {} in scipy", report.evaluations, run["evaluations"]);
        if let Some(evaluations) = run["evaluations"].as_u64() {
            ours += report.evaluations as u64;
            theirs += evaluations;
        }
    }
    assert!(10 * ours <= 17 * theirs, "{ours} evaluations, {theirs} in scipy");
}

/// A convex quadratic, minimized in a box by coordinate descent.
#[derive(Clone, Debug)]
struct Quadratic {
    matrix: Array2<f64>,
    center: Vec<f64>,
}

impl Quadratic {
    fn loss(&self, x: &Vec<f64>) -> (f64, Vec<f64>) {
        let off = ndarray::Array1::from_iter(x.iter().zip(&self.center).map(|(x, c)| x - c));
        let gradient = self.matrix.dot(&off);
        (off.dot(&gradient) / 2.0, gradient.to_vec())
    }

    fn minimum(&self, lower: &[f64], upper: &[f64]) -> Vec<f64> {
        let mut x: Vec<f64> = self.center.iter().zip(lower).zip(upper).map(|((c, l), u)| c.clamp(*l, *u)).collect();
        for _ in 0..20_000 {
            for i in 0..x.len() {
                let (_, gradient) = self.loss(&x);
                x[i] = (x[i] - gradient[i] / self.matrix[[i, i]]).clamp(lower[i], upper[i]);
            }
        }
        x
    }
}

fn quadratics() -> impl Strategy<Value = (Quadratic, Vec<f64>, Vec<f64>, Vec<f64>, f64)> {
    let vector = |n: usize| prop::collection::vec(-2.0..2.0_f64, n);
    (2_usize..6, -6_i32..7).prop_flat_map(move |(n, scale)| {
        (vector(n * n), vector(n), vector(n), vector(n), vector(n)).prop_map(move |(root, center, start, a, b)| {
            let root = Array2::from_shape_vec((n, n), root).unwrap();
            let matrix = root.t().dot(&root) + Array2::<f64>::eye(n) * 0.3;
            let size = 10.0_f64.powi(scale);
            let sized = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(|x| x * size).collect() };
            let lower: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a.min(*b)).collect();
            let upper = a.iter().zip(&b).enumerate().map(|(i, (a, b))| if i == 0 { f64::INFINITY } else { a.max(*b) });
            let upper: Vec<f64> = upper.collect();
            (Quadratic { matrix, center: sized(center) }, sized(start), sized(lower), sized(upper), size)
        })
    })
}

fn bounded<T: GradientTransformation, P: TreeMut + Clone, R: gradchain::minimize::Evaluated>(
    optimizer: T,
    p: &mut P,
    loss: impl FnMut(&P) -> R,
    lower: f64,
    upper: f64,
    tolerance: f64,
) -> Report
where
    R::Error: std::fmt::Debug,
{
    let mut state = optimizer.init(&*p).unwrap();
    let minimization = optimizer.minimize(p, loss, &mut state).bounds(lower, upper).gradient_atol(tolerance);
    minimization.max_steps(3000).patience(1000).run().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_minimum_in_a_box_is_found((quadratic, start, lower, upper, size) in quadratics()) {
        let expected = quadratic.minimum(&lower, &upper);
        let mut p = start;
        let optimizer = lbfgs();
        let mut state = optimizer.init(&p).unwrap();
        let loss = |p: &Vec<f64>| {
            assert!(p.iter().zip(&lower).zip(&upper).all(|((p, l), u)| l <= p && p <= u), "{p:?}");
            quadratic.loss(p)
        };
        let minimization = optimizer.minimize(&mut p, loss, &mut state).bounds(&lower, &upper);
        let report = minimization.gradient_atol(1e-9 * size).max_steps(300).run().unwrap();
        prop_assert_eq!(report.stop, Stop::Gradient, "{}", report);
        for (p, expected) in p.iter().zip(&expected) {
            prop_assert!((p - expected).abs() <= 1e-7 * size, "{} and {}", p, expected);
        }
    }

    /// Bounds are never reached.
    #[test]
    fn bounds_out_of_reach_change_nothing(x in -3.0..3.0_f64, y in -3.0..3.0_f64, wide in any::<bool>()) {
        let bound = if wide { f64::INFINITY } else { 1e9 };
        let (mut p, mut q) = (vec![x, y], vec![x, y]);
        let optimizer = lbfgs();
        let (mut state, mut free) = (optimizer.init(&p).unwrap(), optimizer.init(&p).unwrap());
        let loss = problem("rosenbrock_2");
        let within = optimizer.minimize(&mut p, loss, &mut state).bounds(-bound, bound).max_steps(200).run().unwrap();
        let without = optimizer.minimize(&mut q, loss, &mut free).max_steps(200).run().unwrap();
        prop_assert_eq!(p, q);
        prop_assert_eq!((within.stop, within.steps, within.evaluations), (without.stop, without.steps, without.evaluations));
    }

    /// For curvatures of every size and third derivatives as large.
    #[test]
    fn second_derivatives_are_those_of_the_formula(
        root in prop::collection::vec(-2.0..2.0_f64, 9),
        at in prop::collection::vec(prop_oneof![-3.0..-0.1_f64, 0.1..3.0_f64], 3),
        point in -6_i32..7,
        value in -6_i32..7,
    ) {
        let (size, factor) = (10.0_f64.powi(point), 10.0_f64.powi(value));
        let root = Array2::from_shape_vec((3, 3), root).unwrap();
        let matrix = root.t().dot(&root);
        let loss = |p: &Vec<f64>| {
            let x = ndarray::Array1::from_iter(p.iter().map(|p| p / size));
            let linear = matrix.dot(&x);
            let value = x.dot(&linear) / 2.0 + x.mapv(f64::exp).sum();
            (factor * value, (linear + x.mapv(f64::exp)).mapv(|g| factor * g / size).to_vec())
        };
        let params: Vec<f64> = at.iter().map(|x| x * size).collect();
        let found = hessian(&params, loss).typical_size(size).run().unwrap();
        let expected = (&matrix + &Array2::from_diag(&ndarray::Array1::from_iter(at.iter().map(|x| x.exp()))))
            .mapv(|h| h * factor / (size * size));
        let most = expected.iter().fold(0.0, |most: f64, h| most.max(h.abs()));
        for (found, expected) in found.matrix().iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-8 * most, "{} and {}", found, expected);
        }
        if let Ok(covariance) = found.covariance() {
            let unit = covariance.matrix().dot(found.matrix());
            for ((i, j), x) in unit.indexed_iter() {
                prop_assert!((x - f64::from(u8::from(i == j))).abs() < 1e-6, "{}", unit);
            }
        }
    }

    /// An error names the wrong element.
    #[test]
    fn the_wrong_element_of_a_gradient_is_named(
        at in prop::collection::vec(prop_oneof![-30.0..-0.1_f64, 0.1..30.0_f64], 4),
        value in -6_i32..7,
        wrong in 0_usize..4,
        by in prop_oneof![Just(-1.0), Just(0.0), Just(1.01), Just(f64::NAN)],
    ) {
        let factor = 10.0_f64.powi(value);
        let loss = |p: &Vec<f64>| {
            let value: f64 = p.iter().map(|p| p.sin() + p * p * p).sum();
            (factor * value, p.iter().map(|p| factor * (p.cos() + 3.0 * p * p)).collect::<Vec<f64>>())
        };
        let check = check_gradient(&at, loss).run();
        prop_assert!(check.as_ref().is_ok_and(|c| c.elements == 4 && c.largest_difference < 1e-5), "{:?}", check);
        let broken = |p: &Vec<f64>| {
            let (value, mut gradient) = loss(p);
            gradient[wrong] *= by;
            (value, gradient)
        };
        let error = check_gradient(&at, broken).run().unwrap_err().to_string();
        prop_assert!(error.starts_with(&format!("check_gradient: the gradient at `(root)[{wrong}]` is ")), "{}", error);
        prop_assert_eq!(error.lines().count(), 1, "{}", error);
    }

    /// It equals that of the stage in a chain with the same values.
    #[test]
    fn a_plateau_is_the_member_of_a_chain(
        values in prop::collection::vec(prop_oneof![-2.0..2.0_f64, Just(f64::NAN), Just(1.0)], 1..40),
        patience in 1_u64..4, cooldown in 0_u64..3, window in 1_u64..4, up in any::<bool>(), cut in 0_usize..40,
    ) {
        let mode = if up { PlateauMode::Max } else { PlateauMode::Min };
        let settings = || {
            reduce_on_plateau().patience(patience).cooldown(cooldown).accumulation_size(window).mode(mode).factor(0.5)
        };
        let optimizer = settings();
        let mut nothing = 0.0_f64;
        let mut state = optimizer.init(&nothing).unwrap();
        let mut plateau = Plateau::new(settings()).unwrap();
        for (i, value) in values.iter().enumerate() {
            optimizer.step_with(&mut nothing, &0.0, extra::value(*value), &mut state).unwrap();
            if i == cut {
                let note = plateau.note();
                plateau = Plateau::new(settings()).unwrap().resume(&note).unwrap();
            }
            prop_assert_eq!(plateau.observe(*value), state.scale.get());
        }
    }

    /// The range depends neither on the loss's unit nor, except for its end, on its sign.
    #[test]
    fn a_range_of_rates_finds_the_steepest_fall(center in 5.0..14.0_f64, scale in -6_i32..7, shift in -1.0..1.0_f64) {
        let size = 10.0_f64.powi(scale);
        let mut range = rate_range(1e-6, 1.0, 21).unwrap().smoothing(0.0);
        while let Some(rate) = range.rate() {
            let k = range.losses().count() as f64;
            let expected = 1e-6 * 10.0_f64.powf(6.0 * k / 20.0);
            prop_assert!((rate - expected).abs() < 1e-12 * expected);
            prop_assert!((range.schedule().at(k as u64) - rate).abs() < 1e-12 * rate);
            range.record(size * (shift - (k - center).tanh())).unwrap();
        }
        prop_assert_eq!(range.losses().count(), 21);
        let at = (range.proposal().unwrap() / 1e-6).log10() * 20.0 / 6.0;
        prop_assert!((at - center).abs() < 1.0, "{} and {}", at, center);
        prop_assert!(range.record(1.0).unwrap_err().to_string().contains("the test has ended"));
    }
}

#[test]
fn bounds_hold_for_every_optimizer_and_type() {
    let loss = |p: &Vec<f64>| {
        assert!(p.iter().all(|p| (-1.0..=2.0).contains(p)), "{p:?}");
        let off = [p[0] + 3.0, p[1] - 0.25, p[2] - 7.0];
        let coupled: f64 = off.iter().sum();
        (dot(&off, &off) / 2.0 + 0.05 * coupled * coupled, off.map(|o| o + 0.1 * coupled).to_vec())
    };
    let expected = [-1.0, 0.25 + 0.1 * 3.0 / 1.1, 2.0];
    fn check<T: GradientTransformation>(optimizer: T, loss: impl Fn(&Vec<f64>) -> (f64, Vec<f64>), expected: [f64; 3]) {
        let (mut p, shown) = (vec![0.0, 0.0, 5.0], format!("{optimizer:?}"));
        let report = bounded(optimizer, &mut p, &loss, -1.0, 2.0, 1e-7);
        assert!(report.converged(), "{shown}: {report}");
        assert_eq!((p[0], p[2]), (-1.0, 2.0), "{shown}");
        assert!((p[1] - expected[1]).abs() < 1e-6, "{shown}: {p:?}");
    }
    check(lbfgs(), loss, expected);
    check(lbfgs().memory_size(1), loss, expected);
    check(lbfgs().scale_init_precond(false), loss, expected);
    check(lbfgs().linesearch(scale_by_backtracking_linesearch(30)), loss, expected);
    check(flatten(lbfgs()), loss, expected);
    check(boxed(lbfgs()), loss, expected);
    check(inject_hyperparams(lbfgs()), loss, expected);
    check(masked(lbfgs(), Mask::all()), loss, expected);
    check(partition((("all", lbfgs()),), Labels::by(|_| "all")), loss, expected);
    check(chain((sgd(1.0), scale_by_backtracking_linesearch(30))), loss, expected);
    check(sgd(0.5), loss, expected);
    check(adam(exponential_decay(0.1, 100, 0.5)), loss, expected);

    // Bounds are numbers of the leaf's dtype.
    let loss = |p: &(Array2<f32>, Vec<bf16>)| {
        let (value, slope) = (Cell::new(0.0), |x: f32, c: f32| x - c);
        let of = |x: f32, c: f32| {
            value.set(value.get() + f64::from(slope(x, c)).powi(2) / 2.0);
            slope(x, c)
        };
        let a = Array2::from_shape_fn((2, 2), |(i, j)| of(p.0[[i, j]], [[-1.0, 0.05], [0.2, 0.3]][i][j]));
        let b: Vec<bf16> = p.1.iter().map(|x| bf16::from_f32(of(x.to_f32(), 0.7))).collect();
        (value.get(), (a, b))
    };
    let mut p = (Array2::<f32>::zeros((2, 2)).reversed_axes(), vec![bf16::ZERO; 2]);
    let report = bounded(lbfgs(), &mut p, loss, 0.1, 0.3, 1e-6);
    assert!(report.converged(), "{report}");
    assert_eq!(p.0, array![[0.1, 0.1], [0.2, 0.3]]);
    assert_eq!(p.1, [bf16::from_f64(0.3); 2]);
}

#[test]
fn bounds_that_do_not_fit_are_refused_before_anything_is_evaluated() {
    let start = (vec![0.0_f64, 1.0], 2.0_f64);
    fn refused(start: &(Vec<f64>, f64), set: [gradchain::projection::Operand; 2]) -> String {
        let optimizer = lbfgs();
        let (mut p, mut state) = (start.clone(), optimizer.init(start).unwrap());
        let loss = |_: &(Vec<f64>, f64)| -> (f64, (Vec<f64>, f64)) { panic!("evaluated") };
        let [lower, upper] = set;
        let error = optimizer.minimize(&mut p, loss, &mut state).bounds(lower, upper).run().unwrap_err();
        assert_eq!(p, *start);
        error.to_string()
    }
    let crossing = refused(&start, [(&(vec![0.0, 3.0], 0.0)).into(), 2.0.into()]);
    assert_eq!(
        crossing,
        "minimize: argument `upper` must be at least the lower bound of 3, and more than -infinity, found 2 for `0[1]`"
    );
    assert!(refused(&start, [f64::NAN.into(), 2.0.into()]).contains("argument `lower`"));
    assert!(refused(&start, [f64::INFINITY.into(), f64::INFINITY.into()]).contains("less than infinity"));
    assert!(refused(&start, [linear(0.0, 1.0, 3).into(), 2.0.into()]).contains("found a schedule"));
    assert!(refused(&start, [(&vec![0.0]).into(), 2.0.into()]).contains("argument `lower` does not fit"));
}

#[test]
fn a_search_within_bounds_can_fail_as_another() {
    // The loss is NaN beyond the minimum, below the bound.
    let barrier = problem("barrier");
    let mut p = vec![3.0, 3.0];
    let report = bounded(lbfgs(), &mut p, barrier, -5.0, 1.5, 1e-8);
    assert!(report.converged(), "{report}");
    assert!((p[0] - 1.0).abs() < 1e-7 && p[1] == 1.5, "{p:?}");
    // One point has converged.
    let report = bounded(lbfgs(), &mut p, barrier, 2.0, 2.0, 0.0);
    assert_eq!((report.stop, report.steps, p), (Stop::Gradient, 0, vec![2.0, 2.0]));
    // A bound does not hide an infinite gradient.
    let mut p = vec![0.0];
    let report = bounded(lbfgs(), &mut p, |_: &Vec<f64>| (0.0, vec![f64::INFINITY]), 0.0, 1.0, 1e-8);
    assert_eq!(report.stop, Stop::NotFinite);
}

const COUNTS: [f64; 9] = [18.0, 17.0, 15.0, 20.0, 10.0, 20.0, 25.0, 13.0, 12.0];

fn poisson(p: &Vec<f64>) -> (f64, Vec<f64>) {
    let (mut value, mut gradient) = (0.0, vec![0.0; 5]);
    for (i, count) in COUNTS.iter().enumerate() {
        let row = [true, i % 3 == 1, i % 3 == 2, i / 3 == 1, i / 3 == 2].map(|on| f64::from(u8::from(on)));
        let log_rate = dot(&row, p);
        value += log_rate.exp() - count * log_rate;
        gradient.iter_mut().zip(row).for_each(|(g, x)| *g += (log_rate.exp() - count) * x);
    }
    (value, gradient)
}

/// Returns the loss without its penalty.
fn logistic(w: &Vec<f64>) -> (f64, Vec<f64>) {
    let (value, gradient) = problem("logistic")(w);
    (value - 0.05 * dot(w, w), gradient.iter().zip(w).map(|(g, w)| g - 0.1 * w).collect())
}

fn linear_model(w: &Vec<f64>) -> (f64, Vec<f64>) {
    let (mut value, mut gradient) = (0.0, vec![0.0; 5]);
    for i in 0..40_i32 {
        let row: Vec<f64> = (0..5_i32).map(|j| f64::from((i * 7 + j * j * 13 + i * j) % 11 - 5) / 5.0).collect();
        let residual = dot(&row, w) - if (i * 5) % 7 < 3 { 1.0 } else { 0.0 };
        value += residual * residual;
        gradient.iter_mut().zip(row).for_each(|(g, x)| *g += 2.0 * residual * x);
    }
    (value, gradient)
}

/// `tests/data/record_standard_errors.py` recorded the numbers.
#[test]
fn standard_errors_are_those_of_statsmodels() {
    let record: Value = serde_json::from_str(include_str!("../data/standard_errors.json")).unwrap();
    for (name, loss) in [("poisson", poisson as Loss), ("logistic", logistic), ("linear", linear_model)] {
        let mut p = vec![0.1; 5];
        let report = bounded(lbfgs(), &mut p, loss, f64::NEG_INFINITY, f64::INFINITY, 1e-9);
        assert!(report.converged(), "{report}");
        let hessian = hessian(&p, loss).run().unwrap();
        assert!(hessian.asymmetry() < 1e-8 && hessian.on_bounds().is_empty());
        let mut covariance = hessian.covariance().unwrap();
        if name == "linear" {
            covariance = covariance.scaled(2.0 * report.value / 35.0);
        }
        let errors = covariance.standard_errors(&p).unwrap();
        let close = |found: &[f64], expected: &Value, size: f64| {
            for (found, expected) in found.iter().zip(numbers(expected)) {
                assert!((found - expected).abs() <= 1e-7 * size, "{name}: {found} and {expected}");
            }
        };
        close(&p, &record[name]["params"], 1.0);
        close(&errors, &record[name]["errors"], 1.0);
        for (row, expected) in
            covariance.matrix().rows().into_iter().zip(record[name]["covariance"].as_array().unwrap())
        {
            close(&row.to_vec(), expected, 1.0);
        }
        let correlation = covariance.correlation();
        assert_eq!(correlation[[2, 2]], 1.0);
        let expected = covariance.matrix()[[0, 1]] / (errors[0] * errors[1]);
        assert!((correlation[[0, 1]] - expected).abs() < 1e-12);
    }
}

/// The others' errors are those with it fixed.
#[test]
fn parameters_on_a_bound_are_left_out() {
    let lower = vec![f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, 0.1, f64::NEG_INFINITY];
    let optimizer = lbfgs();
    let mut p = vec![0.5; 5];
    let mut state = optimizer.init(&p).unwrap();
    let report = optimizer.minimize(&mut p, poisson, &mut state).bounds(&lower, f64::INFINITY).run().unwrap();
    assert!(report.converged() && p[3] == 0.1, "{report}");
    let found = hessian(&p, poisson).bounds(&lower, f64::INFINITY).run().unwrap();
    assert_eq!((found.on_bounds(), found.names().len()), (vec![String::from("(root)[3]")], 4));
    let errors = found.covariance().unwrap().standard_errors(&p).unwrap();
    assert!(errors[3].is_nan());
    let four = |q: &Vec<f64>| {
        let (value, mut gradient) = poisson(&vec![q[0], q[1], q[2], 0.1, q[3]]);
        gradient.remove(3);
        (value, gradient)
    };
    let q = vec![p[0], p[1], p[2], p[4]];
    let fixed = hessian(&q, four).run().unwrap().covariance().unwrap().standard_errors(&q).unwrap();
    for (i, j) in [(0, 0), (1, 1), (2, 2), (4, 3)] {
        assert!((errors[i] - fixed[j]).abs() < 1e-9, "{errors:?} and {fixed:?}");
    }

    // Near a bound, a symmetric step would leave the box.
    for near in [1e-9, 1e-7, 1e-3] {
        let loss = |p: &Vec<f64>| {
            assert!(p[0] >= 1.0 && p[1] <= 2.0, "{p:?}");
            (p[0].exp() + p[1].exp(), vec![p[0].exp(), p[1].exp()])
        };
        let at = vec![1.0 + near, 2.0 - near];
        let lower = vec![1.0, f64::NEG_INFINITY];
        let matrix = hessian(&at, loss).bounds(&lower, 2.0).run().unwrap().matrix().clone();
        for (i, at) in at.iter().enumerate() {
            assert!((matrix[[i, i]] / at.exp() - 1.0).abs() < 1e-8, "{near}: {matrix}");
        }
    }
    let error = hessian(&vec![3.0], |p: &Vec<f64>| (p[0], vec![1.0])).bounds(0.0, 2.0).run().unwrap_err();
    assert_eq!(error.to_string(), "hessian: argument `(root)[0]` must be within the bounds of 0 and 2, found 3");
}

fn covariance_of(loss: impl Fn(&Vec<f64>) -> (f64, Vec<f64>), at: &[f64]) -> gradchain::Result<Covariance> {
    hessian(&at.to_vec(), loss).run()?.covariance()
}

#[test]
fn unidentifiable_parameters_are_named() {
    // The third element is the sum of the others.
    for size in [1e-6, 1.0, 1e6] {
        let loss = |p: &Vec<f64>| {
            let (a, b) = ((p[0] + p[2]) / size - 1.0, (p[1] + p[2]) / size + 1.0);
            (a * a + b * b, vec![2.0 * a / size, 2.0 * b / size, 2.0 * (a + b) / size])
        };
        let error = hessian(&vec![size, -size, 0.5 * size], loss).typical_size(size).run().unwrap().covariance();
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("covariance: argument `(root)[2]` must be identifiable"), "{error}");
    }
    // A saddle, a maximum, and a parameter without effect.
    let saddle = |p: &Vec<f64>| {
        (p[0] * p[0] + 3.0 * p[0] * p[1] + p[1] * p[1], vec![2.0 * p[0] + 3.0 * p[1], 3.0 * p[0] + 2.0 * p[1]])
    };
    let error = covariance_of(saddle, &[0.0, 0.0]).unwrap_err().to_string();
    assert!(error.starts_with("covariance: argument `(root)[1]` must be identifiable"), "{error}");
    let maximum = |p: &Vec<f64>| (p[0] * p[0] - p[1] * p[1], vec![2.0 * p[0], -2.0 * p[1]]);
    let error = covariance_of(maximum, &[0.0, 0.0]).unwrap_err().to_string();
    assert!(error.contains("`(root)[1]` must be a parameter with positive curvature"), "{error}");
    let unused = |p: &Vec<f64>| (p[1] * p[1], vec![0.0, 2.0 * p[1]]);
    let error = covariance_of(unused, &[1.0, 0.0]).unwrap_err().to_string();
    assert!(error.contains("`(root)[0]` must be a parameter with positive curvature"), "{error}");
    // A wrong gradient, which is not the derivative of any function.
    let wrong = |p: &Vec<f64>| (p[0] * p[0] + p[1] * p[1], vec![2.0 * p[0] + p[1], 2.0 * p[1]]);
    let error = covariance_of(wrong, &[0.0, 0.0]).unwrap_err().to_string();
    assert!(error.contains("`check_gradient` tests the latter") && error.contains("`(root)[1]`"), "{error}");
    let error = hessian(&vec![1.0], |p: &Vec<f64>| (p[0], vec![f64::NAN])).run().unwrap_err().to_string();
    assert!(error.contains("`(root)[0]` must be a parameter with a finite gradient"), "{error}");
    let error = hessian(&vec![1.0], |p: &Vec<f64>| (p[0], vec![1.0])).typical_size(0.0).run().unwrap_err();
    assert_eq!(error.to_string(), "hessian: argument `typical_size` must be positive and finite, found 0");
}

#[test]
fn gradients_are_checked_leaf_by_leaf() {
    let at: (Array2<f32>, (f64, Vec<f64>)) = (array![[1.0, 2.0], [3.0, 4.0]], (0.5, vec![]));
    let loss = |p: &(Array2<f32>, (f64, Vec<f64>))| {
        let value = f64::from(p.0.mapv(|x| x * x).sum()) + p.1.0.exp();
        let mut gradient = p.0.mapv(|x| 2.0 * x);
        gradient[[1, 0]] = 0.0;
        (value, (gradient, (2.0 * p.1.0.exp(), Vec::<f64>::new())))
    };
    let error = check_gradient(&at, loss).run().unwrap_err().to_string();
    assert!(error.contains("`0[1, 0]`") && error.contains("`1/0`") && !error.contains("`0[0, 0]`"), "{error}");
    let error = check_gradient(&at, loss).per_leaf(1).run().unwrap_err().to_string();
    assert!(!error.contains("`0[1, 0]`") && error.contains("`1/0`"), "{error}");
    // A tolerance of 1 %.
    let rough = |p: &f64| (p * p, 2.02 * p);
    assert!(check_gradient(&3.0, rough).run().is_err());
    assert!((check_gradient(&3.0, rough).rtol(0.02).run().unwrap().largest_difference - 0.0099).abs() < 1e-4);
    let error = check_gradient(&3.0, rough).rtol(-1.0).run().unwrap_err().to_string();
    assert_eq!(error, "check_gradient: argument `rtol` must be positive and finite, found -1");
    let error = check_gradient(&3.0, |_: &f64| (f64::NAN, 1.0)).run().unwrap_err().to_string();
    assert_eq!(error, "check_gradient: argument `f` must be finite at the parameters, found NaN");
    let fails = |_: &f64| -> Result<(f64, f64), Box<dyn std::error::Error>> { Err("no data".into()) };
    assert_eq!(check_gradient(&3.0, fails).run().unwrap_err().to_string(), "no data");
    assert_eq!(hessian(&3.0, fails).run().unwrap_err().to_string(), "no data");
    assert!(Stop::Stalled.to_string().contains("check_gradient"));
}

#[test]
fn a_range_of_rates_ends_where_the_loss_diverges() {
    let run = |losses: &[f64]| {
        let mut range = rate_range(1e-3, 1.0, 10).unwrap().smoothing(0.0);
        losses.iter().take_while(|loss| range.rate().is_some() && range.record(**loss).is_ok()).count()
    };
    assert_eq!(run(&[4.0, 3.0, 2.0, 8.1, 1.0]), 4);
    assert_eq!(run(&[4.0, 3.0, 2.0, 7.9, 1.0]), 5);
    assert_eq!(run(&[-4.0, -5.0, -6.0, 11.9, -6.0]), 5);
    assert_eq!(run(&[-4.0, -5.0, -6.0, 12.1, -6.0]), 4);
    assert_eq!(run(&[4.0, f64::NAN, 1.0]), 2);
    assert_eq!(run(&[4.0, f64::INFINITY, 1.0]), 2);
    assert_eq!(run(&[1.0; 12]), 10);
    let mut range = rate_range(1e-3, 1.0, 10).unwrap();
    assert!(range.proposal().unwrap_err().to_string().contains("did not fall"));
    for loss in [1.0, 2.0, f64::NAN] {
        range.record(loss).unwrap();
    }
    assert!(range.proposal().unwrap_err().to_string().contains("did not fall with any of the rates from 1e-3 to 1e0"));
    for (lowest, highest, steps) in [(0.0, 1.0, 10), (1.0, 1.0, 10), (1.0, f64::NAN, 10), (1e-3, 1.0, 9)] {
        assert!(rate_range(lowest, highest, steps).unwrap_err().is_argument());
    }
    let mut range = rate_range(1e-3, 1.0, 10).unwrap().smoothing(1.0);
    assert!(range.record(1.0).unwrap_err().is_argument());
    // The mean is unbiased: constant losses stay constant.
    let mut range = rate_range(1e-3, 1.0, 10).unwrap();
    (0..10).for_each(|_| range.record(-3.0).unwrap());
    assert!(range.smoothed().all(|(_, loss)| (loss + 3.0).abs() < 1e-12));
}

#[test]
fn a_plateau_refuses_invalid_arguments_and_notes() {
    assert!(Plateau::new(reduce_on_plateau().factor(2.0)).unwrap_err().to_string().contains("`factor`"));
    for wrong in ["", "1 2 3", "1 0 0 0 1.0 x 0.0", "-1 0 0 0 1.0 2.0 0.0"] {
        let error = Plateau::new(reduce_on_plateau()).unwrap().resume(wrong).unwrap_err();
        assert!(error.to_string().contains("`note`"), "{error}");
    }
}
