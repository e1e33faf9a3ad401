//! Which state arrays a pass reads and writes.
//!
//! A loop has all arrays of its chain as arguments, and each pass only some of their numbers to do with. That the
//! others come back as they were, and need not go through memory, is said here: a compiler finds it out only if it
//! optimizes when linking too.

use super::ahead::DISTANCE;
use super::kernel::MOST_SLOTS;
use super::{Span, Stage};

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

/// How many arrays a loop has; of what does not fuse there are none to run.
pub(super) const fn arrays<S: Stage>() -> usize {
    if S::SLOTS < MOST_SLOTS { S::SLOTS } else { MOST_SLOTS }
}

/// What a pass does to the array of a number: whether it reads it, and whether it writes it.
pub(super) const fn is_read<S: Stage>(slot: usize, from: usize, to: usize) -> bool {
    S::USES[slot].is_read_in(Span::of(from, to))
}

pub(super) const fn is_written<S: Stage>(slot: usize, from: usize, to: usize) -> bool {
    S::USES[slot].is_written_in(Span::of(from, to))
}

/// Whether a pass reads any array.
pub(super) const fn reads_any<S: Stage>(from: usize, to: usize) -> bool {
    let mut slot = 0;
    while slot < arrays::<S>() && !is_read::<S>(slot, from, to) {
        slot += 1;
    }
    slot < arrays::<S>()
}

/// Whether the loop of a pass is given the arrays. One that drops updates, and reads none of them, is not.
pub(super) const fn is_given<S: Stage>(drops: bool, from: usize, to: usize) -> bool {
    !drops || reads_any::<S>(from, to)
}

/// Whether a pass writes any array.
pub(super) const fn writes_any<S: Stage>(from: usize, to: usize) -> bool {
    let mut slot = 0;
    while slot < arrays::<S>() && !is_written::<S>(slot, from, to) {
        slot += 1;
    }
    slot < arrays::<S>()
}

/// Whether a loop that goes to a stretch of parameters asks for what comes later. Few arrays come as fast without, so
/// it must be its own memory for the most part. After a look a stretch is half a tile, which is no longer than what is
/// asked for ahead: that is the next half.
#[inline(always)]
pub(super) fn asks_in<S: Stage, C>(stretch: &[C]) -> bool {
    S::SHAPE.looks > 0 || size_of_val(stretch) > const { if arrays::<S>() < 2 { 2 * DISTANCE } else { DISTANCE } }
}
