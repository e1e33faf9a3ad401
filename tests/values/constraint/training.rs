//! An optimizer steps raw numbers, and constrained values stay in their sets.

use super::*;
use gradchain::tree::Structure;
use gradchain::wrapper::schedule_free;
use ndarray::Array2;

/// Returns the slope of `−heads·ln p − tails·ln(1 − p)`, whose minimum is at `heads/(heads + tails)`.
fn slope(p: f64) -> f64 {
    const HEADS: f64 = 1.0;
    const TAILS: f64 = 999.0;
    TAILS / (1.0 - p) - HEADS / p
}

const ANSWER: f64 = 0.001;
const STEPS: usize = 10_000;

/// Runs Adam on a number; `after` may change each point.
fn adam_on(mut p: f64, mut slope: impl FnMut(f64) -> f64, mut after: impl FnMut(&mut f64)) -> f64 {
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..STEPS {
        let gradient = slope(p);
        optimizer.step(&mut p, &gradient, &mut state).unwrap();
        after(&mut p);
    }
    p
}

#[test]
fn a_probability_is_fitted_and_stays_one() {
    let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64).unwrap();
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&raw).unwrap();
    for _ in 0..STEPS {
        let p = raw.constrain().unwrap();
        assert!(*p > 0.0 && *p < 1.0);
        let gradient = raw.pull_back(slope(*p)).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    let p = *raw.constrain().unwrap();
    assert!((p / ANSWER - 1.0).abs() < 1e-12, "{p:e}");

    let logit = |r: f64| 1.0 / (1.0 + (-r).exp());
    let by_hand = adam_on(0.0, |r| slope(logit(r)) * logit(r) * (1.0 - logit(r)), |_| ());
    assert!((flat(&raw)[0] - by_hand).abs() < 1e-12, "{by_hand} by hand, {:?}", raw);
    assert!((logit(by_hand) / p - 1.0).abs() < 1e-12);
}

#[test]
fn transformed_once_it_leaves_the_interval() {
    let raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64).unwrap();
    let p = adam_on(raw.constrain().unwrap().into_inner(), slope, |_| ());
    assert!(p < -1.0, "{p}: and it goes on, for beyond 0 the slope points away");
}

#[test]
fn transformed_once_it_is_stale() {
    let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64).unwrap();
    let model = raw.constrain().unwrap().into_inner();
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&raw).unwrap();
    for _ in 0..STEPS {
        let gradient = raw.pull_back(slope(model)).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    assert_eq!(model, 0.5, "what the model sees never moves");
    assert!(*raw.constrain().unwrap() < ANSWER / 100.0, "and the raw number runs away: {:?}", raw);
}

/// Clipping needs bounds within the open interval, and the answer depends on them.
#[test]
fn clipped_after_the_step_it_is_somewhere_else() {
    // The minimum is beyond the bound, so the value stays on it.
    let wide = adam_on(0.5, slope, |p| *p = p.clamp(0.01, 0.99));
    assert_eq!(wide, 0.01);
    // The first step onto the bound has slope −10⁶, which stays in the second moment for thousands of steps.
    let narrow = adam_on(0.5, slope, |p| *p = p.clamp(1e-6, 1.0 - 1e-6));
    assert!((narrow - ANSWER).abs() > 100.0 * ANSWER, "{narrow}");
    // Without momentum it jumps from bound to bound.
    let mut seen = Vec::new();
    let (optimizer, mut p) = (sgd(0.01), 0.5);
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..STEPS {
        let gradient = slope(p);
        optimizer.step(&mut p, &gradient, &mut state).unwrap();
        p = f64::clamp(p, 1e-6, 1.0 - 1e-6);
        seen.push(p);
    }
    assert!(seen.iter().all(|p| *p == 1e-6 || *p == 1.0 - 1e-6));
}

fn largest_error(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    (a - b).iter().fold(0.0_f64, |most, x| most.max(x.abs()))
}

