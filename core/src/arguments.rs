//! Named arguments: for configs, for messages, and for setters in a run.

use crate::error::{Error, Result};
use crate::range::Range;
use crate::recipe::{Recipe, Setting};
use crate::schedule::Hyperparam;
use crate::state::ArgumentValues;

/// A transformation with named arguments.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no named arguments",
    label = "no named arguments",
    note = "a chain has none: inject those of its members, `chain((clip(1.0), inject_hyperparams(adam(0.1))))`"
)]
pub trait Arguments {
    /// Name of the transformation in messages and configs.
    const NAME: &'static str;

    /// Returns the name, which is known only at run time for boxed transformations.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Visits every argument, under its name in the builder, in a fixed order.
    fn arguments(&mut self, visit: &mut Visit<'_>);
}

/// Receives arguments in turn.
pub type Visit<'a> = dyn FnMut(&'static str, Argument<'_>) + 'a;

/// One argument of a transformation.
#[non_exhaustive]
pub enum Argument<'a> {
    /// A number or a schedule.
    Hyperparam(&'a mut Hyperparam),
    /// Any argument other than a number: a mask, a flag, a dtype. Never injected.
    Static(&'a mut dyn Setting),
}

impl<'a> Argument<'a> {
    /// Returns the argument as a setting.
    pub fn setting(self) -> &'a mut dyn Setting {
        match self {
            Argument::Hyperparam(hyperparam) => hyperparam,
            Argument::Static(setting) => setting,
        }
    }
}

/// A value that can be out of its range: a number, a hyperparameter, or an option of these.
///
/// # Example
///
/// ```
/// use gradchain::arguments::CheckRange;
/// use gradchain::range;
///
/// let error = Some(1.5).check_range("soap", "shampoo_beta", range::DECAY).unwrap_err();
/// assert_eq!(error.to_string(), "soap: argument `shampoo_beta` must be in [0, 1), found 1.5");
/// assert!(None::<f64>.check_range("soap", "shampoo_beta", range::DECAY).is_ok());
/// ```
pub trait CheckRange {
    /// Checks that it is in a range; an absent value always is.
    ///
    /// # Errors
    ///
    /// Fails if it is not, or if a schedule is invalid; the values of a schedule are not known in advance.
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()>;
}

impl CheckRange for Hyperparam {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        Hyperparam::check_range(self, function, argument, range)
    }
}

impl<T: CheckRange> CheckRange for Option<T> {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        self.as_ref().map_or(Ok(()), |given| given.check_range(function, argument, range))
    }
}

impl CheckRange for f64 {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        check_number_range(*self, self, function, argument, range)
    }
}

impl CheckRange for i64 {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        check_number_range(*self as f64, self, function, argument, range)
    }
}

impl CheckRange for u64 {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        check_number_range(*self as f64, self, function, argument, range)
    }
}

impl CheckRange for usize {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        check_number_range(*self as f64, self, function, argument, range)
    }
}

/// Checks that a number is in a range; `shown` is the number for messages.
fn check_number_range(
    number: f64,
    shown: impl core::fmt::Display,
    function: &str,
    argument: &str,
    range: Range,
) -> Result<()> {
    if (range.contains)(number) { Ok(()) } else { Err(Error::argument(function, argument, range.text, shown)) }
}

/// Returns an optional hyperparameter as an argument; its presence is fixed.
pub fn optional(hyperparam: &mut Option<Hyperparam>) -> Argument<'_> {
    match hyperparam {
        Some(hyperparam) => Argument::Hyperparam(hyperparam),
        none => Argument::Static(none),
    }
}

/// Returns a placeholder for a number that a config must give: see `config::Registry`.
pub fn required() -> Hyperparam {
    Hyperparam::MISSING
}

/// Returns the recipe of arguments.
pub fn recipe_of(name: &str, arguments: &mut dyn FnMut(&mut Visit<'_>)) -> Recipe {
    let mut entries = Vec::new();
    arguments(&mut |name, argument| entries.push((String::from(name), argument.setting().to_recipe())));
    Recipe::Map(vec![(name.into(), Recipe::Map(entries))])
}

pub(crate) fn hyperparams_of(arguments: &mut dyn FnMut(&mut Visit<'_>)) -> ArgumentValues {
    let mut all = Vec::new();
    arguments(&mut |name, argument| {
        if let Argument::Hyperparam(hyperparam) = argument {
            all.push((name, hyperparam.clone()));
        }
    });
    all
}
