use std::path::PathBuf;

use gradchain::Migration;
use gradchain::checkpoint::{Import, Origin};
use gradchain::optimizer::{adabelief, amsgrad};
use gradchain::schedule::{from_fn, piecewise_constant};
use gradchain::state::same_bits;
use gradchain::transform::{scale_by_rms, scale_by_stddev, trace};
use gradchain::tree::Layout;
use gradchain::wrapper::{freezable, master, schedule_free, skip_absent};
use ndarray::{ArrayD, IxDyn};
use num_traits::Float;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use super::*;

/// As in `make.py`: before the file was written, and until the end.
const BEFORE: u64 = 5;
const AFTER: u64 = 7;

fn path(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(format!("{case}.safetensors"))
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Layer<T: gradchain::Element> {
    weight: Array2<T>,
    bias: Array1<T>,
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Net<T: gradchain::Element> {
    fc: Layer<T>,
}

fn zeros<T: gradchain::Element + num_traits::Zero>() -> Net<T> {
    Net { fc: Layer { weight: Array2::zeros((2, 3)), bias: Array1::zeros(2) } }
}

trait Number: gradchain::Element + gradchain::tree::ArrayElement + Float {
    const TENSOR: Dtype;
    fn of(bytes: &[u8]) -> Self;
    fn ulps(self, other: Self) -> f64 {
        let (a, b) = (self.to_f64().unwrap(), other.to_f64().unwrap());
        let place = 2_f64.powf(a.abs().max(b.abs()).log2().floor()) * Self::epsilon().to_f64().unwrap();
        if a == b { 0.0 } else { (a - b).abs() / place }
    }
}
#[cfg(feature = "half")]
macro_rules! half_number {
    ($T:ident $TENSOR:ident) => {
        impl Number for half::$T {
            const TENSOR: Dtype = Dtype::$TENSOR;
            fn of(bytes: &[u8]) -> half::$T {
                half::$T::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    };
}
#[cfg(feature = "half")]
half_number!(bf16 BF16);
#[cfg(feature = "half")]
half_number!(f16 F16);
impl Number for f32 {
    const TENSOR: Dtype = Dtype::F32;
    fn of(bytes: &[u8]) -> f32 {
        f32::from_le_bytes(bytes.try_into().unwrap())
    }
}
impl Number for f64 {
    const TENSOR: Dtype = Dtype::F64;
    fn of(bytes: &[u8]) -> f64 {
        f64::from_le_bytes(bytes.try_into().unwrap())
    }
}

/// As in `make.py`.
fn gradient_at<T: Number>(params: &Net<T>, t: u64) -> Net<T> {
    let number = |x: f64| T::from(x).unwrap();
    let target = |i: usize| number([0.5, -0.25][i % 2]);
    let factor = number(1.0 + t as f64 / 4.0);
    let mut gradient = params.clone();
    gradient.fc.weight.iter_mut().enumerate().for_each(|(i, p)| *p = *p * factor - target(i));
    gradient.fc.bias.iter_mut().enumerate().for_each(|(i, p)| *p = *p * factor - target(i));
    gradient
}

/// Resumes another library's run; returns the largest distances from its result, after one step and at the end.
fn run<N: Number, T: GradientTransformation<Needs = Nothing>>(import: &Import, case: &str, optimizer: &T) -> [f64; 2] {
    let mut params = zeros::<N>();
    let mut state = import.load(optimizer, &mut params).unwrap();
    let mut next = None;
    for t in BEFORE..BEFORE + AFTER {
        let gradient = gradient_at(&params, t);
        // Two mini-steps.
        while !optimizer.step(&mut params, &gradient, &mut state).unwrap().emitted() {}
        next.get_or_insert_with(|| params.clone());
    }
    let bytes = std::fs::read(path(&format!("{case}.end"))).unwrap();
    let end = SafeTensors::deserialize(&bytes).unwrap();
    let distance = |what: &str, params: Net<N>| {
        let mut most = 0.0_f64;
        for (leaf, ours) in [("weight", params.fc.weight.into_dyn()), ("bias", params.fc.bias.into_dyn())] {
            let separator = if case.starts_with("torch") { '.' } else { '/' };
            let tensor = end.tensor(&format!("{what}/fc{separator}{leaf}")).unwrap();
            assert_eq!((tensor.dtype(), tensor.shape()), (N::TENSOR, ours.shape()));
            let values = tensor.data().chunks_exact(size_of::<N>()).map(N::of).collect();
            let theirs = ArrayD::from_shape_vec(IxDyn(tensor.shape()), values).unwrap();
            for (a, b) in ours.iter().zip(&theirs) {
                most = most.max(a.ulps(*b));
            }
        }
        most
    };
    let found = [distance("next", next.unwrap()), distance("params", params)];
    println!("{case}: {found:?} last places");
    found
}

/// Resumes another library's run; returns the largest distance, in units in the last place.
fn go_on<N: Number, T: GradientTransformation<Needs = Nothing>>(import: &Import, case: &str, optimizer: &T) -> f64 {
    run::<N, T>(import, case, optimizer)[1]
}

/// A unit in the last place per step.
///
/// PyTorch rounds a parameter twice in a step of AdamW, after the decay and after the update, and its Adam combines the
/// bias correction with other factors.
const PLACES: f64 = AFTER as f64;

#[test]
fn a_run_of_pytorch_resumes() {
    let import = |case| Import::torch(path(case)).unwrap();
    // PyTorch's SGD has no count.
    let counted = |case| import(case).at_step(BEFORE);
    let adam = adam(0.01).b1(0.8).b2(0.95).eps(1e-6);
    let adamw = adamw(0.01).weight_decay(0.125);
    let momentum = sgd(0.01).momentum(0.9);
    // Stages without arrays.
    let clipped = chain((clip(1e6), named_chain(["adamw"], (adamw.clone(),))));
    let found = [
        go_on::<f32, _>(&import("torch_adam"), "torch_adam", &adam),
        go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &adamw),
        go_on::<f64, _>(&import("torch_adamw_f64"), "torch_adamw_f64", &adamw),
        go_on::<f32, _>(&counted("torch_momentum"), "torch_momentum", &momentum),
        go_on::<f32, _>(&counted("torch_nesterov"), "torch_nesterov", &momentum.clone().nesterov(true)),
        go_on::<f32, _>(&counted("torch_sgd"), "torch_sgd", &sgd(0.01)),
        go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &clipped),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");
    // Wrong arguments and counts are detected.
    assert!(go_on::<f32, _>(&import("torch_adamw"), "torch_adamw", &adamw.clone().weight_decay(0.12)) > 100.0);
    let late = cosine_decay(0.01, 1000);
    let early = go_on::<f32, _>(&counted("torch_sgd"), "torch_sgd", &sgd(late));
    assert!(early > 10.0, "{early}");
}

#[test]
fn a_run_of_optax_resumes() {
    let import = |case| Import::optax(path(case)).unwrap();
    let schedule = cosine_decay(0.01, 20);
    let clipped = chain((clip_by_global_norm(1.0), adamw(schedule).weight_decay(0.125)));
    let momentum = sgd(0.01).momentum(0.9);
    let found = [
        go_on::<f32, _>(&import("optax_adam"), "optax_adam", &adam(0.01).b1(0.8).b2(0.95).eps(1e-6)),
        go_on::<f32, _>(&import("optax_adamw"), "optax_adamw", &clipped),
        go_on::<f64, _>(&import("optax_adamw_f64"), "optax_adamw_f64", &adamw(0.01).weight_decay(0.125)),
        go_on::<f32, _>(&import("optax_momentum").at_step(BEFORE), "optax_momentum", &momentum),
        go_on::<f32, _>(&import("optax_nesterov"), "optax_nesterov", &sgd(schedule).momentum(0.9).nesterov(true)),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");
    // At the file's count.
    let fresh = Import::optax(path("optax_momentum")).unwrap().at_step(0);
    assert!(go_on::<f32, _>(&fresh, "optax_nesterov", &sgd(schedule).momentum(0.9).nesterov(true)) > 100.0);
}

/// As `save` of `make.py`.
fn decayed() -> gradchain::optimizer::Adamw {
    adamw(0.01).weight_decay(0.125)
}

/// Returns PyTorch's AMSGrad: see `docs/from-pytorch.md`.
fn amsgrad_of_pytorch() -> gradchain::optimizer::Amsgrad {
    let root = |count: u64| (1.0 - 0.999_f64.powf(count as f64 + 1.0)).sqrt();
    amsgrad(from_fn("rate", move |count| 0.01 * root(count)))
        .eps(from_fn("eps", move |count| 1e-8 * root(count)))
        .bias_correction_nu(false)
}

#[test]
fn runs_of_other_optimizers_of_pytorch_resume() {
    let import = |case| Import::torch(path(case)).unwrap();
    let rms = || scale_by_rms().decay(0.95).eps(1e-6).eps_in_sqrt(false);
    let stddev = || scale_by_stddev().decay(0.95).eps(1e-6).eps_in_sqrt(false);
    let plain = rmsprop(0.01).decay(0.95).eps(1e-6).eps_in_sqrt(false);
    let adagrad = adagrad(0.1).initial_accumulator_value(0.0).eps(1e-10).eps_in_sqrt(false);
    let found = [
        go_on::<f32, _>(&import("torch_amsgrad"), "torch_amsgrad", &amsgrad_of_pytorch()),
        go_on::<f32, _>(&import("torch_rmsprop"), "torch_rmsprop", &plain),
        go_on::<f32, _>(&import("torch_rmsprop"), "torch_rmsprop", &chain((rms(), scale_by_learning_rate(0.01)))),
        go_on::<f32, _>(&import("torch_rmsprop_centered"), "torch_rmsprop_centered", &plain.clone().centered()),
        go_on::<f32, _>(
            &import("torch_rmsprop_centered"),
            "torch_rmsprop_centered",
            &chain((stddev(), scale_by_learning_rate(0.01))),
        ),
        go_on::<f32, _>(&import("torch_adagrad"), "torch_adagrad", &adagrad),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");
    // Momentum amplifies differences.
    let heavy = chain((rms(), trace(0.9), scale_by_learning_rate(0.01)));
    let [next, end] = run::<f32, _>(&import("torch_rmsprop_momentum"), "torch_rmsprop_momentum", &heavy);
    assert!(next <= 1.0 && end <= 3.0 * PLACES, "{next} {end}");
    let muon = muon(0.02).layout(Layout::OutIn).weight_decay(0.1).nesterov(false).eps(1e-7);
    let muon = muon.adam_learning_rate(0.01).adam_weight_decay(0.125);
    let [next, end] = run::<f32, _>(&import("torch_muon_f32"), "torch_muon_f32", &muon);
    assert!(next <= 4.0 && end <= 2.0 * PLACES, "{next} {end}");
    // PyTorch multiplies in bf16: an update of 0.02 is exact to a 64th, and parameters are larger than a 16th.
    let [next, _] = run::<f32, _>(&import("torch_muon"), "torch_muon", &muon);
    let places = 0.02 / 64.0 * 16.0 / f64::from(f32::EPSILON);
    assert!(next <= places, "{next} of {places}");
}

#[test]
fn runs_of_other_optimizers_of_optax_resume() {
    let import = |case| Import::optax(path(case)).unwrap();
    // Without a schedule these have no count.
    let counted = |case| import(case).at_step(BEFORE);
    let schedule = cosine_decay(0.01, 20);
    let labels = || Labels::by(|leaf| if leaf.path().ends_with("weight") { "weights" } else { "biases" });
    let groups = partition((("weights", decayed()), ("biases", sgd(schedule).momentum(0.9))), labels());
    let found = [
        run::<f32, _>(&import("optax_amsgrad"), "optax_amsgrad", &amsgrad(0.01)),
        run::<f32, _>(&counted("optax_rmsprop"), "optax_rmsprop", &rmsprop(0.01).decay(0.95)),
        run::<f32, _>(
            &counted("optax_rmsprop_momentum"),
            "optax_rmsprop_momentum",
            &rmsprop(0.01).decay(0.95).centered().momentum(0.9),
        ),
        run::<f32, _>(&counted("optax_adagrad"), "optax_adagrad", &adagrad(0.1)),
        run::<f32, _>(&import("optax_muon"), "optax_muon", &muon(0.02).weight_decay(0.1)),
        run::<f32, _>(&import("optax_partition"), "optax_partition", &groups),
        run::<f32, _>(&import("optax_inject"), "optax_inject", &inject_hyperparams(decayed())),
        run::<f32, _>(&import("optax_multi_steps"), "optax_multi_steps", &multi_steps(decayed(), 2)),
    ];
    assert!(found.iter().all(|[next, _]| *next <= 2.0), "{found:?}");
    // Differences grow, most for a variance as the difference of two means.
    assert!(found.iter().all(|[_, end]| *end <= 20.0 * PLACES), "{found:?}");
}

/// As `groups` of `make.py`.
fn groups() -> impl GradientTransformation<Needs = Nothing> {
    let (weights, biases) = (adamw(0.01).weight_decay(0.125), adamw(0.02).weight_decay(0.0));
    let labels = Labels::by(|leaf| if leaf.path().ends_with("weight") { "weights" } else { "biases" });
    partition((("weights", weights), ("biases", biases)), labels)
}

#[test]
fn groups_of_pytorch_are_a_partition() {
    let import = Import::torch(path("torch_groups")).unwrap();
    assert!(go_on::<f32, _>(&import, "torch_groups", &groups()) <= PLACES);
}

#[test]
fn wrappers_that_remember_no_steps_need_no_verb() {
    let import = Import::torch(path("torch_adamw")).unwrap();
    let found = [
        go_on::<f32, _>(&import, "torch_adamw", &multi_steps(decayed(), 2)),
        go_on::<f32, _>(&import, "torch_adamw", &multi_steps(freezable(inject_hyperparams(decayed())), 1)),
        go_on::<f32, _>(&import, "torch_adamw", &skip_absent(decayed())),
        go_on::<f32, _>(&import, "torch_adamw", &named_chain(["clip", "adamw"], (clip(1e6), decayed()))),
    ];
    assert!(found.iter().all(|places| *places <= PLACES), "{found:?}");

    // At the count.
    let growing = multi_steps(decayed(), piecewise_constant(1.0, [(5, 2.0)]));
    let mut params = zeros::<f32>();
    let mut state = import.load(&growing, &mut params).unwrap();
    assert_eq!((state.gradient_step().get(), state.mini_step().get()), (5, 0));
    assert!(!growing.step(&mut params, &zeros::<f32>(), &mut state).unwrap().emitted());

    // State computed from counts or parameters must be requested.
    let averaged = params_ema(decayed(), 0.5);
    let error = import.load(&averaged, &mut params).unwrap_err().to_string();
    let verb = "`Migration::new().wrap_part(\"\")` initializes the own state of params_ema";
    assert!(error.contains("PyTorch has no equivalent of the state of params_ema") && error.ends_with(verb), "{error}");
    let import = import.migrating(Migration::new().wrap_part(""));
    let mut params = zeros::<f32>();
    let state = import.load(&averaged, &mut params).unwrap();
    assert_eq!(*state.eval_params(&params).unwrap(), params, "it begins with the parameters of the file");
    assert!(params.fc.bias[0] != 0.0);
    assert!(go_on::<f32, _>(&import, "torch_adamw", &averaged) <= PLACES);
}

#[test]
fn leaves_that_had_fewer_steps_are_counted_apart() {
    let import = || Import::torch(path("torch_later")).unwrap();
    assert!(go_on::<f32, _>(&import(), "torch_later", &decayed()) <= PLACES);
    let mut params = zeros::<f32>();
    let state = import().load(&decayed(), &mut params).unwrap();
    let updates = |leaf: &str| state.0.updates.get(state.structure().index_of(leaf).unwrap()).unwrap().get();
    assert_eq!((state.0.count.get(), updates("fc/weight"), updates("fc/bias")), (BEFORE, BEFORE, BEFORE - 2));
    // A schedule's count may exceed any leaf's, but not be smaller.
    let state = import().at_step(BEFORE + 1).load(&decayed(), &mut params).unwrap();
    assert_eq!(state.2.count.get(), BEFORE + 1);
    let error = import().at_step(BEFORE - 1).load(&decayed(), &mut params).unwrap_err().to_string();
    assert!(error.ends_with("`state/fc.weight/step`: expected at most 4 steps (`at_step`), found 5"), "{error}");
}

/// As after `migrate`.
#[test]
fn fresh_leaves_take_their_first_step() {
    let import = Import::torch(path("torch_adamw")).unwrap();
    let import = import.migrating(Migration::new().fresh("fc/bias"));
    let optimizer = adam(0.01).eps(0.0);
    let mut params = zeros::<f32>();
    let mut state = import.load(&optimizer, &mut params).unwrap();
    let mut gradient = zeros::<f32>();
    gradient.fc.bias.fill(3.0);
    optimizer.step(&mut params, &gradient, &mut state).unwrap();
    assert!(params.fc.bias.iter().all(|p| (p + 0.01).abs() < 1e-8), "{:?}", params.fc.bias);
}

#[test]
fn state_by_number_has_names() {
    let import = || Import::torch(path("torch_state_dict")).unwrap();
    let mut params = zeros::<f32>();
    let error = import().load(&decayed(), &mut params).unwrap_err().to_string();
    assert!(error.contains("the state is keyed by index: pass the names of the parameters"), "{error}");
    let named = || import().names(["module.fc.weight", "module.fc.bias"]);
    let error = named().load(&decayed(), &mut params).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "`Migration::new().rename(\"module\", \"\")` renames leaves to their paths here; `DistributedDataParallel` \
             and `torch.compile` add that prefix to names"
        ),
        "{error}"
    );
    let named = named().migrating(Migration::new().rename("module", ""));
    assert!(go_on::<f32, _>(&named, "torch_state_dict", &decayed()) <= PLACES);
    let error = import().names(["module.fc.weight"]).load(&decayed(), &mut params).unwrap_err().to_string();
    assert!(error.contains("`state/1/exp_avg`: expected an index into the 1 `names`"), "{error}");
}

#[test]
fn levels_that_were_put_into_names_are_named() {
    let torch = |tensors: &[Made<'_>]| Import::from_bytes(Origin::Torch, made(tensors)).unwrap().at_step(0);
    let hint = |tensors: &[Made<'_>]| {
        let error = torch(tensors).load(&sgd(0.1), &mut here()).unwrap_err().to_string();
        error.lines().last().unwrap().trim().to_owned()
    };
    let (a, b): (&[f64], &[f64]) = (&[1.0, 2.0], &[3.0]);
    let said = hint(&[("params/_orig_mod.module.a", F, &[2], a), ("params/_orig_mod.module.b.w", F, &[], b)]);
    assert!(said.starts_with("`Migration::new().rename(\"_orig_mod/module\", \"\")`"), "{said}");
    // A part of a compiled model.
    let said = hint(&[("params/a", F, &[2], a), ("params/b._orig_mod.w", F, &[], b)]);
    assert!(said.starts_with("`Migration::new().rename(\"b/_orig_mod\", \"b\")`"), "{said}");
    // One more level.
    let mut params = DynTree::new();
    params.insert("net/a", array![0.0_f32, 0.0]);
    let error = torch(&[("params/a", F, &[2], a)]).load(&sgd(0.1), &mut params).unwrap_err().to_string();
    assert!(error.ends_with("`Migration::new().rename(\"\", \"net\")` renames leaves to their paths here"), "{error}");
    let import = torch(&[("params/a", F, &[2], a)]).migrating(Migration::new().rename("", "net"));
    import.load(&sgd(0.1), &mut params).unwrap();
    assert_eq!(params.get::<f32>("net/a").unwrap(), array![1.0, 2.0].into_dyn());
    // Another name.
    let mut params = DynTree::new();
    params.insert("fc1/a", array![0.0_f32, 0.0]);
    params.insert("fc2/a", array![0.0_f32]);
    let saved: &[Made<'_>] = &[("params/fc.a", F, &[2], a), ("params/fc2.a", F, &[1], b)];
    let error = torch(saved).load(&sgd(0.1), &mut params).unwrap_err().to_string();
    assert!(
        error.ends_with("`Migration::new().rename(\"fc\", \"fc1\")` renames leaves to their paths here"),
        "{error}"
    );
    torch(saved).migrating(Migration::new().rename("fc", "fc1")).load(&sgd(0.1), &mut params).unwrap();
    assert_eq!(params.get::<f32>("fc1/a").unwrap(), array![1.0, 2.0].into_dyn());
    // Another layer.
    let saved: &[Made<'_>] = &[("params/fc.a", F, &[1], b), ("params/fc2.a", F, &[1], b)];
    let error = torch(saved).load(&sgd(0.1), &mut params).unwrap_err().to_string();
    assert!(!error.contains("rename("), "{error}");
    // No similar paths.
    let said = hint(&[("params/x", F, &[2], a), ("params/y", F, &[], b)]);
    assert!(!said.contains("rename"), "{said}");
}

#[cfg(feature = "half")]
#[test]
fn moments_of_sixteen_bits_are_widened() {
    use gradchain::DType;
    use half::{bf16, f16};
    // Both round each operation and the moments to 16 bits.
    let optax = |case| Import::optax(path(case)).unwrap();
    let torch = |case| Import::torch(path(case)).unwrap();
    let found = [
        run::<bf16, _>(&torch("torch_groups_bf16"), "torch_groups_bf16", &groups()),
        run::<f16, _>(&torch("torch_f16"), "torch_f16", &adamw(0.01).eps(1e-4).weight_decay(0.01)),
        run::<bf16, _>(&optax("optax_bf16"), "optax_bf16", &adam(0.01)),
        run::<bf16, _>(&optax("optax_bf16_moments"), "optax_bf16_moments", &adam(0.01)),
    ];
    assert!(found.iter().all(|[next, _]| *next <= 2.0), "{found:?}");

    let mut params = zeros::<bf16>();
    let state = optax("optax_bf16").load(&adam(0.01).nu_dtype(DType::Bf16), &mut params).unwrap();
    let kept = state.0.moment("nu").unwrap();
    let state = optax("optax_bf16").load(&adam(0.01), &mut params).unwrap();
    let widened = state.0.moment("nu").unwrap();
    assert_eq!((kept.dtype(0), widened.dtype(0)), (Some(DType::Bf16), Some(DType::F32)));
    let narrow: Vec<f32> = kept.get::<bf16>(0).unwrap().iter().map(|x| x.to_f32()).collect();
    assert_eq!(widened.get::<f32>(0).unwrap(), narrow);

    // Rounding needs a request.
    let optimizer = adam(0.01).mu_dtype(DType::Bf16);
    let error = optax("optax_bf16").load(&optimizer, &mut params).unwrap_err().to_string();
    assert!(error.contains("`mu/fc/weight`: expected bf16 [2, 3], found f32 [2, 3]"), "{error}");
    assert!(error.ends_with("`Migration::new().cast_part(..)` rounds arrays of the state to their dtypes here"));
    optax("optax_bf16").migrating(Migration::new().cast_part("0.mu")).load(&optimizer, &mut params).unwrap();
    let error = optax("optax_bf16").migrating(Migration::new().cast_part("mu")).load(&optimizer, &mut params);
    assert!(error.unwrap_err().to_string().contains("cast_part: the state has no part `mu`"));
}

#[cfg(feature = "half")]
#[test]
fn a_run_in_f32_resumes_in_bf16() {
    use half::bf16;
    let import = || Import::torch(path("torch_adamw")).unwrap();
    let (mut wide, mut narrow) = (zeros::<f32>(), zeros::<bf16>());
    let state = import().load(&decayed(), &mut wide).unwrap();
    let error = import().load(&decayed(), &mut narrow).unwrap_err().to_string();
    assert!(error.contains("`params/fc.weight`: expected bf16 [2, 3], found f32 [2, 3]"), "{error}");
    assert!(error.contains("`Migration::new().cast(Mask::all())`"), "{error}");
    let rounded = import().migrating(Migration::new().cast(Mask::all())).load(&decayed(), &mut narrow).unwrap();
    let expected = wide.fc.weight.mapv(bf16::from_f32);
    assert_eq!(narrow.fc.weight, expected);
    assert!(same_bits(&state.0, &rounded.0), "moments are f32 in both");

    let migration = Migration::new().cast(Mask::all()).wrap_part("").params_to_part("master");
    let mut narrow = zeros::<bf16>();
    let held = import().migrating(migration).load(&master(decayed()), &mut narrow).unwrap();
    assert_eq!(narrow.fc.weight, expected);
    let weight = held.structure().index_of("fc/weight").unwrap();
    let all: Vec<f32> = wide.fc.weight.iter().copied().collect();
    assert_eq!(held.master().get::<f32>(weight).unwrap(), all);
}

/// Name, dtype, shape, values.
type Made<'a> = (&'a str, Dtype, &'a [usize], &'a [f64]);

fn made(tensors: &[Made<'_>]) -> Vec<u8> {
    let bytes = |dtype, values: &[f64]| -> Vec<u8> {
        let all = values.iter().map(|x| match dtype {
            Dtype::F64 => x.to_le_bytes().to_vec(),
            Dtype::I64 => (*x as i64).to_le_bytes().to_vec(),
            Dtype::I32 => (*x as i32).to_le_bytes().to_vec(),
            _ => (*x as f32).to_le_bytes().to_vec(),
        });
        all.flatten().collect()
    };
    let data: Vec<_> = tensors.iter().map(|(.., dtype, _, values)| bytes(*dtype, values)).collect();
    let views = tensors
        .iter()
        .zip(&data)
        .map(|((name, dtype, shape, _), data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
    serialize(views, None).unwrap()
}

const F: Dtype = Dtype::F32;

/// PyTorch's Adam, for leaves `a` and `b/w`.
const ADAM: [Made<'_>; 8] = [
    ("params/a", F, &[2], &[1.0, 2.0]),
    ("params/b.w", F, &[], &[3.0]),
    ("state/a/exp_avg", F, &[2], &[0.5, 0.25]),
    ("state/a/exp_avg_sq", F, &[2], &[0.75, 0.5]),
    ("state/a/step", F, &[], &[9.0]),
    ("state/b.w/exp_avg", F, &[], &[0.125]),
    ("state/b.w/exp_avg_sq", F, &[], &[0.25]),
    ("state/b.w/step", F, &[], &[9.0]),
];

fn here() -> DynTree {
    let mut tree = dyn_tree(&[("a", &[0.0, 0.0])]);
    tree.insert("b/w", ndarray::arr0(0.0_f32));
    tree
}

/// Changes, removes or adds a tensor.
fn with(change: Made<'_>) -> Vec<u8> {
    let mut tensors: Vec<_> = ADAM.into_iter().filter(|tensor| tensor.0 != change.0).collect();
    tensors.push(change);
    made(&tensors)
}

fn without(name: &str) -> Vec<u8> {
    made(&ADAM.into_iter().filter(|tensor| tensor.0 != name).collect::<Vec<_>>())
}

/// Asserts that nothing changes.
fn refused<T: GradientTransformation>(import: &Import, optimizer: &T) -> String {
    let mut params = here();
    let error = import.load(optimizer, &mut params).unwrap_err();
    assert!(error.is_mismatch(), "{error}");
    assert_eq!(params, here(), "nothing is changed");
    let text = error.to_string();
    text.strip_prefix("the file does not fit: ").unwrap().to_owned()
}

#[test]
fn every_difference_of_a_file_is_named() {
    let torch = |bytes| Import::from_bytes(Origin::Torch, bytes).unwrap();
    let adam = adamw(0.1);
    let mut params = here();
    let state = torch(made(&ADAM)).load(&adam, &mut params).unwrap();
    assert_eq!((state.0.count.get(), state.2.count.get()), (9, 9));
    assert_eq!(params.get::<f32>("a").unwrap(), array![1.0_f32, 2.0].into_dyn());

    for (bytes, said) in [
        (with(("state/a/exp_avg", F, &[1, 2], &[0.0, 0.0])), "`state/a/exp_avg`: expected f32 [2], found f32 [1, 2]"),
        (
            with(("state/a/exp_avg", Dtype::F64, &[2], &[0.0, 0.0])),
            "`state/a/exp_avg`: expected f32 [2], found f64 [2]\n  `Migration::new().cast_part(..)` rounds arrays of \
             the state to their dtypes here",
        ),
        (
            with(("state/a/exp_avg", Dtype::I32, &[2], &[0.0, 0.0])),
            "`state/a/exp_avg`: expected f32 [2], found I32 [2]",
        ),
        (with(("params/a", F, &[3], &[0.0; 3])), "`params/a`: expected f32 [2], found f32 [3]"),
        (without("state/b.w/exp_avg_sq"), "missing tensor `state/b.w/exp_avg_sq`: f32 []"),
        (without("params/b.w"), "missing tensor `params/b.w`: f32 []"),
        (without("state/b.w/step"), "missing tensor `state/b.w/step`: a step count"),
        (with(("state/c/exp_avg", F, &[2], &[0.0; 2])), "unexpected tensor `state/c/exp_avg`"),
        (with(("state/c/step", F, &[], &[9.0])), "unexpected tensor `state/c/step`"),
        (with(("params/c", F, &[], &[9.0])), "unexpected tensor `params/c`"),
        (with(("state/a/max_exp_avg_sq", F, &[2], &[0.0; 2])), "unexpected tensor `state/a/max_exp_avg_sq`"),
        (with(("state/a/momentum_buffer", F, &[2], &[0.0; 2])), "unexpected tensor `state/a/momentum_buffer`"),
        (with(("mu/a", F, &[2], &[0.0; 2])), "unexpected tensor `mu/a`"),
        (with(("params/b/w", F, &[], &[0.0])), "`params/b.w` and `params/b/w` are the same array of leaf `b/w`"),
        (with(("state/b.w/step", F, &[], &[8.5])), "`state/b.w/step`: expected a step count, found 8.5"),
        (with(("state/b.w/step", F, &[], &[f64::NAN])), "`state/b.w/step`: expected a step count, found NaN"),
        (with(("state/b.w/step", F, &[], &[-1.0])), "`state/b.w/step`: expected a step count, found -1.0"),
        (with(("state/b.w/step", Dtype::I64, &[], &[-1.0])), "`state/b.w/step`: expected a step count, found negative"),
        (
            with(("state/b.w/step", F, &[], &[16_777_216.0])),
            "`state/b.w/step`: expected a step count, found 16777216.0, where a count of this dtype saturates",
        ),
        (with(("state/b.w/step", F, &[2], &[9.0, 9.0])), "`state/b.w/step`: expected one step count, found [2]"),
    ] {
        assert_eq!(refused(&torch(bytes), &adam), format!("1 difference\n  {said}"));
    }
    let here = refused(&torch(made(&ADAM[..3])), &adam);
    assert_eq!(
        here,
        "5 differences\n  missing tensor `state/b.w/exp_avg`: f32 []\n  missing tensor `state/a/exp_avg_sq`: f32 [2]\n  \
         missing tensor `state/b.w/exp_avg_sq`: f32 []\n  missing tensor `state/a/step`: a step count\n  missing \
         tensor `state/b.w/step`: a step count\n  `Migration::new().fresh(\"b/w\")` initializes the state of this \
         leaf, which the file lacks"
    );
    // A given count must match the file.
    assert!(torch(with(("state/b.w/step", Dtype::I64, &[], &[9.0]))).load(&adam, &mut params).is_ok());
    assert!(torch(made(&ADAM)).at_step(9).load(&adam, &mut params).is_ok());
    assert_eq!(
        refused(&torch(made(&ADAM)).at_step(8), &adam),
        "2 differences\n  `state/a/step`: expected at most 8 steps (`at_step`), found 9\n  `state/b.w/step`: expected \
         at most 8 steps (`at_step`), found 9"
    );
}

#[test]
fn momentum_of_pytorch_has_a_buffer_or_is_refused() {
    let momentum = sgd(0.1).momentum(0.9);
    let params = [("params/a", F, &[2][..], &[1.0, 2.0][..]), ("params/b.w", F, &[], &[3.0])];
    let before = Import::from_bytes(Origin::Torch, made(&params)).unwrap();
    assert_eq!(
        refused(&before, &momentum),
        "2 differences\n  missing tensor `state/a/momentum_buffer`: f32 [2]\n  \
         missing tensor `state/b.w/momentum_buffer`: f32 []"
    );
    assert_eq!(refused(&before, &sgd(0.1)), "1 difference\n  the file has no step count; set it with `at_step`");
    let state = before.at_step(4).load(&sgd(0.1), &mut here()).unwrap();
    assert_eq!(state.1.count.get(), 4);

    // A file from before the first step, on request.
    let before = Import::from_bytes(Origin::Torch, made(&params)).unwrap().at_step(0);
    let fresh = before.migrating(Migration::new().fresh(Mask::all()));
    let state = fresh.load_state(&momentum, &here()).unwrap();
    let trace = state.0.moment("trace").unwrap();
    assert_eq!((trace.get::<f32>(0), trace.get::<f32>(1)), (Some(&[0.0, 0.0][..]), Some(&[0.0][..])));
    assert_eq!((state.0.count.get(), state.1.count.get()), (0, 0));
}

#[test]
fn other_optimizers_are_not_taken_for_adam() {
    let torch = Import::from_bytes(Origin::Torch, made(&ADAM)).unwrap();
    let said = refused(&torch, &radam(0.1));
    assert!(said.contains("optimizer: $: PyTorch has no equivalent of the state of radam"), "{said}");
    let said = refused(&torch, &chain((adabelief(0.1), clip(1.0))));
    assert!(said.contains("optimizer: $.chain[0]: PyTorch has no equivalent of the state of adabelief"), "{said}");
    for said in
        [refused(&torch, &lookahead(adam(0.1), 2, 0.5)), refused(&torch, &master(schedule_free(adam(0.1), 1.0)))]
    {
        let (name, copies) = if said.contains("lookahead") {
            ("lookahead", "")
        } else {
            ("master", "; then `params_to_part(\"master\")` fills its copies with the file's unrounded parameters")
        };
        let expected = format!(
            "1 difference\n  optimizer: $: PyTorch has no equivalent of the state of {name}\n  \
             `Migration::new().wrap_part(\"\")` initializes the own state of {name}{copies}"
        );
        assert_eq!(said, expected);
    }
    let said = refused(&torch, &amsgrad(0.1));
    assert!(said.contains("$: PyTorch takes the maximum of second moments before bias correction"), "{said}");
    let said = refused(&torch, &rmsprop(0.1).momentum(0.9));
    assert!(said.contains("$: PyTorch multiplies by the learning rate after the momentum"), "{said}");
    let import = Import::from_bytes(Origin::Torch, made(&ADAM)).unwrap();
    let said = refused(&import.migrating(Migration::new().rename_part("0", "1")), &adam(0.1));
    assert!(
        said.contains("rename_part: the state has no part `0`: a file of PyTorch names leaves, not parts"),
        "{said}"
    );
    let said = refused(&torch, &chain((scale_by_adam(), scale_by_adam())));
    assert!(said.contains("two arrays of its state would load `state/a/exp_avg`"), "{said}");
    // A file of the other library.
    let said = refused(&Import::from_bytes(Origin::Optax, made(&ADAM)).unwrap(), &adam(0.1));
    assert!(said.contains("unexpected tensor `state/a/exp_avg`") && said.contains("missing tensor `mu/a`"), "{said}");
    assert!(said.ends_with("the names are those of PyTorch: `Import::torch` reads them"), "{said}");
    let optax = made(&[("params/a", F, &[2], &[1.0, 2.0]), ("mu/a", F, &[2], &[0.5, 0.25])]);
    let said = refused(&Import::from_bytes(Origin::Torch, optax).unwrap(), &adam(0.1));
    assert!(said.ends_with("the names are those of Optax: `Import::optax` reads them"), "{said}");
}

#[test]
fn leaves_are_renamed_dropped_and_fresh() {
    let mut params = dyn_tree(&[("model/a", &[0.0, 0.0]), ("head", &[7.0])]);
    let migration = Migration::new().rename("a", "model/a").drop(Mask::path("b/*")).fresh(Mask::path("head"));
    let import = Import::from_bytes(Origin::Torch, made(&ADAM)).unwrap().migrating(migration);
    let optimizer = adam(0.1);
    let state = import.load(&optimizer, &mut params).unwrap();
    assert_eq!(params, dyn_tree(&[("model/a", &[1.0, 2.0]), ("head", &[7.0])]));
    let mu = state.0.moment("mu").unwrap();
    let leaf = |path| state.structure().index_of(path).unwrap();
    assert_eq!(mu.get::<f32>(leaf("model/a")), Some(&[0.5, 0.25][..]));
    assert_eq!(mu.get::<f32>(leaf("head")), Some(&[0.0][..]));
    assert_eq!(state.0.count.get(), 9);
}

#[test]
fn only_leaves_under_a_mask_have_state() {
    let optimizer = masked(sgd(0.1).momentum(0.5), Mask::path("a")).freeze_others();
    let file = made(&[("trace/a", F, &[2], &[0.5, 0.25]), ("count", Dtype::I32, &[], &[3.0])]);
    let mut params = here();
    let mut state = Import::from_bytes(Origin::Optax, file).unwrap().load_state(&optimizer, &params).unwrap();
    let zero = here();
    optimizer.step(&mut params, &zero, &mut state).unwrap();
    assert_eq!(params.get::<f32>("a").unwrap(), array![-0.025_f32, -0.0125].into_dyn());
}

#[test]
fn a_bare_array_has_the_empty_path() {
    let file = made(&[
        ("params/", F, &[1], &[2.0]),
        ("mu/", F, &[1], &[0.5]),
        ("nu/", F, &[1], &[0.25]),
        ("count", Dtype::I32, &[], &[1.0]),
    ]);
    let mut params = array![0.0_f32];
    let state = Import::from_bytes(Origin::Optax, file).unwrap().load(&adam(0.1), &mut params).unwrap();
    assert_eq!((params[0], state.0.count.get()), (2.0, 1));
}

#[test]
fn memory_order_is_that_of_the_parameters() {
    use ndarray::ShapeBuilder;
    let mut columns = Net { fc: Layer { weight: Array2::<f32>::zeros((2, 3).f()), bias: Array1::zeros(2) } };
    let mut rows = zeros::<f32>();
    let (import, optimizer) = (Import::torch(path("torch_adamw")).unwrap(), adamw(0.01).weight_decay(0.125));
    let mut of_columns = import.load(&optimizer, &mut columns).unwrap();
    let mut of_rows = import.load(&optimizer, &mut rows).unwrap();
    assert_eq!(columns, rows);
    for _ in 0..3 {
        step(&optimizer, &mut columns, &mut of_columns);
        step(&optimizer, &mut rows, &mut of_rows);
    }
    assert_eq!(columns, rows);
}

fn step<T: GradientTransformation<Needs = Nothing>, P: TreeMut + Clone>(
    optimizer: &T,
    params: &mut P,
    state: &mut OptState<T>,
) {
    let gradient = params.clone();
    optimizer.step(params, &gradient, state).unwrap();
}

#[test]
fn other_files_are_refused() {
    for bytes in [b"PK\x03\x04 a zip file, as PyTorch makes".to_vec(), Vec::new(), vec![255; 64]] {
        assert!(Import::from_bytes(Origin::Torch, bytes).unwrap_err().is_file());
    }
    assert!(Import::optax(path("nowhere")).unwrap_err().is_file());
    // Longer than any memory, beside an empty axis.
    let header =
        r#"{"params/a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let import = Import::from_bytes(Origin::Torch, bytes);
    let error = import.and_then(|import| import.load(&adam(0.1), &mut here())).unwrap_err();
    assert!(error.is_file() && error.to_string().contains("exceeds the address space"), "{error}");
}
