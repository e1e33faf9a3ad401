//! Optimizers that Optax lacks, against naive versions of the papers.

use crate::oracle::{Leaf, Oracle, SHAPES, check, check_to, each_leaf, global_norm, norm};
use gradchain::optimizer::{adam_mini, cautious_adamw, cautious_lion, mars, shampoo, sign_sgd, soap, stable_adamw};
use gradchain::prelude::*;
use gradchain::transform::{
    Block, Blocks, LionMode, WeightDimensionNumbers, identity, scale_by_lion, scale_by_shampoo,
};
use gradchain::wrapper::{cautious, graft};
use ndarray::{Array2, array};

/// Drops components that disagree with the gradient: equation 5 of Liang and others.
fn restrained(g: &Leaf, mut d: Leaf, xi: f64) -> Leaf {
    let n = d.len() as f64;
    d.iter_mut().zip(g).filter(|(d, g)| **d * **g <= 0.0).for_each(|(d, _)| *d = 0.0);
    let agreeing = d.iter().filter(|d| **d != 0.0).count() as f64;
    d * (n / (agreeing + xi))
}

/// Returns Adam's direction.
fn adam_direction((m, v): (&mut Leaf, &mut Leaf), t: usize, g: &Leaf, [b1, b2, eps]: [f64; 3]) -> Leaf {
    let t = t as i32;
    *m = &*m * b1 + &(g * (1.0 - b1));
    *v = &*v * b2 + &(g * g * (1.0 - b2));
    (&*m / (1.0 - b1.powi(t))) / ((&*v / (1.0 - b2.powi(t))).mapv(f64::sqrt) + eps)
}

type Moments = Option<(Leaf, Leaf)>;

fn moments<'a>(memory: &'a mut Moments, g: &Leaf) -> (&'a mut Leaf, &'a mut Leaf) {
    let (m, v) = memory.get_or_insert_with(|| (g * 0.0, g * 0.0));
    (m, v)
}

/// Algorithm 2 of Liang and others.
#[test]
fn cautious_adamw_is_algorithm_2() {
    for (b1, b2, eps, decay, xi) in
        [(0.9, 0.999, 1e-8, 1e-4, 1.0), (0.5, 0.9, 1e-3, 0.1, 0.25), (0.95, 0.5, 0.1, 0.0, 4.0)]
    {
        let optimizer = cautious_adamw(0.1).b1(b1).b2(b2).eps(eps).weight_decay(decay).xi(xi);
        check(
            &optimizer,
            each_leaf(move |memory: &mut Moments, t, g, w| {
                let d = adam_direction(moments(memory, g), t, g, [b1, b2, eps]);
                (restrained(g, d, xi) + w * decay) * -0.1
            }),
        );
    }
}

#[test]
fn cautious_lion_masks_updates_against_the_gradient() {
    for (b1, b2, decay, xi) in [(0.9, 0.99, 1e-3, 1.0), (0.99, 0.5, 0.1, 0.5)] {
        let optimizer = cautious_lion(0.1).b1(b1).b2(b2).weight_decay(decay).xi(xi);
        check(
            &optimizer,
            each_leaf(move |m: &mut Option<Leaf>, _, g, w| {
                let m = m.get_or_insert_with(|| g * 0.0);
                let d = (&*m * b1 + &(g * (1.0 - b1))).mapv(f64::signum);
                *m = &*m * b2 + &(g * (1.0 - b2));
                (restrained(g, d, xi) + w * decay) * -0.1
            }),
        );
    }
}

