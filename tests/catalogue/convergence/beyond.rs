//! Optimizers that Optax lacks, with naive versions.

use gradchain::optimizer::{
    adam_mini, cautious_adamw, cautious_lion, mars, rowwise_adagrad, shampoo, soap, stable_adamw,
};

use super::naive::Naive::{Leaf, Whole};
use super::optimizers::trial;
use super::{Trial, member};

/// Returns the trials: for each problem the initial learning rate, which fades to 0, and the allowed excess loss.
#[rustfmt::skip]
pub(super) fn optimizers() -> Vec<Trial> {
    vec![
        trial("cautious_adamw", |rate| member(cautious_adamw(rate)), [0.5, 0.2, 0.5], [1e-9, 1e-6, 1e-10],
            Leaf(cautious_adamw_naive)),
        trial("cautious_lion", |rate| member(cautious_lion(rate)), [0.003, 0.01, 0.001], [1e-9, 1e-7, 1e-14],
            Leaf(cautious_lion_naive)),
        trial("stable_adamw", |rate| member(stable_adamw(rate)), [0.02, 0.02, 0.01], [1e-14, 1e-9, 1e-14],
            Leaf(stable_adamw_naive)),
        trial("adam_mini", |rate| member(adam_mini(rate)), [0.2, 0.5, 0.2], [1e-14; 3], Leaf(adam_mini_naive)),
        trial("rowwise_adagrad", |rate| member(rowwise_adagrad(rate)), [1.0; 3], [1e-14, 0.1, 1e-14],
            Leaf(rowwise_adagrad_naive)),
        trial("mars", |rate| member(mars(rate)), [0.2, 0.1, 0.2], [1e-14; 3], Leaf(mars_naive)),
        trial("soap", |rate| member(soap(rate).max_precond_dim(2).precondition_frequency(3).weight_decay(0.0)),
            [0.01, 0.003, 0.01], [1e-12, 1e-13, 1e-14], Whole(soap_naive)),
        trial("shampoo", |rate| member(shampoo(rate).max_precond_dim(2).precondition_frequency(3)),
            [0.5, 0.5, 0.2], [1e-14, 1e-4, 1e-14], Whole(shampoo_naive)),
    ]
}

/// Returns the debiased mean.
fn unbiased(mean: f64, decay: f64, t: i32) -> f64 {
    mean / (1.0 - decay.powi(t))
}

/// Returns Adam's direction.
fn adam([m, v, ..]: &mut [f64; 4], t: i32, g: f64, [b1, b2, eps]: [f64; 3]) -> f64 {
    *m = b1 * *m + (1.0 - b1) * g;
    *v = b2 * *v + (1.0 - b2) * g * g;
    unbiased(*m, b1, t) / (unbiased(*v, b2, t).sqrt() + eps)
}

fn restrained(d: Vec<f64>, g: &[f64]) -> Vec<f64> {
    let agrees: Vec<bool> = d.iter().zip(g).map(|(d, g)| d * g > 0.0).collect();
    let factor = d.len() as f64 / (agrees.iter().filter(|agrees| **agrees).count() as f64 + 1.0);
    d.into_iter().zip(agrees).map(|(d, agrees)| if agrees { factor * d } else { 0.0 }).collect()
}

fn plus_decay(d: Vec<f64>, decay: f64, x: &[f64]) -> Vec<f64> {
    d.into_iter().zip(x).map(|(d, x)| d + decay * x).collect()
}

fn cautious_adamw_naive(memory: &mut [[f64; 4]], t: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    let d = memory.iter_mut().zip(g).map(|(memory, g)| adam(memory, t, *g, [0.9, 0.999, 1e-8])).collect();
    plus_decay(restrained(d, g), 1e-4, x)
}

fn cautious_lion_naive(memory: &mut [[f64; 4]], _: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    let one = |([m, ..], g): (&mut [f64; 4], &f64)| {
        let mix = 0.9 * *m + 0.1 * g;
        *m = 0.99 * *m + 0.01 * g;
        mix.signum()
    };
    plus_decay(restrained(memory.iter_mut().zip(g).map(one).collect(), g), 1e-3, x)
}

