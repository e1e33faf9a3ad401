//! Constraints of a tree's leaves: by path, by attribute, nested.

use super::*;
use gradchain::tree::{DynTree, Slices, Structure};
use ndarray::{Array1, Array2, array};

const TOP: f64 = 4.0;

#[derive(Clone, Debug, PartialEq, Tree)]
struct Layer {
    #[tree(rename = "w", constraint = weight_norm())]
    weight: Array2<f32>,
    bias: Array1<f32>,
}

#[derive(Clone, Debug, PartialEq, Tree)]
enum Noise {
    Scaled {
        #[tree(constraint = interval(0.0, TOP))]
        scale: f64,
    },
    Pair(#[tree(constraint = positive())] f64, f64),
    None,
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Model {
    name: String,
    layers: Vec<Layer>,
    noise: Noise,
    other: Noise,
    #[tree(constraint = simplex())]
    mixture: Option<Vec<f64>>,
    #[tree(constraint = positive_exp())]
    scales: (f64, Vec<f32>),
    #[tree(constraint = unit_norm())]
    absent: Option<Vec<f64>>,
    last: f64,
}

fn model() -> Model {
    let layer = |x: f32| Layer { weight: array![[x, 0.0], [0.0, -x]], bias: array![x, x] };
    Model {
        name: "two layers".into(),
        layers: vec![layer(1.0), layer(2.0)],
        noise: Noise::Scaled { scale: 2.0 },
        other: Noise::Pair(1.0, 5.0),
        mixture: Some(vec![0.5, 0.5]),
        scales: (1.0, vec![1.0, 1.0]),
        absent: None,
        last: -1.0,
    }
}

const PATHS: [&str; 13] = [
    "layers/0/w/length",
    "layers/0/w/direction",
    "layers/0/bias",
    "layers/1/w/length",
    "layers/1/w/direction",
    "layers/1/bias",
    "noise/Scaled/scale/raw",
    "other/Pair/0/raw",
    "other/Pair/1",
    "mixture/raw",
    "scales/0/raw",
    "scales/1/raw",
    "last",
];

#[test]
fn attributes_are_found_in_nested_structs() {
    let raw = Constraints::of(&model()).unconstrain(&model()).unwrap();
    assert_eq!(Structure::of(&raw).unwrap().paths().collect::<Vec<_>>(), PATHS);
    let constrained = raw.constrain().unwrap();
    assert_eq!(constrained.name, "two layers");
    assert_eq!(constrained.layers, model().layers);
    assert_eq!((&constrained.noise, constrained.last), (&Noise::Scaled { scale: 2.0 }, -1.0));
    let mut changed = model();
    (changed.noise, changed.other) = (Noise::None, Noise::None);
    assert_eq!(Structure::of(&Constraints::of(&changed).unconstrain(&changed).unwrap()).unwrap().len(), 10);
}

#[test]
fn raw_trees_can_be_written() {
    let mut raw = Constraints::of(&model()).unconstrain(&model()).unwrap();
    let paths = |raw: &Raw<Model>| listed(raw).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let numbers = wave(flat(&raw).len(), 0.8);
    put(&mut raw, &numbers);
    for (found, number) in flat(&raw).iter().zip(&numbers) {
        assert!((found - number).abs() < 1e-7, "as f32 at the worst");
    }
    assert_eq!(paths(&raw), PATHS);
    let pair = (1.0_f64, raw.clone());
    assert!(listed(&pair).into_iter().skip(1).map(|(path, _)| path).eq(PATHS.iter().map(|path| format!("1/{path}"))));
    let optimizer = sgd(1.0);
    let mut pair = pair;
    let mut state = optimizer.init(&pair).unwrap();
    let gradient = (0.0_f64, raw.pull_back(model()).unwrap());
    optimizer.step(&mut pair, &gradient, &mut state).unwrap();
    let (moved, pulled) = (flat(&pair.1), flat(&gradient.1));
    for ((moved, start), pulled) in moved.iter().zip(flat(&raw)).zip(pulled) {
        assert!((moved - (start - pulled)).abs() <= 1e-6, "{moved} is not {start} - {pulled}");
    }
}

#[test]
fn attributes_and_paths_go_together_but_not_twice() {
    let raw = Constraints::of(&model()).at("last", interval(-2.0, 0.0)).unconstrain(&model()).unwrap();
    assert_eq!(Structure::of(&raw).unwrap().leaves().last().unwrap().path(), "last/raw");
    let error = Constraints::of(&model()).at("mixture", unit_norm()).unconstrain(&model()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unconstrain: argument `mixture` must be under one constraint at most, \
         found Simplex { axis: None } and UnitNorm { axis: None }"
    );
}

#[test]
fn gradients_may_be_of_any_type_of_tree() {
    let mut params = DynTree::new();
    params.insert("a", array![1.0_f32, 2.0]);
    params.insert("b", array![1.0_f64]);
    let raw = Constraints::new().at("a", positive_exp()).unconstrain(&params).unwrap();
    let (a, b) = ([1.0_f64, 0.5], [3.0_f32]);
    let gradient = Slices::new().with("a", &a, &[2]).unwrap().with("b", &b, &[1]).unwrap();
    let pulled = raw.pull_back(&gradient).unwrap();
    assert_eq!(listed(&pulled), [("a/raw".into(), vec![1.0, 1.0]), ("b".into(), vec![3.0])]);
    let types: Vec<String> = Structure::of(&pulled).unwrap().leaves().iter().map(|l| l.dtype().to_string()).collect();
    assert_eq!(types, ["f32", "f32"], "constrained leaves in the raw leaf's type, the others as they were given");
}

#[test]
fn without_constraints_nothing_happens() {
    let raw = Constraints::new().unconstrain(&model()).unwrap();
    assert_eq!(*raw.constrain().unwrap(), model());
    assert_eq!(listed(&raw), listed(&model()));
    assert_eq!(listed(&raw.pull_back(model()).unwrap()), listed(&model()));
}

/// The path of a subtree is that of its raw leaves.
#[test]
fn masks_name_raw_leaves() {
    let raw = Constraints::of(&model()).unconstrain(&model()).unwrap();
    let structure = Structure::of(&raw).unwrap();
    let taken = Mask::path("**/direction").resolve(&structure, "test").unwrap();
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 2);
    let taken = Mask::path("layers/0/**").resolve(&structure, "test").unwrap();
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 3);
}

#[test]
fn raw_trees_are_debug_clone_send_and_sync() {
    fn sent<T: Send + Sync + Clone + std::fmt::Debug>(_: &T) {}
    let raw = Constraints::new().at("0", positive_exp()).unconstrain(&(1.0_f64, 2.0_f64)).unwrap();
    sent(&raw);
    sent(&raw.constrain().unwrap());
    sent(&raw.pull_back((1.0, 1.0)).unwrap());
    sent(&Constraints::new());
    assert_eq!(format!("{raw:?}"), r#"{"0/raw": [0.0], "1": [2.0]}"#);
}
