//! Transformations of whole leaves or trees against naive `f64` oracles from the papers.
//!
//! Results do not depend on memory order, threads and other leaves.

use gradchain::prelude::*;
use gradchain::transform::{
    DimensionNumbers, Preconditioning, WeightDimensionNumbers, add_noise, scale, scale_by_factored_rms, scale_by_lbfgs,
    scale_by_muon,
};
use gradchain::tree::DynTree;
use gradchain::{SimdLevel, force_simd_level};
use ndarray::{Array1, Array2, Array3, ShapeBuilder};

/// Returns different numbers between −1 and 1.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

fn matrix(rows: usize, cols: usize, seed: f64) -> Array2<f64> {
    Array2::from_shape_vec((rows, cols), wave(rows * cols, seed)).unwrap()
}

fn fortran(x: &Array2<f64>) -> Array2<f64> {
    let mut y = Array2::zeros(x.dim().f());
    y.assign(x);
    y
}

fn close(ours: f64, oracle: f64, tolerance: f64) {
    assert!((ours - oracle).abs() <= tolerance * (1.0 + oracle.abs()), "{ours} is not {oracle}");
}

/// Runs on `{matrix, vector}`, in `f64` and `f32`; returns both after each step.
fn run<T: GradientTransformation<Needs = Nothing>>(
    t: &T,
    steps: usize,
    in_fortran: bool,
) -> Vec<(Array2<f64>, Array1<f32>)> {
    let lay = |x: Array2<f64>| if in_fortran { fortran(&x) } else { x };
    let mut params = (lay(matrix(5, 7, 0.1)), Array1::from_iter(wave(6, 0.2).into_iter().map(|x| x as f32)));
    let mut state = t.init(&params).unwrap();
    let mut after = Vec::new();
    for step in 0..steps {
        let seed = 0.5 + step as f64;
        let grads = (lay(matrix(5, 7, seed)), Array1::from_iter(wave(6, seed).into_iter().map(|x| x as f32)));
        t.step(&mut params, &grads, &mut state).unwrap();
        after.push((params.0.as_standard_layout().into_owned(), params.1.clone()));
    }
    after
}

fn same_in_both_orders<T: GradientTransformation<Needs = Nothing>>(t: &T) {
    for ((a, x), (b, y)) in run(t, 4, false).into_iter().zip(run(t, 4, true)) {
        assert!(a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()), "{t:?}: {a} {b}");
        assert!(x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits()), "{t:?}");
    }
}

#[test]
fn memory_order_does_not_change_a_bit() {
    same_in_both_orders(&scale_by_factored_rms().min_dim_size_to_factor(2));
    same_in_both_orders(&scale_by_factored_rms().factored(false));
    same_in_both_orders(&lbfgs().learning_rate(0.1).without_linesearch());
    same_in_both_orders(&muon(0.1));
    same_in_both_orders(&muon(0.1).preconditioning(Preconditioning::Spectral).adaptive(true));
    same_in_both_orders(&chain((add_noise(0.1, 0.5, 7), scale(-0.1))));
}

#[test]
fn memory_order_changes_adafactor_by_no_more_than_rounding() {
    // Sums over a leaf follow its memory order.
    let t = adafactor(0.1).min_dim_size_to_factor(2).momentum(0.9).weight_decay_rate(0.01);
    for ((a, _), (b, _)) in run(&t, 4, false).into_iter().zip(run(&t, 4, true)) {
        a.iter().zip(&b).for_each(|(a, b)| close(*a, *b, 1e-15));
    }
}

#[test]
fn the_simd_level_does_not_change_a_bit() {
    let all = |simd| {
        force_simd_level(Some(simd));
        let bits = |runs: Vec<(Array2<f64>, Array1<f32>)>| -> Vec<u64> {
            let of = |(a, x): (Array2<f64>, Array1<f32>)| {
                a.into_iter().map(f64::to_bits).chain(x.into_iter().map(|x| u64::from(x.to_bits()))).collect::<Vec<_>>()
            };
            runs.into_iter().flat_map(of).collect()
        };
        let found = [
            bits(run(&muon(0.1), 3, false)),
            bits(run(&adafactor(0.1).min_dim_size_to_factor(2), 3, false)),
            bits(run(&lbfgs().learning_rate(0.1).without_linesearch(), 3, false)),
            bits(run(&chain((add_noise(0.1, 0.5, 7), scale(-0.1))), 3, false)),
        ];
        force_simd_level(None);
        found
    };
    let baseline = all(SimdLevel::Baseline);
    assert_eq!(baseline, all(SimdLevel::Avx2));
    assert_eq!(baseline, all(SimdLevel::Avx512));
}

