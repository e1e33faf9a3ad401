//! Trains the network of the example `train_digits` with its optimizer on a device, and on the CPU.
//!
//! ```text
//! cargo run --release -p gradchain-gpu --example digits
//! cargo run --release -p gradchain-gpu --example digits -- cuda
//! ```
//!
//! The gradients are computed on the CPU, from parameters copied from the device, and copied to it; a network on the
//! device would need neither copy. The optimizer's arithmetic and state are on the device. At the end the program
//! compares the parameters of both runs bit for bit.

mod data;
mod model;

use std::error::Error;

use gradchain::prelude::*;
use gradchain::tree::for_each_leaf;
use gradchain_gpu::{Backend, Device};

use crate::data::{Digits, Random};
use crate::model::Mlp;

const EPOCHS: usize = 20;
const BATCH: usize = 32;
const TRAIN: usize = 1200;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("cuda") => train(&Device::cuda(0)?),
        _ => train(&Device::wgpu()?),
    }
}

fn train<B: Backend>(device: &Device<B>) -> Result<(), Box<dyn Error>> {
    let mut random = Random(0);
    let (train, test) = Digits::load()?.shuffle_and_split(TRAIN, &mut random);
    let mut on_device = Mlp::new(64, 64, 10, &mut random);
    let mut on_cpu = on_device.clone();
    let mut gradient = on_device.zeros_like();

    let updates = (EPOCHS * TRAIN / BATCH) as u64;
    let optimizer = chain((
        zero_nans(),
        clip_by_global_norm(1.0),
        adamw(warmup_cosine_decay(0.0, 1e-2, 50, updates).end_value(1e-5)).weight_decay(1e-2).mask(Mask::path("w*")),
    ));
    let mut run = device.init(&optimizer, &on_device)?;
    let mut state = optimizer.init(&on_cpu)?;
    println!("on {}", device.backend().name());

    let mut order: Vec<usize> = (0..TRAIN).collect();
    for epoch in 1..=EPOCHS {
        random.shuffle(&mut order);
        let (mut loss, mut batches) = (0.0, 0);
        for rows in order.chunks_exact(BATCH) {
            let batch = train.rows(rows);
            run.params_into(&mut on_device)?;
            loss += on_device.loss(&batch, &mut gradient);
            batches += 1;
            run.set_gradients(&gradient)?;
            device.step(&optimizer, &mut run)?;

            on_cpu.loss(&batch, &mut gradient);
            optimizer.step(&mut on_cpu, &gradient, &mut state)?;
        }
        if epoch % 5 == 0 {
            println!("epoch {epoch:2} of {EPOCHS}  loss {:.4}", loss / f64::from(batches));
        }
    }
    run.params_into(&mut on_device)?;
    println!("train accuracy {:.3}", on_device.accuracy(&train));
    println!("test accuracy {:.3}", on_device.accuracy(&test));
    let same = bits(&on_device) == bits(&on_cpu);
    println!("kernels compiled: {}", device.kernels());
    println!(
        "the parameters are {} to the run on the CPU",
        if same { "bitwise identical" } else { "not bitwise identical" }
    );
    Ok(())
}

fn bits(model: &Mlp) -> Vec<u64> {
    let mut bits = Vec::new();
    for_each_leaf(model, |_, leaf| bits.extend(leaf.to_f64().into_iter().map(f64::to_bits)));
    bits
}
