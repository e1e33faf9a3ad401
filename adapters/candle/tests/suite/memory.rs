//! Steps retain no memory.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use gradchain::prelude::*;
use gradchain::wrapper::skip_absent;
use gradchain_candle::{init, step};

use super::*;

struct Counting;

thread_local! {
    /// Bytes now, and at most.
    static BYTES: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // During thread shutdown the counter has been dropped.
    _ = BYTES.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Counts by thread. Methods without an override call `alloc`.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn memory_is_flat_over_ten_thousand_steps() -> Tested {
    let w = var(&[100, 20], DType::F32, 1);
    let vars = Vars::named([("layer.weight", w.clone()), ("layer.bias", var(&[100], DType::F32, 2))])?;
    let optimizer = skip_absent(chain((clip(1.0), adamw(1e-3))));
    let mut state = init(&optimizer, &vars)?;
    let grads = gradients(&[(&w, tensor(&[100, 20], DType::F32, 3))]);
    step(&optimizer, &vars, &grads, &mut state)?;
    let (before, _) = BYTES.get();
    BYTES.set((before, before));
    for _ in 0..10_000 {
        step(&optimizer, &vars, &grads, &mut state)?;
    }
    let (after, most) = BYTES.get();
    assert_eq!(after, before);
    // One copy has 8000 bytes.
    assert!((1..3_000).contains(&(most - before)), "{} bytes", most - before);
    Ok(())
}
