//! Threads share blocks of large leaves, bitwise independent of their number and the memory order.
//!
//! Transformations along axes match naive versions.

use gradchain::Element;
use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::transform::{scale_by_factored_rms, scale_by_sm3};
use ndarray::{Array2, Array3, ArrayD, Axis, Dimension, ShapeBuilder};

const STEPS: usize = 3;
const DECAY: f64 = 0.8;

/// Returns numbers from 1e-3 to 1e3, with a row and a column of zeros.
fn gradient(i: usize, j: usize, step: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + step * 31) % 2003) as f64 / 1001.0 - 1.0;
    if i == 5 || j == 11 { 0.0 } else { x * 10.0_f64.powi((i * 3 + j * 5) as i32 % 7 - 3) }
}

/// Returns the updates of some steps on one leaf, row-major, on `threads` threads.
///
/// With 0 it runs on the current thread, which is outside rayon's pools, and the global pool.
fn updates<E: Element, D: Dimension, T: GradientTransformation<Needs = Nothing>>(
    optimizer: &T,
    threads: usize,
    gradients: &[ndarray::Array<E, D>],
) -> Vec<Vec<E>>
where
    ndarray::Array<E, D>: Tree,
{
    let work = || {
        let mut state = optimizer.init(&gradients[0]).unwrap();
        let each = |g| optimizer.update(g, &mut state, &gradients[0]).unwrap().to_vec::<E>("").unwrap();
        gradients.iter().map(each).collect()
    };
    match threads {
        0 => work(),
        _ => rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work),
    }
}

fn in_type<E: Element>(gradients: &[Array2<f64>], fortran: bool) -> Vec<Array2<E>> {
    let one = |g: &Array2<f64>| {
        let mut to = Array2::from_elem(g.dim().set_f(fortran), E::from_f64(0.0));
        to.zip_mut_with(g, |to, x| *to = E::from_f64(*x));
        to
    };
    gradients.iter().map(one).collect()
}

/// Equations 4 to 6 of Shazeer and Stern.
fn factored(gradients: &[Array2<f64>]) -> Vec<Array2<f64>> {
    let (n, m) = gradients[0].dim();
    let (mut rows, mut cols) = (ndarray::Array1::<f64>::zeros(n), ndarray::Array1::<f64>::zeros(m));
    let step = |(t, g): (usize, &Array2<f64>)| {
        let keep = 1.0 - ((t + 1) as f64).powf(-DECAY);
        let squares = g.mapv(|x| x * x + 1e-30);
        rows = &rows * keep + &(squares.mean_axis(Axis(1)).unwrap() * (1.0 - keep));
        cols = &cols * keep + &(squares.mean_axis(Axis(0)).unwrap() * (1.0 - keep));
        let mean = rows.mean().unwrap();
        Array2::from_shape_fn((n, m), |(i, j)| g[[i, j]] / (rows[i] / mean).sqrt() / cols[j].sqrt())
    };
    gradients.iter().enumerate().map(step).collect()
}

/// Algorithm SM3-II, without momentum.
fn sm3_ii(gradients: &[Array2<f64>]) -> Vec<Array2<f64>> {
    let (n, m) = gradients[0].dim();
    let (mut rows, mut cols) = (vec![0.0_f64; n], vec![0.0_f64; m]);
    let step = |g: &Array2<f64>| {
        let v = Array2::from_shape_fn((n, m), |(i, j)| rows[i].min(cols[j]) + g[[i, j]] * g[[i, j]]);
        (rows, cols) = (vec![0.0; n], vec![0.0; m]);
        v.indexed_iter().for_each(|((i, j), v)| (rows[i], cols[j]) = (rows[i].max(*v), cols[j].max(*v)));
        Array2::from_shape_fn((n, m), |at| if v[at] > 0.0 { g[at] / v[at].sqrt() } else { 0.0 })
    };
    gradients.iter().map(step).collect()
}

