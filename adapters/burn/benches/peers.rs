//! Steps burn's AdamW for `benches/peers/peers.py`.
//!
//! `cargo bench -p gradchain-burn --bench peers -- CHAIN TREE` takes a step for each input line `step`, and prints the
//! seconds. burn clips each gradient separately; tensor operations clip by the global norm.
#![allow(missing_docs, reason = "a program")]

use std::io::Write;
use std::time::Instant;

use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor, TensorData};

const RATE: f64 = 1e-3;

#[derive(Module, Debug)]
struct Model {
    leaves: Vec<Param<Tensor<2>>>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [chain, tree] = &words[..] else { panic!("expected CHAIN TREE, found {words:?}") };
    let shapes = shapes(tree);
    let device = Device::flex().autodiff();
    let tensor = |[rows, columns]: [usize; 2], of: fn(usize) -> f32| {
        let data: Vec<f32> = (0..rows * columns).map(of).collect();
        Tensor::<2>::from_data(TensorData::new(data, [rows, columns]), &device)
    };
    let mut model = Model { leaves: shapes.iter().map(|s| Param::from_tensor(tensor(*s, |_| 0.5))).collect() };
    let mut optimizer: ModuleOptimizer = AdamWConfig::new().with_weight_decay(1e-2).init();
    let say = |line: String| {
        println!("{line}");
        std::io::stdout().flush().expect("someone who reads");
    };
    say("true".into());
    for _ in std::io::stdin().lines() {
        let mut grads = GradientsParams::new();
        for (param, shape) in model.leaves.iter().zip(&shapes) {
            grads.register(param.id, tensor(*shape, |i| (i % 1000) as f32 * 1e-3 - 0.5).inner());
        }
        let start = Instant::now();
        if chain.starts_with("clip") {
            clip_by_global_norm(&model, &mut grads, 1.0);
        }
        model = optimizer.step(RATE, model, grads);
        say(start.elapsed().as_secs_f64().to_string());
    }
}

fn clip_by_global_norm(model: &Model, grads: &mut GradientsParams, max_norm: f32) {
    let of = |grads: &GradientsParams, param: &Param<Tensor<2>>| grads.get::<2>(param.id).expect("a gradient");
    let square = |param| of(grads, param).square().sum().into_scalar::<f32>();
    let norm = model.leaves.iter().map(square).sum::<f32>().sqrt();
    if norm > max_norm {
        for param in &model.leaves {
            let gradient = grads.remove::<2>(param.id).expect("a gradient");
            grads.register(param.id, gradient.mul_scalar(max_norm / norm));
        }
    }
}

/// Vectors are matrices of one row.
fn shapes(tree: &str) -> Vec<[usize; 2]> {
    if tree == "1e7" {
        return vec![[1, 10_000_000]];
    }
    let mut shapes = vec![[50257, 768], [1024, 768]];
    for _ in 0..12 {
        shapes.extend([[1, 768]; 4]);
        for [rows, columns] in [[768, 2304], [768, 768], [768, 3072], [3072, 768]] {
            shapes.extend([[rows, columns], [1, columns]]);
        }
    }
    shapes.extend([[1, 768]; 2]);
    shapes
}
