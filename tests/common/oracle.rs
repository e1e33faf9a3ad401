//! Compares optimizers with naive `f64` versions of their papers, on leaves of `f32`, of `f64` and of both.
#![allow(unreachable_pub, dead_code, missing_docs, reason = "each test program uses a part of it")]

use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::tree::DynTree;
use gradchain::{DType, GradientTransformation};
use ndarray::{ArrayD, IxDyn};

pub type Leaf = ArrayD<f64>;

/// Computes the updates of one step, counted from 1.
pub type Oracle = Box<dyn FnMut(usize, &[Leaf], &[Leaf]) -> Vec<Leaf>>;

pub const SHAPES: [&[usize]; 7] = [&[4, 3], &[5], &[], &[2, 3, 2], &[1, 4], &[3, 6], &[0]];

/// Returns different numbers, rounded to `f32`; every seventh may be zero.
pub fn wave(shape: &[usize], seed: f64, zeros: bool) -> Leaf {
    let mut i = 0.0;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        i += 1.0;
        let x = (seed * 12.9 + 1.7 * i + 0.3 * (i * i % 17.0)).sin() * (1.0 + (seed + i).cos());
        if zeros && (i + seed).rem_euclid(7.0) < 1.0 { 0.0 } else { f64::from(x as f32) }
    })
}

pub fn tree(leaves: &[Leaf], dtype: impl Fn(usize) -> DType) -> DynTree {
    let mut tree = DynTree::new();
    for (i, leaf) in leaves.iter().enumerate() {
        match dtype(i) {
            DType::F64 => tree.insert(i.to_string(), leaf.clone()),
            _ => tree.insert(i.to_string(), leaf.mapv(|x| x as f32)),
        }
    }
    tree
}

fn read(updates: &Updates, i: usize, dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F64 => updates.to_vec::<f64>(&i.to_string()).unwrap(),
        _ => updates.to_vec::<f32>(&i.to_string()).unwrap().into_iter().map(f64::from).collect(),
    }
}

/// Checks updates against an oracle.
///
/// The tolerance is relative to the leaf's largest: 1e-11 for `f64`, `single` for `f32`.
pub fn check_to<S: GradientTransformation<Needs = Nothing>>(optimizer: &S, single: f64, oracle: impl Fn() -> Oracle) {
    for mixture in 0..3 {
        let dtype =
            |i: usize| if mixture == 0 || mixture == 2 && i.is_multiple_of(2) { DType::F64 } else { DType::F32 };
        let mut oracle = oracle();
        let mut params: Vec<Leaf> =
            SHAPES.iter().enumerate().map(|(i, shape)| wave(shape, 0.1 + i as f64, false)).collect();
        let mut state = optimizer.init(&tree(&params, dtype)).unwrap();
        for step in 1..=7 {
            let grads: Vec<Leaf> =
                params.iter().enumerate().map(|(i, p)| wave(p.shape(), (step * 10 + i) as f64, true)).collect();
            let updates = optimizer.update(&tree(&grads, dtype), &mut state, &tree(&params, dtype)).unwrap();
            let expected = oracle(step, &grads, &params);
            for (i, expected) in expected.iter().enumerate() {
                let tolerance = if dtype(i) == DType::F64 && mixture == 0 { 1e-11 } else { single };
                let found = read(&updates, i, dtype(i));
                let most = expected.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
                for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                    let right = (found - expected).abs() <= tolerance * most;
                    assert!(right, "{optimizer:?}, step {step}, leaf {i}, element {k}: {found:e} is not {expected:e}");
                }
                // Both continue from the parameters after the updates.
                let found = Leaf::from_shape_vec(IxDyn(params[i].shape()), found).unwrap();
                params[i] += &found;
                if dtype(i) == DType::F32 {
                    params[i].mapv_inplace(|x| f64::from(x as f32));
                }
            }
        }
    }
}

pub fn check<S: GradientTransformation<Needs = Nothing>>(optimizer: &S, oracle: impl Fn() -> Oracle) {
    check_to(optimizer, 2e-5, oracle);
}

/// Returns an oracle from a function of one leaf.
pub fn each_leaf<M: Default + Clone + 'static>(
    f: impl Fn(&mut M, usize, &Leaf, &Leaf) -> Leaf + Clone + 'static,
) -> impl Fn() -> Oracle {
    move || {
        let (f, mut memory) = (f.clone(), vec![M::default(); SHAPES.len()]);
        Box::new(move |step, grads, params| {
            let leaves = memory.iter_mut().zip(grads.iter().zip(params));
            leaves.map(|(memory, (g, p))| f(memory, step, g, p)).collect()
        })
    }
}

pub fn each_element<M: Default + Clone + 'static>(
    f: impl Fn(&mut M, usize, f64, f64) -> f64 + Clone + 'static,
) -> impl Fn() -> Oracle {
    each_leaf(move |memory: &mut Vec<M>, step, g, p| {
        memory.resize(g.len(), M::default());
        let mut updates = g.clone();
        for (update, (memory, p)) in updates.iter_mut().zip(memory.iter_mut().zip(p)) {
            *update = f(memory, step, *update, *p);
        }
        updates
    })
}

pub fn norm(x: &Leaf) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

pub fn global_norm(x: &[Leaf]) -> f64 {
    x.iter().map(|x| norm(x).powi(2)).sum::<f64>().sqrt()
}
