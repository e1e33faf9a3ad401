//! Transformations by norms, means or singular values of leaves, against naive versions of the papers.

use crate::oracle::{Leaf, Oracle, check, check_to, each_leaf, global_norm, norm, wave};
use gradchain::optimizer::{fromage, galore, lars, novograd, sm3};
use gradchain::prelude::*;
use gradchain::transform::{
    DimensionNumbers, WeightDimensionNumbers, adaptive_grad_clip, centralize, identity, normalize,
    normalize_by_update_norm, scale, scale_by_galore, scale_by_param_block_norm, scale_by_sm3,
};
use gradchain::tree::DynTree;
use ndarray::{Array2, Axis, ShapeBuilder};

/// Algorithm 1 of You and others, with the decay in the gradient.
#[test]
fn lars_is_algorithm_1() {
    for (rate, decay, trust, eps, momentum, nesterov) in
        [(0.1, 0.0, 1e-3, 0.0, 0.9, false), (0.5, 0.1, 0.4, 0.01, 0.7, true), (0.5, 0.1, 0.4, 0.0, 0.0, false)]
    {
        let optimizer = lars(rate).weight_decay(decay).trust_coefficient(trust).eps(eps).momentum(momentum);
        check(
            &optimizer.nesterov(nesterov),
            each_leaf(move |v: &mut Option<Leaf>, _, g, w| {
                let g = g + &(w * decay);
                let local = if norm(w) > 0.0 && norm(&g) > 0.0 { trust * norm(w) / (norm(&g) + eps) } else { 1.0 };
                let step = &g * (rate * local);
                let v = v.get_or_insert_with(|| &step * 0.0);
                *v = &*v * momentum + &step;
                if nesterov { -(&*v * momentum + &step) } else { -v.clone() }
            }),
        );
    }
}

#[test]
fn the_masks_of_lars_leave_leaves_out() {
    let optimizer =
        lars(1.0).weight_decay(0.5).weight_decay_mask(Mask::path("0")).trust_ratio_mask(Mask::path("1")).momentum(0.0);
    let optimizer = optimizer.trust_coefficient(1.0);
    let mut params = (2.0_f64, 2.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(4.0_f64, 4.0_f64), &mut state).unwrap();
    assert_eq!(params, (2.0 - (4.0 + 0.5 * 2.0), 2.0 - 2.0));
}

/// Algorithm 1 of Bernstein and others, as an update.
#[test]
fn fromage_is_algorithm_1() {
    for (rate, least) in [(0.01, 1e-6), (0.5, 0.3), (1e-5, 1e-6)] {
        let oracle = each_leaf(move |(): &mut (), _, g: &Leaf, w: &Leaf| {
            let [p, u] = [norm(w).max(least), norm(g).max(least)];
            (w - &(g * (rate * p / u))) / (1.0 + rate * rate).sqrt() - w
        });
        check(&fromage(rate).min_norm(least), oracle);
    }
    // Its rate has two uses; setting it changes both.
    let (injected, plain) = (inject_hyperparams(fromage(1.0)), fromage(0.25));
    let params = vec![3.0_f64, -4.0];
    let mut state = injected.init(&params).unwrap();
    state.hyperparams_mut().set("learning_rate", 0.25).unwrap();
    let grads = vec![1.0_f64, 2.0];
    let [a, b] = [
        injected.update(&grads, &mut state, &params).unwrap(),
        plain.update(&grads, &mut plain.init(&params).unwrap(), &params).unwrap(),
    ];
    assert_eq!(a.to_vec::<f64>(""), b.to_vec::<f64>(""));
}

/// Algorithm 1 of Ginsburg and others; the first squared norm is not averaged.
#[test]
fn novograd_is_algorithm_1() {
    for (b1, b2, eps, root, decay) in
        [(0.9, 0.25, 1e-6, 0.0, 0.0), (0.5, 0.98, 1e-2, 0.1, 0.1), (0.0, 0.0, 1e-8, 0.0, 0.3)]
    {
        let optimizer = novograd(0.1).b1(b1).b2(b2).eps(eps).eps_root(root).weight_decay(decay);
        check(
            &optimizer,
            each_leaf(move |memory: &mut Option<(f64, Leaf)>, _, g, w| {
                let squared = norm(g).powi(2);
                let (v, m) = memory.get_or_insert_with(|| (squared, g * 0.0));
                *v = b2 * *v + (1.0 - b2) * squared;
                *m = &*m * b1 + &(g / ((*v + root).sqrt() + eps)) + w * decay;
                &*m * -0.1
            }),
        );
    }
}

