//! The state of a transformation, and operations on it.

#[cfg(feature = "program")]
pub(super) mod on_device;

use core::fmt;
use core::ops::{Deref, DerefMut};
#[cfg(feature = "checkpoint")]
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::element::DType;
use crate::engine::leaf::{self, TableLeaf};
use crate::engine::{
    Absent, Evaluate, InitContext, Outcome, RunningChain, Sink, Stage, StepContext, Transform, Updates, Work, advice,
    table,
};
use crate::error::{Error, Result};
use crate::evaluation_cache::{CachedEvaluation, EvaluationCache};
use crate::state::{Layout, Moments, Reader, Readings, Schema, StateWalk, assign_item, items, items_mut};
use crate::tree::{LeafSpec, Structure, Tree, TreeMut, Walk, refuse_shared};

/// The state of a transformation of type `T`, for parameters of one structure.
///
/// [`init`](crate::GradientTransformation::init) returns it.
///
/// It dereferences to the transformation's own typed state: fields of a struct, members of a chain by number, the inner
/// state of a wrapper by `inner()`.
///
/// If a step panics, or its loss, device or process group fails, the state and its later copies are refused from then
/// on, with an error that [`is_poisoned`](crate::Error::is_poisoned): by every step, by [`migrate`](Self::migrate),
/// [`reset`](Self::reset), [`average`](Self::average), and by saving. Copies from before that step stay usable.
pub struct OptState<T: Stage> {
    pub(super) inner: T::State,
    /// The last transformation that made it or could have.
    made_by: T,
    pub(super) structure: Arc<Structure>,
    pub(super) work: Work,
    /// True if a step began and did not complete.
    poisoned: bool,
    /// The layout after `init`, kept once the state has been lent mutably and could be replaced.
    layout: Option<Box<Layout>>,
    /// True if the state has been lent mutably since the last comparison.
    lent: bool,
    by_leaf: bool,
    /// Cached evaluations, for `minimize_step`.
    #[doc(hidden)]
    pub eval_cache: Option<Box<EvaluationCache>>,
    #[cfg(feature = "checkpoint")]
    evaluated: Evaluated,
}

/// The check sum of parameters to evaluate with, if not the trained ones; checkpoints refuse to save them instead.
#[cfg(feature = "checkpoint")]
#[derive(Default)]
struct Evaluated(AtomicU64);

#[cfg(feature = "checkpoint")]
impl Clone for Evaluated {
    fn clone(&self) -> Evaluated {
        Evaluated(self.0.load(Ordering::Relaxed).into())
    }
}

#[cfg(feature = "checkpoint")]
pub(crate) fn check_sum<P: Tree + ?Sized>(params: &P) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    params.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| {
        let Ok(()) = leaf.read_bytes(|bytes| -> Result<(), core::convert::Infallible> {
            hasher.update(bytes);
            Ok(())
        });
    }));
    // Never zero, which stands for none.
    1 << 32 | u64::from(hasher.finalize())
}

impl<T: Stage> OptState<T> {
    pub(crate) fn new<P: Tree + ?Sized>(transformation: &T, params: &P) -> Result<OptState<T>> {
        OptState::new_counting(transformation, params, false)
    }

    /// As `new`; `by_leaf` counts updates by leaf, because some begin later than others.
    #[doc(hidden)]
    pub fn new_counting<P: Tree + ?Sized>(transformation: &T, params: &P, by_leaf: bool) -> Result<OptState<T>> {
        let (structure, mut work) = prepare(transformation.as_dyn(), &|walk| params.walk(walk))?;
        let inner = made(transformation, &structure, &work.params, by_leaf)?;
        work.params.clear();
        Ok(OptState {
            inner,
            made_by: transformation.clone(),
            structure: Arc::new(structure),
            work,
            poisoned: false,
            layout: None,
            lent: false,
            by_leaf,
            eval_cache: None,
            #[cfg(feature = "checkpoint")]
            evaluated: Evaluated::default(),
        })
    }

    /// Returns the structure of the parameters that the state was made for.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Returns the transformation that made it, or did the last step.
    #[cfg(feature = "serde")]
    pub(crate) fn made_by(&self) -> &T {
        &self.made_by
    }

    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn is_by_leaf(&self) -> bool {
        self.by_leaf
    }

    /// Returns every value and array of the state: field, leaf, kind, type, shape.
    pub fn schema(&self) -> Schema {
        Schema::of(&self.inner, &self.structure)
    }

    /// Returns updates of zero, for [`update_into`](crate::GradientTransformation::update_into).
    pub fn zero_updates(&self) -> Updates {
        Updates::new(self.structure.clone())
    }

    /// As [`zero_updates`](Self::zero_updates), in other dtypes.
    #[doc(hidden)]
    pub fn zero_updates_of(&self, dtype: impl Fn(&LeafSpec) -> DType) -> Updates {
        Updates::of_types(self.structure.clone(), dtype)
    }

