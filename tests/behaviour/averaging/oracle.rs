//! `params_ema` and `params_swa` match `f64` averages of the parameters after each step.

use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{keep_params_nonnegative, scale};
use gradchain::wrapper::params_swa;
use gradchain::{GradientTransformation, Result};

use super::{flat, noise};

const N: usize = 1500; // more than one tile

#[cfg(feature = "half")]
type Params = (Vec<f64>, Vec<f32>, Vec<half::bf16>);
#[cfg(not(feature = "half"))]
type Params = (Vec<f64>, Vec<f32>);

fn tree(seed: u64) -> Params {
    let value = |leaf: usize| (0..N).map(move |i| noise(seed, leaf * N + i));
    #[cfg(feature = "half")]
    let third = value(2).map(half::bf16::from_f64).collect();
    (
        value(0).collect(),
        value(1).map(|x| x as f32).collect(),
        #[cfg(feature = "half")]
        third,
    )
}

/// Returns the leaf's own rounding and that of the average.
fn tolerance(i: usize, expected: f64) -> f64 {
    match i / N {
        0 => 1e-14,
        1 => 5e-7,
        _ => expected.abs() / 256.0 + 1e-6,
    }
}

/// Compares evaluation parameters with a function of all parameters, the initial ones included.
fn agrees<T: GradientTransformation<Needs = Nothing>>(
    optimizer: T,
    steps: u64,
    average: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) -> Result<()> {
    let mut params = tree(1);
    let mut state = optimizer.init(&params)?;
    let mut path = vec![flat(&params)];
    for t in 0..steps {
        optimizer.step(&mut params, &tree(100 + t), &mut state)?;
        path.push(flat(&params));
        let (found, expected) = (flat(&*state.eval_params(&params)?), average(&path));
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let off = (found - expected).abs();
            assert!(off <= tolerance(i, *expected), "step {t}, {i}: {found} instead of {expected}");
        }
    }
    Ok(())
}

fn mix(path: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let one = |i: usize| path.iter().zip(weights).map(|(p, w)| w * p[i]).sum();
    (0..path[0].len()).map(one).collect()
}

/// Averages by explicit weights: each new decay scales all earlier ones.
fn ema(path: &[Vec<f64>], decay: impl Fn(usize) -> f64, every: usize, debias: bool) -> Vec<f64> {
    let mut weights = vec![0.0; path.len()];
    weights[0] = if debias { 0.0 } else { 1.0 };
    for (n, t) in (every..path.len()).step_by(every).enumerate() {
        weights.iter_mut().for_each(|w| *w *= decay(n));
        weights[t] = 1.0 - decay(n);
    }
    let total: f64 = weights.iter().sum();
    if total == 0.0 {
        // Before the first average.
        return path[path.len() - 1].clone();
    }
    mix(path, &weights.iter().map(|w| w / total).collect::<Vec<_>>())
}

#[test]
fn ema_is_the_naive_one() -> Result<()> {
    agrees(params_ema(adam(0.1), 0.9), 8, |path| ema(path, |_| 0.9, 1, false))?;
    agrees(params_ema(sgd(0.1), 0.0), 3, |path| path[path.len() - 1].clone())?;
    agrees(params_ema(adam(0.1), 0.2), 8, |path| ema(path, |_| 0.2, 1, false))
}

#[test]
fn ema_moves_every_k_steps() -> Result<()> {
    agrees(params_ema(adam(0.1), 0.9).update_every(3), 10, |path| ema(path, |_| 0.9, 3, false))?;
    agrees(params_ema(adam(0.1), 0.9).update_every(3).debias(true), 10, |path| ema(path, |_| 0.9, 3, true))
}

#[test]
fn debiased_ema_is_the_naive_one() -> Result<()> {
    agrees(params_ema(adam(0.1), 0.9).debias(true), 8, |path| ema(path, |_| 0.9, 1, true))
}

#[test]
fn ema_warms_up() -> Result<()> {
    let decay = |n: usize| f64::min(0.5, (n + 2) as f64 / (n + 11) as f64);
    agrees(params_ema(adam(0.1), 0.5).warmup(true), 12, |path| ema(path, decay, 1, false))
}

#[test]
fn ema_follows_a_schedule() -> Result<()> {
    let decay = |n: usize| 0.5 + 0.1 * n.min(4) as f64;
    let scheduled = || params_ema(adam(0.1), linear(0.5, 0.9, 4));
    agrees(scheduled(), 8, |path| ema(path, decay, 1, false))?;
    agrees(scheduled().debias(true), 8, |path| ema(path, decay, 1, true))
}

#[test]
fn ema_wraps_multi_pass_optimizers() -> Result<()> {
    let inside = || chain((clip_by_global_norm(1.0), adamw(0.1), clip_by_global_norm(0.5)));
    agrees(params_ema(inside(), 0.9), 6, |path| ema(path, |_| 0.9, 1, false))?;
    agrees(params_ema(boxed(inside()), 0.9), 6, |path| ema(path, |_| 0.9, 1, false))?;
    agrees(boxed(params_ema(inside(), 0.9)), 6, |path| ema(path, |_| 0.9, 1, false))
}

#[test]
fn ema_includes_later_stages() -> Result<()> {
    let average = |path: &[Vec<f64>]| ema(path, |_| 0.9, 1, false);
    agrees(chain((params_ema(sgd(0.5), 0.9), scale(0.5))), 5, average)?;
    // A repeated pass accumulates nothing twice.
    agrees(chain((params_ema(sgd(0.5), 0.9), clip_by_global_norm(0.1))), 5, average)?;
    agrees(chain((boxed(params_ema(sgd(0.5), 0.9)), boxed(clip_by_global_norm(0.1)))), 5, average)?;
    agrees(chain((params_ema(adam(0.5), 0.9), keep_params_nonnegative())), 5, average)
}

fn swa(path: &[Vec<f64>], start: usize, every: usize) -> Vec<f64> {
    let taken = |t: usize| t >= 1 && t >= start && (t - start).is_multiple_of(every);
    let n = (0..path.len()).filter(|t| taken(*t)).count();
    if n == 0 {
        return path[path.len() - 1].clone();
    }
    let weights: Vec<f64> = (0..path.len()).map(|t| if taken(t) { 1.0 / n as f64 } else { 0.0 }).collect();
    mix(path, &weights)
}

#[test]
fn swa_is_the_naive_one() -> Result<()> {
    agrees(params_swa(adam(0.1)), 7, |path| swa(path, 0, 1))?;
    for (start, every) in [(0, 3), (1, 1), (3, 1), (3, 2), (5, 4), (50, 1)] {
        let optimizer = params_swa(adam(0.1)).start(start as u64).every(every as u64);
        agrees(optimizer, 10, |path| swa(path, start, every))?;
    }
    agrees(params_swa(chain((clip_by_global_norm(1.0), adamw(0.1)))).every(2), 9, |path| swa(path, 0, 2))
}

#[test]
fn the_average_can_be_of_another_type() -> Result<()> {
    use gradchain::DType;
    let optimizer = params_ema(adam(0.1), 0.999).accumulator_dtype(DType::F64);
    agrees(optimizer.clone(), 6, |path| ema(path, |_| 0.999, 1, false))?;
    let state = optimizer.init(&tree(1))?;
    let average = state.schema().entries.into_iter().filter(|entry| entry.field == "average");
    assert!(average.map(|entry| entry.dtype).all(|dtype| dtype == Some(DType::F64)));
    let optimizer = params_swa(adam(0.1)).accumulator_dtype(DType::F64);
    agrees(optimizer, 6, |path| swa(path, 0, 1))
}
