//! Doc tests for the rows of the guide's tables that no other doc test shows.
//!
//! They cover the lists "What stays the same" and "What does not" and the last table. `tests/behaviour/reference.rs`
//! tests the table "Beside burn's optimizers".
#![allow(dead_code, reason = "for its doc tests")]

/// paths: masks, labels, constraints, plans
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
/// use gradchain::constraint::{Constraints, interval};
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
/// use gradchain::tree::Structure;
/// use gradchain_burn::{init, params};
///
/// #[derive(Module, Debug)]
/// struct Net {
///     blocks: Vec<Linear>,
///     pair: [Linear; 1],
///     heads: (Linear, Linear),
/// }
///
/// let layer = || LinearConfig::new(2, 1).with_bias(false).init(&Device::flex().autodiff());
/// let net = Net { blocks: vec![layer(), layer()], pair: [layer()], heads: (layer(), layer()) };
/// let params = params(&net)?;
/// let paths = ["blocks/0/weight", "blocks/1/weight", "pair/0/weight", "heads/0/weight", "heads/1/weight"];
/// assert_eq!(Structure::of(&params)?.paths().collect::<Vec<_>>(), paths);
///
/// assert!(init(&masked(sgd(0.5), Mask::path("heads/*/weight")), &net).is_ok());
/// assert!(init(&masked(sgd(0.5), Mask::path("head/**")), &net).unwrap_err().is_no_match());
/// let labels = Labels::tree([("blocks", "slow"), ("pair", "slow"), ("heads", "fast")]);
/// assert!(init(&partition((("slow", sgd(0.125)), ("fast", sgd(0.5))), labels), &net).is_ok());
/// assert!(Constraints::new().at("pair/0/weight", interval(-9.0, 9.0)).unconstrain(&params).is_ok());
/// // The plan warns by path that `blocks` climbs.
/// let labels = Labels::tree([("blocks", "up"), ("pair", "down"), ("heads", "down")]);
/// let plan = partition((("up", scale(0.5)), ("down", sgd(0.5))), labels).plan(&params)?;
/// assert!(plan.to_string().contains("`blocks/0/weight`"));
/// # Ok::<(), gradchain::Error>(())
/// ```
mod paths {}

/// paths: checkpoints, migrations
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
/// use gradchain::Migration;
/// use gradchain::checkpoint::{Checkpoint, Load, Save};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, params, params_mut};
///
/// let layer = || LinearConfig::new(2, 1).with_bias(false).init(&Device::flex().autodiff());
/// let (one, mut two) = (vec![layer()], vec![layer(), layer()]);
/// let optimizer = sgd(0.5).momentum(0.5);
/// let mut file = std::io::Cursor::new(Vec::new());
/// Save::new(&optimizer, &init(&optimizer, &one)?).params(&params(&one)?).to_writer(&mut file)?;
///
/// let file = Checkpoint::from_bytes(file.into_inner())?;
/// let error = file.load(&optimizer, &mut params_mut(&mut two)?).unwrap_err().to_string();
/// assert!(error.contains("missing leaf 1/weight"), "{error}");
/// let load = Load::strict().migrating(Migration::new().fresh("1/weight"));
/// load.load(&file, &optimizer, &mut params_mut(&mut two)?)?;
/// assert_eq!(two[0].weight.val().into_data(), one[0].weight.val().into_data());
/// # Ok::<(), gradchain::Error>(())
/// ```
mod files {}

