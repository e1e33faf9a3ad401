use core::fmt;
use std::sync::Arc;

use crate::needs::Needs;
use crate::needs::Value;
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};

/// Decides in each step whether an inner transformation runs.
///
/// It is an argument of [`conditionally_transform`](crate::wrapper::conditionally_transform) and
/// [`conditionally_mask`](crate::wrapper::conditionally_mask). Its inputs are part of its type, and so of the
/// wrapper's: with [`value_lt`], every step needs the loss, even if the inner transformation needs only gradients.
pub trait Condition: Clone + fmt::Debug + Send + Sync + 'static {
    /// The inputs besides the step count.
    type Needs: Needs;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the construction of the condition as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::Opaque(format!("{self:?}"))
    }

    /// Returns true if the transformation runs in the step of this number, counted from 0.
    fn holds(&self, step: u64, at: &StepContext<'_>) -> bool;
}

/// Runs in the first `n` steps.
pub fn step_lt(n: u64) -> StepLt {
    StepLt { n }
}

/// See [`step_lt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepLt {
    /// The first step without the transformation, counted from 0.
    pub n: u64,
}

impl Condition for StepLt {
    type Needs = Nothing;

    fn to_recipe(&self) -> Recipe {
        Recipe::map([("step_lt", self.n.to_recipe())])
    }

    fn holds(&self, step: u64, _: &StepContext<'_>) -> bool {
        step < self.n
    }
}

/// Runs after the first `n` steps.
pub fn step_ge(n: u64) -> StepGe {
    StepGe { n }
}

/// See [`step_ge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepGe {
    /// The first step with the transformation, counted from 0.
    pub n: u64,
}

impl Condition for StepGe {
    type Needs = Nothing;

    fn to_recipe(&self) -> Recipe {
        Recipe::map([("step_ge", self.n.to_recipe())])
    }

    fn holds(&self, step: u64, _: &StepContext<'_>) -> bool {
        step >= self.n
    }
}

/// Runs in every `n`th step: if its number, counted from 0, leaves `remainder` when divided by `n`.
///
/// # Errors
///
/// `init` fails if `n` is 0.
pub fn step_mod(n: u64, remainder: u64) -> StepMod {
    StepMod { n, remainder }
}

/// See [`step_mod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepMod {
    /// The divisor of the step number; at least 1.
    pub n: u64,
    /// The remainder of steps with the transformation.
    pub remainder: u64,
}

impl Condition for StepMod {
    type Needs = Nothing;

    fn validate(&self) -> Result<()> {
        if self.n > 0 { Ok(()) } else { Err(Error::argument("step_mod", "n", "at least 1", 0)) }
    }

    fn to_recipe(&self) -> Recipe {
        Recipe::map([("step_mod", (self.n, self.remainder).to_recipe())])
    }

    fn holds(&self, step: u64, _: &StepContext<'_>) -> bool {
        step.checked_rem(self.n) == Some(self.remainder)
    }
}

/// Runs in steps whose loss is less than `limit`; not if it is NaN.
///
/// # Errors
///
/// `init` fails if `limit` is NaN.
pub fn value_lt(limit: f64) -> ValueLt {
    ValueLt { limit }
}

/// See [`value_lt`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ValueLt {
    /// The limit of the loss.
    pub limit: f64,
}

impl Condition for ValueLt {
    type Needs = Value;

    fn validate(&self) -> Result<()> {
        if self.limit.is_nan() { Err(Error::argument("value_lt", "limit", "a number", self.limit)) } else { Ok(()) }
    }

    fn to_recipe(&self) -> Recipe {
        Recipe::map([("value_lt", self.limit.to_recipe())])
    }

    fn holds(&self, _: u64, at: &StepContext<'_>) -> bool {
        at.value().is_some_and(|value| value < self.limit)
    }
}

/// Runs in steps selected by a function of their number, counted from 0.
///
/// The name represents the function in messages and printouts. The function should be pure: a resumed run calls it for
/// later numbers only.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::{conditionally_mask, step_if};
///
/// let powers = conditionally_mask(sgd(1.0), step_if("powers of two", |step| step.is_power_of_two()));
/// let mut params = 0.0_f64;
/// let mut state = powers.init(&params)?;
/// for _ in 0..8 {
///     powers.step(&mut params, &1.0, &mut state)?;
/// }
/// assert_eq!(params, -3.0); // in the steps 1, 2 and 4
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn step_if(name: impl Into<Arc<str>>, function: impl Fn(u64) -> bool + Send + Sync + 'static) -> StepIf {
    StepIf { name: name.into(), function: Arc::new(function) }
}

/// See [`step_if`].
#[derive(Clone)]
pub struct StepIf {
    name: Arc<str>,
    function: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl fmt::Debug for StepIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepIf({:?})", self.name)
    }
}

impl Condition for StepIf {
    type Needs = Nothing;

    fn holds(&self, step: u64, _: &StepContext<'_>) -> bool {
        (self.function)(step)
    }
}

/// Runs in steps selected by a function of their number, counted from 0, and of the loss.
///
/// As [`step_if`]. A step without gradients, such as a flush of [`multi_steps`](crate::multi_steps), has no loss: the
/// function gets NaN.
pub fn value_if(name: impl Into<Arc<str>>, function: impl Fn(u64, f64) -> bool + Send + Sync + 'static) -> ValueIf {
    ValueIf { name: name.into(), function: Arc::new(function) }
}

/// See [`value_if`].
#[derive(Clone)]
pub struct ValueIf {
    name: Arc<str>,
    function: Arc<dyn Fn(u64, f64) -> bool + Send + Sync>,
}

impl fmt::Debug for ValueIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueIf({:?})", self.name)
    }
}

impl Condition for ValueIf {
    type Needs = Value;

    fn holds(&self, step: u64, at: &StepContext<'_>) -> bool {
        (self.function)(step, at.value().unwrap_or(f64::NAN))
    }
}
