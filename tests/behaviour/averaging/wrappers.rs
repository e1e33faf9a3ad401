//! `params_ema` and `params_swa` leave training unchanged, wait for held steps, and refuse invalid places.

use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::state::same_bits;
use gradchain::transform::{keep_params_nonnegative, scale};
use gradchain::wrapper::{flatten, params_swa, skip_not_finite};
use gradchain::{GradientTransformation, Result, apply_updates};
use ndarray::{Array2, ShapeBuilder};

use super::{flat, noise};

/// Dense, column-major, axis-free and 16-bit leaves, and one larger than a tile.
#[cfg(feature = "half")]
type Params = (Array2<f32>, Array2<f64>, f64, Vec<half::bf16>, Vec<f32>);
#[cfg(not(feature = "half"))]
type Params = (Array2<f32>, Array2<f64>, f64, Vec<f32>, Vec<f32>);

fn tree(seed: u64) -> Params {
    let at = |leaf: usize, i: usize| noise(seed, leaf << 20 | i);
    (
        Array2::from_shape_fn((4, 5), |(i, j)| at(0, 5 * i + j) as f32),
        Array2::from_shape_fn((3, 2).f(), |(i, j)| at(1, 2 * i + j)),
        at(2, 0),
        #[cfg(feature = "half")]
        (0..40).map(|i| half::bf16::from_f64(at(3, i))).collect(),
        #[cfg(not(feature = "half"))]
        (0..40).map(|i| at(3, i) as f32).collect(),
        (0..2100).map(|i| at(4, i) as f32).collect(),
    )
}

/// Compares trained parameters, inner state and outcomes with those without the wrapper.
fn follows<T: GradientTransformation<Needs = Nothing> + Clone>(inner: T) -> Result<()> {
    fn one<T: GradientTransformation<Needs = Nothing>, A: GradientTransformation<Needs = Nothing>>(
        inner: &T,
        wrapped: &A,
        inside: impl Fn(&A::State) -> &T::State,
    ) -> Result<()> {
        let (mut alone, mut params, mut applied) = (tree(1), tree(1), tree(1));
        let mut state = inner.init(&alone)?;
        let mut average = wrapped.init(&params)?;
        let mut beside = average.clone();
        for t in 0..9 {
            let mut grads = tree(100 + t);
            if t == 4 {
                grads.2 = f64::NAN;
            }
            let expected = inner.step(&mut alone, &grads, &mut state)?;
            let outcome = wrapped.step(&mut params, &grads, &mut average)?;
            let updates = wrapped.update(&grads, &mut beside, &applied)?;
            apply_updates(&mut applied, &updates)?;
            let bits = |tree: &Params| flat(tree).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&params), bits(&alone), "step {t}");
            assert_eq!(bits(&applied), bits(&alone), "step {t} by update");
            assert_eq!(outcome, expected);
            assert!(same_bits(inside(&average), &*state), "step {t}");
            assert!(same_bits(&*average, &*beside), "step {t} by update");
            let eval = average.eval_params(&params)?;
            assert_eq!(bits(&eval), bits(&*beside.eval_params(&applied)?));
        }
        Ok(())
    }
    one(&inner, &params_ema(inner.clone(), 0.9), |state| state.inner())?;
    one(&inner, &params_ema(inner.clone(), 0.9).update_every(2).debias(true), |state| state.inner())?;
    one(&inner, &params_swa(inner.clone()).start(3).every(2), |state| state.inner())
}

#[test]
fn the_trained_parameters_have_the_bits_of_the_optimizer_inside() -> Result<()> {
    follows(())?;
    follows(sgd(0.1))?;
    follows(adamw(0.1))?;
    follows(chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))))?;
    follows(boxed(chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1)))))?;
    follows(multi_steps(chain((clip_by_global_norm(1.0), adam(0.1))), 2))?;
    follows(multi_steps(adam(0.1), 3).should_skip_update_fn(skip_not_finite()))?;
    follows(apply_if_finite(chain((clip_by_global_norm(1.0), adam(0.1))), 3))?;
    follows(masked(adam(0.1), Mask::min_ndim(2)))?;
    follows(chain((sgd(0.1).momentum(0.9), keep_params_nonnegative())))
}

/// Returns each step's `emitted` and evaluation parameters.
fn course<T: GradientTransformation<Needs = Nothing>>(optimizer: T, gradients: &[f64]) -> Result<Vec<(bool, f64)>> {
    let mut params = 0.0_f64;
    let mut state = optimizer.init(&params)?;
    let mut course = Vec::new();
    for gradient in gradients {
        let outcome = optimizer.step(&mut params, gradient, &mut state)?;
        course.push((outcome.emitted(), *state.eval_params(&params)?));
    }
    Ok(course)
}

