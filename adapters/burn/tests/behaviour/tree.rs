//! A module as a tree.

use burn::backend::Flex;
use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gradchain::prelude::*;
use gradchain::schedule::from_fn;
use gradchain::tree::{Structure, tree_fill};
use gradchain::wrapper::{freeze, skip_absent};
use gradchain_burn::{init, params, params_mut, step};

use crate::{Mlp, device, values};

fn address<const D: usize>(param: &Param<Tensor<D>>) -> *const u8 {
    param.val().inner().try_into_primitive::<Flex>().unwrap().bytes().as_ptr()
}

fn paths<M: Module>(module: &M) -> Vec<String> {
    Structure::of(&params(module).unwrap()).unwrap().paths().map(String::from).collect()
}

#[derive(Module, Debug)]
enum Head {
    Plain(Linear),
    Two([Linear; 2]),
}

#[derive(Module, Debug)]
struct Nested {
    blocks: Vec<Linear>,
    head: Head,
    norm: BatchNorm,
    none: Option<Linear>,
}

#[test]
fn paths_are_names_and_numbers() {
    let device = device();
    let linear = || LinearConfig::new(2, 2).with_bias(false).init(&device);
    let heads = [Head::Plain(linear()), Head::Two([linear(), linear()])];
    let norm = BatchNormConfig::new(2).init(&device);
    let module = |head| Nested { blocks: vec![linear(), linear()], head, norm: norm.clone(), none: None };
    let [plain, two] = heads.map(|head| paths(&module(head)));
    assert_eq!(plain, ["blocks/0/weight", "blocks/1/weight", "head/Plain/weight", "norm/gamma", "norm/beta"]);
    assert_eq!(two[2..4], ["head/Two/0/weight", "head/Two/1/weight"]);
    assert_eq!(paths(&Mlp::new(&device)), ["fc1/weight", "fc1/bias", "fc2/weight", "fc2/bias"]);
}

#[test]
fn masks_and_plans_go_by_path() {
    let mut mlp = Mlp::new(&device());
    let before = values(&mlp);
    let optimizer = chain((sgd(0.5), freeze("fc1/**")));
    assert_eq!(optimizer.plan(&params(&mlp).unwrap()).unwrap().elements, 6 * 5 + 5 + 5 * 3 + 3);
    let mut state = init(&optimizer, &mlp).unwrap();
    let grads = mlp.gradients(0);
    step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
    let after = values(&mlp);
    assert_eq!(before[..2], after[..2]);
    assert!(before[2] != after[2] && before[3] != after[3]);
    let error = init(&sgd(0.5).momentum(0.5), &mlp).map(|_| ());
    assert!(error.is_ok());
    assert!(init(&masked(sgd(0.5), Mask::path("fc3/**")), &mlp).unwrap_err().is_no_match());
}

#[test]
fn steps_copy_nothing_and_keep_ids() {
    let mut mlp = Mlp::new(&device());
    let optimizer = chain((clip_by_global_norm(1.0), adamw(1e-3).mask(Mask::path("**/weight"))));
    let mut state = init(&optimizer, &mlp).unwrap();
    let place = |mlp: &Mlp| {
        let (a, b) = (&mlp.fc1, &mlp.fc2);
        let bias = |linear: &Linear| linear.bias.as_ref().map(|bias| (address(bias), bias.id));
        [(address(&a.weight), a.weight.id), (address(&b.weight), b.weight.id), bias(a).unwrap(), bias(b).unwrap()]
    };
    let first = place(&mlp);
    for number in 0..100 {
        let grads = mlp.gradients(number);
        step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
        assert_eq!(place(&mlp), first, "step {number}");
    }
}

