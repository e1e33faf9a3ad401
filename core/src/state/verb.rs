//! Operations of a migration on the fields of a state.

use core::fmt;

/// A verb of a migration, on fields by path.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    Rename { from: String, to: String },
    Insert(String),
    Remove(String),
    Wrap { at: String, inside: String },
    Unwrap(String),
    Fresh(String),
    Drop(String),
    Take { from: String, to: String },
    Cast(String),
    Split { at: String, groups: Vec<String> },
    Join { at: String, groups: Vec<String> },
    ParamsTo(String),
    ParamsFrom(String),
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verb::Rename { from, to } => write!(f, "rename_part({from:?}, {to:?})"),
            Verb::Insert(at) => write!(f, "insert_part({at:?})"),
            Verb::Remove(at) => write!(f, "remove_part({at:?})"),
            Verb::Wrap { at, inside } if inside == INNER => write!(f, "wrap_part({at:?})"),
            Verb::Wrap { at, inside } => write!(f, "wrap_in_chain({at:?}, {inside})"),
            Verb::Unwrap(at) => write!(f, "unwrap_part({at:?})"),
            Verb::Fresh(at) => write!(f, "fresh_part({at:?})"),
            Verb::Drop(at) => write!(f, "drop_part({at:?})"),
            Verb::Take { from, to } => write!(f, "take_part({from:?}, {to:?})"),
            Verb::Cast(at) => write!(f, "cast_part({at:?})"),
            Verb::Split { at, groups } => write!(f, "split_part({at:?}, {groups:?})"),
            Verb::Join { at, groups } => write!(f, "join_parts({at:?}, {groups:?})"),
            Verb::ParamsTo(to) => write!(f, "params_to_part({to:?})"),
            Verb::ParamsFrom(from) => write!(f, "params_from_part({from:?})"),
        }
    }
}

/// The field of a wrapper's inner state.
pub const INNER: &str = "inner";