#[test]
fn any_optimizer_can_be_cautious() {
    fn oracle(clip: f64, after: bool) -> impl Fn() -> Oracle {
        move || {
            let mut memory: Vec<Option<Leaf>> = vec![None; SHAPES.len()];
            let clipped = move |leaves: Vec<Leaf>| {
                let factor = (clip / global_norm(&leaves)).min(1.0);
                leaves.into_iter().map(|leaf| leaf * factor).collect::<Vec<_>>()
            };
            Box::new(move |_, grads, _| {
                let into = if after { grads.to_vec() } else { clipped(grads.to_vec()) };
                let mean = |(m, g): (&mut Option<Leaf>, Leaf)| {
                    let m = m.get_or_insert_with(|| &g * 0.0);
                    *m = &*m * 0.9 + &g;
                    &*m * 0.1
                };
                let steps: Vec<Leaf> = memory.iter_mut().zip(into).map(mean).collect();
                let steps = if after { clipped(steps) } else { steps };
                grads.iter().zip(steps).map(|(g, d)| -restrained(g, d, 1.0)).collect()
            })
        }
    }
    let momentum = || sgd(0.1).momentum(0.9);
    check(&cautious(momentum()), oracle(f64::INFINITY, false));
    check(&cautious(boxed(momentum())), oracle(f64::INFINITY, false));
    check(&cautious(chain((clip_by_global_norm(0.5), momentum()))), oracle(0.5, false));
    check(&cautious(chain((momentum(), clip_by_global_norm(0.5)))), oracle(0.5, true));
    check(&cautious(boxed(chain((momentum(), clip_by_global_norm(0.5))))), oracle(0.5, true));
    check(&chain((identity(), cautious(chain((momentum(), clip_by_global_norm(0.5)))))), oracle(0.5, true));
    // Lion's smooth mode is not fused.
    let lion = scale_by_lion().mode(LionMode::Smooth).b1(0.99).b2(0.5).smooth_beta(0.7);
    check(
        &cautious(lion).against_gradient(false),
        each_leaf(|m: &mut Option<Leaf>, _, g, _| {
            let m = m.get_or_insert_with(|| g * 0.0);
            let d = (&*m * 0.99 + &(g * (1.0 - 0.99))).mapv(|x| (0.7 * x).tanh());
            *m = &*m * 0.5 + &(g * 0.5);
            restrained(g, d, 1.0)
        }),
    );
}

#[test]
fn cautious_refuses_updates_of_the_wrong_sign() {
    let params = vec![0.0_f32];
    let error = cautious(scale_by_adam()).init(&params).unwrap_err().to_string();
    assert!(error.contains("against_gradient(false)"), "{error}");
    let error = cautious(adam(0.1)).against_gradient(false).init(&params).unwrap_err().to_string();
    assert!(error.contains("against_gradient(true)"), "{error}");
    assert!(cautious(adam(0.1)).xi(0.0).init(&params).is_err());
    let optimizer = cautious(sgd(1.0).momentum(0.9));
    let updates = optimizer.update(&vec![f32::NAN], &mut optimizer.init(&params).unwrap(), &params).unwrap();
    assert!(updates.to_vec::<f32>("").unwrap()[0].is_nan());
}

/// Algorithm 2 of Wortsman and others, with their debiased decays.
#[test]
fn stable_adamw_is_algorithm_2() {
    for (b1, b2, eps, decay) in [(0.9, 0.99, 1e-6, 1e-4), (0.5, 0.999, 1e-3, 0.3), (0.0, 0.5, 0.5, 0.0)] {
        let optimizer = stable_adamw(0.1).b1(b1).b2(b2).eps(eps).weight_decay(decay);
        check(
            &optimizer,
            each_leaf(move |memory: &mut Moments, t, g, w| {
                let debiased = |b: f64| b * (1.0 - b.powi(t as i32 - 1)) / (1.0 - b.powi(t as i32));
                let ((v, u), [b1, b2]) = (moments(memory, g), [b1, b2].map(debiased));
                *v = &*v * b1 + &(g * (1.0 - b1));
                *u = &*u * b2 + &(g * g * (1.0 - b2));
                let ratio = g * g / u.mapv(|u| u.max(eps * eps));
                let rms = (ratio.sum() / ratio.len() as f64).sqrt();
                let rate = 0.1 / rms.max(1.0);
                (w * decay + &*v / (u.mapv(f64::sqrt) + eps)) * -rate
            }),
        );
    }
}

#[test]
fn stable_adamw_decays_where_its_mask_says() {
    let optimizer = stable_adamw(0.1).weight_decay(0.5).mask(Mask::path("1"));
    let mut params = (2.0_f32, 2.0_f32);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(0.0_f32, 0.0_f32), &mut state).unwrap();
    assert_eq!(params, (2.0, 1.9));
}

