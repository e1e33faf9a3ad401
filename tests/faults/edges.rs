//! Extreme leaves and numbers work and round-trip through a file, or are an error, never a panic.

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::optimizer::{novograd, soap};
use gradchain::schedule::{linear, piecewise_constant, polynomial, warmup_constant};
use gradchain::state::same_bits;
use gradchain::transform::{
    adaptive_grad_clip, add_noise, apply_every, clip_by_block_rms, scale, scale_by_lbfgs, scale_by_schedule, trace,
};
use gradchain::tree::DynTree;
use gradchain::wrapper::{conditionally_transform, schedule_free, step_mod};
use ndarray::{ArrayD, IxDyn};

use super::*;

pub(crate) fn optimizers() -> Vec<(&'static str, Boxed)> {
    vec![
        ("sgd", boxed(sgd(0.1).momentum(0.9).nesterov(true))),
        ("adamw", boxed(adamw(cosine_decay(0.1, 3)).mask(Mask::min_ndim(2)))),
        ("lion", boxed(lion(0.01))),
        ("lamb", boxed(lamb(0.1))),
        ("adafactor", boxed(adafactor(0.1).min_dim_size_to_factor(2))),
        ("muon", boxed(muon(0.1))),
        ("adagrad", boxed(adagrad(0.1))),
        ("lbfgs without a search", boxed(scale_by_lbfgs().memory_size(2))),
        ("clipped", boxed(chain((clip_by_global_norm(1.0), zero_nans(), adam(0.1))))),
        ("clipped by leaf", boxed(chain((adaptive_grad_clip(0.1), clip_by_block_rms(1.0), sgd(0.1))))),
        ("multi_steps", boxed(multi_steps(adamw(0.1), 3))),
        ("a growing window", boxed(multi_steps(sgd(0.1), linear(1.0, 3.0, 2)))),
        ("apply_if_finite", boxed(apply_if_finite(adam(0.1), 2))),
        ("schedule_free", boxed(schedule_free(sgd(0.1), 0.1))),
        ("lookahead", boxed(lookahead(adam(0.1), 2, 0.5))),
        ("injected", boxed(inject_hyperparams(adamw(linear(0.1, 0.0, 3))).static_args(["mask"]))),
        ("noise", boxed(chain((add_noise(0.1, 0.5, 7), sgd(0.1))))),
        ("averaged", boxed(params_ema(sgd(0.1), 0.9))),
        ("soap", boxed(soap(0.1).precondition_frequency(2))),
        ("novograd", boxed(novograd(0.1))),
        ("in some steps", boxed(chain((conditionally_transform(trace(0.9), step_mod(2, 0)), scale(-0.1))))),
    ]
}

fn insert(tree: &mut DynTree, name: &str, shape: &[usize], wide: bool, of: impl Fn(usize) -> f64) {
    let len = shape.iter().product();
    let values: Vec<f64> = (0..len).map(of).collect();
    let values = ArrayD::from_shape_vec(IxDyn(shape), values).unwrap();
    if wide {
        tree.insert(name, values);
    } else {
        tree.insert(name, values.mapv(|x| x as f32));
    }
}

/// Returns trees with empty, axis-free and no leaves.
pub(crate) fn trees(of: &dyn Fn(&str, usize) -> f64) -> Vec<DynTree> {
    let shapes: &[&[(&str, &[usize], bool)]] = &[
        &[],
        &[("nothing", &[0], false)],
        &[("nothing", &[0], false), ("no rows", &[0, 3], true), ("no columns", &[3, 0], false)],
        &[("scalar", &[], false)],
        &[("scalar", &[], true), ("one", &[1], false), ("a matrix of one", &[1, 1], true)],
        &[("deep", &[1, 2, 1, 3, 1, 1, 2], false), ("nothing", &[2, 0, 2], false), ("w", &[4, 3], true)],
        &[("w", &[3, 5], false), ("b", &[700], false), ("scalar", &[], false), ("nothing", &[3, 0], true)],
    ];
    let tree = |leaves: &&[(&str, &[usize], bool)]| {
        let mut tree = DynTree::new();
        leaves.iter().for_each(|(name, shape, wide)| insert(&mut tree, name, shape, *wide, |i| of(name, i)));
        tree
    };
    shapes.iter().map(tree).collect()
}

const STEPS: u64 = 6;

/// Trains, saves in the middle, resumes and compares; returns `None` if `init` refuses with a reason.
fn law(name: &str, optimizer: &Boxed, params: &DynTree, grads: &dyn Fn(u64) -> DynTree) -> Option<DynTree> {
    let mut straight = params.clone();
    let mut state = match optimizer.init(params) {
        Ok(state) => state,
        Err(error) => {
            assert!(error.to_string().len() > 20, "{name}: {error}");
            return None;
        }
    };
    let schema = state.schema();
    let mut resumed = None;
    for step in 0..STEPS {
        optimizer.step(&mut straight, &grads(step), &mut state).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(state.schema(), schema, "{name}");
        if step == STEPS / 2 {
            let mut file = std::io::Cursor::new(Vec::new());
            Save::new(optimizer, &state).params(&straight).to_writer(&mut file).unwrap();
            let mut loaded = params.clone();
            let state = Checkpoint::from_bytes(file.into_inner()).unwrap().load(optimizer, &mut loaded).unwrap();
            resumed = Some((loaded, state));
        } else if let Some((params, state)) = &mut resumed {
            optimizer.step(params, &grads(step), state).unwrap();
        }
    }
    let (resumed, of_resumed) = resumed.unwrap();
    assert!(bits_of(&resumed) == bits_of(&straight), "{name}: parameters");
    assert!(same_bits(&*of_resumed, &*state), "{name}: state");
    Some(straight)
}

