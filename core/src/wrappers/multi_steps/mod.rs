mod mini_step;
mod skip;

pub(crate) use skip::not_finite;
pub use skip::{NoSkip, SkipLargeUpdates, SkipNotFinite, SkipUpdate, skip_large_updates, skip_not_finite};

use core::fmt;

use mini_step::Accumulation;

use crate::part::prelude::*;
use crate::range::ANY;
use crate::recipe::{self, FromRecipe, Node, Recipe, ToRecipe};
use crate::schedule::{Constant, FromFn, Join, Linear, PiecewiseConstant, PiecewiseInterpolate, Polynomial, Schedule};
use crate::state::StateWalkMut;
use crate::transformation::OptState;
use crate::tree::TreeMut;

/// Accumulates the gradients of `every_k_schedule` mini-steps and passes their mean to a transformation.
///
/// Gradient accumulation allows training with batches larger than memory.
///
/// # Arithmetic
///
/// At mini-step `i` of a window of `k`, counted from 0:
///
/// ```text
/// acc ← acc + (g − acc)/(i + 1)     mean, the default      (with weights wᵢ: + (g − acc)·wᵢ/Σwⱼ)
/// acc ← acc + g                     use_grad_mean(false)   (with weights:    + wᵢ·g)
/// i < k − 1:   u ← 0                nothing is emitted: inner does not run, its state does not change
/// i = k − 1:   u ← inner(acc);  acc ← 0
/// ```
///
/// Around a [`skip_absent`], a missing gradient counts as zero, and a leaf without a
/// gradient in the whole window rests inside, as with PyTorch's `grad` after several backward passes.
///
/// An inner transformation that needs the loss gets the same mean (or sum) of the mini-steps' losses. Later members of
/// a chain and wrappers run only in the steps that emit: their schedules count updates.
///
/// `k` is a number or a schedule over emitted updates, rounded to the nearest integer. After a window the accumulator
/// is set to zero, not multiplied by zero, so a NaN in it is gone. To keep a NaN out of the window too, put
/// [`zero_nans`] before the accumulator, or use [`skip_not_finite`].
///
/// # Cost
///
/// One float of state per parameter. A mini-step that does not emit reads the gradient and reads and writes the
/// accumulator: 12 bytes for each `f32`. An emitting one costs 8 more than the transformation alone, and 4 more for
/// each inner barrier, after which the mean is computed again instead of stored. A skip function takes an additional
/// pass over the gradients.
///
/// # Errors
///
/// `init` fails if `k` is less than 1; a step fails if a schedule returns less than 1.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = multi_steps(sgd(1.0), 2);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// assert!(!optimizer.step(&mut params, &1.0, &mut state)?.emitted());
/// assert_eq!(params, 0.0);
/// assert!(optimizer.step(&mut params, &3.0, &mut state)?.emitted());
/// assert_eq!(params, -2.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`MultiSteps`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html). Differs: a NaN does not
/// stay in the accumulator forever; neither the inner transformation nor later members run on mini-steps that do not
/// emit; [`Outcome::emitted`] reports an emitted update, where Optax has counters, which are wrong after a skipped
/// step; `f64` gradients are accumulated in `f64`; losses are accumulated like gradients, instead of the last one being
/// used; mini-steps can have weights; a partial window can be flushed.
///
/// [`skip_absent`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
/// [`zero_nans`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.zero_nans.html
pub fn multi_steps<T: Stage>(inner: T, every_k_schedule: impl Into<EveryK>) -> MultiSteps<T> {
    MultiSteps::with(inner, every_k_schedule.into(), NoSkip)
}

/// A number of mini-steps, or a schedule of it over emitted updates.
#[derive(Clone, Debug, PartialEq)]
pub struct EveryK(Every);

#[derive(Clone, Debug, PartialEq)]
enum Every {
    /// As given.
    Whole(i128),
    By(Hyperparam),
}

impl EveryK {
    /// Returns the window's length after this many emitted updates.
    fn window(&self, gradient_step: u64) -> f64 {
        match &self.0 {
            Every::Whole(k) => *k as f64,
            Every::By(hyperparam) => hyperparam.at(gradient_step).round(),
        }
    }

    fn check(&self, gradient_step: u64) -> Result<()> {
        let k = self.window(gradient_step);
        if k >= 1.0 && k.is_finite() {
            return Ok(());
        }
        let found = format!("{k} after {gradient_step} updates");
        Err(Error::argument("multi_steps", "every_k_schedule", "at least 1", found))
    }
}

