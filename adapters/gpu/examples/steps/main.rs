//! Times steps on a device, and prints the bandwidth.
//!
//! ```text
//! cargo run --release -p gradchain-gpu --example steps
//! cargo run --release -p gradchain-gpu --example steps -- cuda
//! ```
//!
//! The trees are one large leaf, and the leaves of GPT-2 with 124 million parameters. The byte count is the necessary
//! traffic: parameters and states read and written, gradients read, twice if a norm must be known first. Times are
//! medians over runs of ten consecutive steps, followed by a synchronization.

#[allow(dead_code, unreachable_pub, reason = "a part of another program, which uses more of it")]
mod trees;

use std::error::Error;
use std::time::Instant;

use gradchain::GradientTransformation;
use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain::tree::Structure;
use gradchain_gpu::{Backend, Device};

use crate::trees::{Shapes, flat};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("cuda") => all(&Device::cuda(0)?),
        _ => all(&Device::wgpu()?),
    }
}

fn all<B: Backend>(device: &Device<B>) -> Result<(), Box<dyn Error>> {
    println!("on {}\n", device.backend().name());
    println!("| parameters | leaves | optimizer | µs a step | GB/s |\n|---|---|---|---|---|");
    let one = |n: usize| Shapes::one("one leaf", &[n]);
    let gpt2 = Shapes::all().into_iter().find(|shapes| shapes.name == "gpt2").ok_or("no such tree")?;
    for leaves in [one(1_000_000), one(10_000_000), one(100_000_000), gpt2] {
        steps(device, "sgd", 12, &sgd(1e-3), &leaves)?;
        steps(device, "adamw", 28, &adamw(1e-3), &leaves)?;
        steps(device, "clip_by_global_norm, adamw", 32, &chain((clip_by_global_norm(1.0), adamw(1e-3))), &leaves)?;
        steps(device, "lamb", 40, &lamb(1e-3), &leaves)?;
    }
    Ok(())
}

fn steps<B: Backend, T: GradientTransformation<Needs = Nothing>>(
    device: &Device<B>,
    name: &str,
    bytes: usize,
    optimizer: &T,
    shapes: &Shapes,
) -> Result<(), Box<dyn Error>> {
    let params = flat::<f32>(shapes, |_| 1.0);
    let structure = Structure::of(&params)?;
    let mut run = device.init(optimizer, &params)?;
    run.set_gradients(&flat::<f32>(shapes, |_| 0.01))?;
    let mut times = Vec::new();
    for round in 0..12 {
        let begin = Instant::now();
        for _ in 0..10 {
            device.step(optimizer, &mut run)?;
        }
        let last = structure.leaves().last().and_then(|leaf| run.param(leaf.path())).ok_or("no leaf")?;
        device.backend().read(last, 4)?;
        if round > 1 {
            times.push(begin.elapsed().as_secs_f64() / 10.0);
        }
    }
    times.sort_by(f64::total_cmp);
    let time = times[times.len() / 2];
    let (elements, leaves) = (shapes.elements(), shapes.leaves.len());
    let rate = (bytes * elements) as f64 / time / 1e9;
    println!("| {elements} | {leaves} | {name} | {:.0} | {rate:.0} |", time * 1e6);
    Ok(())
}