/// Algorithm 1 of Zhang and others; `block` maps an index to its block.
fn mini(block: fn(usize, &[usize]) -> usize, [b1, b2, eps, decay]: [f64; 4]) -> impl Fn() -> Oracle {
    move || {
        let mut memory = vec![(Vec::new(), vec![0.0; 6]); SHAPES.len()];
        Box::new(move |t, grads, params| {
            let one = |(leaf, (m, v)): (usize, &mut (Vec<f64>, Vec<f64>))| {
                let (g, w) = (&grads[leaf], &params[leaf]);
                m.resize(g.len(), 0.0);
                let blocks: Vec<usize> =
                    g.indexed_iter().map(|(place, _)| block(leaf, ndarray::Dimension::slice(&place))).collect();
                for (number, v) in v.iter_mut().enumerate() {
                    let squares: Vec<f64> =
                        g.iter().zip(&blocks).filter(|(_, b)| **b == number).map(|(g, _)| g * g).collect();
                    if !squares.is_empty() {
                        *v = b2 * *v + (1.0 - b2) * squares.iter().sum::<f64>() / squares.len() as f64;
                    }
                }
                let mut u = g.clone();
                for (((u, w), m), b) in u.iter_mut().zip(w).zip(m).zip(&blocks) {
                    *m = b1 * *m + (1.0 - b1) * *u;
                    let [mean, square] = [(*m, b1), (v[*b], b2)].map(|(x, b)| x / (1.0 - b.powi(t as i32)));
                    *u = -0.1 * (mean / (square.sqrt() + eps) + decay * w);
                }
                u
            };
            memory.iter_mut().enumerate().map(one).collect()
        })
    }
}

#[test]
fn adam_mini_is_algorithm_1() {
    for [b1, b2, eps, decay] in [[0.9, 0.999, 1e-8, 0.0], [0.5, 0.9, 1e-2, 0.1]] {
        let optimizer = || adam_mini(0.1).b1(b1).b2(b2).eps(eps).weight_decay(decay);
        // A layer's outputs.
        let outputs = |_, place: &[usize]| if place.len() < 2 { 0 } else { place[place.len() - 1] };
        check(&optimizer(), mini(outputs, [b1, b2, eps, decay]));
        let blocks = Blocks::tree([
            ("0", Block::Axis(0)),
            ("1", Block::Axis(-1)),
            ("3", Block::Axis(1)),
            ("4", Block::Leaf),
            ("5", Block::Groups { axis: 1, groups: 2 }),
            ("6", Block::Groups { axis: 0, groups: 3 }),
        ]);
        let said = |leaf: usize, place: &[usize]| match leaf {
            0 | 1 => place[0],
            3 => place[1],
            5 => place[1] / 3,
            _ => 0,
        };
        check(&optimizer().blocks(blocks), mini(said, [b1, b2, eps, decay]));
    }
}

#[test]
fn blocks_go_by_axes_in_any_memory_order() {
    use ndarray::ShapeBuilder;
    let g = ndarray::Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (1 + i + 5 * j * j + 7 * k) as f64);
    for axis in 0..3 {
        let optimizer = adam_mini(1.0).blocks(Blocks::tree([("", Block::Axis(axis))]));
        let step = |order: bool| {
            let mut params = ndarray::Array3::<f64>::zeros((2, 3, 4).set_f(order));
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &g, &mut state).unwrap();
            params
        };
        let [a, b] = [false, true].map(step);
        a.iter().zip(&b).for_each(|(a, b)| approx::assert_relative_eq!(a, b, max_relative = 1e-14));
    }
    let params = vec![0.0_f32; 5];
    for wrong in
        [Block::Axis(1), Block::Axis(-2), Block::Groups { axis: 0, groups: 2 }, Block::Groups { axis: 0, groups: 0 }]
    {
        assert!(adam_mini(1.0).blocks(Blocks::tree([("", wrong)])).init(&params).is_err(), "{wrong:?}");
    }
    assert!(adam_mini(1.0).blocks(Blocks::tree([("x", Block::Leaf)])).init(&params).is_err());
}

