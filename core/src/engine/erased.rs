use core::ops::ControlFlow;

use super::transform::Transform;
use super::{Emission, Outcome, PassRange, Stage, StepContext, Sums, WholeTree};
use crate::error::{Error, Result};
use crate::state::StateWalk;

/// A type-erased transformation with its state.
pub trait View<'a> {
    fn transform(&self) -> &dyn Transform;
    fn check(&self, at: &StepContext<'_>) -> Result<()>;
    /// As [`Stage::emission`]; `None` if the transformation has not begun.
    fn emission(&self) -> Option<Emission>;
    fn resting(&self) -> &'a [bool];
    fn state_bytes(&self, leaf: usize, at: usize, range: PassRange) -> usize;
    fn unused(&self, report: &mut dyn FnMut(&str, bool));
    fn read(&self, walk: &mut StateWalk<'a, '_>) -> Result<()>;
}

/// A type-erased transformation in a step; does nothing before it has begun.
pub trait InStep<'a> {
    fn transform(&self) -> &dyn Transform;
    /// As [`Stage::begin`], if the transformation has not begun.
    fn begin(&mut self, at: &StepContext<'_>);
    /// As [`Stage::emission`]; `None` if the transformation has not begun.
    fn emission(&self) -> Option<Emission>;
    fn barrier(&mut self, at: &StepContext<'_>, index: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>);
    /// As [`Stage::finish`]; returns false if the transformation has not begun.
    fn finish(&mut self, sums: Sums<'_>, outcome: &mut Outcome) -> bool;
    /// As [`Stage::resting`]. Must be the last call: it gives up the state.
    fn resting(&mut self) -> &'a [bool];
}

/// Visits transformations until one breaks.
pub type OnView<'v, 'a> = dyn FnMut(usize, &dyn View<'a>) -> ControlFlow<()> + 'v;

/// Visits transformations in a step until one breaks.
pub type OnMember<'v, 'a> = dyn FnMut(usize, &mut dyn InStep<'a>) -> ControlFlow<()> + 'v;

pub(crate) struct Viewed<'s, 'a, S: Stage> {
    pub(crate) stage: &'s S,
    pub(crate) state: &'a S::State,
    pub(crate) run: Option<&'s S::Run>,
}

impl<'a, S: Stage> View<'a> for Viewed<'_, 'a, S> {
    fn transform(&self) -> &dyn Transform {
        self.stage.as_dyn()
    }
    fn check(&self, at: &StepContext<'_>) -> Result<()> {
        self.stage.check(self.state, at)
    }
    fn emission(&self) -> Option<Emission> {
        Some(self.stage.emission(self.state, self.run?))
    }
    fn resting(&self) -> &'a [bool] {
        self.stage.resting(self.state)
    }
    fn state_bytes(&self, leaf: usize, at: usize, range: PassRange) -> usize {
        self.stage.state_bytes(self.state, leaf, at, range)
    }
    fn unused(&self, report: &mut dyn FnMut(&str, bool)) {
        self.stage.unused(self.state, report);
    }
    fn read(&self, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        self.stage.read(self.state, walk)
    }
}

pub(crate) struct Running<'s, 'a, S: Stage> {
    stage: &'s S,
    /// `None` after the last call.
    state: Option<&'a mut S::State>,
    run: &'s mut Option<S::Run>,
}

impl<'s, 'a, S: Stage> Running<'s, 'a, S> {
    pub(crate) fn new(stage: &'s S, state: &'a mut S::State, run: &'s mut Option<S::Run>) -> Self {
        Running { stage, state: Some(state), run }
    }
}

impl<'a, S: Stage> InStep<'a> for Running<'_, 'a, S> {
    fn transform(&self) -> &dyn Transform {
        self.stage.as_dyn()
    }
    fn begin(&mut self, at: &StepContext<'_>) {
        if let (Some(state), None) = (&mut self.state, &self.run) {
            *self.run = Some(self.stage.begin(state, at));
        }
    }
    fn emission(&self) -> Option<Emission> {
        Some(self.stage.emission(self.state.as_deref()?, self.run.as_ref()?))
    }
    fn barrier(&mut self, at: &StepContext<'_>, index: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>) {
        if let (Some(state), Some(run)) = (&mut self.state, &mut self.run) {
            self.stage.barrier(state, run, at, index, sums, tree);
        }
    }
    fn finish(&mut self, sums: Sums<'_>, outcome: &mut Outcome) -> bool {
        let (Some(state), Some(run)) = (&mut self.state, self.run.take()) else { return false };
        self.stage.finish(state, run, sums, outcome);
        true
    }
    fn resting(&mut self) -> &'a [bool] {
        match self.state.take() {
            Some(state) => self.stage.resting(state),
            None => &[],
        }
    }
}

/// A transformation with another's state.
pub(crate) struct Foreign<'s>(pub(crate) &'s dyn Transform);

impl<'a> View<'a> for Foreign<'_> {
    fn transform(&self) -> &dyn Transform {
        self.0
    }
    fn check(&self, _: &StepContext<'_>) -> Result<()> {
        Err(Error::other_transformation(self.0.describe()))
    }
    fn emission(&self) -> Option<Emission> {
        None
    }
    fn resting(&self) -> &'a [bool] {
        &[]
    }
    fn state_bytes(&self, _: usize, _: usize, _: PassRange) -> usize {
        0
    }
    fn unused(&self, _: &mut dyn FnMut(&str, bool)) {}
    fn read(&self, _: &mut StateWalk<'a, '_>) -> Result<()> {
        Err(Error::other_transformation(self.0.describe()))
    }
}
