//! What watches the steps go by.

pub(in crate::config) mod monitor;

use crate::config::member::family;
use crate::transform::reduce_on_plateau;

family! { |a|
    "reduce_on_plateau" => reduce_on_plateau()
        .patience(a.or("patience", 10)?)
        .cooldown(a.or("cooldown", 0)?)
        .accumulation_size(a.or("accumulation_size", 1)?),
}
