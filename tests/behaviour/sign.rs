//! Steps by sign, and sums of updates, against naive versions of their definitions.

use crate::oracle::{check, each_element};
use gradchain::optimizer::{noisy_sgd, rprop, sign_sgd, signum};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{add_noise, apply_every, scale, scale_by_rprop};

/// Returns zero for zero, unlike `f64::signum`.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

#[test]
fn sign_sgd_steps_against_the_sign() {
    check(&sign_sgd(0.3), each_element(|(): &mut (), _, g, _| -0.3 * sign(g)));
    let schedule = linear(0.3, 0.0, 5);
    let rate = |step| 0.3 * (1.0 - (step - 1) as f64 / 5.0).max(0.0);
    check(&sign_sgd(schedule), each_element(move |(): &mut (), step, g, _| -rate(step) * sign(g)));
}

#[test]
fn signum_takes_the_sign_of_the_mean() {
    for beta in [0.9, 0.3, 0.0] {
        check(
            &signum(0.1).beta(beta),
            each_element(move |m: &mut f64, _, g, _| {
                *m = beta * *m + (1.0 - beta) * g;
                -0.1 * sign(*m)
            }),
        );
    }
}

/// iRprop⁻ of Igel and Hüsken: after a change of sign the gradient is zero.
#[derive(Clone)]
struct Rprop {
    step: f64,
    last: f64,
}

impl Default for Rprop {
    fn default() -> Rprop {
        Rprop { step: f64::NAN, last: 0.0 }
    }
}

#[test]
fn rprop_is_that_of_igel_and_huesken() {
    for [start, minus, plus, least, most] in
        [[0.1, 0.5, 1.2, 1e-6, 50.0], [0.1, 0.4, 3.0, 0.06, 0.25], [0.02, 0.9, 1.9, 1e-6, 50.0]]
    {
        let optimizer = rprop(start).eta_minus(minus).eta_plus(plus).min_step_size(least).max_step_size(most);
        check(
            &optimizer,
            each_element(move |memory: &mut Rprop, step, gradient, _| {
                let mut gradient = gradient;
                if step == 1 {
                    memory.step = start;
                } else if gradient * memory.last > 0.0 {
                    memory.step = (memory.step * plus).min(most).max(least);
                } else if gradient * memory.last < 0.0 {
                    memory.step = (memory.step * minus).max(least).min(most);
                    gradient = 0.0;
                }
                memory.last = gradient;
                -sign(gradient) * memory.step
            }),
        );
    }
}

#[test]
fn rprop_goes_by_this_steps_gradient() {
    // A gradient whose product with another underflows still counts.
    let optimizer = scale_by_rprop(0.5);
    let mut state = optimizer.init(&0.0_f32).unwrap();
    for (gradient, expected) in [(1e-30_f32, 0.5), (1e-30, 0.6), (-1e-30, 0.0), (-1e-30, -0.3), (f32::INFINITY, 0.0)] {
        let update = optimizer.update(&gradient, &mut state, &0.0_f32).unwrap().to_vec::<f32>("").unwrap()[0];
        assert!((update - expected).abs() < 1e-6, "{gradient:e}: {update}");
    }
}

#[test]
fn rprop_finds_a_minimum() {
    let optimizer = rprop(0.1);
    let mut params = vec![3.0_f64, -50.0];
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..200 {
        let gradient: Vec<f64> = params.iter().zip([1e-4, 100.0]).map(|(p, h)| h * (p - 1.0)).collect();
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
    }
    assert!(params.iter().all(|p| (p - 1.0).abs() < 1e-4), "{params:?}");
}

#[test]
fn sums_are_emitted_every_k_steps() {
    for k in [1, 2, 3] {
        check(
            &chain((apply_every(k), scale(-0.1))),
            each_element(move |sum: &mut f64, step, g, _| {
                *sum += g;
                let emit = step % k as usize == 0;
                let emitted = if emit { *sum } else { 0.0 };
                *sum -= emitted;
                -0.1 * emitted
            }),
        );
    }
    assert!(apply_every(0).init(&0.0_f32).is_err());
}

#[test]
fn a_nan_stays_in_the_sum_that_it_belongs_to() {
    let optimizer = apply_every(2);
    let mut state = optimizer.init(&0.0_f32).unwrap();
    let mut emitted =
        |gradient: f32| optimizer.update(&gradient, &mut state, &0.0_f32).unwrap().to_vec::<f32>("").unwrap()[0];
    assert_eq!(emitted(f32::NAN), 0.0);
    assert!(emitted(1.0).is_nan());
    assert_eq!((emitted(1.0), emitted(2.0)), (0.0, 3.0));
}

#[test]
fn noisy_sgd_is_noise_and_a_learning_rate() {
    check(&noisy_sgd(0.2, 1).eta(0.0), each_element(|(): &mut (), _, g, _| -0.2 * g));
    let (named, chained) = (noisy_sgd(0.2, 9).gamma(1.0), chain((add_noise(0.01, 1.0, 9), sgd(0.2))));
    let (mut a, mut b) = (vec![1.0_f64; 9], vec![1.0_f64; 9]);
    let grads = a.clone();
    let (mut s, mut t) = (named.init(&a).unwrap(), chained.init(&b).unwrap());
    for _ in 0..3 {
        named.step(&mut a, &grads, &mut s).unwrap();
        chained.step(&mut b, &grads, &mut t).unwrap();
    }
    assert_eq!(a, b);
}
