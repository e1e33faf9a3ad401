//! Times AdamW on one `f32` leaf with 16-bit and quantized state, against `f32` state.
//!
//! `cargo bench --bench states --features half` prints, for each SIMD level, the median ratio of runs in turn on one
//! thread, and the bytes of state per parameter.
#![allow(missing_docs, reason = "a program")]

use std::hint::black_box;
use std::time::Instant;

use gradchain::prelude::*;
use gradchain::{DType, SimdLevel, detected_simd_level, force_simd_level};

const ELEMENTS: usize = 10_000_000;
const PAIRS: usize = 15;

fn main() -> gradchain::Result<()> {
    let plain = || adamw(1e-3);
    for simd in [SimdLevel::Avx512, SimdLevel::Avx2, SimdLevel::Baseline]
        .into_iter()
        .filter(|simd| *simd <= detected_simd_level())
    {
        force_simd_level(Some(simd));
        compare("roots", simd, plain(), quantized(plain()))?;
        compare("logarithms", simd, plain(), quantized(plain()).logarithmic(true))?;
        compare("mu in bf16", simd, plain(), plain().mu_dtype(DType::Bf16))?;
    }
    force_simd_level(None);
    Ok(())
}

fn compare<A, B>(name: &str, simd: SimdLevel, single: A, low_precision: B) -> gradchain::Result<()>
where
    A: GradientTransformation<Needs = Nothing>,
    B: GradientTransformation<Needs = Nothing>,
{
    let mut params = vec![0.5_f32; ELEMENTS];
    let gradient: Vec<f32> = (0..ELEMENTS).map(|i| (i as f32 * 0.618).sin() * 1e-2).collect();
    let (mut of_single, mut of_few) = (single.init(&params)?, low_precision.init(&params)?);
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS + 2 {
        let start = Instant::now();
        single.step(&mut params, &gradient, &mut of_single)?;
        let plain = start.elapsed().as_secs_f64();
        let start = Instant::now();
        low_precision.step(&mut params, &gradient, &mut of_few)?;
        let coded = start.elapsed().as_secs_f64();
        // The first pairs touch pages.
        if pair >= 2 {
            ratios.push(coded / plain);
            times.push(plain);
        }
    }
    black_box(&params);
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let bytes = of_few.schema().size().total_bytes() as f64 / ELEMENTS as f64;
    let (ratio, single) = (median(&mut ratios), median(&mut times) / ELEMENTS as f64 * 1e9);
    println!("states {name} isa={simd:?} ratio={ratio:.3} f32_ns_per_element={single:.4} state_bytes={bytes:.3}");
    Ok(())
}
