//! Constraints at the limits of floats.

use super::*;
#[cfg(feature = "half")]
use half::{bf16, f16};
use ndarray::{Array1, Array2, ShapeBuilder};

/// Near and beyond overflow, underflow, and the rounding to 1 of exponentials.
const FAR: [f64; 15] =
    [0.0, 1e-300, -1e-300, 17.0, -17.0, 40.0, -40.0, 709.9, -709.9, -745.2, 800.0, -800.0, 1e300, -1e300, -f64::MAX];

macro_rules! far_out {
    ($T:ty, $constraint:expr, $start:expr, $inside:expr) => {
        for r in FAR {
            let mut raw = Constraints::new().at("", $constraint).unconstrain(&vec![<$T>::from_f64($start)]).unwrap();
            tree_map(&mut raw, |_| r.clamp(-3e38, 3e38));
            let x = raw.constrain().unwrap()[0];
            assert!($inside(x), "{} {r:e}: {x}", stringify!($T));
            for g in [0.0, 1.0, -1e30, 1e300, f64::MAX] {
                let pulled = flat(&raw.pull_back(vec![g]).unwrap())[0];
                assert!(pulled.is_finite() && pulled * g >= 0.0, "{} {r:e}: {pulled:e}", stringify!($T));
                assert!(g != 0.0 || pulled == 0.0, "no gradient stays none");
            }
        }
    };
}

trait FromF64 {
    fn from_f64(x: f64) -> Self;
}
impl FromF64 for f64 {
    fn from_f64(x: f64) -> f64 {
        x
    }
}
impl FromF64 for f32 {
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

#[test]
fn open_bounds_are_never_reached_and_gradients_stay_finite() {
    far_out!(f64, interval(0.0, 1.0), 0.5, |x| x > 0.0 && x < 1.0);
    far_out!(f32, interval(0.0, 1.0), 0.5, |x| x > 0.0 && x < 1.0);
    far_out!(f64, interval(-1e308, 1.7e308), 0.5, |x| x > -1e308 && x < 1.7e308);
    far_out!(f32, interval(0.1, 0.3), 0.2, |x| f64::from(x) > 0.1 && f64::from(x) < 0.3);
    for constraint in [positive(), positive_exp()] {
        far_out!(f64, constraint, 0.5, |x: f64| x > 0.0 && x.is_finite());
        far_out!(f32, constraint, 0.5, |x: f32| x > 0.0 && x.is_finite());
    }
}

#[cfg(feature = "half")]
#[test]
fn open_bounds_are_never_reached_in_16_bits() {
    far_out!(f16, interval(0.0, 1.0), 0.5, |x| x > f16::ZERO && x < f16::ONE);
    far_out!(bf16, interval(0.0, 1.0), 0.5, |x| x > bf16::ZERO && x < bf16::ONE);
    far_out!(f16, interval(1.0, 1.002), 1.001, |x| x > f16::ONE && f64::from(x) < 1.002);
    for constraint in [positive(), positive_exp()] {
        far_out!(f16, constraint, 0.5, |x: f16| x > f16::ZERO && x.is_finite());
        far_out!(bf16, constraint, 0.5, |x: bf16| x > bf16::ZERO && x.is_finite());
    }
}

/// The value is not stuck at the float nearest to the bound.
#[test]
fn a_saturated_probability_has_the_slope_of_the_sigmoid() {
    for (r, x) in [(40.0, 1.0_f64.next_down()), (-40.0, (-40.0_f64).exp())] {
        let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64).unwrap();
        put(&mut raw, &[r]);
        assert!((*raw.constrain().unwrap() / x - 1.0).abs() < 1e-15);
        let slope = flat(&raw.pull_back(1.0).unwrap())[0];
        assert!((slope / (-40.0_f64).exp() - 1.0).abs() < 1e-15, "{slope:e}");
    }
}

#[test]
fn known_values_far_out() {
    let one = |constraint: Positive, r: f64| {
        let mut raw = Constraints::new().at("", constraint).unconstrain(&1.0_f64).unwrap();
        put(&mut raw, &[r]);
        (*raw.constrain().unwrap(), flat(&raw.pull_back(1.0).unwrap())[0])
    };
    // Softplus is e^r for large negative r and r for large positive r.
    assert_eq!(one(positive(), -800.0), (5e-324, 0.0));
    assert_eq!(one(positive(), -700.0).0, (-700.0_f64).exp());
    assert_eq!(one(positive(), 800.0), (800.0, 1.0));
    assert_eq!(one(positive_exp(), 800.0), (f64::MAX, f64::MAX));
    assert_eq!(one(positive_exp(), -800.0), (5e-324, 0.0));
}

