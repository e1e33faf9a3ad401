//! Which state arrays a pass reads and writes.
//!
//! A loop has all arrays of its chain as arguments, and each pass only some of their numbers to do with. That the
//! others come back as they were, and need not go through memory, is said here: a compiler finds it out only if it
//! optimizes when linking too.

use super::Span;
use super::limits::MOST_SLOTS;

/// The intervals between barriers in which a state array is read, and those in which it is written, as in
/// [`Shape`](super::Shape).
#[derive(Clone, Copy, Debug)]
pub struct Uses {
    reads: u32,
    writes: u32,
}

/// Those of the arrays of a stage, by number. What is past its last is not looked at.
pub type AllUses = [Uses; MOST_SLOTS];

impl Uses {
    /// In every pass, for all that is known.
    pub(crate) const ALWAYS: Uses = Uses::of(u32::MAX, u32::MAX);

    /// What is written is read too: an element may be left as it is.
    pub(crate) const fn of(reads: u32, writes: u32) -> Uses {
        Uses { reads: reads | writes, writes }
    }

    /// All arrays of a stage are used so.
    pub(crate) const fn of_all(self) -> AllUses {
        [self; MOST_SLOTS]
    }

    /// The same of a stage that has so many barriers before it.
    const fn after(self, barriers: usize) -> Uses {
        if barriers >= u32::BITS as usize {
            return Uses::ALWAYS;
        }
        Uses { reads: self.reads << barriers, writes: self.writes << barriers }
    }

    #[inline(always)]
    pub(super) const fn is_read_in(self, span: Span) -> bool {
        span.meets(self.reads)
    }

    #[inline(always)]
    pub(super) const fn is_written_in(self, span: Span) -> bool {
        span.meets(self.writes)
    }
}

/// Those of so many arrays, followed by those of a stage that has so many barriers before it.
pub(crate) const fn followed_by(mut all: AllUses, arrays: usize, next: AllUses, barriers: usize) -> AllUses {
    let mut slot = arrays;
    while slot < MOST_SLOTS {
        all[slot] = next[slot - arrays].after(barriers);
        slot += 1;
    }
    all
}

/// Returns true if there is an array among these.
pub(super) const fn any(slots: [bool; MOST_SLOTS]) -> bool {
    let mut slot = 0;
    while slot < MOST_SLOTS && !slots[slot] {
        slot += 1;
    }
    slot < MOST_SLOTS
}
