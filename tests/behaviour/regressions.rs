//! Failures reported for other libraries.

use gradchain::Tree;
use gradchain::optimizer::Adam;
use gradchain::prelude::*;
use gradchain::schedule::from_fn;
use gradchain::state::{Entry, Flag, Kind, State, StateWalk};
use gradchain::transform::{scale, scale_by_schedule, trace};
use ndarray::{Array1, array};

fn gradient(step: usize) -> Array1<f32> {
    array![0.5, -1.0, 0.25].mapv(|x: f32| x * (1.0 + step as f32 * 0.1))
}

fn nan_in_the_middle() -> Array1<f32> {
    array![0.5, f32::NAN, 0.25]
}

/// Returns every flag.
fn flags<S: State>(state: &S) -> Vec<Flag> {
    let mut found = Vec::new();
    state.walk(&mut StateWalk::new(&mut |_, entry| match entry {
        Entry::Flag(flag) => found.push(*flag),
        Entry::Flags(flags) => found.extend(flags.iter().map(|(_, flag)| flag)),
        _ => {}
    }));
    found
}

/// An average leaves bool flags alone, and NaN does not stay in the accumulator.
#[test]
fn multi_steps_around_zero_nans_keeps_flags_and_survives_a_nan_batch() {
    for k in 1..=5_u32 {
        let optimizer = multi_steps(chain((zero_nans(), adamw(0.1))), k);
        let mut params = array![1.0_f32, 1.0, 1.0];
        let mut state = optimizer.init(&params).unwrap();
        let schema = state.schema();
        for step in 0..6 * k as usize {
            let bad = step == 2 * k as usize;
            let grads = if bad { nan_in_the_middle() } else { gradient(step) };
            let before = params.clone();
            let outcome = optimizer.step(&mut params, &grads, &mut state).unwrap();
            assert_eq!(outcome.emitted(), (step + 1) % k as usize == 0, "k = {k}, step {step}");
            assert!(params.iter().all(|p| p.is_finite()), "k = {k}, step {step}: {params}");
            assert_eq!(outcome.emitted(), params != before, "k = {k}, step {step}: training goes on");
            let found = state.inner().0.found_nan.get(0).unwrap().get();
            let window = step / k as usize;
            assert_eq!(found, outcome.emitted() && window == 2 || !outcome.emitted() && window == 3, "k = {k}, {step}");
            assert_eq!(state.schema(), schema, "k = {k}");
        }
        let accumulator = state.accumulator().to_array(0).unwrap();
        assert!(
            accumulator.iter().all(|x| *x == 0.0),
            "k = {k}: the accumulator is empty after the window: {accumulator}"
        );
        assert!(schema.entries.iter().any(|e| e.kind == Kind::Flag && e.field.ends_with("found_nan")), "{schema}");
    }
}

#[test]
fn zero_nans_before_multi_steps_keeps_a_nan_out_of_the_accumulator() {
    for k in 1..=5_u32 {
        let optimizer = chain((zero_nans(), multi_steps(adamw(0.1), k)));
        let clean = multi_steps(adamw(0.1), k);
        let (mut params, mut expected) = (array![1.0_f32, 1.0, 1.0], array![1.0_f32, 1.0, 1.0]);
        let (mut state, mut of_clean) = (optimizer.init(&params).unwrap(), clean.init(&expected).unwrap());
        for step in 0..6 * k as usize {
            let bad = step % 4 == 1;
            let grads = if bad { nan_in_the_middle() } else { gradient(step) };
            let zeroed = grads.mapv(|x| if x.is_nan() { 0.0 } else { x });
            optimizer.step(&mut params, &grads, &mut state).unwrap();
            clean.step(&mut expected, &zeroed, &mut of_clean).unwrap();
            assert_eq!(params, expected, "k = {k}, step {step}");
            assert_eq!(state.0.found_nan.get(0).unwrap().get(), bad, "k = {k}, step {step}");
            let accumulator = state.1.accumulator().to_array(0).unwrap();
            assert!(accumulator.iter().all(|x| x.is_finite()), "k = {k}, step {step}: {accumulator}");
        }
        assert_eq!(state.0.zeroed.get(0).unwrap().get(), (0..6 * k as u64).filter(|i| i % 4 == 1).count() as u64);
        assert_eq!(flags(&*state).len(), 2, "found_nan and skipped");
    }
}

