use core::fmt;

use crate::part::prelude::*;
use crate::recipe::Recipe;

/// Decides, from a sum over all gradients, whether [`multi_steps`] discards a mini-step.
///
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
pub trait SkipUpdate: Clone + fmt::Debug + Send + Sync + 'static {
    /// Returns the construction of the function as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::Opaque(format!("{self:?}"))
    }

    /// True if the function can skip.
    const DECIDES: bool = true;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the contribution of one element to the sum.
    fn measure<C: Real>(u: C) -> C::Wide;

    /// Returns true if the mini-step is skipped, given the sum.
    fn skips(&self, sum: f64) -> bool;
}

/// Never skips; the default of [`multi_steps`].
///
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSkip;

impl SkipUpdate for NoSkip {
    fn to_recipe(&self) -> Recipe {
        Recipe::Null
    }

    const DECIDES: bool = false;

    fn measure<C: Real>(_: C) -> C::Wide {
        <C::Wide as Real>::of(0.0)
    }

    fn skips(&self, _: f64) -> bool {
        false
    }
}

/// Returns 1 for NaN and the infinities, else 0.
#[inline(always)]
pub(crate) fn not_finite<C: Real>(u: C) -> f64 {
    if u.abs() < C::infinity() { 0.0 } else { 1.0 }
}

/// Skips a mini-step in which any element of the gradients is NaN or infinite.
pub fn skip_not_finite() -> SkipNotFinite {
    SkipNotFinite
}

/// See [`skip_not_finite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipNotFinite;

impl SkipUpdate for SkipNotFinite {
    fn to_recipe(&self) -> Recipe {
        Recipe::text("skip_not_finite")
    }

    #[inline(always)]
    fn measure<C: Real>(u: C) -> C::Wide {
        <C::Wide as Real>::of(not_finite(u))
    }

    fn skips(&self, not_finite: f64) -> bool {
        not_finite > 0.0
    }
}

/// Skips a mini-step whose gradients have a squared norm of `max_squared_norm` or more, or NaN.
///
/// # Errors
///
/// `init` fails if `max_squared_norm` is not positive.
pub fn skip_large_updates(max_squared_norm: f64) -> SkipLargeUpdates {
    SkipLargeUpdates { max_squared_norm }
}

/// See [`skip_large_updates`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SkipLargeUpdates {
    /// The smallest squared norm that is skipped; positive.
    pub max_squared_norm: f64,
}

impl SkipUpdate for SkipLargeUpdates {
    fn to_recipe(&self) -> Recipe {
        Recipe::call("skip_large_updates", [("max_squared_norm", Recipe::Number(self.max_squared_norm))])
    }

    fn validate(&self) -> Result<()> {
        if self.max_squared_norm > 0.0 {
            return Ok(());
        }
        Err(Error::argument("skip_large_updates", "max_squared_norm", "positive", self.max_squared_norm))
    }

    #[inline(always)]
    fn measure<C: Real>(u: C) -> C::Wide {
        u.wide() * u.wide()
    }

    fn skips(&self, squared_norm: f64) -> bool {
        squared_norm >= self.max_squared_norm || squared_norm.is_nan()
    }
}
