//! The correspondence between the values of two states.

use core::fmt;
use std::collections::{HashMap, HashSet};

use super::proposals::proposals;
use super::{Item, ItemMut, ItemName, Kind, Owner, Single, Verb};
use crate::element::DType;
use crate::error::MismatchReport;
use crate::tree::{PartOf, Structure};

/// A value's description, without the elements.
#[derive(Clone, Debug)]
pub struct ItemSpec {
    #[doc(hidden)]
    pub name: ItemName,
    #[doc(hidden)]
    pub kind: Kind,
    #[doc(hidden)]
    pub array: Option<(DType, Vec<usize>)>,
    /// A single value to move.
    #[doc(hidden)]
    pub single: Option<Single>,
}

impl ItemSpec {
    /// True for the same field, kind, type and shape.
    pub(crate) fn is_like(&self, other: &ItemSpec) -> bool {
        (&self.name, self.kind, &self.array) == (&other.name, other.kind, &other.array)
    }

    pub(crate) fn of((name, item): &(ItemName, Item<'_>)) -> ItemSpec {
        let (kind, array, single) = match item {
            Item::Array(array) => (Kind::Moment, Some((array.dtype(), whole(&array.part, array.shape()))), None),
            Item::Single(single) => (single.kind(), None, Some(*single)),
        };
        ItemSpec { name: name.clone(), kind, array, single }
    }

    pub(crate) fn of_mut((name, item): &(ItemName, ItemMut<'_>)) -> ItemSpec {
        let array = match item {
            ItemMut::Array(array) => Some((array.dtype(), whole(&array.part, array.shape()))),
            _ => None,
        };
        ItemSpec { name: name.clone(), kind: item.kind(), array, single: None }
    }

    fn what(&self) -> impl fmt::Display + '_ {
        struct Described<'a>(&'a ItemSpec);
        impl fmt::Display for Described<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.kind)?;
                self.0.array.as_ref().map_or(Ok(()), |(dtype, shape)| write!(f, " {dtype} {shape:?}"))
            }
        }
        Described(self)
    }
}

/// Returns the whole array's shape.
fn whole(part: &Option<Box<PartOf>>, shape: &[usize]) -> Vec<usize> {
    part.as_ref().map_or(shape, |part| &part.shape).to_vec()
}

pub(crate) fn counts_by_leaf(items: &[ItemSpec]) -> bool {
    let is_one = |field: &str| field == "updates" || field.ends_with(".updates");
    items.iter().any(|item| item.kind == Kind::Count && item.name.of != Owner::State && is_one(&item.name.field))
}

/// Moves of leaves between two structures.
pub trait Moves {
    /// Returns a leaf's new path; `None` if it is dropped.
    fn to(&self, old: &str) -> Option<&str>;

    /// Returns a leaf's old path.
    fn from(&self, new: &str) -> Option<&str>;

    /// Returns whether a new leaf starts afresh, whatever the old state has.
    fn is_fresh(&self, new: &str) -> bool;

    /// Returns whether a new leaf's dtype may change.
    fn is_cast(&self, new: &str) -> bool;

    /// Returns whether the structure stays.
    fn is_identity(&self) -> bool;

    /// Returns whether only declared dtypes change.
    fn is_retyped(&self) -> bool;

    /// Returns the fate of the old fields, with additional verbs.
    fn parts(&self, old: &[&str], more: &[Verb]) -> Result<Parts, String>;
}

/// The fate of a state's fields in a migration.
#[derive(Default)]
pub struct Parts {
    /// Each old field's paths in the new state.
    pub(crate) to: Vec<Vec<String>>,
    /// New parts that start afresh, each with an optional exception inside.
    #[doc(hidden)]
    pub fresh: Vec<(String, Option<String>)>,
    /// Fresh parts that must exist.
    #[doc(hidden)]
    pub must_exist: Vec<String>,
    /// Parts whose arrays may change dtype.
    #[doc(hidden)]
    pub cast: Vec<String>,
    /// Parts inserted where nothing is, nor after it.
    pub(crate) without_effect: Vec<String>,
    /// Groups of a split part: each has some of its leaves.
    pub(crate) groups: Vec<String>,
    /// Joined parts, whose single values agree.
    pub(crate) joined: Vec<String>,
    /// Parts that start as the old parameters.
    pub(crate) of_params: Vec<String>,
    /// Old fields that become the parameters.
    #[doc(hidden)]
    pub to_params: Vec<usize>,
    pub(crate) dropped: HashSet<usize>,
}

impl Parts {
    #[doc(hidden)]
    pub fn is_fresh(&self, field: &str) -> bool {
        let is_in = |part: &str| below(field, part).is_some();
        self.fresh.iter().any(|(part, but)| is_in(part) && !but.as_deref().is_some_and(is_in))
    }
}