fn stable_adamw_naive(memory: &mut [[f64; 4]], t: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    let d = memory.iter_mut().zip(g).map(|(memory, g)| adam(memory, t, *g, [0.9, 0.99, 1e-6])).collect();
    let ratio = |([_, v, ..], g): (&[f64; 4], &f64)| g * g / unbiased(*v, 0.99, t).max(1e-12);
    let rms = (memory.iter().zip(g).map(ratio).sum::<f64>() / g.len() as f64).sqrt();
    plus_decay(d, 1e-4, x).into_iter().map(|d| d / rms.max(1.0)).collect()
}

/// Computes Adam-mini: the ten-element leaf is a matrix of two rows, with its columns as blocks.
fn adam_mini_naive(memory: &mut [[f64; 4]], t: i32, g: &[f64], _: &[f64]) -> Vec<f64> {
    let block = |i: usize| if g.len() == 10 { i % 5 } else { 0 };
    let mean = |of: usize| {
        let squares: Vec<f64> = (0..g.len()).filter(|i| block(*i) == of).map(|i| g[i] * g[i]).collect();
        squares.iter().sum::<f64>() / squares.len() as f64
    };
    let one = |(i, [m, v, ..]): (usize, &mut [f64; 4])| {
        *m = 0.9 * *m + 0.1 * g[i];
        *v = 0.999 * *v + 0.001 * mean(block(i));
        unbiased(*m, 0.9, t) / (unbiased(*v, 0.999, t).sqrt() + 1e-8)
    };
    memory.iter_mut().enumerate().map(one).collect()
}

/// Computes row-wise Adagrad: the ten-element leaf is a matrix of two rows; in others each element is a row.
fn rowwise_adagrad_naive(memory: &mut [[f64; 4]], _: i32, g: &[f64], _: &[f64]) -> Vec<f64> {
    let columns = if g.len() == 10 { 5 } else { 1 };
    for (memory, g) in memory.chunks_mut(columns).zip(g.chunks(columns)) {
        memory[0][0] += g.iter().map(|g| g * g).sum::<f64>() / columns as f64;
    }
    g.iter().enumerate().map(|(i, g)| g / (memory[i / columns * columns][0].sqrt() + 1e-8)).collect()
}

fn mars_naive(memory: &mut [[f64; 4]], t: i32, g: &[f64], _: &[f64]) -> Vec<f64> {
    let share = if t == 1 { 0.0 } else { 0.025 * 0.95 / (1.0 - 0.95) };
    let correct = |([_, _, last, _], g): (&mut [f64; 4], &f64)| g + share * (g - std::mem::replace(last, *g));
    let c: Vec<f64> = memory.iter_mut().zip(g).map(correct).collect();
    let norm = c.iter().map(|c| c * c).sum::<f64>().sqrt().max(1.0);
    memory.iter_mut().zip(c).map(|(memory, c)| adam(memory, t, c / norm, [0.95, 0.99, 1e-8])).collect()
}

/// The only leaves with factors.
type Rows = [[f64; 5]; 2];
type Square = [[f64; 2]; 2];

fn rows(g: &[f64]) -> Rows {
    [0, 1].map(|i| [0, 1, 2, 3, 4].map(|j| g[5 * i + j]))
}

fn gram(g: &Rows) -> Square {
    [0, 1].map(|i| [0, 1].map(|k| (0..5).map(|j| g[i][j] * g[k][j]).sum()))
}