/// a step is all or nothing
///
/// ```
/// use std::panic::{AssertUnwindSafe, catch_unwind};
///
/// use burn::module::Param;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain::schedule::from_fn;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let [a, b] = [1.0, 2.0].map(|x| Param::from_tensor(Tensor::<1>::from_floats([x], &device.clone().autodiff())));
/// let mut module = (a, b);
/// let optimizer = sgd(from_fn("panics", |count| if count == 1 { panic!("in a schedule") } else { 1.0 }));
/// let mut state = init(&optimizer, &module)?;
///
/// let values = |(a, b): &(Param<Tensor<1>>, Param<Tensor<1>>)| [a, b].map(|x| x.val().into_scalar::<f32>());
///
/// // The gradient of `1` is missing.
/// let mut grads = GradientsParams::new();
/// grads.register(module.0.id, Tensor::<1>::ones([1], &device));
/// assert!(step(&optimizer, &mut module, &grads, &mut state).is_err());
/// assert_eq!(values(&module), [1.0, 2.0]);
/// grads.register(module.1.id, Tensor::<1>::ones([1], &device));
/// step(&optimizer, &mut module, &grads, &mut state)?;
/// assert_eq!(values(&module), [0.0, 1.0]);
/// // The schedule panics in the second step.
/// assert!(catch_unwind(AssertUnwindSafe(|| step(&optimizer, &mut module, &grads, &mut state))).is_err());
/// assert_eq!(values(&module), [0.0, 1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod atomic {}

/// in place
///
/// ```
/// use burn::backend::Flex;
/// use burn::module::Param;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let mut param = Param::from_tensor(Tensor::<1>::zeros([3], &device.clone().autodiff()))
///     .load_mapper(|x| x * 2.0)
///     .save_mapper(|x| x * 3.0);
/// let address = |param: &Param<Tensor<1>>| param.val().inner().try_into_primitive::<Flex>().unwrap().bytes().as_ptr();
/// let optimizer = sgd(1.0);
/// let mut state = init(&optimizer, &param)?;
/// let mut grads = GradientsParams::new();
/// grads.register(param.id, Tensor::<1>::ones([3], &device));
///
/// let (place, id) = (address(&param), param.id);
/// step(&optimizer, &mut param, &grads, &mut state)?;
/// assert_eq!((address(&param), param.id), (place, id));
/// assert!(param.val().is_require_grad());
///
/// // A clone shares the memory: one step copies it, the next does not.
/// let clone = param.clone();
/// step(&optimizer, &mut param, &grads, &mut state)?;
/// let copied = address(&param);
/// assert_ne!(copied, place);
/// step(&optimizer, &mut param, &grads, &mut state)?;
/// assert_eq!((address(&param), address(&clone)), (copied, place));
/// assert_eq!((param.val().into_data(), clone.val().into_data()), ([-3_f32; 3].into(), [-1_f32; 3].into()));
///
/// let (_, tensor, mapper) = param.consume();
/// assert_eq!(mapper.on_load(tensor.clone()).into_data(), [-6_f32; 3].into());
/// assert_eq!(mapper.on_save(tensor).into_data(), [-9_f32; 3].into());
/// # Ok::<(), gradchain::Error>(())
/// ```
mod place {}

/// state belongs to a path; a parameter that was given a new `ParamId`
///
/// ```
/// use burn::module::Param;
/// use burn::optim::momentum::MomentumConfig;
/// use burn::optim::{GradientsParams, SgdConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let renewed = |x: Tensor<1>| Param::from_tensor(x.detach());
/// let grads = |param: &Param<Tensor<1>>| {
///     let mut grads = GradientsParams::new();
///     grads.register(param.id, Tensor::<1>::ones([1], &device));
///     grads
/// };
/// let start = || renewed(Tensor::zeros([1], &device.clone().autodiff()));
///
/// // Steps of 1 and 1.5.
/// let (optimizer, mut here) = (sgd(1.0).momentum(0.5), start());
/// let mut state = init(&optimizer, &here)?;
/// for _ in 0..2 {
///     here = renewed(here.val());
///     let grads = grads(&here);
///     step(&optimizer, &mut here, &grads, &mut state)?;
/// }
/// assert_eq!(here.val().into_scalar::<f32>(), -2.5);
///
/// // Without momentum's state: 1 and 1.
/// let momentum = MomentumConfig::new().with_momentum(0.5).with_dampening(0.0);
/// let (mut burns, mut there) = (SgdConfig::new().with_momentum(Some(momentum)).init(), start());
/// for _ in 0..2 {
///     there = renewed(there.val());
///     let grads = grads(&there);
///     there = burns.step(1.0, there, grads);
/// }
/// assert_eq!(there.val().into_scalar::<f32>(), -2.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod renewed {}

