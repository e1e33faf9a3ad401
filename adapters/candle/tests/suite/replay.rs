//! Steps as candle's operations match steps in place.

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::needs::Nothing;
use gradchain::optimizer::{adamax, lars, madgrad, nadam};
use gradchain::prelude::*;
use gradchain::transform::{DimensionNumbers, Preconditioning, WeightDimensionNumbers, scale, scale_by_muon};
use gradchain_candle::{DeviceState, init, step};

use super::*;

/// Returns the first CUDA device with the feature `cuda`.
fn device() -> Device {
    if cfg!(feature = "cuda") { Device::new_cuda(0).expect("a device") } else { Device::Cpu }
}

const SHAPES: [(&str, &[usize]); 5] =
    [("heads", &[6, 3, 8]), ("layer.bias", &[7]), ("layer.weight", &[130, 200]), ("none", &[0, 2]), ("one", &[])];

fn variables(dtype: DType, device: &Device) -> Vars {
    let made = SHAPES.iter().enumerate().map(|(i, (name, dims))| {
        let there = tensor(dims, dtype, i as u64).to_device(device).expect("on the device");
        (*name, Var::from_tensor(&there).expect("a variable"))
    });
    Vars::named(made).expect("variables")
}

/// Returns gradients of both signs, with zeros of either sign.
fn grads(vars: &Vars, t: u64) -> GradStore {
    let of = |var: &Var| {
        let numbers = numbers(var.elem_count(), 100 + t);
        let some = numbers.into_iter().enumerate().map(|(i, x)| if i % 11 == 3 { x * 0.0 } else { x }).collect();
        let given = Tensor::from_vec::<_, f64>(some, var.dims(), &Device::Cpu).and_then(|x| x.to_dtype(var.dtype()));
        given.and_then(|x| x.to_device(var.device())).expect("a gradient")
    };
    gradients(&vars.iter().map(|(_, var)| (var, of(var))).collect::<Vec<_>>())
}

/// Returns the greatest difference of parameters and state arrays, in place and replayed.
///
/// It is relative above 1, otherwise absolute.
fn apart<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, dtype: DType, steps: u64) -> f64 {
    let (here, there) = (variables(dtype, &Device::Cpu), variables(dtype, &device()));
    let mut state = init(optimizer, &here).unwrap();
    let mut on_device = DeviceState::init(optimizer, &there).unwrap();
    for t in 0..steps {
        let in_place = step(optimizer, &here, &grads(&here, t), &mut state).unwrap();
        let replayed = on_device.step(optimizer, &there, &grads(&there, t)).unwrap();
        assert_eq!(in_place, replayed);
    }
    let fetched = on_device.to_state().unwrap();
    let numbers = |bits: Vec<Vec<u64>>| bits.into_iter().flatten().map(f64::from_bits).collect::<Vec<_>>();
    let mut all = [numbers(all_bits(&here)), numbers(all_bits(&there))];
    for (all, state) in all.iter_mut().zip([&state, &fetched]) {
        all.extend(arrays(state));
    }
    let [a, b] = all;
    assert_eq!(a.len(), b.len());
    let differ = |(a, b): (f64, f64)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / b.abs().max(1.0) };
    a.into_iter().zip(b).map(differ).fold(0.0, f64::max)
}

fn arrays<T: GradientTransformation>(state: &OptState<T>) -> Vec<f64> {
    use gradchain::state::{Entry, State, StateWalk};
    let mut found = Vec::new();
    state.walk(&mut StateWalk::new(&mut |_, entry| {
        if let Entry::Moments(moments) = entry {
            moments.leaves().for_each(|leaf| found.extend(moments.to_array(leaf).into_iter().flatten()));
        }
    }));
    found
}

fn has_the_same_bits<T: GradientTransformation<Needs = Nothing>>(optimizer: T) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let apart = apart(&optimizer, dtype, 7);
        // Devices round quotients and roots differently.
        let bound = if cfg!(feature = "cuda") { 1e-2 } else { 0.0 };
        assert!(apart <= bound, "{optimizer:?} in {dtype:?}: {apart:e}");
    }
}