#[test]
fn steps_that_emit_nothing_do_not_count() -> Result<()> {
    // Every second step goes from 0 to 4, 8, 12.
    let held = [(false, 0.0), (true, 2.0), (false, 2.0), (true, 5.0), (false, 5.0), (true, 8.5)];
    let gradients = [-4.0; 6];
    assert_eq!(course(params_ema(multi_steps(sgd(1.0), 2), 0.5), &gradients)?, held);
    assert_eq!(course(multi_steps(params_ema(sgd(1.0), 0.5), 2), &gradients)?, held);
    assert_eq!(course(boxed(params_ema(boxed(multi_steps(sgd(1.0), 2)), 0.5)), &gradients)?, held);
    // A held step skips its passes, and later stages do not know.
    let inside = || multi_steps(chain((clip_by_global_norm(9.0), sgd(2.0))), 2);
    assert_eq!(course(params_ema(chain((inside(), scale(0.5))), 0.5), &gradients)?, held);
    assert_eq!(course(params_ema(chain((scale(0.5), inside())), 0.5), &gradients)?, held);
    let mean = [(false, 0.0), (true, 4.0), (false, 4.0), (true, 6.0), (false, 6.0), (true, 8.0)];
    assert_eq!(course(params_swa(multi_steps(sgd(1.0), 2)), &gradients)?, mean);
    assert_eq!(course(multi_steps(params_swa(sgd(1.0)), 2), &gradients)?, mean);
    Ok(())
}

#[test]
fn skipped_steps_do_not_count() -> Result<()> {
    let gradients = [-4.0, f64::NAN, f64::NAN, -4.0];
    let expected = [(true, 2.0), (false, 2.0), (false, 2.0), (true, 5.0)];
    assert_eq!(course(params_ema(apply_if_finite(sgd(1.0), 9), 0.5), &gradients)?, expected);
    assert_eq!(course(apply_if_finite(params_ema(sgd(1.0), 0.5), 9), &gradients)?, expected);
    let skipping = multi_steps(sgd(1.0), 1).should_skip_update_fn(skip_not_finite());
    assert_eq!(course(params_ema(skipping, 0.5), &gradients)?, expected);
    Ok(())
}

#[test]
fn the_counts_are_of_steps_that_emitted() -> Result<()> {
    let optimizer = params_ema(multi_steps(sgd(1.0), 2), 0.5).update_every(2);
    let mut params = vec![0.0_f32];
    let mut state = optimizer.init(&params)?;
    for _ in 0..9 {
        optimizer.step(&mut params, &vec![1.0_f32], &mut state)?;
    }
    assert_eq!((state.steps().get(), state.averaged().get()), (4, 2));
    Ok(())
}

#[test]
fn a_group_averages_while_another_group_accumulates() -> Result<()> {
    let groups = (("a", multi_steps(sgd(1.0), 2)), ("b", params_ema(sgd(1.0), 0.5)));
    let optimizer = partition(groups, Labels::paths([("1", "b")]).otherwise("a"));
    let mut params = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&params)?;
    optimizer.step(&mut params, &(-4.0, -4.0), &mut state)?;
    assert_eq!(*state.eval_params(&params)?, (0.0, 2.0));
    Ok(())
}

#[test]
fn averages_are_found_wherever_they_are() -> Result<()> {
    // The second leaf has no average.
    let expected = (1.0_f64, vec![2.0_f64]);
    fn trained<T: GradientTransformation<Needs = Nothing>>(optimizer: T) -> Result<(f64, Vec<f64>)> {
        let mut params = (0.0_f64, vec![0.0_f64]);
        let mut state = optimizer.init(&params)?;
        optimizer.step(&mut params, &(-2.0, vec![-2.0]), &mut state)?;
        assert_eq!(params, (2.0, vec![2.0]));
        Ok(state.eval_params(&params)?.into_inner())
    }
    let average = || masked(params_ema((), 0.5), Mask::path("0"));
    assert_eq!(trained(chain((sgd(1.0), average())))?, expected);
    assert_eq!(trained(chain(vec![boxed(sgd(1.0)), boxed(average())]))?, expected);
    assert_eq!(trained(multi_steps(chain((sgd(1.0), average())), 1))?, expected);
    assert_eq!(trained(inject_hyperparams(params_ema(sgd(1.0), 0.5)))?, (1.0, vec![1.0]));
    let error = trained(chain((params_ema(sgd(1.0), 0.5), params_swa(())))).unwrap_err();
    assert!(error.to_string().contains("both keep evaluation parameters"), "{error}");
    // The inner transformation sees all leaves as one vector.
    let error = trained(flatten(params_ema(sgd(1.0), 0.5))).unwrap_err();
    assert!(error.to_string().contains("the evaluation parameters of `inner` are for other leaves"), "{error}");
    Ok(())
}

#[test]
fn evaluation_before_the_start_returns_the_trained_parameters() -> Result<()> {
    let optimizer = params_swa(sgd(1.0)).start(3);
    let mut params = vec![-0.0_f64, f64::INFINITY, 1.0];
    let mut state = optimizer.init(&params)?;
    optimizer.step(&mut params, &vec![0.0_f64, 0.0, 0.5], &mut state)?;
    let eval = state.eval_params(&params)?;
    assert_eq!(eval[0].to_bits(), (-0.0_f64).to_bits());
    assert_eq!(eval[1..], [f64::INFINITY, 0.5]);
    Ok(())
}

