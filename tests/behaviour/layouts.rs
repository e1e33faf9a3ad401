//! Weight layouts and the choice of matrices: `muon` matches PyTorch and Jordan.

use gradchain::prelude::*;
use gradchain::transform::{
    DimensionNumbers, Layout, MatrixAxes, WeightDimensionNumbers, scale_by_muon, scale_by_shape,
};
use gradchain::tree::{DynTree, Slices, SlicesMut, Structure, Tied, Walk, WalkMut};
use gradchain::{Tree, WarningKind};
use ndarray::{ArcArray, Array1, Array2, Array4, ArrayD, IxDyn};

fn wave(shape: &[usize], seed: f64) -> ArrayD<f64> {
    let mut i = 0.0;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        i += 1.0;
        (i * 1.7 + seed).sin() + 0.3 * (i * i * 0.13).cos()
    })
}

fn first<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(t: &T, gradient: &ArrayD<f64>) -> ArrayD<f64> {
    let updates = t.update(gradient, &mut t.init(gradient).unwrap(), gradient).unwrap();
    ArrayD::from_shape_vec(gradient.raw_dim(), updates.to_vec::<f64>("").unwrap()).unwrap()
}

fn norm(x: impl IntoIterator<Item = f64>) -> f64 {
    x.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// In `f64`, except for the terms added to norms.
///
/// With Nesterov only the first step matches: Optax corrects the bias of the look-ahead mean, PyTorch does not.
#[test]
fn steps_are_those_of_pytorch() {
    let recorded: serde_json::Value = serde_json::from_str(include_str!("../data/pytorch/muon.json")).unwrap();
    let matrix = |list: &serde_json::Value| {
        let rows = list.as_array().unwrap();
        let numbers = rows.iter().flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap());
        Array2::from_shape_vec((rows.len(), rows[0].as_array().unwrap().len()), numbers.collect()).unwrap()
    };
    let mut compared = 0;
    for run in recorded["runs"].as_array().unwrap() {
        let arguments = run["arguments"].as_object().unwrap();
        let consistent = (arguments.get("adjust_lr_fn").is_some()).then_some(0.2);
        let nesterov = arguments.get("nesterov").is_none();
        let optimizer = muon(1.0).layout(Layout::OutIn).consistent_rms(consistent).nesterov(nesterov);
        let [gradients, after] = ["gradients", "after"].map(|name| run[name].as_array().unwrap());
        let mut params = matrix(&gradients[0]) * 0.0;
        let (mut state, mut theirs) = (optimizer.init(&params).unwrap(), params.clone());
        for (gradient, after) in gradients.iter().zip(after).take(if nesterov { 1 } else { 3 }) {
            let before = params.clone();
            optimizer.step(&mut params, &matrix(gradient), &mut state).unwrap();
            let (step, expected) = (&params - &before, matrix(after) - &theirs);
            let apart = norm(&step - &expected) / norm(expected.clone());
            assert!(apart < 1e-6, "{} {arguments:?}: {apart}", run["shape"]);
            theirs = matrix(after);
            compared += 1;
        }
    }
    assert_eq!(compared, 20);
}

/// The factor is `√(max(1, outputs / inputs))`.
///
/// Kernels are matrices of outputs by all other axes.
#[test]
fn factors_are_those_of_jordan_for_matrices_and_kernels() {
    let cases: [&[usize]; 9] =
        [&[64, 16], &[16, 64], &[5, 5], &[1, 7], &[7, 1], &[16, 1, 3, 3], &[64, 3, 2, 2], &[3, 8, 3, 3], &[12, 2, 4]];
    for shape in cases {
        let (outputs, inputs) = (shape[0], shape[1..].iter().product::<usize>());
        let factor = (outputs as f64 / inputs as f64).max(1.0).sqrt();
        let gradient = wave(shape, outputs as f64);
        let flat = gradient.clone().into_shape_with_order(IxDyn(&[outputs, inputs])).unwrap();
        let orthogonal = first(&scale_by_muon(), &flat);
        let numbers = |layout: Layout| WeightDimensionNumbers::default().at("**", layout);
        let check = |what: &str, found: ArrayD<f64>| {
            let found = found.as_standard_layout().to_owned();
            let apart = found.iter().zip(&orthogonal).map(|(x, o)| (x + factor * o).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-10, "{shape:?} {what}: {apart}");
        };
        let as_kernel = muon(1.0).layout(Layout::OutIn).muon_weight_dimension_numbers(numbers(Layout::OutIn));
        check("[out, in, k..]", first(&as_kernel, &gradient));
        let mut axes: Vec<usize> = (1..shape.len()).collect();
        axes.push(0);
        let turned = gradient.clone().permuted_axes(IxDyn(&axes)).as_standard_layout().to_owned();
        let as_flax = muon(1.0).muon_weight_dimension_numbers(numbers(Layout::InOut));
        let mut back: Vec<usize> = vec![shape.len() - 1];
        back.extend(0..shape.len() - 1);
        check("[k.., in, out]", first(&as_flax, &turned).permuted_axes(IxDyn(&back)));
        // A pattern's layout overrides the general one.
        let as_flax = muon(1.0).layout(Layout::OutIn).muon_weight_dimension_numbers(numbers(Layout::InOut));
        check("by pattern", first(&as_flax, &turned).permuted_axes(IxDyn(&back)));
        if shape.len() == 2 {
            check("[out, in]", first(&muon(1.0).layout(Layout::OutIn), &gradient));
            check("[in, out]", first(&muon(1.0), &turned).permuted_axes(IxDyn(&back)));
        }
    }
}

