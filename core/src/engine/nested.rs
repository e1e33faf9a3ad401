//! Inner transformations that run a whole step within a step, on arrays in memory.

use core::fmt;
use core::hash::{Hash, Hasher};

use super::context::ParamSource;
use super::leaf::{TableLeaf, arrays as fill};
use super::objective::EvaluateLoss;
use super::{InitContext, Outcome, Sink, Stage, StepContext, Work};
use crate::error::{Error, Result};
use crate::state::Moments;
use crate::tree::{LeafSpec, Structure};

/// Buffers to run an inner transformation at a barrier, on the parameters' leaves or another structure's. They are not
/// saved. Gradients, parameters and updates are [`Moments`] of the structure.
pub struct Nested {
    structure: Structure,
    active: Vec<bool>,
    work: Work,
}

/// The arrays that an inner transformation runs on.
pub struct Arrays<'a> {
    pub(crate) grads: &'a Moments,
    pub(crate) params: &'a Moments,
    /// Parameters outside the inner transformation, for evaluations of the loss.
    pub(crate) others: &'a [TableLeaf],
    pub(crate) updates: &'a mut Moments,
}

impl<'a> Arrays<'a> {
    /// Returns arrays for all active leaves.
    pub fn new(grads: &'a Moments, params: &'a Moments, updates: &'a mut Moments) -> Arrays<'a> {
        Arrays { grads, params, others: &[], updates }
    }
}

impl Nested {
    /// Makes buffers for the active leaves of a structure.
    ///
    /// # Errors
    ///
    /// If the transformation has too many barriers.
    pub fn new<T: Stage>(structure: &Structure, active: &[bool], transformation: &T) -> Result<Nested> {
        let work = Work::new_for(structure, active, transformation.as_dyn())?;
        Ok(Nested { structure: structure.clone(), active: active.into(), work })
    }

    /// As [`new`](Nested::new), for one process's share; the structure holds the elements that it owns.
    ///
    /// # Errors
    ///
    /// As [`new`](Nested::new).
    #[cfg(feature = "collective")]
    pub(crate) fn of_rank<T: Stage>(
        structure: &Structure,
        active: &[bool],
        transformation: &T,
        ranks: super::ranks::Ranks,
    ) -> Result<Nested> {
        let mut nested = Nested::new(structure, active, transformation)?;
        nested.work.ranks = Some(Box::new(ranks));
        Ok(nested)
    }

    /// Returns the initial state, in the quantization format of the outer state.
    pub fn init<T: Stage>(
        &mut self,
        transformation: &T,
        outer: &InitContext<'_>,
        params: &Moments,
    ) -> Result<T::State> {
        self.assert_fits(params);
        fill(params, &self.structure, &[], &mut self.work.params);
        let at = InitContext {
            structure: &self.structure,
            active: &self.active,
            params: &self.work.params,
            by_leaf: false,
            quantization: outer.quantization.map(|quantization| quantization.of_leaves(self.structure.len())),
            in_full: false,
            whole: None,
        };
        let state = transformation.init_state(&at);
        self.work.params.clear();
        state
    }

    /// As [`Stage::check`], for these parameters.
    pub(crate) fn check<T: Stage>(
        &self,
        transformation: &T,
        state: &T::State,
        at: &StepContext<'_>,
        params: ParamSource<'_>,
    ) -> Result<()> {
        if self.work.shape() != transformation.shape() {
            return Err(Error::other_transformation(transformation.describe()));
        }
        transformation.check(state, &at.for_inner(&self.structure, params))
    }

    /// As [`Stage::check`]; `params` makes parameters for an argument that has changed.
    ///
    /// # Errors
    ///
    /// If the transformation could not have made the state.
    pub fn check_on<T: Stage>(
        &self,
        transformation: &T,
        state: &T::State,
        at: &StepContext<'_>,
        params: &dyn Fn() -> Result<Moments>,
    ) -> Result<()> {
        self.check(transformation, state, at, ParamSource::OnDemand(params))
    }

    /// The engine reads and writes arrays by the lengths of the structure.
    fn assert_fits(&self, arrays: &Moments) {
        let fits = |(leaf, spec): (usize, &LeafSpec)| arrays.raw(leaf).is_none_or(|array| array.len() == spec.len());
        assert!(self.structure.leaves().iter().enumerate().all(fits), "arrays of another structure");
    }

    /// Returns an error if [`reinitialize`](Self::reinitialize) would fail on the outer step's leaves.
    pub(crate) fn can_reinitialize<T: Stage>(&self, transformation: &T, at: &StepContext<'_>) -> Result<()> {
        at.for_inner(&self.structure, at.params).can_reinitialize(transformation, &self.active)
    }

    /// Makes a state as `init` does, for the outer step's parameters, of this structure.
    pub(crate) fn reinitialize<T: Stage>(&self, transformation: &T, at: &StepContext<'_>) -> T::State {
        at.for_inner(&self.structure, at.params).reinitialize(transformation, &self.active)
    }

    /// As [`run`](Self::run), without a loss to evaluate.
    pub fn run_without_loss<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        arrays: Arrays<'_>,
    ) -> Outcome {
        self.run(transformation, state, at, arrays, None)
    }

    /// Runs a step; without gradients it ignores `arrays.grads`.
    pub(crate) fn run<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        arrays: Arrays<'_>,
        objective: Option<&mut (dyn EvaluateLoss + '_)>,
    ) -> Outcome {
        [arrays.grads, arrays.params, arrays.updates].iter().for_each(|arrays| self.assert_fits(arrays));
        fill(arrays.params, &self.structure, arrays.others, &mut self.work.params);
        self.run_filled(transformation, state, at, arrays.grads, Sink::Arrays(arrays.updates), objective)
    }

    /// Runs a step on the outer step's parameters, of the same structure, and writes the updates to `sink`.
    #[allow(clippy::too_many_arguments, reason = "as `run`, with arrays one by one")]
    pub(crate) fn run_on<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        params: &[TableLeaf],
        grads: &Moments,
        sink: Sink<'_>,
        objective: Option<&mut (dyn EvaluateLoss + '_)>,
    ) -> Outcome {
        self.work.params.clear();
        self.work.params.extend_from_slice(params);
        self.run_filled(transformation, state, at, grads, sink, objective)
    }

    fn run_filled<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        grads: &Moments,
        sink: Sink<'_>,
        objective: Option<&mut (dyn EvaluateLoss + '_)>,
    ) -> Outcome {
        fill(grads, &self.structure, &[], &mut self.work.grads);
        // The step has its own table of parameters.
        let at = at.for_inner(&self.structure, ParamSource::NONE);
        let outcome = self.work.step(transformation, state, &at, objective, sink);
        self.work.params.clear();
        self.work.grads.clear();
        outcome
    }
}

impl Hash for Nested {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.structure, &self.active, self.work.shape()).hash(hasher);
    }
}

impl Clone for Nested {
    fn clone(&self) -> Nested {
        Nested {
            structure: self.structure.clone(),
            active: self.active.clone(),
            work: self.work.fresh_for(&self.structure, &self.active),
        }
    }
}

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nested").field("leaves", &self.structure.len()).finish_non_exhaustive()
    }
}