/// Algorithm 2 of Yuan and others, with the last gradient in place of the one at the last point.
#[test]
fn mars_is_algorithm_2() {
    for (b1, b2, eps, gamma, most, decay) in
        [(0.95, 0.99, 1e-8, 0.025, 1.0, 0.0), (0.5, 0.9, 1e-2, 0.7, 2.5, 0.1), (0.9, 0.95, 1e-3, 0.0, 1e9, 0.0)]
    {
        let optimizer = mars(0.1).b1(b1).b2(b2).eps(eps).gamma(gamma).max_norm(most).weight_decay(decay);
        check(
            &optimizer,
            each_leaf(move |memory: &mut (Option<Leaf>, Moments), t, g, w| {
                let (last, memory) = memory;
                let last = last.replace(g.clone()).unwrap_or_else(|| g.clone());
                let c = g + &((g - &last) * (gamma * b1 / (1.0 - b1)));
                let c = &c * (most / norm(&c)).min(1.0);
                let d = adam_direction(moments(memory, &c), t, &c, [b1, b2, eps]);
                (d + w * decay) * -0.1
            }),
        );
    }
    // Its first decay has two uses; setting it changes both.
    let (injected, plain) = (inject_hyperparams(mars(0.1)), mars(0.1).b1(0.5));
    let params = vec![1.0_f64, 2.0];
    let mut states = (injected.init(&params).unwrap(), plain.init(&params).unwrap());
    states.0.hyperparams_mut().set("b1", 0.5).unwrap();
    for step in 0..3 {
        let grads = vec![0.3 - 0.4 * f64::from(step), 0.1];
        let [a, b] = [
            injected.update(&grads, &mut states.0, &params).unwrap(),
            plain.update(&grads, &mut states.1, &params).unwrap(),
        ];
        assert_eq!(a.to_vec::<f64>(""), b.to_vec::<f64>(""));
    }
}

mod matrix {
    pub(crate) use ndarray::Array2 as Matrix;

    pub(crate) type M = Matrix<f64>;

    pub(crate) fn of(x: &super::Leaf) -> M {
        x.clone().into_dimensionality().unwrap()
    }

    /// Returns eigenvalues in decreasing order, and eigenvectors as columns, by Jacobi rotations.
    pub(crate) fn eigen(a: &M) -> (Vec<f64>, M) {
        let (n, mut a, mut q) = (a.nrows(), a.clone(), M::eye(a.nrows()));
        for _ in 0..2000 {
            let places = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
            let Some((i, j)) = places.max_by(|x, y| a[*x].abs().total_cmp(&a[*y].abs())) else { break };
            if a[[i, j]] == 0.0 {
                break;
            }
            let angle = 0.5 * (2.0 * a[[i, j]]).atan2(a[[i, i]] - a[[j, j]]);
            let mut turn = M::eye(n);
            turn[[i, i]] = angle.cos();
            turn[[j, j]] = angle.cos();
            turn[[i, j]] = -angle.sin();
            turn[[j, i]] = angle.sin();
            a = turn.t().dot(&a).dot(&turn);
            q = q.dot(&turn);
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|x, y| a[[*y, *y]].total_cmp(&a[[*x, *x]]));
        (order.iter().map(|i| a[[*i, *i]]).collect(), columns(&q, &order))
    }

    pub(crate) fn columns(q: &M, order: &[usize]) -> M {
        M::from_shape_fn((q.nrows(), order.len()), |(i, j)| q[[i, order[j]]])
    }

    /// Returns the `Q` of `QR`, by two Gram-Schmidt passes.
    pub(crate) fn orthogonal(s: &M) -> M {
        let mut q = s.clone();
        for _ in 0..2 {
            for j in 0..q.ncols() {
                for k in 0..j {
                    let along = q.column(k).dot(&q.column(j));
                    let other = q.column(k).to_owned();
                    q.column_mut(j).scaled_add(-along, &other);
                }
                let length = q.column(j).dot(&q.column(j)).sqrt();
                q.column_mut(j).mapv_inplace(|x| x / length);
            }
        }
        q
    }

    /// Returns `(a + ridge)^power`.
    pub(crate) fn power(a: &M, ridge: f64, power: f64) -> M {
        let (values, q) = eigen(a);
        let scaled = M::from_shape_fn(q.dim(), |(i, j)| q[[i, j]] * (values[j].max(0.0) + ridge).powf(power));
        scaled.dot(&q.t())
    }
}
use matrix::M;

#[derive(Clone)]
struct Soaped {
    m: M,
    v: M,
    sides: [Option<Side>; 2],
}

#[derive(Clone)]
struct Side {
    factor: M,
    basis: M,
}

#[derive(Clone, Copy)]
struct Soap {
    b1: f64,
    b2: f64,
    beta: f64,
    eps: f64,
    frequency: usize,
    most: usize,
    decay: f64,
}

