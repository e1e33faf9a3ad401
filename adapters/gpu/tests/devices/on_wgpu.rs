//! On a device of wgpu, such as Mesa's `lavapipe`, which runs on the CPU.

use gradchain_gpu::{Device, Wgpu};

use crate::suite;

/// One for a test: devices are opened in a moment, and tests run side by side.
fn device() -> Device<Wgpu> {
    Device::wgpu().expect("a device: on Debian `mesa-vulkan-drivers` is one")
}

#[test]
fn every_program_of_the_catalogue_runs_on_the_device() {
    suite::catalogue(&device(), &suite::COMPUTED);
}

#[test]
#[cfg(feature = "half")]
fn every_program_of_the_catalogue_runs_on_leaves_of_16_bits() {
    suite::catalogue(&device(), &suite::HALVES);
}

#[test]
fn sums_over_pieces_have_the_bits_of_the_cpu() {
    suite::sums(&device());
}

#[test]
fn many_leaves_have_the_bits_of_the_cpu() {
    suite::many_leaves(&device());
}

#[test]
fn sums_in_pairs_are_near() {
    suite::sums_in_pairs(&Device::wgpu_in_pairs().expect("a device"));
}

#[test]
fn only_sums_and_numbers_cross() {
    suite::traffic(&device());
}

#[test]
fn a_run_goes_on_elsewhere_with_the_same_bits() {
    suite::back_and_forth(&device());
}

#[test]
fn misfits_are_errors() {
    suite::misfits(&device());
}

#[test]
fn three_numbers_are_added_in_their_order() {
    suite::sums_of_three(&device());
}

/// Numbers and sums of a step have buffers of their own, which go with it.
#[test]
fn memory_is_flat_over_a_thousand_steps() {
    use gradchain::prelude::*;
    let (device, optimizer) = (device(), chain((clip_by_global_norm(1.0), adamw(1e-3))));
    let mut params = vec![1.0_f32; 20_000];
    let mut run = device.init(&optimizer, &params).unwrap();
    run.set_gradients(&vec![0.5_f32; 20_000]).unwrap();
    let mut held = Vec::new();
    for step in 0..1000 {
        device.step(&optimizer, &mut run).unwrap();
        if step % 100 == 99 {
            // Waits until everything before it is done.
            run.params_into(&mut params).unwrap();
            let report = device.backend().device().generate_allocator_report().expect("Vulkan counts its memory");
            held.push(report.total_allocated_bytes);
        }
    }
    assert!(held.iter().all(|bytes| *bytes <= held[0]), "{held:?}");
}
