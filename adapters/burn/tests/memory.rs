//! A long run's memory stays flat, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gradchain::prelude::*;
use gradchain_burn::{DeviceState, init, step};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: forwards every call unchanged to the system's allocator.
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps a model, and evaluates it every hundred steps.
fn stays_flat(steps: usize, mut step: impl FnMut(&mut Vec<Linear>, &GradientsParams)) {
    let device = Device::flex().autodiff();
    let mut model = model();
    let forward = |model: &[Linear], x: Tensor<2>| model.iter().fold(x, |x, layer| layer.forward(x).tanh());
    let x = Tensor::<2>::ones([4, 8], &device);
    let (mut live, mut losses) = (Vec::new(), 0.0);
    for number in 0..steps {
        let loss = forward(&model, x.clone()).powi_scalar(2).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        step(&mut model, &grads);
        drop((loss, grads));
        if number % 100 == 99 {
            losses += forward(&model.valid(), x.clone().inner()).mean().into_scalar::<f64>();
            live.push(LIVE.load(Ordering::Relaxed));
        }
    }
    assert!(f64::is_finite(losses));
    // By then the engine's tables and burn's pools are full; growth is below a kilobyte.
    let after = &live[1..];
    let (least, most) = (after.iter().min().unwrap(), after.iter().max().unwrap());
    assert!(most - least < 1024, "{least} to {most} bytes: {live:?}");
}

fn model() -> Vec<Linear> {
    let device = Device::flex().autodiff();
    vec![LinearConfig::new(8, 16).init(&device), LinearConfig::new(16, 2).init(&device)]
}

/// One test runs all ways to step in sequence, since the whole program's memory is counted.
///
/// States are keyed by path, so one model's fit another.
#[test]
fn long_runs_with_evaluations_stay_flat() {
    let optimizer = chain((clip_by_global_norm(1.0), adamw(1e-3).mask(Mask::path("*/weight"))));
    let mut state = init(&optimizer, &model()).unwrap();
    stays_flat(10_000, |model, grads| _ = step(&optimizer, model, grads, &mut state).unwrap());
    let mut state = DeviceState::init(&optimizer, &model()).unwrap();
    stays_flat(2_000, |model, grads| _ = state.step(&optimizer, model, grads).unwrap());
}
