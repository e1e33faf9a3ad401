//! Transformations as data.

use super::Stage;
use crate::recipe::{Recipe, ToRecipe};

/// A transformation as an argument of another; its recipe is made only when it is asked for.
pub struct Inner<'a, T>(pub &'a T);

impl<T: Stage> ToRecipe for Inner<'_, T> {
    fn to_recipe(&self) -> Recipe {
        self.0.recipe()
    }
}
