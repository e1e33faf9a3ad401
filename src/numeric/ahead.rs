//! Asking for memory before it is read.
//!
//! A stretch of a leaf goes through one loop after another: of each member of a chain, or into codes and back. Only
//! some of them wait for memory, and while one waits no other calculates. So each asks for a little of what the next
//! stretch is going to read.
#![allow(unsafe_code, reason = "a hint to the processor")]

use core::ops::Range;

/// Bytes that come into the cache together.
pub(crate) const LINE: usize = 64;

/// The most stretches of memory that are asked for at a time.
const MOST: usize = 10;

/// Bytes of a tile's elements.
const PAGE: usize = 4096;

/// How many bytes ahead a loop prefetches its own arrays. The processor's prefetcher follows each array too, but stops
/// at the end of each page and falls behind where the arithmetic of a block takes long.
pub(crate) const DISTANCE: usize = 1024;

/// Prefetches the memory that a loop comes to after a block. The address is made from the block's, so that the compiler
/// knows that no other memory is meant: sums that are in registers stay there.
#[inline(always)]
pub(crate) fn prefetch_after<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch(block.as_ptr().wrapping_byte_add(DISTANCE + line).cast());
    }
}

/// Prefetches a line; elsewhere than on x86-64 nothing.
#[inline(always)]
fn prefetch(address: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for a stretch of memory, which comes while something else is worked out.
pub(crate) fn ask_for(memory: Range<usize>) {
    for address in memory.step_by(LINE) {
        prefetch(core::ptr::without_provenance(address));
    }
}

/// Lines that are asked for at once by loops that calculate for so long that all of them have come by then.
const MANY: usize = 16;

/// What the stretch after this one reads, where it lies in memory: in the order in which it is going to be read.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The address to ask for next, and where that memory ends.
    next: usize,
    end: usize,
    /// What comes after it.
    memory: [(usize, usize); MOST],
    at: usize,
    len: usize,
    follows: bool,
}

impl Ahead {
    /// Asks for nothing.
    #[inline]
    pub(crate) fn new() -> Ahead {
        Ahead { next: 0, end: 0, memory: [(0, 0); MOST], at: 0, len: 0, follows: false }
    }

    /// Begins a stretch that one of the same length follows in the same leaf, or none does: then it asks for nothing.
    /// What has not been asked for until now is not any more.
    pub(crate) fn begin(&mut self, follows: bool) {
        (self.next, self.end, self.at, self.len, self.follows) = (0, 0, 0, 0, follows);
    }

    /// Says that a stretch of memory is read now. The next one reads what lies after it.
    pub(crate) fn reads(&mut self, now: Range<usize>) {
        if self.follows && self.len < MOST {
            self.memory[self.len] = (now.end, now.end + now.len());
            self.len += 1;
        }
    }

    /// Asks for so many lines, or for some that lie after the end of a stretch: loops call it, so it counts little.
    #[inline(always)]
    pub(crate) fn ask(&mut self, lines: usize) {
        if self.next >= self.end {
            let Some(memory) = self.memory[..self.len].get(self.at) else { return };
            ((self.next, self.end), self.at) = (*memory, self.at + 1);
        }
        for line in 0..lines {
            prefetch(core::ptr::without_provenance(self.next.wrapping_add(line * LINE)));
        }
        self.next = self.next.wrapping_add(lines * LINE);
    }

    /// Asks for as much as a loop over a tile does in all, at once: for loops that can ask for nothing themselves.
    #[inline(always)]
    pub(crate) fn ask_much(&mut self) {
        if self.follows {
            self.ask_for_page();
        }
    }

    /// Asks for many lines, of one stretch of memory after the other.
    pub(crate) fn ask_many(&mut self) {
        if self.follows {
            (0..MANY).for_each(|_| self.ask(1));
        }
    }

    #[inline(never)]
    fn ask_for_page(&mut self) {
        (0..PAGE / LINE).for_each(|_| self.ask(1));
    }
}
