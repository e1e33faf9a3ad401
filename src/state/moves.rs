//! Which value of one state goes where in another.

use core::fmt;
use std::collections::HashMap;

use super::{Item, ItemMut, ItemName, Kind, Owner};
use crate::element::DType;

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
            Item::Array(array) => (Kind::Moment, Some((array.dtype(), array.shape().to_vec()))),
            Item::Single(single) => (single.kind(), None),
        };
        ItemSpec { name: name.clone(), kind, array }
    }

    pub(crate) fn of_mut((name, item): &(ItemName, ItemMut<'_>)) -> ItemSpec {
        let array = match item {
            ItemMut::Array(array) => Some((array.dtype(), array.shape().to_vec())),
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

/// What becomes of leaves on the way.
pub(crate) trait Moves {
    /// The path that a leaf of the old state has in the new one; `None` if it is not to come along.
    fn to(&self, old: &str) -> Option<&str>;

    /// Whether a leaf of the new state starts afresh, whatever the old one has.
    fn is_fresh(&self, new: &str) -> bool;

    /// Whether nothing at all changes in the structure.
    fn is_identity(&self) -> bool;
}

/// For each value of the new state, the number of the old one that it becomes; `None` where it stays as it is.
///
/// # Errors
///
/// Every value that has no counterpart or another kind, type or shape there, as lines of a message.
pub(crate) fn sources(
    old: &[ItemSpec],
    new: &[ItemSpec],
    moves: &impl Moves,
) -> Result<Vec<Option<usize>>, Vec<String>> {
    let (mut lines, mut by_name) = (Vec::new(), HashMap::new());
    for (i, spec) in old.iter().enumerate() {
        let name = match &spec.name.of {
            _ if moves.is_identity() => spec.name.clone(),
            Owner::State => spec.name.clone(),
            Owner::Leaf(path) => match moves.to(path) {
                Some(path) if !moves.is_fresh(path) => {
                    ItemName { field: spec.name.field.clone(), of: Owner::Leaf(path.to_owned()) }
                }
                _ => continue,
            },
            Owner::Apart(_) => {
                lines.push(format!("`{}` mixes all leaves, so it cannot be moved to other ones", spec.name));
                continue;
            }
        };
        if by_name.insert(name, i).is_some() {
            lines.push(format!("`{}`: there are two of it", spec.name));
        }
    }
    // How often each leaf was updated, where the old state has one number for all of them.
    let of_all = |spec: &ItemSpec| {
        let field = spec.name.field.strip_suffix("updates").filter(|_| matches!(spec.name.of, Owner::Leaf(_)))?;
        let is_count =
            |old: &ItemSpec| old.name.of == Owner::State && old.name.field.strip_prefix(field) == Some("count");
        old.iter().position(|old| is_count(old) && old.kind == spec.kind)
    };
    let mut from = Vec::with_capacity(new.len());
    for spec in new {
        if let (Owner::Leaf(path), false) = (&spec.name.of, moves.is_identity())
            && moves.is_fresh(path)
        {
            from.push(None);
            continue;
        }
        let found = by_name.remove(&spec.name).or_else(|| of_all(spec));
        match found.map(|i| (i, &old[i])) {
            Some((_, old)) if old.kind != spec.kind || old.array != spec.array => {
                lines.push(format!("`{}`: expected {}, found {}", spec.name, spec.what(), old.what()));
            }
            Some(_) => {}
            None => lines.push(format!("`{}`: expected {}, found nothing", spec.name, spec.what())),
        }
        from.push(found);
    }
    let mut left: Vec<usize> = by_name.into_values().collect();
    left.sort_unstable();
    lines.extend(left.into_iter().map(|i| format!("`{}`: unexpected {}", old[i].name, old[i].what())));
    if lines.is_empty() { Ok(from) } else { Err(lines) }
}
