//! Optimizers in `f64`, written from the papers as plainly as it goes, with their default hyperparameters. Each gives the
//! direction which, multiplied by the learning rate, is subtracted from the parameters.

use ndarray::ArrayD;

use super::problems::Leaves;

/// The directions of a leaf, or of all leaves in a row.
type Directions = Vec<f64>;

/// How an optimizer is written.
pub(super) enum Naive {
    /// For one element: what it remembers, the number of the step from 1, the gradient, the parameter.
    Element(fn(&mut [f64; 4], i32, f64, f64) -> f64),
    /// For one leaf: what it remembers of each element and the rest as above.
    Leaf(fn(&mut [[f64; 4]], i32, &[f64], &[f64]) -> Directions),
    /// For all leaves in a row: gradients and parameters of all steps up to this one, the last one last.
    Whole(fn(&[Vec<f64>], &[Vec<f64>]) -> Directions),
    /// By somebody else: the loss of each problem after the first steps.
    Recorded([f64; 3]),
}

/// The direction of one step, after the gradients `g` and parameters `x` of all steps so far.
pub(super) fn direction(how: &Naive, memory: &mut [Vec<[f64; 4]>], g: &[Leaves], x: &[Leaves]) -> Leaves {
    let t = i32::try_from(g.len()).expect("few steps");
    let mut out = g[g.len() - 1].clone();
    let values = |leaf: &ArrayD<f64>| leaf.iter().copied().collect::<Vec<_>>();
    let of_leaf = |leaf: usize, memory: &mut Vec<[f64; 4]>| {
        let (g, x) = (values(&g[g.len() - 1][leaf]), values(&x[x.len() - 1][leaf]));
        match how {
            Naive::Element(step) => (0..g.len()).map(|i| step(&mut memory[i], t, g[i], x[i])).collect(),
            Naive::Leaf(step) => step(memory, t, &g, &x),
            Naive::Whole(_) | Naive::Recorded(_) => Vec::new(),
        }
    };
    let in_a_row =
        |all: &[Leaves]| all.iter().map(|leaves| leaves.iter().flat_map(values).collect()).collect::<Vec<_>>();
    let directions = match how {
        Naive::Whole(step) => step(&in_a_row(g), &in_a_row(x)),
        _ => memory.iter_mut().enumerate().flat_map(|(leaf, memory)| of_leaf(leaf, memory)).collect(),
    };
    out.iter_mut().flatten().zip(directions).for_each(|(out, direction)| *out = direction);
    out
}

pub(super) fn sgd(_: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    g
}

pub(super) fn momentum([m, ..]: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + g;
    *m
}

pub(super) fn adam([m, v, ..]: &mut [f64; 4], t: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    let (mean, square) = (*m / (1.0 - 0.9_f64.powi(t)), *v / (1.0 - 0.999_f64.powi(t)));
    mean / (square.sqrt() + 1e-8)
}

pub(super) fn adamw(memory: &mut [f64; 4], t: i32, g: f64, x: f64) -> f64 {
    adam(memory, t, g, x) + 1e-4 * x
}

pub(super) fn lion([m, ..]: &mut [f64; 4], _: i32, g: f64, x: f64) -> f64 {
    let sign = (0.9 * *m + 0.1 * g).signum();
    *m = 0.99 * *m + 0.01 * g;
    sign + 1e-3 * x
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// With an `ε` of 1e-6.
pub(super) fn lamb(memory: &mut [[f64; 4]], t: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    let one = |[m, v, ..]: &mut [f64; 4], g: f64| {
        *m = 0.9 * *m + 0.1 * g;
        *v = 0.999 * *v + 0.001 * g * g;
        *m / (1.0 - 0.9_f64.powi(t)) / ((*v / (1.0 - 0.999_f64.powi(t))).sqrt() + 1e-6)
    };
    let r: Vec<f64> = memory.iter_mut().zip(g).map(|(memory, g)| one(memory, *g)).collect();
    let ratio = norm(x) / norm(&r);
    r.into_iter().map(|r| ratio * r).collect()
}

/// Without factors, which leaves of this size do not have.
pub(super) fn adafactor(memory: &mut [[f64; 4]], t: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    let keep = 1.0 - f64::from(t).powf(-0.8);
    let one = |[v, ..]: &mut [f64; 4], g: f64| {
        *v = keep * *v + (1.0 - keep) * (g * g + 1e-30);
        g / v.sqrt()
    };
    let u: Vec<f64> = memory.iter_mut().zip(g).map(|(memory, g)| one(memory, *g)).collect();
    let root = (g.len() as f64).sqrt();
    let clip = (norm(&u) / root).max(1.0);
    u.into_iter().map(|u| u / clip * (norm(x) / root).max(1e-3)).collect()
}

/// The recursion of two loops, over ten differences.
pub(super) fn lbfgs(g: &[Vec<f64>], x: &[Vec<f64>]) -> Vec<f64> {
    let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let pairs: Vec<_> = (1..g.len()).map(|k| (minus(&x[k], &x[k - 1]), minus(&g[k], &g[k - 1]))).collect();
    let recent = &pairs[pairs.len().saturating_sub(10)..];
    let mut q = g.last().expect("a step").clone();
    let mut alphas = Vec::new();
    for (s, y) in recent.iter().rev() {
        let alpha = dot(s, &q) / dot(s, y);
        q.iter_mut().zip(y).for_each(|(q, y)| *q -= alpha * y);
        alphas.push(alpha);
    }
    let scale = recent.last().map_or((1.0 / norm(&q)).min(1.0), |(s, y)| dot(s, y) / dot(y, y));
    q.iter_mut().for_each(|q| *q *= scale);
    for ((s, y), alpha) in recent.iter().zip(alphas.into_iter().rev()) {
        let beta = dot(y, &q) / dot(s, y);
        q.iter_mut().zip(s).for_each(|(q, s)| *q += (alpha - beta) * s);
    }
    q
}
