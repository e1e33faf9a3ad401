//! Around another: wrappers.

mod arithmetic;
mod emission;
mod run;
mod tile;
mod weighing;

use crate::select::Mask;
use core::marker::PhantomData;

pub use arithmetic::{Arithmetic, AroundWithArithmetic, Elements, NoArithmetic, WithArithmetic};
pub use weighing::{AroundWithSums, Weighing, WeighingPasses, WithSums};

use super::super::{Codes, InitContext, Outcome, Stage, StepContext};
use super::Part;
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;

/// The form of a [`Wrapper`].
///
/// `Asks` is what a step must be given for the wrapper itself, besides what is inside needs; `Loops` says whether it does
/// [`Arithmetic`], see [`AroundWithArithmetic`], or is [`Weighing`], see [`AroundWithSums`].
pub struct Around<Asks = Nothing, Loops = NoArithmetic>(PhantomData<fn() -> (Asks, Loops)>);

/// What a wrapper does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Its own arithmetic and what is inside.
    Run,
    /// What is inside alone: the wrapper's own arrays are not touched.
    Inside,
    /// Its own arithmetic alone, on the gradients as they are.
    Alone,
    /// Its own arithmetic before alone, to collect something. The update is zero, and nothing is emitted.
    Hold,
    /// Nothing: the gradients go through as they are.
    Pass,
    /// Nothing: the gradients are thrown away, and the update is zero.
    Skip,
}

/// When what is inside a wrapper runs.
///
/// ```
/// use gradchain::part::Runs;
///
/// // The wrapper sees a sum over all gradients, and may throw a step away.
/// const RUNS: Runs = Runs::DECIDED.looks(true).holds_back(true);
/// # let _ = RUNS;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    pub(super) looks: bool,
    pub(super) chooses: bool,
    pub(super) always: bool,
    pub(super) holds_back: bool,
    pub(super) steps_aside: bool,
    pub(super) estimates: bool,
    pub(super) rests: bool,
    pub(super) skips_absent: bool,
    pub(super) windows: bool,
}

impl Runs {
    /// In steps in which [`decide`](Wrapper::decide) says so, on all leaves.
    pub const DECIDED: Runs = Runs {
        looks: false,
        chooses: false,
        always: false,
        holds_back: false,
        steps_aside: false,
        estimates: false,
        rests: false,
        skips_absent: false,
        windows: false,
    };

    /// In every step: whatever [`decide`](Wrapper::decide) says is [`Run`](Decision::Run), and no loops are compiled
    /// for steps in which it does not.
    pub const ALWAYS: Runs = Runs { always: true, ..Runs::DECIDED };

    /// The same, when the wrapper has looked at all gradients, which takes a pass.
    #[must_use]
    pub const fn looks(self, looks: bool) -> Runs {
        Runs { looks, ..self }
    }

    /// The same, on some leaves only: those of the [`mask`](Wrapper::mask).
    #[must_use]
    pub const fn chooses(self) -> Runs {
        Runs { chooses: true, ..self }
    }

    /// The same, if [`decide`](Wrapper::decide) may say [`Hold`](Decision::Hold) or [`Skip`](Decision::Skip). Where
    /// such a wrapper acts on some leaves only, parts after it count updates leaf by leaf.
    #[must_use]
    pub const fn holds_back(self, holds_back: bool) -> Runs {
        Runs { holds_back, ..self }
    }

    /// The same, with many steps in which [`decide`](Wrapper::decide) says [`Inside`](Decision::Inside): then loops are
    /// compiled for what is inside alone, and these steps are as fast as without the wrapper. Nothing changes for one
    /// that chooses leaves, adds up sums or shows what is inside other parameters.
    #[must_use]
    pub const fn steps_aside(self) -> Runs {
        Runs { steps_aside: true, ..self }
    }

    /// The inner transformation only estimates something for the wrapper, which makes the update of its own: then the
    /// wrapper runs whether or not the inner transformation emits anything.
    pub(crate) const fn estimates(self) -> Runs {
        Runs { estimates: true, ..self }
    }

    /// A leaf may rest in some steps and not in others, so that what is inside counts updates leaf by leaf.
    pub(crate) const fn rests(self) -> Runs {
        Runs { rests: true, ..self.chooses() }
    }

    /// A leaf without a gradient rests.
    pub(crate) const fn skips_absent(self) -> Runs {
        Runs { skips_absent: true, ..self.rests() }
    }

    /// It holds windows over steps, in which a leaf without a gradient counts as one of zeros.
    pub(crate) const fn windows(self) -> Runs {
        Runs { windows: true, ..self }
    }
}