#[test]
fn a_clone_keeps_its_values() {
    let mut mlp = Mlp::new(&device());
    let (copy, before) = (mlp.clone(), values(&mlp));
    let snapshot = params(&mlp).unwrap();
    tree_fill(&mut params_mut(&mut mlp).unwrap(), 2.0);
    assert_eq!(values(&copy), before);
    let mut seen = Vec::new();
    gradchain::tree::for_each_leaf(&snapshot, |_, leaf| seen.push(leaf.to_f64()));
    assert_eq!(seen, before);
    assert!(values(&mlp).iter().flatten().all(|x| *x == 2.0));
}

#[test]
fn frozen_parameters_rest_and_statistics_are_none() {
    let device = device();
    let mut mlp = Mlp::new(&device);
    mlp.fc1 = mlp.fc1.no_grad();
    assert_eq!(paths(&mlp), ["fc2/weight", "fc2/bias"]);
    let (before, optimizer) = (values(&mlp), adamw(0.1));
    let mut state = init(&optimizer, &mlp).unwrap();
    let grads = mlp.gradients(3);
    step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
    let after = values(&mlp);
    assert_eq!(before[..2], after[..2]);
    assert_ne!(before[2], after[2]);
    assert!(!mlp.fc1.weight.is_require_grad() && mlp.fc2.weight.is_require_grad());
    // Frozen when the state was made.
    mlp.fc1 = mlp.fc1.set_require_grad(true);
    let grads = mlp.gradients(3);
    let error = step(&optimizer, &mut mlp, &grads, &mut state).unwrap_err();
    assert!(error.is_structure() && error.to_string().contains("fc1/weight"), "{error}");
    assert_eq!(values(&mlp), after);
}

#[derive(Module, Debug)]
struct Tied {
    one: Linear,
    two: Linear,
}

#[test]
fn a_parameter_in_two_places_is_one() {
    let device = device();
    let one = LinearConfig::new(3, 3).with_bias(false).init(&device);
    let mut tied = Tied { two: one.clone(), one };
    assert_eq!(paths(&tied), ["one/weight"]);
    let optimizer = adamw(0.1);
    let mut state = init(&optimizer, &tied).unwrap();
    let x = Tensor::<2>::ones([2, 3], &device);
    for _ in 0..5 {
        let grads = tied.two.forward(tied.one.forward(x.clone())).powi_scalar(2).sum().backward();
        let grads = GradientsParams::from_grads(grads, &tied);
        step(&optimizer, &mut tied, &grads, &mut state).unwrap();
        assert_eq!(address(&tied.one.weight), address(&tied.two.weight));
        assert_eq!(tied.one.weight.id, tied.two.weight.id);
    }
    // burn leaves the second unchanged.
    let grads = tied.two.forward(tied.one.forward(x)).powi_scalar(2).sum().backward();
    let grads = GradientsParams::from_grads(grads, &tied);
    let theirs = burn::optim::SgdConfig::new().init().step(0.1, tied.clone(), grads);
    assert_ne!(values(&theirs.one), values(&theirs.two));
    // Equal copies, as after loading, become one parameter; different ones are an error.
    let copy = Tensor::from_data(tied.one.weight.val().into_data(), &device).require_grad();
    tied.two.weight = Param::initialized(tied.two.weight.id, copy);
    assert_eq!(paths(&tied), ["one/weight"]);
    tree_fill(&mut params_mut(&mut tied).unwrap(), 0.25);
    assert_eq!(address(&tied.one.weight), address(&tied.two.weight));
    let error = params(&theirs).unwrap_err().to_string();
    assert!(error.contains("two/weight") && error.contains("one/weight"), "{error}");
}

#[test]
fn two_parameters_that_begin_as_one_tensor_are_two() {
    let tensor = Tensor::<2>::ones([2, 2], &device());
    let linear = || Linear { weight: Param::from_tensor(tensor.clone()), bias: None };
    let mut two = Tied { one: linear(), two: linear() };
    assert_eq!(paths(&two), ["one/weight", "two/weight"]);
    let optimizer = chain((sgd(1.0), freeze("one/**")));
    let mut state = init(&optimizer, &two).unwrap();
    let mut grads = GradientsParams::new();
    grads.register(two.one.weight.id, tensor.clone().inner());
    grads.register(two.two.weight.id, tensor.inner());
    step(&optimizer, &mut two, &grads, &mut state).unwrap();
    assert_eq!(values(&two), [vec![1.0; 4], vec![0.0; 4]]);
}

