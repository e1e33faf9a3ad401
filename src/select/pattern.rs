//! A pattern and the leaves it matches.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tree::Structure;

/// A glob; whether it is well formed and matches anything is found out when there is a tree to match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern(Arc<str>);

impl Pattern {
    pub(super) fn new(glob: impl Into<Arc<str>>) -> Pattern {
        Pattern(glob.into())
    }

    /// As it was written.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Which leaves it matches: at least one.
    pub(super) fn resolve(&self, structure: &Structure, what: &str) -> Result<Vec<bool>> {
        let glob = &*self.0;
        fast_glob::validate(glob).map_err(|problem| {
            Error::argument(what, "pattern", "a well-formed glob", format_args!("`{glob}`: {problem}"))
        })?;
        // A negation matches nearly everything, so a misspelt one would never be noticed.
        if glob.starts_with('!') {
            let expected = "without a leading `!` (negate the mask instead; a key that starts so is written `\\!`)";
            return Err(Error::argument(what, "pattern", expected, format_args!("`{glob}`")));
        }
        let matches = |glob: &str| structure.paths().map(|path| fast_glob::glob_match(glob, path)).collect::<Vec<_>>();
        let matched = matches(glob);
        if matched.contains(&true) {
            return Ok(matched);
        }
        // A layer is not its leaves, and a leaf has none below it.
        let near = [Some(format!("{glob}/**")), glob.strip_suffix("/**").map(String::from)];
        let meant = near.into_iter().flatten().find(|near| matches(near).contains(&true));
        let paths = structure.paths().map(String::from).collect();
        Err(Error::no_match(format!("{what}: pattern"), glob, paths, meant))
    }
}
