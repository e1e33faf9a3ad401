use core::fmt;
use std::sync::Arc;

use crate::needs::{Needs, Value};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};

/// Decides, step by step, whether what is inside a [`conditionally_transform`](crate::wrapper::conditionally_transform)
/// or a [`conditionally_mask`](crate::wrapper::conditionally_mask) runs.
///
/// What it must be told to decide is part of its type, and so of the wrapper's: [`value_lt`] makes a transformation of
/// gradients one that needs the loss.
pub trait Condition: Clone + fmt::Debug + Send + Sync + 'static {
    /// What it must be told besides the number of the step.
    type Needs: Needs;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// How it is made, as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::Opaque(format!("{self:?}"))
    }

    /// Whether to run in the step of this number, counted from 0.
    fn holds(&self, step: u64, at: &StepContext<'_>) -> bool;
}

/// In the first `n` steps.
pub fn step_lt(n: u64) -> StepLt {
    StepLt { n }
}

/// See [`step_lt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepLt {
    /// The first step that is not one of them, counted from 0.
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

/// After the first `n` steps.
pub fn step_ge(n: u64) -> StepGe {
    StepGe { n }
}

/// See [`step_ge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepGe {
    /// The first step, counted from 0.
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

/// In every `n`th step: those whose number, counted from 0, leaves `remainder` when divided by `n`.
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
    /// By how much the number of the step is divided; at least 1.
    pub n: u64,
    /// What must be left.
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

/// In steps whose loss is less than `limit`; a NaN is not.
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
    /// What the loss is compared with.
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

/// In steps that a function of their number, counted from 0, says.
///
/// The name stands for the function in messages and printouts. The function should be pure: a run that goes on from a
/// saved state asks it for later numbers only.
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

/// In steps that a function of their number, counted from 0, and of the loss says.
///
/// As [`step_if`]. A step without gradients, as a flush of [`multi_steps`](crate::multi_steps) is, has no loss: it is
/// NaN.
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
