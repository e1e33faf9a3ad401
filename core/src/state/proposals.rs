//! Proposed verbs that explain misfits.

use std::collections::{BTreeSet, HashMap};

use super::moves::Matched;
use super::{INNER, ItemSpec, Kind, Owner, Source, Verb, below};
use crate::element::DType;

/// A message line, with its proposed verbs.
struct Proposal {
    line: String,
    verbs: Vec<Verb>,
}

impl Proposal {
    fn of(verb: Verb, line: impl FnOnce(&Verb) -> String) -> Proposal {
        Proposal { line: line(&verb), verbs: vec![verb] }
    }
}

/// Matches the states with additional verbs; `None` if one is invalid.
type With<'a> = &'a dyn Fn(&[Verb]) -> Option<Matched>;

/// Proposes verbs that match missing with remaining values, if the choice is unique.
///
/// Proposals are tested: together their verbs make the states fit.
pub(super) fn proposals(matched: &Matched, old: &[ItemSpec], new: &[ItemSpec], with: With<'_>) -> Vec<String> {
    let missing: Vec<(&str, &ItemSpec)> = matched.missing.iter().map(|i| (&*new[*i].name.field, &new[*i])).collect();
    let left: Vec<(&str, &ItemSpec)> = matched.left.iter().map(|(name, i)| (&*name.field, &old[*i])).collect();
    let Pairs { pairs, has_arrays } = pairs(&missing, &left);
    let mut moved = moved(&pairs, &missing, &left);
    let casts: Vec<Proposal> = casts(matched);
    for _ in 0..2 {
        let proposed = || casts.iter().chain(&moved);
        if let Some(SurroundingVerbs { before, after }) =
            surrounding(&proposed().collect::<Vec<_>>(), matched, new, has_arrays, with)
        {
            let all = || before.iter().chain(proposed()).chain(&after);
            let mut lines: Vec<String> = all().map(|proposal| proposal.line.clone()).collect();
            if all().flat_map(|proposal| &proposal.verbs).any(|verb| !matches!(verb, Verb::Cast(_))) {
                lines.push("pass these verbs to `Load::migrating` or `OptState::migrate`, in a `Migration`".into());
            }
            let verbs: Vec<Verb> = all().flat_map(|proposal| proposal.verbs.iter().cloned()).collect();
            lines.extend(copies(&verbs, new, with));
            return lines;
        }
        // Some renames work in one order only.
        moved.reverse();
    }
    Vec::new()
}

/// Proposes how a new wrapper's arrays, perhaps copies of the parameters, keep bits that the parameters lose.
fn copies(verbs: &[Verb], new: &[ItemSpec], with: With<'_>) -> Vec<String> {
    if !verbs.iter().any(|verb| matches!(verb, Verb::Wrap { .. })) {
        return Vec::new();
    }
    let Some(matched) = with(verbs) else { return Vec::new() };
    let is_reported =
        |field: &str| verbs.iter().any(|verb| matches!(verb, Verb::Fresh(at) if below(field, at).is_some()));
    let own = new
        .iter()
        .zip(&matched.from)
        .filter(|(spec, from)| **from == Source::Own && spec.array.is_some() && matches!(spec.name.of, Owner::Leaf(_)));
    let fields: BTreeSet<&str> = own.map(|(spec, _)| &*spec.name.field).filter(|field| !is_reported(field)).collect();
    // Not in memory: the old parameters are unknown.
    let fits = |field: &&str| {
        let all = [verbs, &[Verb::ParamsTo((*field).into())]].concat();
        with(&all).is_some_and(|matched| matched.lines.is_empty())
    };
    let line = |field: &str| {
        format!(
            "`init` makes `{field}` from the loaded parameters: if it is a copy of them and they are rounded, `{}` \
             copies the unrounded ones of the file",
            Verb::ParamsTo(field.into())
        )
    };
    fields.into_iter().filter(fits).map(line).collect()
}

/// Verbs around others that make the states fit.
struct SurroundingVerbs {
    /// Drops of old values without a place.
    before: Vec<Proposal>,
    /// Fresh starts of new values without a counterpart, and casts.
    after: Vec<Proposal>,
}

