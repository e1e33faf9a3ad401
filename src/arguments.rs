//! Arguments by name: for configs, for messages, and for what sets them while training runs.

use crate::error::{Error, Result};
use crate::range::Range;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;

/// A transformation with named arguments.
pub trait Arguments {
    /// The name of the transformation, as in messages and configs.
    const NAME: &'static str;

    /// The name, which of what is boxed is known at run time only.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Shows every argument, under the name it has in its builder, in a fixed order.
    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>));
}

/// One argument of a transformation.
pub enum Argument<'a> {
    /// A number or a schedule.
    Hyperparam(&'a mut Hyperparam),
    /// Anything that is not a number: a mask, a flag, a type. Never injected.
    Static(&'a dyn ToRecipe),
}

/// What can be out of its range: a number, a hyperparameter, or one of these that there may be none of.
///
/// # Example
///
/// ```
/// use gradchain::arguments::Within;
/// use gradchain::range;
///
/// let error = Some(1.5).within("soap", "shampoo_beta", range::DECAY).unwrap_err();
/// assert_eq!(error.to_string(), "soap: argument `shampoo_beta` must be in [0, 1), found 1.5");
/// assert!(None::<f64>.within("soap", "shampoo_beta", range::DECAY).is_ok());
/// ```
pub trait Within {
    /// Checks that it is in a range; what there is none of is in any.
    ///
    /// # Errors
    ///
    /// If it is not, or if a schedule is impossible: its values are not known beforehand.
    fn within(&self, function: &str, argument: &str, range: Range) -> Result<()>;
}

impl Within for Hyperparam {
    fn within(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        Hyperparam::within(self, function, argument, range)
    }
}

impl<T: Within> Within for Option<T> {
    fn within(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        self.as_ref().map_or(Ok(()), |given| given.within(function, argument, range))
    }
}

macro_rules! numbers {
    ($($N:ty),*) => {$(
        impl Within for $N {
            fn within(&self, function: &str, argument: &str, range: Range) -> Result<()> {
                match (range.holds)(*self as f64) {
                    true => Ok(()),
                    false => Err(Error::argument(function, argument, range.text, self)),
                }
            }
        }
    )*};
}
numbers!(f64, i64, u64, usize);

/// The recipe of what has named arguments.
pub(crate) fn recipe_of<T: Arguments + Clone>(transformation: &T) -> Recipe {
    let mut entries = Vec::new();
    transformation.clone().arguments(&mut |name, argument| {
        let value = match argument {
            Argument::Hyperparam(hyperparam) => hyperparam.to_recipe(),
            Argument::Static(value) => value.to_recipe(),
        };
        entries.push((String::from(name), value));
    });
    Recipe::Map(vec![(transformation.name().into(), Recipe::Map(entries))])
}

/// In an `impl Rule` of what has named arguments: says that these are its recipe.
macro_rules! recipe_of_arguments {
    () => {
        fn recipe(&self) -> $crate::recipe::Recipe {
            $crate::arguments::recipe_of(self)
        }
    };
}
pub(crate) use recipe_of_arguments;
