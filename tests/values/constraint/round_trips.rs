//! `constrain` maps into the set, and `unconstrain` inverts it.

use super::*;
#[cfg(feature = "half")]
use half::{bf16, f16};
use ndarray::Array2;

fn points() -> Vec<(String, Raw<ArrayD<f64>>)> {
    let mut points = Vec::new();
    for (name, raw) in cases() {
        let start = flat(&raw);
        for (round, scale) in [0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0].into_iter().enumerate() {
            let mut raw = raw.clone();
            let moved: Vec<f64> =
                start.iter().zip(wave(start.len(), round as f64)).map(|(r, w)| r + scale * w).collect();
            put(&mut raw, &moved);
            points.push((format!("{name} at {scale}"), raw));
        }
    }
    points
}

#[test]
fn values_come_back() {
    for (name, mut raw) in points() {
        let values = raw.constrain().unwrap().into_inner();
        raw.assign(&values).unwrap();
        let again = raw.constrain().unwrap();
        // Cholesky factors are accurate relative to the matrix, not to each element.
        let largest = values.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        for (again, value) in again.iter().zip(&values) {
            assert!((again - value).abs() <= 16.0 * f64::EPSILON * largest, "{name}: {again:e} is not {value:e}");
        }
    }
}

#[test]
fn small_values_come_back_with_their_digits() {
    for x in [5e-324, 1e-310, 1e-300, 1e-100, 1e-10, 0.1, 0.5, 0.9, 1.0 - 1e-10, 1.0_f64.next_down()] {
        let value = array(&[], vec![x]);
        for (name, raw) in [
            ("interval", raw_of(interval(0.0, 1.0), &value)),
            ("positive", raw_of(positive(), &value)),
            ("positive_exp", raw_of(positive_exp(), &value)),
        ] {
            let (again, r) = (raw.constrain().unwrap()[[]], flat(&raw)[0]);
            // Half a unit of the raw number is a relative change of as many units of the value, plus a unit of a
            // subnormal.
            let allowed = f64::EPSILON * x * (4.0 + r.abs()) + 5e-324;
            assert!((again - x).abs() <= allowed, "{name}: {again:e} is not {x:e}");
        }
    }
    for x in [1e10, 1e100, 1e308, f64::MAX] {
        let again = raw_of(positive(), &array(&[], vec![x])).constrain().unwrap()[[]];
        assert_eq!(again, x);
        let again = raw_of(positive_exp(), &array(&[], vec![x])).constrain().unwrap()[[]];
        assert!((again / x - 1.0).abs() <= 712.0 * f64::EPSILON, "{again:e} is not {x:e}");
    }
}

/// Raw numbers of 16-bit leaves are `f32`.
#[cfg(feature = "half")]
#[test]
fn every_16_bit_value_comes_back() {
    let all: Vec<f16> = (1..0x7c00).map(f16::from_bits).collect();
    let unit: Vec<f16> = all.iter().copied().filter(|x| *x < f16::ONE).collect();
    for constraint in [positive(), positive_exp()] {
        let raw = Constraints::new().at("", constraint).unconstrain(&all).unwrap();
        assert_eq!(*raw.constrain().unwrap(), all);
    }
    let raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&unit).unwrap();
    assert_eq!(*raw.constrain().unwrap(), unit);

    let all: Vec<bf16> = (1..0x7f80).map(bf16::from_bits).collect();
    let unit: Vec<bf16> = all.iter().copied().filter(|x| *x < bf16::ONE).collect();
    for constraint in [positive(), positive_exp()] {
        let raw = Constraints::new().at("", constraint).unconstrain(&all).unwrap();
        assert_eq!(*raw.constrain().unwrap(), all);
    }
    let raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&unit).unwrap();
    assert_eq!(*raw.constrain().unwrap(), unit);
}