#[test]
fn the_norm_of_the_parameters_scales() {
    for least in [1e-3, 1.5] {
        let optimizer = chain((scale_by_param_block_norm().min_scale(least), scale(-0.01)));
        let oracle = each_leaf(move |(): &mut (), _, g: &Leaf, w: &Leaf| g * (-0.01 * norm(w).max(least)));
        check(&optimizer, oracle);
    }
}

#[test]
fn updates_are_divided_by_their_norm() {
    let divided = |by: fn(f64) -> f64| {
        move || -> Oracle {
            Box::new(move |_, grads, _| {
                let norm = global_norm(grads);
                grads.iter().map(|g| g * by(norm)).collect()
            })
        }
    };
    check(&normalize(), divided(|norm| 1.0 / norm));
    check(&normalize_by_update_norm(), divided(|norm| 1.0 / (norm + 1e-6)));
    check(&normalize_by_update_norm().scale_factor(-0.3).eps(2.0), divided(|norm| -0.3 / (norm + 2.0)));
    let zeros = vec![0.0_f32; 3];
    let all = (normalize(), normalize_by_update_norm().eps(0.0));
    let updates = all.0.update(&zeros, &mut all.0.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
    let updates = all.1.update(&zeros, &mut all.1.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
}

#[test]
fn every_row_is_centered() {
    let optimizer = chain((centralize(), scale(-0.1)));
    check(
        &optimizer,
        each_leaf(|(): &mut (), _, g, _| {
            let mut u = g * -0.1;
            if u.ndim() > 1 {
                for mut row in u.axis_iter_mut(Axis(0)) {
                    let mean = row.iter().sum::<f64>() / row.len() as f64;
                    row.iter_mut().for_each(|x| *x -= mean);
                }
            }
            u
        }),
    );
}

/// Computes equation 3 of Brock and others, for units along axes.
fn clip_units(g: &Leaf, w: &Leaf, axes: &[usize], clipping: f64, eps: f64) -> Leaf {
    let mut u = g.clone();
    let unit = |place: &[usize]| -> Vec<usize> {
        place.iter().enumerate().filter(|(a, _)| !axes.contains(a)).map(|(_, i)| *i).collect()
    };
    let norm_of = |x: &Leaf, of: &[usize]| {
        let within = x.indexed_iter().filter(|(place, _)| unit(ndarray::Dimension::slice(place)) == of);
        within.map(|(_, x)| x * x).sum::<f64>().sqrt()
    };
    for (place, u) in u.indexed_iter_mut() {
        let of = unit(ndarray::Dimension::slice(&place));
        let (norm, most) = (norm_of(g, &of), clipping * norm_of(w, &of).max(eps));
        if norm > most {
            *u *= most / norm;
        }
    }
    u
}

#[test]
fn units_are_clipped() {
    for (clipping, eps) in [(0.1, 1e-3), (0.4, 0.5), (10.0, 1e-3)] {
        check(
            &adaptive_grad_clip(clipping).eps(eps),
            each_leaf(move |(): &mut (), _, g, w| {
                let long = g.shape().iter().filter(|len| **len != 1).count();
                let axes: &[usize] = match g.ndim() {
                    _ if long <= 1 => &[0, 1, 2],
                    _ => &[0],
                };
                clip_units(g, w, axes, clipping, eps)
            }),
        );
    }
}

#[test]
fn the_axes_of_a_unit_can_be_chosen() {
    let (g, w) = (wave(&[3, 4, 2, 2], 0.3, true), wave(&[3, 4, 2, 2], 0.8, false));
    for (asked, axes) in [
        (None, vec![0, 1, 2]),
        (Some(vec![1]), vec![1]),
        (Some(vec![-1, 0]), vec![0, 3]),
        (Some(vec![0, 1, 2, 3]), vec![0, 1, 2, 3]),
        (Some(vec![]), vec![]),
    ] {
        let optimizer = adaptive_grad_clip(0.3).axis(asked);
        let updates = optimizer.update(&g, &mut optimizer.init(&w).unwrap(), &w).unwrap();
        let expected = clip_units(&g, &w, &axes, 0.3, 1e-3);
        for (found, expected) in updates.to_vec::<f64>("").unwrap().iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-13);
        }
    }
    for axis in [vec![4], vec![-5], vec![1, -3]] {
        let error = adaptive_grad_clip(0.3).axis(axis).init(&w).unwrap_err();
        assert!(error.to_string().contains("axis"), "{error}");
    }
    let six = Leaf::zeros(vec![2; 6]);
    assert!(adaptive_grad_clip(0.3).init(&six).is_err());
    assert!(adaptive_grad_clip(0.3).axis(vec![0]).init(&six).is_ok());
}

