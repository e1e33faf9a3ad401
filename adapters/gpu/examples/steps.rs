//! How long steps take on a device, and how many bytes a second that is.
//!
//! ```text
//! cargo run --release -p gradchain-gpu --example steps
//! cargo run --release -p gradchain-gpu --example steps -- cuda
//! ```
//!
//! One large leaf, and the leaves of a GPT-2 with 124 million parameters. The bytes are those that a step has to move:
//! parameters and states read and written, gradients read, a second time where a norm has to be known before. Medians
//! of the times of ten steps one after another, after which the device is waited for.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use gradchain::GradientTransformation;
use gradchain::needs::Nothing;
use gradchain::prelude::*;
use gradchain_gpu::{Backend, Device};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("cuda") => all(&Device::cuda(0)?),
        _ => all(&Device::wgpu()?),
    }
}

type Leaves = BTreeMap<String, Vec<f32>>;

fn all<B: Backend>(device: &Device<B>) -> Result<(), Box<dyn Error>> {
    println!("on {}\n", device.backend().name());
    println!("| parameters | leaves | optimizer | µs a step | GB/s |\n|---|---|---|---|---|");
    for leaves in [one(1_000_000), one(10_000_000), one(100_000_000), gpt2()] {
        steps(device, "sgd", 12, &sgd(1e-3), &leaves)?;
        steps(device, "adamw", 28, &adamw(1e-3), &leaves)?;
        steps(device, "clip_by_global_norm, adamw", 32, &chain((clip_by_global_norm(1.0), adamw(1e-3))), &leaves)?;
        steps(device, "lamb", 40, &lamb(1e-3), &leaves)?;
    }
    Ok(())
}

fn one(n: usize) -> Leaves {
    BTreeMap::from([(String::from("x"), vec![1.0; n])])
}

fn gpt2() -> Leaves {
    let mut leaves = Leaves::new();
    let mut leaf = |name: String, n: usize| leaves.insert(name, vec![1.0; n]);
    leaf("wte".into(), 50257 * 768);
    leaf("wpe".into(), 1024 * 768);
    for block in 0..12 {
        for (name, n) in [
            ("attn.w", 768 * 2304),
            ("attn.b", 2304),
            ("proj.w", 768 * 768),
            ("proj.b", 768),
            ("up.w", 768 * 3072),
            ("up.b", 3072),
            ("down.w", 3072 * 768),
            ("down.b", 768),
            ("ln1.w", 768),
            ("ln1.b", 768),
            ("ln2.w", 768),
            ("ln2.b", 768),
        ] {
            leaf(format!("h{block}.{name}"), n);
        }
    }
    leaf("ln.w".into(), 768);
    leaf("ln.b".into(), 768);
    leaves
}

fn steps<B: Backend, T: GradientTransformation<Needs = Nothing>>(
    device: &Device<B>,
    name: &str,
    bytes: usize,
    optimizer: &T,
    leaves: &Leaves,
) -> Result<(), Box<dyn Error>> {
    let elements: usize = leaves.values().map(Vec::len).sum();
    let mut run = device.init(optimizer, leaves)?;
    let gradients: Leaves = leaves.iter().map(|(name, leaf)| (name.clone(), vec![0.01; leaf.len()])).collect();
    run.set_gradients(&gradients)?;
    let mut times = Vec::new();
    for round in 0..12 {
        let begin = Instant::now();
        for _ in 0..10 {
            device.step(optimizer, &mut run)?;
        }
        let last = leaves.keys().next_back().and_then(|path| run.param(path)).ok_or("no leaf")?;
        device.backend().read(last, 4)?;
        if round > 1 {
            times.push(begin.elapsed().as_secs_f64() / 10.0);
        }
    }
    times.sort_by(f64::total_cmp);
    let time = times[times.len() / 2];
    let rate = (bytes * elements) as f64 / time / 1e9;
    println!("| {elements} | {} | {name} | {:.0} | {rate:.0} |", leaves.len(), time * 1e6);
    Ok(())
}
