use crate::arguments::{Argument, Arguments, Visit};
use crate::internal::engine::{LeafSlice, OneElementWithMemory, RuleWithMemory};
use crate::internal::numeric::{Rounding, convert, with_dtype};
use crate::part::prelude::*;
use crate::range::{FINITE, NOT_NEGATIVE, POSITIVE_FRACTION};
use crate::state::{EvaluateAs, StateWalk, StateWalkMut};
use crate::transform::LeafTypes;
use crate::{Element, GradientTransformation};

/// Replaces a schedule by iterate averaging: trains on an interpolation of the iterate and the average of iterates.
///
/// It keeps three sets of parameters. The base optimizer moves `z`, which is in the state. `x` is a weighted mean of
/// all `z`, for evaluation: [`eval_params`](crate::OptState::eval_params). `y`, between the two, is trained and passed
/// to `step`. The base optimizer should have no momentum: the interpolation takes its place.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `d` the base optimizer's update, `lr` the learning rate of count `t` and weights
/// `w`:
///
/// ```text
/// w = (largest lr so far)^weight_lr_power
/// c = w / (sum of all w so far)             0 while that is 0
/// x = (y − (1 − b1)·z) / b1
/// z ← z + d
/// x ← (1 − c)·x + c·z
/// y ← b1·x + (1 − b1)·z
/// ```
///
/// computed as one update of `y` without a division: `c·(z − y) + (1 − b1·(1 − c))·d`. If `b1` changes, `x` is
/// recovered with the `b1` that `y` was made with.
///
/// 16-bit parameters are rounded, and `x` cannot be recovered from them: most moves of `y` are below the spacing of
/// 16-bit numbers. For such leaves the state keeps `x` too, in `f32`, and moves it by the formulas above. Inside
/// [`master`](crate::wrapper::master()) it does not, because `y` is in `f32` there.
///
/// # Cost
///
/// One float of state per parameter, two for each 16-bit parameter. Fuses if the base optimizer does, except on 16-bit
/// leaves; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` is not in `(0, 1]`, `learning_rate` is negative or not finite, `weight_lr_power` is not finite,
/// or the base optimizer's `init` fails.
///
/// # Example
///
/// With `b1` 0.5, `y` is half way between `x` and `z`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::schedule_free;
///
/// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(params, -1.0);
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(state.1.moment("z").unwrap().to_array(0).unwrap()[[]], -2.0);
/// assert_eq!(*state.eval_params(&params)?, -1.5);
/// assert_eq!(params, -1.75);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Defazio and others, [The road less scheduled](https://arxiv.org/abs/2405.15682), 2024, algorithm 1 and section 4.3
/// for the weights. Optax, [`contrib.schedule_free`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs:
/// scalars are `f64`, and `z` of a 16-bit leaf is `f32` unless `state_dtype` is set. Both evaluate a schedule for the
/// weights one step ahead of the base optimizer.
pub fn schedule_free<T: GradientTransformation>(
    base_optimizer: T,
    learning_rate: impl IntoHyperparam,
) -> ScheduleFree<T> {
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
/// Its state is a pair: that of the base optimizer and a [`ScheduleFreeState`] with the arrays `z` and, for 16-bit
/// leaves, `x`.
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScheduleFree<T> {
    pub(crate) chain: (T, Interpolate),
}

impl<T> ScheduleFree<T> {
    /// Sets the learning rate by which steps are weighted; the base optimizer has its own.
    pub fn learning_rate(mut self, learning_rate: impl IntoHyperparam) -> Self {
        self.chain.1.learning_rate = learning_rate.into();
        self
    }

    /// Sets the weight of the average in the trained parameters, in `(0, 1]`.
    pub fn b1(mut self, b1: impl IntoHyperparam) -> Self {
        self.chain.1.b1 = b1.into();
        self
    }

    /// Sets the exponent of the learning rate in a step's weight.
    pub fn weight_lr_power(mut self, weight_lr_power: impl IntoHyperparam) -> Self {
        self.chain.1.weight_lr_power = weight_lr_power.into();
        self
    }

    /// Sets the dtype of `z`; by default the compute type.
    pub fn state_dtype(mut self, state_dtype: impl Into<Option<DType>>) -> Self {
        self.chain.1.state_dtype = state_dtype.into();
        self
    }
}

impl<T: GradientTransformation> Arguments for ScheduleFree<T> {
    const NAME: &'static str = "schedule_free";

    fn arguments(&mut self, visit: &mut Visit<'_>) {
        let (base, interpolate) = &mut self.chain;
        visit("base_optimizer", Argument::Static(&mut Inner(base)));
        visit("learning_rate", Argument::Hyperparam(&mut interpolate.learning_rate));
        visit("b1", Argument::Hyperparam(&mut interpolate.b1));
        visit("weight_lr_power", Argument::Hyperparam(&mut interpolate.weight_lr_power));
        visit("state_dtype", Argument::Static(&mut interpolate.state_dtype));
    }
}

impl<T: GradientTransformation> Part for ScheduleFree<T> {
    const NAME: &'static str = "schedule_free";
    type Form = Named;

    fn own_arguments(&mut self, visit: &mut crate::arguments::Visit<'_>) {
        crate::arguments::Arguments::arguments(self, visit);
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::part::own_recipe(self)
    }

    fn describe(&self) -> String {
        format!("schedule_free({})", self.chain.0.describe())
    }
}

impl<T: GradientTransformation> Optimizer for ScheduleFree<T> {
    type Chain = (T, Interpolate);

    fn chain(&self) -> &(T, Interpolate) {
        &self.chain
    }
}

/// The part of [`schedule_free`] behind the base optimizer: turns its update of `z` into one of `y`.
#[derive(Clone, Debug)]
pub struct Interpolate {
    pub(crate) learning_rate: Hyperparam,
    pub(crate) b1: Hyperparam,
    pub(crate) weight_lr_power: Hyperparam,
    pub(crate) state_dtype: Option<DType>,
}

/// The memory of [`schedule_free`], besides the base optimizer's state and the array `z` of its parameters.
#[derive(Clone, Debug)]
pub struct ScheduleFreeState {
    /// The number of steps.
    pub count: Count,
    /// The `b1` that the parameters were made with.
    pub b1: Scalar,
    /// The largest learning rate so far.
    pub max_lr: Scalar,
    /// The sum of the weights.
    pub weight_sum: Scalar,
    mix: Mix<f64>,
    mean: Mean<f64>,
    types: LeafTypes,
}

impl State for ScheduleFreeState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("count", &self.count);
        walk.child("b1", &self.b1);
        walk.child("max_lr", &self.max_lr);
        walk.child("weight_sum", &self.weight_sum);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("count", &mut self.count);
        walk.child("b1", &mut self.b1);
        walk.child("max_lr", &mut self.max_lr);
        walk.child("weight_sum", &mut self.weight_sum);
    }
    fn evaluate_as(&self) -> Option<EvaluateAs> {
        let b1 = self.b1.get();
        Some(EvaluateAs::new(0, 1.0 / b1, -(1.0 - b1) / b1))
    }
}