/// Completes verbs; `None` if drops and fresh starts do not suffice, or the states have nothing in common.
fn surrounding(
    proposed: &[&Proposal],
    matched: &Matched,
    new: &[ItemSpec],
    has_arrays: bool,
    with: With<'_>,
) -> Option<SurroundingVerbs> {
    let verbs_of = |proposals: &[Proposal]| -> Vec<Verb> {
        proposals.iter().flat_map(|proposal| proposal.verbs.iter().cloned()).collect()
    };
    let proposed: Vec<Verb> = proposed.iter().flat_map(|proposal| proposal.verbs.iter().cloned()).collect();
    let tried = with(&proposed)?;
    let stays = |i: usize| matched.to[i] == tried.to[i];
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for &[one, other] in &tried.duplicates {
        // Keeps the value that the verbs moved; the other is dropped.
        let of = match (stays(one), stays(other)) {
            (false, true) => other,
            (true, false) => one,
            _ => return None,
        };
        gone.extend(matched.to[of].iter().map(String::as_str));
    }
    gone.extend(tried.left.iter().flat_map(|(_, i)| &matched.to[*i]).map(String::as_str));
    let all: BTreeSet<&str> = matched.to.iter().flatten().map(String::as_str).collect();
    let drop =
        |at| Proposal::of(Verb::Drop(at), |verb| format!("`{verb}` discards the part without a counterpart here"));
    let before: Vec<Proposal> = whole_parts(&gone, &all).into_iter().map(drop).collect();
    let dropped = [verbs_of(&before), proposed].concat();
    let tried = with(&dropped)?;
    let fresh: BTreeSet<&str> = tried.missing.iter().map(|i| &*new[*i].name.field).collect();
    let all: BTreeSet<&str> = new.iter().map(|spec| &*spec.name.field).collect();
    let start = |at| Proposal::of(Verb::Fresh(at), |verb| format!("`{verb}` initializes the new part"));
    let mut after: Vec<Proposal> = whole_parts(&fresh, &all).into_iter().map(start).collect();
    // Counts alone are alike in all optimizers.
    if !has_arrays && (!before.is_empty() || !after.is_empty()) {
        return None;
    }
    after.extend(casts(&tried));
    let is_all = with(&[dropped, verbs_of(&after)].concat())?.lines.is_empty();
    is_all.then_some(SurroundingVerbs { before, after })
}

/// Returns the largest parts of exactly these fields; never the whole state.
fn whole_parts(fields: &BTreeSet<&str>, all: &BTreeSet<&str>) -> BTreeSet<String> {
    let is_whole = |part: &str| all.iter().all(|field| below(field, part).is_none() || fields.contains(field));
    let whole = |field: &&str| {
        let mut part = *field;
        while let Some((outer, _)) = part.rsplit_once('.').filter(|(outer, _)| is_whole(outer)) {
            part = outer;
        }
        part.to_owned()
    };
    fields.iter().map(whole).collect()
}

fn casts(matched: &Matched) -> Vec<Proposal> {
    let cast = |at: &String| {
        let line = |verb: &Verb| format!("`{verb}` rounds it to its new dtype");
        Proposal::of(Verb::Cast(at.clone()), line)
    };
    matched.casts.iter().map(cast).collect()
}

/// Returns verbs that move each part to its fields' new place.
fn moved(
    pairs: &BTreeSet<(String, String)>,
    missing: &[(&str, &ItemSpec)],
    left: &[(&str, &ItemSpec)],
) -> Vec<Proposal> {
    let rename = |from: &str, to: &str| Verb::Rename { from: from.into(), to: to.into() };
    let (mut reported, mut all) = (BTreeSet::new(), Vec::new());
    let SplitProposals { proposals, rest } = split_proposals(pairs);
    all.extend(proposals);
    for (from, to) in &rest {
        if let Some((chain, shift)) = chain_of_both(from, to).and_then(|chain| Some((chain, shift(pairs, chain)?))) {
            // An added or removed member shifts all members after it.
            if reported.insert(chain) {
                all.push(shift.proposal(chain, missing, left));
            }
        } else if pairs.contains(&(to.clone(), from.clone())) {
            // Verbs run in sequence; a swap is proposed once.
            if from < to {
                let verbs = vec![rename(from, "other"), rename(to, from), rename("other", to)];
                let line = format!("`{}`, `{}` and `{}`", verbs[0], verbs[1], verbs[2]);
                let line = format!("{}, and vice versa: {line} move them", describe_move(from, to));
                all.push(Proposal { line, verbs });
            }
        } else {
            let verbs = wraps(from, to).unwrap_or_else(|| vec![rename(from, to)]);
            let moves = if verbs.len() == 1 { "moves" } else { "move" };
            let proposed: Vec<_> = verbs.iter().map(|verb| format!("`{verb}`")).collect();
            let line = format!("{}: {} {moves} them", describe_move(from, to), proposed.join(" and then "));
            all.push(Proposal { line, verbs });
        }
    }
    all
}

/// Proposals for partitions, and the remaining pairs.
struct SplitProposals {
    proposals: Vec<Proposal>,
    rest: BTreeSet<(String, String)>,
}

