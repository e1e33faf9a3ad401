//! Row-sparse gradients: results and refusals.

use std::collections::BTreeMap;

use gradchain::optimizer::rowwise_adagrad;
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::transform::{GlobalNorm, apply_every, monitor, scale, scale_by_trust_ratio};
use gradchain::tree::{Difference, SparseRows};
use gradchain::wrapper::{flatten, sam};
use gradchain::{Error, GradientTransformation};
use ndarray::{Array1, Array2, Array3, Axis, ShapeBuilder, array, s};
use proptest::prelude::*;

type Gradients = SparseRows<Array2<f64>>;
type Pair = (Array2<f64>, Array2<f64>);

/// Returns a number in (−2, 2).
fn number(i: usize) -> f64 {
    ((i * 7919 + 613) % 401) as f64 / 100.0 - 2.0
}

fn embedding(rows: usize, columns: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, columns), |(i, j)| number(i * columns + j))
}

fn gradient(step: usize, indices: &[usize], columns: usize) -> Gradients {
    let values = Array2::from_shape_fn((indices.len(), columns), |(i, j)| number(1000 * step + i * columns + j));
    SparseRows::new(indices.to_vec(), values)
}

/// Maps a row's summed gradient and state to its update; `t` counts from 1.
type Naive = fn(memory: &mut [[f64; 2]], t: i32, g: &[f64]) -> Vec<f64>;

fn each(memory: &mut [[f64; 2]], g: &[f64], one: impl Fn(&mut [f64; 2], f64) -> f64) -> Vec<f64> {
    memory.iter_mut().zip(g).map(|(memory, g)| -0.1 * one(memory, *g)).collect()
}

fn naive_sgd(memory: &mut [[f64; 2]], _: i32, g: &[f64]) -> Vec<f64> {
    each(memory, g, |_, g| g)
}

fn naive_momentum(memory: &mut [[f64; 2]], _: i32, g: &[f64]) -> Vec<f64> {
    each(memory, g, |[m, _], g| {
        *m = 0.9 * *m + g;
        *m
    })
}

/// Computes PyTorch's `SparseAdam`: moments of the gradient's rows only.
///
/// Both corrections use the number of steps. PyTorch adds `eps` before the second moment's correction, so it is scaled
/// here.
fn naive_sparse_adam(memory: &mut [[f64; 2]], t: i32, g: &[f64]) -> Vec<f64> {
    let correction = [1.0 - 0.9_f64.powi(t), 1.0 - 0.999_f64.powi(t)];
    let eps = 1e-3 * correction[1].sqrt();
    each(memory, g, |[m, v], g| {
        *m += (1.0 - 0.9) * (g - *m);
        *v += (1.0 - 0.999) * (g * g - *v);
        correction[1].sqrt() / correction[0] * *m / (v.sqrt() + eps)
    })
}

/// Computes Adagrad with `eps` under the root, where PyTorch has it outside.
fn naive_adagrad(memory: &mut [[f64; 2]], _: i32, g: &[f64]) -> Vec<f64> {
    each(memory, g, |[sum, _], g| {
        *sum += g * g;
        g / (0.1 + *sum + 1e-7).sqrt()
    })
}

/// Adds a row's mean square to its number: FBGEMM's exact row-wise Adagrad.
fn naive_rowwise_adagrad(memory: &mut [[f64; 2]], _: i32, g: &[f64]) -> Vec<f64> {
    memory[0][0] += g.iter().map(|g| g * g).sum::<f64>() / g.len() as f64;
    let root = memory[0][0].sqrt();
    g.iter().map(|g| -0.1 * g / (root + 1e-8)).collect()
}