/// Algorithm 4 of Shazeer and Stern for matrices, algorithm 5 for vectors, with decay `1 − t^−0.8`.
#[test]
fn factored_rms_is_the_papers() {
    let t = scale_by_factored_rms().min_dim_size_to_factor(2);
    let params = (Array2::<f64>::zeros((4, 3)), Array1::<f64>::zeros(5));
    let mut state = t.init(&params).unwrap();
    let (mut r, mut c, mut v) = (vec![0.0; 4], vec![0.0; 3], vec![0.0; 5]);
    for step in 1..=6 {
        let (g, h) = (matrix(4, 3, step as f64), wave(5, step as f64));
        let updates = t.update(&(g.clone(), Array1::from(h.clone())), &mut state, &params).unwrap();
        let beta = 1.0 - (step as f64).powf(-0.8);
        for i in 0..4 {
            r[i] = beta * r[i] + (1.0 - beta) * (0..3).map(|j| g[[i, j]].powi(2) + 1e-30).sum::<f64>() / 3.0;
        }
        for j in 0..3 {
            c[j] = beta * c[j] + (1.0 - beta) * (0..4).map(|i| g[[i, j]].powi(2) + 1e-30).sum::<f64>() / 4.0;
        }
        let total = r.iter().sum::<f64>() / 4.0;
        let ours = updates.to_vec::<f64>("0").unwrap();
        for i in 0..4 {
            for j in 0..3 {
                close(ours[i * 3 + j], g[[i, j]] / (r[i] * c[j] / total).sqrt(), 1e-13);
            }
        }
        for (i, ours) in updates.to_vec::<f64>("1").unwrap().into_iter().enumerate() {
            v[i] = beta * v[i] + (1.0 - beta) * (h[i].powi(2) + 1e-30);
            close(ours, h[i] / v[i].sqrt(), 1e-13);
        }
    }
    // Row means are over the longest axis: three columns, four rows.
    assert_eq!((state.v_row.shape(0), state.v_col.shape(0)), (Some(&[3][..]), Some(&[4][..])));
    assert_eq!((state.v_row.shape(1), state.v.shape(0), state.v.shape(1)), (None, None, Some(&[5][..])));
}

#[test]
fn each_slice_of_a_leaf_with_three_axes_has_factors_of_its_own() {
    let g = Array3::from_shape_vec((5, 2, 4), wave(40, 0.7)).unwrap();
    let t = scale_by_factored_rms().min_dim_size_to_factor(3);
    let mut state = t.init(&g).unwrap();
    let whole = t.update(&g, &mut state, &g).unwrap().to_vec::<f64>("").unwrap();
    assert_eq!((state.v_row.shape(0), state.v_col.shape(0)), (Some(&[2, 4][..]), Some(&[5, 2][..])));
    for slice in 0..2 {
        let part = g.slice(ndarray::s![.., slice, ..]).to_owned();
        let part = t.update(&part, &mut t.init(&part).unwrap(), &part).unwrap().to_vec::<f64>("").unwrap();
        for (i, part) in part.into_iter().enumerate() {
            assert_eq!(whole[(i / 4 * 2 + slice) * 4 + i % 4], part);
        }
    }
}

#[test]
fn fine_tuning_starts_the_mean_again_without_nan() {
    let t = scale_by_factored_rms().step_offset(2);
    let mut state = t.init(&1.0_f64).unwrap();
    for g in [3.0_f64, 0.5, -7.0] {
        close(t.update(&g, &mut state, &1.0_f64).unwrap().to_vec::<f64>("").unwrap()[0], g.signum(), 1e-14);
    }
}

