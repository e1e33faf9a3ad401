//! The kinds of single values.

use super::{Entry, EntryMut, State, StateWalk, StateWalkMut};

/// A number of steps or elements, which can only be incremented or reset.
///
/// It has no addition and no conversion from floats, so a count can never become a fraction. It saturates at
/// `u64::MAX`.
///
/// ```
/// let mut count = gradchain::state::Count::default();
/// count.increment();
/// assert_eq!(count.get(), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Count(u64);

impl Count {
    /// Returns a count that starts at `value`, for example in a restored state.
    pub const fn new(value: u64) -> Count {
        Count(value)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Increments the count; saturates at `u64::MAX`.
    pub fn increment(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// Adds `n`, for counting elements; saturates at `u64::MAX`.
    pub fn increment_by(&mut self, n: u64) {
        self.0 = self.0.saturating_add(n);
    }

    /// Resets the count to zero.
    pub fn reset(&mut self) {
        self.0 = 0;
    }
}

/// True or false, without arithmetic: averages follow [`FlagPolicy`](super::FlagPolicy) and are flags again.
///
/// ```
/// let mut flag = gradchain::state::Flag::default();
/// flag.set(true);
/// assert!(flag.get());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Flag(bool);

impl Flag {
    /// Returns a flag of this value.
    pub const fn new(value: bool) -> Flag {
        Flag(value)
    }

    /// Returns the value.
    pub const fn get(self) -> bool {
        self.0
    }

    /// Sets the value.
    pub fn set(&mut self, value: bool) {
        self.0 = value;
    }
}

/// One number, in `f64` whatever the type of the leaves: a norm, an estimate, an injected hyperparameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Scalar(f64);

impl Scalar {
    /// Returns a scalar of this value.
    pub const fn new(value: f64) -> Scalar {
        Scalar(value)
    }

    /// Returns the value.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Sets the value.
    pub fn set(&mut self, value: f64) {
        self.0 = value;
    }
}

/// The key of a stream of random numbers. Two states with the same key draw the same numbers, so keys are never
/// averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct RandomKey(u64);

impl RandomKey {
    /// Returns the key of a seed.
    pub const fn new(seed: u64) -> RandomKey {
        RandomKey(seed)
    }

    /// Returns the seed.
    pub const fn get(self) -> u64 {
        self.0
    }
}

mod sealed {
    use super::{Entry, EntryMut, PerLeaf};

    pub trait Sealed: Sized {
        fn entry(values: &PerLeaf<Self>) -> Entry<'_>;
        fn entry_mut(values: &mut PerLeaf<Self>) -> EntryMut<'_>;
    }
}

/// The kinds of per-leaf values: [`Count`], [`Flag`], [`Scalar`].
pub trait PerLeafKind: sealed::Sealed + Clone + Copy + core::fmt::Debug + PartialEq + Send + Sync + 'static {}

/// One count, flag or scalar for each active leaf.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerLeaf<K> {
    values: Vec<Option<K>>,
}

impl<K: PerLeafKind> PerLeaf<K> {
    /// Returns the same value for every active leaf.
    pub fn new(active: &[bool], value: K) -> PerLeaf<K> {
        PerLeaf { values: active.iter().map(|on| on.then_some(value)).collect() }
    }

    /// Returns the value of leaf `leaf`; `None` if the leaf is not active.
    pub fn get(&self, leaf: usize) -> Option<K> {
        self.values.get(leaf).copied().flatten()
    }

    /// Sets the value of an active leaf; does nothing for others.
    pub fn set(&mut self, leaf: usize, value: K) {
        if let Some(Some(old)) = self.values.get_mut(leaf) {
            *old = value;
        }
    }

    /// Iterates over the active leaves, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, K)> + '_ {
        self.values.iter().enumerate().filter_map(|(leaf, value)| Some((leaf, (*value)?)))
    }

    /// As [`iter`](PerLeaf::iter), for writing.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut K)> + '_ {
        self.values.iter_mut().enumerate().filter_map(|(leaf, value)| Some((leaf, value.as_mut()?)))
    }
}

/// Implements states of a kind, alone and per leaf.
macro_rules! kinds {
    ($($Kind:ident $Many:ident),*) => {$(
        impl State for $Kind {
            fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
                walk.entry(Entry::$Kind(self));
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
                walk.entry(EntryMut::$Kind(self));
            }
        }

        impl PerLeafKind for $Kind {}

        impl sealed::Sealed for $Kind {
            fn entry(values: &PerLeaf<$Kind>) -> Entry<'_> {
                Entry::$Many(values)
            }
            fn entry_mut(values: &mut PerLeaf<$Kind>) -> EntryMut<'_> {
                EntryMut::$Many(values)
            }
        }
    )*};
}
kinds!(Count Counts, Flag Flags, Scalar Scalars);

impl<K: PerLeafKind> State for PerLeaf<K> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.entry(K::entry(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.entry(K::entry_mut(self));
    }
}

impl State for RandomKey {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.entry(Entry::Key(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.entry(EntryMut::Key(self));
    }
}
