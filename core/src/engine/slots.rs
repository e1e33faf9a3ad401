use core::ops::Range;

use super::expansion::Expansion;
use super::limits::MAX_SLOTS;
use super::prefetch::Prefetch;
use crate::element::{DType, RecordedArray};
use crate::memory::RawSlice;
use crate::state::Moments;

pub(crate) type RawSlots = [Option<RawSlice>; MAX_SLOTS];

/// A leaf's state arrays, in the order of a fused loop's slots.
pub struct SlotList<'a> {
    slots: RawSlots,
    /// Ids for recorded values, which have no storage.
    arrays: [usize; MAX_SLOTS],
    len: usize,
    /// Leaf statistics, and their slots. At most one part of a loop has them.
    statistics: Option<(Expansion<'a>, Range<usize>)>,
}

impl<'a> SlotList<'a> {
    #[inline]
    pub(crate) fn new() -> SlotList<'a> {
        SlotList { slots: [None; MAX_SLOTS], arrays: [0; MAX_SLOTS], len: 0, statistics: None }
    }

    /// Adds a leaf's array. The caller must own it in a state that the step holds exclusively, and add it once; slices
    /// made from the list rely on both.
    pub(crate) fn push(&mut self, moments: &Moments, leaf: usize) {
        self.slots[self.len] = moments.raw(leaf);
        self.arrays[self.len] = moments.address();
        self.len += 1;
    }

    pub(crate) fn push_none(&mut self) {
        self.len += 1;
    }

    pub(super) fn push_statistics(&mut self, statistics: Expansion<'a>, count: usize) {
        self.statistics = Some((statistics, self.len..self.len + count));
        self.len += count;
    }

    /// Returns true if loops access every array directly.
    #[inline]
    pub(super) fn is_stored(&self, is_stored: impl Fn(DType) -> bool) -> bool {
        let mut all = self.statistics.is_none();
        for slot in self.slots[..self.len].iter().flatten() {
            all &= is_stored(slot.dtype());
        }
        all
    }

    pub(super) fn slots(&self) -> &RawSlots {
        &self.slots
    }

    pub(super) fn statistics(&self) -> Option<&(Expansion<'a>, Range<usize>)> {
        self.statistics.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn recorded_array(&self) -> [Option<RecordedArray>; MAX_SLOTS] {
        core::array::from_fn(|slot| {
            let (address, raw) = (self.arrays[slot], self.slots[slot]);
            raw.map(|raw| RecordedArray { address, dtype: raw.dtype() })
        })
    }

    /// Reports to `ahead` that the current tile reads this range of the arrays.
    pub(crate) fn read(&self, start: usize, len: usize, ahead: &mut Prefetch) {
        self.slots[..self.len].iter().flatten().for_each(|slot| ahead.reads(slot.addresses(start, len)));
    }

    pub(super) fn is_whole(&self) -> bool {
        let is_found = |slot: &usize| self.statistics.as_ref().is_some_and(|(_, slots)| slots.contains(slot));
        (0..self.len).all(|slot| self.slots[slot].is_some() || is_found(&slot))
    }
}
