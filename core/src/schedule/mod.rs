//! Schedules: numbers that change with the step count.
//!
//! Guide: [Schedules and hyperparameters](https://docs.rs/gradchain/latest/gradchain/_guide/schedules/index.html).
//!
//! A [`Schedule`] is a value that [`at`](Schedule::at) turns a step count into a number. This crate never tests for
//! callability: arguments that take a number or a schedule take a [`Hyperparam`], and a closure becomes a schedule only
//! through [`from_fn`].
//!
//! | constructor | from the first step on |
//! |---|---|
//! | [`constant`] | always the same |
//! | [`linear`], [`polynomial`] | from one value to another |
//! | [`cosine_decay`], [`exponential_decay`] | down, by a cosine or by a rate |
//! | [`warmup_constant`], [`warmup_cosine_decay`], [`warmup_exponential_decay`] | linear warm-up, then as named |
//! | [`warmup_stable_decay`], [`inverse_sqrt`], [`noam`] | linear warm-up, then as named |
//! | [`rex`] | down, ever faster |
//! | [`linear_onecycle`], [`cosine_onecycle`] | one cycle: up, down, and to a final value |
//! | [`piecewise_constant`], [`piecewise_interpolate`] | from boundary to boundary |
//! | [`table`] | from a list |
//! | [`cosine_restarts`] | cosine decay with warm restarts |
//! | [`sgdr`], [`join`] | several schedules, one after the other |
//! | [`sum`], [`product`], [`clamp`] | combinations of others |
//! | [`from_fn`] | the values of a function |
//!
//! Schedules of Optax keep the names, arguments and defaults of [`optax.schedules`][optax] without the suffix
//! `_schedule`. Optional arguments are methods of the returned type: `cosine_decay(0.1, 1000).alpha(0.01)`.
//!
//! # Counts
//!
//! Counts start at 0: the first update uses `at(0)`. Step arguments are unsigned. Optax treats a negative number of
//! steps as 0.
//!
//! # Arithmetic
//!
//! All arithmetic is in `f64`, whatever the dtype of the parameters, and `at` does not allocate.
//!
//! [optax]: https://optax.readthedocs.io/en/latest/api/optimizer_schedules.html

use core::fmt;

use crate::error::{Error, Result};

mod clamp;
mod constant;
mod cosine;
mod cosine_restarts;
mod declared;
mod exponential;
mod from_fn;
mod hyperparam;
mod inverse_sqrt;
mod join;
mod onecycle;
mod piecewise;
mod polynomial;
mod product;
pub(crate) mod recipe;
mod rex;
mod several;
mod sgdr;
mod sum;
mod table;
mod warmup;
mod warmup_stable_decay;

pub use clamp::{Clamp, clamp};
pub use constant::{Constant, constant};
pub use cosine::{CosineDecay, cosine_decay};
pub use cosine_restarts::{CosineRestarts, cosine_restarts};
pub use exponential::{ExponentialDecay, exponential_decay};
pub use from_fn::{FromFn, from_fn};
pub use hyperparam::{Hyperparam, IntoHyperparam};
pub use inverse_sqrt::{InverseSqrt, inverse_sqrt, noam};
pub use join::{Join, join};
pub use onecycle::{CosineOnecycle, LinearOnecycle, cosine_onecycle, linear_onecycle};
pub use piecewise::{
    InterpolateType, PiecewiseConstant, PiecewiseInterpolate, piecewise_constant, piecewise_interpolate,
};
pub use polynomial::{Linear, Polynomial, linear, polynomial};
pub use product::{Product, product};
pub use rex::{Rex, rex};
pub use several::Several;
pub use sgdr::{Sgdr, sgdr};
pub use sum::{Sum, sum};
pub use table::{Table, table};
pub use warmup::{
    WarmupConstant, WarmupCosineDecay, WarmupExponentialDecay, warmup_constant, warmup_cosine_decay,
    warmup_exponential_decay,
};
pub use warmup_stable_decay::{DecayShape, WarmupStableDecay, warmup_stable_decay};

/// A number that changes with the step count.
///
/// It is a description, not a function: it can be compared, printed and matched on. It prints as its constructor call.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{Schedule, linear};
///
/// let schedule = Schedule::from(linear(1.0, 0.0, 4).transition_begin(1));
/// assert_eq!(schedule.sample(0..7), [1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
/// assert_eq!(schedule.to_string(), "linear(1.0, 0.0, 4).transition_begin(1)");
/// assert!(matches!(schedule, Schedule::Linear(line) if line.end_value == 0.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[must_use = "a schedule does nothing until it is evaluated"]
pub enum Schedule {
    /// See [`constant`].
    Constant(Constant),
    /// See [`linear`].
    Linear(Linear),
    /// See [`polynomial`].
    Polynomial(Polynomial),
    /// See [`exponential_decay`].
    ExponentialDecay(ExponentialDecay),
    /// See [`cosine_decay`].
    CosineDecay(CosineDecay),
    /// See [`piecewise_constant`].
    PiecewiseConstant(PiecewiseConstant),
    /// See [`piecewise_interpolate`].
    PiecewiseInterpolate(PiecewiseInterpolate),
    /// See [`warmup_constant`].
    WarmupConstant(WarmupConstant),
    /// See [`warmup_cosine_decay`].
    WarmupCosineDecay(WarmupCosineDecay),
    /// See [`warmup_exponential_decay`].
    WarmupExponentialDecay(WarmupExponentialDecay),
    /// See [`linear_onecycle`].
    LinearOnecycle(LinearOnecycle),
    /// See [`cosine_onecycle`].
    CosineOnecycle(CosineOnecycle),
    /// See [`sgdr`].
    Sgdr(Sgdr),
    /// See [`join`].
    Join(Join),
    /// See [`warmup_stable_decay`].
    WarmupStableDecay(WarmupStableDecay),
    /// See [`inverse_sqrt`].
    InverseSqrt(InverseSqrt),
    /// See [`rex`].
    Rex(Rex),
    /// See [`cosine_restarts`].
    CosineRestarts(CosineRestarts),
    /// See [`table`].
    Table(Table),
    /// See [`clamp`].
    Clamp(Clamp),
    /// See [`sum`].
    Sum(Sum),
    /// See [`product`].
    Product(Product),
    /// See [`from_fn`].
    FromFn(FromFn),
}

