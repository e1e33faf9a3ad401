use super::{Argument, Arguments};
use crate::element::{DType, Real};
use crate::engine::{
    InitContext, Named, Optimizer, Part, Place, Shape, SlotJob, SlotList, Span, Stage, StepContext, Tile, fused_tile,
    slot_tile,
};
use crate::error::Result;
use crate::recipe::{self, Inner, Recipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Evaluation, Moments, Scalar, State, StateWalk, StateWalkMut};

/// Averages where an optimizer goes, and trains on a mix of the average and where it is: as good as a learning rate that
/// goes down on a schedule, without one.
///
/// There are three sets of parameters. The base optimizer moves `z`, which is in the state; `x` is a weighted mean of all
/// `z`, and the one to evaluate: [`eval_params`](crate::OptState::eval_params). The ones that are trained, and given to
/// `step`, are `y`, between the two. The base optimizer should have no momentum: the mix takes its place.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `d` the base optimizer's update, `lr` the learning rate of count `t` and weights `w`:
///
/// ```text
/// w = (largest lr so far)^weight_lr_power
/// c = w / (sum of all w so far)             0 as long as that is 0
/// x = (y − (1 − b1)·z) / b1
/// z ← z + d
/// x ← (1 − c)·x + c·z
/// y ← b1·x + (1 − b1)·z
/// ```
///
/// worked out as one update of `y` in which nothing is divided: `c·(z − y) + (1 − b1·(1 − c))·d`. If `b1` changes, `x` is
/// taken back with the `b1` that `y` was made with.
///
/// # Cost
///
/// One float of state for each parameter. Fuses if the base optimizer does; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` is not in `(0, 1]`, `learning_rate` is negative or not finite, `weight_lr_power` is not finite, or
/// the base optimizer refuses.
///
/// # Example
///
/// Half of each in the mix:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(params, -1.0);
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(state.1.z.to_array(0).unwrap()[[]], -2.0);
/// assert_eq!(*state.eval_params(&params)?, -1.5);
/// assert_eq!(params, -1.75);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Defazio and others, [The road less scheduled](https://arxiv.org/abs/2405.15682), 2024, algorithm 1 and section 4.3 for the
/// weights. Optax, [`contrib.schedule_free`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: scalars are
/// `f64`, and `z` of a 16-bit leaf is `f32` unless `state_dtype` asks otherwise. Both evaluate a schedule for the weights one
/// step ahead of the base optimizer.
pub fn schedule_free<T: Stage>(base_optimizer: T, learning_rate: impl Into<Hyperparam>) -> ScheduleFree<T> {
    let interpolate = Interpolate {
        learning_rate: learning_rate.into(),
        b1: 0.9.into(),
        weight_lr_power: 2.0.into(),
        state_dtype: None,
    };
    ScheduleFree { chain: (base_optimizer, interpolate) }
}

/// See [`schedule_free`].
///
/// Its state is a pair: that of the base optimizer and a [`ScheduleFreeState`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScheduleFree<T> {
    pub(crate) chain: (T, Interpolate),
}

impl<T> ScheduleFree<T> {
    /// Sets the learning rate by which steps are weighted; the base optimizer has its own.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.chain.1.learning_rate = learning_rate.into();
        self
    }

    /// Sets how much of the average is in the parameters that are trained, in `(0, 1]`.
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.chain.1.b1 = b1.into();
        self
    }

    /// Sets the power of the learning rate that a step's weight is.
    pub fn weight_lr_power(mut self, weight_lr_power: impl Into<Hyperparam>) -> Self {
        self.chain.1.weight_lr_power = weight_lr_power.into();
        self
    }

    /// Sets the type of `z`; by default the one that arithmetic is done in.
    pub fn state_dtype(mut self, state_dtype: impl Into<Option<DType>>) -> Self {
        self.chain.1.state_dtype = state_dtype.into();
        self
    }
}

impl<T: Stage> Arguments for ScheduleFree<T> {
    const NAME: &'static str = "schedule_free";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let (base, interpolate) = &mut self.chain;
        visit("base_optimizer", Argument::Static(&Inner(&*base)));
        visit("learning_rate", Argument::Hyperparam(&mut interpolate.learning_rate));
        visit("b1", Argument::Hyperparam(&mut interpolate.b1));
        visit("weight_lr_power", Argument::Hyperparam(&mut interpolate.weight_lr_power));
        visit("state_dtype", Argument::Static(&interpolate.state_dtype));
    }
}

impl<T: Stage> Part for ScheduleFree<T> {
    const NAME: &'static str = "schedule_free";
    type Form = Named;

    fn recipe(&self) -> Recipe {
        recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        format!("schedule_free({})", self.chain.0.describe())
    }
}

impl<T: Stage> Optimizer for ScheduleFree<T> {
    type Chain = (T, Interpolate);
    fn chain(&self) -> &(T, Interpolate) {
        &self.chain
    }
}

/// The part of [`schedule_free`] that comes after the base optimizer: turns its update of `z` into one of `y`.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Interpolate {
    pub(crate) learning_rate: Hyperparam,
    pub(crate) b1: Hyperparam,
    pub(crate) weight_lr_power: Hyperparam,
    pub(crate) state_dtype: Option<DType>,
}

/// What [`schedule_free`] remembers besides the base optimizer's state.
#[derive(Clone, Debug)]
pub struct ScheduleFreeState {
    /// Steps done.
    pub count: Count,
    /// The `b1` that the parameters were made with.
    pub b1: Scalar,
    /// The largest learning rate so far.
    pub max_lr: Scalar,
    /// The sum of the weights.
    pub weight_sum: Scalar,
    /// The parameters that the base optimizer moves.
    pub z: Moments,
}