/// Compares an embedding, and a dense leaf beside it, with naive ones.
fn agrees<T>(optimizer: &T, naive: Naive, rows: usize, columns: usize, steps: &[Vec<usize>]) -> Result<(), String>
where
    T: GradientTransformation<Needs = Nothing>,
{
    let mut params = (embedding(rows, columns), array![1.0, -1.0]);
    let (mut expected, mut memory) = (params.0.clone(), vec![vec![[0.0; 2]; columns]; rows]);
    let (mut beside, mut of_beside) = (params.1.clone(), vec![[0.0; 2]; 2]);
    let mut state = optimizer.init(&params).unwrap();
    for (step, indices) in steps.iter().enumerate() {
        let (gradient, of_beside_now) = (gradient(step, indices, columns), array![0.5, -1.5]);
        optimizer.step(&mut params, &(&gradient, of_beside_now.clone()), &mut state).unwrap();
        let mut sums: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (row, values) in indices.iter().zip(gradient.values.rows()) {
            let sum = sums.entry(*row).or_insert_with(|| vec![0.0; columns]);
            sum.iter_mut().zip(values).for_each(|(sum, g)| *sum += g);
        }
        let t = step as i32 + 1;
        for (row, g) in sums {
            let update = naive(&mut memory[row], t, &g);
            expected.row_mut(row).iter_mut().zip(update).for_each(|(p, u)| *p += u);
        }
        for ((p, g), memory) in beside.iter_mut().zip(&of_beside_now).zip(&mut of_beside) {
            *p += naive(std::slice::from_mut(memory), t, &[*g])[0];
        }
    }
    for (found, expected) in params.0.iter().chain(&params.1).zip(expected.iter().chain(&beside)) {
        if (found - expected).abs() > 1e-12 * (1.0 + expected.abs()) {
            return Err(format!("{found} for {expected}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn any_rows_in_any_order_are_stepped_as_the_papers_say(
        columns in 1_usize..40,
        steps in prop::collection::vec(prop::collection::vec(0_usize..30, 0..60), 1..6),
    ) {
        let adam = adam(0.1).eps(1e-3);
        agrees(&sgd(0.1), naive_sgd, 30, columns, &steps).unwrap();
        agrees(&sgd(0.1).momentum(0.9), naive_momentum, 30, columns, &steps).unwrap();
        agrees(&adam, naive_sparse_adam, 30, columns, &steps).unwrap();
        agrees(&adagrad(0.1), naive_adagrad, 30, columns, &steps).unwrap();
        agrees(&rowwise_adagrad(0.1), naive_rowwise_adagrad, 30, columns, &steps).unwrap();
        // Not fused.
        agrees(&boxed(adam.clone()), naive_sparse_adam, 30, columns, &steps).unwrap();
        agrees(&chain((monitor().measure("norm", GlobalNorm), adam)), naive_sparse_adam, 30, columns, &steps).unwrap();
    }
}

#[test]
fn the_norm_of_the_rows_is_the_norm_of_the_gradient() {
    let optimizer = chain((clip_by_global_norm(1.0), scale_by_adam(), clip_by_global_norm(0.5), scale(-0.1)));
    let mut sparse = (embedding(9, 3), array![1.0, 2.0]);
    let mut dense = sparse.clone();
    let [mut state, mut state_of_dense] = [optimizer.init(&sparse).unwrap(), optimizer.init(&sparse).unwrap()];
    // Moments of rows without a gradient stay zero.
    let rows = gradient(0, &[7, 2, 7], 3);
    let mut whole = Array2::zeros((9, 3));
    for (row, values) in rows.indices.iter().zip(rows.values.rows()) {
        whole.row_mut(*row).scaled_add(1.0, &values);
    }
    optimizer.step(&mut sparse, &(rows, array![3.0, -4.0]), &mut state).unwrap();
    optimizer.step(&mut dense, &(whole, array![3.0, -4.0]), &mut state_of_dense).unwrap();
    for (sparse, dense) in sparse.0.iter().chain(&sparse.1).zip(dense.0.iter().chain(&dense.1)) {
        approx::assert_relative_eq!(sparse, dense, max_relative = 1e-14);
    }
    assert_eq!(sparse.0.slice(s![3..7, ..]), embedding(9, 3).slice(s![3..7, ..]));
}

/// Any tree type.
#[test]
fn rows_stand_in_any_tree() {
    #[derive(gradchain::Tree)]
    #[tree(read_only)]
    struct Derived<'a> {
        a: SparseRows<ndarray::ArrayView2<'a, f64>, &'a [usize]>,
        b: Array1<f64>,
    }

    let (indices, values, bias) = ([3, 1, 3], array![[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]], array![1.0]);
    let expected = |params: &BTreeMap<String, Array2<f64>>| {
        let mut params = params.clone();
        params.get_mut("a").unwrap().row_mut(3).scaled_add(-1.0, &array![1.5, 2.5]);
        params.get_mut("a").unwrap().row_mut(1).scaled_add(-1.0, &array![3.0, 4.0]);
        params.get_mut("b").unwrap()[[0, 0]] -= 1.0;
        params
    };
    let start = BTreeMap::from([("a".to_owned(), embedding(5, 2)), ("b".to_owned(), array![[1.0]])]);
    let rows = || SparseRows::new(indices.to_vec(), values.clone());
    let optimizer = sgd(1.0);
    let mut params = start.clone();
    let mut state = optimizer.init(&params).unwrap();
    let map: BTreeMap<String, Box<dyn Tree>> =
        BTreeMap::from([("a".into(), Box::new(rows()) as _), ("b".into(), Box::new(array![[1.0]]) as _)]);
    optimizer.step(&mut params, &map, &mut state).unwrap();
    assert_eq!(params, expected(&start));

    let mut params = (start["a"].clone(), array![1.0]);
    let mut state = optimizer.init(&params).unwrap();
    let vector: Vec<Box<dyn Tree>> = vec![Box::new(rows()), Box::new(bias.clone())];
    optimizer.step(&mut params, &vector, &mut state).unwrap();
    assert_eq!(params.0, expected(&start)["a"]);

    #[derive(gradchain::Tree)]
    struct Model {
        a: Array2<f64>,
        b: Array1<f64>,
    }
    let mut params = Model { a: start["a"].clone(), b: array![1.0] };
    let mut state = optimizer.init(&params).unwrap();
    // A reversed view.
    let mut backwards = values.slice(s![..;-1, ..]).to_owned();
    backwards.invert_axis(Axis(0));
    let derived = Derived { a: SparseRows::new(&indices, backwards.view()), b: bias };
    optimizer.step(&mut params, &derived, &mut state).unwrap();
    assert_eq!((params.a, params.b), (expected(&start)["a"].clone(), array![0.0]));

    // Two tables with equal rows.
    let mut params = Model { a: start["a"].clone(), b: Array1::zeros(5) };
    let both = SparseRows::new(vec![4], Model { a: array![[1.0, 1.0]], b: array![2.0] });
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &both, &mut state).unwrap();
    assert_eq!(params.b, array![0.0, 0.0, 0.0, 0.0, -2.0]);
    assert_eq!(params.a.row(4), &start["a"].row(4) - 1.0);
}

#[test]
fn rows_of_more_axes_of_gaps_and_of_no_elements_keep_their_places() {
    let optimizer = sgd(1.0).momentum(0.5);
    // Transposed last axes, and a view with gaps.
    let mut memory = Array3::from_shape_fn((4, 3, 4), |(i, j, k)| (i * 100 + j * 10 + k) as f32);
    let before = memory.clone();
    let mut params = memory.slice_mut(s![.., .., ..;2]);
    params.swap_axes(1, 2);
    let mut state = optimizer.init(&params).unwrap();
    let values = Array3::from_shape_fn((1, 2, 3), |(_, j, k)| (j * 3 + k + 1) as f32);
    optimizer.step(&mut params, &SparseRows::new([2], values.clone()), &mut state).unwrap();
    for ((i, j, k), x) in memory.indexed_iter() {
        let moved = if i == 2 && k % 2 == 0 { values[[0, k / 2, j]] } else { 0.0 };
        assert_eq!(*x, before[[i, j, k]] - moved, "{i} {j} {k}");
    }

    let mut dense = Array3::<f32>::zeros((4, 2, 3)).permuted_axes([0, 2, 1]);
    let mut state = optimizer.init(&dense).unwrap();
    let rows = SparseRows::new([1], Array3::from_shape_fn((1, 3, 2), |(_, j, k)| (j * 2 + k) as f32));
    optimizer.step(&mut dense, &rows, &mut state).unwrap();
    assert_eq!(dense.index_axis(Axis(0), 1), -&rows.values.index_axis(Axis(0), 0));

    let mut empty = Array2::<f32>::zeros((3, 0));
    let mut state = optimizer.init(&empty).unwrap();
    let rows = SparseRows::new([2, 0], Array2::<f32>::zeros((2, 0)));
    optimizer.step(&mut empty, &rows, &mut state).unwrap();
}

#[test]
fn no_rows_are_a_step_all_the_same() {
    let optimizer = chain((clip_by_global_norm(1.0), adam(0.1)));
    let mut params = embedding(4, 3);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &gradient(0, &[], 3), &mut state).unwrap();
    assert_eq!(params, embedding(4, 3));
    assert_eq!(state.1.0.count.get(), 1);
}

