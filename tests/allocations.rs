//! A step allocates nothing once the first has been done: counted by the allocator, for every registered transformation.
#![allow(missing_docs, unsafe_code, reason = "a test program with an allocator of its own")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::registry::{About, Law, registry};
use common::trees::{LeafPlan, Number, Order, noise, tree};
use gradchain::Stage;
use gradchain::prelude::*;
use gradchain::tree::DynTree;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator.
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

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

struct NoAllocation {
    params: DynTree,
    grads: DynTree,
    failures: Vec<String>,
}

impl Law for NoAllocation {
    fn check<T: Stage<Needs = gradchain::needs::Nothing> + Clone + 'static>(&mut self, name: &str, _: About, t: T) {
        // It is documented to copy the first state when it synchronizes.
        if name == "lookahead_reset" {
            return;
        }
        let mut params = self.params.clone();
        let mut state = t.init(&params).unwrap();
        let mut updates = state.zero_updates();
        t.step(&mut params, &self.grads, &mut state).unwrap();
        // Several, so that mini-steps that emit and such that do not are among them.
        let stepping = counted(|| {
            for _ in 0..6 {
                t.step(&mut params, &self.grads, &mut state).unwrap();
            }
        });
        let updating = counted(|| {
            for _ in 0..6 {
                t.update_into(&self.grads, &mut state, &params, &mut updates).unwrap();
            }
        });
        if stepping + updating > 0 {
            self.failures.push(format!("{name}: {stepping} in 6 steps, {updating} in 6 updates"));
        }
    }
}

#[test]
fn a_step_after_the_first_allocates_nothing() {
    // With several threads rayon's own queues allocate now and then; one thread takes the serial road.
    #[cfg(feature = "rayon")]
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(count_allocations);
    #[cfg(not(feature = "rayon"))]
    count_allocations();
}

fn count_allocations() {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let mut plan = vec![
        leaf(Number::F32, &[20_000]),
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
    let mut law = NoAllocation { params, grads, failures: Vec::new() };
    registry(&mut law);
    assert!(law.failures.is_empty(), "{}", law.failures.join("\n"));
}
