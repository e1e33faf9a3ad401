//! Arguments by name: for configs, for messages, and for what sets them while training runs.

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