    /// Takes the values of another state of the same schema, such as an [`average`](crate::state::average).
    ///
    /// These are counts, flags and numbers, and arrays element by element, from any memory order. Anything outside of
    /// the schema, such as the leaves of a mask, stays as `init` made it.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the schemas differ, or an argument that determines the meaning of the values.
    pub fn replace(&mut self, inner: T::State) -> Result<()> {
        self.fits()?;
        let (ours, theirs) = (self.schema(), Schema::of(&inner, &self.structure));
        if let Some(problem) = ours.difference(&theirs) {
            return Err(Error::state("replace", problem));
        }
        if let Some(path) = Layout::other_meaning(&self.inner, &inner) {
            return Err(Error::state(
                "replace",
                format!("`{path}` differs: the values were made with another argument"),
            ));
        }
        let from = items(&inner, &self.structure);
        for ((_, into), (name, from)) in items_mut(&mut self.inner, &self.structure).into_iter().zip(&from) {
            assign_item(into, from).ok_or_else(|| Error::state("replace", format!("`{name}` is of another kind")))?;
        }
        Ok(())
    }

    /// Returns a state of this structure that holds another of the same schema.
    pub(crate) fn holding(&self, inner: T::State) -> OptState<T> {
        let (structure, work) = (self.structure.clone(), self.work.fresh(&self.structure));
        OptState {
            inner,
            made_by: self.made_by.clone(),
            structure,
            work,
            poisoned: false,
            layout: self.layout.clone(),
            lent: false,
            by_leaf: self.by_leaf,
            eval_cache: None,
            #[cfg(feature = "checkpoint")]
            evaluated: self.evaluated.clone(),
        }
    }

