//! A state as a flat list of values, to save, compare and transfer.

use core::fmt;

use super::walk::FieldRole;
use super::{
    Count, Entry, EntryMut, Flag, Kind, PerLeaf, PerLeafKind, RandomKey, Scalar, State, StateWalk, StateWalkMut,
};
use crate::tree::{LeafMut, LeafRef, Structure};

/// The place of a value: the path of its field, and its leaf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ItemName {
    #[doc(hidden)]
    pub field: String,
    #[doc(hidden)]
    pub of: Owner,
}

/// The owner of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Owner {
    /// The state as a whole.
    State,
    /// A leaf, by path.
    Leaf(String),
    /// A leaf, by index, of a tree other than the parameters.
    #[cfg_attr(feature = "serde", serde(rename = "apart"))]
    OtherTree(usize),
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Owner::State => f.write_str(&self.field),
            Owner::Leaf(path) => write!(f, "{}[{path}]", self.field),
            Owner::OtherTree(number) => write!(f, "{}[#{number}]", self.field),
        }
    }
}

/// An item that is no array.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Single {
    /// A count.
    Count(u64),
    /// A flag.
    Flag(bool),
    /// A scalar.
    Scalar(#[cfg_attr(feature = "serde", serde(with = "super::exact"))] f64),
    /// A random key.
    Key(u64),
}

impl Single {
    #[doc(hidden)]
    pub fn same(&self, other: &Single) -> bool {
        (self.kind(), self.bits()) == (other.kind(), other.bits())
    }

    pub(crate) fn shown(&self) -> String {
        match self {
            Single::Count(n) | Single::Key(n) => n.to_string(),
            Single::Flag(is) => is.to_string(),
            Single::Scalar(x) => format!("{x:?}"),
        }
    }

    pub(crate) fn bits(&self) -> u64 {
        match *self {
            Single::Count(bits) | Single::Key(bits) => bits,
            Single::Flag(is) => is.into(),
            Single::Scalar(x) => x.to_bits(),
        }
    }

    /// Returns a value of this kind with these bits.
    pub(crate) fn of_bits(&self, bits: u64) -> Single {
        match self {
            Single::Count(_) => Single::Count(bits),
            Single::Key(_) => Single::Key(bits),
            Single::Flag(_) => Single::Flag(bits != 0),
            Single::Scalar(_) => Single::Scalar(f64::from_bits(bits)),
        }
    }

    #[doc(hidden)]
    pub fn kind(&self) -> Kind {
        match self {
            Single::Count(_) => Kind::Count,
            Single::Flag(_) => Kind::Flag,
            Single::Scalar(_) => Kind::Scalar,
            Single::Key(_) => Kind::Key,
        }
    }
}

/// A value of a state.
pub enum Item<'a> {
    /// An array.
    Array(LeafRef<'a>),
    /// A value that is no array.
    Single(Single),
}

/// A mutable value of a state.
pub enum ItemMut<'a> {
    /// An array.
    Array(LeafMut<'a>),
    /// A count.
    Count(&'a mut Count),
    /// A flag.
    Flag(&'a mut Flag),
    /// A scalar.
    Scalar(&'a mut Scalar),
    /// A random key.
    Key(&'a mut RandomKey),
}

impl ItemMut<'_> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            ItemMut::Array(_) => Kind::Moment,
            ItemMut::Count(_) => Kind::Count,
            ItemMut::Flag(_) => Kind::Flag,
            ItemMut::Scalar(_) => Kind::Scalar,
            ItemMut::Key(_) => Kind::Key,
        }
    }

    /// Writes a single value; returns false for another kind.
    #[doc(hidden)]
    pub fn set(self, value: Single) -> bool {
        match (self, value) {
            (ItemMut::Count(count), Single::Count(value)) => *count = Count::new(value),
            (ItemMut::Flag(flag), Single::Flag(value)) => *flag = Flag::new(value),
            (ItemMut::Scalar(scalar), Single::Scalar(value)) => *scalar = Scalar::new(value),
            (ItemMut::Key(key), Single::Key(value)) => *key = RandomKey::new(value),
            _ => return false,
        }
        true
    }
}

/// Returns the values of a state, with their names.
pub fn items<'a, S: State>(state: &'a S, structure: &Structure) -> Vec<(ItemName, Item<'a>)> {
    let mut all = Vec::new();
    let mut show = |field: &str, entry: Entry<'a>, FieldRole { other_tree, .. }: FieldRole| {
        let mut add = |leaf: Option<usize>, item| all.push((name(structure, field, leaf, other_tree), item));
        match entry {
            Entry::Moments(moments) => {
                moments.views().for_each(|(leaf, bytes)| add(Some(leaf), Item::Array(bytes)));
            }
            Entry::Count(count) => add(None, Item::Single(Single::Count(count.get()))),
            Entry::Flag(flag) => add(None, Item::Single(Single::Flag(flag.get()))),
            Entry::Scalar(scalar) => add(None, Item::Single(Single::Scalar(scalar.get()))),
            Entry::Key(key) => add(None, Item::Single(Single::Key(key.get()))),
            Entry::Counts(v) => v.iter().for_each(|(i, c)| add(Some(i), Item::Single(Single::Count(c.get())))),
            Entry::Flags(v) => v.iter().for_each(|(i, c)| add(Some(i), Item::Single(Single::Flag(c.get())))),
            Entry::Scalars(v) => v.iter().for_each(|(i, c)| add(Some(i), Item::Single(Single::Scalar(c.get())))),
        }
    };
    state.walk(&mut StateWalk::of_fields(&mut show));
    all
}

