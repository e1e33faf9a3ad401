//! Arithmetic on one element, with memory of any kind beside the state arrays.

use core::marker::PhantomData;

use super::super::fused::with_slices;
use super::super::simd::{Job, dispatch_chain};
use super::super::sums::MAX_SUMS;
use super::super::{
    Contribution, Emission, InitContext, Outcome, PassRange, PassStructure, Slot, SlotAccess, SlotAccesses, SlotList,
    StageChunk, StepContext, Sums, Then, Tile, fused,
};
use super::rule::{SlotSlices, checked_slots, keeps_zeros};
use super::state::{Arrays, of_part};
use super::{Form, Part, PartState, SlotArray};
use crate::element::{DType, Real};
use crate::error::Result;
use crate::needs::{Needs, Nothing};
use crate::state::State;

/// The form of a [`RuleWithMemory`]. `Inputs` are the inputs of a step besides gradients.
pub struct OneElementWithMemory<Inputs = Nothing>(PhantomData<fn() -> Inputs>);

/// A [`Rule`](super::Rule) with memory of any kind.
///
/// It has memory in place of a step count. Scalars may differ between leaves, `apply` may count elements, `finish` ends
/// a step, and `apply_apart` transforms slices of leaves for which one element is not
/// enough. Only parts of this crate use it; other parts that need memory implement [`TwoPasses`](super::TwoPasses)
/// without a second pass.
pub trait RuleWithMemory: Part {
    /// The state arrays, by name, as many as [`Slots`](RuleWithMemory::Slots) has; at most 8.
    const SLOTS: &'static [Slot] = &[];
    /// True if `apply` reads the parameter.
    const READS_PARAMS: bool = false;
    /// True if `apply` depends on the leaf's dtype besides its compute type; see [`typed`](RuleWithMemory::typed).
    const TYPED: bool = false;
    /// The number of counts that `apply` keeps.
    const COUNTS: usize = 0;
    /// True if all updates are zero, for any input: then they are not even written.
    const ZERO: bool = false;
    /// The values kept between steps besides the state arrays.
    type Memory: State;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The values of a leaf that are computed once per step.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Adjusts a state array to the arguments of the part, if they set its initial value or dtype.
    fn slot(&self, slot: Slot) -> Slot {
        slot
    }

    /// Returns the memory before the first step.
    ///
    /// # Errors
    ///
    /// If the part cannot work on these parameters.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// Starts a step: updates step counts and makes the decisions of the step.
    fn begin(&self, memory: &mut Self::Memory, at: &StepContext<'_>) {
        let _ = (memory, at);
    }

    /// Computes, in `f64`, the values that all elements of a leaf share, and rounds them once with [`Real::of`].
    fn scalars<C: Real>(&self, memory: &Self::Memory, leaf: usize) -> Self::Scalars<C>;

    /// Transforms the update `u` of one element with parameter `p`, and adds to the counts. Write `#[inline(always)]`
    /// on it.
    fn apply<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C, counts: &mut [u32]) -> C;

    /// Returns the scalars for leaves of one dtype, if `apply` [depends](RuleWithMemory::TYPED) on it. They must equal
    /// `k`, but are written so that the compiler drops the work for other dtypes. Write `#[inline(always)]` on it.
    fn typed<C: Real>(k: Self::Scalars<C>, dtype: DType) -> Self::Scalars<C> {
        let _ = dtype;
        k
    }

    /// True if leaves may use [`apply_slice`](RuleWithMemory::apply_slice). Otherwise
    /// [`uses_slices`](RuleWithMemory::uses_slices) is not called, and no loop is instantiated for them.
    const USES_SLICES: bool = false;

    /// Returns true if a leaf uses [`apply_slice`](RuleWithMemory::apply_slice) in this step. It is for arithmetic that
    /// depends on the position of an element, or would keep the loop of the whole chain from being vectorized.
    fn uses_slices(&self, memory: &Self::Memory, leaf: usize) -> bool {
        let _ = (memory, leaf);
        false
    }

    /// Transforms a slice of a leaf that [`uses_slices`](RuleWithMemory::uses_slices), with the slices of its state
    /// arrays. Counts nothing. Write `#[inline(always)]` on it.
    fn apply_slice<C: Real>(
        &self,
        memory: &Self::Memory,
        k: Self::Scalars<C>,
        slots: <Self::Slots<C> as SlotSlices<C>>::Slices<'_>,
        slice: LeafSlice<'_, C>,
    ) {
        let _ = (memory, k, slots, slice);
    }

    /// An additional state array for leaves that [need](RuleWithMemory::needs_extra_slot) it.
    ///
    /// It starts as a copy of the parameters. Such leaves [use slices](RuleWithMemory::uses_slices) and find it in
    /// [`LeafSlice::extra`]. If the memory has parameters for evaluation, this array has them for these leaves.
    const EXTRA_SLOT: Option<Slot> = None;

    /// Returns true if a leaf needs the array [`EXTRA_SLOT`](RuleWithMemory::EXTRA_SLOT).
    fn needs_extra_slot(&self, at: &InitContext<'_>, leaf: usize) -> bool {
        let _ = (at, leaf);
        false
    }

    /// Returns the bytes of memory that a step reads for a leaf, besides the state arrays.
    /// [`plan`](crate::GradientTransformation::plan) counts them.
    fn memory_bytes(&self, memory: &Self::Memory, leaf: usize) -> usize {
        let _ = (memory, leaf);
        0
    }

    /// Ends a step: stores the counts.
    fn finish(&self, memory: &mut Self::Memory, counts: Sums<'_>) {
        let _ = (memory, counts);
    }
}

