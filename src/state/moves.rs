//! Which value of one state goes where in another.

use core::fmt;
use std::collections::HashMap;

use super::proposals::proposals;
use super::{Item, ItemMut, ItemName, Kind, Owner, Verb};
use crate::element::DType;
use crate::error::Misfit;
use crate::tree::PartOf;

/// What a value is, without the value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ItemSpec {
    pub(crate) name: ItemName,
    pub(crate) kind: Kind,
    /// Of arrays.
    pub(crate) array: Option<(DType, Vec<usize>)>,
}

impl ItemSpec {
    pub(crate) fn of((name, item): &(ItemName, Item<'_>)) -> ItemSpec {
        let (kind, array) = match item {
            Item::Array(array) => (Kind::Moment, Some((array.dtype(), whole(&array.part, array.shape())))),
            Item::Single(single) => (single.kind(), None),
        };
        ItemSpec { name: name.clone(), kind, array }
    }

    pub(crate) fn of_mut((name, item): &(ItemName, ItemMut<'_>)) -> ItemSpec {
        let array = match item {
            ItemMut::Array(array) => Some((array.dtype(), whole(&array.part, array.shape()))),
            _ => None,
        };
        ItemSpec { name: name.clone(), kind: item.kind(), array }
    }

    fn what(&self) -> impl fmt::Display + '_ {
        struct What<'a>(&'a ItemSpec);
        impl fmt::Display for What<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.kind)?;
                self.0.array.as_ref().map_or(Ok(()), |(dtype, shape)| write!(f, " {dtype} {shape:?}"))
            }
        }
        What(self)
    }
}

/// The axis lengths of an array of which there is a part, or all.
fn whole(part: &Option<Box<PartOf>>, shape: &[usize]) -> Vec<usize> {
    part.as_ref().map_or(shape, |part| &part.shape).to_vec()
}

/// Whether a state counts updates for each leaf.
pub(crate) fn counts_by_leaf(items: &[ItemSpec]) -> bool {
    let is_one = |field: &str| field == "updates" || field.ends_with(".updates");
    items.iter().any(|item| item.kind == Kind::Count && item.name.of != Owner::State && is_one(&item.name.field))
}

/// What becomes of leaves on the way.
pub(crate) trait Moves {
    /// The path that a leaf of the old state has in the new one; `None` if it is not to come along.
    fn to(&self, old: &str) -> Option<&str>;

    /// Whether a leaf of the new state starts afresh, whatever the old one has.
    fn is_fresh(&self, new: &str) -> bool;

    /// Whether nothing at all changes in the structure.
    fn is_identity(&self) -> bool;

    /// What becomes of the old state's fields, if these verbs are added to the migration.
    fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String>;
}

/// What becomes of the fields of a state on the way.
pub(crate) struct Parts {
    /// For each of the old state, its paths in the new one.
    pub(crate) to: Vec<Vec<String>>,
    /// Parts of the new state that start afresh, each but for one inside.
    pub(crate) fresh: Vec<(String, Option<String>)>,
    /// Those of them that must be there.
    pub(crate) asked: Vec<String>,
    /// Those whose arrays may be of another type.
    pub(crate) cast: Vec<String>,
    /// Those that were inserted where there was nothing, nor after it.
    pub(crate) in_vain: Vec<String>,
}

impl Parts {
    fn is_fresh(&self, field: &str) -> bool {
        let is_in = |part: &str| below(field, part).is_some();
        self.fresh.iter().any(|(part, but)| is_in(part) && !but.as_deref().is_some_and(is_in))
    }
}

/// What of a path comes after that of a part, if it is the part's or below it.
pub(crate) fn below<'a>(path: &'a str, part: &str) -> Option<&'a str> {
    match path.strip_prefix(part)? {
        "" => Some(""),
        rest if part.is_empty() => Some(rest),
        rest => rest.strip_prefix('.'),
    }
}

/// That a verb speaks of a part that is not there.
pub(crate) fn no_part(verb: &str, part: &str) -> String {
    format!("{verb}: there is no part `{part}` of the state")
}

/// For each value of the new state, the number of the old one that it becomes; `None` where it stays as it is.
///
/// # Errors
///
/// Every value that has no counterpart or another kind, type or shape there. Verbs are proposed only if the states fit
/// with them.
pub(crate) fn sources(old: &[ItemSpec], new: &[ItemSpec], moves: &impl Moves) -> Result<Vec<Option<usize>>, Misfit> {
    let matched = Matched::of(old, new, moves, &[]).map_err(|line| vec![line])?;
    if matched.lines.is_empty() {
        return Ok(matched.from);
    }
    let with = |verbs: &[Verb]| Matched::of(old, new, moves, verbs).ok();
    let proposed = proposals(&matched, old, new, &with);
    Err(Misfit { lines: matched.lines, hints: matched.in_vain, proposed })
}