/// Coefficients of `y = b1·x + rest·z` before and after this step, and the new `z`'s share in `x`.
#[derive(Clone, Copy, Debug, Default)]
struct Mean<C> {
    before: [C; 2],
    after: [C; 2],
    share: C,
}

/// An update of `y` is `gap_weight·(z − y) + step_weight·d`, with `z` before the step `d`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix<C> {
    gap_weight: C,
    step_weight: C,
}

impl Interpolate {
    /// Returns the share of the new `z` in the average.
    fn new_weight(&self, state: &mut ScheduleFreeState) -> f64 {
        let count = state.count.get();
        let rate = self.learning_rate.at(count.saturating_add(1));
        // `max` would drop NaN.
        let largest = if state.max_lr.get() > rate { state.max_lr.get() } else { rate };
        let weight = largest.powf(self.weight_lr_power.at(count));
        let sum = state.weight_sum.get() + weight;
        state.max_lr.set(largest);
        state.weight_sum.set(sum);
        // The learning rate has been 0 so far.
        if sum == 0.0 { 0.0 } else { weight / sum }
    }
}

impl Part for Interpolate {
    const NAME: &'static str = "interpolate";
    type Form = OneElementWithMemory;

    fn effect(&self) -> Effect {
        Effect::SAME_DIRECTION
    }

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        differs(&self.state_dtype, &original.state_dtype).then_some("state_dtype")
    }

    fn validate(&self) -> Result<()> {
        Error::all([
            self.learning_rate.check_range("schedule_free", "learning_rate", NOT_NEGATIVE),
            self.b1.check_range("schedule_free", "b1", POSITIVE_FRACTION),
            self.weight_lr_power.check_range("schedule_free", "weight_lr_power", FINITE),
        ])
    }
}

impl RuleWithMemory for Interpolate {
    const USES_SLICES: bool = true;
    const SLOTS: &'static [Slot] = &[Slot::exact("z").starts_as_params()];
    const EXTRA_SLOT: Option<Slot> = Some(Slot::exact("x"));
    const READS_PARAMS: bool = true;
    type Memory = ScheduleFreeState;
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Mix<C>;

