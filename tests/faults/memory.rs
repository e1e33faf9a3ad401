//! Resident memory is flat: a step retains only its declared state.
//!
//! `tests/catalogue/allocations.rs` counts each transformation's allocations; this test reads the process's resident
//! set over many steps of a whole training loop.

use std::time::Instant;

use super::process::{command, folder, heard, say};
use super::*;

/// The allowed growth after the warmup, in KiB.
///
/// The allocator takes some 128 KiB at a time and keeps freed memory. A leak of 32 bytes a step exceeds this: 640 KiB
/// in 20 000 steps.
const MOST_KIB: u64 = 512;

/// Returns `GRADCHAIN_STEPS`, or enough steps to detect a leak.
fn steps() -> u64 {
    std::env::var("GRADCHAIN_STEPS").map_or(20_000, |steps| steps.parse().unwrap())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns forty leaves, one longer than a block in registers.
///
/// Small leaves detect leaks best: the allocator rounds one element up to the size of five.
fn leaves(of: impl Fn(usize) -> f64) -> Vec<Array1<f32>> {
    let len = |leaf: usize| if leaf == 7 { 44 } else { leaf % 5 + 1 };
    (0..40).map(|leaf| Array1::from_shape_fn(len(leaf), |i| of(50 * leaf + i) as f32)).collect()
}

/// A separate process excludes the memory of concurrent tests.
#[test]
#[ignore = "it is the process that is measured"]
fn child() {
    if folder().is_none() {
        return;
    }
    let optimizer = optimizer_of_leaves();
    let mut params = leaves(|i| noise(i as u64));
    let mut state = optimizer.init(&params).unwrap();
    let mut updates = state.zero_updates();
    let always = leaves(|i| noise(1 + i as u64));
    let mut step = |number: u64| {
        // Each step allocates and drops a gradient, and some steps use other methods.
        let mut grads = always.clone();
        grads[number as usize % 40][0] = noise(number) as f32;
        match number % 4 {
            0 => {
                let updates = optimizer.update(&grads, &mut state, &params).unwrap();
                apply_updates(&mut params, &updates).unwrap();
            }
            1 => assert!(optimizer.update_into(&grads, &mut state, &params, &mut updates).is_ok()),
            _ => assert!(optimizer.step(&mut params, &grads, &mut state).is_ok()),
        }
        if number.is_multiple_of(1000) {
            assert!(optimizer.step(&mut params, &vec![Array1::<f32>::zeros(1)], &mut state).is_err());
            drop(state.clone());
        }
    };
    (0..steps() / 10).for_each(&mut step);
    let (before, start) = (resident_kib(), Instant::now());
    let mut most = before;
    for number in 0..steps() {
        step(number);
        if number.is_multiple_of(1000) {
            most = most.max(resident_kib());
        }
    }
    let after = most.max(resident_kib());
    say(format_args!("{before} {after} {:.1}", start.elapsed().as_secs_f64()));
}

fn optimizer_of_leaves() -> impl GradientTransformation<Needs = Nothing> {
    multi_steps(chain((clip_by_global_norm(1.0), adamw(cosine_decay(0.01, 50_000)))), 2)
}

#[test]
fn is_flat_over_many_steps() {
    let (said, status) = heard(&mut command("memory::child", std::path::Path::new(".")));
    assert!(status.success() && said.len() == 1, "{status}: {said:?}");
    let numbers: Vec<f64> = said[0].split(' ').map(|number| number.parse().unwrap()).collect();
    let [before, after, seconds] = numbers[..] else { panic!("{said:?}") };
    let steps = steps();
    println!("{before} KiB before, {after} KiB at most in {steps} steps, which took {seconds} s");
    assert!(after - before <= MOST_KIB as f64, "{before} KiB before and {after} KiB after {steps} steps");
}
