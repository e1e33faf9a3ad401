//! Steps on devices.

use super::OptState;
use crate::engine::recorded::{Remote, RunningOnDevice};
use crate::engine::{Outcome, Sink, Stage, StepContext};
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::program::{Executor, Passes, Programs};
use crate::transformation::GradientTransformation;
use crate::tree::Tree;

/// As [`step_on`](crate::GradientTransformation::step_on), with a known loss.
pub(in super::super) fn step_on<T: Stage>(
    transformation: &T,
    executor: &mut dyn Executor,
    value: Option<f64>,
    state: &mut OptState<T>,
) -> Result<Outcome> {
    check_needs(transformation)?;
    let mut passes = Passes::new(executor, &state.inner);
    state.run_on_device(transformation, value, &mut passes)
}

/// As [`programs`](crate::GradientTransformation::programs).
pub(in super::super) fn programs<T: Stage, P: Tree + ?Sized>(transformation: &T, params: &P) -> Result<Programs> {
    check_needs(transformation)?;
    let (mut state, mut programs) = (transformation.init(params)?, Programs::default());
    step_on(transformation, &mut programs, Some(1.0), &mut state)?;
    Ok(programs)
}

fn check_needs<T: Stage>(transformation: &T) -> Result<()> {
    match transformation.needs() >= Level::ValueFn {
        true => Err(Error::unrecordable(&transformation.describe(), "it evaluates the loss at other points")),
        false => Ok(()),
    }
}

impl<T: Stage> OptState<T> {
    fn run_on_device(
        &mut self,
        transformation: &T,
        value: Option<f64>,
        device: &mut (dyn Remote<T> + '_),
    ) -> Result<Outcome> {
        self.ready(transformation)?;
        let structure = self.structure.clone();
        let at = StepContext { by_leaf: self.by_leaf, on_device: true, ..StepContext::new(&structure, false, value) };
        let chain = &mut RunningOnDevice::new(transformation, &mut self.inner, device);
        self.work.checked_step(chain, &mut self.poisoned, &at, None, Sink::Params)
    }
}
