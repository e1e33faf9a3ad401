//! Every transformation, and chains and nestings of them: what the laws run over. A new transformation is one line in its
//! family's file; a new family is one line in each of the two lists below.

mod adaptive;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
mod noise;
mod norms;
mod parameter_free;
mod projection;
mod sign;
mod watching;
mod wrappers;

use super::subject::Subject;

/// What a law needs to know of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct About {
    /// Each element's update depends on that element alone.
    pub elementwise: bool,
    /// Linear in the gradient up to its own state, so that a mean of gradients can be compared to a batch.
    pub per_step: bool,
}

const ELEMENT: About = About { elementwise: true, per_step: true };
const WHOLE: About = About { elementwise: false, per_step: true };
/// What counts mini-steps itself does something else with `k` gradients than with their mean.
const WINDOWS: About = About { elementwise: true, per_step: false };
const WHOLE_WINDOWS: About = About { elementwise: false, per_step: false };

/// One family's entries.
macro_rules! family {
    ($($name:ident, $about:expr, $transformation:expr;)*) => {
        /// Every entry.
        pub fn entries() -> Vec<Box<dyn crate::common::subject::Subject>> {
            #[allow(unused_imports, reason = "in some families every entry has named arguments")]
            use crate::common::subject::{Anonymous as _, Entry, Named as _};
            // Through `Named` where there are named arguments, else through `Anonymous`.
            vec![$(Entry { name: stringify!($name).into(), about: $about, transformation: $transformation }.subject()),*]
        }
    };
}
use family;

/// Every entry of every family. If the variable `ENTRY` is set, only those whose name contains it.
#[rustfmt::skip]
pub fn registry() -> Vec<Box<dyn Subject>> {
    let families = [
        adaptive::entries(),
        curvature::entries(),
        elementwise::entries(),
        loss::entries(),
        matrix::entries(),
        noise::entries(),
        norms::entries(),
        parameter_free::entries(),
        projection::entries(),
        sign::entries(),
        watching::entries(),
        wrappers::entries(),
    ];
    let wanted = std::env::var("ENTRY").unwrap_or_default();
    families.into_iter().flatten().filter(|entry| entry.name().contains(&wanted)).collect()
}