#[test]
fn row_sparse_updates_are_zero_in_other_rows() {
    let optimizer = adam(0.1);
    let mut params = embedding(6, 2);
    let mut state = optimizer.init(&params).unwrap();
    let mut updates = state.zero_updates();
    optimizer.update_into(&embedding(6, 2), &mut state, &params, &mut updates).unwrap();
    let mut by_updates = params.clone();
    let mut state_of_other = state.clone();
    for step in 1..4 {
        let rows = gradient(step, &[step, 4, 1], 2);
        optimizer.update_into(&rows, &mut state, &by_updates, &mut updates).unwrap();
        let found = updates.to_vec::<f64>("").unwrap();
        assert!(found[..2].iter().chain(&found[10..]).all(|u| u.to_bits() == 0), "{found:?}");
        apply_updates(&mut by_updates, &updates).unwrap();
        optimizer.step(&mut params, &rows, &mut state_of_other).unwrap();
        assert_eq!(params, by_updates);
    }
    assert!(same_bits(&*state, &*state_of_other));
}

fn refused<T, P, G>(optimizer: &T, params: &P, grads: &G) -> Error
where
    T: GradientTransformation<Needs = Nothing>,
    P: TreeMut + Clone + PartialEq + std::fmt::Debug,
    G: Tree,
{
    let mut state = optimizer.init(params).unwrap();
    let (mut after, before) = (params.clone(), state.clone());
    let error = optimizer.step(&mut after, grads, &mut state).unwrap_err();
    assert_eq!((&after, same_bits(&*state, &*before)), (params, true), "{error}");
    let mut updates = state.zero_updates();
    assert_eq!(optimizer.update_into(grads, &mut state, params, &mut updates).unwrap_err(), error);
    error
}

