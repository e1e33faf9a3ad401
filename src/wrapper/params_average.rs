//! What [`params_ema`](super::params_ema()) and [`params_swa`](super::params_swa()) share: an optimizer, and beside it
//! an average of the parameters that it trains.

use crate::part::prelude::*;
use crate::state::EvaluateAs;

/// An optimizer, and an average of what it trains: which parameters are averaged, and how much each of them counts.
///
/// A step works out an update of the parameters; what they are afterwards is known for certain only when the next step
/// is given them: rounded to their type, and after whatever comes behind this in a chain. So each step takes up into
/// the average the parameters that it is given, with the share that was written down at the end of the one before; and
/// until then [`EvaluateAs`] mixes them in. A step in which the optimizer emits nothing takes up none.
// As `Wrapper`, for which the compiler can show this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has a form of wrappers and does not implement `Wrapper`",
    note = "`impl Wrapper for {Self}` says what the wrapper does in a step; `docs/own-wrapper.md` has an example"
)]
pub trait Averages: Holds {
    /// Whether the average begins with the parameters of `init`, which count for 1, instead of with nothing.
    fn starts_as_params(&self) -> bool;

    /// What share of the average the parameters after this step become; `None` if they are left out. `steps` counts
    /// this step, `averaged` does not; `mass` is how much what has been averaged counts, and is brought up to date.
    fn share(&self, steps: Count, averaged: Count, mass: &mut Scalar) -> Option<f64>;
}

/// The state of a [`params_ema`](super::params_ema()) or [`params_swa`](super::params_swa()).
///
/// The average as of the last step is [`eval_params`](crate::OptState::eval_params).
pub type ParamsAverageState<S> = WrapperState<ParamsAverageMemory, S>;

memory! {
    /// What a [`params_ema`](super::params_ema()) or [`params_swa`](super::params_swa()) remembers besides the average
    /// and what is inside.
    pub ParamsAverageMemory {
        steps: Count,
        averaged: Count,
        /// The sum of the weights of what has been averaged, as of the last step.
        mass: Scalar,
        /// What share of the average the parameters of the moment become, once the next step has taken them up; 0 if
        /// none.
        share: Scalar,
    }
    means {
        starts_as_params: bool,
    }
    beside {
        /// The share of the parameters that this step is given.
        taken: f64,
    }
    evaluate |memory| {
        // As long as nothing has a weight, what is trained is what is evaluated.
        let share = if memory.mass.get() == 0.0 { 1.0 } else { memory.share.get() };
        EvaluateAs { slot: 0, of_params: share, of_array: 1.0 - share }
    };
    clock averaged;
}

impl ParamsAverageMemory {
    /// Steps in which the optimizer inside emitted an update.
    pub fn steps(&self) -> Count {
        self.steps
    }

    /// How many of the parameters that these steps led to are in the average.
    pub fn averaged(&self) -> Count {
        self.averaged
    }
}

#[diagnostic::do_not_recommend]
impl<P: Averages> Wrapper for P {
    type Memory = ParamsAverageMemory;
    const RUNS: Runs = Runs::DECIDED.steps_aside();

    fn start(&self, memory: &mut ParamsAverageMemory, _: &InitContext<'_>) -> Result<()> {
        memory.starts_as_params = self.starts_as_params();
        memory.mass.set(if self.starts_as_params() { 1.0 } else { 0.0 });
        Ok(())
    }

    fn decide(&self, memory: &mut ParamsAverageMemory, _: &StepContext<'_>, _: f64) -> Decision {
        memory.taken = memory.share.get();
        if memory.taken != 0.0 { Decision::Run } else { Decision::Inside }
    }

    fn finish(
        &self,
        memory: &mut ParamsAverageMemory,
        _: Decision,
        inside: Option<Outcome>,
        _: &mut <P::Inner as Stage>::State,
    ) {
        if inside.is_some() {
            memory.share.set(0.0);
        }
        if inside.is_some_and(Outcome::emitted) {
            memory.steps.increment();
            if let Some(share) = self.share(memory.steps, memory.averaged, &mut memory.mass) {
                memory.averaged.increment();
                memory.share.set(share);
            }
        }
    }
}

/// The average moves to the parameters: `average ← (1 − share)·average + share·parameter`.
#[derive(Clone, Copy, Debug)]
pub struct Take<C> {
    share: C,
    rest: C,
    /// The average counts for more than the parameters.
    near: bool,
}

/// Behind what is inside: at its last barrier at the latest updates are stored if it has state, and state of its own
/// before that would have them stored earlier.
impl<P: Averages> Arithmetic for P {
    const SLOTS: &'static [Slot] = &[Slot::exact("average")];
    const ELEMENTS: Elements = Elements::NONE.after(false).reads_params();
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Take<C>;

    fn slot(&self, slot: Slot) -> Slot {
        if self.starts_as_params() { slot.starts_as_params() } else { slot }
    }

    fn scalars<C: Real>(&self, memory: &ParamsAverageMemory, _: usize) -> Take<C> {
        let share = memory.taken;
        Take { share: C::of(share), rest: C::of(1.0 - share), near: share < 0.5 }
    }

    /// From the nearer end, so that a share of 1 gives the parameter itself, and equal ones stay what they are.
    #[inline(always)]
    fn after<C: Real>(k: Take<C>, [average]: &mut [C; 1], u: C, p: C) -> C {
        let gap = p - *average;
        *average = if k.near { *average + k.share * gap } else { p - k.rest * gap };
        u
    }
}