/// types
///
/// ```
/// use burn::module::Param;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{DType, Device, Tensor, TensorData};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// for (dtype, moments) in [(DType::F64, "F64"), (DType::F32, "F32"), (DType::F16, "F32"), (DType::BF16, "F32")] {
///     let one = |device: &Device| Tensor::<1>::from_data(TensorData::from([1.0]), (device, dtype));
///     let mut param = Param::from_tensor(one(&device.clone().autodiff()));
///     let mut grads = GradientsParams::new();
///     grads.register(param.id, one(&device));
///     let mut state = init(&adam(0.1), &param)?;
///     assert!(format!("{:?}", state.schema()).contains(moments));
///     step(&adam(0.1), &mut param, &grads, &mut state)?;
///     assert_eq!(param.val().dtype(), dtype);
///     // 1 − 0.1 in `f32`, rounded once.
///     if dtype == DType::BF16 {
///         let expected = Tensor::<1>::from_data(TensorData::from([0.9_f32]), (&device, dtype));
///         assert_eq!(param.val().into_data(), expected.into_data());
///     }
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
mod types {}

/// missing gradients
///
/// ```
/// use burn::module::Param;
/// use burn::optim::{GradientsParams, SgdConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain::wrapper::skip_absent;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let one = || Param::from_tensor(Tensor::<1>::ones([1], &device.clone().autodiff()));
/// let mut module = (one(), one());
/// let mut grads = GradientsParams::new();
/// grads.register(module.0.id, Tensor::<1>::ones([1], &device));
///
/// let mut state = init(&sgd(1.0), &module)?;
/// let error = step(&sgd(1.0), &mut module, &grads, &mut state).unwrap_err().to_string();
/// assert!(error.contains("missing leaf 1"), "{error}");
/// let optimizer = skip_absent(sgd(1.0));
/// let mut state = init(&optimizer, &module)?;
/// step(&optimizer, &mut module, &grads, &mut state)?;
/// assert_eq!((module.0.val().into_scalar::<f32>(), module.1.val().into_scalar::<f32>()), (0.0, 1.0));
///
/// // burn's optimizers skip it in silence.
/// let module = SgdConfig::new().init().step(1.0, module, grads);
/// assert_eq!((module.0.val().into_scalar::<f32>(), module.1.val().into_scalar::<f32>()), (-1.0, 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
mod absent {}

/// a parameter in two places
///
/// ```
/// use burn::module::Param;
/// use burn::optim::{GradientsParams, SgdConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain::tree::Structure;
/// use gradchain_burn::{init, params, step};
///
/// let device = Device::flex();
/// let param = Param::from_tensor(Tensor::<1>::ones([1], &device.clone().autodiff()));
/// let mut tied = (param.clone(), param);
/// let mut grads = GradientsParams::new();
/// grads.register(tied.0.id, Tensor::<1>::ones([1], &device));
///
/// assert_eq!(Structure::of(&params(&tied)?)?.paths().collect::<Vec<_>>(), ["0"]);
/// let mut state = init(&sgd(1.0), &tied)?;
/// step(&sgd(1.0), &mut tied, &grads, &mut state)?;
/// assert_eq!((tied.0.val().into_scalar::<f32>(), tied.1.val().into_scalar::<f32>()), (0.0, 0.0));
///
/// let theirs = SgdConfig::new().init().step(1.0, tied, grads);
/// assert_eq!((theirs.0.val().into_scalar::<f32>(), theirs.1.val().into_scalar::<f32>()), (-1.0, 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
mod tied {}

