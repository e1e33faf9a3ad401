//! The contents of a state, readable at run time.

use core::fmt;
use std::collections::BTreeMap;

use super::walk::FieldRole;
use super::{Entry, State, StateWalk};
use crate::element::DType;
use crate::layout::elements;
use crate::tree::Structure;

/// The kind of a state field; see the [table](crate::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named after the kind it stands for")]
pub enum Kind {
    Moment,
    Scalar,
    Count,
    Flag,
    Key,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Moment => "moment",
            Kind::Scalar => "scalar",
            Kind::Count => "count",
            Kind::Flag => "flag",
            Kind::Key => "key",
        })
    }
}

/// One value or array of a state.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SchemaEntry {
    /// The path of the field in the state, such as `1.mu`.
    pub field: String,
    /// The path of its leaf; `None` for a value of the whole state.
    pub leaf: Option<String>,
    /// The kind.
    pub kind: Kind,
    /// The element type, of moments only.
    pub dtype: Option<DType>,
    /// The axis lengths; empty for single values.
    pub shape: Vec<usize>,
}

impl fmt::Display for SchemaEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field)?;
        if let Some(leaf) = &self.leaf {
            write!(f, "[{leaf}]")?;
        }
        write!(f, ": {}", self.kind)?;
        self.dtype.map_or(Ok(()), |dtype| write!(f, " {dtype} {:?}", self.shape))
    }
}

/// Every value and array of a state, in order: field, leaf, kind, type, shape.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Schema {
    /// The entries, in order.
    pub entries: Vec<SchemaEntry>,
}

impl Schema {
    /// Returns the schema of a state for parameters of this structure.
    pub fn of<S: State>(state: &S, structure: &Structure) -> Schema {
        let mut entries = Vec::new();
        let mut show = |field: &str, entry: Entry<'_>, FieldRole { other_tree, .. }: FieldRole| {
            each_value(entry, &mut |leaf, kind, dtype, shape, _| {
                let leaf =
                    leaf.filter(|_| !other_tree).and_then(|i| structure.leaves().get(i)).map(|l| l.path().into());
                entries.push(SchemaEntry { field: field.into(), leaf, kind, dtype, shape: shape.into() });
            });
        };
        state.walk(&mut StateWalk::of_fields(&mut show));
        Schema { entries }
    }

    /// Returns a message on the first difference; `None` if equal.
    pub(crate) fn difference(&self, other: &Schema) -> Option<String> {
        if self == other {
            return None;
        }
        let differs = self.entries.iter().zip(&other.entries).find(|(a, b)| a != b);
        Some(match differs {
            Some((ours, theirs)) => format!("expected {ours}, found {theirs}"),
            None => format!("expected {} fields, found {}", self.entries.len(), other.entries.len()),
        })
    }

    /// Returns bytes and numbers of values, by kind.
    pub fn size(&self) -> SizeReport {
        let mut kinds: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
        for entry in &self.entries {
            let values = elements(&entry.shape).unwrap_or(usize::MAX);
            let bytes = match entry.kind {
                Kind::Moment => entry.dtype.map_or(0, |dtype| dtype.bytes(values)),
                Kind::Flag => 1,
                Kind::Scalar | Kind::Count | Kind::Key => 8,
            };
            let sum = kinds.entry(entry.kind).or_default();
            *sum = (sum.0 + values, sum.1 + bytes);
        }
        SizeReport { kinds }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

/// Receives a value: leaf, kind, and for arrays type, shape and strides.
type ShowValue<'a> = dyn FnMut(Option<usize>, Kind, Option<DType>, &[usize], &[isize]) + 'a;

/// Describes each value of a field.
pub(super) fn each_value(entry: Entry<'_>, show: &mut ShowValue<'_>) {
    let mut one = |leaf, kind| show(leaf, kind, None, &[], &[]);
    match entry {
        Entry::Moments(m) => m.leaves().for_each(|leaf| {
            show(Some(leaf), Kind::Moment, m.dtype(leaf), m.shape(leaf).unwrap_or_default(), m.strides(leaf));
        }),
        Entry::Count(_) => one(None, Kind::Count),
        Entry::Flag(_) => one(None, Kind::Flag),
        Entry::Scalar(_) => one(None, Kind::Scalar),
        Entry::Key(_) => one(None, Kind::Key),
        Entry::Counts(v) => v.iter().for_each(|(leaf, _)| one(Some(leaf), Kind::Count)),
        Entry::Flags(v) => v.iter().for_each(|(leaf, _)| one(Some(leaf), Kind::Flag)),
        Entry::Scalars(v) => v.iter().for_each(|(leaf, _)| one(Some(leaf), Kind::Scalar)),
    }
}

/// The size of a state, by kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeReport {
    kinds: BTreeMap<Kind, (usize, usize)>,
}

impl SizeReport {
    /// Returns the number of values of a kind.
    pub fn values(&self, kind: Kind) -> usize {
        self.kinds.get(&kind).map_or(0, |k| k.0)
    }

    /// Returns the bytes of a kind.
    pub fn bytes(&self, kind: Kind) -> usize {
        self.kinds.get(&kind).map_or(0, |k| k.1)
    }

    /// Returns the bytes of all kinds together.
    pub fn total_bytes(&self) -> usize {
        self.kinds.values().map(|k| k.1).sum()
    }
}

impl fmt::Display for SizeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kinds.iter().try_for_each(|(kind, (n, bytes))| writeln!(f, "{kind}: {n} values, {bytes} bytes"))?;
        write!(f, "total: {} bytes", self.total_bytes())
    }
}

/// Returns whether two states are bitwise identical: fields, counts, flags, and the bytes of every array.
pub fn same_bits<S: State>(a: &S, b: &S) -> bool {
    fn bytes<S: State>(state: &S) -> Vec<(String, Vec<u8>)> {
        let mut out = Vec::new();
        state.walk(&mut StateWalk::new(&mut |field, entry| {
            let mut text = Vec::new();
            match entry {
                Entry::Moments(m) => {
                    for leaf in 0..m.len() {
                        text.extend(format!("{leaf} {:?} {:?}:", m.dtype(leaf), m.shape(leaf)).bytes());
                        text.extend(m.as_bytes(leaf).unwrap_or_default());
                    }
                }
                Entry::Scalar(s) => text.extend(s.get().to_bits().to_le_bytes()),
                Entry::Scalars(v) => v.iter().for_each(|(leaf, s)| {
                    text.extend(leaf.to_le_bytes());
                    text.extend(s.get().to_bits().to_le_bytes());
                }),
                other => text.extend(format!("{other:?}").bytes()),
            }
            out.push((field.into(), text));
        }));
        out
    }
    bytes(a) == bytes(b)
}