#[test]
fn a_softmax_of_far_numbers_neither_overflows_nor_vanishes() {
    let mut raw = raw_of(simplex(), &array(&[3], vec![0.25, 0.25, 0.5]));
    for (numbers, expected) in [
        ([1e308, 1e308, -1e308], [0.5, 0.5, 0.0]),
        ([-1e308, -1e308, -1e308], [1.0 / 3.0; 3]),
        ([800.0, 0.0, 800.0], [0.5, 0.0, 0.5]),
        ([f64::MAX, -f64::MAX, 0.0], [1.0, 0.0, 0.0]),
    ] {
        put(&mut raw, &numbers);
        assert_eq!(flat(&raw.constrain().unwrap()), expected);
        for g in [1.0, 1e300, f64::MAX] {
            let pulled = flat(&raw.pull_back(array(&[3], vec![g, -g, 0.0])).unwrap());
            assert!(pulled.iter().all(|g| g.is_finite()), "{pulled:?}");
        }
    }
}

#[test]
fn huge_gradients_stay_finite_and_nan_stays_nan() {
    for (name, raw) in cases() {
        let shape = raw.constrain().unwrap().shape().to_vec();
        let n = shape.iter().product();
        for size in [1e100, 1e300, f64::MAX] {
            let gradient: Vec<f64> = wave(n, 0.5).iter().map(|g| g * size).collect();
            let pulled = flat(&raw.pull_back(array(&shape, gradient)).unwrap());
            assert!(pulled.iter().all(|g| g.is_finite()), "{name}: {pulled:?}");
        }
        let pulled = flat(&raw.pull_back(array(&shape, vec![f64::NAN; n])).unwrap());
        assert!(pulled.iter().any(|g| g.is_nan()), "{name}: a gradient that is no number is seen");
    }
}

/// They saturate if they overflow `f32`.
#[test]
fn raw_gradients_saturate_in_their_own_type() {
    let raw = Constraints::new().at("", positive_exp()).unconstrain(&vec![2.0_f32]).unwrap();
    assert_eq!(flat(&raw.pull_back(vec![1e300]).unwrap()), [f64::from(f32::MAX)]);
    assert_eq!(flat(&raw.pull_back(vec![-1e300]).unwrap()), [f64::from(-f32::MAX)]);
}

#[test]
fn leaves_without_elements_are_carried() {
    let none = |shape: &[usize]| array(shape, Vec::new());
    for raw in [
        raw_of(interval(0.0, 1.0), &none(&[0])),
        raw_of(positive(), &none(&[2, 0])),
        raw_of(simplex(), &none(&[0, 3])),
        raw_of(unit_norm(), &none(&[0, 3])),
        raw_of(orthogonal(), &none(&[0, 0])),
        raw_of(orthogonal(), &none(&[0, 3, 3])),
        raw_of(positive_definite(), &none(&[0, 0])),
        raw_of(symmetric(), &none(&[2, 0, 0])),
        raw_of(weight_norm(), &none(&[0, 3])),
    ] {
        let params = raw.constrain().unwrap().into_inner();
        assert_eq!(params.len(), 0);
        assert!(flat(&raw.pull_back(params).unwrap()).is_empty());
    }
}

