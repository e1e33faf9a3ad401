//! Constrained parameters: properties of every map, edges, and training.

mod allocations;
mod edges;
mod gradients;
mod refusals;
mod round_trips;
mod training;
mod trees;

use gradchain::constraint::*;
use gradchain::prelude::*;
use gradchain::tree::{for_each_leaf, tree_map};
use ndarray::{ArrayD, IxDyn};

/// Returns different numbers between −1 and 1.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

fn array(shape: &[usize], values: Vec<f64>) -> ArrayD<f64> {
    ArrayD::from_shape_vec(IxDyn(shape), values).unwrap()
}

fn flat(tree: &impl Tree) -> Vec<f64> {
    let mut all = Vec::new();
    for_each_leaf(tree, |_, leaf| all.extend(leaf.to_f64()));
    all
}

fn listed(tree: &impl Tree) -> Vec<(String, Vec<f64>)> {
    let mut all = Vec::new();
    for_each_leaf(tree, |path, leaf| all.push((path.to_string(), leaf.to_f64())));
    all
}

fn put(tree: &mut impl TreeMut, values: &[f64]) {
    let mut values = values.iter();
    tree_map(tree, |_| *values.next().unwrap());
    assert_eq!(values.next(), None);
}

fn raw_of(constraint: impl Constraint, params: &ArrayD<f64>) -> Raw<ArrayD<f64>> {
    Constraints::new().at("", constraint).unconstrain(params).unwrap()
}

/// Bounds of both signs, around 0, around 1 and far away.
const INTERVALS: [(f64, f64); 11] = [
    (0.0, 1.0),
    (-1.0, 0.0),
    (0.25, 0.75),
    (-0.75, -0.25),
    (-0.1, 0.2),
    (1.5, 4.0),
    (-4.0, -1.5),
    (-30.0, 1.25),
    (1e6, 3e6),
    (1e-6, 2e-6),
    (-3e-6, -1e-6),
];

fn cases() -> Vec<(String, Raw<ArrayD<f64>>)> {
    let mut cases = Vec::new();
    let mut case = |name: &str, raw: Raw<ArrayD<f64>>| {
        let shape = raw.constrain().unwrap().shape().to_vec();
        cases.push((format!("{name} {shape:?}"), raw));
    };
    let half = |shape: &[usize]| array(shape, vec![0.5; shape.iter().product()]);
    for (lower, upper) in INTERVALS {
        let inside = |shape: &[usize]| array(shape, vec![0.4 * lower + 0.6 * upper; shape.iter().product()]);
        case(&format!("interval({lower}, {upper})"), raw_of(interval(lower, upper), &inside(&[5])));
    }
    for shape in [&[][..], &[5], &[2, 3]] {
        case("interval(-2, 3)", raw_of(interval(-2.0, 3.0), &half(shape)));
        case("positive", raw_of(positive(), &half(shape)));
        case("positive_exp", raw_of(positive_exp(), &half(shape)));
    }
    let quarter = |shape: &[usize], n: f64| array(shape, vec![1.0 / n; shape.iter().product()]);
    case("simplex", raw_of(simplex(), &quarter(&[4], 4.0)));
    case("simplex", raw_of(simplex(), &quarter(&[1], 1.0)));
    case("simplex", raw_of(simplex(), &quarter(&[2, 2, 3], 3.0)));
    case("simplex along 0", raw_of(simplex().axis(0), &quarter(&[4, 3], 4.0)));
    case("unit_norm", raw_of(unit_norm(), &quarter(&[4], 2.0)));
    case("unit_norm", raw_of(unit_norm(), &quarter(&[2, 3, 4], 2.0)));
    case("unit_norm along 1", raw_of(unit_norm().axis(1), &quarter(&[2, 4, 3], 2.0)));
    case("weight_norm", raw_of(weight_norm(), &half(&[3])));
    case("weight_norm", raw_of(weight_norm(), &half(&[3, 4])));
    case("weight_norm", raw_of(weight_norm(), &half(&[2, 3, 2])));
    case("weight_norm along 1", raw_of(weight_norm().axis(1), &half(&[2, 3, 2])));
    for shape in [&[1, 1][..], &[4, 4], &[5, 3], &[2, 6], &[2, 3, 3], &[2, 2, 3]] {
        case("orthogonal", raw_of(orthogonal(), &identities(shape)));
    }
    for shape in [&[1, 1][..], &[4, 4], &[2, 3, 3]] {
        case("symmetric", raw_of(symmetric(), &identities(shape)));
        case("positive_definite", raw_of(positive_definite(), &identities(shape)));
    }
    cases
}

fn identities(shape: &[usize]) -> ArrayD<f64> {
    let axes = shape.len();
    ArrayD::from_shape_fn(IxDyn(shape), |at| if at[axes - 1] == at[axes - 2] { 1.0 } else { 0.0 })
}