/// One number for each index of each axis.
#[test]
fn sm3_is_sm3_ii() {
    for (momentum, b2, eps) in [(0.9, 1.0, 1e-8), (0.3, 1.0, 0.01), (0.5, 0.9, 1e-4)] {
        let oracle = each_leaf(move |memory: &mut Option<(Vec<Vec<f64>>, Leaf)>, _, g: &Leaf, _| {
            let (bounds, mean) = memory.get_or_insert_with(|| {
                let axes: Vec<Vec<f64>> = g.shape().iter().map(|len| vec![0.0; *len]).collect();
                (if axes.is_empty() { vec![vec![0.0]] } else { axes }, g * 0.0)
            });
            let mut next: Vec<Vec<f64>> = bounds.iter().map(|axis| vec![0.0; axis.len()]).collect();
            for (place, g) in g.indexed_iter() {
                let place = ndarray::Dimension::slice(&place);
                let place = if place.is_empty() { &[0] } else { place };
                let bound = place.iter().zip(&*bounds).map(|(i, axis)| axis[*i]).fold(f64::INFINITY, f64::min);
                let v = if b2 == 1.0 { bound + g * g } else { b2 * bound + (1.0 - b2) * g * g };
                place.iter().zip(&mut next).for_each(|(i, axis)| axis[*i] = axis[*i].max(v));
                let scaled = if v > 0.0 { g / (v + eps).sqrt() } else { 0.0 };
                let index = if mean.ndim() == 0 { &[][..] } else { place };
                mean[index] = momentum * mean[index] + (1.0 - momentum) * scaled;
            }
            *bounds = next;
            mean.clone()
        });
        check_to(&scale_by_sm3().b1(momentum).b2(b2).eps(eps), 1e-4, oracle);
    }
    let (named, chained) = (sm3(0.2).momentum(0.5), chain((scale_by_sm3().b1(0.5), scale(-0.2))));
    let params = Array2::<f64>::ones((3, 2));
    let [a, b] = [
        named.update(&params, &mut named.init(&params).unwrap(), &params).unwrap(),
        chained.update(&params, &mut chained.init(&params).unwrap(), &params).unwrap(),
    ];
    assert_eq!(a.to_vec::<f64>(""), b.to_vec::<f64>(""));
}