#[test]
fn element_wise_chains_are_bitwise_identical() {
    has_the_same_bits(sgd(0.1));
    has_the_same_bits(sgd(0.1).momentum(0.9).nesterov(true));
    has_the_same_bits(adamw(cosine_decay(0.05, 20)).weight_decay(0.1).mask(Mask::path("**/weight")));
    has_the_same_bits(chain((zero_nans(), clip(0.5), adam(0.1))));
    has_the_same_bits(lion(0.01));
    has_the_same_bits(rmsprop(0.01));
    has_the_same_bits(adagrad(0.1));
    has_the_same_bits(nadam(0.01));
    has_the_same_bits(multi_steps(adamw(0.1), 2));
    has_the_same_bits(inject_hyperparams(adamax(0.01)));
}

/// Boxes record the programs of typed chains.
#[test]
fn boxes_are_bitwise_identical() {
    let rate = cosine_decay(0.05, 20);
    let inside = multi_steps(adamw(rate).weight_decay(0.1).mask(Mask::path("**/weight")), 2);
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
    let heads = WeightDimensionNumbers::tree([("heads", Some(DimensionNumbers::new([0], [-1])))]);
    let part = || scale_by_muon().weight_dimension_numbers(heads.clone());
    let matrices = |part| masked(chain((part, scale(-0.1))), Mask::path("heads").or(Mask::path("**/weight")));
    let parts = [
        matrices(part().adaptive(true)),
        matrices(part().preconditioning(Preconditioning::Aol).nesterov(false)),
        matrices(part().preconditioning(Preconditioning::Schatten).mu_dtype(Some(gradchain::DType::F32))),
    ];
    for (dtype, epsilon) in [(DType::F64, f64::EPSILON), (DType::F32, f32::EPSILON.into())] {
        let bound = (3.0 * 3.0 * 200.0_f64).sqrt() * epsilon * (1..=5).map(|i| 3.45_f64.powi(i)).sum::<f64>();
        let parts = parts.iter().map(|part| (format!("{part:?}"), apart(part, dtype, 3)));
        for (name, apart) in parts.chain([("muon".into(), apart(&muon(0.1), dtype, 3))]) {
            assert!(apart <= bound, "{name} in {dtype:?}: {apart:e} of {bound:e}");
        }
    }
}

#[test]
fn a_run_goes_from_the_cpu_to_the_device_and_back_through_a_file() -> Tested {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("run.safetensors");
    let optimizer = multi_steps(adamw(cosine_decay(0.05, 20)), 2);
    let straight = variables(DType::F32, &Device::Cpu);
    let mut state = init(&optimizer, &straight)?;
    (0..9).try_for_each(|t| step(&optimizer, &straight, &grads(&straight, t), &mut state).map(drop))?;

    let begun = variables(DType::F32, &Device::Cpu);
    let mut state = init(&optimizer, &begun)?;
    (0..3).try_for_each(|t| step(&optimizer, &begun, &grads(&begun, t), &mut state).map(drop))?;
    begun.read(|params| Save::new(&optimizer, &state).params(params).to_file(&file))??;

    // Read on the CPU, and copied to the variables' device.
    let there = variables(DType::F32, &device());
    let host = variables(DType::F32, &Device::Cpu);
    let state = host.write(|params| Checkpoint::open(&file)?.load(&optimizer, params))??;
    for ((_, to), (_, from)) in there.iter().zip(host.iter()) {
        to.set(&from.to_device(to.device())?)?;
    }
    let mut on_device = DeviceState::of(&optimizer, state, &there)?;
    (3..6).try_for_each(|t| on_device.step(&optimizer, &there, &grads(&there, t)).map(drop))?;

    let mut state = on_device.to_state()?;
    let back = variables(DType::F32, &Device::Cpu);
    for ((_, to), (_, from)) in back.iter().zip(there.iter()) {
        to.set(&from.to_device(&Device::Cpu)?)?;
    }
    (6..9).try_for_each(|t| step(&optimizer, &back, &grads(&back, t), &mut state).map(drop))?;
    if cfg!(not(feature = "cuda")) {
        assert_eq!(all_bits(&back), all_bits(&straight));
    }
    Ok(())
}

