//! The block loop, which processes every element of every chain and of every part outside of one.
//!
//! It loads a block of each array into locals, computes on them and stores them back. LLVM knows that locals do not
//! alias, so it vectorizes for any number of arrays and any storage format. Arrays of the compute type have an instance
//! whose locals stay in registers.
#![allow(unsafe_code, reason = "arrays of any type, and conversions of the SIMD level that a loop is compiled for")]

use core::marker::PhantomData;
use core::sync::atomic::{Ordering, compiler_fence};

use super::limits::{BLOCK, MAX_SLOTS};
use super::prefetch::DISTANCE;
use super::simd::{Baseline, Job, SimdLevel, SimdType, dispatch_chain};
use super::slot_access::any;
use super::stored::{Array, Arrays, is_single};
use super::sums::{Added, LANES, Lanes, MAX_SUMS, NOTHING};
use crate::element::{Contribution, DType, Real};
use crate::numeric::opaque::hidden;
use crate::tree::add_update;

/// Blocks of 16-bit parameters between computing and adding an update. Rounding waits for square root and division:
/// adding at once would fill the reorder buffer with waiting instructions and delay later blocks.
const LAG: usize = 7;

/// Output modes: drop the updates, store them, or add them to the parameters.
pub(super) const DROP: u8 = 0;
pub(super) const STORE: u8 = 1;
pub(super) const ADD: u8 = 2;

/// The arithmetic on one element.
pub(super) trait Body<C: Real> {
    type Kernel: Copy;
    /// State arrays: their number, those read, those written.
    const ARRAYS: usize;
    const READS: [bool; MAX_SLOTS];
    const WRITES: [bool; MAX_SLOTS];
    const READS_PARAMS: bool;
    /// The number of reductions, and the mask of counts.
    const SUMS: usize = 0;
    const COUNTS: u32 = 0;
    /// True if a second loop over a block may reduce, from inputs and old state.
    const DEFERRABLE: bool = false;
    /// True if the arithmetic depends on the parameters' dtype.
    const TYPED: bool = false;

    /// Returns the update. `how` is the parameters' dtype, in a loop compiled for one, and a flag that only reductions
    /// remain. Must be `#[inline(always)]`, to be compiled for the caller's SIMD level.
    fn apply(
        kernel: &Self::Kernel,
        how: (Option<DType>, bool),
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>; MAX_SUMS],
    ) -> C;
}

/// Runs over arrays of the compute type.
pub(super) fn run<B: Body<C>, C: Real, const OUT: u8>(
    simd: SimdLevel,
    kernel: &B::Kernel,
    arrays: &Arrays<'_>,
) -> Added {
    in_mode::<B, C, OUT, false>(simd, kernel, arrays)
}

type LoopFn<B, C> = fn(SimdLevel, &<B as Body<C>>::Kernel, &Arrays<'_>) -> Added;

/// Runs over arrays of the compute type or 16-bit floats.
pub(super) fn run_mixed<B: Body<C>, C: Real, const OUT: u8>(
    simd: SimdLevel,
    kernel: &B::Kernel,
    arrays: &Arrays<'_>,
) -> Added {
    let mixed: Option<LoopFn<B, C>> = const { if is_single::<C>() { Some(in_mode::<B, C, OUT, true>) } else { None } };
    match mixed.filter(|_| !arrays.is_native::<C>(OUT == ADD)) {
        Some(mixed) => mixed(simd, kernel, arrays),
        None => run::<B, C, OUT>(simd, kernel, arrays),
    }
}

fn in_mode<B: Body<C>, C: Real, const OUT: u8, const MIXED: bool>(
    simd: SimdLevel,
    kernel: &B::Kernel,
    arrays: &Arrays<'_>,
) -> Added {
    dispatch_chain(simd, Run::<B, C, OUT, MIXED>(kernel, arrays))
}

struct Run<'r, B: Body<C>, C: Real, const OUT: u8, const MIXED: bool>(&'r B::Kernel, &'r Arrays<'r>);

impl<B: Body<C>, C: Real, const OUT: u8, const MIXED: bool> Job for Run<'_, B, C, OUT, MIXED> {
    type Output = Added;
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) -> Added {
        self.run_on::<Baseline>()
    }
    #[inline(always)]
    fn run_on<I: SimdType>(self) -> Added {
        let run = Loop::<B, C, I, OUT, MIXED>::RUN;
        if const { !B::TYPED || OUT != ADD } {
            return run(self, None);
        }
        match self.1.params_dtype() {
            DType::Bf16 if MIXED => run(self, Some(DType::Bf16)),
            DType::F16 if MIXED => run(self, Some(DType::F16)),
            _ => run(self, Some(C::DTYPE)),
        }
    }
}

struct Loop<B, C, I, const OUT: u8, const MIXED: bool>(PhantomData<(B, C, I)>);