/// It affects only its row and column, from then on.
///
/// A comparison with NaN must neither keep a smaller bound nor drop the NaN from a maximum.
#[test]
fn sm3_does_not_lose_a_nan() {
    fn holds<T: gradchain::tree::DynElement>(
        (rows, columns): (usize, usize),
        wrong: f64,
        (row, column): (usize, usize),
    ) {
        let gradient = |step: usize| {
            Array2::from_shape_fn((rows, columns), |(i, j)| match step == 1 && (i, j) == (row, column) {
                true => T::from_f64(wrong),
                false => T::from_f64((1.7 * (step * 1000 + i * columns + j) as f64).sin()),
            })
        };
        let square = |g: T| T::from_f64(T::from_f64(g.as_f64() * g.as_f64()).as_f64()).as_f64();
        let least = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) };
        let most = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        let optimizer = scale_by_sm3().b1(0.0);
        let mut state = optimizer.init(&gradient(0)).unwrap();
        let (mut bounds, mut mean) = ((vec![0.0; rows], vec![0.0; columns]), vec![0.0; rows * columns]);
        for step in 0..4 {
            let g = gradient(step);
            let updates = optimizer.update(&g, &mut state, &g).unwrap().to_vec::<T>("").unwrap();
            let mut next = (vec![0.0; rows], vec![0.0; columns]);
            for ((i, j), g) in g.indexed_iter() {
                let v = least(bounds.0[i], bounds.1[j]) + square(*g);
                (next.0[i], next.1[j]) = (most(next.0[i], v), most(next.1[j], v));
                let mean = &mut mean[i * columns + j];
                *mean = 0.0 * *mean + if v > 0.0 { g.as_f64() * (1.0 / (v + 1e-8).sqrt()) } else { 0.0 * g.as_f64() };
                let (expected, found) = (*mean, updates[i * columns + j].as_f64());
                assert!(
                    found.is_nan() == expected.is_nan() && (found.is_nan() || (found - expected).abs() < 1e-5),
                    "{wrong}, step {step}, {i}, {j}: {found}, {expected}"
                );
            }
            bounds = next;
            let found = state.mu.get::<T>(0).unwrap().iter().map(|x| x.as_f64());
            for (found, expected) in found.zip(bounds.0.iter().chain(&bounds.1)) {
                let is = found.is_nan() && expected.is_nan() || found == *expected;
                assert!(is || (found - expected).abs() < 1e-5 * expected, "{wrong}, step {step}: {found}, {expected}");
            }
        }
    }
    for wrong in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -0.0, 0.0] {
        for (shape, place) in [((5, 37), (3, 36)), ((19, 16), (0, 5)), ((2, 3), (0, 1)), ((9, 40), (8, 0))] {
            holds::<f32>(shape, wrong, place);
            holds::<f64>(shape, wrong, place);
        }
    }
}

/// Returns left singular vectors, by power iteration on `G·Gᵀ`.
fn singular_vectors(g: &Array2<f64>, rank: usize) -> Array2<f64> {
    let mut gram = g.dot(&g.t());
    let mut vectors = Array2::zeros((g.nrows(), rank));
    for k in 0..rank {
        let mut x = ndarray::Array1::from_shape_fn(g.nrows(), |i| 1.0 + (i as f64).sin());
        for _ in 0..5_000 {
            x = gram.dot(&x);
            x /= x.dot(&x).sqrt();
        }
        let value = x.dot(&gram.dot(&x));
        for ((i, j), gram) in gram.indexed_iter_mut() {
            *gram -= value * x[i] * x[j];
        }
        vectors.column_mut(k).assign(&x);
    }
    vectors
}

/// Computes GaLore around Adam, or around nothing.
fn galore_oracle(rank: usize, gap: usize, factor: f64, adam: bool) -> impl Fn() -> Oracle {
    type Memory = Option<(Array2<f64>, Leaf, Leaf)>;
    each_leaf(move |memory: &mut Memory, step, g, _| {
        let matrix = g.clone().into_dimensionality::<ndarray::Ix2>().ok();
        let tall = matrix.as_ref().is_none_or(|g| g.nrows() >= g.ncols());
        let turned = matrix.map(|g| if tall { g } else { g.reversed_axes() });
        if let Some(g) = &turned
            && (step - 1) % gap == 0
        {
            let mut projection = singular_vectors(g, rank.min(g.ncols()));
            let empty = Array2::zeros((projection.ncols(), g.ncols())).into_dyn();
            let (old, m, v) = memory.take().unwrap_or((projection.clone(), empty.clone(), empty));
            for (mut new, old) in projection.columns_mut().into_iter().zip(old.columns()) {
                let sign = new.dot(&old).signum();
                new *= sign;
            }
            *memory = Some((projection, m, v));
        }
        let (projection, m, v) = memory.get_or_insert_with(|| (Array2::zeros((0, 0)), g * 0.0, g * 0.0));
        let low = turned.as_ref().map_or(g.clone(), |g| projection.t().dot(g).into_dyn());
        let low = if adam {
            *m = &*m * 0.9 + &low * 0.1;
            *v = &*v * 0.99 + &(&low * &low) * 0.01;
            let [unbias1, unbias2] = [0.9_f64, 0.99].map(|b| 1.0 - b.powi(step as i32));
            (&*m / unbias1) / (&*v / unbias2).mapv(|v| v.sqrt() + 1e-4)
        } else {
            low
        };
        if turned.is_none() {
            return low;
        }
        let full = projection.dot(&low.into_dimensionality::<ndarray::Ix2>().unwrap()) * factor;
        if tall { full.into_dyn() } else { full.reversed_axes().into_dyn() }
    })
}

