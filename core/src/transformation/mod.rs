//! Transformations and their states, as users see them.

mod state;

pub use state::OptState;
#[cfg(feature = "checkpoint")]
pub(crate) use state::check_sum;

use crate::engine::{Absent, Outcome, Plan, Sink, Stage, Updates, Viewed, Work, advice, refuse_mistakes, table};
use crate::error::{Error, Result};
use crate::extra::Extra;
use crate::needs::{Level, Provides};
use crate::state::Readings;
use crate::tree::{Tree, TreeMut, buffers_of};

/// The end of an error message if updates replace gradients and a window may emit an update for a leaf without one.
const OF_WINDOW: &str = "; a window may emit an update for a leaf without a gradient: use `step` or `update`";

/// A transformation of gradients into updates, such as [`adamw`] or a [`chain`].
///
/// Every [`Rule`](crate::part::Rule), every wrapper and every tuple of transformations is one; so is a
/// [`Boxed`] transformation.
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
///
/// [`adamw`]: https://docs.rs/gradchain/latest/gradchain/optimizer/fn.adamw.html
/// [`chain`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.chain.html
/// [`Boxed`]: https://docs.rs/gradchain/latest/gradchain/wrapper/type.Boxed.html
pub trait GradientTransformation: Stage {
    /// Returns the state before the first step, for parameters of this structure.
    ///
    /// # Errors
    ///
    /// Fails if an argument is out of its range, or a mask or label does not fit the parameters; if the transformation
    /// has more than 31 barriers; if two leaves share memory, as clones of an `ArcArray` do (see
    /// [`Tied`](crate::tree::Tied)). Fails for mistakes that [`plan`](Self::plan) only warns of: a mask or a
    /// group by paths without a leaf, a negative learning rate or weight decay, two learning rates in a row.
    /// [`allow`] permits them.
    ///
    /// [`allow`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.allow.html
    fn init<P: Tree + ?Sized>(&self, params: &P) -> Result<OptState<Self>>
    where
        Self: Sized,
    {
        let state = OptState::new(self, params)?;
        refuse_mistakes(&Viewed { stage: self, state: &state.inner, run: None }, &state.structure)?;
        Ok(state)
    }

    /// Transforms gradients and adds the updates to the parameters, in as few passes over memory as possible.
    ///
    /// The gradient of a leaf may be [row-sparse](crate::tree::SparseRows).
    ///
    /// The result is bitwise identical to [`update`](Self::update) followed by [`apply_updates`](crate::apply_updates),
    /// without storing the updates.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the parameters or gradients do not have the structure of the state: all
    /// differing leaves are listed. Gradients may be a tree of another type, and of another float type if it converts
    /// to the leaf's compute type without loss.
    ///
    /// # Panics
    ///
    /// Panics only if user code does: a rule, a schedule by a function, a tree. Unless it did so before the step began,
    /// the state [is poisoned](crate::Error::is_poisoned). Parameters are unchanged, except if a rule of the last pass
    /// panicked: then each element is as before or as after the step.
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

    /// As [`step`](Self::step), with the further [needs](crate::needs) of the transformation, such as the loss.
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
    /// As [`step`](Self::step). If a function returns gradients of another structure, the parameters are unchanged, and
    /// the state is poisoned, since the step had begun.
    fn step_with<P, G, E>(&self, params: &mut P, grads: &G, mut extra: E, state: &mut OptState<Self>) -> Result<Outcome>
    where
        P: TreeMut + ?Sized,
        G: Tree + ?Sized,
        E: Extra<P> + Provides<Self::Needs>,
        Self: Sized,
    {
        state.ready(self)?;
        let (value, needs_loss) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if needs_loss { extra.objective(params) } else { None };
        table::params_mut(params, &state.structure, &mut state.work.params, &mut state.work.path)?;
        state.find_gradients(self, grads)?;
        state.run(self, value, objective.as_deref_mut(), Sink::Params)
    }

    /// Transforms gradients into updates, for inspection or for a later step; the parameters are not changed.
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

    /// As [`update`](Self::update), with the further [needs](crate::needs) of the transformation.
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

    /// As [`update`](Self::update), into updates of an earlier call, so that nothing is allocated.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step); also if the updates were made for parameters of another structure.
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

