//! The state arrays of a leaf, as loops have them.

use core::ops::Range;

use super::ahead::Ahead;
use super::found::Found;
use super::limits::MOST_SLOTS;
use crate::element::{DType, InRecord};
use crate::memory::RawSlice;
use crate::state::Moments;

/// State arrays by number.
pub(crate) type RawSlots = [Option<RawSlice>; MOST_SLOTS];

/// The state arrays of one leaf, in the order in which a fused loop has them.
pub struct SlotList<'a> {
    slots: RawSlots,
    /// Which arrays they are, for values that are nowhere in memory.
    arrays: [usize; MOST_SLOTS],
    len: usize,
    /// What those have that are no arrays, and which these are. A loop has such of one part only.
    found: Option<(Found<'a>, Range<usize>)>,
}

impl<'a> SlotList<'a> {
    #[inline]
    pub(crate) fn new() -> SlotList<'a> {
        SlotList { slots: [None; MOST_SLOTS], arrays: [0; MOST_SLOTS], len: 0, found: None }
    }

    /// Adds a leaf's array. Whoever adds it owns it together with the state that a step holds exclusively, and adds it
    /// once: that is what the slices made of the list rest on.
    pub(crate) fn push(&mut self, moments: &Moments, leaf: usize) {
        self.slots[self.len] = moments.raw(leaf);
        self.arrays[self.len] = moments.address();
        self.len += 1;
    }

    /// Adds an array that loops do not touch.
    pub(crate) fn push_none(&mut self) {
        self.len += 1;
    }

    /// Adds so many numbers that have been found out of a leaf.
    pub(super) fn push_found(&mut self, found: Found<'a>, count: usize) {
        self.found = Some((found, self.len..self.len + count));
        self.len += count;
    }

    /// Returns true if loops go through each of these arrays as it is stored.
    #[inline]
    pub(super) fn is_stored(&self, is_stored: impl Fn(DType) -> bool) -> bool {
        self.found.is_none() && self.slots[..self.len].iter().flatten().all(|slot| is_stored(slot.dtype()))
    }

    /// The arrays by number.
    pub(super) fn slots(&self) -> &RawSlots {
        &self.slots
    }

    /// What those have that are no arrays, and which these are.
    pub(super) fn found(&self) -> Option<&(Found<'a>, Range<usize>)> {
        self.found.as_ref()
    }

    /// How many arrays there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The arrays of values that are nowhere in memory.
    pub(super) fn in_record(&self) -> [Option<InRecord>; MOST_SLOTS] {
        core::array::from_fn(|slot| {
            let (address, raw) = (self.arrays[slot], self.slots[slot]);
            raw.map(|raw| InRecord { address, dtype: raw.dtype() })
        })
    }

    /// Says that a stretch of each array is read now.
    pub(crate) fn read(&self, start: usize, len: usize, ahead: &mut Ahead) {
        self.slots[..self.len].iter().flatten().for_each(|slot| ahead.reads(slot.addresses(start, len)));
    }

    /// Whether each array is there.
    pub(super) fn is_whole(&self) -> bool {
        let is_found = |slot: &usize| self.found.as_ref().is_some_and(|(_, slots)| slots.contains(slot));
        (0..self.len).all(|slot| self.slots[slot].is_some() || is_found(&slot))
    }
}