impl State for ScheduleFreeState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        let b1 = self.b1.get();
        walk.evaluation(Evaluation { moments: &self.z, of_params: 1.0 / b1, of_moments: -(1.0 - b1) / b1 });
        walk.child("count", &self.count);
        walk.child("b1", &self.b1);
        walk.child("max_lr", &self.max_lr);
        walk.child("weight_sum", &self.weight_sum);
        walk.child("z", &self.z);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("count", &mut self.count);
        walk.child("b1", &mut self.b1);
        walk.child("max_lr", &mut self.max_lr);
        walk.child("weight_sum", &mut self.weight_sum);
        walk.child("z", &mut self.z);
    }
}

/// An update of `y` is `of_gap·(z − y) + of_step·d`, with `z` before the step `d`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Mix<C> {
    of_gap: C,
    of_step: C,
}

impl Interpolate {
    /// How much of the average the new `z` becomes.
    fn weigh(&self, state: &mut ScheduleFreeState) -> f64 {
        let count = state.count.get();
        let rate = self.learning_rate.at(count.saturating_add(1));
        // Not `max`, which would drop a NaN.
        let largest = if state.max_lr.get() > rate { state.max_lr.get() } else { rate };
        let weight = largest.powf(self.weight_lr_power.at(count));
        let sum = state.weight_sum.get() + weight;
        state.max_lr.set(largest);
        state.weight_sum.set(sum);
        // The learning rate has been 0 so far.
        if sum == 0.0 { 0.0 } else { weight / sum }
    }
}

impl Stage for Interpolate {
    type Needs = crate::needs::Nothing;
    type State = ScheduleFreeState;
    type Run = Mix<f64>;
    type Kernel<C: Real> = Mix<C>;

    const SHAPE: Shape = Shape::elementwise(true, true);
    const FUSES: bool = true;
    const SLOTS: usize = 1;

    fn validate(&self) -> Result<()> {
        const NAME: &str = "schedule_free";
        let rate = |x: f64| x >= 0.0 && x.is_finite();
        self.learning_rate.validate(NAME, "learning_rate", "finite and not negative", rate)?;
        self.b1.validate(NAME, "b1", "in (0, 1]", |x| 0.0 < x && x <= 1.0)?;
        self.weight_lr_power.validate(NAME, "weight_lr_power", "finite", f64::is_finite)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScheduleFreeState> {
        Ok(ScheduleFreeState {
            count: Count::default(),
            b1: Scalar::new(self.b1.at(0)),
            max_lr: Scalar::default(),
            weight_sum: Scalar::default(),
            z: at.params_as_moments_of(self.state_dtype)?,
        })
    }

    fn begin(&self, state: &mut ScheduleFreeState, _: &StepContext<'_>) -> Mix<f64> {
        let c = self.weigh(state);
        let (before, b1) = (state.b1.get(), self.b1.at(state.count.get()));
        state.b1.set(b1);
        state.count.increment();
        let of_gap = if before == b1 { c } else { 1.0 - b1 / before * (1.0 - c) };
        Mix { of_gap, of_step: 1.0 - b1 * (1.0 - c) }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Mix<f64>, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if state.z.dtype(tile.leaf()) == Some(C::DTYPE) {
            return fused_tile(self, state, run, place, span, tile);
        }
        if span.has(place.at) {
            let mix = self.kernel::<C>(state, run, tile.leaf());
            slot_tile(&state.z, tile, TakeStep(mix));
            slot_tile(&state.z, tile, AddRounded(mix));
        }
    }

    fn fuses_now(&self, _: &Self::State, _: &Mix<f64>, _: usize) -> bool {
        // Where `z` is rounded when it is stored, `y` is mixed with what was stored: see `tile`.
        self.state_dtype.is_none()
    }

    #[inline]
    fn kernel<C: Real>(&self, _: &Self::State, run: &Mix<f64>, _: usize) -> Mix<C> {
        Mix { of_gap: C::of(run.of_gap), of_step: C::of(run.of_step) }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        list.push(&state.z, leaf);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Mix<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, _: &mut [u32]) -> C {
        if !span.has(at) {
            return u;
        }
        let gap = slots[0] - p;
        slots[0] += u;
        k.of_gap * gap + k.of_step * u
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        if span.has(at) { state.z.dtype(leaf).map_or(0, |dtype| 2 * dtype.size()) } else { 0 }
    }

    fn describe(&self) -> String {
        "interpolate".into()
    }
}

/// Moves `z`, and leaves of the update what does not depend on where that is once it is rounded.
struct TakeStep<C>(Mix<C>);

impl<C: Real> SlotJob<C> for TakeStep<C> {
    #[inline(always)]
    fn run(self, u: &mut [C], p: &[C], z: &mut [C]) {
        for ((u, p), z) in u.iter_mut().zip(p).zip(z) {
            let step = *u;
            *u = self.0.of_gap * (*z - *p) - self.0.of_step * *z;
            *z += step;
        }
    }
}

/// Adds the rest.
struct AddRounded<C>(Mix<C>);

impl<C: Real> SlotJob<C> for AddRounded<C> {
    #[inline(always)]
    fn run(self, u: &mut [C], _: &[C], z: &mut [C]) {
        u.iter_mut().zip(z).for_each(|(u, z)| *u += self.0.of_step * *z);
    }
}
