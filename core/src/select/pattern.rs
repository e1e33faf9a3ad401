//! A pattern and its leaves.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Error, Result, is_suggestion};
use crate::tree::Structure;

/// A glob, validated and matched against a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(Arc<str>);

impl Pattern {
    #[doc(hidden)]
    pub fn new(glob: impl Into<Arc<str>>) -> Pattern {
        Pattern(glob.into())
    }

    #[doc(hidden)]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns true if a path matches; [`resolve`](Self::resolve) has validated the pattern.
    #[doc(hidden)]
    pub fn matches(&self, path: &str) -> bool {
        fast_glob::glob_match(&*self.0, path)
    }

    pub(crate) fn any(&self, structure: &Structure, what: &str) -> Result<Vec<bool>> {
        let glob = &*self.0;
        fast_glob::validate(glob).map_err(|problem| {
            Error::argument(what, "pattern", "a well-formed glob", format_args!("`{glob}`: {problem}"))
        })?;
        // A negation matches nearly everything, which would hide misspelt names.
        if glob.starts_with('!') {
            let expected = "without a leading `!` (negate the mask instead; a key that starts so is written `\\!`)";
            return Err(Error::argument(what, "pattern", expected, format_args!("`{glob}`")));
        }
        Ok(structure.paths().map(|path| self.matches(path)).collect())
    }

    /// Returns the matching leaves; fails without any.
    #[doc(hidden)]
    pub fn resolve(&self, structure: &Structure, what: &str) -> Result<Vec<bool>> {
        let glob = &*self.0;
        let matches = |glob: &str| structure.paths().map(|path| fast_glob::glob_match(glob, path)).collect::<Vec<_>>();
        let matched = self.any(structure, what)?;
        if matched.contains(&true) {
            return Ok(matched);
        }
        // Common mistakes: a layer for its leaves, a leaf for a layer, a name without its path, dots for slashes.
        let levels = glob.replace('.', "/");
        let near = [
            Some(format!("{glob}/**")),
            glob.strip_suffix("/**").map(String::from),
            (!glob.starts_with("**/")).then(|| format!("**/{glob}")),
            Some(format!("{levels}/**")),
            Some(levels),
        ];
        let meant = near.into_iter().flatten().find(|near| matches(near).contains(&true));
        let meant = meant.or_else(|| nearest_pattern(glob, structure).filter(|near| matches(near).contains(&true)));
        let paths = structure.paths().map(String::from).collect();
        Err(Error::no_match(format!("{what}: pattern"), glob, paths, meant))
    }
}

/// Replaces the pattern's one unknown level by the nearest known one.
fn nearest_pattern(glob: &str, structure: &Structure) -> Option<String> {
    let known: BTreeSet<&str> = structure.paths().flat_map(|path| path.split('/')).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let levels: Vec<&str> = glob.split('/').collect();
    // Not a number, which is near to all others.
    let is_name = |level: &str| level.contains(char::is_alphabetic) && !level.contains(['*', '?', '[', '{', '\\']);
    let mut strange = levels.iter().enumerate().filter(|(_, level)| is_name(level) && !known.contains(level));
    let (at, level) = strange.next().filter(|_| strange.next().is_none())?;
    let meant = known.iter().find(|one| is_suggestion(level, &known, one))?;
    let mut levels = levels.clone();
    levels[at] = meant;
    Some(levels.join("/"))
}