    /// As [`update_into`](Self::update_into), with the further [needs](crate::needs) of the transformation.
    ///
    /// # Errors
    ///
    /// As [`step_with`](Self::step_with); also if the updates were made for parameters of another structure.
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
        table::params(&|walk| params.walk(walk), &state.structure, &mut state.work.params, &mut state.work.path)?;
        state.find_gradients(self, grads)?;
        let (value, needs_loss) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if needs_loss { extra.objective(params) } else { None };
        let outcome = state.run(self, value, objective.as_deref_mut(), Sink::Updates(&updates.leaves))?;
        updates.outcome = outcome;
        Ok(outcome)
    }

    /// As [`update`](Self::update), in the gradients' own arrays.
    ///
    /// The gradients are passed by value, and returned as the updates.
    ///
    /// Nothing is allocated, and memory holds no second tree. The result is bitwise identical to that of `update`.
    /// Borrowed gradients (`&mut grads`) are overwritten in place.
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
    /// As [`step`](Self::step); also if gradients are of other types than the parameters, since they have to hold the
    /// updates. Then nothing has been written, and gradients passed by value are dropped.
    fn update_owned<P, G>(&self, grads: G, state: &mut OptState<Self>, params: &P) -> Result<(G, Outcome)>
    where
        P: Tree + ?Sized,
        G: TreeMut,
        (): Provides<Self::Needs>,
        Self: Sized,
    {
        self.update_owned_with(grads, (), state, params)
    }

    /// As [`update_owned`](Self::update_owned), with the further [needs](crate::needs) of the transformation.
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
        table::params(&|walk| params.walk(walk), &state.structure, &mut state.work.params, &mut state.work.path)?;
        let Work { grads: to, path, absent, .. } = &mut state.work;
        // A counted leaf may have an update, without a place for it.
        let (rests, counts) = (self.absent() == Absent::Rests, self.absent() == Absent::Counts);
        let instead = || if counts { OF_WINDOW.into() } else { advice(self) };
        table::grads_mut(&mut grads, &state.structure, to, path, rests.then_some(absent), &instead)?;
        let (value, needs_loss) = (extra.loss(), self.needs() >= Level::ValueFn);
        let mut objective = if needs_loss { extra.objective(params) } else { None };
        let outcome = state.run(self, value, objective.as_deref_mut(), Sink::Gradients)?;
        Ok((grads, outcome))
    }

    /// Returns numbers of the last step, by path.
    ///
    /// They are learning rates and other arguments as the step used them, norms and factors that it found, counts of
    /// NaN, and the measurements of a [`monitor`].
    ///
    /// Nothing is measured for it: the numbers are in the state, or follow from its counts. Arguments of a named
    /// optimizer have the optimizer's path, not the path of the part that uses them. A number without a value since the
    /// state was made or loaded is NaN. Before the first step a schedule has its value of that step.
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
    /// A walk over the chain, independent of the size of the parameters; an allocated path for each number.
    ///
    /// # Errors
    ///
    /// Fails if the state was made by another transformation, or [is poisoned](crate::Error::is_poisoned).
    ///
    /// [`monitor`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.monitor.html
    fn readings(&self, state: &OptState<Self>) -> Result<Readings>
    where
        Self: Sized,
    {
        state.readings(self)
    }

    /// Does a step whose passes run on a device, such as a GPU.
    ///
    /// The device holds the parameters, the gradients and the state's arrays. The host computes the counts, scalars and
    /// decisions of the state, as in [`step`](Self::step); its own arrays stay unchanged.
    ///
    /// See [`Executor`](crate::program::Executor) for the interface, and
    /// [`Interpreter`](crate::program::Interpreter) for an example.
    ///
    /// # Cost
    ///
    /// Each pass is recorded for each leaf: some microseconds. A device can cache its preparations: programs that do
    /// the same [are equal](crate::program::Program), in all steps.
    ///
    /// # Errors
    ///
    /// Fails if a part [cannot be recorded](crate::Error::is_unrecordable), with its name; or if the device fails.
    /// Unless that happened before the step began, the state [is poisoned](crate::Error::is_poisoned).
    /// [`programs`](Self::programs) checks in advance.
    #[cfg(feature = "program")]
    #[cfg_attr(docsrs, doc(cfg(feature = "program")))]
    fn step_on<E>(
        &self,
        machine: &mut dyn crate::program::Executor,
        extra: E,
        state: &mut OptState<Self>,
    ) -> Result<Outcome>
    where
        E: Extra<()> + Provides<Self::Needs>,
        Self: Sized,
    {
        state::on_device::step_on(self, machine, extra.loss(), state)
    }

    /// Returns the arithmetic of a step, pass by pass, as programs that can be shown, compared, run, or translated.
    ///
    /// They are those of the first step for parameters of this structure, with all sums 0 and a loss of 1.
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
    /// As [`init`](Self::init); also if a part [cannot be recorded](crate::Error::is_unrecordable), since it works on
    /// whole leaves (except `scale_by_muon`), evaluates the loss at other points, depends on the places of elements,
    /// inspects chunks of updates, or uses operations other than arithmetic and comparisons. The error names the part
    /// and the reason.
    #[cfg(feature = "program")]
    #[cfg_attr(docsrs, doc(cfg(feature = "program")))]
    fn programs<P: Tree + ?Sized>(&self, params: &P) -> Result<crate::program::Programs>
    where
        Self: Sized,
    {
        state::on_device::programs(self, params)
    }

    /// Returns the memory traffic of a step, for parameters of this structure and gradients of the same types.
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
    /// As [`init`](Self::init), except for certain mistakes, which are among the [warnings](Plan::warnings).
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