    fn slot(&self, slot: Slot) -> Slot {
        slot.of_dtype(self.state_dtype)
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScheduleFreeState> {
        Ok(ScheduleFreeState {
            count: Count::default(),
            b1: Scalar::new(self.b1.at(0)),
            max_lr: Scalar::default(),
            weight_sum: Scalar::default(),
            mix: Mix::default(),
            mean: Mean::default(),
            types: LeafTypes::of(at),
        })
    }

    /// Rounded `y` do not determine `x`: moves below half the spacing of `y`'s dtype are lost.
    fn needs_extra_slot(&self, at: &InitContext<'_>, leaf: usize) -> bool {
        at.is_rounded(leaf)
    }

    fn begin(&self, memory: &mut ScheduleFreeState, _: &StepContext<'_>) {
        let c = self.new_weight(memory);
        let (before, b1) = (memory.b1.get(), self.b1.at(memory.count.get()));
        memory.b1.set(b1);
        memory.count.increment();
        let gap_weight = if before == b1 { c } else { 1.0 - b1 / before * (1.0 - c) };
        memory.mix = Mix { gap_weight, step_weight: 1.0 - b1 * (1.0 - c) };
        memory.mean = Mean { before: [before, 1.0 - before], after: [b1, 1.0 - b1], share: c };
    }

    fn scalars<C: Real>(&self, memory: &ScheduleFreeState, _: usize) -> Mix<C> {
        Mix { gap_weight: C::of(memory.mix.gap_weight), step_weight: C::of(memory.mix.step_weight) }
    }

    #[inline(always)]
    fn apply<C: Real>(k: Mix<C>, [z]: &mut [C; 1], u: C, p: C, _: &mut [u32]) -> C {
        mix(k, z, u, p)
    }

    fn uses_slices(&self, _: &ScheduleFreeState, _: usize) -> bool {
        self.state_dtype.is_some()
    }

    // `y` is mixed with the stored, rounded `z`.
    #[inline(always)]
    fn apply_slice<C: Real>(
        &self,
        memory: &ScheduleFreeState,
        k: Mix<C>,
        [z]: [&mut [C]; 1],
        LeafSlice { leaf, u, p, extra, .. }: LeafSlice<'_, C>,
    ) {
        let stored = self.state_dtype.filter(|dtype| *dtype != C::DTYPE);
        if !extra.is_empty() {
            let Mean { before, after, share } = memory.mean;
            let mean = Mean { before: before.map(C::of), after: after.map(C::of), share: C::of(share) };
            let (to, elements) = (memory.types.rounding(leaf), u.iter_mut().zip(p).zip(z).zip(extra));
            return match stored {
                None => elements.for_each(|(((u, p), z), x)| *u = averaging::<C, C>(mean, to, (z, x), *u, *p)),
                Some(dtype) => with_dtype!(dtype, T => {
                    elements.for_each(|(((u, p), z), x)| *u = averaging::<C, T>(mean, to, (z, x), *u, *p))
                }),
            };
        }
        let elements = u.iter_mut().zip(p).zip(z);
        match stored {
            None => elements.for_each(|((u, p), z)| *u = mix(k, z, *u, *p)),
            Some(dtype) => {
                with_dtype!(dtype, T => elements.for_each(|((u, p), z)| *u = rounding::<C, T>(k, z, *u, *p)))
            }
        }
    }
}

#[inline(always)]
fn mix<C: Real>(k: Mix<C>, z: &mut C, u: C, p: C) -> C {
    let gap = *z - p;
    *z += u;
    k.gap_weight * gap + k.step_weight * u
}

/// Moves `z`, stored as a `T`, and the mean `x`; returns the rounded update from `p` to the new `y`.
///
/// If `p` is not the previous step's result, it was changed between steps, and `x` follows.
#[inline(always)]
fn averaging<C: Real, T: Element>(k: Mean<C>, to: Rounding, (z, x): (&mut C, &mut C), u: C, p: C) -> C {
    let [b1, rest] = k.before;
    if (b1 * *x + rest * *z).rounded(to) != p {
        *x = (p - rest * *z) / b1;
    }
    *z = convert(convert::<C, T>(*z + u));
    *x += k.share * (*z - *x);
    let [b1, rest] = k.after;
    let there = (b1 * *x + rest * *z).rounded(to);
    // The difference of two equal infinities is NaN.
    if there == p { C::zero() } else { there - p }
}

/// Interpolates as [`mix`], with a `z` rounded to another dtype; terms without the rounded `z` come first.
#[inline(always)]
fn rounding<C: Real, T: Element>(k: Mix<C>, z: &mut C, u: C, p: C) -> C {
    let before = k.gap_weight * (*z - p) - k.step_weight * *z;
    *z = convert(convert::<C, T>(*z + u));
    before + k.step_weight * *z
}