/// Displays an integer without a fraction.
impl fmt::Display for EveryK {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Every::Whole(k) => k.fmt(f),
            Every::By(Hyperparam::Number(k)) => k.fmt(f),
            Every::By(Hyperparam::Schedule(schedule)) => schedule.fmt(f),
        }
    }
}

impl ToRecipe for EveryK {
    fn to_recipe(&self) -> Recipe {
        match &self.0 {
            Every::Whole(k) => Recipe::Integer(*k),
            Every::By(hyperparam) => hyperparam.to_recipe(),
        }
    }
}

/// Reads an integer, which may be a string if it is too large for TOML, or a schedule.
impl FromRecipe for EveryK {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<EveryK> {
        let wrong = || node.wrong("an integer or a schedule");
        match node.value() {
            Recipe::Integer(k) => Ok(EveryK(Every::Whole(*k))),
            Recipe::Text(text) => text.parse().map(|k| EveryK(Every::Whole(k))).map_err(|_| wrong()),
            Recipe::Map(_) => Ok(node.read::<Hyperparam>()?.into()),
            _ => Err(wrong()),
        }
    }

    fn schema() -> String {
        r##"{"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/scheduled"}]}"##.into()
    }
}

macro_rules! every_k_from {
    ($($Kind:ty),* => $every:expr) => {$(
        impl From<$Kind> for EveryK {
            fn from(k: $Kind) -> EveryK {
                EveryK($every(k))
            }
        }
    )*};
}
every_k_from!(i32, u32 => |k| Every::Whole(i128::from(k)));
every_k_from!(
    Constant, Linear, Polynomial, PiecewiseConstant, PiecewiseInterpolate, Join, FromFn, Hyperparam, Schedule => by
);

fn by(k: impl Into<Hyperparam>) -> Every {
    match k.into() {
        // As in a config.
        Hyperparam::Number(k) if k.fract() == 0.0 && k.abs() < 1e38 => Every::Whole(k as i128),
        k => Every::By(k),
    }
}

wrapper! {
    /// See [`multi_steps`].
    pub MultiSteps<T, S: SkipUpdate = NoSkip> as "multi_steps" around inner: AroundWithArithmetic {
        every_k_schedule: EveryK;
        /// Sets whether to accumulate the mean of the gradients, or their sum.
        use_grad_mean: bool = true;
        should_skip_update_fn: @decides S;
        /// Sets the dtype of the accumulator; by default the compute type (`f32` for 16-bit leaves).
        accumulator_dtype: Option<DType> = None;
    }
    shows "{}": every_k_schedule;
    check Self::check_arguments;
}

impl<T: Stage, S: SkipUpdate> MultiSteps<T, S> {
    /// Discards the gradients of a mini-step by a function: [`skip_not_finite`] or [`skip_large_updates`].
    ///
    /// The window continues as if the mini-step had not occurred.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::skip_not_finite;
    ///
    /// let optimizer = multi_steps(sgd(1.0), 1).should_skip_update_fn(skip_not_finite());
    /// let mut params = 1.0_f32;
    /// let mut state = optimizer.init(&params)?;
    /// let outcome = optimizer.step(&mut params, &f32::NAN, &mut state)?;
    /// assert!(outcome.skipped() && !outcome.emitted());
    /// assert_eq!(params, 1.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn should_skip_update_fn<F: SkipUpdate>(self, skip: F) -> MultiSteps<T, F> {
        let MultiSteps { inner, every_k_schedule, use_grad_mean, accumulator_dtype, .. } = self;
        MultiSteps { inner, every_k_schedule, use_grad_mean, should_skip_update_fn: skip, accumulator_dtype }
    }

    /// Emits a partial window as if it were full: for the end of an epoch.
    ///
    /// The mean is over the mini-steps of the window. An inner `multi_steps` also emits its window, with the update
    /// that it gets now; if only the inner one has a window, parts between the two get zero gradients. If all are empty
    /// it does nothing, and the outcome reports that.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = multi_steps(sgd(1.0), 4);
    /// let mut params = 0.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &1.0, &mut state)?;
    /// optimizer.step(&mut params, &2.0, &mut state)?;
    /// assert!(optimizer.flush(&mut params, &mut state)?.emitted());
    /// assert_eq!(params, -1.5);
    /// assert!(!optimizer.flush(&mut params, &mut state)?.emitted());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`step`](crate::GradientTransformation::step).
    pub fn flush<P: TreeMut + ?Sized>(&self, params: &mut P, state: &mut OptState<Self>) -> Result<Outcome> {
        state.usable()?;
        find_pending(&mut **state);
        state.flush(self, params)
    }

    fn check_arguments(&self) -> Result<()> {
        if let Every::By(k) = &self.every_k_schedule.0 {
            k.check_range("multi_steps", "every_k_schedule", ANY)?;
        }
        self.every_k_schedule.check(0)?;
        self.should_skip_update_fn.validate()
    }
}