/// Checks updates against the oracle, bitwise for any threads and memory order.
fn is<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, oracle: fn(&[Array2<f64>]) -> Vec<Array2<f64>>) {
    // Three blocks of at least 65 536 elements: whole rows, fewer in the last block, one row each.
    for (n, m) in [(201, 700), (463, 300), (3, 66_001), (44_001, 3)] {
        let gradients: Vec<_> =
            (0..STEPS).map(|step| Array2::from_shape_fn((n, m), |(i, j)| gradient(i, j, step))).collect();
        let expected = oracle(&gradients);
        let plain = updates(optimizer, 1, &in_type::<f64>(&gradients, false));
        for (step, (found, expected)) in plain.iter().zip(&expected).enumerate() {
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{n}×{m}, step {step}: {found} {expected}");
            }
        }
        assert!([0, 4].iter().all(|n| updates(optimizer, *n, &in_type::<f64>(&gradients, false)) == plain), "{n}×{m}");
        for threads in [0, 1, 3] {
            assert!(updates(optimizer, threads, &in_type::<f64>(&gradients, true)) == plain, "{n}×{m}, {threads}");
        }
        let narrow = updates(optimizer, 1, &in_type::<f32>(&gradients, false));
        assert!(updates(optimizer, 4, &in_type::<f32>(&gradients, true)) == narrow, "{n}×{m}");
        for (found, expected) in narrow.iter().flatten().zip(expected.iter().flatten()) {
            assert!((f64::from(*found) - expected).abs() <= 1e-5 * expected.abs(), "{n}×{m}: {found} {expected}");
        }
    }
}

#[test]
fn factored_rms_is_equations_4_to_6() {
    is(&scale_by_factored_rms().min_dim_size_to_factor(2), factored);
}

#[test]
fn sm3_is_sm3_ii() {
    is(&scale_by_sm3().b1(0.0).eps(0.0), sm3_ii);
}

#[test]
fn matrices_of_a_leaf_are_as_if_alone() {
    let optimizer = scale_by_factored_rms().min_dim_size_to_factor(20);
    let alone: Vec<Vec<Array2<f64>>> = (0..3)
        .map(|b| (0..STEPS).map(|step| Array2::from_shape_fn((300, 400), |(i, j)| gradient(i + b, j, step))).collect())
        .collect();
    for axis in 0..3 {
        let together: Vec<Array3<f64>> = (0..STEPS)
            .map(|step| {
                let matrices: Vec<_> = alone.iter().map(|matrix| matrix[step].view()).collect();
                ndarray::stack(Axis(axis), &matrices).unwrap().as_standard_layout().into_owned()
            })
            .collect();
        let shape = together[0].shape().to_vec();
        let found = updates(&optimizer, 4, &together);
        for (b, matrix) in alone.iter().enumerate() {
            for (found, expected) in found.iter().zip(updates(&optimizer, 1, matrix)) {
                let found = ArrayD::from_shape_vec(shape.clone(), found.clone()).unwrap();
                assert!(found.index_axis(Axis(axis), b).iter().copied().eq(expected), "axis {axis}, matrix {b}");
            }
        }
    }
}

/// Elements of a one-axis leaf are independent.
#[test]
fn a_long_line_is_its_elements() {
    let gradients: Vec<_> =
        (0..STEPS).map(|step| Array2::from_shape_fn((1, 200_000), |(i, j)| gradient(i, j, step))).collect();
    let lines: Vec<_> = gradients.iter().map(|g| g.index_axis(Axis(0), 0).to_owned()).collect();
    let some: Vec<_> = lines.iter().map(|g| g.slice(ndarray::s![150_000..150_100]).to_owned()).collect();
    fn same<T: GradientTransformation<Needs = Nothing>>(
        optimizer: &T,
        lines: &[ndarray::Array1<f64>],
        some: &[ndarray::Array1<f64>],
    ) {
        let (all, few) = (updates(optimizer, 4, lines), updates(optimizer, 1, some));
        for (all, few) in all.iter().zip(&few) {
            assert_eq!(all[150_000..150_100], few[..], "{optimizer:?}");
        }
    }
    same(&scale_by_factored_rms(), &lines, &some);
    same(&scale_by_sm3(), &lines, &some);
}

/// For passes with one barrier and with none.
#[test]
fn a_thread_outside_of_rayon_is_bitwise_identical() {
    let gradients: Vec<_> =
        (0..2).map(|step| Array2::from_shape_fn((401, 613), |(i, j)| gradient(i, j, step))).collect();
    fn same<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, gradients: &[Array2<f64>]) {
        for fortran in [false, true] {
            let gradients = in_type::<f32>(gradients, fortran);
            let expected = updates(optimizer, 1, &gradients);
            assert!([0, 3].iter().all(|threads| updates(optimizer, *threads, &gradients) == expected), "{optimizer:?}");
        }
    }
    same(&adamw(0.1), &gradients);
    same(&chain((zero_nans(), clip_by_global_norm(0.5), adamw(0.1))), &gradients);
    same(&lamb(0.1), &gradients);
    same(&chain((clip_by_global_norm(0.5), adafactor(0.1))), &gradients);
    same(&quantized(adam(0.1)).min_elements(0), &gradients);
}
