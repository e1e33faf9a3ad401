//! The common part of [`params_ema`](super::params_ema()) and [`params_swa`](super::params_swa()): an optimizer and an
//! average of its parameters.

use super::{ParamsEma, ParamsSwa};
use crate::GradientTransformation;
use crate::part::prelude::*;
use crate::state::EvaluateAs;

/// An optimizer with an average of its parameters: selects the parameters to average and their weights.
///
/// A step computes an update, but the parameters after it are certain only in the next step: rounded to their dtype,
/// and changed by later members of the chain. So each step adds the parameters that it gets to the average, with the
/// share that the previous step determined. Until then [`EvaluateAs`] mixes them in. A step in which the optimizer
/// emits nothing adds none.
// As for `Wrapper`, in whose place the compiler may name this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has a wrapper form but does not implement `Wrapper`",
    note = "implement `Wrapper` for `{Self}`; `docs/own-wrapper.md` has an example"
)]
pub(super) trait Averages: Holds {
    /// Returns true if the average starts as the parameters of `init`, with a weight of 1, instead of empty.
    fn starts_as_params(&self) -> bool;

    /// Returns the share of this step's parameters in the average; `None` if omitted.
    ///
    /// `steps` counts this step, `averaged` does not; the call updates `mass`, the weight of the average.
    fn share(&self, steps: Count, averaged: Count, mass: &mut Scalar) -> Option<f64>;
}

/// The state of a [`params_ema`](super::params_ema()) or [`params_swa`](super::params_swa()).
///
/// [`eval_params`](crate::OptState::eval_params) returns the average as of the last step.
pub type ParamsAverageState<S> = WrapperState<ParamsAverageMemory, S>;

memory! {
    /// The memory of a [`params_ema`](super::params_ema()) or [`params_swa`](super::params_swa()).
    ///
    /// The average and the inner state are kept beside it.
    pub ParamsAverageMemory {
        steps: Count,
        averaged: Count,
        /// The sum of the weights in the average, as of the last step.
        mass: Scalar,
        /// The share in the average that the current parameters get in the next step; 0 if none.
        share: Scalar,
    }
    means {
        starts_as_params: bool,
    }
    beside {
        /// The share of the parameters of this step.
        taken: f64,
    }
    evaluate |memory| {
        // While no weight is positive, evaluation uses the trained parameters.
        let share = if memory.mass.get() == 0.0 { 1.0 } else { memory.share.get() };
        EvaluateAs::new(0, share, 1.0 - share)
    };
    clock averaged;
}

impl ParamsAverageMemory {
    /// Returns the number of steps in which the inner optimizer emitted an update.
    pub fn steps(&self) -> Count {
        self.steps
    }

    /// Returns the number of parameters after these steps that are in the average.
    pub fn averaged(&self) -> Count {
        self.averaged
    }
}

/// Moves the average to the parameters: `average ← (1 − share)·average + share·parameter`.
#[derive(Clone, Copy, Debug)]
pub struct Accumulate<C> {
    share: C,
    complement: C,
    /// True if the average outweighs the parameters.
    is_mostly_average: bool,
}

/// Implements [`Wrapper`] and [`Arithmetic`] for a wrapper that implements [`Averages`].
macro_rules! averages {
    ($P:ident) => {
        impl<T: GradientTransformation> Wrapper for $P<T> {
            type Memory = ParamsAverageMemory;
            const RUNS: Runs = Runs::DECIDED.inner_only();

            fn start(&self, memory: &mut ParamsAverageMemory, _: &InitContext<'_>) -> Result<()> {
                memory.starts_as_params = self.starts_as_params();
                memory.mass.set(if self.starts_as_params() { 1.0 } else { 0.0 });
                Ok(())
            }

            fn decide(&self, memory: &mut ParamsAverageMemory, _: &StepContext<'_>, _: f64) -> Decision {
                memory.taken = memory.share.get();
                if memory.taken != 0.0 { Decision::Run } else { Decision::InnerOnly }
            }

            fn finish(&self, memory: &mut ParamsAverageMemory, _: Decision, inside: Option<Outcome>, _: &mut T::State) {
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

        /// Runs after the inner transformation: state before it would make the engine store the updates earlier than at
        /// the last inner barrier.
        impl<T: GradientTransformation> Arithmetic for $P<T> {
            const SLOTS: &'static [Slot] = &[Slot::exact("average")];
            const ELEMENTS: Elements = Elements::NONE.after(false).reads_params();
            type Slots<C: Real> = [C; 1];
            type Scalars<C: Real> = Accumulate<C>;

            fn slot(&self, slot: Slot) -> Slot {
                if self.starts_as_params() { slot.starts_as_params() } else { slot }
            }

            fn scalars<C: Real>(&self, memory: &ParamsAverageMemory, _: usize) -> Accumulate<C> {
                let share = memory.taken;
                Accumulate { share: C::of(share), complement: C::of(1.0 - share), is_mostly_average: share < 0.5 }
            }

            /// Computed from the nearer end: a share of 1 gives exactly the parameter, and equal values stay equal.
            #[inline(always)]
            fn after<C: Real>(k: Accumulate<C>, [average]: &mut [C; 1], u: C, p: C) -> C {
                let gap = p - *average;
                *average = if k.is_mostly_average { *average + k.share * gap } else { p - k.complement * gap };
                u
            }
        }
    };
}

averages!(ParamsEma);
averages!(ParamsSwa);
