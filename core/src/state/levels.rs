use core::fmt::{Display, Write};

use super::below;

/// The path levels of wrappers around inner transformations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels(Vec<(String, usize)>);

impl Levels {
    pub(super) fn add(&mut self, path: &str, key: &str) {
        self.0.push((path.into(), key.len()));
    }

    /// Returns the path without these levels: chain members and groups alone.
    pub(crate) fn shown(&self, path: &str) -> String {
        let (mut shown, mut from) = (String::new(), 0);
        let mut keep = |levels: &str| {
            let levels = levels.trim_matches('.');
            if !(shown.is_empty() || levels.is_empty()) {
                shown.push('.');
            }
            shown.push_str(levels);
        };
        // Walks enter outer levels first.
        for (level, key) in self.0.iter().filter(|(level, _)| below(path, level).is_some()) {
            keep(&path[from..level.len() - key]);
            from = level.len();
        }
        keep(&path[from..]);
        shown
    }
}

/// Enters a level and returns the path's previous length. Compiled once, as are the two below.
pub(super) fn enter(path: &mut String, key: &dyn Display) -> usize {
    let parent = path.len();
    if parent > 0 {
        path.push('.');
    }
    write!(path, "{key}").expect("writing to a String succeeds");
    parent
}

/// As [`enter`], for a numbered member, or a name in place of the number.
pub(super) fn enter_member(path: &mut String, names: &mut Vec<String>, index: usize) -> (usize, Vec<String>) {
    let names = core::mem::take(names);
    let parent = match names.get(index) {
        Some(name) => enter(path, name),
        None => enter(path, &index),
    };
    (parent, names)
}

pub(super) fn leave_member(path: &mut String, names: &mut Vec<String>, (parent, outer): (usize, Vec<String>)) {
    path.truncate(parent);
    *names = outer;
}
