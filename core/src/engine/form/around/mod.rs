//! Wrappers: transformations around an inner one.

mod arithmetic;
mod emission;
mod reducing;
mod run;
mod tile;

use crate::select::Mask;
use core::marker::PhantomData;

pub use arithmetic::{Arithmetic, AroundWithArithmetic, Elements, NoArithmetic, WithArithmetic};
pub use reducing::{AroundWithReductions, Reducing, ReducingPasses, WithReductions};

use super::super::{InitContext, Outcome, Quantization, Stage, StepContext};
use super::Part;
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;

/// The form of a [`Wrapper`].
///
/// `Inputs` are the inputs of a step that the wrapper needs besides those of the inner transformation. `Loops` selects
/// [`Arithmetic`], see [`AroundWithArithmetic`], or [`Reducing`], see [`AroundWithReductions`].
pub struct Around<Inputs = Nothing, Loops = NoArithmetic>(PhantomData<fn() -> (Inputs, Loops)>);

/// The action of a wrapper in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Runs its own arithmetic and the inner transformation.
    Run,
    /// Runs the inner transformation alone; the wrapper's own arrays stay untouched.
    InnerOnly,
    /// Runs its own arithmetic alone, on the gradients.
    ArithmeticOnly,
    /// Runs only its arithmetic before the inner transformation, to accumulate. Emits nothing; the update is zero.
    Hold,
    /// Passes the gradients through.
    Pass,
    /// Discards the gradients; the update is zero.
    Skip,
}

/// The steps and leaves on which the inner transformation of a wrapper runs.
///
/// ```
/// use gradchain::part::Runs;
///
/// // The wrapper sees a sum over all gradients, and may discard a step.
/// const RUNS: Runs = Runs::DECIDED.reduces_gradients(true).holds_back(true);
/// # let _ = RUNS;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    pub(super) reduces_gradients: bool,
    pub(super) masked: bool,
    pub(super) always: bool,
    pub(super) holds_back: bool,
    pub(super) inner_only: bool,
    pub(super) estimates: bool,
    pub(super) rests: bool,
    pub(super) skips_absent: bool,
    pub(super) windows: bool,
}

impl Runs {
    /// Runs in the steps that [`decide`](Wrapper::decide) selects, on all leaves.
    pub const DECIDED: Runs = Runs {
        reduces_gradients: false,
        masked: false,
        always: false,
        holds_back: false,
        inner_only: false,
        estimates: false,
        rests: false,
        skips_absent: false,
        windows: false,
    };

    /// Runs in every step. The result of [`decide`](Wrapper::decide) is ignored, and no loops are compiled for other
    /// steps.
    pub const ALWAYS: Runs = Runs { always: true, ..Runs::DECIDED };

    /// Sets whether a reduction over all gradients, which takes a pass, precedes [`decide`](Wrapper::decide).
    #[must_use]
    pub const fn reduces_gradients(self, reduces_gradients: bool) -> Runs {
        Runs { reduces_gradients, ..self }
    }

    /// Restricts the inner transformation to the leaves of the [`mask`](Wrapper::mask).
    #[must_use]
    pub const fn masked(self) -> Runs {
        Runs { masked: true, ..self }
    }

    /// Sets whether [`decide`](Wrapper::decide) may return [`Hold`](Decision::Hold) or [`Skip`](Decision::Skip). If
    /// such a wrapper acts on some leaves only, later parts count updates leaf by leaf.
    #[must_use]
    pub const fn holds_back(self, holds_back: bool) -> Runs {
        Runs { holds_back, ..self }
    }

    /// Adds loops for the inner transformation alone.
    ///
    /// Steps in which [`decide`](Wrapper::decide) returns [`InnerOnly`](Decision::InnerOnly) are then as fast as
    /// without the wrapper. It has no effect on a wrapper that has a [mask](Runs::masked), reduces, or passes
    /// other parameters to the inner transformation.
    #[must_use]
    pub const fn inner_only(self) -> Runs {
        Runs { inner_only: true, ..self }
    }

    /// Declares that the inner transformation only estimates a value for the wrapper's update. The wrapper runs even if
    /// the inner transformation emits nothing.
    #[doc(hidden)]
    pub const fn estimates(self) -> Runs {
        Runs { estimates: true, ..self }
    }

    /// Declares that leaves may rest, so that the inner transformation counts updates by leaf.
    pub(crate) const fn rests(self) -> Runs {
        Runs { rests: true, ..self.masked() }
    }

    /// Declares that leaves without a gradient rest.
    pub(crate) const fn skips_absent(self) -> Runs {
        Runs { skips_absent: true, ..self.rests() }
    }

    /// Declares windows of steps, in which a missing gradient counts as zero.
    pub(crate) const fn windows(self) -> Runs {
        Runs { windows: true, ..self }
    }
}

/// The treatment of leaves outside of the mask of a wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutsideMask {
    /// Their gradients pass through.
    Pass,
    /// Their updates are zero; their parameters stay bitwise identical.
    Zero,
}

/// A part that holds another transformation. [`wrapper!`](crate::wrapper!) writes it.
pub trait Holds: Part {
    /// The inner transformation.
    type Inner: Stage;
    /// The name of the state of the inner transformation in the schema.
    const STATE: &'static str = "inner";