/// What happens to the leaves that a wrapper does not act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elsewhere {
    /// Their gradients go through as they are.
    Pass,
    /// Their updates are zero: their parameters keep their bits.
    Zero,
}

/// A part that holds another transformation. [`wrapper!`](crate::wrapper!) writes it.
pub trait Holds: Part {
    /// What is inside.
    type Inner: Stage;
    /// The name under which the state of what is inside is found.
    const STATE: &'static str = "inner";

    /// What configs call it.
    const KEY: &'static str;

    /// What is inside.
    fn inner(&self) -> &Self::Inner;
}

/// A part that holds another transformation: it says on which leaves that acts and whether it runs in a step. With
/// [`Arithmetic`] it may do something to each element before and after.
///
/// What is inside keeps its own state, is checked, saved, averaged and planned by itself, and fuses with the wrapper's
/// arithmetic into one loop.
///
/// # Example
///
/// Runs what is inside in every second step only:
///
/// ```
/// use gradchain::part::{Around, Decision, StepContext, Wrapper};
/// use gradchain::prelude::*;
/// use gradchain::state::{Count, State};
///
/// gradchain::wrapper! {
///     /// Runs what is inside in every second step.
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
/// That of what is inside, and a pass over the gradients if it [looks](Runs::looks) at them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has a form of wrappers and does not implement `Wrapper`",
    note = "`impl Wrapper for {Self}` says what the wrapper does in a step; `docs/own-wrapper.md` has an example"
)]
pub trait Wrapper: Holds {
    /// What is remembered besides the state arrays and the state of what is inside.
    type Memory: State + Default;

    /// When what is inside runs, and what the wrapper needs for that.
    const RUNS: Runs = Runs::DECIDED;

    /// Which state inside is in 8 bits, if any is.
    fn codes<'a>(&self, memory: &'a Self::Memory) -> Option<Codes<'a>> {
        let _ = memory;
        None
    }

    /// What is inside, as it is in this step; usually the same.
    fn inner_now<'a>(&'a self, memory: &'a Self::Memory) -> &'a Self::Inner {
        let _ = memory;
        self.inner()
    }

    /// The mask of the leaves to act on, if it [chooses](Runs::chooses) any. What is inside makes state for these only.
    fn mask(&self) -> Option<&Mask> {
        None
    }

    /// Which leaves rest in this step, here or in a wrapper around this one, if any may.
    fn resting<'a>(&self, memory: &'a Self::Memory) -> &'a [bool] {
        let _ = memory;
        &[]
    }

    /// What happens to the leaves that it does not act on.
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::Zero
    }

    /// Fills in the memory before the first step, where its default is not what it starts with, and before the state
    /// inside is made.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the wrapper can work on.
    fn start(&self, memory: &mut Self::Memory, at: &InitContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// The last chance to refuse a step: nothing has been changed yet.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, memory: &Self::Memory, at: &StepContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// What is added up over all gradients, if the wrapper [looks](Runs::looks) at them. Write
    /// `#[inline(always)]` on it.
    fn look<C: Real>(u: C) -> C::Wide {
        let _ = u;
        <C::Wide as Real>::of(0.0)
    }

    /// Decides what happens in this step. `seen` is the sum of what [`look`](Wrapper::look) gave; 0 if it does not
    /// look.
    ///
    /// It comes before the inner transformation, which may emit nothing. So what counts updates or steps of the inner
    /// transformation is counted in [`finish`](Wrapper::finish); what is counted here are the gradients that come in.
    ///
    /// What it works out for the step goes into the memory too: into fields that are no part of the state.
    fn decide(&self, memory: &mut Self::Memory, at: &StepContext<'_>, seen: f64) -> Decision {
        let _ = (memory, at, seen);
        Decision::Run
    }

    /// What is inside is told of a step in which all [`Run`](Decision::Run): usually what the wrapper was told.
    fn tell<'a>(&self, memory: &'a Self::Memory, at: &StepContext<'a>) -> StepContext<'a> {
        let _ = memory;
        *at
    }

    /// Ends a step, and counts it. `inside` is what the step of the inner transformation did; `None` if that did not
    /// run, or emitted nothing. A wrapper does nothing in a step in which the inner transformation emits nothing: its
    /// arithmetic after it has not run, and `finish` counts nothing of what comes out.
    fn finish(
        &self,
        memory: &mut Self::Memory,
        decision: Decision,
        inside: Option<Outcome>,
        inner: &mut <Self::Inner as Stage>::State,
    ) {
        let _ = (memory, decision, inside, inner);
    }
}
