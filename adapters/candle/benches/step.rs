//! Times AdamW: candle's, ours through the adapter, and ours on plain slices.
//!
//! `cargo bench -p gradchain-candle [-- WORD]` prints a line for each tree and type whose name contains the word:
//! median times, and median ratios between consecutive steps. Values and gradients are equal; both of ours end bitwise
//! identical.
#![allow(missing_docs, reason = "a program")]

use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var, WithDType};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::tree::{Slices, SlicesMut};
use gradchain_candle::{Vars, init, step};

/// Including three of warmup.
const STEPS: usize = 23;

fn main() {
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let mut trees =
        vec![("one_leaf", vec![vec![10_000_000]]), ("two_layers", two_layers()), ("gpt2_like", gpt2_like())];
    trees.push(("small_leaves", vec![vec![1000]; 1000]));
    for (tree, shapes) in trees {
        for dtype in [DType::F32, DType::BF16] {
            let name = format!("{tree}_{}", dtype.as_str());
            if !name.contains(&wanted) {
                continue;
            }
            match dtype {
                DType::F32 => run::<f32>(&name, &shapes),
                _ => run::<half::bf16>(&name, &shapes),
            }
        }
    }
}

fn two_layers() -> Vec<Vec<usize>> {
    vec![vec![2000], vec![2000, 2500], vec![2500], vec![2500, 2000]]
}

/// Returns six layers of width 384: 30 million elements in 76 leaves.
fn gpt2_like() -> Vec<Vec<usize>> {
    let (layers, width) = (6, 384);
    let mut shapes = vec![vec![50257, width], vec![1024, width], vec![width], vec![width]];
    for _ in 0..layers {
        shapes.extend(vec![vec![width]; 4]);
        for [i, o] in [[1, 3], [1, 1], [1, 4], [4, 1]] {
            shapes.extend([vec![i * width, o * width], vec![o * width]]);
        }
    }
    shapes
}

fn run<T: WithDType + gradchain::Element>(name: &str, shapes: &[Vec<usize>]) {
    let plain = adamw(1e-3).weight_decay(0.01);
    compare::<T, _>(name, "adamw", shapes, &plain, true);
    let clipped = chain((clip_by_global_norm(1.0), plain.mask(Mask::by(|leaf| leaf.shape().len() > 1))));
    compare::<T, _>(name, "clip+adamw+mask", shapes, &clipped, false);
}

fn compare<T: WithDType + gradchain::Element, O: GradientTransformation<Needs = Nothing>>(
    tree: &str,
    chain: &str,
    shapes: &[Vec<usize>],
    optimizer: &O,
    candle_has_it: bool,
) {
    let path = |i: usize| format!("{i:04}/{}", if shapes[i].len() > 1 { "weight" } else { "bias" });
    let numbers = |n: usize, seed: usize| {
        (0..n).map(move |i| <T as WithDType>::from_f64(((i * 37 + seed) % 1009) as f64 / 505.0 - 1.0))
    };
    let lens: Vec<usize> = shapes.iter().map(|shape| shape.iter().product()).collect();
    let values = |seed: usize| -> Vec<Vec<T>> {
        lens.iter().enumerate().map(|(i, n)| numbers(*n, seed + i).collect()).collect()
    };
    let tensors = |seed: usize| -> Vec<Tensor> {
        let made = values(seed).into_iter().zip(shapes);
        made.map(|(data, shape)| Tensor::from_vec(data, shape.as_slice(), &Device::Cpu).expect("a tensor")).collect()
    };
    let variables = || -> Vec<Var> { tensors(0).iter().map(|t| Var::from_tensor(t).expect("a variable")).collect() };
    let store = |vars: &[Var]| -> GradStore {
        let mut grads = Var::zeros(1, DType::F32, &Device::Cpu).and_then(|x| x.backward()).expect("a store");
        vars.iter().zip(tensors(5)).for_each(|(var, gradient)| _ = grads.insert(var, gradient));
        grads
    };

    let theirs = candle_has_it.then(variables);
    let their_grads = theirs.as_deref().map(store);
    let params = ParamsAdamW { lr: 1e-3, weight_decay: 0.01, ..ParamsAdamW::default() };
    let mut theirs = theirs.map(|vars| AdamW::new(vars, params).expect("candle's"));

    let ours = variables();
    let our_grads = store(&ours);
    let vars = Vars::named(ours.iter().enumerate().map(|(i, var)| (path(i), var.clone()))).expect("variables");
    let mut state = init(optimizer, &vars).expect("a state");

    let (mut slices, gradients) = (values(0), values(5));
    let mut lent = SlicesMut::new();
    let mut grads = Slices::new();
    for (i, ((data, gradient), shape)) in slices.iter_mut().zip(&gradients).zip(shapes).enumerate() {
        lent = lent.with(path(i), data, shape).expect("a leaf");
        grads = grads.with(path(i), gradient, shape).expect("a leaf");
    }
    let mut beside = optimizer.init(&lent).expect("a state");

    let mut times = [(); 3].map(|()| Vec::new());
    for round in 0..STEPS + 3 {
        let mut found = [0.0; 3];
        for transpose in (0..3).map(|transpose| (transpose + round) % 3) {
            found[transpose] = timed(|| match transpose {
                0 => _ = optimizer.step(&mut lent, &grads, &mut beside).expect("a step"),
                1 => _ = step(optimizer, &vars, &our_grads, &mut state).expect("a step"),
                _ => {
                    if let (Some(theirs), Some(grads)) = (&mut theirs, &their_grads) {
                        theirs.step(grads).expect("a step");
                    }
                }
            });
        }
        if round >= 3 {
            times.iter_mut().zip(found).for_each(|(times, found)| times.push(found));
        }
    }
    drop(lent);
    for (var, slice) in ours.iter().zip(&slices) {
        let found: Vec<T> = var.flatten_all().and_then(|flat| flat.to_vec1()).expect("values");
        assert!(found == *slice, "both end with the same values");
    }
    let ratio = |a: usize, b: usize| median(times[a].iter().zip(&times[b]).map(|(a, b)| a / b));
    let ms = |i: usize| median(times[i].iter().map(|t| t * 1e3));
    print!("step tree={tree} chain={chain} elements={} slices_ms={:.2} ", lens.iter().sum::<usize>(), ms(0));
    print!("adapter_ms={:.2} adapter_to_slices={:.3}", ms(1), ratio(1, 0));
    match candle_has_it {
        true => println!(" candle_ms={:.2} candle_to_adapter={:.1}", ms(2), ratio(2, 1)),
        false => println!(),
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
