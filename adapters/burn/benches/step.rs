//! Times AdamW in burn: burn's, gradchain's, and gradchain's on plain slices, in turn.
//!
//! `cargo bench -p gradchain-burn [-- ROUNDS]` prints a line for each tree and chain: median times, and medians of the
//! ratios within each round. All get equal gradients in separate memory, and end with equal parameters: ours bitwise,
//! burn's up to its bias correction in `f32`. burn's optimizer consumes its gradients, so its time includes freeing
//! them.
#![allow(missing_docs, reason = "a program")]

use std::time::Instant;

use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor, TensorData};
use gradchain::prelude::*;
use gradchain::tree::{Slices, SlicesMut, for_each_leaf};
use gradchain_burn::{init, params, step};

const RATE: f64 = 1e-3;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(21);
    println!(
        "{:<8} {:<22} {:>9} {:>9} {:>9} {:>12} {:>10}",
        "tree", "chain", "burn", "ours", "slices", "ours/slices", "burn/ours"
    );
    let trees = [
        ("two", vec![[2500, 2000], [1, 2000], [2000, 2500], [1, 2500]]),
        ("gpt2", gpt2(12, 768, 50257)),
        ("small", vec![[10, 100]; 1000]),
    ];
    for (name, shapes) in trees {
        let eps = f64::from(1e-5_f32);
        let adamw = || adamw(RATE).eps(eps).weight_decay(1e-2);
        run(name, "adamw", &shapes, adamw(), true, rounds);
        let matrices = Mask::by(|leaf| leaf.shape()[0] > 1);
        run(
            name,
            "clip, adamw by a mask",
            &shapes,
            chain((clip_by_global_norm(1.0), adamw().mask(matrices))),
            false,
            rounds,
        );
    }
}

/// Returns the shapes of a GPT-2; vectors are matrices of one row.
fn gpt2(layers: usize, width: usize, vocabulary: usize) -> Vec<[usize; 2]> {
    let norm = [[1, width], [1, width]];
    let linear = |from: usize, to: usize| [[from, to], [1, to]];
    let block = || {
        let attention = [linear(width, 3 * width), linear(width, width)].concat();
        let feed_forward = [linear(width, 4 * width), linear(4 * width, width)].concat();
        [&norm[..], &attention, &norm, &feed_forward].concat()
    };
    let blocks = (0..layers).flat_map(|_| block());
    [[vocabulary, width], [1024, width]].into_iter().chain(blocks).chain(norm).collect()
}

#[derive(Module, Debug)]
struct Model {
    leaves: Vec<Param<Tensor<2>>>,
}

fn run<T>(name: &str, label: &str, shapes: &[[usize; 2]], optimizer: T, burn_too: bool, rounds: usize)
where
    T: GradientTransformation<Needs = Nothing>,
{
    let device = Device::flex().autodiff();
    let data = |seed: usize, scale: f32| {
        let element = move |i: usize| scale * (((i * 2_654_435_761 + seed) % 8191) as f32 / 4096.0 - 1.0);
        shapes.iter().map(move |[r, c]| (0..r * c).map(element).collect::<Vec<f32>>()).collect::<Vec<_>>()
    };
    let start = data(1, 0.05);
    let tensors = |data: &[Vec<f32>]| {
        let tensor = |(data, shape): (&Vec<f32>, &[usize; 2])| {
            Tensor::<2>::from_data(TensorData::new(data.clone(), *shape), &device)
        };
        data.iter().zip(shapes).map(tensor).collect::<Vec<_>>()
    };
    let model = || Model { leaves: tensors(&start).into_iter().map(Param::from_tensor).collect() };
    let (mut theirs, mut ours, mut plain) = (model(), model(), start.clone());
    let mut burn: ModuleOptimizer = AdamWConfig::new().with_weight_decay(1e-2).init();
    let mut state = init(&optimizer, &ours).expect("a state");
    let mut plain_state = with_slices(&mut plain, shapes, |params| optimizer.init(params)).expect("a state");

    let mut times = Vec::new();
    for round in 0..rounds + 2 {
        let grads = data(round + 2, 1e-2);
        let given = |model: &Model| {
            let mut given = GradientsParams::new();
            model.leaves.iter().zip(tensors(&grads)).for_each(|(param, grad)| given.register(param.id, grad.inner()));
            given
        };
        let (mut in_theirs, in_ours, slices) = (burn_too.then(|| given(&theirs)), given(&ours), read(&grads, shapes));
        let mut time = [0.0; 3];
        // The previous step's writes still go to memory, so the order rotates.
        for which in (0..3).map(|i| (round + i) % 3) {
            let began = Instant::now();
            match which {
                0 => {
                    if let Some(given) = in_theirs.take() {
                        theirs = burn.step(RATE, theirs, given);
                    }
                }
                1 => _ = step(&optimizer, &mut ours, &in_ours, &mut state).expect("a step"),
                _ => {
                    _ = with_slices(&mut plain, shapes, |p| optimizer.step(p, &slices, &mut plain_state))
                        .expect("a step")
                }
            }
            time[which] = began.elapsed().as_secs_f64();
        }
        times.push(time);
    }
    same(&ours, &plain, 0.0);
    if burn_too {
        same(&theirs, &plain, 1e-4);
    }

    // The first two rounds allocate states and touch memory.
    let median = |of: &dyn Fn(&[f64; 3]) -> f64| {
        let mut all: Vec<f64> = times[2..].iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let [b, o, s] = [0, 1, 2].map(|i| format!("{:.2} ms", 1e3 * median(&|t| t[i])));
    let (overhead, gain) = (median(&|t| t[1] / t[2]), median(&|t| t[0] / t[1]));
    let (b, gain) = if burn_too { (b, format!("{gain:.2}")) } else { ("-".into(), "-".into()) };
    println!("{name:<8} {label:<22} {b:>9} {o:>9} {s:>9} {overhead:>12.3} {gain:>10}");
}

fn read<'a>(data: &'a [Vec<f32>], shapes: &[[usize; 2]]) -> Slices<'a> {
    let mut tree = Slices::new();
    for (i, (data, shape)) in data.iter().zip(shapes).enumerate() {
        tree = tree.with(i.to_string(), data, shape).expect("as long as the shape says");
    }
    tree
}

fn with_slices<R>(data: &mut [Vec<f32>], shapes: &[[usize; 2]], f: impl FnOnce(&mut SlicesMut<'_>) -> R) -> R {
    let mut tree = SlicesMut::new();
    for (i, (data, shape)) in data.iter_mut().zip(shapes).enumerate() {
        tree = tree.with(i.to_string(), data, shape).expect("as long as the shape says");
    }
    f(&mut tree)
}

fn same(model: &Model, plain: &[Vec<f32>], apart: f64) {
    let (mut leaves, params) = (plain.iter(), params(model).expect("parameters"));
    for_each_leaf(&params, |path, leaf| {
        let expected = leaves.next().expect("as many leaves");
        for (a, b) in leaf.to_f64().iter().zip(expected) {
            assert!((a - f64::from(*b)).abs() <= apart, "{path}: {a} {b}");
        }
    });
}