/// A name, numbers by place, and true if all results are finite.
type Numbers<'a> = (&'a str, &'a dyn Fn(usize) -> f64, bool);

#[test]
fn every_optimizer_takes_every_leaf_and_every_number() {
    let numbers: &[Numbers<'_>] = &[
        ("ordinary", &|i| noise(i as u64), true),
        ("zero", &|_| 0.0, true),
        ("negative zero", &|_| -0.0, true),
        ("subnormal in f32", &|i| 1e-45 * (i % 3) as f64, true),
        ("subnormal in f64", &|i| 5e-324 * (i % 3) as f64, true),
        ("small", &|i| 1e-30 * noise(i as u64), true),
        // Their squares are infinite in `f32`.
        ("huge", &|i| 1e30 * noise(i as u64), false),
        ("the largest", &|i| if i % 2 == 0 { f64::from(f32::MAX) } else { f64::from(f32::MIN) }, false),
        ("beyond f32", &|i| 1e300 * noise(i as u64), false),
        ("infinite", &|i| if i % 2 == 0 { f64::INFINITY } else { f64::NEG_INFINITY }, false),
        ("not a number", &|_| f64::NAN, false),
    ];
    let mut run = 0;
    for (name, optimizer) in optimizers() {
        for (of_params, params, tame_params) in numbers {
            for (of_grads, grads, tame_grads) in numbers {
                if *of_params != "ordinary" && *of_grads != "ordinary" && of_params != of_grads {
                    continue;
                }
                let grads = |step: u64| trees(&|_, i| grads(i) * if step.is_multiple_of(2) { 1.0 } else { -0.5 });
                for (number, tree) in trees(&|_, i| params(i)).iter().enumerate() {
                    let at = format!("{name}, tree {number}, parameters {of_params}, gradients {of_grads}");
                    let end = law(&at, &optimizer, tree, &|step| grads(step).swap_remove(number));
                    run += usize::from(end.is_some());
                    if let Some(end) = end
                        && *tame_params
                        && *tame_grads
                    {
                        for_each_leaf(&end, |path, leaf| {
                            assert!(leaf.to_f64().iter().all(|x| x.is_finite()), "{at}: {path}: {leaf:?}");
                        });
                    }
                }
            }
        }
    }
    println!("{run} runs of {STEPS} steps, each saved and resumed");
    assert!(run > 4000, "{run} runs, the others were refused by `init`");
}

/// Periods of no steps are an error of `init`, or of the step whose schedule returns them.
#[test]
fn nothing_at_a_time_is_an_error() {
    let params = vec![1.0_f32, 2.0];
    for (optimizer, said) in [
        (boxed(multi_steps(sgd(0.1), 0)), "multi_steps: argument `every_k_schedule` must be at least 1, found 0"),
        (boxed(multi_steps(sgd(0.1), -3)), "multi_steps: argument `every_k_schedule` must be at least 1, found -3"),
        (boxed(lookahead(sgd(0.1), 0, 0.5)), "lookahead: argument `sync_period` must be at least 1, found 0"),
        (boxed(params_ema(sgd(0.1), 0.9).update_every(0)), "params_ema: argument `update_every` must be at least 1"),
        (boxed(scale_by_lbfgs().memory_size(0)), "scale_by_lbfgs: argument `memory_size` must be at least 1, found 0"),
        (
            boxed(conditionally_transform(sgd(0.1), step_mod(0, 0))),
            "step_mod: argument `n` must be at least 1, found 0",
        ),
        (boxed(soap(0.1).precondition_frequency(0)), "argument `precondition_frequency` must be at least 1"),
        (boxed(apply_every(0)), "apply_every: argument `k` must be at least 1"),
        (boxed(sgd(cosine_decay(0.1, 0))), "cosine_decay: argument `decay_steps`"),
    ] {
        let error = optimizer.init(&params).unwrap_err();
        assert!(error.is_argument() && error.to_string().contains(said), "{error}");
    }
    let optimizer = multi_steps(sgd(1.0), piecewise_constant(1.0, [(2, 0.0)]));
    let mut params = params.clone();
    let mut state = optimizer.init(&params).unwrap();
    let grads = vec![1.0_f32, 1.0];
    for _ in 0..2 {
        optimizer.step(&mut params, &grads, &mut state).unwrap();
    }
    let (before, copy) = (params.clone(), state.clone());
    let error = optimizer.step(&mut params, &grads, &mut state).unwrap_err();
    assert!(error.is_argument() && error.to_string().ends_with("found 0 after 2 updates"), "{error}");
    assert!(params == before && same_bits(&*state, &*copy));
}

/// As in Optax.
#[test]
fn schedules_of_no_steps_have_a_value() {
    let firsts: Vec<(Schedule, f64)> = vec![
        (linear(1.0, 0.5, 0).into(), 1.0),
        (polynomial(1.0, 0.5, 2.0, 0).into(), 1.0),
        (warmup_constant(0.0, 0.5, 0).into(), 0.0),
        (warmup_cosine_decay(0.0, 0.5, 0, 10).into(), 0.5),
        (warmup_stable_decay(0.5, 0, 10, 10).into(), 0.5),
    ];
    for (schedule, first) in firsts {
        schedule.validate().unwrap();
        assert_eq!(schedule.at(0), first, "{schedule}");
        for count in [1, 100, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            assert!(schedule.at(count).is_finite(), "{schedule} at {count}");
        }
        let optimizer = chain((sgd(schedule.clone()), scale_by_schedule(schedule)));
        let mut params = vec![1.0_f32; 3];
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..3 {
            optimizer.step(&mut params, &vec![1.0_f32; 3], &mut state).unwrap();
        }
        assert!(params.iter().all(|p| p.is_finite()));
    }
}
