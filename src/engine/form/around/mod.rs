//! Around another: wrappers.

mod arithmetic;
mod emission;
mod run;
mod tile;
mod weighing;

use crate::select::Mask;
use core::marker::PhantomData;

pub use arithmetic::{Arithmetic, AroundWithArithmetic, NoArithmetic, WithArithmetic};
pub use weighing::{AroundWithSums, Weighing, WithSums};

use super::super::leaf::is_among;
use super::super::{Codes, InitContext, Outcome, Stage, StepContext, Transform};
use super::Part;
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;

/// The form of a [`Wrapper`].
///
/// `Asks` is what a step must be given for the wrapper itself, besides what is inside needs; `Own` says whether it does
/// [`Arithmetic`], see [`AroundWithArithmetic`], or is [`Weighing`], see [`AroundWithSums`].
pub struct Around<Asks = Nothing, Own = NoArithmetic>(PhantomData<fn() -> (Asks, Own)>);

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
/// That of what is inside, and a pass over the gradients if it [`LOOKS`](Wrapper::LOOKS).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has a form of wrappers and does not implement `Wrapper`",
    note = "`impl Wrapper for {Self}` says what the wrapper does in a step; `docs/own-wrapper.md` has an example"
)]
pub trait Wrapper: Holds {
    /// What is remembered besides the state arrays and the state of what is inside.
    type Memory: State + Default;

    /// Whether it must look at all gradients before it can decide.
    const LOOKS: bool = false;
    /// Whether it acts on some leaves only: whether [`leaves`](Wrapper::leaves) or [`acts_on`](Wrapper::acts_on) say
    /// anything.
    const CHOOSES: bool = false;
    /// Whether what is inside runs in every step: whatever [`decide`](Wrapper::decide) says is [`Run`](Decision::Run),
    /// and no loops are compiled for steps in which it does not.
    const ALWAYS_RUNS: bool = false;
    /// True if [`decide`](Wrapper::decide) may say [`Hold`](Decision::Hold) or [`Skip`](Decision::Skip). Where such a
    /// wrapper acts on some leaves only, parts after it count updates leaf by leaf.
    const HOLDS_BACK: bool = false;
    /// True if the inner transformation only estimates something for the wrapper, which makes the update of its own:
    /// then the wrapper runs whether or not the inner transformation emits anything.
    const ESTIMATES: bool = false;
    /// Whether there are many steps in which [`decide`](Wrapper::decide) says [`Inside`](Decision::Inside): then loops
    /// are compiled for what is inside alone, and these steps are as fast as without the wrapper. Nothing changes for
    /// one that chooses leaves, adds up sums or shows what is inside other parameters.
    const STEPS_ASIDE: bool = false;

    /// Whether a leaf may rest in some steps and not in others, so that what is inside counts updates leaf by leaf.
    const RESTS: bool = false;
    /// Whether a leaf without a gradient [rests](Wrapper::RESTS).
    const SKIPS_ABSENT: bool = false;
    /// True if it holds windows over steps, in which a leaf without a gradient counts as one of zeros.
    const WINDOWS: bool = false;

    /// Which state inside is in 8 bits, if any is.
    fn codes<'a>(&self, memory: &'a Self::Memory) -> Option<Codes<'a>> {
        let _ = memory;
        None
    }

    /// Fills the memory with what the state inside depends on, before that is made.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the wrapper can work on.
    fn prepare(&self, memory: &mut Self::Memory, at: &InitContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// What is inside, as it is in this step; usually the same.
    fn inner_now<'a>(&'a self, memory: &'a Self::Memory) -> &'a Self::Inner {
        let _ = memory;
        self.inner()
    }

    /// The mask of the leaves to act on, if there is one.
    fn mask(&self) -> Option<&Mask> {
        None
    }

    /// The leaves to act on, if not all: those of the [mask](Wrapper::mask), unless it says otherwise. What is inside
    /// makes state for these only.
    ///
    /// # Errors
    ///
    /// If a mask does not fit the parameters.
    fn leaves(&self, at: &InitContext<'_>) -> Result<Option<Vec<bool>>> {
        let what = || format!("mask of {}", self.inner().describe());
        self.mask().map(|mask| mask.resolve(at.structure(), &what())).transpose()
    }

    /// Whether it acts on a leaf in this step; what is inside has state for it whether or not.
    fn acts_on(&self, memory: &Self::Memory, leaf: usize) -> bool {
        !is_among(self.resting(memory), leaf)
    }

    /// Which leaves rest in this step, here or in a wrapper around this one, if any [may](Wrapper::RESTS).
    fn resting<'a>(&self, memory: &'a Self::Memory) -> &'a [bool] {
        let _ = memory;
        &[]
    }

    /// What happens to the leaves that it does not act on.
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::Zero
    }

    /// Fills in the memory before the first step, where its default is not what it starts with.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the wrapper can work on.
    fn start(
        &self,
        memory: &mut Self::Memory,
        at: &InitContext<'_>,
        inner: &<Self::Inner as Stage>::State,
    ) -> Result<()> {
        let _ = (memory, at, inner);
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

    /// What is added up over all gradients, if the wrapper [`LOOKS`](Wrapper::LOOKS). Write `#[inline(always)]` on it.
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