#[cfg(feature = "checkpoint")]
impl Parts {
    #[doc(hidden)]
    pub fn is_of_params(&self, field: &str) -> bool {
        self.of_params.iter().any(|part| below(field, part).is_some())
    }
}

/// Returns the path below `part`, if `path` is it or below it.
pub fn below<'a>(path: &'a str, part: &str) -> Option<&'a str> {
    match path.strip_prefix(part)? {
        "" => Some(""),
        rest if part.is_empty() => Some(rest),
        rest => rest.strip_prefix('.'),
    }
}

/// Returns the message for a part that the state lacks.
pub fn no_part(verb: &str, part: &str) -> String {
    format!("{verb}: the state has no part `{part}`")
}

/// The source of a new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// The value of `init`.
    Own,
    /// The old state's value with this index.
    Item(usize),
    /// The leaf's old parameter.
    Param,
}

impl Source {
    fn item(self) -> Option<usize> {
        if let Source::Item(i) = self { Some(i) } else { None }
    }
}

#[derive(Debug)]
pub(crate) struct Sources {
    /// The source of each value of the new state.
    pub(crate) values: Vec<Source>,
    /// Old values that become the parameters.
    pub(crate) params: Vec<usize>,
}

/// Finds each new value's source. `params` is the structure of the old parameters, if known.
///
/// # Errors
///
/// Fails with every value without a counterpart of its kind, type and shape. Proposes verbs only if the states fit with
/// them.
pub(crate) fn sources(
    old: &[ItemSpec],
    new: &[ItemSpec],
    moves: &impl Moves,
    params: Option<&Structure>,
) -> Result<Sources, MismatchReport> {
    let matched = Matched::of(old, new, moves, params, &[]).map_err(|line| vec![line])?;
    if matched.lines.is_empty() {
        return Ok(Sources { values: matched.from, params: matched.to_params });
    }
    let with = |verbs: &[Verb]| Matched::of(old, new, moves, params, verbs).ok();
    let proposed = proposals(&matched, old, new, &with);
    Err(MismatchReport { lines: matched.lines, hints: matched.without_effect, proposed })
}

/// The match of two states.
pub(super) struct Matched {
    /// The source of each value of the new state.
    pub(super) from: Vec<Source>,
    /// Old values that become the parameters.
    to_params: Vec<usize>,
    pub(super) lines: Vec<String>,
    /// New values without a counterpart.
    pub(super) missing: Vec<usize>,
    /// Old values without a counterpart, with new names.
    pub(super) left: Vec<(ItemName, usize)>,
    /// Old values with the same new name.
    pub(super) duplicates: Vec<[usize; 2]>,
    /// New fields whose arrays change dtype.
    pub(super) casts: Vec<String>,
    pub(super) to: Vec<Vec<String>>,
    without_effect: Vec<String>,
}

