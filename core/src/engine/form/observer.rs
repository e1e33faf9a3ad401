//! Observers of updates.

use super::super::simd::{Job, dispatch_chain};
use super::super::{Contribution, InitContext, Outcome, PassRange, PassStructure, StageChunk, StepContext, Sums, Then};
use super::{Form, Part};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;

/// The form of an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub enum Observes {}

/// A part that observes the updates and changes nothing.
///
/// Its reductions over the updates are known at the end of the step; their number may differ between values of the
/// type. [`monitor`] is the only one; users write its measures.
///
/// # Cost
///
/// No additional pass: it runs while the updates are in L1. A chain with an observer runs member by member on tiles
/// instead of as one loop, in which the observer would see each element only after the last member.
///
/// [`monitor`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.monitor.html
pub trait Observer: Part<Form = Observes> {
    /// The values kept between steps.
    type Memory: State;

    /// Returns the memory before the first step.
    ///
    /// # Errors
    ///
    /// If it cannot observe these parameters.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// Returns the number of reductions.
    fn sums(&self) -> usize;

    /// Returns true if it also observes the parameters, as of the start of the step.
    fn reads_params(&self) -> bool {
        false
    }

    /// Adds its readings of a slice of a leaf's updates to `sums`.
    ///
    /// `p` are the parameters of the slice, or empty if it does not [read](Observer::reads_params) them. Slices are the
    /// same for any number of threads and any SIMD level. Write `#[inline(always)]` on it.
    fn observe<C: Real>(&self, u: &[C], p: &[C], sums: &mut [f64]);

    /// Ends a step: stores the readings.
    fn finish(&self, memory: &mut Self::Memory, sums: Sums<'_>);
}

struct Observe<'a, P, C> {
    part: &'a P,
    u: &'a [C],
    p: &'a [C],
    sums: &'a mut [f64],
}

impl<P: Observer, C: Real> Job for Observe<'_, P, C> {
    type Output = ();
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) {
        self.part.observe(self.u, self.p, self.sums);
    }
}

impl<P: Observer> Form<P> for Observes {
    type Needs = Nothing;
    type State = P::Memory;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: PassStructure = PassStructure::elementwise(false, false);
    const FUSES: bool = false;
    const FUSES_ALWAYS: bool = false;
    const ALWAYS_EMITS: bool = true;
    const ROWS: bool = true;
    const SLOTS: usize = 0;

    fn shape(part: &P) -> PassStructure {
        PassStructure::elementwise(false, part.reads_params()).adding(part.sums())
    }

    fn validate(_: &P) -> Result<()> {
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<P::Memory> {
        part.start(at)
    }

    fn begin(_: &P, _: &mut P::Memory, _: &StepContext<'_>) {}

    fn finish(part: &P, state: &mut P::Memory, (): (), sums: Sums<'_>, _: &mut Outcome) {
        part.finish(state, sums);
    }

    fn prepare_chunk<C: Real>(part: &P, _: &P::Memory, (): &(), at: StageChunk, then: &mut Then<'_, C>) {
        // A pass that repeats earlier work must not observe the updates again.
        if at.place.at != at.range.to {
            return then(&mut |_| {});
        }
        then(&mut |tile| {
            if const { C::RECORDS } {
                return C::refuse("it reads chunks of updates, not single elements");
            }
            let (simd, all_sums) = (tile.simd, core::mem::take(&mut tile.sums));
            let sums = &mut all_sums[at.place.sum..][..part.sums()];
            let p = if part.reads_params() { tile.p } else { &[] };
            dispatch_chain(simd, Observe { part, u: tile.input(), p, sums });
            tile.sums = all_sums;
        });
    }

    fn kernel<C: Real>(_: &P, _: &P::Memory, (): &(), _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), _: usize, _: PassRange, _: &mut [C], u: C, _: C, _: &mut [Contribution<C>]) -> C {
        u
    }

    fn state_bytes(_: &P, _: &P::Memory, _: usize, _: usize, _: PassRange) -> usize {
        0
    }
}
