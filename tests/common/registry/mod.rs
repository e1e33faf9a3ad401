//! Every transformation, with chains and nestings of them, for the laws.
//!
//! Add a transformation as one line in its family's file, and a family as one line in each of the two lists below.
//! Optimizers of the crate's list need a line only for other arguments than in `optimizers.rs`, or to be `WHOLE`.

mod adaptive;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
mod noise;
mod norms;
mod optimizers;
mod parameter_free;
mod projection;
mod sign;
mod watching;
mod wrappers;

pub use self::optimizers::with_rate;
use super::subject::Subject;

/// The inputs of an element's update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Locality {
    /// Only the element, without its place or its leaf's shape.
    Element,
    /// Others too, its place or the shape.
    Whole,
}

const ELEMENT: Locality = Locality::Element;
const WHOLE: Locality = Locality::Whole;

/// Defines one family's entries.
macro_rules! family {
    ($($name:ident, $locality:expr, $transformation:expr;)*) => {
        pub fn entries() -> Vec<Box<dyn crate::common::subject::Subject>> {
            #[allow(unused_imports, reason = "in some families every entry has named arguments")]
            use crate::common::subject::{Anonymous as _, Entry, Named as _};
            // Through `Named` for transformations with named arguments, else through `Anonymous`.
            vec![$(
                Entry { name: stringify!($name).into(), locality: $locality, transformation: $transformation }.subject()
            ),*]
        }
    };
}
use family;

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
    let mut entries = families.into_iter().flatten().collect();
    optimizers::add_unlisted(&mut entries);
    entries.retain(|entry| is_selected(entry.name()));
    entries
}

/// Returns true if an entry is tested: if its name contains a word of the comma-separated `ENTRY`, or without `ENTRY`.
pub fn is_selected(name: &str) -> bool {
    std::env::var("ENTRY").is_ok_and(|words| words.split(',').any(|word| name.contains(word))) || all_selected()
}

pub fn all_selected() -> bool {
    std::env::var_os("ENTRY").is_none()
}

/// Asserts that `found` are exactly the caller's listed exceptions.
#[track_caller]
pub fn assert_exceptions(found: &[String], exceptions: &[(&str, &str)], what: &str) {
    let listed = |name: &str| exceptions.iter().any(|(listed, _)| *listed == name);
    let new: Vec<_> = found.iter().filter(|name| !listed(name)).collect();
    let names = exceptions.iter().map(|(name, _)| *name).filter(|name| is_selected(name));
    let gone: Vec<_> = names.filter(|name| !found.iter().any(|found| found == name)).collect();
    let mut wrong = Vec::new();
    if !new.is_empty() {
        wrong.push(format!(
            "{new:?} too, and are not in the list of exceptions above this test, which has a reason for each"
        ));
    }
    if !gone.is_empty() {
        wrong.push(format!("{gone:?} do not, and are in the list of exceptions above this test"));
    }
    assert!(wrong.is_empty(), "{what}: {}", wrong.join("; "));
}
