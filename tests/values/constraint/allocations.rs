//! After its first step, training raw parameters allocates nothing.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Counts by thread. Methods without an override call `alloc`.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_step_of_raw_parameters_allocates_nothing() {
    let params = (vec![0.5_f64; 100], vec![1.0_f32; 50], 3.0_f64);
    let constraints = Constraints::new().at("0", interval(0.0, 1.0)).at("1", weight_norm());
    let mut raw = constraints.unconstrain(&params).unwrap();
    let optimizer = adam(0.1);
    let mut state = optimizer.init(&raw).unwrap();
    let gradient = raw.pull_back(&params).unwrap();
    optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..10 {
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    drop(raw.constrain().unwrap());
    assert!(ALLOCATIONS.with(Cell::get) > before, "it does count");
}