/// frozen parameters, running statistics, integers and `bool`s
///
/// ```
/// use burn::module::{Module, Param, ParamId};
/// use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
/// use burn::tensor::{Bool, Device, Int, Tensor};
/// use gradchain::checkpoint::{Checkpoint, Save};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, params, params_mut};
///
/// #[derive(Module, Debug)]
/// struct Net {
///     frozen: Linear,
///     norm: BatchNorm,
///     classes: Param<Tensor<1, Int>>,
///     used: Param<Tensor<1, Bool>>,
/// }
///
/// let device = Device::flex().autodiff();
/// let net = |class: i64| Net {
///     frozen: LinearConfig::new(2, 1).with_bias(false).init(&device).no_grad(),
///     norm: BatchNormConfig::new(1).init(&device),
///     classes: Param::initialized(ParamId::new(), Tensor::from_data([class], &device)),
///     used: Param::initialized(ParamId::new(), Tensor::from_data([class == 1], &device)),
/// };
/// let (saved, mut loaded) = (net(1), net(2));
/// let _ = saved.norm.forward(Tensor::<2>::from_floats([[8.0], [4.0]], &device));
/// let plan = sgd(0.5).plan(&params(&saved)?)?;
/// let buffers = ["frozen/weight", "norm/running_mean", "norm/running_var", "classes", "used"];
/// assert_eq!(plan.buffers.iter().map(|buffer| buffer.path()).collect::<Vec<_>>(), buffers);
///
/// let mut file = std::io::Cursor::new(Vec::new());
/// Save::new(&sgd(0.5), &init(&sgd(0.5), &saved)?).params(&params(&saved)?).to_writer(&mut file)?;
/// Checkpoint::from_bytes(file.into_inner())?.load(&sgd(0.5), &mut params_mut(&mut loaded)?)?;
/// assert_eq!(loaded.frozen.weight.val().into_data(), saved.frozen.weight.val().into_data());
/// let mean = |net: &Net| net.valid().norm.running_mean.value().into_scalar::<f32>();
/// assert!(mean(&loaded) > 0.0 && mean(&loaded) == mean(&saved));
/// assert_eq!(loaded.classes.val().into_data(), saved.classes.val().into_data());
/// assert_eq!(loaded.used.val().into_data(), saved.used.val().into_data());
/// # Ok::<(), gradchain::Error>(())
/// ```
mod buffers {}

/// averages, in a file of burn's
///
/// ```
/// use burn::module::{Module, Param};
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{eval_module, init, step};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("averages.bpk");
/// let device = Device::flex();
/// let mut module = Param::from_tensor(Tensor::<1>::zeros([1], &device.clone().autodiff()));
/// let mut grads = GradientsParams::new();
/// grads.register(module.id, Tensor::<1>::ones([1], &device));
/// let optimizer = params_ema(sgd(1.0), 0.5);
/// let mut state = init(&optimizer, &module)?;
/// for _ in 0..2 {
///     step(&optimizer, &mut module, &grads, &mut state)?;
/// }
/// let averaged = eval_module(&module, &state)?.valid();
/// let expected = averaged.val().into_scalar::<f32>();
/// assert!(-2.0 < expected && expected < -1.0);
/// averaged.save_file(&path).unwrap();
/// let loaded = Param::from_tensor(Tensor::<1>::zeros([1], &device)).load_file(&path);
/// assert_eq!(loaded.val().into_scalar::<f32>(), expected);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod averages {}

/// Muon's axes
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::nn::conv::Conv2dConfig;
/// use burn::tensor::Device;
/// use gradchain::tree::{Layout, Structure};
/// use gradchain_burn::params;
///
/// let device = Device::flex().autodiff();
/// let linear = LinearConfig::new(2, 3).with_bias(false).init(&device);
/// let conv = Conv2dConfig::new([2, 3], [1, 1]).with_bias(false).init(&device);
/// let structure = Structure::of(&params(&(linear, conv))?)?;
/// let leaves: Vec<_> = structure.leaves().iter().map(|leaf| (leaf.to_string(), leaf.layout())).collect();
/// assert_eq!(leaves[0], ("0/weight: f32 [2, 3]".into(), Layout::InOut));
/// assert_eq!(leaves[1], ("1/weight: f32 [3, 2, 1, 1]".into(), Layout::OutIn));
/// # Ok::<(), gradchain::Error>(())
/// ```
mod axes {}