impl<B: Body<C>, C: Real, I: SimdType, const OUT: u8, const MIXED: bool> Loop<B, C, I, OUT, MIXED> {
    const RUN: fn(Run<'_, B, C, OUT, MIXED>, Option<DType>) -> Added = {
        let mut slot = 0;
        while slot < MAX_SLOTS {
            assert!(B::READS[slot] || !B::WRITES[slot], "a loop reads the arrays that it writes");
            slot += 1;
        }
        if MIXED || matches!(I::SIMD, SimdLevel::Avx512) {
            Self::by_sums::<BLOCK>()
        } else {
            Self::by_sums::<{ BLOCK / 2 }>()
        }
    };

    const fn by_sums<const W: usize>() -> fn(Run<'_, B, C, OUT, MIXED>, Option<DType>) -> Added {
        match B::SUMS {
            0 => Self::without_sums::<W>,
            1 => Self::with_sums::<1, W>,
            2 => Self::with_sums::<2, W>,
            3 | 4 => Self::with_sums::<4, W>,
            _ => Self::with_sums::<MAX_SUMS, W>,
        }
    }

    /// True if a second loop over each block reduces: from inputs (`DEFERRED`), or by repeating stateless arithmetic
    /// (`REPEATED`). LLVM vectorizes a loop for its widest type: `f64` contributions would halve the vector width of
    /// `f32` arithmetic.
    const DEFERRED: bool = OUT != DROP && B::ARRAYS > 0 && B::DEFERRABLE && size_of::<C>() < size_of::<f64>();
    const REPEATED: bool = OUT != DROP && B::ARRAYS == 0;

    #[inline(always)]
    fn without_sums<const W: usize>(run: Run<'_, B, C, OUT, MIXED>, dtype: Option<DType>) -> Added {
        Self::over::<0, W>(run, dtype, &mut Lanes::new());
        NOTHING
    }