/// Turns a frame towards `A`: `−⟨A, Q⟩`, minimal at an orthogonal `A`.
fn turned(
    optimizer: &impl GradientTransformation<Needs = gradchain::needs::Nothing>,
    target: &Array2<f64>,
) -> Array2<f64> {
    let identity = Array2::<f64>::eye(target.nrows());
    let mut raw = Constraints::new().at("", orthogonal()).unconstrain(&identity).unwrap();
    let mut state = optimizer.init(&raw).unwrap();
    for _ in 0..1000 {
        let q = raw.constrain().unwrap();
        let error = largest_error(&q.t().dot(&*q), &identity);
        assert!(error < 1e-12, "{error:e}");
        let gradient = raw.pull_back(-target).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    raw.constrain().unwrap().into_inner()
}

#[test]
fn an_orthogonal_matrix_stays_so_and_finds_another() {
    let n = 6;
    let near = Array2::from_shape_vec((n, n), wave(n * n, 0.2)).unwrap() * 0.5 + Array2::<f64>::eye(n);
    let mut target = Constraints::new().at("", orthogonal()).unconstrain(&Array2::<f64>::eye(n)).unwrap();
    put(&mut target, near.as_slice().unwrap());
    let target = target.constrain().unwrap().into_inner();
    assert!(largest_error(&target, &Array2::eye(n)) > 0.3, "there is some way to go");

    let error = largest_error(&turned(&sgd(0.1), &target), &target);
    assert!(error < 1e-12, "{error:e}");
    let error = largest_error(&turned(&adam(0.01), &target), &target);
    assert!(error < 1e-3, "{error:e}");
}

/// Fits a covariance by maximum likelihood; the answer is the samples' mean square.
#[test]
fn a_covariance_is_fitted() {
    let samples = [[1.0, 2.0], [-1.0, 0.5], [0.5, -2.0], [3.0, 1.0]];
    let mut known = Array2::zeros((2, 2));
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        known[[i, j]] = samples.iter().map(|x| x[i] * x[j]).sum::<f64>() / samples.len() as f64;
    }
    let inverse = |m: &Array2<f64>| {
        let det = m[[0, 0]] * m[[1, 1]] - m[[0, 1]] * m[[1, 0]];
        ndarray::array![[m[[1, 1]], -m[[0, 1]]], [-m[[1, 0]], m[[0, 0]]]] / det
    };
    let mut raw = Constraints::new().at("", positive_definite()).unconstrain(&Array2::<f64>::eye(2)).unwrap();
    let optimizer = adam(0.02);
    let mut state = optimizer.init(&raw).unwrap();
    for _ in 0..3000 {
        let precision = inverse(&raw.constrain().unwrap());
        // The gradient of `ln det Σ + tr(Σ⁻¹·S)`.
        let gradient = &precision - &precision.dot(&known).dot(&precision);
        let gradient = raw.pull_back(gradient).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    for (found, known) in raw.constrain().unwrap().iter().zip(&known) {
        assert!((found - known).abs() < 1e-9, "{found} is not {known}");
    }
}

#[test]
fn states_cannot_be_taken_for_each_other() {
    let mut raw = Constraints::new().at("0", positive()).unconstrain(&(1.0_f64, 2.0_f64)).unwrap();
    let optimizer = adam(0.1);
    let mut state = optimizer.init(&*raw.constrain().unwrap()).unwrap();
    let gradient = raw.pull_back((1.0, 1.0)).unwrap();
    let error = optimizer.step(&mut raw, &gradient, &mut state).unwrap_err();
    assert!(error.is_structure());
    assert!(error.to_string().contains("missing leaf 0: f64 []"), "{error}");
    let fingerprints =
        [Structure::of(&raw).unwrap(), Structure::of(&*raw.constrain().unwrap()).unwrap()].map(|s| s.fingerprint());
    assert_ne!(fingerprints[0], fingerprints[1]);
}

/// Averages of raw numbers are evaluated after the map.
#[test]
fn averages_are_of_raw_numbers() {
    let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64).unwrap();
    let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
    let mut state = optimizer.init(&raw).unwrap();
    for _ in 0..2 {
        let p = *raw.constrain().unwrap();
        let gradient = raw.pull_back(1.0 / (p * (1.0 - p))).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    // As in the example of `eval_params`: −1.75 is trained, −1.5 is evaluated.
    assert!((flat(&raw)[0] + 1.75).abs() < 1e-15);
    let eval = state.eval_params(&raw).unwrap();
    let p = *eval.constrain().unwrap();
    assert!((p - 1.0 / (1.0 + 1.5_f64.exp())).abs() < 1e-15);
}

#[test]
fn assigned_values_keep_the_state() {
    let mut raw = Constraints::new().at("", positive_exp()).unconstrain(&1.0_f64).unwrap();
    let optimizer = sgd(0.5).momentum(0.5);
    let mut state = optimizer.init(&raw).unwrap();
    let step = |raw: &mut Raw<f64>, state: &mut _| {
        let x = *raw.constrain().unwrap();
        let gradient = raw.pull_back(1.0 / x).unwrap();
        optimizer.step(raw, &gradient, state).unwrap();
        flat(raw)[0]
    };
    assert_eq!(step(&mut raw, &mut state), -0.5);
    raw.assign(&1.0).unwrap();
    // The trace is 1 + 0.5.
    assert_eq!(step(&mut raw, &mut state), -0.75);
}