/// devices
///
/// ```
/// # #![allow(deprecated)]
/// # if cfg!(feature = "ndarray") {
/// #     return Ok::<(), gradchain::Error>(()); // Here `step` takes this backend too.
/// # }
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{DeviceState, init, step};
///
/// // Without the feature `ndarray` this backend stands in for a GPU.
/// let device = Device::ndarray();
/// let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device.clone().autodiff());
/// let before = layer.weight.val().into_scalar::<f32>();
/// let mut grads = GradientsParams::new();
/// grads.register(layer.weight.id, Tensor::<2>::ones([1, 1], &device));
/// let mut state = init(&sgd(1.0), &layer.clone().fork(&Device::flex().autodiff()))?;
/// let error = step(&sgd(1.0), &mut layer, &grads, &mut state).unwrap_err().to_string();
/// assert!(error.contains("`weight` must be floats in CPU memory"), "{error}");
///
/// let mut state = DeviceState::init(&sgd(1.0), &layer)?;
/// state.step(&sgd(1.0), &mut layer, &grads)?;
/// assert_eq!(layer.weight.val().into_scalar::<f32>(), before - 1.0);
/// assert_eq!(layer.weight.val().device().inner(), device);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod devices {}

/// quantized parameters, LoRA adapters
///
/// ```
/// use burn::module::{Lora, Module, Quantizer};
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::quantization::{Calibration, QuantScheme};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::checkpoint::{Checkpoint, Save};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, params, params_mut, step};
///
/// let device = Device::flex().autodiff();
/// let layer = LinearConfig::new(32, 32).with_bias(false).init(&device);
/// let mut quantizer = Quantizer::new(Calibration::MinMax, QuantScheme::default());
/// let mut adapted = layer.quantize_weights(&mut quantizer).apply_lora(Lora::new(1, 1.0));
/// let optimizer = sgd(1.0);
/// let plan = optimizer.plan(&params(&adapted)?)?;
/// assert_eq!(plan.buffers.iter().map(|buffer| buffer.path()).collect::<Vec<_>>(), ["weight"]);
/// let mut state = init(&optimizer, &adapted)?;
/// assert_eq!(state.structure().paths().collect::<Vec<_>>(), ["weight/lora/a", "weight/lora/b"]);
///
/// let base = adapted.weight.base().into_data();
/// let loss = adapted.forward(Tensor::<2>::ones([1, 32], &device)).sum();
/// let grads = GradientsParams::from_grads(loss.backward(), &adapted);
/// step(&optimizer, &mut adapted, &grads, &mut state)?;
/// // LoRA starts `b` at 0.
/// assert!(adapted.weight.adapter().unwrap().b.val().abs().sum().into_scalar::<f32>() > 0.0);
/// assert_eq!(adapted.weight.base().into_data(), base);
///
/// let mut file = std::io::Cursor::new(Vec::new());
/// Save::new(&optimizer, &state).params(&params(&adapted)?).to_writer(&mut file)?;
/// let layer = LinearConfig::new(32, 32).with_bias(false).init(&device);
/// let mut loaded = layer.quantize_weights(&mut quantizer).apply_lora(Lora::new(1, 1.0));
/// assert_ne!(loaded.weight.base().into_data(), base);
/// Checkpoint::from_bytes(file.into_inner())?.load(&optimizer, &mut params_mut(&mut loaded)?)?;
/// assert_eq!(loaded.weight.base().into_data(), base);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod quantized {}

/// gradients of several devices
///
/// ```
/// use burn::module::Param;
/// use burn::optim::{GradientsAccumulator, GradientsParams};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let mut param = Param::from_tensor(Tensor::<1>::zeros([1], &device.clone().autodiff()));
/// let mut sum = GradientsAccumulator::new();
/// for part in [1.0, 2.0] {
///     let mut grads = GradientsParams::new();
///     grads.register(param.id, Tensor::<1>::full([1], part, &device));
///     sum.accumulate(&param, grads.to_device(&device, &param));
/// }
/// let mut state = init(&sgd(1.0), &param)?;
/// step(&sgd(1.0), &mut param, &sum.grads(), &mut state)?;
/// assert_eq!(param.val().into_scalar::<f32>(), -3.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod several {}