#[derive(Clone)]
struct Linear {
    weight: ArcArray<f64, ndarray::Ix2>,
}

impl Tree for Linear {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.layout(Layout::OutIn);
        walk.child("weight", &self.weight);
    }
}

impl TreeMut for Linear {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.child("weight", &mut self.weight);
    }
}

#[test]
fn a_tree_says_how_its_weights_are_stored() {
    let layouts = |tree: &dyn Fn() -> Structure| tree().leaves().iter().map(|leaf| leaf.layout()).collect::<Vec<_>>();
    use Layout::{InOut, OutIn};
    let plain = || Array2::<f64>::zeros((4, 2));
    let linear = || Linear { weight: ArcArray::zeros((4, 2)) };
    assert_eq!(layouts(&|| Structure::of(&(plain(), linear(), plain())).unwrap()), [InOut, OutIn, InOut]);
    assert_eq!(
        layouts(&|| Structure::of(&vec![(linear(), plain()), (linear(), plain())]).unwrap()),
        [OutIn, InOut, OutIn, InOut]
    );
    assert_eq!(layouts(&|| Structure::of(&Some(Box::new(linear()))).unwrap()), [OutIn]);
    // Wrappers that replace leaves.
    let shared = linear();
    let mut model = (shared.clone(), plain(), shared);
    assert_eq!(layouts(&|| Structure::of(&Tied::of(&mut model.clone()).unwrap()).unwrap()), [OutIn, InOut]);
    let optimizer = muon(1.0);
    let mut state = optimizer.init(&Tied::of(&mut model).unwrap()).unwrap();
    let gradient = Array2::from_shape_fn((4, 2), |(i, j)| ((i * 2 + j) as f64).sin());
    let mut tied = Tied::of(&mut model).unwrap();
    let of_weight = |weight: Array2<f64>| Linear { weight: weight.into_shared() };
    let grads = (of_weight(gradient.clone()), gradient.clone(), of_weight(gradient.clone() * 0.0));
    let grads = tied.sum_gradients(grads).unwrap();
    optimizer.step(&mut tied, &grads, &mut state).unwrap();
    drop(tied);
    let ratio = norm(model.0.weight.iter().copied()) / norm(model.1.iter().copied());
    assert!((ratio - 2.0_f64.sqrt()).abs() < 1e-12, "{ratio}");

    // The argument overrides the tree's layout; trees without one fit a state with one.
    let data: Vec<f64> = gradient.iter().copied().collect();
    let params = |layout: Layout| Slices::new().with("w", &data, &[4, 2]).unwrap().layout(layout);
    let update = |optimizer: gradchain::optimizer::Muon, layout: Layout| {
        let params = params(layout);
        let mut state = optimizer.init(&params).unwrap();
        let grads = Slices::new().with("w", &data, &[4, 2]).unwrap();
        optimizer.update(&grads, &mut state, &grads).unwrap().to_vec::<f64>("w").unwrap()
    };
    let ratio = |a: Vec<f64>, b: Vec<f64>| norm(a) / norm(b);
    let [in_out, out_in] = [InOut, OutIn].map(|layout| update(muon(1.0), layout));
    assert!((ratio(out_in.clone(), in_out.clone()) - 2.0_f64.sqrt()).abs() < 1e-12);
    assert_eq!(update(muon(1.0).layout(OutIn), InOut), update(muon(1.0).layout(OutIn), OutIn));
    assert!((ratio(update(muon(1.0).layout(InOut), OutIn), in_out) - 1.0).abs() < 1e-12);
    assert_eq!(Structure::of(&params(InOut)).unwrap(), Structure::of(&params(OutIn)).unwrap());
    let mut room = data.clone();
    let to_write = SlicesMut::new().with("w", &mut room, &[4, 2]).unwrap().layout(OutIn);
    assert_eq!(Structure::of(&to_write).unwrap().leaves()[0].layout(), OutIn);
}

fn model() -> DynTree {
    let mut params = DynTree::new();
    params.insert("conv1/bias", Array1::<f32>::zeros(8));
    params.insert("conv1/weight", Array4::<f32>::zeros((8, 3, 5, 5)));
    params.insert("embed/weight", Array2::<f32>::zeros((50, 16)));
    params.insert("fc/bias", Array1::<f32>::zeros(4));
    params.insert("fc/weight", Array2::<f32>::zeros((4, 16)));
    params.insert("norm/weight", Array1::<f32>::zeros(16));
    params
}

