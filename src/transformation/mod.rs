//! What users hold: a transformation, and the state of one.

mod state;

pub use state::OptState;
#[cfg(feature = "checkpoint")]
pub(crate) use state::check_sum;

use crate::engine::{Absent, Outcome, Plan, Sink, Stage, Updates, Viewed, Work, advice, refuse_mistakes, table};
use crate::error::{Error, Result};
use crate::extra::Extra;
use crate::needs::{Level, Provides};
use crate::program::{Machine, Passes, Programs};
use crate::state::Readings;
use crate::tree::{Tree, TreeMut, buffers_of};

/// What an error says where updates take the place of gradients and a window may give an update to a leaf without one.
const OF_WINDOW: &str = "; a window may have an update for a leaf without a gradient: use `step` or `update`";

/// A transformation of gradients into updates, such as [`adamw`](crate::adamw) or a [`chain`](crate::chain).
///
/// Every [`Rule`](crate::part::Rule), every wrapper and every tuple of transformations is one; so is a
/// [`Boxed`](crate::wrapper::Boxed) transformation.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use ndarray::array;
///
/// let optimizer = chain((clip_by_global_norm(1.0), sgd(0.5)));
/// let mut params = array![1.0_f32, 2.0];
/// let mut state = optimizer.init(&params)?;
///
/// // The gradient [3, 4] has norm 5, so it is clipped to [0.6, 0.8].
/// let outcome = optimizer.step(&mut params, &array![3.0_f32, 4.0], &mut state)?;
/// assert!(outcome.emitted());
/// assert_eq!(params, array![0.7, 1.6]);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub trait GradientTransformation: Stage {
    /// The state before the first step, for parameters of this structure.
    ///
    /// # Errors
    ///
    /// If an argument is out of its range, or a mask or label does not fit the parameters; if the transformation has
    /// more than 31 barriers; if two leaves share memory, as clones of an `ArcArray` do (see
    /// [`Tied`](crate::tree::Tied)). If something in it is surely a mistake, of which [`plan`](Self::plan) only warns:
    /// a mask or a group by paths that takes no leaf, a negative learning rate or weight decay, two learning rates in a
    /// row. [`allow`](crate::wrapper::allow()) says that it is meant.
    fn init<P: Tree + ?Sized>(&self, params: &P) -> Result<OptState<Self>>
    where
        Self: Sized,
    {
        let state = OptState::new(self, params)?;
        refuse_mistakes(&Viewed { stage: self, state: &state.inner, run: None }, &state.structure)?;
        Ok(state)
    }

    /// Transforms gradients and adds the updates to the parameters, in one go. The gradient of a leaf may be that of
    /// some [rows](crate::tree::SparseRows) only.
    ///
    /// The result has the same bits as [`update`](Self::update) followed by
    /// [`apply_updates`](crate::apply_updates), without the updates ever being in memory.
    ///
    /// # Errors
    ///
    /// If the parameters or gradients do not have the structure that the state was made for: all differing leaves are
    /// listed, and nothing has been changed. Gradients may be a tree of another type, and of another float type as long
    /// as nothing is lost by converting them to the one that the leaf's arithmetic is done in.
    ///
    /// # Panics
    ///
    /// Only if code of yours does: a rule, a schedule made of a function, a tree. Unless that was before the step
    /// began, the state [is an error](crate::Error::is_poisoned) to use from then on. Parameters have not been changed,
    /// unless it was in a rule in the last pass: then each element is as before or as after the step.
    fn step<P, G>(&self, params: &mut P, grads: &G, state: &mut OptState<Self>) -> Result<Outcome>
    where
        P: TreeMut + ?Sized,
        G: Tree + ?Sized,
        (): Provides<Self::Needs>,
        Self: Sized,
    {
        state.ready(self)?;
        table::params_mut(params, &state.structure, &mut state.work.params, &mut state.work.path)?;
        state.find_gradients(self, grads)?;
        state.run(self, None, None, Sink::Params)
    }

    /// As [`step`](Self::step), with what the transformation [needs](crate::needs) besides gradients, such as the loss.
    ///
    /// ```
    /// use gradchain::extra;
    /// use gradchain::prelude::*;
    /// use gradchain::optimizer::polyak_sgd;
    ///
    /// let optimizer = polyak_sgd();
    /// let mut params = 2.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step_with(&mut params, &2.0, extra::value(2.0), &mut state)?;
    /// assert_eq!(params, 1.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step). If a function that gives gradients gives one of another structure, the parameters are
    /// not changed, and the state cannot be used any more, since the step had begun.
    fn step_with<P, G, E>(&self, params: &mut P, grads: &G, mut extra: E, state: &mut OptState<Self>) -> Result<Outcome>
    where
        P: TreeMut + ?Sized,
        G: Tree + ?Sized,
        E: Extra<P> + Provides<Self::Needs>,
        Self: Sized,
    {
        state.ready(self)?;
        let (value, asks) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if asks { extra.objective(params) } else { None };
        table::params_mut(params, &state.structure, &mut state.work.params, &mut state.work.path)?;
        state.find_gradients(self, grads)?;
        state.run(self, value, objective.as_deref_mut(), Sink::Params)
    }

    /// Transforms gradients into updates, to look at or to apply later; the parameters are not changed.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    fn update<P, G>(&self, grads: &G, state: &mut OptState<Self>, params: &P) -> Result<Updates>
    where
        P: Tree + ?Sized,
        G: Tree + ?Sized,
        (): Provides<Self::Needs>,
        Self: Sized,
    {
        let mut updates = state.zero_updates();
        self.update_into(grads, state, params, &mut updates)?;
        Ok(updates)
    }

    /// As [`update`](Self::update), with what the transformation [needs](crate::needs) besides gradients.
    ///
    /// # Errors
    ///
    /// As [`step_with`](Self::step_with).
    fn update_with<P, G, E>(&self, grads: &G, extra: E, state: &mut OptState<Self>, params: &P) -> Result<Updates>
    where
        P: Tree + ?Sized,
        G: Tree + ?Sized,
        E: Extra<P> + Provides<Self::Needs>,
        Self: Sized,
    {
        let mut updates = state.zero_updates();
        self.update_into_with(grads, extra, state, params, &mut updates)?;
        Ok(updates)
    }

    /// As [`update`](Self::update), into updates that an earlier call made, so that nothing is allocated.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step); and if the updates were made for parameters of another structure.
    fn update_into<P, G>(
        &self,
        grads: &G,
        state: &mut OptState<Self>,
        params: &P,
        updates: &mut Updates,
    ) -> Result<Outcome>
    where
        P: Tree + ?Sized,
        G: Tree + ?Sized,
        (): Provides<Self::Needs>,
        Self: Sized,
    {
        self.update_into_with(grads, (), state, params, updates)
    }

    /// As [`update_into`](Self::update_into), with what the transformation [needs](crate::needs) besides gradients.
    ///
    /// # Errors
    ///
    /// As [`step_with`](Self::step_with); and if the updates were made for parameters of another structure.
    fn update_into_with<P, G, E>(
        &self,
        grads: &G,
        mut extra: E,
        state: &mut OptState<Self>,
        params: &P,
        updates: &mut Updates,
    ) -> Result<Outcome>
    where
        P: Tree + ?Sized,
        G: Tree + ?Sized,
        E: Extra<P> + Provides<Self::Needs>,
        Self: Sized,
    {
        state.ready(self)?;
        if updates.structure != state.structure {
            let differences = state.structure.differences_in_memory(&updates.structure);
            return Err(Error::structure("the updates were made for other parameters", differences));
        }
        table::params(params, &state.structure, &mut state.work.params, &mut state.work.path)?;
        state.find_gradients(self, grads)?;
        let (value, asks) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if asks { extra.objective(params) } else { None };
        let outcome = state.run(self, value, objective.as_deref_mut(), Sink::Updates(&updates.leaves))?;
        updates.outcome = outcome;
        Ok(outcome)
    }

    /// As [`update`](Self::update), in the gradients' own arrays: they are given by value, and come back as the
    /// updates.
    ///
    /// Nothing is allocated, and no second tree is in memory. The bits are those of `update`. Gradients that are lent
    /// (`&mut grads`) are written in place.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = chain((clip(1.0), sgd(0.5)));
    /// let mut params = vec![1.0_f32, 2.0];
    /// let mut state = optimizer.init(&params)?;
    /// let gradient = vec![0.5_f32, 3.0];
    /// let (updates, outcome) = optimizer.update_owned(gradient, &mut state, &params)?;
    /// assert_eq!(updates, [-0.25, -0.5]);
    /// assert!(outcome.emitted());
    /// apply_updates(&mut params, &updates)?;
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step); and if gradients are of other types than the parameters, since they have to hold the
    /// updates. Then nothing has been written, and what was given by value is dropped.
    fn update_owned<P, G>(&self, grads: G, state: &mut OptState<Self>, params: &P) -> Result<(G, Outcome)>
    where
        P: Tree + ?Sized,
        G: TreeMut,
        (): Provides<Self::Needs>,
        Self: Sized,
    {
        self.update_owned_with(grads, (), state, params)
    }

    /// As [`update_owned`](Self::update_owned), with what the transformation [needs](crate::needs) besides gradients.
    ///
    /// # Errors
    ///
    /// As [`update_owned`](Self::update_owned) and [`step_with`](Self::step_with).
    fn update_owned_with<P, G, E>(
        &self,
        mut grads: G,
        mut extra: E,
        state: &mut OptState<Self>,
        params: &P,
    ) -> Result<(G, Outcome)>
    where
        P: Tree + ?Sized,
        G: TreeMut,
        E: Extra<P> + Provides<Self::Needs>,
        Self: Sized,
    {
        state.ready(self)?;
        table::params(params, &state.structure, &mut state.work.params, &mut state.work.path)?;
        let Work { grads: to, path, absent, .. } = &mut state.work;
        // A leaf that is counted may have an update, for which there would be no place.
        let (rests, counts) = (self.absent() == Absent::Rests, self.absent() == Absent::Counts);
        let instead = || if counts { OF_WINDOW.into() } else { advice(self) };
        table::grads_mut(&mut grads, &state.structure, to, path, rests.then_some(absent), &instead)?;
        let (value, asks) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if asks { extra.objective(params) } else { None };
        let outcome = state.run(self, value, objective.as_deref_mut(), Sink::Gradients)?;
        Ok((grads, outcome))
    }

    /// Numbers of the last step, by path: learning rates and other arguments as the step used them, norms and factors
    /// that it found, counts of NaN, and what a [`monitor`](crate::transform::monitor) measured.
    ///
    /// Nothing is measured for it: the numbers are in the state, or follow from its counts. Arguments of a named
    /// optimizer have the optimizer's path, not the path of the part that uses them. A number that no step has found
    /// since the state was made or loaded is NaN. Before the first step a schedule has its value of that step.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer: Boxed = boxed(chain((clip_by_global_norm(1.0), adamw(cosine_decay(0.5, 10)))));
    /// let mut params = vec![0.0_f64, 0.0];
    /// let mut state = optimizer.init(&params)?;
    /// for _ in 0..6 {
    ///     optimizer.step(&mut params, &vec![3.0, 4.0], &mut state)?;
    /// }
    /// let readings = optimizer.readings(&state)?;
    /// assert_eq!(readings.get("learning_rate")?, 0.25); // that of the step with count 5, half way down
    /// assert_eq!(readings.get("clip_by_global_norm.norm")?, 5.0);
    /// assert_eq!(readings.get("clip_by_global_norm.factor")?, 0.2);
    /// assert_eq!(readings.get("1.b1")?, 0.9);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Cost
    ///
    /// A walk over the chain, whatever the size of the parameters; a text for each number.
    ///
    /// # Errors
    ///
    /// If the state was made by another transformation, or [cannot be used any more](crate::Error::is_poisoned).
    fn readings(&self, state: &OptState<Self>) -> Result<Readings>
    where
        Self: Sized,
    {
        state.readings(self)
    }

    /// Does a step whose passes are done by another machine, such as a GPU, which has the parameters, the gradients and
    /// the state's arrays. The counts, scalars and decisions of the state are worked out here, as in
    /// [`step`](Self::step); its arrays here stay as they are.
    ///
    /// See [`Machine`] for what it is told, and [`Interpreter`](crate::program::Interpreter) for an example.
    ///
    /// # Cost
    ///
    /// Each pass is recorded for each leaf: some microseconds. What costs a machine time to prepare, it can keep:
    /// programs that do the same [are equal](crate::program::Program), whatever the step.
    ///
    /// # Errors
    ///
    /// If a part [cannot be recorded](crate::Error::is_unrecordable), of which the name is said; if the machine fails.
    /// Unless that was found before the step began, the state [cannot be used any more](crate::Error::is_poisoned):
    /// [`programs`](Self::programs) tells beforehand.
    fn step_on<E>(&self, machine: &mut dyn Machine, extra: E, state: &mut OptState<Self>) -> Result<Outcome>
    where
        E: Extra<()> + Provides<Self::Needs>,
        Self: Sized,
    {
        if self.needs() >= Level::ValueFn {
            return Err(Error::unrecordable(&self.describe(), "it asks for the loss at other points"));
        }
        let mut passes = Passes::new(machine, &state.inner);
        state.run_elsewhere(self, extra.loss(), &mut passes)
    }

    /// The arithmetic of a step, pass by pass, as programs that can be shown, compared, run, or written in another
    /// language: of the first step for parameters of this structure, when all that is added up at barriers is 0 and the
    /// loss is 1.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = chain((clip_by_global_norm(1.0), sgd(0.1)));
    /// let shown = optimizer.programs(&vec![0.0_f32; 8])?.to_string();
    /// let lines = [
    ///     "pass 0, from gradients, leaves 0",
    ///     "f32: u; s0, s1",
    ///     "t1 = f64(u)",
    ///     "sum0' = t1 * t1",
    ///     "pass 1, from gradients, leaves 0",
    ///     "f32: u, p; s0, s1, s2",
    ///     "t1 = u * s1",
    ///     "t2 = s2 * t1",
    ///     "t3 = t2 == 0.0",
    ///     "t4 = if t3 then -0.0 else t2",
    ///     "p' = p + t4",
    /// ];
    /// assert_eq!(shown.lines().collect::<Vec<_>>(), lines);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init); and if a part [cannot be recorded](crate::Error::is_unrecordable), since it works on
    /// whole leaves (but `scale_by_muon` can), asks for the loss at other points, goes by where an element is, looks at
    /// stretches of updates, or does to numbers what is neither arithmetic nor comparison. The error says which part,
    /// and why.
    fn programs<P: Tree + ?Sized>(&self, params: &P) -> Result<Programs>
    where
        Self: Sized,
    {
        if self.needs() >= Level::ValueFn {
            return Err(Error::unrecordable(&self.describe(), "it asks for the loss at other points"));
        }
        let (mut state, mut programs) = (self.init(params)?, Programs::default());
        let mut passes = Passes::new(&mut programs, &state.inner);
        state.run_elsewhere(self, Some(1.0), &mut passes)?;
        Ok(programs)
    }

    /// What a step does to memory, for parameters of this structure and gradients of the same types.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let plan = adam(1e-3).plan(&vec![0.0_f32; 1000])?;
    /// assert_eq!(plan.passes.len(), 1);
    /// // Read the gradient, read and write the parameter and two moments: 4 + 8 + 16.
    /// assert_eq!(plan.bytes_per_element(), 28.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init), but for what is surely a mistake: that is among the [warnings](Plan::warnings).
    fn plan<P: Tree + ?Sized>(&self, params: &P) -> Result<Plan>
    where
        Self: Sized,
    {
        let state = OptState::new(self, params)?;
        let structure = &*state.structure;
        let buffers = buffers_of(params).into_iter().map(|(spec, _)| spec).collect();
        Ok(Plan { buffers, ..Plan::of(self, &state.inner, structure, |leaf| structure.leaves()[leaf].dtype()) })
    }
}

impl<T: Stage> GradientTransformation for T {}
