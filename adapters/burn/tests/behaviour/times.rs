//! Times replayed steps beside those of burn's own AdamW.

use std::time::Instant;

use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Distribution, Tensor};
use gradchain::prelude::*;
use gradchain_burn::DeviceState;

use crate::replay::other_device;

#[derive(Module, Debug)]
struct Matrices {
    all: Vec<Param<Tensor<2>>>,
}

impl Matrices {
    fn new(device: &Device) -> Matrices {
        let matrix = || Tensor::random([500, 500], Distribution::Default, device);
        Matrices { all: (0..4).map(|_| Param::from_tensor(matrix())).collect() }
    }

    fn grads(&self, device: &Device) -> GradientsParams {
        let mut grads = GradientsParams::new();
        let gradient = || Tensor::<2>::random([500, 500], Distribution::Normal(0.0, 1.0), &device.clone().inner());
        self.all.iter().for_each(|param| grads.register(param.id, gradient()));
        grads
    }
}

/// Skips the first steps, which compile kernels.
fn milliseconds(device: &Device, mut step: impl FnMut(&mut Matrices, GradientsParams)) -> f64 {
    let mut model = Matrices::new(device);
    let mut times = Vec::new();
    for _ in 0..15 {
        let grads = model.grads(device);
        device.sync().expect("the device works");
        let began = Instant::now();
        step(&mut model, grads);
        device.sync().expect("the device works");
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.drain(..4);
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn replayed<T: GradientTransformation<Needs = Nothing>>(device: &Device, optimizer: &T) -> f64 {
    let mut state = None;
    milliseconds(device, |model, grads| {
        let state = state.get_or_insert_with(|| DeviceState::init(optimizer, model).expect("a state"));
        state.step(optimizer, model, &grads).expect("a step");
    })
}

/// A driver may terminate the process in the next one.
#[test]
#[ignore = "prints times"]
fn steps_of_a_million_parameters() {
    let device = other_device();
    let mut burns: ModuleOptimizer = AdamWConfig::new().init();
    let theirs = milliseconds(&device, |model, grads| *model = burns.step(1e-3, model.clone(), grads));
    println!("burn's AdamW on {device:?}: {theirs:.1} ms a step of 4 matrices of 500 by 500");
    let print = |name: &str, ours: f64| println!("{name}: {ours:.1} ms, {:.2} of burn's AdamW", ours / theirs);
    print("adamw", replayed(&device, &adamw(1e-3)));
    print("clip_by_global_norm, adamw", replayed(&device, &chain((clip_by_global_norm(1.0), adamw(1e-3)))));
    print("muon", replayed(&device, &muon(1e-3)));
}