/// Computes algorithms 3 and 4 of Vyas and others, with their code's first step and column order.
fn soap_direction(memory: &mut Option<Soaped>, t: usize, g: &M, a: Soap) -> M {
    let grams = [g.dot(&g.t()), g.t().dot(g)];
    if t == 1 {
        let side = |gram: &M| {
            let factor = gram * (1.0 - a.beta);
            (factor.nrows() <= a.most).then(|| Side { basis: matrix::eigen(&factor).1, factor })
        };
        *memory = Some(Soaped { m: g * 0.0, v: g * 0.0, sides: [side(&grams[0]), side(&grams[1])] });
        return g * 0.0;
    }
    let Soaped { m, v, sides } = memory.as_mut().unwrap();
    let steps = t as i32 - 1;
    let basis = |side: &Option<Side>, n: usize| side.as_ref().map_or(M::eye(n), |side| side.basis.clone());
    let [left, right] = [basis(&sides[0], g.nrows()), basis(&sides[1], g.ncols())];
    let turned = |x: &M| left.t().dot(x).dot(&right);
    *m = &*m * a.b1 + &(g * (1.0 - a.b1));
    let inside = turned(g);
    *v = &*v * a.b2 + &(&inside * &inside * (1.0 - a.b2));
    let [mean, square] = [turned(m) / (1.0 - a.b1.powi(steps)), &*v / (1.0 - a.b2.powi(steps))];
    let direction = left.dot(&(mean / (square.mapv(f64::sqrt) + a.eps))).dot(&right.t());
    for (number, (side, gram)) in sides.iter_mut().zip(&grams).enumerate() {
        let Some(Side { factor, basis }) = side else { continue };
        *factor = &*factor * a.beta + &(gram * (1.0 - a.beta));
        if (steps as usize).is_multiple_of(a.frequency) {
            let product = factor.dot(&*basis);
            let mut order: Vec<usize> = (0..basis.ncols()).collect();
            let weight = |j: usize| basis.column(j).dot(&product.column(j));
            order.sort_by(|x, y| weight(*y).total_cmp(&weight(*x)));
            *basis = matrix::orthogonal(&matrix::columns(&product, &order));
            *v = if number == 0 {
                matrix::columns(&v.t().to_owned(), &order).t().to_owned()
            } else {
                matrix::columns(v, &order)
            };
        }
    }
    direction
}

/// Leaves have states that the gradients determine.
///
/// If a side's first gradient leaves out more than one dimension, the basis of the rest is arbitrary.
#[test]
fn soap_is_algorithm_3() {
    let usual = Soap { b1: 0.95, b2: 0.95, beta: 0.95, eps: 1e-3, frequency: 10, most: 5, decay: 0.01 };
    for a in [
        usual,
        Soap { frequency: 1, ..usual },
        Soap { b1: 0.5, b2: 0.8, beta: 0.6, eps: 0.1, frequency: 2, most: 4, decay: 0.0 },
        Soap { frequency: 2, most: 3, ..usual },
    ] {
        let optimizer = soap(0.1).b1(a.b1).b2(a.b2).eps(a.eps).weight_decay(a.decay).max_precond_dim(a.most);
        let optimizer = optimizer.shampoo_beta((a.beta != a.b2).then_some(a.beta));
        let optimizer = optimizer
            .precondition_frequency(a.frequency as u64)
            .weight_dimension_numbers(WeightDimensionNumbers::tree([("4", None)]));
        let oracle = move || -> Oracle {
            let mut memory: Vec<(Option<Soaped>, Moments)> = vec![(None, None); SHAPES.len()];
            Box::new(move |t, grads, params| {
                let one = |(leaf, (soaped, adam)): (usize, &mut (Option<Soaped>, Moments))| {
                    let (g, w) = (&grads[leaf], &params[leaf]);
                    let direction = if g.ndim() == 2 && leaf != 4 {
                        soap_direction(soaped, t, &matrix::of(g), a).into_dyn()
                    } else {
                        adam_direction(moments(adam, g), t, g, [a.b1, a.b2, a.eps])
                    };
                    (direction + w * a.decay) * -0.1
                };
                memory.iter_mut().enumerate().map(one).collect()
            })
        };
        check_to(&optimizer, 2e-4, oracle);
    }
}

/// The direction is unknown to the roots.
#[test]
fn shampoo_keeps_its_step_where_a_gradient_has_a_new_direction() {
    // With young roots, and later.
    for before in [1, 14] {
        let optimizer = shampoo(0.01).momentum(0.0);
        let mut params = Array2::<f64>::zeros((2, 2));
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..before {
            optimizer.step(&mut params, &array![[1.0, 0.0], [0.0, 0.0]], &mut state).unwrap();
        }
        optimizer.step(&mut params, &array![[0.0, 0.0], [0.0, 1.0]], &mut state).unwrap();
        assert!((params[[1, 1]] + 0.01).abs() < 1e-7, "{before}: {params}");
    }
}

