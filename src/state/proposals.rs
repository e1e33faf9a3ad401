//! Which verbs would explain what does not fit.

use std::collections::BTreeSet;

use super::ItemSpec;

/// Lines that say by which verbs what is missing would be what is left, where there is one way only.
pub(super) fn proposals(missing: &[&ItemSpec], left: &[&ItemSpec]) -> Vec<String> {
    let (pairs, mut told, mut lines) = (pairs(missing, left), BTreeSet::new(), Vec::new());
    for (from, to) in &pairs {
        if let Some((chain, shift)) = chain_of_both(from, to).and_then(|chain| Some((chain, shift(&pairs, chain)?))) {
            // One member more or less moves all that come after it.
            if told.insert(chain) {
                lines.push(shift.line(chain, missing, left));
            }
        } else if pairs.contains(&(to.clone(), from.clone())) {
            // Verbs are done one after the other. Said once.
            if from < to {
                let verbs = format!(
                    "`rename_part({from:?}, \"other\")`, `rename_part({to:?}, {from:?})` and `rename_part(\"other\", {to:?})`"
                );
                lines.push(format!("{}, and the other way round: {verbs} take them over", found(from, to)));
            }
        } else if let Some(verbs) = wraps(from, to) {
            let takes = if verbs.len() == 1 { "takes" } else { "take" };
            lines.push(format!("{}: {} {takes} them over", found(from, to), verbs.join(" and then ")));
        } else {
            lines.push(format!("{}: `rename_part({from:?}, {to:?})` takes them over", found(from, to)));
        }
    }
    if !lines.is_empty() {
        lines.push("these are verbs of a `Migration`, which `Load::migrating` and `OptState::migrate` take".into());
    }
    lines
}

fn found(from: &str, to: &str) -> String {
    let called = |path: &str| if path.is_empty() { "the whole state".into() } else { format!("`{path}`") };
    format!("what was {} has the fields of {}", called(from), called(to))
}

/// Parts of which every field is in the other state under another path.
fn pairs(missing: &[&ItemSpec], left: &[&ItemSpec]) -> BTreeSet<(String, String)> {
    let last = |spec: &ItemSpec| spec.name.field.rsplit('.').next().map(str::to_owned);
    let fits =
        |a: &ItemSpec, b: &ItemSpec| (&a.name.of, a.kind, &a.array, last(a)) == (&b.name.of, b.kind, &b.array, last(b));
    let mut found = BTreeSet::new();
    for new in missing {
        let mut olds = left.iter().filter(|old| fits(old, new));
        let one = olds.next().filter(|_| olds.next().is_none());
        if let Some(old) = one.filter(|old| missing.iter().filter(|new| fits(old, new)).count() == 1) {
            let (mut from, mut to) = (old.name.field.as_str(), new.name.field.as_str());
            // At least the field's own name is the same.
            loop {
                let ((a, x), (b, y)) = (split(from), split(to));
                if x != y || x.is_empty() {
                    break;
                }
                (from, to) = (a, b);
            }
            found.insert((from.to_owned(), to.to_owned()));
        }
    }
    found
}

/// A path and its last level.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// The number of a member of a chain.
fn number(path: &str) -> Option<usize> {
    split(path).1.parse().ok()
}

/// The chain of which both are members.
fn chain_of_both<'a>(from: &'a str, to: &str) -> Option<&'a str> {
    let ((chain, _), (other, _)) = (split(from), split(to));
    (chain == other && number(from).is_some() && number(to).is_some()).then_some(chain)
}

/// Members of a chain that are one place apart from where they were.
struct Shift<'a> {
    from: &'a str,
    to: &'a str,
}

/// If members of a chain are one place apart from where they were, all in the same direction: the first of them.
fn shift<'a>(pairs: &'a BTreeSet<(String, String)>, chain: &str) -> Option<Shift<'a>> {
    let inside = pairs.iter().filter(|(from, to)| chain_of_both(from, to) == Some(chain));
    let inside = inside.filter_map(|(from, to)| Some((number(from)?, number(to)?, Shift { from, to })));
    let (mut later, mut before): (Vec<_>, Vec<_>) =
        inside.filter(|(from, to, _)| from.abs_diff(*to) == 1).partition(|(from, to, _)| to > from);
    match (later.is_empty(), before.is_empty()) {
        (false, true) => Some(later.remove(0).2),
        (true, false) => Some(before.remove(0).2),
        _ => None,
    }
}

impl Shift<'_> {
    fn line(&self, chain: &str, missing: &[&ItemSpec], left: &[&ItemSpec]) -> String {
        let (from, to) = (number(self.from).unwrap_or(0), number(self.to).unwrap_or(0));
        let (at, verb, what) = match to > from {
            true => (first(chain, missing).min(from), "insert_part", "a member was inserted"),
            false => (first(chain, left).min(to), "remove_part", "a member was taken away"),
        };
        let at = if chain.is_empty() { at.to_string() } else { format!("{chain}.{at}") };
        format!("{}: if {what}, `{verb}({at:?})` says so", found(self.from, self.to))
    }
}

/// The first member of a chain that something belongs to.
fn first(chain: &str, specs: &[&ItemSpec]) -> usize {
    let inside = |spec: &&ItemSpec| super::below(&spec.name.field, chain)?.split('.').next()?.parse().ok();
    specs.iter().filter_map(inside).min().unwrap_or(usize::MAX)
}

/// The levels of a path below a part.
fn levels<'a>(path: &'a str, part: &str) -> Option<Vec<&'a str>> {
    Some(super::below(path, part)?.split('.').filter(|level| !level.is_empty()).collect())
}

/// The verbs that put a part into wrappers and chains, or take it out of wrappers, from the inside out.
fn wraps(from: &str, to: &str) -> Option<Vec<String>> {
    if let Some(around) = levels(to, from) {
        let verb = |level: &str| match level {
            "inner" => Some(format!("`wrap_part({from:?})`")),
            level => level.parse().ok().map(|number: usize| format!("`wrap_in_chain({from:?}, {number})`")),
        };
        return around.into_iter().rev().map(verb).collect();
    }
    let around = levels(from, to)?;
    let unwrap = format!("`unwrap_part({to:?})`");
    around.iter().all(|level| *level == "inner").then(|| vec![unwrap; around.len()])
}