/// Also for arguments that accept a function.
#[test]
fn parameters_that_can_be_called_never_are() {
    #[derive(Tree, Clone)]
    struct Model<F: Fn(f32) -> f32 + Clone> {
        weight: Array1<f32>,
        bias: Array1<f32>,
        #[tree(skip)]
        activation: F,
    }
    impl<F: Fn(f32) -> f32 + Clone> Model<F> {
        fn call(&self, _: f32) -> f32 {
            (self.activation)(0.0)
        }
    }
    let model = Model {
        weight: array![1.0, 2.0],
        bias: array![0.5],
        activation: |_| -> f32 { panic!("the model was called") },
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.call(0.0))).is_err(), "it can be called");
    let grads = model.clone();
    let optimizer = inject_hyperparams(adamw(0.1).weight_decay(0.5).mask(Mask::path("weight")));
    let mut params = model;
    let mut state = optimizer.init(&params).unwrap();
    state.hyperparams_mut().set("learning_rate", 0.01).unwrap();
    optimizer.step(&mut params, &grads, &mut state).unwrap();
    // 1 − 0.01·(1 + 0.5·1) on the weight; no decay on the bias.
    approx::assert_relative_eq!(params.weight[0], 0.985, max_relative = 1e-6);
    approx::assert_relative_eq!(params.bias[0], 0.49, max_relative = 1e-6);
}

/// A type that implements `Fn` is a tree by its own declaration.
///
/// The mask and the rate are a mask and a number by their types.
#[test]
fn a_tree_of_functions_and_arrays_is_a_tree() {
    fn never(_: f32) -> f32 {
        panic!("called")
    }
    #[derive(Tree)]
    struct Layer {
        weight: Array1<f64>,
        #[tree(skip)]
        function: fn(f32) -> f32,
    }
    let mut params = vec![Layer { weight: array![1.0], function: never }];
    let grads = [array![1.0_f64]];
    #[derive(Tree)]
    #[tree(read_only)]
    struct Grad<'a> {
        weight: &'a Array1<f64>,
    }
    let grads = [Grad { weight: &grads[0] }];
    let optimizer = inject_hyperparams(sgd(0.5));
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &grads, &mut state).unwrap();
    assert_eq!(params[0].weight, array![0.5]);
    assert_eq!(params[0].function as usize, never as fn(f32) -> f32 as usize);
}

/// 0.999 is 1 in bf16, and 1 − b2 would be 0.
#[cfg(feature = "half")]
#[test]
fn b2_of_0_999_works_on_bf16_parameters() {
    use half::bf16;
    let mut params = vec![bf16::from_f32(1.0)];
    let optimizer = inject_hyperparams(adam(0.125));
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![bf16::from_f32(0.25)], &mut state).unwrap();
    assert_eq!(params[0].to_f32(), 0.875);
    assert_eq!(
        state.inner().0.moment("nu").unwrap().dtype(0),
        Some(gradchain::DType::F32),
        "moments of 16-bit leaves are f32"
    );
}

/// Sums in bf16 stop growing, and in f16 overflow.
#[cfg(feature = "half")]
#[test]
fn the_norm_of_a_large_f16_leaf_neither_sticks_nor_overflows() {
    use half::f16;
    // The norm is 300·√10000 = 30000; its square overflows `f16`.
    let mut params = vec![f16::from_f32(0.0); 10_000];
    let grads = vec![f16::from_f32(300.0); 10_000];
    let optimizer = chain((clip_by_global_norm(100.0), scale(-1.0)));
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &grads, &mut state).unwrap();
    assert!(params.iter().all(|p| p.to_f32() == -1.0), "{}", params[0]);
}

