//! Leaves that are clones of one array train as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::tree::{SparseRows, Tied, tree_add_scaled};
use gradchain::wrapper::skip_absent;
use ndarray::{ArcArray1, ArcArray2, Array1, Array2, array};

#[derive(Tree)]
struct Model {
    embedding: ArcArray2<f32>,
    bias: Array1<f32>,
    output: ArcArray2<f32>,
}

#[derive(Tree, Clone)]
struct Gradients {
    embedding: Array2<f32>,
    bias: Array1<f32>,
    output: Array2<f32>,
}

#[derive(Tree, Clone)]
struct Single {
    embedding: Array2<f32>,
    bias: Array1<f32>,
}

fn numbers(seed: usize) -> Array2<f32> {
    Array2::from_shape_fn((3, 2), |(i, j)| ((i * 37 + j * 91 + seed * 53) % 19) as f32 / 7.0 - 1.3)
}

fn gradients(step: usize) -> Gradients {
    let bias = array![0.25 * step as f32, -3.0];
    Gradients { embedding: numbers(2 * step), bias, output: numbers(2 * step + 1) }
}

fn model() -> Model {
    let shared = numbers(100).into_shared();
    Model { embedding: shared.clone(), bias: array![1.0, -2.0], output: shared }
}

fn trains_as_one<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) {
    let mut model = model();
    let mut single = Single { embedding: model.embedding.to_owned(), bias: model.bias.clone() };
    let place = model.embedding.as_ptr();
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let mut of_single = optimizer.init(&single).unwrap();
    for step in 0..5 {
        let given = gradients(step);
        let mut tied = Tied::of(&mut model).unwrap();
        let sum = tied.sum_gradients(&given).unwrap();
        optimizer.step(&mut tied, &sum, &mut state).unwrap();
        drop(tied);
        let sum = Single { embedding: &given.embedding + &given.output, bias: given.bias };
        optimizer.step(&mut single, &sum, &mut of_single).unwrap();
        assert_eq!((&model.embedding.to_owned(), &model.bias), (&single.embedding, &single.bias), "step {step}");
        assert_eq!([model.embedding.as_ptr(), model.output.as_ptr()], [place; 2], "step {step}");
    }
    assert!(gradchain::state::same_bits(&*state, &*of_single));
}

#[test]
fn tied_leaves_train_as_one_whose_gradient_is_the_sum() {
    trains_as_one(&adam(0.1));
    trains_as_one(&chain((clip_by_global_norm(1.0), sgd(0.1).momentum(0.9))));
    trains_as_one(&multi_steps(adamw(0.1).mask(Mask::path("embedding")), 2));
}

#[test]
fn entries_of_a_map_are_tied() {
    let shared = array![1.0_f64, -2.0].into_shared();
    let entry = |name: &str, array: &ArcArray1<f64>| (name.to_owned(), array.clone());
    let mut params = BTreeMap::from([entry("a", &array![0.5].into_shared()), entry("b", &shared), entry("c", &shared)]);
    params.insert("d".into(), shared);
    let grads = BTreeMap::from([
        ("a".to_owned(), array![1.0_f64]),
        ("b".into(), array![0.1, 1.0]),
        ("c".into(), array![0.2, -4.0]),
        ("d".into(), array![0.3, 8.0]),
    ]);
    let optimizer = sgd(0.5);
    let mut state = optimizer.init(&Tied::of(&mut params).unwrap()).unwrap();
    assert_eq!(state.structure().paths().collect::<Vec<_>>(), ["a", "b"]);
    let mut tied = Tied::of(&mut params).unwrap();
    let sum = tied.sum_gradients(&grads).unwrap();
    optimizer.step(&mut tied, &sum, &mut state).unwrap();
    drop(tied);
    let expected = array![1.0 - 0.5 * (0.1 + 0.2 + 0.3), -2.0 - 0.5 * 5.0].into_shared();
    assert_eq!((&params["a"], &params["b"]), (&array![0.0].into_shared(), &expected));
    assert!([&params["c"], &params["d"]].iter().all(|other| other.as_ptr() == params["b"].as_ptr()));
}

#[test]
fn a_clone_outside_of_the_parameters_keeps_its_values() {
    let mut model = model();
    let before = model.output.clone();
    let optimizer = sgd(1.0);
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let mut tied = Tied::of(&mut model).unwrap();
    let sum = tied.sum_gradients(gradients(1)).unwrap();
    optimizer.step(&mut tied, &sum, &mut state).unwrap();
    drop(tied);
    assert_eq!(before, numbers(100).into_shared());
    assert_ne!(model.output, before);
    assert_eq!(model.output.as_ptr(), model.embedding.as_ptr());
}

