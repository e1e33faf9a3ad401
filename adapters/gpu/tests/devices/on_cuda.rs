//! Tests on an NVIDIA device, run by `adapters/gpu/device`.

use gradchain_gpu::{Cuda, Device};

use crate::suite;

fn device() -> Device<Cuda> {
    Device::cuda(0).expect("an NVIDIA device")
}

#[test]
fn a_missing_library_or_device_is_an_error() {
    // Or the message names the missing part.
    if let Err(error) = Device::cuda(0) {
        let said = error.to_string();
        assert!(said.contains("libcuda") || said.contains("libnvrtc") || said.contains("CUDA"), "{said}");
    }
    assert!(Device::cuda(4096).is_err());
}

#[test]
fn more_numbers_than_a_launch_has_room_for_are_an_error() {
    use gradchain::prelude::*;
    use gradchain::transform::scale;
    let source = |members: usize| {
        let many: Vec<_> = (0..members).map(|_| boxed(scale(0.5))).collect();
        let programs = many.programs(&std::collections::BTreeMap::from([("w".to_owned(), vec![1.0_f32; 8])])).unwrap();
        let pass = &programs.passes()[0];
        gradchain_gpu::cuda_source(pass, &pass.leaves[0])
    };
    assert!(source(900).is_ok());
    let error = source(1100).unwrap_err().to_string();
    assert!(error.contains("w: ") && error.contains("4064 bytes at most"), "{error}");
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn every_program_of_the_catalogue_runs_on_the_device() {
    suite::catalogue(&device(), &suite::COMPUTED);
}

#[test]
#[cfg(feature = "half")]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn every_program_of_the_catalogue_runs_on_leaves_of_16_bits() {
    suite::catalogue(&device(), &suite::HALVES);
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn sums_over_chunks_have_the_bits_of_the_cpu() {
    suite::sums(&device());
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn many_leaves_have_the_bits_of_the_cpu() {
    suite::many_leaves(&device());
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn three_numbers_are_added_in_their_order() {
    suite::sums_of_three(&device());
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn only_sums_and_numbers_cross() {
    suite::traffic(&device());
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn a_run_resumes_on_another_device_bitwise_identically() {
    suite::back_and_forth(&device());
}

#[test]
#[ignore = "needs an NVIDIA device: adapters/gpu/device"]
fn misfits_are_errors() {
    suite::misfits(&device());
}

/// Without fused operations.
#[test]
#[ignore = "needs NVIDIA's compiler: adapters/gpu/nvrtc"]
fn every_program_of_the_catalogue_compiles() {
    let mut roots = [0; 2];
    let compiled = suite::each_program(|name, pass, leaf| {
        let text = gradchain_gpu::cuda_source(pass, leaf).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ptx = gradchain_gpu::compile_cuda(&text, (9, 0)).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        let functions = ["exp", "ln", "log", "pow", "sin", "cos", "tan", "cbrt", "sinh", "cosh", "fma"];
        let plain = !functions.iter().any(|function| text.contains(&format!("{function}_")) || text.contains("pow"));
        assert!(!plain || !ptx.contains("fma"), "{name}\n{text}\n{ptx}");
        assert!(
            !ptx.contains("sqrt.approx") && !ptx.contains("div.approx") && !ptx.contains("div.full"),
            "{name}\n{ptx}"
        );
        roots[0] += ptx.matches("sqrt.rn").count();
        roots[1] += ptx.matches("div.rn").count();
    });
    println!("{compiled} programs compiled; sqrt.rn {}, div.rn {}", roots[0], roots[1]);
    assert!(compiled > 200 && roots.iter().all(|n| *n > 0));
}
