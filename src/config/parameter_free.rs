//! What finds its step size by itself: from the value of the loss, from the distance covered, by averaging.

use super::error::{ConfigError, Result};
use super::node::{Node, Read};
use super::registry::family;
use crate::optimizer::*;
use crate::transform::*;

family! { |a|
    "polyak_sgd" => polyak_sgd().variant(a.or("variant", PolyakVariant::default())?),
    "reduce_on_plateau" => reduce_on_plateau()
        .patience(a.or("patience", 10)?)
        .cooldown(a.or("cooldown", 0)?)
        .accumulation_size(a.or("accumulation_size", 1)?),
    "scale_by_polyak" => scale_by_polyak().variant(a.or("variant", PolyakVariant::default())?),
}

impl Read for PolyakVariant {
    fn read(node: &Node<'_>) -> Result<PolyakVariant> {
        PolyakVariant::from_name(node.text("a string")?).map_err(|error| ConfigError::refused(&node.place, error))
    }
}