/// Returns the explicit inverse Hessian: `P ← Vᵀ·P·V + ρ·s·sᵀ` with `V = I − ρ·y·sᵀ`.
fn inverse_hessian(pairs: &[(Vec<f64>, Vec<f64>)], n: usize, scaled: bool) -> Array2<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let gamma = pairs.last().filter(|_| scaled).map_or(1.0, |(s, y)| dot(s, y) / dot(y, y));
    pairs.iter().fold(Array2::eye(n) * gamma, |p, (s, y)| {
        let rho = 1.0 / dot(s, y);
        let v = Array2::from_shape_fn((n, n), |(i, j)| f64::from(u8::from(i == j)) - rho * y[i] * s[j]);
        v.t().dot(&p).dot(&v) + Array2::from_shape_fn((n, n), |(i, j)| rho * s[i] * s[j])
    })
}

#[test]
fn lbfgs_multiplies_by_the_estimate_that_it_stands_for() {
    for (memory_size, scaled) in [(1, true), (3, true), (3, false), (20, true)] {
        let t = scale_by_lbfgs().memory_size(memory_size).scale_init_precond(scaled);
        // Two leaves, which are one vector.
        let split = |x: &[f64]| (x[..2].to_vec(), x[2..].to_vec());
        let hessian = [1.0, 3.0, 0.5, 2.0, 7.0];
        let gradient =
            |x: &[f64]| -> Vec<f64> { x.iter().zip(hessian).map(|(x, h)| h * x + 0.1 * x.powi(3)).collect() };
        let mut x = wave(5, 0.3);
        let mut state = t.init(&split(&x)).unwrap();
        let mut pairs: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
        for step in 0..8 {
            let g = gradient(&x);
            let updates = t.update(&split(&g), &mut state, &split(&x)).unwrap();
            let ours = [updates.to_vec::<f64>("0").unwrap(), updates.to_vec::<f64>("1").unwrap()].concat();
            let kept = &pairs[pairs.len().saturating_sub(memory_size)..];
            let expected = inverse_hessian(kept, 5, scaled).dot(&Array1::from(g.clone()));
            let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            let first = if step == 0 && scaled { (1.0 / norm).min(1.0) } else { 1.0 };
            ours.iter().zip(&expected).for_each(|(ours, expected)| close(*ours, first * expected, 1e-9));
            let next: Vec<f64> = x.iter().zip(&ours).map(|(x, u)| x - 0.3 * u).collect();
            let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
            pairs.push((minus(&next, &x), minus(&gradient(&next), &g)));
            x = next;
        }
    }
}

#[test]
fn lbfgs_without_a_place_to_remember_is_refused() {
    let error = lbfgs().memory_size(0).init(&1.0_f64).unwrap_err();
    assert_eq!(error.to_string(), "scale_by_lbfgs: argument `memory_size` must be at least 1, found 0");
}

/// Computes Jordan's iteration with ndarray's products.
fn newton_schulz(g: &Array2<f64>, [a, b, c]: [f64; 3], steps: usize) -> Array2<f64> {
    let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
    (0..steps).fold(g / (norm + 1e-8), |x, _| {
        let gram = x.dot(&x.t());
        let factor = &gram * b + gram.dot(&gram) * c;
        &x * a + factor.dot(&x)
    })
}

#[test]
fn muon_orthogonalizes_the_mean_as_jordan_does() {
    for (rows, cols) in [(4, 6), (6, 4), (3, 3), (1, 5), (70, 130)] {
        let t = scale_by_muon().nesterov(false);
        let mut state = t.init(&Array2::<f64>::zeros((rows, cols))).unwrap();
        let mut mean = Array2::zeros((rows, cols));
        for step in 1..=3 {
            let g = matrix(rows, cols, step as f64);
            mean = mean * 0.95 + &g * 0.05;
            let ours = t.update(&g, &mut state, &g).unwrap().to_vec::<f64>("").unwrap();
            let unbiased = &mean / (1.0 - 0.95_f64.powi(step));
            let oracle = newton_schulz(&unbiased, [3.4445, -4.7750, 2.0315], 5);
            ours.iter().zip(&oracle).for_each(|(ours, oracle)| close(*ours, *oracle, 1e-10));
        }
    }
}