/// Finds parts now split into groups, and groups now one part.
fn split_proposals(pairs: &BTreeSet<(String, String)>) -> SplitProposals {
    let (mut proposals, mut rest) = (Vec::new(), pairs.clone());
    let group = |path: &str, at: &str| {
        let level = levels(path, at).filter(|levels| levels.len() == 1)?[0].to_owned();
        (level != INNER && level.parse::<usize>().is_err()).then_some(level)
    };
    let all: BTreeSet<&String> = pairs.iter().flat_map(|(from, to)| [from, to]).collect();
    for at in all {
        let parts: Vec<String> =
            pairs.iter().filter(|(from, _)| from == at).filter_map(|(_, to)| group(to, at)).collect();
        let joins: Vec<String> =
            pairs.iter().filter(|(_, to)| to == at).filter_map(|(from, _)| group(from, at)).collect();
        let (verb, what) = match (parts.len(), joins.len()) {
            (2.., _) => (Verb::Split { at: at.clone(), groups: parts }, "is in groups now"),
            (_, 2..) => (Verb::Join { at: at.clone(), groups: joins }, "was in groups"),
            _ => continue,
        };
        rest.retain(|(from, to)| from != at && to != at);
        proposals.push(Proposal::of(verb, |verb| format!("{} {what}: use `{verb}`", display_part(at))));
    }
    SplitProposals { proposals, rest }
}

fn display_part(path: &str) -> String {
    if path.is_empty() { "the whole state".into() } else { format!("`{path}`") }
}

fn describe_move(from: &str, to: &str) -> String {
    format!("the fields of {} are now in {}", display_part(from), display_part(to))
}

/// Parts all of whose fields are under another path in the other state.
struct Pairs {
    pairs: BTreeSet<(String, String)>,
    /// True if some fields are arrays.
    has_arrays: bool,
}

fn pairs(missing: &[(&str, &ItemSpec)], left: &[(&str, &ItemSpec)]) -> Pairs {
    type Key<'a> = (&'a Owner, Kind, &'a Option<(DType, Vec<usize>)>, &'a str);
    fn key<'a>((field, spec): &(&'a str, &'a ItemSpec)) -> Key<'a> {
        (&spec.name.of, spec.kind, &spec.array, split(field).1)
    }
    let mut by_key: HashMap<Key<'_>, [Vec<&str>; 2]> = HashMap::new();
    for (side, specs) in [left, missing].into_iter().enumerate() {
        for spec in specs {
            by_key.entry(key(spec)).or_default()[side].push(spec.0);
        }
    }
    let mut describe_move = Pairs { pairs: BTreeSet::new(), has_arrays: false };
    for ((_, kind, ..), sides) in by_key {
        let ([from], [to]) = (&sides[0][..], &sides[1][..]) else { continue };
        let (mut from, mut to) = (*from, *to);
        describe_move.has_arrays |= kind == Kind::Moment;
        // The field's own name, at least, is the same.
        loop {
            let ((a, x), (b, y)) = (split(from), split(to));
            if x != y || x.is_empty() {
                break;
            }
            (from, to) = (a, b);
        }
        describe_move.pairs.insert((from.to_owned(), to.to_owned()));
    }
    describe_move
}

/// Splits off the last level.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

fn number(path: &str) -> Option<usize> {
    split(path).1.parse().ok()
}

fn chain_of_both<'a>(from: &'a str, to: &str) -> Option<&'a str> {
    let ((chain, _), (other, _)) = (split(from), split(to));
    (chain == other && number(from).is_some() && number(to).is_some()).then_some(chain)
}

/// Members of a chain, moved by one place.
struct Shift<'a> {
    from: &'a str,
    to: &'a str,
}

/// Returns the first of the members moved by one place, all in one direction.
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
    fn proposal(&self, chain: &str, missing: &[(&str, &ItemSpec)], left: &[(&str, &ItemSpec)]) -> Proposal {
        let (from, to) = (number(self.from).unwrap_or(0), number(self.to).unwrap_or(0));
        let path = |at: usize| if chain.is_empty() { at.to_string() } else { format!("{chain}.{at}") };
        let (verb, what) = match to > from {
            true => (Verb::Insert(path(first(chain, missing).min(from))), "a member was inserted"),
            false => (Verb::Remove(path(first(chain, left).min(to))), "a member was removed"),
        };
        Proposal::of(verb, |verb| format!("{}: if {what}, use `{verb}`", describe_move(self.from, self.to)))
    }
}

fn first(chain: &str, specs: &[(&str, &ItemSpec)]) -> usize {
    let inside = |(field, _): &(&str, &ItemSpec)| below(field, chain)?.split('.').next()?.parse().ok();
    specs.iter().filter_map(inside).min().unwrap_or(usize::MAX)
}

fn levels<'a>(path: &'a str, part: &str) -> Option<Vec<&'a str>> {
    Some(below(path, part)?.split('.').filter(|level| !level.is_empty()).collect())
}

/// Returns the verbs that wrap a part or put it into chains, or unwrap it, from the inside out.
fn wraps(from: &str, to: &str) -> Option<Vec<Verb>> {
    if let Some(surrounding) = levels(to, from) {
        let is_around = |level: &&str| *level == "inner" || level.parse::<usize>().is_ok();
        let verb = |level: &str| Verb::Wrap { at: from.into(), inside: level.into() };
        return surrounding.iter().all(is_around).then(|| surrounding.into_iter().rev().map(verb).collect());
    }
    let surrounding = levels(from, to)?;
    surrounding.iter().all(|level| *level == "inner").then(|| vec![Verb::Unwrap(to.into()); surrounding.len()])
}