/// Elsewhere others' raw gradients were added.
#[test]
fn masked_passes_other_leaves_and_freeze_others_freezes_them() {
    let params = || (array![1.0_f32], array![1.0_f32]);
    let grads = (array![0.5_f32], array![0.5_f32]);
    let only = masked(sgd(1.0), Mask::path("0"));
    let mut passed = params();
    let mut state = only.init(&passed).unwrap();
    only.step(&mut passed, &grads, &mut state).unwrap();
    assert_eq!(passed, (array![0.5], array![1.5]), "the others pass through");
    let freezing = only.freeze_others();
    let mut frozen = params();
    let mut state = freezing.init(&frozen).unwrap();
    freezing.step(&mut frozen, &grads, &mut state).unwrap();
    assert_eq!(frozen, (array![0.5], array![1.0]), "the others stay");
}

/// It keeps its path.
#[test]
fn a_replaced_parameter_keeps_its_moments() {
    let optimizer = adam(0.1);
    let mut params = array![1.0_f32, -2.0];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &array![1.0_f32, 1.0], &mut state).unwrap();
    let mut clipped = params.mapv(|x| x.clamp(-1.0, 1.0));
    let moments = |state: &gradchain::OptState<Adam>| state.0.moment("mu").unwrap().to_array(0).unwrap();
    let before = moments(&state);
    assert!(before.iter().all(|m| *m != 0.0));
    optimizer.step(&mut clipped, &array![0.0_f32, 0.0], &mut state).unwrap();
    assert_eq!(state.0.count.get(), 2);
    let after = moments(&state);
    before.iter().zip(&after).for_each(|(b, a)| assert!((a - 0.9 * b).abs() < 1e-7));
}

/// The half-written state is poisoned.
#[test]
fn a_panic_in_a_schedule_poisons_the_state() {
    let optimizer =
        chain((trace(0.9), scale_by_schedule(from_fn("breaks", |count| if count == 1 { panic!("no") } else { -1.0 }))));
    let mut params = array![1.0_f32];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &array![0.5_f32], &mut state).unwrap();
    let before = params.clone();
    let step = std::panic::AssertUnwindSafe(|| optimizer.step(&mut params, &array![0.5_f32], &mut state));
    assert!(std::panic::catch_unwind(step).is_err());
    assert_eq!(params, before, "schedules are evaluated before anything is written");
    let error = optimizer.step(&mut params, &array![0.5_f32], &mut state).unwrap_err();
    assert!(error.is_poisoned(), "{error}");
    assert_eq!(params, before);
    let mut fresh = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &array![0.5_f32], &mut fresh).unwrap();
    assert_eq!(params, array![0.0], "a new state works");
}

#[test]
fn a_boxed_transformation_refuses_the_state_of_another() {
    let mut params = array![1.0_f32];
    let mut state = boxed(adam(0.1)).init(&params).unwrap();
    let error = boxed(sgd(0.1)).step(&mut params, &array![1.0_f32], &mut state).unwrap_err();
    assert!(error.to_string().contains("made by another transformation"), "{error}");
    let mut state = chain(vec![boxed(sgd(0.1))]).init(&params).unwrap();
    let longer = chain(vec![boxed(sgd(0.1)), boxed(sgd(0.1))]);
    assert!(longer.step(&mut params, &array![1.0_f32], &mut state).is_err());
    assert_eq!(params, array![1.0]);
}

/// The division is recursive.
#[cfg(feature = "rayon")]
#[test]
fn many_chunks_fit_on_the_stack_of_a_thread() {
    let mut params = gradchain::tree::DynTree::new();
    (0..20_000).for_each(|i| params.insert(format!("{i}"), array![1.0_f32]));
    let optimizer = adam(0.1);
    let threads = rayon::ThreadPoolBuilder::new().num_threads(3).stack_size(512 << 10).build().unwrap();
    threads.install(|| {
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..3 {
            let grads = params.clone();
            optimizer.step(&mut params, &grads, &mut state).unwrap();
        }
    });
    assert!(params.get::<f32>("19999").unwrap()[0] < 0.8);
}