#[test]
fn rows_that_do_not_fit_are_refused_by_path() {
    let params = BTreeMap::from([("words".to_owned(), embedding(5, 3)), ("x".to_owned(), embedding(1, 2))]);
    let refused = |rows: Gradients| {
        let grads: BTreeMap<String, Box<dyn Tree>> =
            BTreeMap::from([("words".into(), Box::new(rows) as _), ("x".into(), Box::new(embedding(1, 2)) as _)]);
        let error = refused(&adam(0.1), &params, &grads);
        assert!(error.is_structure());
        error.to_string().lines().skip(1).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(refused(gradient(0, &[1, 5, 7], 3)), ["words: expected rows below 5, found row 5"]);
    assert_eq!(
        refused(gradient(0, &[usize::MAX], 3)),
        [format!("words: expected rows below 5, found row {}", usize::MAX)]
    );
    assert_eq!(
        refused(gradient(0, &[1, 2], 4)),
        ["words: rows of 2 indices: expected values of shape [2, 3], found [2, 4]"]
    );
    let one_less = SparseRows::new(vec![4, 0, 9], gradient(0, &[4, 0], 3).values);
    let shape = "words: rows of 3 indices: expected values of shape [3, 3], found [2, 3]";
    let both = [shape, "words: expected rows below 5, found row 9"];
    assert_eq!(refused(one_less), both);

    let wide = SparseRows::new([0], array![[1.0_f64, 1.0]]);
    let narrow = Array2::<f32>::zeros((2, 2));
    let error = self::refused(&sgd(1.0), &narrow, &wide);
    assert!(matches!(error.differences(), [Difference::DType { .. }]), "{error}");
    let scalar = self::refused(&sgd(1.0), &1.0_f64, &SparseRows::new([0], 1.0_f64));
    assert!(scalar.to_string().ends_with("(root): expected rows below 0, found row 0"), "{scalar}");
}

#[test]
fn rows_of_a_leaf_that_lies_by_columns_are_refused() {
    let params = Array2::<f64>::zeros((5, 3).f());
    let error = refused(&sgd(1.0), &params, &gradient(0, &[1], 3));
    assert!(error.to_string().ends_with("(root): expected a memory order of strides [3, 1], found [1, 5]"), "{error}");
    // For any memory order of rows.
    let mut params = embedding(5, 3);
    let mut values = Array2::zeros((2, 3).f());
    values.assign(&array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let optimizer = sgd(1.0);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &SparseRows::new([4, 0], values), &mut state).unwrap();
    assert_eq!(params.row(0), &embedding(5, 3).row(0) - &array![4.0, 5.0, 6.0]);
}

#[test]
fn rows_are_a_leaf_of_gradients_and_of_nothing_else() {
    let rows = gradient(0, &[1, 0], 2);
    assert_eq!(gradchain::tree::Structure::of(&rows).unwrap().to_string(), "values: f64 [2, 2]\n");
    assert!(apply_updates(&mut embedding(2, 2), &rows).unwrap_err().is_structure());
    let mut state = sgd(1.0).init(&embedding(2, 2)).unwrap();
    assert!(sgd(1.0).update_owned(rows.clone(), &mut state, &embedding(2, 2)).unwrap_err().is_structure());
    let of_rows = SparseRows::new(vec![0, 1], rows);
    let error = refused(&sgd(1.0), &embedding(2, 2), &of_rows);
    assert!(error.to_string().contains("unexpected leaf values: f64 [2, 2]"), "{error}");
}

#[test]
fn dense_only_stages_refuse_row_sparse_gradients_of_their_leaves() {
    let params = (embedding(4, 3), embedding(2, 2));
    let grads = (gradient(0, &[1, 1], 3), embedding(2, 2));
    let expect = |error: Error, part: &str| {
        let expected = format!(
            "{part}: argument `gradients` must be dense, found a row-sparse gradient of `0: f64 [4, 3]`; a `partition` \
             can give that leaf another optimizer"
        );
        assert_eq!(error.to_string(), expected);
        assert!(error.is_argument());
    };
    expect(refused(&lamb(0.1), &params, &grads), "scale_by_trust_ratio");
    expect(refused(&multi_steps(adam(0.1), 2), &params, &grads), "multi_steps");
    expect(refused(&muon(0.1), &params, &grads), "scale_by_muon");
    expect(refused(&lookahead(adam(0.1), 2, 0.5), &params, &grads), "lookahead");
    expect(refused(&params_ema(adam(0.1), 0.9), &params, &grads), "params_ema");
    expect(refused(&sam(sgd(0.1), sgd(0.1)), &params, &grads), "sam");
    expect(refused(&prodigy(), &params, &grads), "prodigy");
    expect(refused(&boxed(chain((sgd(1.0), apply_every(2)))), &params, &grads), "apply_every");

    let step = |optimizer: &dyn Fn(&mut Pair)| {
        let mut params = params.clone();
        optimizer(&mut params);
        assert_eq!(params.0.row(2), embedding(4, 3).row(2));
        assert_ne!(params.0.row(1), embedding(4, 3).row(1));
        assert_ne!(params.1, embedding(2, 2));
    };
    let groups = || Labels::tree([("0", "embedding"), ("1", "matrix")]);
    step(&|params| {
        let optimizer = partition((("embedding", rowwise_adagrad(0.1)), ("matrix", muon(0.1))), groups());
        optimizer.step(params, &grads, &mut optimizer.init(params).unwrap()).unwrap();
    });
    step(&|params| {
        let members: Vec<(&str, Boxed)> = vec![("embedding", boxed(adam(0.1))), ("matrix", boxed(lamb(0.1)))];
        let optimizer = partition(members, groups());
        optimizer.step(params, &grads, &mut optimizer.init(params).unwrap()).unwrap();
    });
    step(&|params| {
        let optimizer = chain((masked(scale_by_trust_ratio(), Mask::path("1")), sgd(0.1)));
        optimizer.step(params, &grads, &mut optimizer.init(params).unwrap()).unwrap();
    });
    step(&|params| {
        let optimizer = chain((flatten_of_the_other(), sgd(0.1)));
        optimizer.step(params, &grads, &mut optimizer.init(params).unwrap()).unwrap();
    });
}

/// Flattens the second leaf.
fn flatten_of_the_other() -> impl GradientTransformation<Needs = Nothing> {
    masked(flatten(scale_by_trust_ratio()), Mask::path("1"))
}

#[test]
fn whole_leaves_and_rows_may_take_turns() {
    let optimizer = adam(0.1);
    let mut params = embedding(40, 3);
    let mut state = optimizer.init(&params).unwrap();
    let mut dense = params.clone();
    let mut state_of_dense = state.clone();
    let all: Vec<usize> = (0..40).collect();
    for step in 0..6 {
        let whole = gradient(step, &all, 3);
        optimizer.step(&mut dense, &whole.values, &mut state_of_dense).unwrap();
        if step % 2 == 0 {
            optimizer.step(&mut params, &whole, &mut state).unwrap();
        } else {
            optimizer.step(&mut params, &whole.values, &mut state).unwrap();
        }
        assert_eq!(params, dense, "step {step}");
    }
    assert!(same_bits(&*state, &*state_of_dense));
}

#[cfg(feature = "half")]
#[test]
fn row_sparse_16_bit_gradients_are_reduced_in_f32() {
    use half::bf16;
    let [one, tiny] = [1.0, 1.0 / 256.0].map(bf16::from_f32);
    let optimizer = sgd(1.0);
    let mut params = Array1::from(vec![bf16::from_f32(0.0); 3]);
    let mut state = optimizer.init(&params).unwrap();
    // In bf16 each 1/256 would be lost; the sum is rounded once.
    let rows = SparseRows::new([1, 1, 1], Array1::from(vec![one, tiny, tiny]));
    optimizer.step(&mut params, &rows, &mut state).unwrap();
    assert_eq!(params[1].to_f32(), -(1.0 + 1.0 / 128.0));
    assert_eq!([params[0].to_f32(), params[2].to_f32()], [0.0; 2]);
}

#[cfg(feature = "rayon")]
#[test]
fn row_sparse_steps_do_not_depend_on_the_number_of_threads() {
    let optimizer = chain((clip_by_global_norm(1.0), rowwise_adagrad(0.1), scale_by_adam()));
    let run = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let mut params = Array2::<f32>::from_elem((20_000, 33), 0.5);
            let mut state = optimizer.init(&params).unwrap();
            for step in 0..3 {
                let indices: Vec<usize> = (0..9_000).map(|i| (i * i + step) % 19_000).collect();
                let values = Array2::from_shape_fn((9_000, 33), |(i, j)| number(i * 33 + j + step) as f32);
                optimizer.step(&mut params, &SparseRows::new(indices, values), &mut state).unwrap();
            }
            (params, state)
        })
    };
    let (params, state) = run(1);
    for threads in [2, 5] {
        let (other, state_of_other) = run(threads);
        assert!(params == other && same_bits(&*state, &*state_of_other), "{threads} threads");
    }
}

#[test]
fn leaves_without_rows_and_rows_without_elements() {
    fn step<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(optimizer: T) {
        for shape in [(0, 3), (3, 0), (0, 0)] {
            let mut params = (Array2::<f64>::zeros(shape), 1.0_f64);
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &(Array2::<f64>::zeros(shape), 1.0), &mut state).unwrap();
            let indices: Vec<usize> = (0..shape.0).rev().collect();
            let rows = SparseRows::new(indices, Array2::<f64>::zeros(shape));
            optimizer.step(&mut params, &(rows, 1.0), &mut state).unwrap();
            assert!(params.1 < 1.0, "{shape:?}");
        }
    }
    step(sgd(0.1));
    step(adam(0.1));
    step(rowwise_adagrad(0.1));
    step(chain((clip_by_global_norm(1.0), adagrad(0.1))));
}
