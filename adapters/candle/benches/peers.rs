//! Steps candle's AdamW for `benches/peers/peers.py`.
//!
//! `cargo bench -p gradchain-candle --bench peers -- CHAIN TREE` takes a step for each input line `step`, and prints
//! the seconds. candle has no clip by the global norm; tensor operations implement it.
#![allow(missing_docs, reason = "a program")]

use std::io::Write;
use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [chain, tree] = &words[..] else { panic!("expected CHAIN TREE, found {words:?}") };
    let tensor = |shape: &[usize], of: fn(usize) -> f32| {
        Tensor::from_vec((0..shape.iter().product()).map(of).collect::<Vec<f32>>(), shape, &Device::Cpu)
    };
    let mut vars = Vec::new();
    let mut grads = Var::zeros(1, DType::F32, &Device::Cpu)?.backward()?;
    for shape in shapes(tree) {
        let var = Var::from_tensor(&tensor(&shape, |_| 0.5)?)?;
        grads.insert(&var, tensor(&shape, |i| (i % 1000) as f32 * 1e-3 - 0.5)?);
        vars.push(var);
    }
    let params = ParamsAdamW { lr: 1e-3, weight_decay: 1e-2, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(vars.clone(), params)?;
    let say = |line: String| {
        println!("{line}");
        std::io::stdout().flush().expect("someone who reads");
    };
    say("true".into());
    for _ in std::io::stdin().lines() {
        let start = Instant::now();
        if chain.starts_with("clip") {
            let clipped = clip_by_global_norm(&vars, &grads, 1.0)?;
            optimizer.step(&clipped)?;
        } else {
            optimizer.step(&grads)?;
        }
        say(start.elapsed().as_secs_f64().to_string());
    }
    Ok(())
}

fn clip_by_global_norm(vars: &[Var], grads: &GradStore, max_norm: f64) -> Result<GradStore> {
    let of = |var: &Var| grads.get(var).expect("a gradient");
    let mut sum = 0.0;
    for var in vars {
        sum += f64::from(of(var).sqr()?.sum_all()?.to_scalar::<f32>()?);
    }
    let factor = (max_norm / sum.sqrt()).min(1.0);
    let mut clipped = Var::zeros(1, DType::F32, &Device::Cpu)?.backward()?;
    for var in vars {
        clipped.insert(var, (of(var) * factor)?);
    }
    Ok(clipped)
}

fn shapes(tree: &str) -> Vec<Vec<usize>> {
    if tree == "1e7" {
        return vec![vec![10_000_000]];
    }
    let mut shapes = vec![vec![50257, 768], vec![1024, 768]];
    for _ in 0..12 {
        shapes.extend(vec![vec![768]; 4]);
        for [rows, columns] in [[768, 2304], [768, 768], [768, 3072], [3072, 768]] {
            shapes.extend([vec![rows, columns], vec![columns]]);
        }
    }
    shapes.extend(vec![vec![768]; 2]);
    shapes
}
