//! Rules: arithmetic on one element, and how it becomes a stage.

use core::marker::PhantomData;

use super::kernel::MOST_SLOTS;
use super::{InitContext, Place, Shape, SlotList, Span, Stage, StepContext, Tile, fused_tile};
use crate::element::{Both, DType, PerReal, Real};
use crate::error::Result;
use crate::recipe::Recipe;
use crate::state::{Count, Moments, State, StateWalk, StateWalkMut};

/// Element arithmetic that reads like the paper: hyperparameters, scalars worked out once a step, and one function.
///
/// A rule is a [`GradientTransformation`](crate::GradientTransformation): it can be chained, masked, wrapped and boxed,
/// and fuses with its neighbours into one loop. It has no loop, no tree, no dtype and no threads of its own.
///
/// # Example
///
/// Sign descent with momentum, from nothing:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::{Clock, Real, Rule};
/// use ndarray::array;
///
/// /// Replaces updates by the sign of their running mean.
/// #[derive(Clone, Debug)]
/// struct ScaleBySignOfMean { decay: f64 }
///
/// impl Rule for ScaleBySignOfMean {
///     const NAME: &'static str = "scale_by_sign_of_mean";
///     const SLOTS: &'static [&'static str] = &["mean"];
///     type Slots<C: Real> = [C; 1];
///     type Scalars<C: Real> = [C; 2];
///
///     fn scalars<C: Real>(&self, _: Clock) -> [C; 2] {
///         [C::of(self.decay), C::of(1.0 - self.decay)]
///     }
///
///     fn apply<C: Real>([keep, take]: [C; 2], [mean]: &mut [C; 1], u: C, _: C) -> C {
///         *mean = keep * *mean + take * u;
///         mean.signum()
///     }
/// }
///
/// let optimizer = chain((ScaleBySignOfMean { decay: 0.9 }, scale(-0.5)));
/// let mut params = array![1.0_f32, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &array![3.0_f32, -2.0], &mut state)?;
/// assert_eq!(params, array![0.5, 1.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub trait Rule: core::fmt::Debug + Send + Sync + 'static {
    /// The name, as in messages and configs.
    const NAME: &'static str;
    /// The names of the state arrays, as many as [`Slots`](Rule::Slots) has. At most 8: a rule with more of them, or
    /// with another number of names, does not compile.
    const SLOTS: &'static [&'static str] = &[];
    /// Whether `apply` reads the parameter.
    const READS_PARAMS: bool = false;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// What is worked out once a step.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Checks the hyperparameters.
    ///
    /// # Errors
    ///
    /// If one is out of its range; see [`Error::argument`](crate::Error::argument).
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The type of a state array, if it was asked for; by default the type that the leaf's arithmetic is done in.
    fn slot_dtype(&self, slot: usize) -> Option<DType> {
        let _ = slot;
        None
    }

    /// The value that a state array starts with.
    fn slot_start(&self, slot: usize) -> f64 {
        let _ = slot;
        0.0
    }

    /// How the rule is made, as data; [`Opaque`](Recipe::Opaque) unless it says so.
    fn recipe(&self) -> Recipe {
        Recipe::Opaque(Self::NAME.into())
    }

    /// Whether a state array starts as a copy of the parameters instead.
    fn slot_starts_as_params(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// Works out, in `f64`, what is the same for all elements of a step, and rounds it once with [`Real::of`].
    fn scalars<C: Real>(&self, clock: Clock) -> Self::Scalars<C>;

    /// Transforms the update `u` of one element with parameter `p`. Write `#[inline(always)]` on it.
    ///
    /// A panic in here ends the step, and the state [cannot be used any more](crate::Error::is_poisoned).
    fn apply<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C;
}

/// How many steps a transformation has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Steps done before this one: what schedules are evaluated at.
    pub count: u64,
}

impl Clock {
    /// The number of this step, from 1: the `t` of bias corrections.
    pub fn t(self) -> f64 {
        self.count.saturating_add(1) as f64
    }

    /// `1 − decayᵗ`, which a running mean that started at zero is divided by; 1 from where it no longer matters.
    pub fn bias_correction(self, decay: f64) -> f64 {
        1.0 - decay.powf(self.t())
    }
}

/// A fixed number of values: the state of one element.
pub trait SlotArray<C>: Copy {
    /// How many.
    const LEN: usize;
    #[doc(hidden)]
    fn of(slots: &mut [C]) -> &mut Self;
}

