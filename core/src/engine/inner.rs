//! Inner transformations as arguments.

use core::any::Any;

use super::Stage;
use crate::recipe::{Node, Recipe, Result, Setting, ToRecipe};

/// A required transformation argument. Its recipe is made on demand.
pub struct Inner<'a, T>(pub &'a mut T);

impl<T: Stage> ToRecipe for Inner<'_, T> {
    fn to_recipe(&self) -> Recipe {
        self.0.recipe()
    }
}

impl<T: Stage> Setting for Inner<'_, T> {
    fn set(&mut self, node: &Node<'_>) -> Result<()> {
        node.build_into(self.0 as &mut dyn Any)
    }
    fn schema(&self) -> String {
        r##"{"$ref": "#/$defs/transformation"}"##.into()
    }
    fn is_missing(&self) -> bool {
        true
    }
}