    /// The key of the inner transformation in configs.
    const KEY: &'static str;

    /// Returns the inner transformation.
    fn inner(&self) -> &Self::Inner;
}

/// A part around an inner transformation. It selects the leaves and steps on which the inner transformation runs.
///
/// With [`Arithmetic`] it transforms each element before and after. The inner transformation has its own state, checks,
/// checkpoint entries and plan, and fuses with the arithmetic of the wrapper into one loop.
///
/// # Example
///
/// Runs the inner transformation in every second step only:
///
/// ```
/// use gradchain::part::{Around, Decision, StepContext, Wrapper};
/// use gradchain::prelude::*;
/// use gradchain::state::{Count, State};
///
/// gradchain::wrapper! {
///     /// Runs the inner transformation in every second step.
///     pub EverySecond<T> as "every_second" around inner: Around {}
/// }
///
/// #[derive(State, Clone, Debug, Default)]
/// pub struct Steps { steps: Count }
///
/// impl<T: GradientTransformation> Wrapper for EverySecond<T> {
///     type Memory = Steps;
///
///     fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
///         memory.steps.increment();
///         if memory.steps.get() % 2 == 0 { Decision::Run } else { Decision::Skip }
///     }
/// }
///
/// let optimizer = EverySecond::with(sgd(1.0));
/// let mut params = vec![0.0_f32];
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..3 {
///     optimizer.step(&mut params, &vec![1.0_f32], &mut state)?;
/// }
/// assert_eq!(params, [-1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// The cost of the inner transformation, and a pass over the gradients if it [reduces](Runs::reduces_gradients) them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has a wrapper form but does not implement `Wrapper`",
    note = "implement `Wrapper` for `{Self}`; `docs/own-wrapper.md` has an example"
)]
pub trait Wrapper: Holds {
    /// The state besides the state arrays and the inner state.
    type Memory: State + Default;

    /// The steps and leaves of the inner transformation, and their requirements.
    const RUNS: Runs = Runs::DECIDED;

    /// Returns the 8-bit arrays of the inner state, if any.
    fn quantization<'a>(&self, memory: &'a Self::Memory) -> Option<Quantization<'a>> {
        let _ = memory;
        None
    }

    /// Returns the inner transformation of this step; by default the same in every step.
    fn current_inner<'a>(&'a self, memory: &'a Self::Memory) -> &'a Self::Inner {
        let _ = memory;
        self.inner()
    }

    /// Returns the mask, if the wrapper [has one](Runs::masked). The inner transformation has state for these
    /// only.
    fn mask(&self) -> Option<&Mask> {
        None
    }

    /// Returns the leaves that rest in this step, here or in an outer wrapper, if any may.
    fn resting<'a>(&self, memory: &'a Self::Memory) -> &'a [bool] {
        let _ = memory;
        &[]
    }

    /// Returns the treatment of leaves outside of the mask.
    fn outside_mask(&self) -> OutsideMask {
        OutsideMask::Zero
    }

    /// Initializes the memory if its default is not the initial value, before the inner state is made.
    ///
    /// # Errors
    ///
    /// If the wrapper does not support the parameters.
    fn start(&self, memory: &mut Self::Memory, at: &InitContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// Checks a step before anything is changed.
    ///
    /// # Errors
    ///
    /// If the step is invalid.
    fn check(&self, memory: &Self::Memory, at: &StepContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// Returns the contribution of an element to the sum over all gradients, if the wrapper
    /// [reduces](Runs::reduces_gradients) them. Write `#[inline(always)]` on it.
    fn gradient_term<C: Real>(u: C) -> C::Wide {
        let _ = u;
        <C::Wide as Real>::of(0.0)
    }

    /// Decides the action of this step. `gradient_sum` is the sum of [`gradient_term`](Wrapper::gradient_term), or 0 if
    /// the wrapper does not reduce the gradients.
    ///
    /// It runs before the inner transformation, which may emit nothing. Count gradients here; count updates or steps of
    /// the inner transformation in [`finish`](Wrapper::finish).
    ///
    /// Values for the rest of the step go into fields of the memory that are not part of the state.
    fn decide(&self, memory: &mut Self::Memory, at: &StepContext<'_>, gradient_sum: f64) -> Decision {
        let _ = (memory, at, gradient_sum);
        Decision::Run
    }

    /// Returns the context of the inner transformation in a step that [`Run`](Decision::Run)s, usually the given one.
    fn inner_context<'a>(&self, memory: &'a Self::Memory, at: &StepContext<'a>) -> StepContext<'a> {
        let _ = memory;
        *at
    }

    /// Ends a step and counts it. `outcome` is that of the inner transformation; `None` if it did not run or emitted
    /// nothing.
    ///
    /// In a step without inner updates the arithmetic after the inner transformation has not run, so do not count
    /// updates then.
    fn finish(
        &self,
        memory: &mut Self::Memory,
        decision: Decision,
        outcome: Option<Outcome>,
        inner: &mut <Self::Inner as Stage>::State,
    ) {
        let _ = (memory, decision, outcome, inner);
    }
}
