//! Steps as burn's operations match steps in place.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::needs::Nothing;
use gradchain::optimizer::{adamax, lars, madgrad, nadam};
use gradchain::prelude::*;
use gradchain::state::{Entry, State, StateWalk};
use gradchain::transform::{Preconditioning, scale, scale_by_muon};
use gradchain_burn::{DeviceState, init, params, params_mut, step};

use crate::{device, values};

/// Returns the best Vulkan device with the feature `vulkan`.
pub(crate) fn other_device() -> Device {
    #[cfg(feature = "vulkan")]
    return Device::vulkan(burn::tensor::DeviceKind::DefaultDevice).autodiff();
    #[cfg(not(feature = "vulkan"))]
    device()
}

/// One type, including several chunks and no elements.
#[derive(Module, Debug)]
struct Layer {
    bias: Param<Tensor<1>>,
    none: Param<Tensor<2>>,
    weight: Param<Tensor<2>>,
}

/// Returns numbers of both signs, around 1, with zeros of either sign.
fn numbers<const D: usize>(dims: [usize; D], seed: usize) -> TensorData {
    let number = |i: usize| match i % 11 {
        3 => 0.0 * (1.0 - 2.0 * (i % 2) as f64),
        _ => 2.0 * (0.7 * (i + 31 * seed) as f64).sin(),
    };
    TensorData::new((0..dims.iter().product()).map(number).collect(), dims)
}

impl Layer {
    fn new(dtype: DType, device: &Device) -> Layer {
        let on = || (device, dtype);
        Layer {
            bias: Param::from_tensor(Tensor::from_data(numbers([7], 1), on())),
            none: Param::from_tensor(Tensor::from_data(numbers([0, 2], 2), on())),
            weight: Param::from_tensor(Tensor::from_data(numbers([130, 200], 3), on())),
        }
    }

    fn grads(&self, t: usize) -> GradientsParams {
        let (inner, dtype) = (self.bias.val().device().inner(), self.bias.val().dtype());
        let mut grads = GradientsParams::new();
        grads.register(self.bias.id, Tensor::<1>::from_data(numbers([7], 10 + t), (&inner, dtype)));
        grads.register(self.none.id, Tensor::<2>::from_data(numbers([0, 2], 0), (&inner, dtype)));
        grads.register(self.weight.id, Tensor::<2>::from_data(numbers([130, 200], 50 + t), (&inner, dtype)));
        grads
    }
}

/// Returns the greatest difference of parameters and state arrays, in place and replayed.
///
/// It is relative above 1, otherwise absolute.
fn apart<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, dtype: DType, steps: usize) -> f64 {
    let (mut here, mut there) = (Layer::new(dtype, &device()), Layer::new(dtype, &other_device()));
    let mut state = init(optimizer, &here).unwrap();
    let mut on_device = DeviceState::init(optimizer, &there).unwrap();
    for t in 0..steps {
        let grads = here.grads(t);
        let in_place = step(optimizer, &mut here, &grads, &mut state).unwrap();
        let grads = there.grads(t);
        assert_eq!(in_place, on_device.step(optimizer, &mut there, &grads).unwrap());
    }
    let all = |layer: &Layer, state: &OptState<T>| {
        let mut all: Vec<f64> = values(layer).concat();
        state.walk(&mut StateWalk::new(&mut |_, entry| {
            if let Entry::Moments(moments) = entry {
                moments.leaves().for_each(|leaf| all.extend(moments.to_array(leaf).into_iter().flatten()));
            }
        }));
        all
    };
    let (a, b) = (all(&here, &state), all(&there, &on_device.to_state().unwrap()));
    assert_eq!(a.len(), b.len());
    assert_ne!(values(&there), values(&Layer::new(dtype, &device())));
    let differ = |(a, b): (f64, f64)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / b.abs().max(1.0) };
    a.into_iter().zip(b).map(differ).fold(0.0, f64::max)
}

fn has_the_same_bits<T: GradientTransformation<Needs = Nothing>>(optimizer: T) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        if other_device().supports_dtype(dtype) {
            let apart = apart(&optimizer, dtype, 7);
            // Devices round quotients and roots differently.
            let bound = if cfg!(feature = "vulkan") { 1e-2 } else { 0.0 };
            assert!(apart <= bound, "{optimizer:?} in {dtype:?}: {apart:e}");
        }
    }
}