/// Returns the leaves that muon takes, and those that `plan` names.
fn taken(numbers: WeightDimensionNumbers) -> (Vec<bool>, Vec<String>) {
    let (params, optimizer) = (model(), muon(0.1).muon_weight_dimension_numbers(numbers));
    let state = optimizer.init(&params).unwrap();
    let warnings = optimizer.plan(&params).unwrap().warnings;
    let mut named = Vec::new();
    for warning in warnings.iter().filter(|warning| warning.kind == WarningKind::LeftToAdam) {
        assert_eq!(warning.place, "$.muon");
        named.extend(warning.reason.split('`').skip(5).step_by(2).map(String::from));
    }
    ((0..params.len()).map(|leaf| state.member_of(leaf) == Some(0)).collect(), named)
}

#[test]
fn patterns_select_matrices_and_the_plan_names_leaves_left_to_adam() {
    let numbers = WeightDimensionNumbers::default;
    let (yes, no) = (true, false);
    assert_eq!(taken(numbers()), (vec![no, no, yes, no, yes, no], vec!["conv1/weight".into()]));
    // Other leaves are adam's.
    let weights = numbers().at("**/weight", Layout::OutIn);
    assert_eq!(taken(weights.clone()), (vec![no, yes, yes, no, yes, no], vec!["norm/weight".into()]));
    // The first match wins.
    let first = numbers().at("{embed,norm}/**", None).at("**/weight", Layout::OutIn);
    assert_eq!(taken(first), (vec![no, yes, no, no, yes, no], vec![]));
    assert_eq!(taken(weights.at("embed/**", None)).0[2], yes);
    let axes = numbers().at("**/weight", DimensionNumbers::new([1, 2, 3], [0]));
    let named = ["embed/weight", "fc/weight", "norm/weight"].map(String::from);
    assert_eq!(taken(axes), (vec![no, yes, no, no, no, no], named.to_vec()));
    // Paths win over patterns.
    let both = WeightDimensionNumbers::tree([("embed", MatrixAxes::NoMatrix), ("conv1/weight", Layout::OutIn.into())]);
    assert_eq!(taken(both.at("*/weight", Layout::InOut)).0, [no, yes, no, no, yes, no]);
    // Leaves behind a mask are not checked.
    let elsewhere = masked(muon(0.1), !Mask::path("conv1/*"));
    let warnings = elsewhere.plan(&model()).unwrap().warnings;
    assert!(warnings.iter().all(|warning| warning.kind != WarningKind::LeftToAdam), "{warnings:?}");
}

#[test]
fn invalid_weight_dimension_numbers_are_refused() {
    let message = |numbers: WeightDimensionNumbers| {
        muon(0.1).muon_weight_dimension_numbers(numbers).init(&model()).unwrap_err().to_string()
    };
    let nearest_pattern = message(WeightDimensionNumbers::default().at("fc/wieght", Layout::OutIn));
    assert!(
        nearest_pattern.contains("weight_dimension_numbers") && nearest_pattern.contains("`fc/wieght`"),
        "{nearest_pattern}"
    );
    assert!(nearest_pattern.contains("did you mean `fc/weight`"), "{nearest_pattern}");
    let malformed = message(WeightDimensionNumbers::default().at("fc/{a", None));
    assert!(malformed.contains("well-formed"), "{malformed}");
    // A named leaf must have the axes.
    let named = message(WeightDimensionNumbers::tree([("norm/weight", Layout::OutIn)]));
    let axes = message(WeightDimensionNumbers::tree([("fc/weight", DimensionNumbers::new([2], [0]))]));
    assert!(axes.contains("fc/weight"), "{axes}");
    assert!(named.contains("norm/weight"), "{named}");
    for error in [scale_by_muon().init(&model()).unwrap_err(), scale_by_shape().init(&model()).unwrap_err()] {
        assert!(error.to_string().contains("conv1/bias"), "{error}");
    }
}

#[cfg(feature = "config")]
#[test]
fn layouts_and_patterns_are_configs() {
    use gradchain::config::{Config, build};
    let numbers = WeightDimensionNumbers::tree([("heads", DimensionNumbers::new([0], [-1]))]);
    let numbers = numbers.at("embed/**", None).at("**/weight", Layout::OutIn).at("w", DimensionNumbers::new([1], [0]));
    let optimizer = muon(0.1).layout(Layout::OutIn).muon_weight_dimension_numbers(numbers);
    let config = Config::of(&optimizer).unwrap();
    let json = config.to_json();
    for part in ["\"layout\":\"out_in\"", "[\"**/weight\",\"out_in\"]", "[\"embed/**\",null]"] {
        assert!(json.replace([' ', '\n'], "").contains(part), "{json}");
    }
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(Config::of(&build(&value).unwrap()).unwrap().to_json(), json);
    let wrong = serde_json::json!({"muon": {"learning_rate": 0.1, "layout": "outin"}});
    let error = build(&wrong).unwrap_err().to_string();
    assert!(error.contains("$.muon.layout") && error.contains("out_in"), "{error}");
}