impl Schedule {
    /// Returns the value at a step count; the first step has count 0.
    ///
    /// The value of a schedule that [`validate`](Schedule::validate) refuses is meaningless, and may be NaN.
    ///
    /// ```
    /// use gradchain::schedule::{Schedule, exponential_decay};
    /// let halving = Schedule::from(exponential_decay(8.0, 10, 0.5));
    /// assert_eq!(halving.at(0), 8.0);
    /// assert_eq!(halving.at(20), 2.0);
    /// ```
    pub fn at(&self, count: u64) -> f64 {
        self.kind().value(count)
    }

    /// Checks every argument; optimizers call it in `init`.
    ///
    /// # Errors
    ///
    /// Fails if an argument is out of its range: see the `Errors` of each constructor. All values must be finite.
    ///
    /// ```
    /// use gradchain::schedule::{Schedule, cosine_decay};
    /// let error = Schedule::from(cosine_decay(0.1, 0)).validate().unwrap_err();
    /// assert_eq!(error.to_string(), "cosine_decay: argument `decay_steps` must be at least 1, found 0");
    /// ```
    pub fn validate(&self) -> Result<()> {
        self.kind().check_all(self.kind().name())
    }

    /// Returns the values at several counts, for plots or inspection.
    ///
    /// ```
    /// use gradchain::schedule::{Schedule, linear};
    /// let line = Schedule::from(linear(0.0, 1.0, 100));
    /// assert_eq!(line.sample((0..=100).step_by(50)), [0.0, 0.5, 1.0]);
    /// ```
    pub fn sample(&self, counts: impl IntoIterator<Item = u64>) -> Vec<f64> {
        counts.into_iter().map(|count| self.at(count)).collect()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

trait Kind: declared::Declared {
    fn value(&self, count: u64) -> f64;
    /// Checks conditions beyond ranges; `function` is the name in the message.
    fn check(&self, function: &str) -> Result<()> {
        let _ = function;
        Ok(())
    }
    fn check_all(&self, function: &str) -> Result<()> {
        self.check_ranges(function)?;
        self.check(function)
    }
}

macro_rules! kinds {
    ($($Kind:ident),* $(,)?) => {
        impl Schedule {
            fn kind(&self) -> &dyn Kind {
                match self {
                    $(Schedule::$Kind(kind) => kind,)*
                }
            }

            fn kind_mut(&mut self) -> &mut dyn Kind {
                match self {
                    $(Schedule::$Kind(kind) => kind,)*
                }
            }
        }
        $(
            impl $Kind {
                /// Returns the value at a step count; the first step has count 0.
                pub fn at(&self, count: u64) -> f64 {
                    self.value(count)
                }
            }

            impl From<$Kind> for Schedule {
                fn from(kind: $Kind) -> Schedule {
                    Schedule::$Kind(kind)
                }
            }

            impl IntoHyperparam for $Kind {}
            impl hyperparam::private::Sealed for $Kind {}

            impl From<$Kind> for Hyperparam {
                fn from(kind: $Kind) -> Hyperparam {
                    Hyperparam::Schedule(kind.into())
                }
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! each_kind {
    ($call:ident) => {
        $call!(
            Constant,
            Linear,
            Polynomial,
            ExponentialDecay,
            CosineDecay,
            PiecewiseConstant,
            PiecewiseInterpolate,
            WarmupConstant,
            WarmupCosineDecay,
            WarmupExponentialDecay,
            LinearOnecycle,
            CosineOnecycle,
            Sgdr,
            Join,
            WarmupStableDecay,
            InverseSqrt,
            Rex,
            CosineRestarts,
            Table,
            Clamp,
            Sum,
            Product,
            FromFn,
        );
    };
}
each_kind!(kinds);

/// Converts a number to a constant schedule.
impl From<f64> for Schedule {
    fn from(value: f64) -> Schedule {
        constant(value).into()
    }
}

fn require(ok: bool, function: &str, argument: &str, expected: &str, found: impl fmt::Display) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::argument(function, argument, expected, found)) }
}

/// Returns an error for the first value that is not finite.
fn finite(function: &str, arguments: &[(&str, f64)]) -> Result<()> {
    arguments.iter().try_for_each(|&(name, value)| require(value.is_finite(), function, name, "a finite number", value))
}

/// Returns a transition's progress from 0 to 1.
fn fraction(count: u64, steps: u64) -> f64 {
    count.min(steps) as f64 / steps as f64
}
