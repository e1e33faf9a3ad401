//! Entries that name leaves or whole subtrees.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::tree::Structure;
pub use crate::tree::structure::holds;

/// Returns each leaf's entry. Every entry has a leaf, no leaf has two, and if `complete` each has one.
pub fn assign(entries: &[&str], structure: &Structure, complete: bool, what: &str) -> Result<Vec<Option<usize>>> {
    let mut used = vec![false; entries.len()];
    let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
    entries.iter().enumerate().for_each(|(i, entry)| by_path.entry(entry).or_default().push(i));
    let mut problems = Vec::new();
    let mut assigned = Vec::with_capacity(structure.len());
    for leaf in structure.paths() {
        // All levels above the leaf, and the leaf.
        let above = leaf.match_indices('/').map(|(at, _)| &leaf[..at]).chain([leaf, ""]);
        let mut under: Vec<usize> = above.filter_map(|path| by_path.get(path)).flatten().copied().collect();
        under.sort_unstable();
        under.dedup();
        under.iter().for_each(|&i| used[i] = true);
        match under[..] {
            [] if complete => problems.push(format!("leaf `{leaf}` is under no entry")),
            [] | [_] => {}
            _ => {
                let names: Vec<_> = under.iter().map(|&i| format!("`{}`", entries[i])).collect();
                problems.push(format!("leaf `{leaf}` is under {}", names.join(" and ")));
            }
        }
        assigned.push(under.first().copied());
    }
    let idle = entries.iter().zip(used).filter(|(_, used)| !used);
    problems.extend(idle.map(|(entry, _)| format!("entry `{entry}` has no leaf")));
    if problems.is_empty() {
        return Ok(assigned);
    }
    let every_leaf = if complete { "exactly" } else { "at most" };
    let expected = format!("paths with at least one leaf each, such that each leaf is under {every_leaf} one");
    Err(Error::argument(what, "tree", &expected, format_args!("\n  {}", problems.join("\n  "))))
}
