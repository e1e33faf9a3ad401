//! Faults: kills, full disks, panics and extreme numbers end in bitwise correct resumption or an error.
//!
//! `process` starts this program again as the process that suffers the fault.
#![allow(missing_docs, reason = "a test program")]

#[path = "../common/chunk.rs"]
mod chunk;
mod clipping;
mod edges;
mod kill;
mod limits;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod no_room;
#[cfg(target_os = "linux")]
mod open_files;
mod owned;
mod panics;
mod process;
mod sound;

use gradchain::optimizer::Adamw;
use gradchain::prelude::*;
use gradchain::transform::ClipByGlobalNorm;
use gradchain::tree::for_each_leaf;
use gradchain::wrapper::MultiSteps;
use ndarray::{Array1, Array2};

#[derive(Clone, Debug, PartialEq, Tree)]
struct Model {
    weight: Array2<f32>,
    bias: Array1<f64>,
}

fn model() -> Model {
    let weight = Array2::from_shape_fn((60, 100), |(i, j)| noise((i * 100 + j) as u64) as f32);
    Model { weight, bias: Array1::from_shape_fn(50, |i| noise(1_000_000 + i as u64)) }
}

fn gradient(model: &Model, step: u64) -> Model {
    let shift = noise(step);
    Model { weight: model.weight.mapv(|w| 0.5 * w + shift as f32), bias: model.bias.mapv(|b| 0.5 * b - shift) }
}

/// Clipping, a schedule, a mask, and mini-steps around them.
type Optimizer = MultiSteps<(ClipByGlobalNorm, Adamw)>;

fn optimizer() -> Optimizer {
    let rate = warmup_cosine_decay(0.0, 0.05, 20, 100).end_value(1e-4);
    multi_steps(chain((clip_by_global_norm(1.0), adamw(rate).weight_decay(0.01).mask(Mask::path("weight")))), 3)
}

/// Returns a number between -1 and 1.
fn noise(seed: u64) -> f64 {
    (bits(seed) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

fn bits(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn bits_of<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Vec<u64>)> {
    let mut out = Vec::new();
    for_each_leaf(tree, |path, leaf| out.push((path.to_owned(), leaf.to_f64().iter().map(|x| x.to_bits()).collect())));
    out
}