/// groups of burn's
///
/// ```
/// use burn::grad_clipping::GradientClipping;
/// use burn::module::{Param, ParamGroup};
/// use burn::optim::lr_scheduler::constant::ConstantLr;
/// use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
/// use burn::optim::{GradientsParams, LionConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{Rate, optimize, whole_tree};
///
/// let device = Device::flex();
/// let zero = || Param::from_tensor(Tensor::<1>::zeros([1], &device.clone().autodiff()));
/// let mut module = (zero(), zero());
/// let mut grads = GradientsParams::new();
/// grads.register(module.0.id, Tensor::<1>::full([1], 3.0, &device));
/// grads.register(module.1.id, Tensor::<1>::full([1], 4.0, &device));
///
/// let mut clipped = whole_tree(sgd(1.0), Rate::Burn)?.with_grad_clipping(GradientClipping::Norm(1.0));
/// let error = optimize(&mut clipped, 1.0, &mut module, &grads).unwrap_err().to_string();
/// assert!(error.contains("put `clip_by_global_norm` into the chain"), "{error}");
/// let half = ParamGroup::from_path("1");
/// let rates = ModuleLrScheduler::new(ConstantLr::from(1.0)).with_group(half.clone(), ConstantLr::from(0.5)).step();
/// let error = optimize(&mut whole_tree(sgd(1.0), Rate::Burn)?, rates, &mut module, &grads).unwrap_err().to_string();
/// assert!(error.contains("put the others into a `partition`"), "{error}");
/// let values = |(a, b): &(Param<Tensor<1>>, Param<Tensor<1>>)| [a, b].map(|x| x.val().into_scalar::<f64>());
/// assert_eq!(values(&module), [0.0, 0.0]);
/// // The group's Lion would step by 1.
/// let mut other = whole_tree(sgd(1.0), Rate::Burn)?.with_group(half, LionConfig::new().build(), None);
/// optimize(&mut other, 1.0, &mut module, &grads)?;
/// assert_eq!(values(&module), [-3.0, -4.0]);
///
/// // The chain clips at 1, and has two rates.
/// let rates = partition((("whole", sgd(1.0)), ("half", sgd(0.5))), Labels::tree([("0", "whole"), ("1", "half")]));
/// let mut chained = whole_tree(chain((clip_by_global_norm(1.0), rates)), Rate::Own)?;
/// optimize(&mut chained, 1.0, &mut module, &grads)?;
/// let [a, b] = values(&module);
/// assert!((a + 3.6).abs() < 1e-6 && (b + 4.4).abs() < 1e-6);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod groups {}

/// clipping by the norm of all gradients
///
/// ```
/// use burn::grad_clipping::GradientClippingConfig;
/// use burn::module::Param;
/// use burn::optim::{GradientsParams, SgdConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{init, step};
///
/// let device = Device::flex();
/// let zero = || Param::from_tensor(Tensor::<1>::zeros([1], &device.clone().autodiff()));
/// let mut here = (zero(), zero());
/// let there = here.clone();
/// let mut grads = GradientsParams::new();
/// grads.register(here.0.id, Tensor::<1>::full([1], 3.0, &device));
/// grads.register(here.1.id, Tensor::<1>::full([1], 4.0, &device));
/// let near = |module: &(Param<Tensor<1>>, Param<Tensor<1>>), a: f64, b: f64| {
///     (module.0.val().into_scalar::<f64>() - a).abs() < 1e-5 && (module.1.val().into_scalar::<f64>() - b).abs() < 1e-5
/// };
///
/// let optimizer = chain((clip_by_global_norm(1.0), sgd(1.0)));
/// let mut state = init(&optimizer, &here)?;
/// step(&optimizer, &mut here, &grads, &mut state)?;
/// assert!(near(&here, -0.6, -0.8));
/// let by_tensor = SgdConfig::new().with_gradient_clipping(Some(GradientClippingConfig::Norm(1.0)));
/// assert!(near(&by_tensor.init().step(1.0, there, grads), -1.0, -1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
mod norm {}