/// What a migration makes of two states.
pub(super) struct Matched {
    /// For each value of the new state, the number of the old one; `None` where it stays as it is.
    from: Vec<Option<usize>>,
    /// What does not fit.
    pub(super) lines: Vec<String>,
    /// Values of the new state that have no counterpart.
    pub(super) missing: Vec<usize>,
    /// Values of the old state that have none, under their new names.
    pub(super) left: Vec<(ItemName, usize)>,
    /// Values of the old state that get the same name.
    pub(super) twice: Vec<[usize; 2]>,
    /// Fields of the new state whose arrays are of another type.
    pub(super) casts: Vec<String>,
    /// The new paths of each field of the old state.
    pub(super) to: Vec<Vec<String>>,
    /// A line for each verb that does nothing.
    in_vain: Vec<String>,
}

impl Matched {
    /// Matches the values by name.
    ///
    /// # Errors
    ///
    /// In words, the first verb that speaks of a part that is not there.
    fn of(old: &[ItemSpec], new: &[ItemSpec], moves: &impl Moves, more: &[Verb]) -> Result<Matched, String> {
        let (mut lines, mut by_name, mut twice) = (Vec::new(), HashMap::new(), Vec::new());
        let parts = moves.parts(&old.iter().map(|spec| &*spec.name.field).collect::<Vec<_>>(), more)?;
        for (i, spec) in old.iter().enumerate() {
            let of = match &spec.name.of {
                of if moves.is_identity() => of.clone(),
                Owner::State => Owner::State,
                Owner::Leaf(path) => match moves.to(path) {
                    Some(path) if !moves.is_fresh(path) => Owner::Leaf(path.to_owned()),
                    _ => continue,
                },
                Owner::Apart(_) => {
                    lines.push(format!("`{}` mixes all leaves, so it cannot be moved to other ones", spec.name));
                    continue;
                }
            };
            for field in &parts.to[i] {
                if let Some(other) = by_name.insert(ItemName { field: field.clone(), of: of.clone() }, i) {
                    twice.push([other, i]);
                    lines.push(format!("`{}`: there are two of it", spec.name));
                }
            }
        }
        // How often each leaf was updated, where the old state has one number for all of them, under the name that it
        // has in the new state: parts may have moved too.
        let counts = old.iter().enumerate().filter(|(_, spec)| spec.name.of == Owner::State);
        let counts = counts.filter(|(_, spec)| spec.kind == Kind::Count).rev();
        let counts: HashMap<&str, usize> = counts
            .flat_map(|(i, _)| parts.to[i].iter().filter_map(move |to| Some((to.strip_suffix("count")?, i))))
            .collect();
        let of_all = |spec: &ItemSpec| {
            let field = spec.name.field.strip_suffix("updates").filter(|_| matches!(spec.name.of, Owner::Leaf(_)))?;
            counts.get(field).copied().filter(|_| spec.kind == Kind::Count)
        };
        let is_in = |part: &str| new.iter().any(|spec| below(&spec.name.field, part).is_some());
        lines.extend(parts.asked.iter().filter(|part| !is_in(part)).map(|part| no_part("fresh_part", part)));
        // Arrays of another type, all else the same.
        let is_cast = |old: &ItemSpec, new: &ItemSpec| match (&old.array, &new.array) {
            (Some((theirs, from)), Some((ours, to))) => old.kind == new.kind && theirs != ours && from == to,
            _ => false,
        };
        let (mut from, mut missing, mut casts) = (Vec::with_capacity(new.len()), Vec::new(), Vec::new());
        for (number, spec) in new.iter().enumerate() {
            if let (Owner::Leaf(path), false) = (&spec.name.of, moves.is_identity())
                && moves.is_fresh(path)
            {
                from.push(None);
                continue;
            }
            let found = by_name.remove(&spec.name).or_else(|| of_all(spec));
            if found.is_none() && parts.is_fresh(&spec.name.field) {
                from.push(None);
                continue;
            }
            match found.map(|i| &old[i]) {
                Some(old) if is_cast(old, spec) => {
                    if !parts.cast.iter().any(|part| below(&spec.name.field, part).is_some()) {
                        casts.push(spec.name.field.clone());
                        lines.push(format!("`{}`: expected {}, found {}", spec.name, spec.what(), old.what()));
                    }
                }
                Some(old) if old.kind != spec.kind || old.array != spec.array => {
                    lines.push(format!("`{}`: expected {}, found {}", spec.name, spec.what(), old.what()));
                }
                Some(_) => {}
                None => {
                    missing.push(number);
                    lines.push(format!("`{}`: expected {}, found nothing", spec.name, spec.what()));
                }
            }
            from.push(found);
        }
        casts.dedup();
        let mut left: Vec<(ItemName, usize)> = by_name.into_iter().collect();
        left.sort_unstable_by(|(a, i), (b, j)| (i, a).cmp(&(j, b)));
        lines.extend(left.iter().map(|(_, i)| format!("`{}`: unexpected {}", old[*i].name, old[*i].what())));
        let in_vain =
            |at: &String| format!("`insert_part({at:?})` does nothing: no field of the state is there, or after it");
        let in_vain = parts.in_vain.iter().filter(|at| !is_in(at)).map(in_vain).collect();
        Ok(Matched { from, lines, missing, left, twice, casts, to: parts.to, in_vain })
    }
}
