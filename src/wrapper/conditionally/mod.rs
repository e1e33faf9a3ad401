mod condition;

pub use condition::{
    Condition, StepGe, StepIf, StepLt, StepMod, ValueIf, ValueLt, step_ge, step_if, step_lt, step_mod, value_if,
    value_lt,
};

use crate::GradientTransformation;
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::Recipe;

/// Runs a transformation in some steps only; in the others the updates are unmodified.
///
/// In the other steps its state does not change; step counts do not advance. For zero updates in those steps, use
/// [`conditionally_mask`]. A step in which `inner` runs and emits nothing, such as a mini-step of
/// [`multi_steps`](crate::multi_steps), is not counted.
///
/// # Arithmetic
///
/// ```text
/// condition(step):   u ← inner(u)
/// otherwise:         u ← u                 step is counted from 0, whether or not inner runs
/// ```
///
/// Conditions: [`step_lt`], [`step_ge`], [`step_mod`], [`step_if`], and with the loss [`value_lt`], [`value_if`].
///
/// # Cost
///
/// A count. In steps without the inner transformation, its passes still run, without its work.
///
/// # Errors
///
/// `init` fails if an argument of the condition is out of its range.
///
/// # Example
///
/// Clipping for the first step only:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
/// use gradchain::wrapper::{conditionally_transform, step_lt};
///
/// let optimizer = chain((conditionally_transform(clip(1.0), step_lt(1)), scale(-1.0)));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &3.0, &mut state)?;
/// assert_eq!(params, -1.0);
/// optimizer.step(&mut params, &3.0, &mut state)?;
/// assert_eq!(params, -4.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// A condition on the loss makes the whole chain need the loss:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
/// use gradchain::wrapper::{conditionally_transform, value_lt};
///
/// let optimizer = chain((conditionally_transform(clip(1.0), value_lt(10.0)), scale(-1.0)));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_with(&mut params, &3.0, extra::value(5.0), &mut state)?;
/// assert_eq!(params, -1.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// ```compile_fail
/// use gradchain::prelude::*;
/// use gradchain::wrapper::{conditionally_transform, value_lt};
///
/// let optimizer = conditionally_transform(clip(1.0), value_lt(10.0));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params).unwrap();
/// optimizer.step(&mut params, &3.0, &mut state).unwrap(); // no loss to compare
/// ```
///
/// # References
///
/// Optax, [`conditionally_transform`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a
/// condition is a value whose needs are in its type, in place of `forward_extra_args`.
pub fn conditionally_transform<T: GradientTransformation, W: Condition>(
    inner: T,
    should_transform_fn: W,
) -> ConditionallyTransform<T, W> {
    Conditionally::with(inner, should_transform_fn)
}

/// Runs a transformation in some steps only; in the others all updates are zero.
///
/// In the other steps neither its state nor that of later members of a chain and of wrappers changes; step counts do
/// not advance. For unmodified updates in those steps, use [`conditionally_transform`]. A step in which `inner` runs
/// and emits nothing, such as a mini-step of [`multi_steps`](crate::multi_steps), is not counted.
///
/// # Arithmetic
///
/// ```text
/// condition(step):   u ← inner(u)
/// otherwise:         u ← 0                 step is counted from 0, whether or not inner runs
/// ```
///
/// Conditions: [`step_lt`], [`step_ge`], [`step_mod`], [`step_if`], and with the loss [`value_lt`], [`value_if`].
///
/// # Cost
///
/// A count. At the end of a chain, steps without the inner transformation do not even read the parameters.
///
/// # Errors
///
/// `init` fails if an argument of the condition is out of its range.
///
/// # Example
///
/// Training one part in even steps and the other in odd ones:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::{conditionally_mask, step_mod};
///
/// let optimizer = partition(
///     (("even", conditionally_mask(sgd(1.0), step_mod(2, 0))), ("odd", conditionally_mask(sgd(1.0), step_mod(2, 1)))),
///     Labels::tree([("0", "even"), ("1", "odd")]),
/// );
/// let mut params = (0.0_f64, 0.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(1.0, 1.0), &mut state)?;
/// assert_eq!(params, (-1.0, 0.0));
/// optimizer.step(&mut params, &(1.0, 1.0), &mut state)?;
/// assert_eq!(params, (-1.0, -1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`conditionally_mask`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a condition
/// is a value whose needs are in its type, in place of `forward_extra_args`; the outcome of the step reports that
/// nothing was emitted, and later members do not run on zeros.
pub fn conditionally_mask<T: GradientTransformation, W: Condition>(
    inner: T,
    should_transform_fn: W,
) -> ConditionallyMask<T, W> {
    Conditionally::with(inner, should_transform_fn)
}

wrapper! {
    /// The type of [`conditionally_transform`] and [`conditionally_mask`]. `ZERO` makes updates zero, instead of
    /// unmodified, in steps without the inner transformation.
    pub Conditionally<T, W: Condition; const ZERO: bool>
        as { if ZERO { "conditionally_mask" } else { "conditionally_transform" } } around inner: Around<W::Needs>
    {
        should_transform_fn: @decides W;
    }
    shows "{:?}": should_transform_fn;
    check Self::check_condition;
    recipe Self::data;
}

impl<T: GradientTransformation, W: Condition, const ZERO: bool> Conditionally<T, W, ZERO> {
    fn check_condition(&self) -> Result<()> {
        self.should_transform_fn.validate()
    }

    fn data(&self) -> Recipe {
        let condition = self.should_transform_fn.to_recipe();
        let told = Recipe::Bool(W::Needs::LEVEL > Level::Nothing);
        let arguments =
            [("inner", self.inner.recipe()), ("should_transform_fn", condition), ("forward_extra_args", told)];
        Recipe::call(Self::NAME, arguments)
    }
}

/// See [`conditionally_transform`].
pub type ConditionallyTransform<T, W> = Conditionally<T, W, false>;

/// See [`conditionally_mask`].
pub type ConditionallyMask<T, W> = Conditionally<T, W, true>;

/// The state of a [`conditionally_transform`] or [`conditionally_mask`].
pub type ConditionallyState<S> = WrapperState<ConditionallyMemory, S>;

memory! {
    /// The memory of a [`conditionally_transform`] or [`conditionally_mask`], besides the inner state.
    pub ConditionallyMemory {
        step: Count,
    }
}

impl ConditionallyMemory {
    /// Returns the number of steps, whether or not the inner transformation ran.
    ///
    /// Steps in which it ran and emitted nothing do not count.
    pub fn step(&self) -> Count {
        self.step
    }
}

impl<T: GradientTransformation, W: Condition, const ZERO: bool> Wrapper for Conditionally<T, W, ZERO> {
    type Memory = ConditionallyMemory;
    const RUNS: Runs = Runs::DECIDED.holds_back(ZERO);

    fn decide(&self, memory: &mut ConditionallyMemory, at: &StepContext<'_>, _: f64) -> Decision {
        let holds = self.should_transform_fn.holds(memory.step.get(), at);
        match (holds, ZERO) {
            (true, _) => Decision::Run,
            (false, true) => Decision::Skip,
            (false, false) => Decision::Pass,
        }
    }

    fn finish(&self, memory: &mut ConditionallyMemory, did: Decision, inside: Option<Outcome>, _: &mut T::State) {
        if inside.is_some() || did != Decision::Run {
            memory.step.increment();
        }
    }
}
