//! Prefetching.
#![allow(unsafe_code, reason = "a prefetch is a hint to the processor")]

use core::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The most arrays that are prefetched for a tile.
const MOST: usize = 10;

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

/// The memory that the next tile reads, prefetched in equal shares before each loop over this one: while one loop
/// waits for memory, others calculate.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The address to prefetch next, and where that memory ends.
    next: usize,
    end: usize,
    /// What comes after it, in the order in which it is going to be read.
    memory: [(usize, usize); MOST],
    at: usize,
    len: usize,
    follows: bool,
    /// Lines of this tile, and how many loops have gone over it.
    lines: usize,
    loops: usize,
    /// Lines before each loop, as the tile before had them.
    share: usize,
}

impl Ahead {
    #[inline]
    pub(crate) fn new() -> Ahead {
        let memory = [(0, 0); MOST];
        Ahead { next: 0, end: 0, memory, at: 0, len: 0, follows: false, lines: 0, loops: 0, share: MOST }
    }

    /// Begins a tile; `follows` says whether one of the same length comes after it in the same leaf.
    pub(crate) fn begin(&mut self, follows: bool) {
        if self.loops > 0 && self.lines > 0 {
            self.share = self.lines.div_ceil(self.loops);
        }
        (self.next, self.end, self.at, self.len, self.follows) = (0, 0, 0, 0, follows);
        (self.lines, self.loops) = (0, 0);
    }

    /// Says that this tile reads a stretch of memory. The next one reads what lies after it.
    pub(crate) fn reads(&mut self, now: Range<usize>) {
        if self.follows && self.len < MOST {
            self.lines += now.len() / LINE;
            self.memory[self.len] = (now.end, now.end + now.len());
            self.len += 1;
        }
    }

    /// Prefetches a share, before a loop over the tile.
    pub(crate) fn prefetch_share(&mut self) {
        self.loops += 1;
        for _ in 0..self.share {
            if self.next >= self.end {
                let Some(memory) = self.memory[..self.len].get(self.at) else { return };
                ((self.next, self.end), self.at) = (*memory, self.at + 1);
            }
            prefetch(core::ptr::without_provenance(self.next));
            self.next += LINE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_prefetched_in_equal_shares() {
        let mut ahead = Ahead::new();
        for tile in 0..3 {
            ahead.begin(tile < 2);
            ahead.reads(4096 * tile..4096 * (tile + 1));
            (0..4).for_each(|_| ahead.prefetch_share());
            let all = (4096 * (tile + 2), 4096 * (tile + 2));
            match tile {
                0 => assert_eq!(ahead.next, 4096 + 4 * MOST * LINE),
                1 => assert_eq!((ahead.next, ahead.end), all),
                _ => assert_eq!((ahead.next, ahead.end), (0, 0)),
            }
        }
    }
}