#[test]
fn element_wise_chains_are_bitwise_identical() {
    has_the_same_bits(sgd(0.1));
    has_the_same_bits(sgd(0.1).momentum(0.9).nesterov(true));
    has_the_same_bits(adamw(cosine_decay(0.05, 20)).weight_decay(0.1).mask(Mask::path("weight")));
    has_the_same_bits(chain((zero_nans(), clip(0.5), adam(0.1))));
    has_the_same_bits(lion(0.01));
    has_the_same_bits(rmsprop(0.01));
    has_the_same_bits(adagrad(0.1));
    has_the_same_bits(nadam(0.01));
    has_the_same_bits(multi_steps(adamw(0.1), 2));
    has_the_same_bits(lookahead(adam(0.1), 3, 0.5));
    has_the_same_bits(inject_hyperparams(adamax(0.01)));
}

/// Boxes record the programs of typed chains.
#[test]
fn boxes_are_bitwise_identical() {
    let rate = cosine_decay(0.05, 20);
    let inside = multi_steps(adamw(rate).weight_decay(0.1).mask(Mask::path("weight")), 2);
    has_the_same_bits(chain(vec![boxed(clip(0.5)), boxed(inside)]));
}

/// Replayed reductions add at most 26 000 squares in `f64` in another order.
///
/// The relative difference is at most 26 000 `f64` ε. Each step propagates it, or one rounding of the type.
#[test]
fn chains_with_sums_differ_by_roundings() {
    for (dtype, bound) in
        [(DType::F64, 7.0 * 26_000.0 * f64::EPSILON), (DType::F32, 7.0 * 4.0 * f64::from(f32::EPSILON))]
    {
        if !other_device().supports_dtype(dtype) {
            continue;
        }
        let bound = if cfg!(feature = "vulkan") { 1e-2 } else { bound };
        for clipped in [apart(&chain((clip_by_global_norm(1.0), sgd(0.1))), dtype, 7), apart(&lars(0.1), dtype, 7)] {
            assert!(clipped <= bound, "{dtype:?}: {clipped:e}");
        }
    }
}

/// A sum of 200 products has a relative error of about √200 ε in any order.
///
/// Each of the 3 steps has 5 iterations of three products, and an iteration magnifies a difference 3.45 times.
#[test]
fn products_of_matrices_differ_by_roundings() {
    let part = |how| scale_by_muon().adaptive(true).preconditioning(how);
    let matrices = |how| masked(chain((part(how), scale(-0.1))), Mask::path("weight"));
    let parts = [Preconditioning::Frobenius, Preconditioning::Aol, Preconditioning::Schatten].map(matrices);
    for (dtype, epsilon) in [(DType::F64, f64::EPSILON), (DType::F32, f32::EPSILON.into())] {
        if !other_device().supports_dtype(dtype) {
            continue;
        }
        let bound = (3.0 * 3.0 * 200.0_f64).sqrt() * epsilon * (1..=5).map(|i| 3.45_f64.powi(i)).sum::<f64>();
        let parts = parts.iter().map(|part| (format!("{part:?}"), apart(part, dtype, 3)));
        for (name, apart) in parts.chain([("muon".into(), apart(&muon(0.1), dtype, 3))]) {
            assert!(apart <= bound, "{name} in {dtype:?}: {apart:e} of {bound:e}");
        }
    }
}

/// Scalars cross in one direction, reductions in the other.
#[test]
fn only_numbers_and_sums_cross() {
    for (clip, chunks) in [(None, 0), (Some(clip_by_global_norm(1.0)), 1 + 2)] {
        let (mut layer, optimizer) =
            (Layer::new(DType::F32, &other_device()), chain((clip, adamw(cosine_decay(0.05, 20)))));
        let mut state = DeviceState::init(&optimizer, &layer).unwrap();
        let before = state.traffic();
        let arrays = 2 * 4 * (7 + 130 * 200);
        assert_eq!((before.to_device, before.to_host), (arrays, 0), "the arrays, when the state was made");
        let steps = 3;
        for t in 0..steps {
            let grads = layer.grads(t);
            state.step(&optimizer, &mut layer, &grads).unwrap();
        }
        let (after, steps) = (state.traffic(), steps as u64);
        assert_eq!(after.to_host - before.to_host, steps * 8 * chunks);
        assert!(after.to_device - before.to_device <= steps * 8 * 20, "twenty numbers: {after:?} {before:?}");
    }
}