#[test]
fn galore_is_its_base_in_a_space_of_low_rank() {
    // With close singular values, many vectors are nearly singular.
    for (rank, gap, factor) in [(1, 200, 1.0), (2, 2, 0.25), (1, 3, -0.5)] {
        let plain = scale_by_galore().rank(rank).update_proj_gap(gap as u64).scale(factor);
        check_to(&plain.clone().base_optimizer(identity()), 2e-4, galore_oracle(rank, gap, factor, false));
        let adam = plain.base_optimizer(scale_by_adam().b2(0.99).eps(1e-4));
        check_to(&adam, 1e-2, galore_oracle(rank, gap, factor, true));
    }
}

#[test]
fn galore_of_full_rank_around_nothing_changes_nothing() {
    let optimizer = scale_by_galore().base_optimizer(identity());
    let params = (wave(&[9, 5], 0.1, false), wave(&[4, 4], 0.2, false), wave(&[2, 30], 0.3, true));
    let updates = optimizer.update(&params, &mut optimizer.init(&params).unwrap(), &params).unwrap();
    for (path, leaf) in [("0", &params.0), ("1", &params.1), ("2", &params.2)] {
        for (found, expected) in updates.to_vec::<f64>(path).unwrap().iter().zip(leaf) {
            assert!((found - expected).abs() < 1e-13);
        }
    }
}

#[test]
fn galore_keeps_its_projection_and_state_small() {
    let optimizer = galore(0.1).rank(2).weight_dimension_numbers(WeightDimensionNumbers::tree([
        ("kernel", Some(DimensionNumbers::new([0, 1], [2]))),
        ("off", None),
    ]));
    let mut params = DynTree::new();
    params.insert("bias", wave(&[5], 0.1, false));
    params.insert("kernel", wave(&[2, 3, 4], 0.2, false));
    params.insert("off", wave(&[3, 3], 0.3, false));
    let state = optimizer.init(&params).unwrap();
    let galore = &state.0;
    assert_eq!(galore.projector.shape(1), Some(&[6, 2][..]));
    assert_eq!((galore.projector.shape(0), galore.projector.shape(2)), (None, None));
    let mu = galore.base_optimizer_state.moment("mu").unwrap();
    assert_eq!([0, 1, 2].map(|i| mu.shape(i).unwrap().to_vec()), [vec![5], vec![2, 4], vec![3, 3]]);

    // Masked-off leaves have no inner state.
    let on = masked(scale_by_galore().rank(1).base_optimizer(clip_by_global_norm(0.1)), Mask::path("bias"));
    let updates = on.update(&params, &mut on.init(&params).unwrap(), &params).unwrap();
    assert_eq!(
        updates.to_vec::<f64>("off").unwrap(),
        params.get::<f64>("off").unwrap().iter().copied().collect::<Vec<_>>()
    );
    let bias = updates.to_vec::<f64>("bias").unwrap();
    assert!((bias.iter().map(|x| x * x).sum::<f64>() - 0.01).abs() < 1e-12);
}

