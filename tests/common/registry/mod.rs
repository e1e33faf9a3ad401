//! Every transformation, and chains and nestings of them: what the laws run over. A new transformation is one line in
//! its family's file; a new family is one line in each of the two lists below.

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

/// Every entry of every family that is [`chosen`].
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
    families.into_iter().flatten().filter(|entry| chosen(entry.name())).collect()
}

/// Whether an entry is tested: all are, unless the variable `ENTRY` has words, with commas between them, of which the
/// name must contain one.
pub fn chosen(name: &str) -> bool {
    std::env::var("ENTRY").is_ok_and(|words| words.split(',').any(|word| name.contains(word))) || every()
}

/// Whether all entries are tested.
pub fn every() -> bool {
    std::env::var_os("ENTRY").is_none()
}

/// Asserts that those entries are otherwise which a list with reasons, that of the caller, says are.
#[track_caller]
pub fn only_these(found: &[String], exceptions: &[(&str, &str)], what: &str) {
    let listed = |name: &str| exceptions.iter().any(|(listed, _)| *listed == name);
    let new: Vec<_> = found.iter().filter(|name| !listed(name)).collect();
    let names = exceptions.iter().map(|(name, _)| *name).filter(|name| chosen(name));
    let gone: Vec<_> = names.filter(|name| !found.iter().any(|found| found == name)).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "{what}: {new:?} too, and are not in the list of exceptions of this test, which has a reason for each; {gone:?} do not, \
         and are in it"
    );
}