/// The state of a [`multi_steps`].
pub type MultiStepsState<I> = WrapperState<MultiStepsMemory, I>;

/// Tells each window whether an inner one is not empty.
fn find_pending<S: State>(state: &mut S) {
    let mut windows: Vec<(String, &mut MultiStepsMemory)> = Vec::new();
    state.walk_mut(&mut StateWalkMut::of_parts(&mut |path, part| {
        windows.extend(part.downcast_mut().map(|window| (path.to_owned(), window)));
    }));
    let pending = windows.iter().filter(|(_, window)| window.mini_step.get() > 0);
    let pending: Vec<String> = pending.map(|(path, _)| path.clone()).collect();
    for (path, window) in windows {
        let inside = if path.is_empty() { "inner".to_owned() } else { path + ".inner" };
        let is_inside =
            |other: &String| other.strip_prefix(&*inside).is_some_and(|r| r.is_empty() || r.starts_with('.'));
        window.pending_inside = pending.iter().any(is_inside);
    }
}

memory! {
    /// The memory of a [`multi_steps`], besides the accumulator and the inner state.
    pub MultiStepsMemory {
        mini_step: Count,
        gradient_step: Count,
        /// The weights of the window so far, and of the next mini-step.
        weight: Scalar,
        next_weight: Scalar = Scalar::new(1.0),
        skipped: Flag,
        /// The sum of the skip function over the last gradients.
        measured: Scalar,
        /// The accumulated loss, if the inner transformation needs it.
        value: Option<Scalar>,
    }
    set {
        /// True for leaves with a gradient in the window so far, if leaves may lack one; else empty.
        seen: PerLeaf<Flag>,
    }
    means {
        use_grad_mean: bool,
    }
    beside {
        accumulation: Accumulation,
        /// True for leaves without a gradient in the emitted window.
        absent: Vec<bool>,
        /// True in a flush if an inner window is not empty.
        pending_inside: bool,
    }
    shown as part;
}

impl MultiStepsMemory {
    /// Returns the number of mini-steps in the window so far.
    pub fn mini_step(&self) -> Count {
        self.mini_step
    }

    /// Returns the number of emitted updates.
    pub fn gradient_step(&self) -> Count {
        self.gradient_step
    }

    /// Returns whether the last gradients were discarded.
    pub fn skipped(&self) -> Flag {
        self.skipped
    }

    /// Returns the sum of the skip function over the last gradients: the number of elements that are not finite, or the
    /// squared norm.
    pub fn measured(&self) -> Scalar {
        self.measured
    }

    /// Sets the weight of the next mini-step, which is 1 otherwise.
    ///
    /// It can be, for example, the number of rows of a smaller last batch relative to the others, or the number of
    /// tokens. A mini-step of weight 0 counts as one of the window and has no other effect: its gradient and its loss
    /// are not read, so they may be NaN, as a mean over no tokens is. A window whose mini-steps all have weight 0 emits
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the weight is negative or not finite.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = multi_steps(sgd(1.0), 2);
    /// let mut params = 0.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// state.set_weight(3.0)?;
    /// optimizer.step(&mut params, &1.0, &mut state)?;
    /// optimizer.step(&mut params, &5.0, &mut state)?;
    /// assert_eq!(params, -(3.0 * 1.0 + 1.0 * 5.0) / 4.0);
    ///
    /// optimizer.step(&mut params, &-2.0, &mut state)?;
    /// state.set_weight(0.0)?;
    /// assert!(optimizer.step(&mut params, &f64::NAN, &mut state)?.emitted());
    /// assert_eq!(params, 0.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn set_weight(&mut self, weight: f64) -> Result<()> {
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(Error::argument("multi_steps", "weight", "not negative and finite", weight));
        }
        self.next_weight.set(weight);
        Ok(())
    }
}

impl<I> MultiStepsState<I> {
    /// Returns the accumulator.
    pub fn accumulator(&self) -> &Moments {
        self.slot(0)
    }
}
