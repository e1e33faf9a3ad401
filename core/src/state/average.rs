//! Averages of states, by kind.

use core::any::Any;

use super::{
    Count, Entry, EntryMut, Flag, Moments, PerLeaf, PerLeafKind, Scalar, Single, State, StateWalk, StateWalkMut,
};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::tree::{shares, weighted_mean};

/// The policy for counts when states are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountPolicy {
    /// The largest: training is as far as the most advanced replica.
    #[default]
    Largest,
    /// All must agree, else an error.
    Equal,
}

/// The policy for flags when states are averaged. The result is always a flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlagPolicy {
    /// Set if it is set in any: a NaN in one replica has occurred.
    #[default]
    Any,
    /// Set if it is set in all.
    All,
    /// All must agree, else an error.
    Equal,
}

/// The policy for random keys when states are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// An error: two random streams have no mean, and replicas that continue with one key draw the same noise.
    #[default]
    Refuse,
    /// The key of the first state.
    First,
}

/// The policies for fields without a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AverageOptions {
    /// The policy for counts.
    pub counts: CountPolicy,
    /// The policy for flags.
    pub flags: FlagPolicy,
    /// The policy for random keys.
    pub keys: KeyPolicy,
}

impl AverageOptions {
    /// Sets the policy for counts.
    pub fn counts(mut self, counts: CountPolicy) -> AverageOptions {
        self.counts = counts;
        self
    }

    /// Sets the policy for flags.
    pub fn flags(mut self, flags: FlagPolicy) -> AverageOptions {
        self.flags = flags;
        self
    }

    /// Sets the policy for random keys.
    pub fn keys(mut self, keys: KeyPolicy) -> AverageOptions {
        self.keys = keys;
        self
    }
}

/// Returns the weighted mean of states, by kind.
///
/// # Arithmetic
///
/// ```text
/// moments, scalars   Σ wᵢ·xᵢ / Σ wᵢ   in f64, rounded once to the type they had; what is equal stays, to the bit
/// counts, flags, keys   as `options` says; never a number that none of the states had
/// ```
///
/// # Errors
///
/// Fails without states, if a weight is negative or not finite, all weights are zero, the states differ in schema, or a
/// policy refuses.
///
/// # Example
///
/// ```
/// use gradchain::state::{AverageOptions, Flag, Scalar, average};
///
/// let (a, b) = ((Scalar::new(1.0), Flag::new(true)), (Scalar::new(4.0), Flag::new(false)));
/// let mean = average(&[(&a, 2.0), (&b, 1.0)], AverageOptions::default())?;
/// assert_eq!(mean, (Scalar::new(2.0), Flag::new(true)));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn average<S: State>(states: &[(&S, f64)], options: AverageOptions) -> Result<S> {
    let Some((first, _)) = states.first() else {
        return Err(Error::argument("average", "states", "at least one state", 0));
    };
    let shares = shares("average", states.iter().map(|s| s.1))?;
    let rows: Vec<(Vec<(String, Entry<'_>)>, f64)> = states.iter().map(|(s, _)| entries(*s)).zip(shares).collect();
    let mut mean = (*first).clone();
    let (mut field, mut failure) = (0, None);
    mean.walk_mut(&mut StateWalkMut::new(&mut |path, into| {
        let column: Option<Vec<_>> = rows
            .iter()
            .map(|(row, w)| row.get(field).filter(|(name, _)| name == path).map(|(_, e)| (*e, *w)))
            .collect();
        field += 1;
        let done = column
            .ok_or_else(|| Error::state(format!("average: field `{path}`"), "not every state has it"))
            .and_then(|column| combine(path, into, &column, options));
        if let (None, Err(error)) = (&failure, done) {
            failure = Some(error);
        }
    }));
    if let Some((row, _)) = rows.iter().find(|(row, _)| row.len() != field) {
        return Err(Error::state("average", format!("states of {field} and {} fields have no mean", row.len())));
    }
    failure.map_or(Ok(mean), Err)
}

/// Interpolates between two states: `a` at 0, `b` at 1. As [`average`] with weights `1 − t` and `t`.
///
/// # Errors
///
/// As [`average`]; also fails if `t` is not in `[0, 1]`.
pub fn lerp<S: State>(a: &S, b: &S, t: f64, options: AverageOptions) -> Result<S> {
    if !(0.0..=1.0).contains(&t) {
        return Err(Error::argument("lerp", "t", "in [0, 1]", t));
    }
    average(&[(a, 1.0 - t), (b, t)], options)
}

fn entries<S: State>(state: &S) -> Vec<(String, Entry<'_>)> {
    let mut out = Vec::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| out.push((path.into(), entry))));
    out
}

