//! Constructors of the crate's transformations, by family, whose arguments are then read. `src/optimizer/list.rs` lists
//! the optimizers; a family has those whose type depends on their arguments.

mod adaptive;
mod common;
#[cfg(feature = "contrib")]
mod contrib;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
#[cfg(feature = "minimize")]
mod minimize;
pub(super) mod noise;
mod norms;
mod parameter_free;
mod projection;
mod sign;
mod watching;
mod wrappers;

use std::sync::LazyLock;

use super::registry::Registry;
use crate::arguments::required;
use crate::optimizer::*;

pub(super) static ALL: LazyLock<Registry> = LazyLock::new(Registry::new);

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// Returns all transformations of the crate.
    pub fn new() -> Registry {
        let mut registry = Registry::empty();
        let families = [
            adaptive::register,
            #[cfg(feature = "contrib")]
            contrib::register,
            curvature::register,
            elementwise::register,
            loss::register,
            matrix::register,
            #[cfg(feature = "minimize")]
            minimize::register,
            noise::register,
            norms::register,
            parameter_free::register,
            projection::register,
            sign::register,
            watching::register,
            wrappers::register,
        ];
        list(&mut registry);
        families.into_iter().for_each(|register| register(&mut registry));
        registry
    }
}

fn list(to: &mut Registry) {
    include!("../../optimizer/list.rs");
}