#[test]
fn galore_refuses_unsupported_arguments() {
    let params = wave(&[4, 3], 0.1, false);
    let error = |error: gradchain::Error| error.to_string();
    assert!(error(galore(0.1).rank(0).init(&params).unwrap_err()).contains("rank"));
    assert!(error(galore(0.1).update_proj_gap(0).init(&params).unwrap_err()).contains("update_proj_gap"));
    assert!(error(galore(0.1).base_optimizer(adamw(1.0)).init(&params).unwrap_err()).contains("reads parameters"));
    let part = WeightDimensionNumbers::tree([("", Some(DimensionNumbers::new([0], [1])))]);
    assert!(galore(0.1).weight_dimension_numbers(part).init(&wave(&[2, 2, 2], 0.1, false)).is_err());
}

#[test]
fn a_cloned_galore_state_steps_like_the_original() {
    let optimizer = scale_by_galore().rank(1).update_proj_gap(3);
    let params = wave(&[4, 3], 0.1, false);
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..2 {
        optimizer.update(&wave(&[4, 3], f64::from(step), true), &mut state, &params).unwrap();
    }
    let mut copy = state.clone();
    for step in 2..6 {
        let g = wave(&[4, 3], f64::from(step), true);
        let [a, b] = [&mut state, &mut copy].map(|state| optimizer.update(&g, state, &params).unwrap());
        assert_eq!(a.to_vec::<f64>(""), b.to_vec::<f64>(""));
    }
}

fn fortran(x: &Array2<f64>) -> Array2<f64> {
    let mut y = Array2::zeros(x.dim().f());
    y.assign(x);
    y
}

fn same_in_both_orders<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(t: &T) {
    let leaf = |seed| wave(&[17, 9], seed, true).into_dimensionality::<ndarray::Ix2>().unwrap();
    let (mut a, mut b) = (leaf(0.1), fortran(&leaf(0.1)));
    let (mut s, mut r) = (t.init(&a).unwrap(), t.init(&b).unwrap());
    for step in 0..4 {
        let g = leaf(f64::from(step));
        t.step(&mut a, &g, &mut s).unwrap();
        t.step(&mut b, &fortran(&g), &mut r).unwrap();
        a.iter().zip(&b).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{t:?}: {a} {b}"));
    }
}

#[test]
fn memory_order_does_not_matter() {
    same_in_both_orders(&centralize());
    same_in_both_orders(&adaptive_grad_clip(0.1));
    same_in_both_orders(&adaptive_grad_clip(0.1).axis(vec![1]));
    same_in_both_orders(&sm3(0.1));
    same_in_both_orders(&galore(0.1).rank(3).update_proj_gap(2));
    same_in_both_orders(&lars(0.1));
    same_in_both_orders(&novograd(0.1));
}

#[test]
fn a_nan_stays_in_its_row() {
    let mut g = Array2::<f32>::ones((3, 4));
    g[[1, 2]] = f32::NAN;
    let nans = |updates: Updates| updates.to_vec::<f32>("").unwrap().iter().map(|x| x.is_nan()).collect::<Vec<_>>();
    let rows = centralize().update(&g, &mut centralize().init(&g).unwrap(), &g).unwrap();
    assert_eq!(nans(rows), (0..12).map(|i| i / 4 == 1).collect::<Vec<_>>());
    let (t, ones) = (adaptive_grad_clip(0.1), Array2::<f32>::ones((3, 4)));
    let columns = t.update(&g, &mut t.init(&ones).unwrap(), &ones).unwrap();
    assert_eq!(nans(columns), (0..12).map(|i| i % 4 == 2).collect::<Vec<_>>());
}

/// A unit is divided by at least 1e-6.
#[test]
fn adaptive_grad_clip_divides_by_a_least_norm() {
    let optimizer = adaptive_grad_clip(0.5).eps(1e-9);
    let params = Array2::<f64>::zeros((1, 1));
    let mut state = optimizer.init(&params).unwrap();
    for (gradient, update) in [(1e-8, 1e-8 * (5e-10 / 1e-6)), (1e-6, 5e-10), (1e-3, 5e-10)] {
        let updates = optimizer.update(&Array2::from_elem((1, 1), gradient), &mut state, &params).unwrap();
        let found = updates.to_vec::<f64>("").unwrap()[0];
        assert!((found - update).abs() <= 1e-12 * update, "{gradient:e} becomes {found:e}, not {update:e}");
    }
}