/// Returns a field's value in each state, with weights; an error if the kinds differ.
fn values<'a, T: 'static>(path: &str, column: &[(Entry<'a>, f64)]) -> Result<Vec<(&'a T, f64)>> {
    let value = |entry: Entry<'a>| -> &'a dyn Any {
        match entry {
            Entry::Moments(value) => value,
            Entry::Count(value) => value,
            Entry::Flag(value) => value,
            Entry::Scalar(value) => value,
            Entry::Key(value) => value,
            Entry::Counts(value) => value,
            Entry::Flags(value) => value,
            Entry::Scalars(value) => value,
        }
    };
    let differ = || Error::state(format!("average: field `{path}`"), "the states have different kinds there");
    column.iter().map(|(entry, w)| Ok((value(*entry).downcast_ref().ok_or_else(differ)?, *w))).collect()
}

fn combine(path: &str, into: EntryMut<'_>, column: &[(Entry<'_>, f64)], options: AverageOptions) -> Result<()> {
    match into {
        EntryMut::Moments(m) => mean_of_moments(path, m, &values::<Moments>(path, column)?)?,
        EntryMut::Scalar(s) => s.set(weighted_mean(values::<Scalar>(path, column)?.iter().map(|(s, w)| (s.get(), *w)))),
        EntryMut::Count(c) => {
            *c = count(path, values::<Count>(path, column)?.iter().map(|(c, _)| **c), options.counts)?;
        }
        EntryMut::Flag(f) => *f = flag(path, values::<Flag>(path, column)?.iter().map(|(f, _)| **f), options.flags)?,
        EntryMut::Key(_) => may_be_first(path, options.keys)?,
        EntryMut::Counts(v) => {
            let column = values(path, column)?;
            same_leaves(path, v, &column)?;
            for (leaf, c) in v.iter_mut() {
                *c = count(path, column.iter().filter_map(|(v, _)| v.get(leaf)), options.counts)?;
            }
        }
        EntryMut::Flags(v) => {
            let column = values(path, column)?;
            same_leaves(path, v, &column)?;
            for (leaf, f) in v.iter_mut() {
                *f = flag(path, column.iter().filter_map(|(v, _)| v.get(leaf)), options.flags)?;
            }
        }
        EntryMut::Scalars(v) => {
            let column = values(path, column)?;
            same_leaves(path, v, &column)?;
            for (leaf, s) in v.iter_mut() {
                s.set(weighted_mean(column.iter().filter_map(|(v, w)| Some((v.get(leaf)?.get(), *w)))));
            }
        }
    }
    Ok(())
}

/// Returns the mean of single values of one kind, equally weighted.
pub(crate) fn mean_of_singles(path: &str, values: &[Single], options: AverageOptions) -> Result<Single> {
    let counts =
        values.iter().filter_map(|value| if let Single::Count(n) = value { Some(Count::new(*n)) } else { None });
    let flags = values.iter().filter_map(|value| if let Single::Flag(f) = value { Some(Flag::new(*f)) } else { None });
    let scalars = values.iter().filter_map(|value| if let Single::Scalar(x) = value { Some(*x) } else { None });
    let share = 1.0 / values.len() as f64;
    Ok(match values[0] {
        Single::Count(_) => Single::Count(count(path, counts, options.counts)?.get()),
        Single::Flag(_) => Single::Flag(flag(path, flags, options.flags)?.get()),
        Single::Scalar(_) => Single::Scalar(weighted_mean(scalars.map(|x| (x, share)))),
        Single::Key(key) => may_be_first(path, options.keys).map(|()| Single::Key(key))?,
    })
}

fn may_be_first(path: &str, policy: KeyPolicy) -> Result<()> {
    if policy == KeyPolicy::First {
        return Ok(());
    }
    let problem = "random keys have no mean; pass `KeyPolicy::First` to keep the first state's";
    Err(Error::state(format!("average: field `{path}`"), problem))
}

fn same_leaves<K: PerLeafKind>(path: &str, into: &PerLeaf<K>, column: &[(&PerLeaf<K>, f64)]) -> Result<()> {
    let leaves = |values: &PerLeaf<K>| values.iter().map(|(leaf, _)| leaf).collect::<Vec<_>>();
    let ours = leaves(into);
    if column.iter().all(|(values, _)| leaves(values) == ours) {
        return Ok(());
    }
    Err(Error::state(format!("average: field `{path}`"), "the states act on different leaves"))
}

fn mean_of_moments(path: &str, into: &mut Moments, column: &[(&Moments, f64)]) -> Result<()> {
    let shape = |m: &Moments| {
        (0..m.len()).map(|i| (m.dtype(i), m.shape(i).map(<[usize]>::to_vec), m.begins(i))).collect::<Vec<_>>()
    };
    let ours = shape(into);
    if column.iter().any(|(m, _)| shape(m) != ours) {
        return Err(Error::state(format!("average: field `{path}`"), "the arrays differ in type or shape"));
    }
    // `into` is a copy of the first; others may have another memory order.
    let Some((first, _)) = column.first() else { return Ok(()) };
    let is_quantized = |m: &Moments| m.leaves().any(|leaf| m.dtype(leaf).is_some_and(DType::is_quantized));
    let wide: Vec<_> = column.iter().map(|(m, w)| (is_quantized(m).then(|| m.wide()), m, w)).collect();
    let order = |leaf| first.strides(leaf);
    let at = |leaf, i| wide.iter().map(move |(wide, m, w)| (wide.as_ref().unwrap_or(m).at(leaf, i, order(leaf)), **w));
    into.map(|leaf, i, _| weighted_mean(at(leaf, i)));
    Ok(())
}

fn count(path: &str, mut counts: impl Iterator<Item = Count>, policy: CountPolicy) -> Result<Count> {
    let first = counts.next().unwrap_or_default();
    match policy {
        CountPolicy::Largest => Ok(counts.fold(first, Ord::max)),
        CountPolicy::Equal if counts.all(|c| c == first) => Ok(first),
        CountPolicy::Equal => Err(Error::state(format!("average: field `{path}`"), "the counts differ")),
    }
}

fn flag(path: &str, mut flags: impl Iterator<Item = Flag>, policy: FlagPolicy) -> Result<Flag> {
    let first = flags.next().unwrap_or_default();
    match policy {
        FlagPolicy::Any => Ok(Flag::new(first.get() || flags.any(|f| f.get()))),
        FlagPolicy::All => Ok(Flag::new(first.get() && flags.all(|f| f.get()))),
        FlagPolicy::Equal if flags.all(|f| f == first) => Ok(first),
        FlagPolicy::Equal => Err(Error::state(format!("average: field `{path}`"), "the flags differ")),
    }
}