#[test]
fn shampoo_starts_when_it_is_said() {
    let late = scale_by_shampoo().start_preconditioning_step(2);
    let params = Array2::<f64>::zeros((2, 3));
    let grads =
        |t: usize| Array2::from_shape_fn((2, 3), |(i, j)| (1.0 + 1.7 * (3 * i + j) as f64 + 2.3 * t as f64).sin());
    let plain = scale_by_shampoo().precondition_frequency(1);
    let [mut of_late, mut of_plain] = [late.init(&params).unwrap(), plain.init(&params).unwrap()];
    for t in 0..4 {
        let g = grads(t);
        let [late, plain] = [late.update(&g, &mut of_late, &params), plain.update(&g, &mut of_plain, &params)]
            .map(|updates| updates.unwrap().to_vec::<f64>("").unwrap());
        assert_eq!(late, if t < 2 { g.into_raw_vec_and_offset().0 } else { plain }, "{t}");
    }
}

/// Algorithm 1 of Gupta and others.
#[test]
fn shampoo_is_algorithm_1() {
    for (b2, eps, momentum, frequency, most, decay) in [
        (1.0, 1e-2, 0.9, 1, 9, 0.0),
        (0.9, 0.3, 0.5, 3, 9, 0.1),
        (1.0, 0.1, 0.0, 2, 4, 0.0),
        (1.0, 0.1, 0.0, 2, 3, 0.0),
    ] {
        let optimizer = shampoo(0.1).b2(b2).eps(eps).momentum(momentum).weight_decay(decay);
        let optimizer = optimizer.precondition_frequency(frequency as u64).max_precond_dim(most);
        let take = if b2 == 1.0 { 1.0 } else { 1.0 - b2 };
        let oracle = each_leaf(move |memory: &mut (Option<(Leaf, Leaf)>, [Option<Side>; 2]), t, g, w| {
            let (v, trace) = memory.0.get_or_insert_with(|| (g * 0.0, g * 0.0));
            *v = &*v * b2 + &(g * g * take);
            let mut direction = g / (&*v + eps).mapv(f64::sqrt);
            if g.ndim() == 2 && g.shape().iter().any(|n| *n <= most) {
                let x = matrix::of(g);
                let power = if g.shape().iter().all(|n| *n <= most) { -0.25 } else { -0.5 };
                for (side, gram) in memory.1.iter_mut().zip([x.dot(&x.t()), x.t().dot(&x)]) {
                    let none = || Side { factor: &gram * 0.0, basis: M::eye(gram.nrows()) };
                    let Side { factor, .. } = side.get_or_insert_with(none);
                    *factor = &*factor * b2 + &(gram * take);
                }
                let mut by_roots = |anew: bool| {
                    for Side { factor, basis } in
                        memory.1.iter_mut().flatten().filter(|side| side.factor.nrows() <= most)
                    {
                        *basis = if anew { matrix::power(factor, eps, power) } else { basis.clone() };
                    }
                    let [left, right] = memory.1.each_ref().map(|side| side.as_ref().unwrap().basis.clone());
                    left.dot(&x).dot(&right)
                };
                let mut by_old = by_roots(t <= frequency || (t - 1) % frequency == 0);
                if by_old.iter().map(|u| u * u).sum::<f64>() > x.nrows().min(x.ncols()) as f64 / take {
                    by_old = by_roots(true);
                }
                direction = by_old.into_dyn();
            }
            *trace = &*trace * momentum + &direction;
            (&*trace + w * decay) * -0.1
        });
        check_to(&optimizer, 1e-4, oracle);
    }
}

#[test]
fn a_graft_requires_members_that_emit_in_every_step() {
    let params = vec![0.0_f32; 2];
    let refusals = [
        ("direction", graft(multi_steps(sgd(0.1), 2), sgd(0.1)).init(&params).map(drop)),
        ("magnitude", graft(sgd(0.1), apply_if_finite(sgd(0.1), 2)).init(&params).map(drop)),
    ];
    for (argument, refused) in refusals {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(&format!("argument `{argument}` must be a transformation that emits")), "{error}");
    }
    assert!(multi_steps(graft(sign_sgd(1.0), sgd(0.1)), 2).init(&params).is_ok());
}