fn times<const N: usize>(a: &Square, b: &[[f64; N]; 2]) -> [[f64; N]; 2] {
    [0, 1].map(|i| std::array::from_fn(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
}

fn mirrored(a: &Square) -> Square {
    [[a[0][0], a[1][0]], [a[0][1], a[1][1]]]
}

/// Returns eigenvectors as rows, the larger eigenvalue's first.
fn eigenvectors(a: &Square) -> Square {
    let (sin, cos) = (0.5 * (2.0 * a[0][1]).atan2(a[0][0] - a[1][1])).sin_cos();
    [[cos, sin], [-sin, cos]]
}

fn mixed<const N: usize>(keep: f64, a: &[[f64; N]; 2], take: f64, b: &[[f64; N]; 2]) -> [[f64; N]; 2] {
    [0, 1].map(|i| std::array::from_fn(|j| keep * a[i][j] + take * b[i][j]))
}

fn soap_naive(g: &[Vec<f64>], _: &[Vec<f64>]) -> Vec<f64> {
    if g[0].len() != 10 {
        let mut memory = vec![[0.0; 4]; g[0].len()];
        let step = |(t, g): (usize, &Vec<f64>)| -> Vec<f64> {
            let one = |(memory, g): (&mut [f64; 4], &f64)| adam(memory, t as i32 + 1, *g, [0.95, 0.95, 1e-8]);
            memory.iter_mut().zip(g).map(one).collect()
        };
        return g.iter().enumerate().map(step).last().expect("a step");
    }
    let first = rows(&g[0]);
    let mut factor = mixed(0.0, &gram(&first), 0.05, &gram(&first));
    let (mut q, mut m, mut v, mut out) = (eigenvectors(&factor), [[0.0; 5]; 2], [[0.0; 5]; 2], [[0.0; 5]; 2]);
    for (t, g) in g.iter().enumerate().skip(1) {
        let g = rows(g);
        m = mixed(0.95, &m, 0.05, &g);
        let (turned, mean) = (times(&q, &g), times(&q, &m));
        v = mixed(0.95, &v, 0.05, &turned.map(|row| row.map(|x| x * x)));
        let scaled = |i: usize, j: usize| {
            unbiased(mean[i][j], 0.95, t as i32) / (unbiased(v[i][j], 0.95, t as i32).sqrt() + 1e-8)
        };
        out = times(&mirrored(&q), &[0, 1].map(|i| std::array::from_fn(|j| scaled(i, j))));
        factor = mixed(0.95, &factor, 0.05, &gram(&g));
        if t % 3 == 0 {
            // Rows are the columns of the product.
            let mut s = q.map(|q| [0, 1].map(|i| factor[i][0] * q[0] + factor[i][1] * q[1]));
            let weight = |i: usize| q[i][0] * s[i][0] + q[i][1] * s[i][1];
            if weight(1) > weight(0) {
                s.swap(0, 1);
                v.swap(0, 1);
            }
            let length = s[0][0].hypot(s[0][1]);
            let [x, y] = s[0].map(|x| x / length);
            q = [[x, y], [-y, x]];
        }
    }
    out.concat()
}

/// Returns `(a + 1e-6)^(−1/2)`.
fn inverse_root(a: &Square) -> Square {
    let q = eigenvectors(a);
    let value = |q: [f64; 2]| (0..2).map(|i| q[i] * (a[i][0] * q[0] + a[i][1] * q[1])).sum::<f64>();
    times(&mirrored(&q), &q.map(|q| q.map(|x| x / (value(q) + 1e-6).sqrt())))
}

fn shampoo_naive(g: &[Vec<f64>], _: &[Vec<f64>]) -> Vec<f64> {
    let (mut trace, mut v) = (vec![0.0; g[0].len()], vec![0.0; g[0].len()]);
    let (mut factor, mut root) = ([[0.0; 2]; 2], [[0.0; 2]; 2]);
    for (t, g) in g.iter().enumerate() {
        v.iter_mut().zip(g).for_each(|(v, g)| *v += g * g);
        let mut d: Vec<f64> = g.iter().zip(&v).map(|(g, v)| g / (v + 1e-6).sqrt()).collect();
        if g.len() == 10 {
            factor = mixed(1.0, &factor, 1.0, &gram(&rows(g)));
            root = if t < 3 || t % 3 == 0 { inverse_root(&factor) } else { root };
            d = times(&root, &rows(g)).concat();
            if d.iter().map(|d| d * d).sum::<f64>() > 2.0 {
                root = inverse_root(&factor);
                d = times(&root, &rows(g)).concat();
            }
        }
        trace.iter_mut().zip(d).for_each(|(trace, d)| *trace = 0.9 * *trace + d);
    }
    trace
}