    #[inline(always)]
    fn with_sums<const N: usize, const W: usize>(run: Run<'_, B, C, OUT, MIXED>, dtype: Option<DType>) -> Added {
        let mut lanes = Lanes::<N>::new();
        Self::over::<N, W>(run, dtype, &mut lanes);
        lanes.total(B::SUMS, B::COUNTS)
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "zip and iterators of arrays are calls in builds without LTO")]
    fn over<const N: usize, const W: usize>(
        Run(kernel, arrays): Run<'_, B, C, OUT, MIXED>,
        dtype: Option<DType>,
        lanes: &mut Lanes<N>,
    ) {
        let (kernel, len, prefetch_address) = (*kernel, arrays.len(), arrays.prefetch_address());
        let from = arrays.from::<C, MIXED>();
        let to = if OUT == DROP { Array::NULL } else { arrays.to::<C, MIXED>() };
        let p = match OUT {
            ADD => to,
            _ if B::READS_PARAMS => arrays.p(),
            _ => Array::NULL,
        };
        let mut slots = [Array::<C, MIXED>::NULL; MAX_SLOTS];
        for j in 0..B::ARRAYS {
            if B::READS[j] {
                slots[j] = arrays.slot(j);
            }
        }
        let n = len / W;
        // A loop over few blocks ends before its prefetches arrive.
        let prefetches = OUT != STORE && len * size_of::<C>() > DISTANCE;
        let only_reads = const { OUT == DROP && !any(B::WRITES) };
        let mut ring = [[C::zero(); W]; LAG + 1];
        let rounds = const { MIXED && OUT == ADD };
        let lag = if rounds && !to.is_native() { LAG } else { 0 };
        // Lanes of blocks stay in registers; the tail indexes its lanes with a variable.
        let mut of_blocks = Lanes::<N>::new();
        // SAFETY: `Arrays` guarantees that its arrays are alive and have `len` elements, and that no array that is
        // written overlaps another, except that `to` may be `from`: each block is read from all arrays before it is
        // written. The blocks `b` and `b - lag` accessed here are below `n`, so that they end within `len`; `i` is
        // below `len`. `dispatch_chain` checked that the CPU has the SIMD level.
        unsafe {
            for b in 0..n + lag {
                if !rounds || b < n {
                    if prefetches {
                        if OUT == ADD {
                            from.prefetch_at::<W>(b, prefetch_address);
                        } else {
                            from.prefetch_after::<W>(b, only_reads);
                        }
                        if OUT == ADD || B::READS_PARAMS {
                            p.prefetch_after::<W>(b, only_reads);
                        }
                        for j in 0..B::ARRAYS {
                            if B::READS[j] {
                                slots[j].prefetch_after::<W>(b, only_reads);
                            }
                        }
                    }
                    let u = from.load::<I, W>(b);
                    let here = if OUT == ADD || B::READS_PARAMS { p.load::<I, W>(b) } else { [C::zero(); W] };
                    let mut rows = [[C::zero(); W]; MAX_SLOTS];
                    for j in 0..B::ARRAYS {
                        if B::READS[j] {
                            rows[j] = slots[j].load::<I, W>(b);
                        }
                    }
                    let next = Self::block(&kernel, dtype, &u, &here, &mut rows, &mut of_blocks);
                    // Keeps LLVM from vectorizing short bodies across blocks, with gathers, and from turning a select
                    // of the old or new value into a masked store, ten times slower with AVX2 on AMD processors.
                    compiler_fence(Ordering::SeqCst);
                    for j in 0..B::ARRAYS {
                        if B::WRITES[j] {
                            slots[j].store::<I, W>(b, &rows[j]);
                        }
                    }
                    if rounds {
                        ring[b % (LAG + 1)] = next;
                    } else if OUT != DROP {
                        to.store::<I, W>(b, &next);
                    }
                }
                if rounds && b >= lag {
                    to.add::<I, W>(b - lag, &ring[(b - lag) % (LAG + 1)]);
                }
            }
            *lanes = of_blocks;
            for i in n * W..len {
                let i = hidden(i).min(len - 1);
                let here = if OUT == ADD || B::READS_PARAMS { p.get::<I>(i) } else { C::zero() };
                let mut own = [C::zero(); MAX_SLOTS];
                for j in 0..B::ARRAYS {
                    if B::READS[j] {
                        own[j] = slots[j].get::<I>(i);
                    }
                }
                let mut terms = [Contribution::default(); MAX_SUMS];
                let next = B::apply(&kernel, (dtype, false), &mut own[..B::ARRAYS], from.get::<I>(i), here, &mut terms);
                for j in 0..B::ARRAYS {
                    if B::WRITES[j] {
                        slots[j].set::<I>(i, own[j]);
                    }
                }
                match OUT {
                    ADD => to.add_one::<I>(i, next),
                    STORE => to.set::<I>(i, next),
                    _ => {}
                }
                if const { B::SUMS > 0 } {
                    lanes.add(B::SUMS, B::COUNTS, i % LANES, &terms);
                }
            }
        }
    }

    /// Computes a block; returns its updates, or its new parameters in a native loop in mode `ADD`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "zip and iterators of arrays are calls in builds without LTO")]
    fn block<const N: usize, const W: usize>(
        kernel: &B::Kernel,
        dtype: Option<DType>,
        u: &[C; W],
        p: &[C; W],
        rows: &mut [[C; W]; MAX_SLOTS],
        lanes: &mut Lanes<N>,
    ) -> [C; W] {
        let mut next = [C::zero(); W];
        if const { B::SUMS == 0 || Self::REPEATED } {
            for i in 0..W {
                next[i] = Self::element(kernel, dtype, u[i], p[i], i, rows, &mut [Contribution::default(); MAX_SUMS]);
            }
        }
        if const { B::SUMS == 0 } {
            return next;
        }
        let was = if Self::DEFERRED { *rows } else { [[C::zero(); W]; MAX_SLOTS] };
        for half in 0..W / LANES {
            let mut sums = Lanes::<N>::new();
            let mut inputs = [[C::zero(); LANES]; 2];
            for lane in 0..LANES {
                let (i, mut terms) = (half * LANES + lane, [Contribution::default(); MAX_SUMS]);
                let done = Self::element(kernel, dtype, u[i], p[i], i, rows, &mut terms);
                if !Self::REPEATED {
                    next[i] = done;
                }
                if Self::DEFERRED {
                    [inputs[0][lane], inputs[1][lane]] = reducing_inputs(B::SUMS, &terms);
                } else {
                    sums.set(B::SUMS, B::COUNTS, lane, &terms);
                }
            }
            if Self::DEFERRED {
                for lane in 0..LANES {
                    let inputs = Some((inputs[0][lane], inputs[1][lane]));
                    let mut terms = [Contribution { inputs, ..Contribution::default() }; MAX_SUMS];
                    let mut own = [C::zero(); MAX_SLOTS];
                    for j in 0..B::ARRAYS {
                        own[j] = was[j][half * LANES + lane];
                    }
                    B::apply(kernel, (dtype, true), &mut own[..B::ARRAYS], C::zero(), C::zero(), &mut terms);
                    sums.set(B::SUMS, B::COUNTS, lane, &terms);
                }
            }
            lanes.add_block::<I>(B::SUMS, B::COUNTS, &sums);
        }
        next
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, clippy::too_many_arguments, reason = "as above")]
    fn element<const W: usize>(
        kernel: &B::Kernel,
        dtype: Option<DType>,
        u: C,
        p: C,
        i: usize,
        rows: &mut [[C; W]; MAX_SLOTS],
        terms: &mut [Contribution<C>; MAX_SUMS],
    ) -> C {
        let mut own = [C::zero(); MAX_SLOTS];
        for j in 0..B::ARRAYS {
            own[j] = rows[j][i];
        }
        let next = B::apply(kernel, (dtype, false), &mut own[..B::ARRAYS], u, p, terms);
        for j in 0..B::ARRAYS {
            if B::WRITES[j] {
                rows[j][i] = own[j];
            }
        }
        if OUT == ADD && !MIXED { add_update(p, next) } else { next }
    }
}

/// Returns the inputs of the reducing part.
#[inline(always)]
fn reducing_inputs<C: Real>(sums: usize, terms: &[Contribution<C>; MAX_SUMS]) -> [C; 2] {
    let mut i = 0;
    while i < sums {
        if let Some((u, p)) = terms[i].inputs {
            return [u, p];
        }
        i += 1;
    }
    [C::zero(); 2]
}