fn typed(dtype: DType, device: &Device) -> (Param<Tensor<1>>, GradientsParams) {
    let tensor = |data: [f64; 3]| Tensor::<1>::from_data(TensorData::from(data), (device, dtype));
    let param = Param::from_tensor(tensor([1.0, -2.0, 0.5]));
    let mut grads = GradientsParams::new();
    grads.register(param.id, tensor([0.5, 3.0, -8.0]).inner());
    (param, grads)
}

#[test]
fn all_float_types_have_the_bits_of_slices() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let (mut param, grads) = typed(dtype, &device());
        let optimizer = adamw(0.125);
        let mut state = init(&optimizer, &param).unwrap();
        let (mut there, there_grads) = (params(&param).unwrap(), gradchain_burn::gradients(&param, &grads).unwrap());
        let mut there_state = optimizer.init(&there).unwrap();
        for _ in 0..10 {
            step(&optimizer, &mut param, &grads, &mut state).unwrap();
            optimizer.step(&mut there, &there_grads, &mut there_state).unwrap();
        }
        let mut expected = Vec::new();
        gradchain::tree::for_each_leaf(&there, |_, leaf| expected.push(leaf.to_f64()));
        assert_eq!(values(&param), expected, "{dtype:?}");
        assert_eq!(param.val().dtype(), dtype);
        assert_ne!(expected[0][0], 1.0);
    }
}

#[cfg(feature = "ndarray")]
#[test]
#[allow(deprecated, reason = "as long as burn has it")]
fn the_older_backend_is_bitwise_identical() {
    for dtype in [DType::F64, DType::F32] {
        let run = |device: &Device| {
            let (mut param, grads) = typed(dtype, device);
            let optimizer = adamw(0.125);
            let mut state = init(&optimizer, &param).unwrap();
            for _ in 0..10 {
                step(&optimizer, &mut param, &grads, &mut state).unwrap();
            }
            values(&param)
        };
        assert_eq!(run(&device()), run(&Device::ndarray().autodiff()), "{dtype:?}");
    }
}

#[test]
fn transposed_parameters_are_made_contiguous_once() {
    let device = device();
    let tensor = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device).transpose().detach();
    let mut param = Param::from_tensor(tensor);
    let optimizer = sgd(1.0);
    let mut state = init(&optimizer, &param).unwrap();
    let mut grads = GradientsParams::new();
    let gradient = Tensor::<2>::from_floats([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]], &device.clone().inner()).transpose();
    grads.register(param.id, gradient);
    step(&optimizer, &mut param, &grads, &mut state).unwrap();
    assert_eq!(values(&param), [[0.0, 4.0, 2.0, 5.0, 3.0, 4.0]]);
    let place = address(&param);
    step(&optimizer, &mut param, &grads, &mut state).unwrap();
    assert_eq!(address(&param), place);
}

