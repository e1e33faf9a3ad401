//! No optimizer runs away after unusual first gradients.

use gradchain::extra;
use gradchain::prelude::*;
use gradchain::schedule::constant;
use ndarray::{ArrayD, IxDyn};

use super::optimizers::optimizers;
use super::problems::Leaves;
use super::{Member, Trial};
use crate::common::registry::is_selected;
use crate::common::trees::noise;

const SIZE: [usize; 2] = [8, 6];
/// Steps after those of the start.
const STEPS: usize = 40;
/// The allowed ratio of distances with and without a start.
const MOST: f64 = 4.0;

/// One example, with a factor of its loss.
#[derive(Clone, Copy, Debug)]
struct Batch {
    example: usize,
    times: f64,
}

fn leaf(values: Vec<f64>) -> Leaves {
    vec![ArrayD::from_shape_vec(IxDyn(&SIZE), values).expect("as many values as places")]
}

/// Returns `½‖W·x − V·x‖²` for the example's `x`: its gradient has rank one.
fn loss(params: &Leaves, batch: Batch) -> (f64, Leaves) {
    let [rows, columns] = SIZE;
    let x: Vec<f64> = (0..columns).map(|j| noise(21, batch.example, j)).collect();
    let off = |i: usize, j: usize| params[0][[i, j]] - noise(22, i, j);
    let errors: Vec<f64> = (0..rows).map(|i| (0..columns).map(|j| off(i, j) * x[j]).sum()).collect();
    let value = 0.5 * errors.iter().map(|e: &f64| e * e).sum::<f64>();
    let gradient = errors.iter().flat_map(|e| x.iter().map(move |x| batch.times * e * x)).collect();
    (batch.times * value, leaf(gradient))
}

/// Returns the largest distance from the initial point.
fn reach(optimizer: &Member, start: &[Batch]) -> f64 {
    let mut params = leaf(vec![0.0; SIZE[0] * SIZE[1]]);
    let mut state = optimizer.init(&params).unwrap();
    let examples = (0..STEPS).map(|example| Batch { example, times: 1.0 });
    let mut reach = 0.0_f64;
    for batch in start.iter().copied().chain(examples) {
        let (value, gradient) = loss(&params, batch);
        let given = extra::value_and_grad_fn(value, |params: &Leaves| loss(params, batch));
        optimizer.step_with(&mut params, &gradient, given, &mut state).unwrap();
        let length = params[0].iter().map(|x| x * x).sum::<f64>().sqrt();
        // `max` would drop a NaN.
        reach = if length <= reach { reach } else { length };
    }
    reach
}

/// Returns gradients that are zero, tiny, or all of one example.
fn starts() -> Vec<Vec<Batch>> {
    let of = |batch| (1..=3).map(move |n| vec![batch; n]);
    let [zero, tiny, same] = [0.0, 1e-30, 1.0].map(|times| Batch { example: 100, times });
    of(zero).chain(of(tiny)).chain(of(same)).collect()
}

/// Optimizers that run away, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("lbfgs", "times: 1.0", "without a line search differences of gradients of different examples pass for curvature"),
    (
        "lbfgs",
        "where it seeks",
        "without a line search differences of gradients of different examples pass for curvature",
    ),
    ("acprop", "times: 1.0", "a gradient that has grown is divided by what those before it were, as in the paper"),
];

fn faults(trial: &Trial) -> Vec<String> {
    let rate = trial.rates.into_iter().fold(f64::INFINITY, f64::min);
    let optimizer = (trial.of)(constant(rate).into());
    let plain = reach(&optimizer, &[]);
    let sought = (0..SIZE[0]).flat_map(|i| (0..SIZE[1]).map(move |j| noise(22, i, j).powi(2))).sum::<f64>().sqrt();
    let mut faults = Vec::new();
    if plain.is_nan() || plain > MOST * sought {
        faults.push(format!("{}, rate {rate}: goes {plain} far, where it seeks what is {sought} away", trial.name));
    }
    for start in starts() {
        let reach = reach(&optimizer, &start);
        if reach.is_nan() || reach > MOST * plain {
            let times = reach / plain;
            faults.push(format!("{}, rate {rate}: {times} times as far with {start:?} at the start", trial.name));
        }
    }
    faults
}

#[test]
fn no_start_makes_an_optimizer_run_away() {
    let trials = optimizers().into_iter().filter(|trial| is_selected(trial.name));
    let mut faults: Vec<_> = trials.flat_map(|trial| faults(&trial)).collect();
    for (name, part, why) in EXCEPTIONS.iter().filter(|(name, ..)| is_selected(name)) {
        let before = faults.len();
        faults.retain(|fault| !(fault.starts_with(&format!("{name},")) && fault.contains(part)));
        assert!(faults.len() < before, "{name} is no exception: {part}, {why}");
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