/// A slice of one leaf's updates with its parameters.
#[derive(Debug)]
#[non_exhaustive]
pub struct LeafSlice<'a, C> {
    /// The index of the leaf.
    pub leaf: usize,
    /// The index, in memory order, of the slice's first element.
    pub start: usize,
    /// The updates, to rewrite.
    pub u: &'a mut [C],
    /// The parameters, if the rule reads them.
    pub p: &'a [C],
    /// The array [`EXTRA_SLOT`](RuleWithMemory::EXTRA_SLOT), if the leaf has it; else empty.
    pub extra: &'a mut [C],
}

struct ApplySlice<'a, R: RuleWithMemory, C: Real> {
    rule: &'a R,
    memory: &'a R::Memory,
    k: R::Scalars<C>,
    slots: <R::Slots<C> as SlotSlices<C>>::Slices<'a>,
    slice: LeafSlice<'a, C>,
}

impl<R: RuleWithMemory, C: Real> Job for ApplySlice<'_, R, C> {
    type Output = ();
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) {
        self.rule.apply_slice(self.memory, self.k, self.slots, self.slice);
    }
}

fn run_slice<R: RuleWithMemory, C: Real>(
    rule: &R,
    state: &PartState<R::Memory>,
    list: &SlotList<'_>,
    tile: &mut Tile<'_, C>,
) {
    if const { C::RECORDS } {
        return C::refuse("its arithmetic depends on the index of the element");
    }
    tile.reads(list);
    tile.prefetch_share();
    tile.materialize();
    let (leaf, start, n, simd) = (tile.leaf, tile.start, tile.u.len(), tile.simd);
    let (memory, k, scratch) = (&state.memory, rule.scalars(&state.memory, leaf), core::mem::take(&mut tile.scratch));
    with_slices(list, start, n, (simd, scratch), &mut |mut slots| {
        let extra = match state.arrays.has_extra_slot(leaf) {
            true => core::mem::take(&mut slots[const { R::SLOTS.len() }]),
            false => Default::default(),
        };
        let slice = LeafSlice { leaf, start, u: &mut *tile.u, p: tile.p, extra };
        dispatch_chain(simd, ApplySlice { rule, memory, k, slots: R::Slots::<C>::slices(slots), slice });
    });
    tile.scratch = scratch;
}

impl<R: RuleWithMemory + Part<Form = OneElementWithMemory<A>>, A: Needs> Form<R> for OneElementWithMemory<A> {
    type Needs = A;
    type State = PartState<R::Memory>;
    type Run = ();
    type Kernel<C: Real> = R::Scalars<C>;

