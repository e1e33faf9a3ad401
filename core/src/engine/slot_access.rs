//! A loop has all arrays of its chain as arguments; each pass accesses some. LLVM finds unmodified arrays, which need
//! not go through memory, only with link-time optimization; `SlotAccess` declares them.

use super::PassRange;
use super::limits::MAX_SLOTS;

/// The barrier intervals in which a stage accesses a state array; masks as in [`PassStructure`](super::PassStructure).
#[derive(Clone, Copy, Debug)]
pub struct SlotAccess {
    reads: u32,
    writes: u32,
}

/// The uses by slot; entries past the last array are ignored.
pub type SlotAccesses = [SlotAccess; MAX_SLOTS];

impl SlotAccess {
    pub(crate) const ALWAYS: SlotAccess = SlotAccess::of(u32::MAX, u32::MAX);

    /// Returns these accesses. Written arrays are also read: an element may keep its value.
    pub(crate) const fn of(reads: u32, writes: u32) -> SlotAccess {
        SlotAccess { reads: reads | writes, writes }
    }

    pub(crate) const fn of_all(self) -> SlotAccesses {
        [self; MAX_SLOTS]
    }

    const fn after(self, barriers: usize) -> SlotAccess {
        if barriers >= u32::BITS as usize {
            return SlotAccess::ALWAYS;
        }
        SlotAccess { reads: self.reads << barriers, writes: self.writes << barriers }
    }

    #[inline(always)]
    pub(super) const fn is_read_in(self, range: PassRange) -> bool {
        range.intersects(self.reads)
    }

    #[inline(always)]
    pub(super) const fn is_written_in(self, range: PassRange) -> bool {
        range.intersects(self.writes)
    }
}

/// Appends a stage with `barriers` barriers before it to the uses of `arrays` arrays.
pub(crate) const fn append(mut all: SlotAccesses, arrays: usize, next: SlotAccesses, barriers: usize) -> SlotAccesses {
    let mut slot = arrays;
    while slot < MAX_SLOTS {
        all[slot] = next[slot - arrays].after(barriers);
        slot += 1;
    }
    all
}

pub(super) const fn any(slots: [bool; MAX_SLOTS]) -> bool {
    let mut slot = 0;
    while slot < MAX_SLOTS && !slots[slot] {
        slot += 1;
    }
    slot < MAX_SLOTS
}