/// As [`items`], for writing.
pub fn items_mut<'a, S: State>(state: &'a mut S, structure: &Structure) -> Vec<(ItemName, ItemMut<'a>)> {
    let mut all = Vec::new();
    let mut show = |field: &str, entry: EntryMut<'a>, FieldRole { other_tree, .. }: FieldRole| {
        let mut add = |leaf: Option<usize>, item| all.push((name(structure, field, leaf, other_tree), item));
        match entry {
            EntryMut::Moments(moments) => {
                moments.views_mut().for_each(|(leaf, bytes)| add(Some(leaf), ItemMut::Array(bytes)));
            }
            EntryMut::Count(count) => add(None, ItemMut::Count(count)),
            EntryMut::Flag(flag) => add(None, ItemMut::Flag(flag)),
            EntryMut::Scalar(scalar) => add(None, ItemMut::Scalar(scalar)),
            EntryMut::Key(key) => add(None, ItemMut::Key(key)),
            EntryMut::Counts(v) => v.iter_mut().for_each(|(i, c)| add(Some(i), ItemMut::Count(c))),
            EntryMut::Flags(v) => v.iter_mut().for_each(|(i, c)| add(Some(i), ItemMut::Flag(c))),
            EntryMut::Scalars(v) => v.iter_mut().for_each(|(i, c)| add(Some(i), ItemMut::Scalar(c))),
        }
    };
    state.walk_mut(&mut StateWalkMut::of_fields(&mut show));
    all
}

/// Copies a value; `None` if kinds differ, which callers rule out.
pub fn assign_item(into: ItemMut<'_>, from: &Item<'_>) -> Option<()> {
    match (into, from) {
        // The arrays are sharded differently.
        (ItemMut::Array(into), Item::Array(from)) if into.part != from.part || into.shape() != from.shape() => {
            return None;
        }
        (ItemMut::Array(mut into), Item::Array(from)) => into.copy_from(from),
        (ItemMut::Array(_), Item::Single(_)) | (_, Item::Array(_)) => return None,
        (into, Item::Single(single)) => {
            if !into.set(*single) {
                return None;
            }
        }
    }
    Some(())
}

/// Replaces a trained state by a fresh one, but keeps user settings and the memory of resting leaves.
pub fn restart<S: State>(old: &mut S, mut fresh: S, resting: &[bool]) {
    let mut entries = Vec::new();
    let mut show = |_: &str, entry, _: FieldRole| entries.push(entry);
    old.walk(&mut StateWalk::of_fields(&mut show));
    let mut entries = entries.into_iter();
    let mut keep = |_: &str, to: EntryMut<'_>, FieldRole { set, other_tree }: FieldRole| {
        let Some(from) = entries.next() else { return };
        let rests = |leaf: usize| set || !other_tree && resting.get(leaf).is_some_and(|rests| *rests);
        match (to, from) {
            (EntryMut::Scalar(to), Entry::Scalar(from)) if set => *to = *from,
            (EntryMut::Moments(to), Entry::Moments(from)) => {
                from.leaves().filter(|leaf| rests(*leaf)).for_each(|leaf| to.take(from, leaf))
            }
            (EntryMut::Counts(to), Entry::Counts(from)) => keep_leaves(to, from, rests),
            (EntryMut::Flags(to), Entry::Flags(from)) => keep_leaves(to, from, rests),
            (EntryMut::Scalars(to), Entry::Scalars(from)) => keep_leaves(to, from, rests),
            _ => {}
        }
    };
    fresh.walk_mut(&mut StateWalkMut::of_fields(&mut keep));
    *old = fresh;
}

fn keep_leaves<K: PerLeafKind>(to: &mut PerLeaf<K>, from: &PerLeaf<K>, which: impl Fn(usize) -> bool) {
    from.iter().filter(|(leaf, _)| which(*leaf)).for_each(|(leaf, value)| to.set(leaf, value));
}

fn name(structure: &Structure, field: &str, leaf: Option<usize>, other_tree: bool) -> ItemName {
    let of = match leaf {
        None => Owner::State,
        Some(leaf) if other_tree => Owner::OtherTree(leaf),
        Some(leaf) => {
            structure.leaves().get(leaf).map_or(Owner::OtherTree(leaf), |spec| Owner::Leaf(spec.path().to_owned()))
        }
    };
    ItemName { field: field.to_owned(), of }
}