    const SHAPE: PassStructure =
        PassStructure { typed: R::TYPED, ..PassStructure::elementwise(!R::SLOTS.is_empty(), R::READS_PARAMS) }
            .counting(R::COUNTS);
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = !R::USES_SLICES;
    const ALWAYS_EMITS: bool = !R::ZERO;
    const ROWS: bool = true;
    const SLOTS: usize = checked_slots(R::SLOTS, <R::Slots<f32> as SlotArray<f32>>::LEN);
    const SLOT_ACCESSES: SlotAccesses = SlotAccess::of(1, 1).of_all();

    fn validate(_: &R) -> Result<()> {
        const { checked_slots(R::SLOTS, <R::Slots<f32> as SlotArray<f32>>::LEN) };
        Ok(())
    }

    fn init_state(rule: &R, at: &InitContext<'_>) -> Result<Self::State> {
        let mut arrays = Arrays::new(R::SLOTS, at, &|slot| of_part(rule, rule.slot(slot)))?;
        if let Some(slot) = R::EXTRA_SLOT {
            let needs: Vec<bool> =
                (0..at.active.len()).map(|leaf| at.active[leaf] && rule.needs_extra_slot(at, leaf)).collect();
            arrays = arrays.with_extra_slot(slot, at, &needs)?;
        }
        Ok(PartState { memory: rule.start(at)?, arrays })
    }

    fn begin(rule: &R, state: &mut Self::State, at: &StepContext<'_>) {
        rule.begin(&mut state.memory, at);
    }

    fn finish(rule: &R, state: &mut Self::State, (): (), sums: Sums<'_>, outcome: &mut Outcome) {
        let memory = &state.memory;
        let mut keeps = (0..sums.structure.len()).map(|leaf| {
            let of_zero =
                |slots: &mut _| R::apply(rule.scalars::<f64>(memory, leaf), slots, 0.0, 0.0, &mut [0; MAX_SUMS]);
            !(R::USES_SLICES && rule.uses_slices(memory, leaf))
                && keeps_zeros::<R::Slots<f64>>(R::READS_PARAMS, of_zero)
        });
        outcome.emitted = !R::ZERO && (outcome.emitted || !keeps.all(|keeps| keeps));
        rule.finish(&mut state.memory, sums);
    }

    #[inline(always)]
    fn emission(_: &R, _: &Self::State, (): &()) -> Emission {
        if R::ZERO { Emission::Zeros(0) } else { Emission::Updates }
    }

    fn prepare_chunk<C: Real>(rule: &R, state: &Self::State, run: &(), at: StageChunk, then: &mut Then<'_, C>) {
        if R::ZERO && R::SLOTS.is_empty() && R::COUNTS == 0 {
            return then(&mut |tile| {
                if at.range.has(at.place.at) {
                    tile.set_zero();
                }
            });
        }
        if const { !R::USES_SLICES } || Self::fuses_now(rule, state, run, at.leaf) {
            return fused(rule, (state, run), at, then);
        }
        let Some(list) = state.arrays.of_leaf(at.leaf).filter(|_| at.range.has(at.place.at)) else {
            return then(&mut |_| {});
        };
        then(&mut |tile| run_slice(rule, state, &list, tile));
    }

    fn fuses_now(rule: &R, state: &Self::State, (): &(), leaf: usize) -> bool {
        !(R::USES_SLICES
            && (R::EXTRA_SLOT.is_some() && state.arrays.has_extra_slot(leaf) || rule.uses_slices(&state.memory, leaf)))
    }

    #[inline]
    fn kernel<C: Real>(rule: &R, state: &Self::State, (): &(), leaf: usize) -> R::Scalars<C> {
        rule.scalars(&state.memory, leaf)
    }

    fn slots<'a>(_: &R, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &R::Scalars<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>],
    ) -> C {
        if !range.has(at) {
            return u;
        }
        let mut counts = [0; MAX_SUMS];
        let k = match range.dtype {
            Some(dtype) if R::TYPED => R::typed(*k, dtype),
            _ => *k,
        };
        let u = R::apply(k, R::Slots::of(slots), u, p, &mut counts[..R::COUNTS]);
        // Repeated arithmetic must not count again.
        if at == range.to {
            for i in 0..R::COUNTS {
                terms[i].count = counts[i];
            }
        }
        u
    }

    fn state_bytes(rule: &R, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        if range.has(at) { state.arrays.bytes(leaf, &|_| 2) + rule.memory_bytes(&state.memory, leaf) } else { 0 }
    }
}
