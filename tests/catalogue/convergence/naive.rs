//! Naive optimizers in `f64`, from the papers, with default hyperparameters.
//!
//! Most return the direction: times the learning rate, it is subtracted from the parameters.

use ndarray::ArrayD;

use super::problems::Leaves;

type Directions = Vec<f64>;

type OfLeaf = fn(&mut [[f64; 4]], i32, &[f64], &[f64]) -> Directions;
type OfAll = fn(&[Vec<f64>], &[Vec<f64>]) -> Directions;

pub(super) enum Naive {
    /// An element's state, the step from 1, the gradient, the parameter.
    Element(fn(&mut [f64; 4], i32, f64, f64) -> f64),
    /// A leaf: the state of each element, the rest as above.
    Leaf(OfLeaf),
    /// All leaves concatenated: gradients and parameters of all steps, the current one last.
    Whole(OfAll),
    /// An element, also with the step's learning rate: returns the update.
    Update(fn(&mut [f64; 4], i32, f64, f64, f64) -> f64),
    UpdateLeaf(fn(&[f64], &[f64], f64) -> Directions),
    /// Another library's losses after the first steps.
    Recorded([f64; 3]),
    Unknown,
}

/// Returns a step's updates from the gradients `g` and parameters `x` of all steps.
pub(super) fn updates(how: &Naive, rate: f64, memory: &mut [Vec<[f64; 4]>], g: &[Leaves], x: &[Leaves]) -> Leaves {
    let t = i32::try_from(g.len()).expect("few steps");
    let mut out = g[g.len() - 1].clone();
    let values = |leaf: &ArrayD<f64>| leaf.iter().copied().collect::<Vec<_>>();
    let against = |directions: Directions| directions.into_iter().map(|d| -rate * d).collect::<Vec<_>>();
    let of_leaf = |leaf: usize, memory: &mut Vec<[f64; 4]>| {
        let (g, x) = (values(&g[g.len() - 1][leaf]), values(&x[x.len() - 1][leaf]));
        let elements = memory.iter_mut().zip(g.iter().zip(&x));
        match how {
            Naive::Element(step) => against(elements.map(|(memory, (g, x))| step(memory, t, *g, *x)).collect()),
            Naive::Leaf(step) => against(step(memory, t, &g, &x)),
            Naive::Update(step) => elements.map(|(memory, (g, x))| step(memory, t, *g, *x, rate)).collect(),
            Naive::UpdateLeaf(step) => step(&g, &x, rate),
            Naive::Whole(_) | Naive::Recorded(_) | Naive::Unknown => Vec::new(),
        }
    };
    let in_a_row =
        |all: &[Leaves]| all.iter().map(|leaves| leaves.iter().flat_map(values).collect()).collect::<Vec<_>>();
    let updates = match how {
        Naive::Whole(step) => against(step(&in_a_row(g), &in_a_row(x))),
        _ => memory.iter_mut().enumerate().flat_map(|(leaf, memory)| of_leaf(leaf, memory)).collect(),
    };
    out.iter_mut().flatten().zip(updates).for_each(|(out, update)| *out = update);
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

pub(super) fn adagrad([sum, ..]: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    *sum += g * g;
    g / (0.1 + *sum + 1e-7).sqrt()
}

pub(super) fn adadelta([v, w, ..]: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    *v = 0.9 * *v + 0.1 * g * g;
    let d = (*w + 1e-6).sqrt() / (*v + 1e-6).sqrt() * g;
    *w = 0.9 * *w + 0.1 * d * d;
    d
}

pub(super) fn adamax([m, v, ..]: &mut [f64; 4], t: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    *v = (0.999 * *v).max(g.abs() + 1e-8);
    *m / (1.0 - 0.9_f64.powi(t)) / *v
}

pub(super) fn adamaxw(memory: &mut [f64; 4], t: i32, g: f64, x: f64) -> f64 {
    adamax(memory, t, g, x) + 1e-4 * x
}

pub(super) fn amsgrad([m, v, most, _]: &mut [f64; 4], t: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    *most = most.max(*v / (1.0 - 0.999_f64.powi(t)));
    *m / (1.0 - 0.9_f64.powi(t)) / (most.sqrt() + 1e-8)
}

pub(super) fn nadam([m, v, ..]: &mut [f64; 4], t: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    let ahead = 0.9 * *m / (1.0 - 0.9_f64.powi(t + 1)) + 0.1 * g / (1.0 - 0.9_f64.powi(t));
    ahead / ((*v / (1.0 - 0.999_f64.powi(t))).sqrt() + 1e-8)
}

pub(super) fn nadamw(memory: &mut [f64; 4], t: i32, g: f64, x: f64) -> f64 {
    nadam(memory, t, g, x) + 1e-4 * x
}

pub(super) fn rmsprop([v, ..]: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    *v = 0.9 * *v + 0.1 * g * g;
    g / (*v + 1e-8).sqrt()
}

pub(super) fn sign_sgd(_: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    g.signum()
}

pub(super) fn signum([m, ..]: &mut [f64; 4], _: i32, g: f64, _: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    m.signum()
}

/// Computes Rprop: a gradient that has changed sign counts as zero, also in the next step.
pub(super) fn rprop([size, last, ..]: &mut [f64; 4], t: i32, mut g: f64, _: f64, rate: f64) -> f64 {
    if t == 1 {
        *size = rate;
    } else if g * *last > 0.0 {
        *size = (*size * 1.2).min(50.0);
    } else if g * *last < 0.0 {
        *size = (*size * 0.5).max(1e-6);
        g = 0.0;
    }
    *last = g;
    if g == 0.0 { 0.0 } else { -*size * g.signum() }
}

/// Computes Adam, with every fifth step moved half way back to the previous of these.
pub(super) fn lookahead([m, v, slow, _]: &mut [f64; 4], t: i32, g: f64, x: f64, rate: f64) -> f64 {
    if t == 1 {
        *slow = x;
    }
    let mut memory = [*m, *v, 0.0, 0.0];
    let fast = x - rate * adam(&mut memory, t, g, x);
    [*m, *v] = [memory[0], memory[1]];
    if t % 5 != 0 {
        return fast - x;
    }
    *slow += 0.5 * (fast - *slow);
    *slow - x
}

/// Computes SM3: the ten-element leaf is a matrix of two rows; others have a bound per element.
pub(super) fn sm3(memory: &mut [[f64; 4]], _: i32, g: &[f64], _: &[f64]) -> Vec<f64> {
    let place = |i: usize| if g.len() == 10 { [i / 5, i % 5] } else { [i, i] };
    let one = |(i, g): (usize, &f64)| memory[place(i)[0]][0].min(memory[place(i)[1]][1]) + g * g;
    let squares: Vec<f64> = g.iter().enumerate().map(one).collect();
    for (axis, (i, v)) in squares.iter().enumerate().flat_map(|each| [(0, each), (1, each)]) {
        let bound = &mut memory[place(i)[axis]][axis];
        *bound = bound.max(*v);
    }
    let mean = |(memory, (g, v)): (&mut [f64; 4], (&f64, &f64))| {
        memory[2] = 0.9 * memory[2] + 0.1 * g / (v + 1e-8).sqrt();
        memory[2]
    };
    memory.iter_mut().zip(g.iter().zip(&squares)).map(mean).collect()
}

/// Computes GaLore of rank 1 before its first refresh; the ten-element leaf is a matrix of two rows.
pub(super) fn galore(memory: &mut [[f64; 4]], t: i32, g: &[f64], x: &[f64]) -> Vec<f64> {
    if g.len() != 10 {
        return memory.iter_mut().zip(g.iter().zip(x)).map(|(memory, (g, x))| adam(memory, t, *g, *x)).collect();
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (top, bottom) = g.split_at(5);
    if t == 1 {
        // The angle of the first eigenvector of the matrix times its transpose is known, and determines the other side.
        let angle = 0.5 * (2.0 * dot(top, bottom)).atan2(dot(top, top) - dot(bottom, bottom));
        let side: Vec<f64> = top.iter().zip(bottom).map(|(a, b)| angle.cos() * a + angle.sin() * b).collect();
        memory.iter_mut().zip(&side).for_each(|(memory, x)| memory[2] = x / norm(&side));
    }
    let side: Vec<f64> = memory[..5].iter().map(|memory| memory[2]).collect();
    let along: Vec<f64> =
        [top, bottom].iter().zip(memory).map(|(g, memory)| adam(memory, t, dot(g, &side), 0.0)).collect();
    along.iter().flat_map(|r| side.iter().map(move |p| r * p)).collect()
}

pub(super) fn madgrad([start, s, v, _]: &mut [f64; 4], t: i32, g: f64, x: f64, rate: f64) -> f64 {
    if t == 1 {
        *start = x;
    }
    let lambda = (rate + 1e-6) * f64::from(t).sqrt();
    *s += lambda * g;
    *v += lambda * g * g;
    0.1 * (*start - *s / (v.cbrt() + 1e-6) - x)
}

pub(super) fn fromage(g: &[f64], x: &[f64], rate: f64) -> Vec<f64> {
    let [gs, xs] = [g, x].map(|v| norm(v).max(1e-6));
    g.iter().zip(x).map(|(g, x)| (x - rate * xs / gs * g) / (1.0 + rate * rate).sqrt() - x).collect()
}

pub(super) fn lion([m, ..]: &mut [f64; 4], _: i32, g: f64, x: f64) -> f64 {
    let sign = (0.9 * *m + 0.1 * g).signum();
    *m = 0.99 * *m + 0.01 * g;
    sign + 1e-3 * x
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Computes LAMB with an `ε` of 1e-6.
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

/// Computes Adafactor without factors, which these leaves lack.
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

/// Computes the two-loop recursion over ten differences.
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