/// Elements are taken in logical order.
#[test]
fn layouts_do_not_matter() {
    let values: Vec<f64> = wave(12, 0.9).iter().map(|x| x.abs() / 100.0 + 0.01).collect();
    let standard = Array2::from_shape_vec((3, 4), values.clone()).unwrap();
    let mut fortran = Array2::zeros((3, 4).f());
    fortran.assign(&standard);
    assert_ne!(standard.strides(), fortran.strides());
    for constraints in [
        Constraints::new().at("", weight_norm()),
        Constraints::new().at("", weight_norm().axis(1)),
        Constraints::new().at("", interval(0.0, 1.0)),
    ] {
        let [a, b] = [&standard, &fortran].map(|params| constraints.unconstrain(params).unwrap());
        assert_eq!(listed(&a), listed(&b));
        assert_eq!(*a.constrain().unwrap(), *b.constrain().unwrap());
        assert_eq!(b.constrain().unwrap().strides(), fortran.strides());
        assert_eq!(listed(&a.pull_back(&fortran).unwrap()), listed(&b.pull_back(&standard).unwrap()));
    }

    // Every other element of an array, reversed.
    let strided = Array1::from(values).slice_move(ndarray::s![..;-2]);
    let dense = strided.to_vec();
    let constraints = Constraints::new().at("", positive());
    let (a, b) = (constraints.unconstrain(&strided).unwrap(), constraints.unconstrain(&dense).unwrap());
    assert_eq!(listed(&a), listed(&b));
    assert_eq!(a.constrain().unwrap().to_vec(), *b.constrain().unwrap());
}

/// Raw numbers and gradients are `f32`.
#[cfg(feature = "half")]
#[test]
fn sixteen_bit_leaves() {
    let half = |values: &[f64]| values.iter().map(|x| f16::from_f64(*x)).collect::<Vec<_>>();
    let raw = Constraints::new().at("", simplex()).unconstrain(&half(&[0.2, 0.3, 0.5])).unwrap();
    assert_eq!(*raw.constrain().unwrap(), half(&[0.2, 0.3, 0.5]));
    let raw = Constraints::new().at("", unit_norm()).unconstrain(&half(&[0.6, 0.8])).unwrap();
    assert_eq!(*raw.constrain().unwrap(), half(&[0.6, 0.8]));
    let structure = gradchain::tree::Structure::of(&raw).unwrap();
    assert_eq!(structure.leaves()[0].to_string(), "raw: f32 [2]");
    let gradient = raw.pull_back(half(&[1.0, 0.0])).unwrap();
    let structure = gradchain::tree::Structure::of(&gradient).unwrap();
    assert_eq!(structure.leaves()[0].to_string(), "raw: f32 [2]");

    let matrix = |values: &[f64]| Array2::from_shape_vec((2, 2), half(values)).unwrap();
    for (constraints, values) in [
        (Constraints::new().at("", symmetric()), [1.0, 2.5, 2.5, -3.0]),
        (Constraints::new().at("", positive_definite()), [4.0, 2.0, 2.0, 5.0]),
        (Constraints::new().at("", orthogonal()), [0.0, -1.0, 1.0, 0.0]),
        (Constraints::new().at("", weight_norm()), [3.0, 4.0, 0.5, -0.25]),
    ] {
        let raw = constraints.unconstrain(&matrix(&values)).unwrap();
        assert_eq!(*raw.constrain().unwrap(), matrix(&values));
    }
}

#[test]
fn nearly_symmetric_matrices_become_the_mean_of_both_triangles() {
    for sign in [1.0, -1.0] {
        let [low, middle, high] = [0.0, 2.0, 4.0].map(|steps| sign * (2.0 + steps * f64::EPSILON));
        for (a, b, mean) in [(low, high, middle), (high, low, middle), (low, low, low)] {
            let raw = Constraints::new().at("", symmetric()).unconstrain(&ndarray::array![[1.0, a], [b, 3.0]]).unwrap();
            assert_eq!(*raw.constrain().unwrap(), ndarray::array![[1.0, mean], [mean, 3.0]]);
        }
        // Half of the smallest number would be zero.
        let smallest = ndarray::array![[0.0, sign * 5e-324], [sign * 5e-324, 0.0]];
        let raw = Constraints::new().at("", symmetric()).unconstrain(&smallest).unwrap();
        assert_eq!(*raw.constrain().unwrap(), smallest);
    }
}

#[test]
fn the_raw_numbers_of_a_simplex_are_around_nought() {
    for values in [[0.25_f64, 0.25, 0.5], [0.9, 0.0625, 0.0375]] {
        let raw = flat(&Constraints::new().at("", simplex()).unconstrain(&values.to_vec()).unwrap());
        let mean = values.iter().map(|x| x.ln()).sum::<f64>() / 3.0;
        for (raw, x) in raw.iter().zip(values) {
            assert!((raw - (x.ln() - mean)).abs() < 1e-15, "{raw} for {x}");
        }
    }
}