/// the `Learner` clones its model for each step
///
/// ```
/// use burn::backend::Flex;
/// use burn::module::{Module, Param};
/// use burn::optim::lr_scheduler::constant::ConstantLr;
/// use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
/// use burn::optim::{GradientsParams, ModuleOptimizer};
/// use burn::tensor::{Device, Tensor};
/// use burn::train::{InferenceStep, Learner, TrainOutput, TrainStep};
/// use gradchain::prelude::*;
/// use gradchain_burn::{Rate, init, optimize, step, whole_tree};
///
/// #[derive(Module, Debug)]
/// struct Model {
///     weight: Param<Tensor<1>>,
/// }
///
/// impl Model {
///     fn address(&self) -> *const u8 {
///         self.weight.val().inner().try_into_primitive::<Flex>().unwrap().bytes().as_ptr()
///     }
/// }
///
/// impl TrainStep for Model {
///     type Input = ();
///     type Output = ();
///
///     fn step(&self, _: ()) -> TrainOutput<()> {
///         TrainOutput::new(self, self.weight.val().sum().backward(), ())
///     }
///
///     fn optimize(mut self, optim: &mut ModuleOptimizer, lr: ModuleLearningRate, grads: GradientsParams) -> Self {
///         optimize(optim, lr, &mut self, &grads).expect("the gradients of this model");
///         self
///     }
/// }
/// # impl InferenceStep for Model {
/// #     type Input = ();
/// #     type Output = ();
/// #     fn step(&self, _: ()) {}
/// # }
///
/// let model = || Model { weight: Param::from_tensor(Tensor::zeros([3], &Device::flex().autodiff())) };
/// let mut learner = Learner::new(model(), whole_tree(sgd(1.0), Rate::Own)?, ConstantLr::from(1.0));
/// let mut own = model();
/// let mut state = init(&sgd(1.0), &own)?;
/// for _ in 0..3 {
///     let (learners, owns) = (learner.model().address(), own.address());
///     learner.lr_step();
///     let output = learner.train_step(());
///     learner.optimizer_step(output.grads);
///     assert_ne!(learner.model().address(), learners);
///     let grads = GradientsParams::from_grads(own.weight.val().sum().backward(), &own);
///     step(&sgd(1.0), &mut own, &grads, &mut state)?;
///     assert_eq!(own.address(), owns);
/// }
/// assert_eq!(own.weight.val().into_data(), learner.model().weight.val().into_data());
/// # Ok::<(), gradchain::Error>(())
/// ```
mod learner {}

/// a state in a record that cannot be read
///
/// ```
/// use burn::module::Param;
/// use burn::optim::momentum::MomentumConfig;
/// use burn::optim::{AdamWConfig, GradientsParams, SgdConfig};
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{Rate, optimize, whole_tree};
///
/// let device = Device::flex();
/// let mut param = Param::from_tensor(Tensor::<1>::zeros([1], &device.clone().autodiff()));
/// let grads = |param: &Param<Tensor<1>>| {
///     let mut grads = GradientsParams::new();
///     grads.register(param.id, Tensor::<1>::ones([1], &device));
///     grads
/// };
///
/// // burn's SGD drops what AdamW saved, and takes its first step.
/// let mut saved = AdamWConfig::new().init();
/// let _ = saved.step(1.0, param.clone(), grads(&param));
/// let momentum = MomentumConfig::new().with_momentum(0.5).with_dampening(0.0);
/// let sgd_with_momentum = SgdConfig::new().with_momentum(Some(momentum)).init();
/// let mut loaded = sgd_with_momentum.from_bytes(saved.into_bytes().unwrap()).unwrap();
/// assert_eq!(loaded.step(1.0, param.clone(), grads(&param)).val().into_scalar::<f32>(), -1.0);
///
/// let mut saved = whole_tree(adamw(1.0), Rate::Own)?;
/// optimize(&mut saved, 1.0, &mut param.clone(), &grads(&param))?;
/// let sgd = whole_tree(sgd(1.0).momentum(0.5), Rate::Own)?;
/// let mut loaded = sgd.from_bytes(saved.into_bytes().unwrap()).unwrap();
/// let grads = grads(&param);
/// let error = optimize(&mut loaded, 1.0, &mut param, &grads).unwrap_err().to_string();
/// assert!(error.contains("does not fit"), "{error}");
/// assert_eq!(param.val().into_scalar::<f32>(), 0.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
mod record {}