#[test]
fn an_error_changes_nothing() {
    let device = device();
    let mut mlp = Mlp::new(&device);
    let optimizer = sgd(0.5).momentum(0.5);
    let mut state = init(&optimizer, &mlp).unwrap();
    let (before, place) = (values(&mlp), address(&mlp.fc1.weight));

    let mut grads = mlp.gradients(0);
    grads.remove::<2>(mlp.fc1.weight.id);
    let error = step(&optimizer, &mut mlp, &grads, &mut state).unwrap_err();
    assert!(error.is_structure() && error.to_string().contains("fc1/weight"), "{error}");
    grads.register(mlp.fc1.weight.id, Tensor::<2>::ones([6, 4], &device).inner());
    let error = step(&optimizer, &mut mlp, &grads, &mut state).unwrap_err();
    assert!(error.is_structure() && error.to_string().contains("fc1/weight"), "{error}");
    let mut grads = mlp.gradients(0);
    grads.register(burn::module::ParamId::new(), Tensor::<1>::ones([1], &device).inner());
    let error = step(&optimizer, &mut mlp, &grads, &mut state).unwrap_err();
    assert!(error.to_string().contains("1 of 5"), "{error}");
    let mut other = init(&optimizer, &mlp.fc1).unwrap();
    let error = step(&optimizer, &mut mlp, &grads, &mut other).unwrap_err();
    assert!(!error.to_string().is_empty());
    let error = init(&optimizer, &mlp.valid()).unwrap_err();
    assert!(error.to_string().contains("valid()"), "{error}");
    // The refusals changed nothing.
    assert_eq!((values(&mlp), address(&mlp.fc1.weight)), (before, place));
    let grads = mlp.gradients(0);
    step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
}

#[test]
fn an_absent_gradient_rests_if_the_optimizer_says_so() {
    let mut mlp = Mlp::new(&device());
    let optimizer = skip_absent(adamw(0.1));
    let mut state = init(&optimizer, &mlp).unwrap();
    let (before, mut grads) = (values(&mlp), mlp.gradients(0));
    grads.remove::<2>(mlp.fc1.weight.id);
    step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
    let after = values(&mlp);
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1], after[1]);
}

/// In the third step.
#[test]
fn a_panic_leaves_the_parameters() {
    let mut mlp = Mlp::new(&device());
    let optimizer = sgd(from_fn("panics", |count| if count == 2 { panic!("in a schedule") } else { 0.5 }));
    let mut state = init(&optimizer, &mlp).unwrap();
    for number in 0..2 {
        let grads = mlp.gradients(number);
        step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
    }
    let (before, grads) = (values(&mlp), mlp.gradients(2));
    let stepped =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&optimizer, &mut mlp, &grads, &mut state)));
    assert!(stepped.is_err());
    assert_eq!(values(&mlp), before);
}

#[test]
fn replaced_parameters_keep_their_state() {
    let device = device();
    let run = |replace: bool| {
        let mut layer = LinearConfig::new(2, 2).with_bias(false).init(&device);
        layer.weight = Param::from_tensor(Tensor::from_floats([[1.0, -2.0], [0.5, 3.0]], &device));
        let optimizer = sgd(0.125).momentum(0.5);
        let mut state = init(&optimizer, &layer).unwrap();
        for _ in 0..4 {
            if replace {
                // This puts the values under a new `ParamId`.
                layer.weight = Param::from_tensor(layer.weight.val().clamp(-9.0, 9.0).detach());
            }
            let grads = layer.forward(Tensor::<2>::ones([1, 2], &device)).powi_scalar(2).sum().backward();
            let grads = GradientsParams::from_grads(grads, &layer);
            step(&optimizer, &mut layer, &grads, &mut state).unwrap();
        }
        values(&layer)
    };
    assert_eq!(run(false), run(true));
}

#[derive(Module, Debug)]
struct Layers {
    conv: burn::nn::conv::Conv2d,
    linear: Linear,
    many: Vec<burn::nn::conv::Conv1d>,
}

#[test]
fn weights_of_convolutions_have_outputs_first_and_others_inputs() {
    use burn::nn::conv::{Conv1dConfig, Conv2dConfig};
    use gradchain::tree::{Layout, Structure};
    let device = device();
    let layers = Layers {
        conv: Conv2dConfig::new([2, 3], [2, 2]).init(&device),
        linear: LinearConfig::new(4, 5).init(&device),
        many: vec![Conv1dConfig::new(2, 3, 2).init(&device)],
    };
    let structure = Structure::of(&params(&layers).unwrap()).unwrap();
    for leaf in structure.leaves() {
        let expected = if leaf.path().starts_with("linear") { Layout::InOut } else { Layout::OutIn };
        assert_eq!(leaf.layout(), expected, "{leaf}");
    }
}
