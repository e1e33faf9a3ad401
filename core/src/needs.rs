//! The inputs that a transformation needs besides gradients, as a type.
//!
//! Guide: [Extra arguments](https://docs.rs/gradchain/latest/gradchain/_guide/extra/index.html).
//!
//! Most transformations need [`Nothing`]. Some need the [`Value`] of the loss
//! ([`reduce_on_plateau`]), some also its value at other points ([`ValueFn`]),
//! line searches also the gradient there ([`ValueAndGradFn`]). Each includes those before it. The needs of a chain or a
//! wrapper follow from its members, so that a missing input does not compile:
//!
//! ```compile_fail
//! use gradchain::prelude::*;
//! use gradchain::optimizer::polyak_sgd;
//!
//! let optimizer = chain((clip(1.0), polyak_sgd()));
//! let mut params = 1.0_f64;
//! let mut state = optimizer.init(&params).unwrap();
//! optimizer.step(&mut params, &1.0, &mut state).unwrap(); // Polyak's step size needs the loss
//! ```
//!
//! and with it:
//!
//! ```
//! use gradchain::extra;
//! use gradchain::prelude::*;
//! use gradchain::optimizer::polyak_sgd;
//!
//! let optimizer = chain((clip(1.0), polyak_sgd()));
//! let mut params = 1.0_f64;
//! let mut state = optimizer.init(&params)?;
//! optimizer.step_with(&mut params, &1.0, extra::value(0.5), &mut state)?; // loss / gradient² = 0.5
//! assert_eq!(params, 0.5);
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! Code that is generic over transformations without inputs has the bound `T: GradientTransformation<Needs = Nothing>`.
//!
//! Random numbers are not among these: a key is part of the state, so that a resumed run has the numbers of an
//! uninterrupted one.
//!
//! [`reduce_on_plateau`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.reduce_on_plateau.html

/// One of [`Nothing`], [`Value`], [`ValueFn`], [`ValueAndGradFn`]: each includes those before it.
pub trait Needs: Includes<Self> + Includes<Nothing> + private::Sealed + Sized + 'static {
    /// The larger of two needs.
    type Or<Other: Needs>: Needs;
    /// The need as a value.
    const LEVEL: Level;
}

/// A need at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// [`Nothing`]
    Nothing,
    /// [`Value`]
    Value,
    /// [`ValueFn`]
    ValueFn,
    /// [`ValueAndGradFn`]
    ValueAndGradFn,
}

impl core::fmt::Display for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Level::Nothing => "nothing besides gradients",
            Level::Value => "the value of the loss",
            Level::ValueFn => "the loss as a function",
            Level::ValueAndGradFn => "the loss and its gradient as a function",
        })
    }
}

mod private {
    use super::Needs;

    pub trait Sealed {
        type OrValue: Needs;
        type OrValueFn: Needs;
    }
}

/// The order of needs.
pub trait Includes<Other> {}

macro_rules! needs {
    ($($(#[$doc:meta])* $Name:ident { Or: $Or:ty, OrValue: $OrValue:ident, OrValueFn: $OrValueFn:ident, includes: $($Other:ident)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $Name {}

        impl Needs for $Name {
            type Or<Other: Needs> = $Or;
            const LEVEL: Level = Level::$Name;
        }

        impl private::Sealed for $Name {
            type OrValue = $OrValue;
            type OrValueFn = $OrValueFn;
        }

        $(impl Includes<$Other> for $Name {})*
    )*};
}

needs! {
    /// Gradients are enough.
    Nothing { Or: Other, OrValue: Value, OrValueFn: ValueFn, includes: Nothing }
    /// The value of the loss at the parameters, where the gradients were taken.
    Value { Or: Other::OrValue, OrValue: Value, OrValueFn: ValueFn, includes: Nothing Value }
    /// The value of the loss there and, when asked for, at other points.
    ValueFn { Or: Other::OrValueFn, OrValue: ValueFn, OrValueFn: ValueFn, includes: Nothing Value ValueFn }
    /// The value of the loss there and, when asked for, value and gradient at other points.
    ValueAndGradFn {
        Or: ValueAndGradFn, OrValue: ValueAndGradFn, OrValueFn: ValueAndGradFn,
        includes: Nothing Value ValueFn ValueAndGradFn
    }
}

/// Inputs of a step that satisfy [`Needs`]; see [`extra`](crate::extra).
#[diagnostic::on_unimplemented(
    message = "the transformation needs `{N}`, but the step passes `{Self}`",
    label = "not enough for this transformation",
    note = "for `needs::Value`: `step_with(&mut params, &grads, extra::value(loss), &mut state)`; for `ValueFn` and \
            `ValueAndGradFn`: `extra::value_fn(loss, |params| ..)`, `extra::value_and_grad_fn(loss, |params| ..)`",
    note = "if the transformation is a parameter or a return value, state its needs: `impl \
            GradientTransformation<Needs = Nothing>`, with `gradchain::needs::Nothing`"
)]
pub trait Provides<N> {}