#[test]
fn a_step_that_fails_leaves_them_shared() {
    let mut model = model();
    let optimizer = sgd(1.0);
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let mut tied = Tied::of(&mut model).unwrap();
    let error = optimizer.step(&mut tied, &gradients(1), &mut state).unwrap_err();
    assert!(error.to_string().ends_with("unexpected leaf output: f32 [3, 2]"), "{error}");
    drop(tied);
    assert_eq!((model.embedding.as_ptr(), &model.output), (model.output.as_ptr(), &numbers(100).into_shared()));
}

#[test]
fn the_path_is_the_first() {
    let mut model = model();
    let optimizer = masked(sgd(1.0), Mask::path("output"));
    let error = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap_err();
    assert!(error.is_no_match(), "{error}");
    let error = sgd(1.0).init(&model).unwrap_err().to_string();
    assert!(error.contains("tie them with `tree::Tied`"), "{error}");
}

#[test]
fn only_clones_are_tied() {
    let shared = ArcArray2::<f64>::zeros((2, 2));
    let refused = |error: gradchain::Error| {
        assert_eq!(
            error.to_string(),
            "only clones of an `ArcArray`, in one shape, can be tied; other leaves share memory: 1 difference\
             \n  1: shares memory with `0`"
        );
    };
    refused(Tied::of(&mut (shared.clone(), shared.clone().reversed_axes())).unwrap_err());
    refused(Tied::of(&mut (shared.clone(), shared.slice_move(ndarray::s![.., 1..]))).unwrap_err());
    let shared = Arc::new(vec![1.0_f32]);
    let mut params = (shared.clone(), shared);
    refused(Tied::of(&mut params).unwrap_err());
    assert!(Arc::ptr_eq(&params.0, &params.1), "asking copies nothing");
    // Empty arrays are not shared.
    let (scalar, empty) =
        (ArcArray1::from_vec(vec![2.0_f64]).into_shape_with_order(()).unwrap(), ArcArray1::<f64>::from_vec(vec![]));
    let mut params = (scalar.clone(), scalar, empty.clone(), empty);
    let tied = Tied::of(&mut params).unwrap();
    assert_eq!(gradchain::tree::Structure::of(&tied).unwrap().paths().collect::<Vec<_>>(), ["0", "2", "3"]);
    drop(tied);
    assert_eq!(params.1.first(), Some(&2.0));
}

#[test]
fn gradients_that_do_not_fit_are_refused_by_path() {
    #[derive(Tree)]
    struct Some3 {
        embedding: Option<SparseRows<Array2<f32>>>,
        bias: SparseRows<Array1<f32>>,
        output: Option<Array2<f32>>,
    }
    let mut model = model();
    let tied = Tied::of(&mut model).unwrap();
    let rows = || SparseRows::new(vec![0, 1, 2], numbers(1));
    let bias = || SparseRows::new(vec![1], array![2.0_f32]);
    let refused = |gradients: Some3, expected: &str| {
        assert_eq!(tied.sum_gradients(&gradients).unwrap_err().to_string(), expected);
    };
    refused(
        Some3 { embedding: Some(rows()), bias: bias(), output: Some(numbers(2)) },
        "sum_gradients: argument `embedding` must be dense, since the leaf is tied, found a row-sparse one",
    );
    let what = "the gradients do not fit the parameters that are tied: 1 difference\n  ";
    refused(
        Some3 { embedding: None, bias: bias(), output: Some(numbers(2)) },
        &format!("{what}missing leaf embedding: f32 [3, 2]"),
    );
    let wrong = Gradients { output: array![[1.0]], ..gradients(1) };
    let error = tied.sum_gradients(&wrong).unwrap_err().to_string();
    assert_eq!(error, format!("{what}output: expected shape [3, 2], found [1, 1]"));
    drop(tied);

    // Another leaf's row-sparse gradients pass; all gradients of one array may be absent.
    let optimizer = skip_absent(sgd(0.5));
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let mut tied = Tied::of(&mut model).unwrap();
    let sum = tied.sum_gradients(Some3 { embedding: None, bias: bias(), output: None }).unwrap();
    optimizer.step(&mut tied, &sum, &mut state).unwrap();
    drop(tied);
    assert_eq!((model.bias, model.output), (array![1.0, -3.0], numbers(100).into_shared()));
}

#[test]
fn gradients_of_several_types_are_added_in_the_widest() {
    let shared = ArcArray1::from_vec(vec![0.0_f32]);
    let mut params = (shared.clone(), shared);
    let tied = Tied::of(&mut params).unwrap();
    let sum = tied.sum_gradients((array![1.0_f32], array![1e-12_f64])).unwrap();
    let mut total = array![0.0_f64];
    tree_add_scaled(&mut (&mut total,), 1.0, &sum).unwrap();
    assert_eq!(total, array![1.0 + 1e-12]);
}