#[test]
fn a_run_goes_from_the_cpu_to_the_device_and_back_through_a_file() {
    let optimizer = multi_steps(adamw(cosine_decay(0.05, 20)), 2);
    let mut straight = Layer::new(DType::F32, &device());
    let mut state = init(&optimizer, &straight).unwrap();
    let in_place = |layer: &mut Layer, state: &mut _, steps: core::ops::Range<usize>| {
        for t in steps {
            let grads = layer.grads(t);
            step(&optimizer, layer, &grads, state).unwrap();
        }
    };
    in_place(&mut straight, &mut state, 0..9);

    let mut layer = Layer::new(DType::F32, &device());
    let mut state = init(&optimizer, &layer).unwrap();
    in_place(&mut layer, &mut state, 0..3);
    let mut file = std::io::Cursor::new(Vec::new());
    Save::new(&optimizer, &state).params(&params(&layer).unwrap()).to_writer(&mut file).unwrap();

    let mut layer = Layer::new(DType::F32, &device());
    let file = Checkpoint::from_bytes(file.into_inner()).unwrap();
    let state = file.load(&optimizer, &mut params_mut(&mut layer).unwrap()).unwrap();
    let mut there = layer.fork(&other_device());
    let mut on_device = DeviceState::of(&optimizer, state, &there).unwrap();
    for t in 3..6 {
        let grads = there.grads(t);
        on_device.step(&optimizer, &mut there, &grads).unwrap();
    }
    let (mut state, mut back) = (on_device.to_state().unwrap(), there.fork(&device()));
    in_place(&mut back, &mut state, 6..9);
    if cfg!(not(feature = "vulkan")) {
        assert_eq!(values(&back), values(&straight));
    }
}

/// Tied parameters, ids, frozen parameters and autodiff settings stay.
#[test]
fn a_step_leaves_the_rest_of_the_module_alone() {
    let layer = Layer::new(DType::F32, &other_device());
    let mut twice = (layer.clone(), layer.clone(), Layer::new(DType::F32, &other_device()).no_grad());
    let ids = [twice.0.weight.id, twice.2.weight.id];
    let (optimizer, frozen) = (sgd(0.5), values(&twice.2));
    let mut state = DeviceState::init(&optimizer, &twice).unwrap();
    state.step(&optimizer, &mut twice, &layer.grads(0)).unwrap();
    assert_eq!(values(&twice.0), values(&twice.1));
    assert_ne!(values(&twice.0), values(&layer));
    assert_eq!(values(&twice.2), frozen);
    assert_eq!([twice.0.weight.id, twice.2.weight.id], ids);
    assert!(twice.0.weight.val().is_require_grad() && !twice.2.weight.val().is_require_grad());
}

#[test]
fn unreplayable_optimizers_are_refused_at_init() {
    let layer = Layer::new(DType::F32, &other_device());
    let matrices = Mask::path("weight");
    let refused = [
        DeviceState::init(&masked(adafactor(0.1), matrices), &layer).map(drop),
        DeviceState::init(&madgrad(0.1), &layer).map(drop),
    ];
    for (error, name) in refused.into_iter().zip(["scale_by_factored_rms", "cube_root"]) {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn gradients_that_do_not_fit_change_nothing() {
    let (mut layer, optimizer) = (Layer::new(DType::F32, &other_device()), adam(0.1));
    let mut state = DeviceState::init(&optimizer, &layer).unwrap();
    let before = values(&layer);
    let (inner, id) = (other_device().inner(), layer.bias.id);
    let other = |dims: [usize; 1], dtype| Some(Tensor::<1>::from_data(numbers(dims, 0), (&inner, dtype)));
    for (given, found) in [(None, "none"), (other([8], DType::F32), "f32 [8]"), (other([7], DType::F64), "f64 [7]")] {
        let mut grads = layer.grads(0);
        grads.remove::<1>(id);
        given.into_iter().for_each(|given| grads.register(id, given));
        let error = state.step(&optimizer, &mut layer, &grads).unwrap_err().to_string();
        assert!(error.contains("`bias` must be f32 [7]") && error.contains(found), "{error}");
        assert_eq!(values(&layer), before);
    }
    let mut wider = Layer::new(DType::F64, &device());
    let grads = wider.grads(0);
    let error = state.step(&optimizer, &mut wider, &grads).unwrap_err().to_string();
    assert!(error.contains("`bias` must be bias: f32 [7], found bias: f64 [7]"), "{error}");
    let grads = layer.grads(0);
    state.step(&optimizer, &mut layer, &grads).unwrap();
    assert_ne!(values(&layer), before);
}
