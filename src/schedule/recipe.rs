//! Schedules as data.

use super::{DecayShape, Hyperparam, Schedule};
use crate::recipe::{Recipe, ToRecipe};

impl ToRecipe for Schedule {
    fn to_recipe(&self) -> Recipe {
        self.kind().recipe()
    }
}

impl ToRecipe for DecayShape {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(match self {
            DecayShape::Linear => "linear",
            DecayShape::OneMinusSqrt => "one_minus_sqrt",
            DecayShape::Cosine => "cosine",
        })
    }
}

impl ToRecipe for Hyperparam {
    fn to_recipe(&self) -> Recipe {
        match self {
            Hyperparam::Number(number) => Recipe::Number(*number),
            Hyperparam::Schedule(schedule) => Recipe::map([("schedule", schedule.to_recipe())]),
        }
    }
}