#[test]
fn single_precision_values_come_back() {
    let values: Vec<f32> = wave(200, 0.1).iter().map(|x| (20.0 * x).exp() as f32).collect();
    for constraint in [positive(), positive_exp()] {
        let raw = Constraints::new().at("", constraint).unconstrain(&values).unwrap();
        for (again, x) in raw.constrain().unwrap().iter().zip(&values) {
            assert!((again - x).abs() <= f32::EPSILON * x * (2.0 + x.ln().abs()), "{again:e} is not {x:e}");
        }
    }
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn inside(name: &str, x: &ArrayD<f64>) {
    let unit = 8.0 * f64::EPSILON;
    let axis =
        if name.contains("along") { name.split("along ").nth(1).unwrap()[..1].parse().unwrap() } else { x.ndim() - 1 };
    let lanes = || x.lanes(ndarray::Axis(axis)).into_iter();
    let matrices = || {
        let [.., rows, cols] = *x.shape() else { panic!("{name}") };
        let all: Vec<f64> = x.iter().copied().collect();
        all.chunks(rows * cols).map(|m| Array2::from_shape_vec((rows, cols), m.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    match name.split([' ', '(']).next().unwrap() {
        "interval" => {
            let bounds = name.split(['(', ')']).nth(1).unwrap().split_once(", ").unwrap();
            let (lower, upper): (f64, f64) = (bounds.0.parse().unwrap(), bounds.1.parse().unwrap());
            assert!(x.iter().all(|x| *x > lower && *x < upper), "{name}");
        }
        "positive" | "positive_exp" => assert!(x.iter().all(|x| *x > 0.0 && x.is_finite()), "{name}"),
        "simplex" => lanes().for_each(|lane| {
            assert!(lane.iter().all(|x| *x >= 0.0) && (lane.sum() - 1.0).abs() <= unit, "{name}");
        }),
        "unit_norm" => lanes().for_each(|lane| {
            assert!((lane.dot(&lane).sqrt() - 1.0).abs() <= unit, "{name}: {lane}");
        }),
        "orthogonal" => matrices().into_iter().for_each(|m| {
            let gram = if m.nrows() >= m.ncols() { m.t().dot(&m) } else { m.dot(&m.t()) };
            let error = (&gram - &Array2::<f64>::eye(gram.nrows())).iter().fold(0.0_f64, |most, x| most.max(x.abs()));
            assert!(error <= unit, "{name}: {error:e}");
        }),
        "symmetric" => matrices().into_iter().for_each(|m| assert_eq!(m, m.t(), "{name}")),
        "positive_definite" => matrices().into_iter().for_each(|m| {
            assert_eq!(m, m.t(), "{name}");
            for seed in 0..20 {
                let v = wave(m.nrows(), 0.5 + f64::from(seed));
                let mv: Vec<f64> = m.rows().into_iter().map(|row| product(row.as_slice().unwrap(), &v)).collect();
                assert!(product(&v, &mv) > 0.0, "{name}");
            }
        }),
        "weight_norm" => {}
        kind => panic!("{kind}"),
    }
}

#[test]
fn constrained_values_are_in_the_set() {
    for (name, raw) in points() {
        if name.contains("[]") {
            let x = raw.constrain().unwrap()[[]];
            inside(&name, &array(&[1], vec![x]));
        } else {
            inside(&name, &raw.constrain().unwrap());
        }
    }
}

#[test]
fn weight_norm_lengths_are_those_of_the_rows() {
    let mut raw = raw_of(weight_norm(), &array(&[2, 2], vec![3.0, 4.0, 0.0, -2.0]));
    put(&mut raw, &[10.0, -1.0, 3.0, 4.0, 0.0, -7.0]);
    let found = raw.constrain().unwrap();
    for (found, expected) in found.iter().zip([6.0, 8.0, 0.0, 1.0]) {
        assert!((found - expected).abs() <= 1e-15 * 8.0, "{found} is not {expected}");
    }
}

/// Gram-Schmidt keeps the successive spans.
#[test]
fn orthonormal_vectors_keep_the_spans_of_their_raw_vectors() {
    for shape in [[5, 3], [3, 5], [4, 4], [7, 1], [1, 6]] {
        let mut raw = raw_of(orthogonal(), &identities(&shape));
        let numbers: Vec<f64> = wave(shape[0] * shape[1], 0.7);
        put(&mut raw, &numbers);
        let matrix = |values: Vec<f64>| {
            let matrix = Array2::from_shape_vec((shape[0], shape[1]), values).unwrap();
            if shape[0] >= shape[1] { matrix } else { matrix.reversed_axes() }
        };
        let (raw_vectors, basis) = (matrix(numbers), matrix(flat(&raw.constrain().unwrap())));
        let coordinates = basis.t().dot(&raw_vectors);
        let again = basis.dot(&coordinates);
        again.iter().zip(&raw_vectors).for_each(|(x, y)| assert!((x - y).abs() <= 1e-14, "{shape:?}: {x} is not {y}"));
        for ((i, k), x) in coordinates.indexed_iter() {
            assert!(i <= k || x.abs() <= 1e-14, "{shape:?}: vector {k} of {i}: {x}");
            assert!(i != k || *x > 0.0, "{shape:?}: vector {k} points the other way");
        }
    }
}