impl Matched {
    /// Matches the values by name.
    ///
    /// # Errors
    ///
    /// With the first verb that names a missing part.
    fn of(
        old: &[ItemSpec],
        new: &[ItemSpec],
        moves: &impl Moves,
        params: Option<&Structure>,
        more: &[Verb],
    ) -> Result<Matched, String> {
        let (mut lines, mut by_name, mut duplicates) = (Vec::new(), HashMap::new(), Vec::new());
        let is_in = |parts: &[String], field: &str| parts.iter().any(|part| below(field, part).is_some());
        let parts = moves.parts(&old.iter().map(|spec| &*spec.name.field).collect::<Vec<_>>(), more)?;
        for (i, spec) in old.iter().enumerate() {
            let of = match &spec.name.of {
                of if moves.is_identity() => of.clone(),
                Owner::State => Owner::State,
                Owner::Leaf(path) => match moves.to(path) {
                    Some(path) if !moves.is_fresh(path) => Owner::Leaf(path.to_owned()),
                    _ => continue,
                },
                of @ Owner::OtherTree(_) if moves.is_retyped() => of.clone(),
                Owner::OtherTree(_) => {
                    lines.push(format!("`{}` combines all leaves, so it cannot be moved to others", spec.name));
                    continue;
                }
            };
            for field in &parts.to[i] {
                let name = ItemName { field: field.clone(), of: of.clone() };
                let Some(other) = by_name.insert(name.clone(), i) else { continue };
                let (first, is_joined) = (&old[other], is_in(&parts.joined, field));
                match (first.single, spec.single) {
                    (Some(a), Some(b)) if is_joined && a.same(&b) => _ = by_name.insert(name, other),
                    (Some(a), Some(b)) if is_joined => {
                        let (a, b, first) = (a.shown(), b.shown(), &first.name);
                        lines.push(format!("`{}`: expected {a}, as `{first}` is, found {b}", spec.name));
                    }
                    _ => {
                        duplicates.push([other, i]);
                        lines.push(format!("`{}`: expected one source, found two", spec.name));
                    }
                }
            }
        }
        // Update counts by leaf, if the old state has one count, under its new name: parts may have moved too.
        let counts = old.iter().enumerate().filter(|(_, spec)| spec.name.of == Owner::State);
        let counts = counts.filter(|(_, spec)| spec.kind == Kind::Count).rev();
        let counts: HashMap<&str, usize> = counts
            .flat_map(|(i, _)| parts.to[i].iter().filter_map(move |to| Some((to.strip_suffix("count")?, i))))
            .collect();
        let of_all = |spec: &ItemSpec| {
            let field = spec.name.field.strip_suffix("updates").filter(|_| matches!(spec.name.of, Owner::Leaf(_)))?;
            counts.get(field).copied().filter(|_| spec.kind == Kind::Count)
        };
        let is_new = |part: &str| new.iter().any(|spec| below(&spec.name.field, part).is_some());
        lines.extend(parts.must_exist.iter().filter(|part| !is_new(part)).map(|part| no_part("fresh_part", part)));
        let none = parts.of_params.iter().filter(|part| !is_new(part));
        lines.extend(none.map(|part| no_part("params_to_part", part)));
        // Arrays that differ in dtype only.
        let is_cast = |old: &ItemSpec, new: &ItemSpec| match (&old.array, &new.array) {
            (Some((theirs, from)), Some((ours, to))) => old.kind == new.kind && theirs != ours && from == to,
            _ => false,
        };
        let (mut from, mut missing, mut casts) = (Vec::with_capacity(new.len()), Vec::new(), Vec::new());
        for (number, spec) in new.iter().enumerate() {
            if let (Owner::Leaf(path), false) = (&spec.name.of, moves.is_identity())
                && moves.is_fresh(path)
            {
                from.push(Source::Own);
                continue;
            }
            if let (Owner::Leaf(path), true) = (&spec.name.of, is_in(&parts.of_params, &spec.name.field)) {
                by_name.remove(&spec.name);
                from.push(Source::Param);
                lines.extend(of_param(spec, path, moves, params));
                continue;
            }
            let found = by_name.remove(&spec.name).or_else(|| of_all(spec));
            if found.is_none() && parts.is_fresh(&spec.name.field) {
                from.push(Source::Own);
                continue;
            }
            let leaf_is_cast = match &spec.name.of {
                Owner::Leaf(path) => moves.is_cast(path),
                Owner::OtherTree(_) => moves.is_retyped(),
                Owner::State => false,
            };
            match found.map(|i| &old[i]) {
                Some(old) if is_cast(old, spec) => {
                    if !leaf_is_cast && !is_in(&parts.cast, &spec.name.field) {
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
            from.push(found.map_or(Source::Own, Source::Item));
        }
        casts.dedup();
        // A leaf is in one group of a split state.
        let used: HashSet<usize> = from.iter().filter_map(|source| source.item()).collect();
        let is_elsewhere = |name: &ItemName, i: usize| {
            let is_reported = used.contains(&i) || parts.dropped.contains(&i);
            matches!(name.of, Owner::Leaf(_)) && is_in(&parts.groups, &name.field) && is_reported
        };
        let left = by_name.into_iter().filter(|(name, i)| !is_elsewhere(name, *i));
        let mut left: Vec<(ItemName, usize)> = left.collect();
        left.sort_unstable_by(|(a, i), (b, j)| (i, a).cmp(&(j, b)));
        lines.extend(left.iter().map(|(_, i)| format!("`{}`: unexpected {}", old[*i].name, old[*i].what())));
        let without_effect =
            |at: &String| format!("`insert_part({at:?})` does nothing: the state has no field at or after it");
        let without_effect = parts.without_effect.iter().filter(|at| !is_new(at)).map(without_effect).collect();
        Ok(Matched {
            from,
            to_params: parts.to_params,
            lines,
            missing,
            left,
            duplicates,
            casts,
            to: parts.to,
            without_effect,
        })
    }
}

/// Returns a message if an array cannot be filled from its leaf's parameter.
fn of_param(spec: &ItemSpec, path: &str, moves: &impl Moves, params: Option<&Structure>) -> Option<String> {
    let Some(params) = params else {
        return Some(format!(
            "`{}`: the earlier parameters are unknown here; save them with the state, and load with `Load::migrating`",
            spec.name
        ));
    };
    let leaf = params.leaves().get(params.index_of(moves.from(path)?)?)?;
    let fits = spec.array.as_ref().is_some_and(|(dtype, shape)| {
        let same = leaf.dtype() == *dtype || leaf.dtype().is_exact_in(*dtype) || moves.is_cast(path);
        same && shape == leaf.shape()
    });
    (!fits).then(|| format!("`{}`: expected {}, found the parameter {leaf}", spec.name, spec.what()))
}
