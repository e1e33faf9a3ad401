//! Looking on.

use super::super::isa::{Job, dispatch_chain};
use super::super::{InitContext, Outcome, PieceAt, Shape, Span, StepContext, Sums, Term, Then};
use super::{Form, Part};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;

/// The form of an [`Onlooker`].
#[derive(Clone, Copy, Debug)]
pub enum LooksOn {}

/// A part that looks at the updates that pass through and changes nothing. What it adds up over them is known at the
/// end of the step; how many sums there are may differ from value to value.
///
/// For [`monitor`](crate::transform::monitor()), whose measures are the observers that users write.
///
/// # Cost
///
/// No pass of its own: it looks while the updates are in the first-level cache. A chain with such a part in it is run
/// member by member on stretches instead of as one loop, in which the part would see what the last member makes of an
/// element.
pub trait Onlooker: Part<Form = LooksOn> {
    /// What is remembered between steps.
    type Memory: State;

    /// The memory before the first step.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that it can look at.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// How many sums there are.
    fn sums(&self) -> usize;

    /// Whether it looks at the parameters too, as they are before the step.
    fn reads_params(&self) -> bool {
        false
    }

    /// Adds what is seen in a stretch of a leaf's updates to the sums; `p` are the parameters that they belong to, or
    /// none if it does not [read](Onlooker::reads_params) them. Write `#[inline(always)]` on it. Stretches are the same
    /// for any number of threads and any instruction set.
    fn look<C: Real>(&self, u: &[C], p: &[C], sums: &mut [f64]);

    /// Ends a step: writes down what was seen.
    fn finish(&self, memory: &mut Self::Memory, sums: Sums<'_>);
}

struct Look<'a, P, C> {
    part: &'a P,
    u: &'a [C],
    p: &'a [C],
    sums: &'a mut [f64],
}

impl<P: Onlooker, C: Real> Job for Look<'_, P, C> {
    type Output = ();
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) {
        self.part.look(self.u, self.p, self.sums);
    }
}

impl<P: Onlooker> Form<P> for LooksOn {
    type Needs = Nothing;
    type State = P::Memory;
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = false;
    const FUSES_ALWAYS: bool = false;
    const ROWS: bool = true;
    const SLOTS: usize = 0;

    fn shape(part: &P) -> Shape {
        Shape::elementwise(false, part.reads_params()).adding(part.sums())
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

    fn in_piece<C: Real>(part: &P, _: &P::Memory, (): &(), at: PieceAt, then: &mut Then<'_, C>) {
        // A later pass that computes the same updates again must not look at them again.
        if at.place.at != at.span.to {
            return then(&mut |_| {});
        }
        then(&mut |tile| {
            if const { C::RECORDS } {
                return C::refuse("it looks at stretches of updates, not at one");
            }
            let (isa, all_sums) = (tile.isa, core::mem::take(&mut tile.sums));
            let sums = &mut all_sums[at.place.sum..][..part.sums()];
            let p = if part.reads_params() { tile.p } else { &[] };
            dispatch_chain(isa, Look { part, u: tile.input(), p, sums });
            tile.sums = all_sums;
        });
    }

    fn kernel<C: Real>(_: &P, _: &P::Memory, (): &(), _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), _: usize, _: Span, _: &mut [C], u: C, _: C, _: &mut [Term<C>]) -> C {
        u
    }

    fn state_bytes(_: &P, _: &P::Memory, _: usize, _: usize, _: Span) -> usize {
        0
    }
}
