//! Runs the chains that `tests/vectorized.rs` compiles, at every SIMD level of this CPU.
//!
//! The results must be bitwise identical.

use gradchain::optimizer::{
    adabelief, adadelta, adamax, adan, amsgrad, cautious_adamw, dadapt_adamw, fromage, lars, madgrad, noisy_sgd, rprop,
    sign_sgd, sm3, yogi,
};
use gradchain::prelude::*;
use gradchain::transform::{scale, scale_by_rms, stochastic_rounding};
use gradchain::wrapper::master;
use gradchain::{DType, SimdLevel, detected_simd_level, force_simd_level};
use half::{bf16, f16};
use ndarray::Array2;

/// Returns numbers of both signs and of nine orders of magnitude.
fn number(i: usize, step: usize) -> f64 {
    let x = ((i * 7919 + step * 104_729) % 2003) as f64 / 1001.0 - 1.0;
    x * 10.0_f64.powi((i % 9) as i32 - 4)
}

/// Whole tiles, whole blocks of every SIMD level, and a remainder.
const SHAPE: (usize, usize) = (27, 113);

type Leaves = (Array2<f32>, Array2<f64>, Array2<bf16>, Array2<f16>);

fn leaves(step: usize) -> Leaves {
    let f64s = Array2::from_shape_fn(SHAPE, |(i, j)| number(i * SHAPE.1 + j, step));
    (f64s.mapv(|x| x as f32), f64s.clone(), f64s.mapv(bf16::from_f64), f64s.mapv(f16::from_f64))
}

fn bits((a, b, c, d): &Leaves) -> Vec<u64> {
    let (c, d) = (c.iter().map(|x| x.to_bits().into()), d.iter().map(|x| x.to_bits().into()));
    a.iter().map(|x| x.to_bits().into()).chain(b.iter().map(|x| x.to_bits())).chain(c).chain(d).collect()
}

/// Returns the parameters' bits after three steps.
fn run<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, simd: SimdLevel) -> gradchain::Result<Vec<u64>> {
    force_simd_level(Some(simd));
    let mut params = leaves(0);
    let mut state = optimizer.init(&params)?;
    for step in 1..4 {
        optimizer.step(&mut params, &leaves(step), &mut state)?;
    }
    force_simd_level(None);
    Ok(bits(&params))
}

fn step<T: GradientTransformation<Needs = Nothing>>(name: &str, optimizer: &T) -> gradchain::Result<()> {
    let baseline = run(optimizer, SimdLevel::Baseline)?;
    assert!(baseline != bits(&leaves(0)), "{name}: nothing has moved");
    let wider = [SimdLevel::Avx2, SimdLevel::Avx512].into_iter().filter(|simd| *simd <= detected_simd_level());
    for simd in wider {
        let differs = run(optimizer, simd)?.iter().zip(&baseline).position(|(here, there)| here != there);
        assert!(differs.is_none(), "{name}: {simd:?} differs from the baseline at element {differs:?}");
    }
    println!("{name}: bitwise identical up to {:?}", detected_simd_level());
    Ok(())
}

fn main() -> gradchain::Result<()> {
    step("adafactor", &adafactor(0.1))?;
    step("adafactor, factored", &adafactor(0.1).min_dim_size_to_factor(20))?;
    step("sm3", &sm3(0.1))?;
    step("sgd with momentum", &sgd(0.1).momentum(0.9))?;
    step("adam", &adam(0.1))?;
    step("adam with a mean of bf16", &adam(0.1).mu_dtype(DType::Bf16))?;
    step("adam with a mean of f16", &adam(0.1).mu_dtype(DType::F16))?;
    step("adamw", &adamw(0.1).mask(Mask::path("0")))?;
    step("lion", &lion(0.1))?;
    step("adabelief", &adabelief(0.1))?;
    step("adadelta", &adadelta(0.1))?;
    step("adagrad", &adagrad(0.1))?;
    step("adamax", &adamax(0.1))?;
    step("adan", &adan(0.1))?;
    step("amsgrad", &amsgrad(0.1))?;
    step("madgrad", &madgrad(0.1))?;
    step("adamw in 8 bits", &quantized(adamw(0.1)).min_elements(0))?;
    step("adamw in logarithms of 8 bits", &quantized(adamw(0.1)).min_elements(0).logarithmic(true))?;
    step("radam", &radam(0.1))?;
    step("rmsprop", &rmsprop(0.1))?;
    step("rprop", &rprop(0.1))?;
    step("sign", &sign_sgd(0.1))?;
    step("yogi", &yogi(0.1))?;
    step("fromage", &fromage(0.1))?;
    step("lars", &lars(0.1))?;
    step("dadapt_adamw", &dadapt_adamw())?;
    step("lamb", &lamb(0.1))?;
    step("cautious_adamw", &cautious_adamw(0.1))?;
    step("master around a box", &master(boxed(adamw(0.1))))?;
    step("multi_steps", &multi_steps(chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))), 2))?;
    step("noisy_sgd", &noisy_sgd(0.1, 7))?;
    step("stochastic_rounding", &chain((sgd(0.1), stochastic_rounding(7))))?;
    step("boxes that multiply", &vec![boxed(scale(0.5)), boxed(scale_by_rms()), boxed(scale(2.0)), boxed(sgd(0.1))])?;
    step(
        "boxes with a barrier",
        &vec![
            boxed(zero_nans()),
            boxed(clip_by_global_norm(1.0)),
            boxed(scale_by_adam()),
            boxed(scale_by_learning_rate(0.1)),
        ],
    )?;
    step("clipped adamw", &chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))))
}