impl<C: Real, const N: usize> SlotArray<C> for [C; N] {
    const LEN: usize = N;
    #[inline(always)]
    fn of(slots: &mut [C]) -> &mut [C; N] {
        slots.try_into().expect("the engine gives a rule as many slots as it has")
    }
}

/// What a rule remembers: a count of steps and its named arrays.
#[derive(Clone, Debug)]
pub struct RuleState<R> {
    /// Steps done.
    pub count: Count,
    pub(crate) moments: Vec<Moments>,
    rule: PhantomData<fn() -> R>,
}

impl<R: Rule> RuleState<R> {
    /// The arrays of this name.
    pub fn moment(&self, name: &str) -> Option<&Moments> {
        self.moments.get(R::SLOTS.iter().position(|n| *n == name)?)
    }

    /// The arrays of this name, to write.
    pub fn moment_mut(&mut self, name: &str) -> Option<&mut Moments> {
        self.moments.get_mut(R::SLOTS.iter().position(|n| *n == name)?)
    }
}

impl<R: Rule + Clone> State for RuleState<R> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("count", &self.count);
        R::SLOTS.iter().zip(&self.moments).for_each(|(name, m)| walk.child(name, m));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("count", &mut self.count);
        R::SLOTS.iter().zip(&mut self.moments).for_each(|(name, m)| walk.child(name, m));
    }
}

pub(crate) struct ScalarsOf<R>(PhantomData<R>);

impl<R: Rule> PerReal for ScalarsOf<R> {
    type Of<C: Real> = R::Scalars<C>;
}

/// A rule's scalars of one step, for either compute type.
#[doc(hidden)]
pub struct RuleRun<R: Rule>(Both<ScalarsOf<R>>);

impl<R: Rule + Clone> Stage for R {
    type Needs = crate::needs::Nothing;
    type State = RuleState<R>;
    type Run = RuleRun<R>;
    type Kernel<C: Real> = R::Scalars<C>;

    const SHAPE: Shape = Shape::elementwise(!R::SLOTS.is_empty(), R::READS_PARAMS);
    const FUSES: bool = true;
    const SLOTS: usize = <R::Slots<f32> as SlotArray<f32>>::LEN;

    fn validate(&self) -> Result<()> {
        const {
            let slots = <R::Slots<f32> as SlotArray<f32>>::LEN;
            assert!(R::SLOTS.len() == slots, "a rule has one name for each slot");
            assert!(slots <= MOST_SLOTS, "a rule has at most 8 slots");
        }
        Rule::validate(self)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<RuleState<R>> {
        let moment = |slot| {
            let dtype = self.slot_dtype(slot);
            if self.slot_starts_as_params(slot) {
                return at.params_as_moments_of(dtype);
            }
            Moments::like(at.structure, at.active, self.slot_start(slot), |l| dtype.unwrap_or(l.dtype().compute()))
        };
        let moments = (0..R::SLOTS.len()).map(moment).collect::<Result<_>>()?;
        Ok(RuleState { count: Count::default(), moments, rule: PhantomData })
    }

    fn begin(&self, state: &mut RuleState<R>, _: &StepContext<'_>) -> RuleRun<R> {
        let clock = Clock { count: state.count.get() };
        state.count.increment();
        RuleRun(Both { single: self.scalars(clock), double: self.scalars(clock) })
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        fused_tile(self, state, run, place, span, tile);
    }

    #[inline]
    fn kernel<C: Real>(&self, _: &Self::State, run: &Self::Run, _: usize) -> R::Scalars<C> {
        *C::pick(&run.0)
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        state.moments.iter().for_each(|m| list.push(m, leaf));
    }

    #[inline(always)]
    fn apply<C: Real>(k: &R::Scalars<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, _: &mut [u32]) -> C {
        if span.has(at) { <R as Rule>::apply(*k, R::Slots::of(slots), u, p) } else { u }
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let each = |m: &Moments| m.dtype(leaf).map_or(0, |dtype| 2 * dtype.size());
        if span.has(at) { state.moments.iter().map(each).sum() } else { 0 }
    }

    fn recipe(&self) -> Recipe {
        Rule::recipe(self)
    }

    fn describe(&self) -> String {
        R::NAME.into()
    }
}