#[test]
fn every_preconditioning_ends_at_an_orthogonal_matrix() {
    use Preconditioning::{Aol, Frobenius, Schatten, Spectral};
    let g = matrix(4, 9, 0.4);
    let polar = |preconditioning| {
        let t = scale_by_muon().ns_coeffs([1.875, -1.25, 0.375]).ns_steps(40).preconditioning(preconditioning);
        let x = t.update(&g, &mut t.init(&g).unwrap(), &g).unwrap().to_vec::<f64>("").unwrap();
        Array2::from_shape_vec((4, 9), x).unwrap()
    };
    let oracle = polar(Frobenius);
    for preconditioning in [Frobenius, Spectral, Aol, Schatten] {
        let x = polar(preconditioning);
        for ((i, j), gram) in x.dot(&x.t()).indexed_iter() {
            close(*gram, f64::from(u8::from(i == j)), 1e-12);
        }
        // Scaling each row differently gives another orthogonal matrix.
        if preconditioning != Aol {
            x.iter().zip(&oracle).for_each(|(x, oracle)| close(*x, *oracle, 1e-10));
        }
    }
}

#[test]
fn muon_refuses_non_matrix_leaves_by_name() {
    let params = (Array2::<f32>::zeros((2, 2)), Array1::<f32>::zeros(3));
    let error = scale_by_muon().init(&params).unwrap_err().to_string();
    assert!(error.contains("weight_dimension_numbers") && error.contains("1: f32 [3]"), "{error}");
    let twice = WeightDimensionNumbers::tree([("0", Some(DimensionNumbers::new([0], [-2])))]);
    assert!(muon(0.1).muon_weight_dimension_numbers(twice).init(&params).is_err());
    let nowhere = WeightDimensionNumbers::tree([("2", None)]);
    assert!(muon(0.1).muon_weight_dimension_numbers(nowhere).init(&params).is_err());
}

#[test]
fn a_kernel_is_orthogonalized_as_the_matrix_it_stands_for() {
    let kernel = Array3::from_shape_vec((2, 3, 4), wave(24, 0.9)).unwrap();
    let flat = kernel.clone().into_shape_with_order((6, 4)).unwrap();
    let numbers = WeightDimensionNumbers::tree([("", Some(DimensionNumbers::new([0, 1], [2])))]);
    let as_kernel = scale_by_muon().weight_dimension_numbers(numbers);
    let as_matrix = scale_by_muon();
    let ours = as_kernel.update(&kernel, &mut as_kernel.init(&kernel).unwrap(), &kernel).unwrap();
    let same = as_matrix.update(&flat, &mut as_matrix.init(&flat).unwrap(), &flat).unwrap();
    assert_eq!(ours.to_vec::<f64>(""), same.to_vec::<f64>(""));
}

#[test]
fn the_learning_rate_of_muon_can_be_changed_for_all_leaves_while_running() {
    let optimizer = inject_hyperparams(muon(0.1));
    let mut params = (Array2::<f64>::eye(2), Array1::<f64>::ones(2));
    let grads = params.clone();
    let mut state = optimizer.init(&params).unwrap();
    state.hyperparams_mut().set("learning_rate", 0.0).unwrap();
    let before = params.clone();
    optimizer.step(&mut params, &grads, &mut state).unwrap();
    assert_eq!(params, before);
    assert!(state.hyperparams_mut().set("adam_learning_rate", 0.1).is_err());
}

fn noise(path: &str, n: usize, seed: u64, steps: usize) -> Vec<f64> {
    let t = add_noise(1.0, 0.0, seed);
    let mut params = DynTree::new();
    params.insert(path, Array1::<f64>::zeros(n));
    let mut state = t.init(&params).unwrap();
    let mut last = Vec::new();
    for _ in 0..steps {
        last = t.update(&params, &mut state, &params).unwrap().to_vec::<f64>(path).unwrap();
    }
    last
}

#[test]
fn noise_is_standard_normal_and_independent() {
    let n = 200_000;
    let x = noise("w", n, 1, 1);
    let moment = |k: i32| x.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
    // Within four standard errors.
    let within = |found: f64, expected: f64, variance: f64| {
        assert!((found - expected).abs() < 4.0 * (variance / n as f64).sqrt(), "{found} {expected}");
    };
    within(moment(1), 0.0, 1.0);
    within(moment(2), 1.0, 2.0);
    within(moment(3), 0.0, 15.0);
    within(moment(4), 3.0, 96.0);
    let beyond = |limit: f64| x.iter().filter(|x| x.abs() > limit).count() as f64 / n as f64;
    within(beyond(1.0), 0.317_310_5, 0.2166);
    within(beyond(3.0), 0.002_699_8, 0.0027);
    // Across neighbours, leaves, steps and seeds.
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / n as f64;
    within(product(&x[1..], &x), 0.0, 1.0);
    within(product(&x[2..], &x), 0.0, 1.0);
    for other in [noise("v", n, 1, 1), noise("w", n, 1, 2), noise("w", n, 2, 1)] {
        within(product(&other, &x), 0.0, 1.0);
    }
}

