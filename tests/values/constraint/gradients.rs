//! `pull_back` matches difference quotients within their own error.

use super::*;

/// Returns `Σ gᵢ·xᵢ` and the sum of magnitudes.
fn value(raw: &Raw<ArrayD<f64>>, gradient: &[f64]) -> (f64, f64) {
    let x = flat(&raw.constrain().unwrap());
    let terms = || x.iter().zip(gradient).map(|(x, g)| x * g);
    (terms().sum(), terms().map(f64::abs).sum())
}

/// Returns the derivative by raw number `k`, by Ridders' scheme, and a bound on its error.
///
/// Central quotients with decreasing steps are extrapolated to 0. The truncation error is at most the difference from
/// the two extrapolated values; the rounding error is some units in the last place of the terms, over the step. The
/// entry with the smallest sum of both is returned.
fn quotient(raw: &Raw<ArrayD<f64>>, numbers: &[f64], k: usize, gradient: &[f64]) -> (f64, f64) {
    let at = |step: f64| {
        let (mut shifted, mut moved) = (raw.clone(), numbers.to_vec());
        moved[k] += step;
        put(&mut shifted, &moved);
        value(&shifted, gradient)
    };
    let (mut best, mut allowed) = (f64::NAN, f64::INFINITY);
    let mut before: Vec<f64> = Vec::new();
    for level in 0..12 {
        let step = 2.0_f64.powi(-4 - level);
        let ((more, size), (less, _)) = (at(step), at(-step));
        // Values of matrices contain sums, so a few more units.
        let rounding = 32.0 * f64::EPSILON * size / step;
        let mut row = vec![(more - less) / (2.0 * step)];
        for (i, coarse) in before.iter().enumerate() {
            let (fine, factor) = (row[i], 4.0_f64.powi(i as i32 + 1));
            let next = (factor * fine - coarse) / (factor - 1.0);
            let error = (next - fine).abs().max((next - coarse).abs()) + rounding;
            if error < allowed {
                (best, allowed) = (next, error);
            }
            row.push(next);
        }
        before = row;
    }
    (best, allowed)
}

fn check(name: &str, raw: &mut Raw<ArrayD<f64>>, numbers: &[f64], seed: f64) {
    put(raw, numbers);
    let shape = raw.constrain().unwrap().shape().to_vec();
    let gradient = wave(shape.iter().product(), seed);
    let pulled = flat(&raw.pull_back(array(&shape, gradient.clone())).unwrap());
    assert_eq!(pulled.len(), numbers.len(), "{name}");
    let largest = pulled.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
    for (k, found) in pulled.iter().enumerate() {
        let (expected, allowed) = quotient(raw, numbers, k, &gradient);
        assert!((found - expected).abs() <= allowed, "{name}, raw {k}: {found:e} is not {expected:e} ± {allowed:e}");
        assert!(allowed <= 1e-6 * largest.max(1.0), "{name}, raw {k}: ± {allowed:e} tells nothing");
    }
}

#[test]
fn raw_gradients_are_derivatives() {
    for (name, mut raw) in cases() {
        let start = flat(&raw);
        for (round, scale) in [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0].into_iter().enumerate() {
            let move_by = wave(start.len(), 0.3 + round as f64);
            let numbers: Vec<f64> = start.iter().zip(move_by).map(|(r, w)| r + scale * w).collect();
            check(&name, &mut raw, &numbers, 2.0 + round as f64);
        }
    }
}

/// Far out, values have all digits only on the side where they are small.
#[test]
fn raw_gradients_are_derivatives_far_out() {
    let at = |constraint: &dyn Fn() -> Raw<ArrayD<f64>>, r: f64| {
        let mut raw = constraint();
        put(&mut raw, &[r]);
        let pulled = flat(&raw.pull_back(array(&[1], vec![1.0])).unwrap())[0];
        let (expected, allowed) = quotient(&raw, &[r], 0, &[1.0]);
        // The position is rounded to a unit in its last place, which an exponential magnifies.
        let allowed = allowed + 4.0 * f64::EPSILON * r.abs() * expected.abs();
        assert!((pulled - expected).abs() <= allowed, "{r}: {pulled:e} is not {expected:e} ± {allowed:e}");
        assert!(allowed <= 1e-8 * expected.abs(), "{r}: ± {allowed:e} tells nothing");
    };
    let one = |x: f64| array(&[1], vec![x]);
    for r in [-700.0, -300.0, -40.0, -10.0, 0.0] {
        at(&|| raw_of(interval(0.0, 1.0), &one(0.5)), r);
        at(&|| raw_of(interval(-1.0, 0.0), &one(-0.5)), -r);
        at(&|| raw_of(positive(), &one(0.5)), r);
        at(&|| raw_of(positive_exp(), &one(0.5)), r);
    }
    for r in [10.0, 40.0, 1000.0] {
        at(&|| raw_of(positive(), &one(0.5)), r);
    }
    at(&|| raw_of(positive_exp(), &one(0.5)), 700.0);
}

/// Scaling raw vectors and matrices keeps the set, and scales gradients inversely.
#[test]
fn raw_gradients_go_with_the_inverse_of_the_raw_size() {
    for (name, mut raw) in cases() {
        if !["unit_norm", "orthogonal"].iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        let start = flat(&raw);
        let numbers: Vec<f64> = start.iter().zip(wave(start.len(), 0.4)).map(|(r, w)| r + 0.3 * w).collect();
        let values = flat(&raw.constrain().unwrap());
        let shape = raw.constrain().unwrap().shape().to_vec();
        let gradient = array(&shape, wave(values.len(), 5.0));
        put(&mut raw, &numbers);
        let (values, pulled) = (flat(&raw.constrain().unwrap()), flat(&raw.pull_back(&gradient).unwrap()));
        for factor in [2.0_f64.powi(600), 2.0_f64.powi(-600), 2.0_f64.powi(-1000)] {
            let scaled: Vec<f64> = numbers.iter().map(|r| r * factor).collect();
            put(&mut raw, &scaled);
            assert_eq!(flat(&raw.constrain().unwrap()), values, "{name}: powers of two are exact");
            for (scaled, pulled) in flat(&raw.pull_back(&gradient).unwrap()).iter().zip(&pulled) {
                assert_eq!(*scaled, pulled / factor, "{name}");
            }
        }
    }
}