    /// Records parameters to evaluate with, if they differ from the trained ones, given by check sum.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn note_evaluated<P: Tree + ?Sized>(&self, trained: u64, evaluated: &P) {
        let sum = check_sum(evaluated);
        self.evaluated.0.store(if sum == trained { 0 } else { sum }, Ordering::Relaxed);
    }

    /// Returns whether these are the last parameters to evaluate with, not the trained ones.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn is_evaluated<P: Tree + ?Sized>(&self, params: &P) -> bool {
        match self.evaluated.0.load(Ordering::Relaxed) {
            0 => false,
            sum => sum == check_sum(params),
        }
    }

    /// Marks the state as half written, which all steps refuse.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Checks that the state is complete and fits.
    #[doc(hidden)]
    pub fn usable(&self) -> Result<()> {
        if self.poisoned { Err(Error::poisoned()) } else { self.fits() }
    }

    /// Checks that a replaced state could be the result of `init`.
    pub(crate) fn fits(&self) -> Result<()> {
        let Some(layout) = self.layout.as_ref().filter(|_| self.lent) else { return Ok(()) };
        layout.compare(&self.inner, &self.structure).map_err(misfit)
    }

    /// Checks that this transformation can do a step.
    pub(super) fn ready(&mut self, transformation: &T) -> Result<()> {
        if self.belongs(transformation)? {
            self.made_by = transformation.clone();
        }
        self.lent = false;
        self.work.rows.clear();
        self.work.absent.clear();
        Ok(())
    }

    /// Checks that the state is usable, and that this transformation could have made it. Returns whether an argument
    /// other than a number or a schedule has changed.
    pub(super) fn belongs(&self, transformation: &T) -> Result<bool> {
        self.usable()?;
        if self.work.shape() != transformation.shape() {
            return Err(Error::other_transformation(transformation.describe()));
        }
        match transformation.changed(&self.made_by) {
            None => Ok(false),
            Some(argument) => self.survives(transformation, argument).map(|()| true),
        }
    }

    /// Checks that `init` with another argument would make an equal state.
    #[cold]
    fn survives(&self, transformation: &T, argument: &str) -> Result<()> {
        transformation.validate()?;
        let zeros = zeros(&self.structure)?;
        let mut params = Vec::new();
        leaf::moments(&zeros, &mut params);
        let state = made(transformation, &self.structure, &params, self.by_leaf)?;
        let compared = Layout::of(&state).compare(&self.inner, &self.structure);
        compared.map_err(|problem| made_with_another(argument, &problem, transformation.as_dyn()))
    }

    pub(super) fn readings(&self, transformation: &T) -> Result<Readings> {
        self.belongs(transformation)?;
        let mut reader = Reader::new(self.structure.clone());
        transformation.read(&self.inner, &mut StateWalk::of_readings(&mut reader))?;
        Ok(reader.readings())
    }

    /// Collects the gradients of whole leaves and rows, and the missing ones.
    pub(super) fn find_gradients<G: Tree + ?Sized>(&mut self, transformation: &T, grads: &G) -> Result<()> {
        let Work { grads: table, rows, path, absent, .. } = &mut self.work;
        let absent = (transformation.absent() != Absent::Refused).then_some(absent);
        table::grads_or_rows(&|walk| grads.walk(walk), &self.structure, table, rows, path, absent, &|| {
            advice(transformation)
        })
    }

    pub(super) fn run(
        &mut self,
        transformation: &T,
        value: Option<f64>,
        objective: Option<&mut (dyn Evaluate + '_)>,
        sink: Sink<'_>,
    ) -> Result<Outcome> {
        let structure = self.structure.clone();
        let at = StepContext { by_leaf: self.by_leaf, ..StepContext::new(&structure, false, value) };
        self.run_at(transformation, &at, objective, sink)
    }

    fn run_at(
        &mut self,
        transformation: &T,
        at: &StepContext<'_>,
        objective: Option<&mut (dyn Evaluate + '_)>,
        sink: Sink<'_>,
    ) -> Result<Outcome> {
        let chain = &mut RunningChain::new(transformation, &mut self.inner);
        self.work.checked_step(chain, &mut self.poisoned, at, objective, sink)
    }

    /// Does a step from a known value and gradient.
    #[doc(hidden)]
    pub fn step_from<P: TreeMut + ?Sized>(
        &mut self,
        transformation: &T,
        params: &mut P,
        known: &CachedEvaluation,
        objective: Option<&mut (dyn Evaluate + '_)>,
    ) -> Result<Outcome> {
        self.ready(transformation)?;
        table::params_mut(params, &self.structure, &mut self.work.params, &mut self.work.path)?;
        let fits =
            |(leaf, spec): (usize, &LeafSpec)| known.gradient.raw(leaf).is_some_and(|array| array.len() == spec.len());
        assert!(self.structure.leaves().iter().enumerate().all(fits), "a gradient of another structure");
        leaf::moments(&known.gradient, &mut self.work.grads);
        self.run(transformation, Some(known.value), objective, Sink::Params)
    }

    /// Returns the structure, to keep while the state changes.
    #[doc(hidden)]
    pub fn shared_structure(&self) -> Arc<Structure> {
        self.structure.clone()
    }

    /// Does a step without gradients, which emits accumulated updates.
    pub(crate) fn flush<P: TreeMut + ?Sized>(&mut self, transformation: &T, params: &mut P) -> Result<Outcome> {
        self.ready(transformation)?;
        table::params_mut(params, &self.structure, &mut self.work.params, &mut self.work.path)?;
        let structure = self.structure.clone();
        self.run_at(
            transformation,
            &StepContext { by_leaf: self.by_leaf, ..StepContext::new(&structure, true, None) },
            None,
            Sink::Params,
        )
    }
}

// Functions that are compiled once for all transformations and trees.

/// Checks a transformation and the parameters of its state; returns their structure, and buffers that hold them.
fn prepare<'a>(transformation: &dyn Transform, params: &dyn Fn(&mut Walk<'a, '_>)) -> Result<(Structure, Work)> {
    transformation.validate()?;
    let structure = Structure::by(params).unambiguous()?;
    refuse_shared(params)?;
    let mut work = Work::new(&structure, transformation)?;
    table::params(params, &structure, &mut work.params, &mut work.path)?;
    Ok((structure, work))
}

fn zeros(structure: &Structure) -> Result<Moments> {
    Moments::like(structure, &all_active(structure), 0.0, |leaf| leaf.dtype().compute())
}

fn all_active(structure: &Structure) -> Vec<bool> {
    vec![true; structure.len()]
}

fn misfit(problem: String) -> Error {
    Error::state("the replacement of the state does not fit", problem)
}

fn made_with_another(argument: &str, problem: &str, transformation: &dyn Transform) -> Error {
    let problem =
        format!("the state was made with another `{argument}` and does not fit; make one with `init`: {problem}");
    Error::state(transformation.describe(), problem)
}

fn made<T: Stage>(transformation: &T, structure: &Structure, params: &[TableLeaf], by_leaf: bool) -> Result<T::State> {
    let active = all_active(structure);
    let (quantization, in_full, whole) = (None, false, None);
    transformation.init_state(&InitContext {
        structure,
        active: &active,
        params,
        by_leaf,
        quantization,
        in_full,
        whole,
    })
}

impl<T: Stage> Deref for OptState<T> {
    type Target = T::State;
    fn deref(&self) -> &T::State {
        &self.inner
    }
}

impl<T: Stage> DerefMut for OptState<T> {
    fn deref_mut(&mut self) -> &mut T::State {
        self.layout.get_or_insert_with(|| Layout::of(&self.inner).into());
        self.lent = true;
        &mut self.inner
    }
}

impl<T: Stage> Clone for OptState<T> {
    fn clone(&self) -> Self {
        let copy = self.holding(self.inner.clone());
        OptState { poisoned: self.poisoned, lent: self.lent, eval_cache: self.eval_cache.clone(), ..copy }
    }
}

impl<T: Stage> fmt::Debug for OptState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptState").field("inner", &self.inner).field("leaves", &self.structure.len()).finish()
    }
}