#[test]
fn noise_depends_on_nothing_but_seed_step_path_and_place() {
    let n = 3001;
    let alone = noise("w", n, 5, 1);
    assert_eq!(noise("w", 100, 5, 1), alone[..100], "the length does not matter");
    let t = add_noise(1.0, 0.0, 5);
    // Element [i, j] is number i·cols + j, in either order.
    let mut params = DynTree::new();
    params.insert("a", Array1::<f32>::zeros(7));
    params.insert("w", Array2::<f64>::zeros((n.div_ceil(60), 60).f()));
    let grads = params.clone();
    t.step(&mut params, &grads, &mut t.init(&grads).unwrap()).unwrap();
    let w = params.get::<f64>("w").unwrap();
    w.iter().zip(&alone).for_each(|(w, alone)| assert_eq!(w, alone));
    // 16-bit leaves round numbers drawn in `f32`.
    let single = vec![0.0_f32; n];
    let ours = t.update(&single, &mut t.init(&single).unwrap(), &single).unwrap().to_vec::<f32>("").unwrap();
    #[cfg(feature = "half")]
    {
        let half = vec![half::bf16::ZERO; 50];
        let rounded = t.update(&half, &mut t.init(&half).unwrap(), &half).unwrap().to_vec::<half::bf16>("").unwrap();
        rounded.iter().zip(&ours).for_each(|(half, single)| assert_eq!(*half, half::bf16::from_f32(*single)));
    }
    let double = noise("", n, 5, 1);
    let product = ours.iter().zip(&double).map(|(x, y)| f64::from(*x) * y).sum::<f64>() / n as f64;
    assert!(product.abs() < 5.0 / (n as f64).sqrt(), "those of `f64` are others: {product}");
}

#[test]
fn the_variance_of_noise_decays() {
    let t = add_noise(4.0, 1.0, 3);
    let zeros = vec![0.0_f64; 1000];
    let mut state = t.init(&zeros).unwrap();
    for step in 0..3 {
        let x = t.update(&zeros, &mut state, &zeros).unwrap().to_vec::<f64>("").unwrap();
        let unit = noise("", 1000, 3, step + 1);
        x.iter().zip(&unit).for_each(|(x, unit)| close(*x, unit * (4.0 / (step as f64 + 1.0)).sqrt(), 1e-14));
    }
}

#[cfg(feature = "rayon")]
#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut params = (matrix(300, 330, 0.1), Array1::from(wave(40_000, 0.2)));
            let grads = (matrix(300, 330, 0.3), Array1::from(wave(40_000, 0.4)));
            let t = chain((add_noise(0.1, 0.5, 1), muon(0.1).adaptive(true)));
            let mut state = t.init(&params).unwrap();
            for _ in 0..2 {
                t.step(&mut params, &grads, &mut state).unwrap();
            }
            params
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(8));
}

/// Without a difference L-BFGS has no curvature.
#[test]
fn lbfgs_passes_constant_gradients_through() {
    for scaled in [true, false] {
        let optimizer = scale_by_lbfgs().memory_size(2).scale_init_precond(scaled);
        let mut state = optimizer.init(&[0.0_f64, 0.0]).unwrap();
        for t in 0..4 {
            let updates = optimizer.update(&[3.0, 4.0], &mut state, &[f64::from(t), 0.0]).unwrap();
            let factor = if t == 0 && scaled { 5.0 } else { 1.0 };
            let found = updates.to_vec::<f64>("").unwrap();
            assert!(
                (found[0] - 3.0 / factor).abs() < 1e-12 && (found[1] - 4.0 / factor).abs() < 1e-12,
                "{t}: {found:?}"
            );
        }
    }
}
