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
/// # Example
///
/// A histogram of sizes:
///
/// ```
/// use gradchain::Real;
/// use gradchain::part::{InitContext, LooksOn, Onlooker, Part, Sums};
/// use gradchain::prelude::*;
/// use gradchain::state::{Count, State};
///
/// /// Counts the elements of each power of ten from 1 on.
/// #[derive(Clone, Debug)]
/// struct Histogram { bins: usize }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Counts { bins: Vec<Count> }
///
/// impl Part for Histogram {
///     const NAME: &'static str = "histogram";
///     type Form = LooksOn;
/// }
///
/// impl Onlooker for Histogram {
///     type Memory = Counts;
///
///     fn start(&self, _: &InitContext<'_>) -> gradchain::Result<Counts> {
///         Ok(Counts { bins: vec![Count::default(); self.bins] })
///     }
///
///     fn sums(&self) -> usize {
///         self.bins
///     }
///
///     fn look<C: Real>(&self, u: &[C], _: &[C], sums: &mut [f64]) {
///         for size in u.iter().map(|u| u.abs().as_f64()).filter(|size| *size >= 1.0) {
///             if let Some(sum) = sums.get_mut(size.log10() as usize) {
///                 *sum += 1.0;
///             }
///         }
///     }
///
///     fn finish(&self, memory: &mut Counts, sums: Sums<'_>) {
///         for (i, bin) in memory.bins.iter_mut().enumerate() {
///             bin.increment_by(sums.total(i) as u64);
///         }
///     }
/// }
///
/// let optimizer = chain((Histogram { bins: 3 }, sgd(1.0)));
/// let mut params = vec![0.0_f32; 4];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![2.0_f32, -3.0, 40.0, 0.5], &mut state)?;
/// assert_eq!(state.0.bins.iter().map(|bin| bin.get()).collect::<Vec<_>>(), [2, 1, 0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// No pass of its own: it looks while the updates are in the first-level cache. A chain with such a part in it is run
/// member by member on stretches instead of as one loop, in which the part would see what the last member makes of an
/// element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `LooksOn` and does not implement `Onlooker`",
    note = "`impl Onlooker for {Self}` says what the part does; `docs/own-onlooker.md` has an example"
)]
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