#[test]
fn unreplayable_optimizers_are_refused_at_init() {
    let vars = variables(DType::F32, &device());
    let refused =
        [DeviceState::init(&adafactor(0.1), &vars).map(drop), DeviceState::init(&madgrad(0.1), &vars).map(drop)];
    for (error, name) in refused.into_iter().zip(["scale_by_factored_rms", "cube_root"]) {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn gradients_that_do_not_fit_change_nothing() {
    let vars = variables(DType::F32, &device());
    let (before, optimizer) = (all_bits(&vars), adam(0.1));
    let mut state = DeviceState::init(&optimizer, &vars).unwrap();
    let bias = vars.iter().nth(1).expect("the second").1.clone();
    let other = |dims: &[usize], dtype| Some(tensor(dims, dtype, 0).to_device(&device()).unwrap());
    for (given, found) in [(None, "none"), (other(&[8], DType::F32), "f32 [8]"), (other(&[7], DType::F64), "f64 [7]")] {
        let mut grads = grads(&vars, 0);
        grads.remove(&bias);
        given.into_iter().for_each(|given| _ = grads.insert(&bias, given));
        let error = state.step(&optimizer, &vars, &grads).unwrap_err().to_string();
        assert!(error.contains("`layer/bias` must be f32 [7]") && error.contains(found), "{error}");
        assert_eq!(all_bits(&vars), before);
    }
    let fewer = Vars::named([("layer.bias", bias)]).unwrap();
    let error = state.step(&optimizer, &fewer, &grads(&vars, 0)).unwrap_err().to_string();
    assert!(error.contains("must be 5 leaves, as in the state, found 1"), "{error}");
    state.step(&optimizer, &vars, &grads(&vars, 0)).unwrap();
    assert_ne!(all_bits(&vars), before);
}

/// Scalars cross in one direction, reductions in the other.
#[test]
fn only_numbers_and_sums_cross() {
    let vars = variables(DType::F32, &device());
    for (clip, chunks) in [(None, 0), (Some(clip_by_global_norm(1.0)), 1 + 1 + 2 + 1)] {
        let optimizer = chain((clip, adamw(cosine_decay(0.05, 20))));
        let mut state = DeviceState::init(&optimizer, &vars).unwrap();
        let before = state.traffic();
        let steps = 3;
        (0..steps).for_each(|t| _ = state.step(&optimizer, &vars, &grads(&vars, t)).unwrap());
        let after = state.traffic();
        assert_eq!(after.to_host - before.to_host, steps * 8 * chunks);
        assert!(after.to_device - before.to_device <= steps * 8 * 20, "twenty numbers: {after:?} {before:?}");
        let arrays = 2 * 4 * (6 * 3 * 8 + 7 + 130 * 200 + 1);
        assert_eq!((before.to_device, before.to_host), (arrays, 0), "the arrays, when the state was made");
    }
}

/// candle's tensors record their origin.
#[test]
fn a_state_keeps_no_graph_of_earlier_steps() {
    let w = Var::zeros(3, DType::F32, &device()).unwrap();
    let vars = Vars::named([("w", w.clone())]).unwrap();
    let optimizer = adam(0.1);
    let mut state = DeviceState::init(&optimizer, &vars).unwrap();
    for _ in 0..20_000 {
        // Dropping such a graph would overflow the stack.
        let grads = w.affine(1.0, 1.0).and_then(|x| x.sqr()?.sum_all()?.backward()).unwrap();
        state.step(&optimizer, &vars, &grads).unwrap();
    }
    drop(state);
    assert!(w.to_vec1::<f32>().unwrap().iter().all(|x| (x + 1.0).abs() < 1e-2));
}