#[test]
fn parameters_that_stay_are_their_own_average() -> Result<()> {
    let params = tree(7);
    let mut trained = params.clone();
    let zero = gradchain::tree::tree_zeros_like(&params);
    for debias in [false, true] {
        let optimizer = params_ema(sgd(0.1), 0.3).debias(debias);
        let mut state = optimizer.init(&params)?;
        for _ in 0..20 {
            optimizer.step(&mut trained, &zero, &mut state)?;
            assert_eq!(flat(&*state.eval_params(&trained)?), flat(&params), "to the bit");
        }
    }
    Ok(())
}

#[test]
fn a_run_resumes_from_a_copied_state() -> Result<()> {
    let optimizer = params_ema(chain((clip_by_global_norm(1.0), adam(0.1))), 0.9).warmup(true);
    let mut params = tree(1);
    let mut state = optimizer.init(&params)?;
    for t in 0..4 {
        optimizer.step(&mut params, &tree(10 + t), &mut state)?;
    }
    let (mut other, mut restored) = (params.clone(), optimizer.init(&params)?);
    restored.replace((*state).clone())?;
    for t in 4..8 {
        optimizer.step(&mut params, &tree(10 + t), &mut state)?;
        optimizer.step(&mut other, &tree(10 + t), &mut restored)?;
        assert!(same_bits(&*state, &*restored));
        assert_eq!(flat(&*state.eval_params(&params)?), flat(&*restored.eval_params(&other)?));
    }
    Ok(())
}

#[test]
fn bad_arguments_are_refused() {
    let refused = |error: gradchain::Error, message: &str| assert_eq!(error.to_string(), message);
    for decay in [1.0, -0.1, f64::NAN] {
        let error = params_ema(sgd(0.1), decay).init(&0.0_f64).unwrap_err();
        refused(error, &format!("params_ema: argument `decay` must be in [0, 1), found {decay}"));
    }
    let error = params_ema(sgd(0.1), 0.5).update_every(0).init(&0.0_f64).unwrap_err();
    refused(error, "params_ema: argument `update_every` must be at least 1, found 0");
    let error = params_swa(sgd(0.1)).every(0).init(&0.0_f64).unwrap_err();
    refused(error, "params_swa: argument `every` must be at least 1, found 0");
}

#[test]
fn a_decay_of_one_from_a_schedule_takes_nothing() -> Result<()> {
    for debias in [false, true] {
        let optimizer = params_ema(sgd(1.0), linear(1.0, 0.5, 1)).debias(debias);
        let expected = if debias { 2.0 } else { 1.0 };
        let mut params = 0.0_f64;
        let mut state = optimizer.init(&params)?;
        optimizer.step(&mut params, &-1.0, &mut state)?;
        optimizer.step(&mut params, &-1.0, &mut state)?;
        assert_eq!(*state.eval_params(&params)?, expected, "1 was given no weight, then 2 one half of all");
    }
    Ok(())
}

#[test]
fn one_pass_over_memory() -> Result<()> {
    let plan = params_ema(adam(0.1), 0.9).plan(&vec![0.0_f32; 1000])?;
    assert_eq!(plan.passes.len(), 1);
    assert_eq!(plan.bytes_per_element(), 28.0 + 8.0, "those of adam, and the average");
    let clipped = chain((clip_by_global_norm(1.0), adam(0.1)));
    let plan = params_ema(clipped.clone(), 0.9).plan(&vec![0.0_f32; 1000])?;
    assert_eq!(plan.bytes_per_element(), clipped.plan(&vec![0.0_f32; 1000])?.bytes_per_element() + 8.0);
    Ok(())
}

#[cfg(feature = "config")]
#[test]
fn averages_round_trip_through_configs() -> Result<(), Box<dyn std::error::Error>> {
    use gradchain::config::Config;
    let ema = params_ema(multi_steps(adam(0.1), 2), linear(0.5, 0.9, 4));
    let ema = ema.debias(true).warmup(true).update_every(2).accumulator_dtype(gradchain::DType::F64);
    let swa = params_swa(sgd(0.1)).start(3).every(2);
    for config in [Config::of(&ema)?, Config::of(&swa)?] {
        assert_eq!(Config::of(&config.build()?)?, config);
    }
    let text = r#"{"params_swa": {"inner": {"sgd": {"learning_rate": 1.0}}, "start": 2, "every": 2}}"#;
    let means = course(Config::from_json(text)?.build()?, &[-1.0; 4])?;
    assert_eq!(means, [(true, 1.0), (true, 2.0), (true, 2.0), (true, 3.0)]);
    let text = r#"{"params_ema": {"inner": {"sgd": {"learning_rate": 1.0}}, "decay": 0.5}}"#;
    let means = course(Config::from_json(text)?.build()?, &[-4.0, -2.0])?;
    assert_eq!(means, [(true, 2.0), (true, 4.0)]);
    Ok(())
}
