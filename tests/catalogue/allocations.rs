//! Every registered transformation allocates nothing after its first step.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::extra_inputs::IN_LOSS;
use crate::common::extra_inputs::needs;
use crate::common::registry::registry;
use crate::common::subject::Subject;
use crate::common::trees::{LeafPlan, Number, Order, noise, tree};
use gradchain::needs::Level;
use gradchain::optimizer::rowwise_adagrad;
use gradchain::prelude::*;
use gradchain::tree::{DynTree, SparseRows};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    if !IN_LOSS.get() {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
    }
}

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Entries that allocate in some steps; their documentation says so under `Cost`.
const DOCUMENTED: &[(&str, &str)] = &[
    ("lookahead_reset", "makes a state anew when it synchronizes"),
    ("lookahead_reset_dog", "makes a state anew when it synchronizes"),
    ("lookahead_reset_of_windows", "makes a state anew when it synchronizes"),
    ("lookahead_reset_prodigy", "makes a state anew when it synchronizes"),
    ("lookahead_reset_schedule_free", "makes a state anew when it synchronizes"),
    ("lookahead_reset_settings", "makes a state anew when it synchronizes"),
    ("sam", "makes the adversary's state anew when it synchronizes"),
    ("sam_dog", "makes the adversary's state anew when it synchronizes"),
    ("sam_of_matrices", "makes the adversary's state anew when it synchronizes"),
    ("sam_opaque", "makes the adversary's state anew, and runs it inside a step"),
    ("sam_opaque_dog", "makes the adversary's state anew, and runs it inside a step"),
    ("sam_schedule_free", "makes the adversary's state anew when it synchronizes"),
    ("master_of_matrices", PRODUCTS),
    ("galore", PRODUCTS),
    ("inject_muon", PRODUCTS),
    ("muon", PRODUCTS),
    ("scale_by_galore", PRODUCTS),
    ("scale_by_muon", PRODUCTS),
    ("scale_by_muon_spectral", PRODUCTS),
    ("skip_absent_of_matrices", PRODUCTS),
    ("shampoo", PRODUCTS),
    ("soap", PRODUCTS),
];

const PRODUCTS: &str = "the library for matrix products packs the factors into memory of its own";

fn allocates(entry: &dyn Subject, params: &DynTree, grads: &DynTree) -> Option<String> {
    let mut params = params.clone();
    let mut session = entry.init(&params).unwrap();
    let mut updates = session.zero_updates();
    session.step(&mut params, grads).unwrap();
    // Steps that emit and steps that hold.
    let stepping = counted(|| {
        for _ in 0..6 {
            session.step(&mut params, grads).unwrap();
        }
    });
    let updating = counted(|| {
        for _ in 0..6 {
            session.update_into(grads, &params, &mut updates).unwrap();
        }
    });
    // A loss function gets a copy of the parameters. Walking the copy and the gradients allocates tables and a growing
    // path.
    let copy = counted(|| drop(params.clone())) + 6;
    let most = if needs(&entry.boxed()) >= Level::ValueFn { 12 * copy } else { 0 };
    let found = || format!("{}: {stepping} in 6 steps, {updating} in 6 updates", entry.name());
    match DOCUMENTED.iter().find(|(name, _)| *name == entry.name()) {
        Some((name, what)) if stepping + updating == 0 => Some(format!("{name}: {what}: it does not")),
        Some(_) => None,
        None => (stepping + updating > most).then(found),
    }
}

#[test]
fn a_step_after_the_first_allocates_nothing() {
    // Rayon's queues allocate now and then; one thread runs serially.
    #[cfg(feature = "rayon")]
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(count_allocations);
    #[cfg(not(feature = "rayon"))]
    count_allocations();
}

#[test]
fn a_step_of_as_many_rows_as_the_first_allocates_nothing() {
    let optimizer = chain((clip_by_global_norm(1.0), scale_by_adam(), rowwise_adagrad(0.1)));
    let mut params = ndarray::Array2::<f32>::zeros((900, 7));
    let mut state = optimizer.init(&params).unwrap();
    let rows = |step: usize| {
        SparseRows::new(
            (0..20).map(|i| (i * 113 + step * 31) % 900).collect::<Vec<_>>(),
            ndarray::Array2::from_elem((20, 7), 0.5_f32),
        )
    };
    optimizer.step(&mut params, &rows(0), &mut state).unwrap();
    let others: Vec<_> = (1..6).map(rows).collect();
    let stepping = counted(|| {
        for rows in &others {
            optimizer.step(&mut params, rows, &mut state).unwrap();
        }
    });
    assert_eq!(stepping, 0);
}

fn count_allocations() {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let mut plan = vec![
        // Two chunks.
        leaf(Number::F32, &[16_500]),
        leaf(Number::F64, &[30, 4]),
        leaf(Number::F32, &[16, 8]),
        leaf(Number::F32, &[]),
        leaf(Number::F32, &[1, 2, 1, 2, 1, 3]),
    ];
    if cfg!(feature = "half") {
        plan.extend([leaf(Number::Bf16, &[600]), leaf(Number::F16, &[5, 5])]);
    }
    let (params, grads) = (tree(&plan, |leaf, i| noise(1, leaf, i)), tree(&plan, |leaf, i| noise(2, leaf, i)));
    assert_eq!(counted(|| drop(vec![1_u8])), 1, "the count counts");
    let failures: Vec<_> = registry().iter().filter_map(|entry| allocates(&**entry, &params, &grads)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
