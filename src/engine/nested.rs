//! A transformation run to its end in the middle of another's step, on arrays in memory.

use core::fmt;
use core::hash::{Hash, Hasher};

use super::objective::Ask;
use super::ranks::Ranks;
use super::table::{Table, TableLeaf};
use super::{InitContext, Outcome, Shape, Sink, Stage, StepContext, Work};
use crate::error::{Error, Result};
use crate::state::Moments;
use crate::tree::Structure;

/// Room to run a transformation to its end at a barrier of another: on the parameters' own leaves, or on leaves of
/// another structure. It is no part of the state that is saved.
///
/// Arrays are [`Moments`] of the structure: gradients to read, parameters to read, updates to write.
pub(crate) struct Nested {
    structure: Structure,
    active: Vec<bool>,
    work: Work,
}

/// What a nested step reads and writes.
pub(crate) struct Arrays<'a> {
    pub(crate) grads: &'a Moments,
    pub(crate) params: &'a Moments,
    pub(crate) updates: &'a mut Moments,
}

impl Nested {
    /// Room for a transformation of this shape, on the active leaves of a structure.
    pub(crate) fn new(structure: &Structure, active: &[bool], shape: Shape) -> Nested {
        Nested { structure: structure.clone(), active: active.into(), work: Work::new_for(structure, active, shape) }
    }

    /// Room for what one of several machines does of a step; the structure says which elements of the leaves it has.
    pub(crate) fn of_rank(structure: &Structure, active: &[bool], shape: Shape, ranks: Ranks) -> Nested {
        let mut nested = Nested::new(structure, active, shape);
        nested.work.ranks = Some(Box::new(ranks));
        nested
    }

    /// The state before the first step, in the codes that state around it is in.
    pub(crate) fn init<T: Stage>(
        &mut self,
        transformation: &T,
        around: &InitContext<'_>,
        params: &Moments,
    ) -> Result<T::State> {
        fill(&mut self.work.params, &self.structure, params);
        let at = InitContext {
            structure: &self.structure,
            active: &self.active,
            params: &self.work.params,
            point: None,
            by_leaf: false,
            codes: around.codes.map(|codes| codes.of_leaves(self.structure.len())),
            whole: None,
        };
        let state = transformation.init_state(&at);
        self.work.params.clear();
        state
    }

    /// As [`Stage::check`].
    pub(crate) fn check<T: Stage>(&self, transformation: &T, state: &T::State, at: &StepContext<'_>) -> Result<()> {
        if self.work.shape() != transformation.shape() {
            return Err(Error::other_transformation(transformation.describe()));
        }
        transformation.check(state, &at.inside(&self.structure))
    }

    /// Whether [`anew`](Self::anew) will find a state.
    pub(crate) fn can_begin_anew<T: Stage>(&self, transformation: &T, at: &StepContext<'_>) -> Result<()> {
        at.inside(&self.structure).can_begin_anew(transformation, &self.active)
    }

    /// A state as `init` makes it for the parameters of the step around, if its leaves are those.
    pub(crate) fn anew<T: Stage>(&self, transformation: &T, at: &StepContext<'_>) -> T::State {
        at.inside(&self.structure).anew(transformation, &self.active)
    }

    /// Does a step. In one without gradients, `arrays.grads` does not count.
    pub(crate) fn run<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        arrays: Arrays<'_>,
        objective: Option<&mut (dyn Ask + '_)>,
    ) -> Outcome {
        fill(&mut self.work.params, &self.structure, arrays.params);
        self.run_filled(transformation, state, at, arrays.grads, Sink::Arrays(arrays.updates), objective)
    }

    /// Does a step on the parameters of the step around, whose leaves are these, and brings the updates elsewhere.
    pub(crate) fn run_on<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        params: &[TableLeaf],
        grads: &Moments,
        sink: Sink<'_>,
    ) -> Outcome {
        self.work.params.clear();
        self.work.params.extend_from_slice(params);
        self.run_filled(transformation, state, at, grads, sink, None)
    }

    fn run_filled<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        grads: &Moments,
        sink: Sink<'_>,
        objective: Option<&mut (dyn Ask + '_)>,
    ) -> Outcome {
        fill(&mut self.work.grads, &self.structure, grads);
        let at = at.inside(&self.structure);
        let outcome = self.work.step(transformation, state, &at, objective, sink, None);
        self.work.params.clear();
        self.work.grads.clear();
        outcome
    }
}

/// Points a table at arrays, which must outlive its use; where there is no array there is nothing to point at.
fn fill(table: &mut Table, structure: &Structure, arrays: &Moments) {
    table.clear();
    table.extend(structure.leaves().iter().enumerate().map(|(leaf, spec)| {
        arrays.raw(leaf).map_or_else(|| TableLeaf::none(spec.dtype().compute()), TableLeaf::dense)
    }));
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
