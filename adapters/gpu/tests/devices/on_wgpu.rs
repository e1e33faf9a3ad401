//! Tests on wgpu, for example Mesa's `lavapipe`, which runs on the CPU.

use gradchain_gpu::{Device, Wgpu, wgsl_source};

use crate::suite;

/// Opens a device for one test: that is fast, and tests run in parallel.
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
fn sums_over_chunks_have_the_bits_of_the_cpu() {
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
fn a_run_resumes_on_another_device_bitwise_identically() {
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

/// A driver may fuse an unprotected product with a sum.
#[test]
fn shaders_keep_products_unfused_from_sums() {
    let (mut products, mut of_sums) = (0, 0);
    suite::each_program(|name, pass, leaf| {
        let Ok(text) = wgsl_source(pass, leaf, true) else { return };
        let assigned = text.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(" = "));
        let is_product =
            |made: &str| made.split_once(" * ").is_some_and(|(a, b)| a.starts_with('t') && b.starts_with('t'));
        for (product, _) in assigned.clone().filter(|(_, made)| is_product(made)) {
            let product = product.trim_start_matches("let ");
            products += 1;
            for (_, user) in assigned.clone().filter(|(_, user)| user.contains(" + ") || user.contains(" - ")) {
                let mut words = user.split(|c: char| !c.is_alphanumeric());
                assert!(words.all(|word| word != product), "{name}: {product} in {user}\n{text}");
            }
        }
        of_sums += usize::from(!leaf.program.sums().is_empty() && text.contains("rounded_f64(t"));
    });
    println!("{products} products as they are, {of_sums} texts that add up what is kept apart");
    assert!(of_sums > 20);
}

/// Neither numbers nor sums stay behind.
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
            run.params_into(&mut params).unwrap();
            let report = device.backend().device().generate_allocator_report().expect("Vulkan counts its memory");
            held.push(report.total_allocated_bytes);
        }
    }
    assert!(held.iter().all(|bytes| *bytes <= held[0]), "{held:?}");
}
