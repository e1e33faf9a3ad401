#![allow(unsafe_code, reason = "a prefetch is a hint to the processor")]

use core::ops::Range;

const LINE: usize = 64;

/// The maximum number of arrays prefetched for a tile.
const MAX_RANGES: usize = 10;

/// Prefetch distance of a loop's own arrays, in bytes. The CPU's prefetcher follows them too, but stops at the end of a
/// page and falls behind long arithmetic.
pub(crate) const DISTANCE: usize = 1024;

/// Prefetch distance of loops that only read, into L2.
const READ_DISTANCE: usize = 4096;

/// Prefetches the memory after a block. The address derives from the block's, so that LLVM knows that no other memory
/// is accessed: sums stay in registers.
#[inline(always)]
pub(crate) fn prefetch_after<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<false>(block.as_ptr().wrapping_byte_add(DISTANCE + line).cast());
    }
}

/// Prefetches a block's length of memory from another address.
#[inline(always)]
pub(crate) fn prefetch_beside<T>(block: &[T], address: usize) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<false>(core::ptr::without_provenance(address + line));
    }
}

/// As `prefetch_after`, in a loop that only reads.
#[inline(always)]
pub fn prefetch_to_read<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<true>(block.as_ptr().wrapping_byte_add(READ_DISTANCE + line).cast());
    }
}

/// Prefetches a cache line, optionally only into L2; x86-64 only.
#[inline(always)]
fn prefetch<const SECOND_LEVEL: bool>(address: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe {
            match SECOND_LEVEL {
                true => _mm_prefetch::<_MM_HINT_T1>(address),
                false => _mm_prefetch::<_MM_HINT_T0>(address),
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// The memory that the next tile reads, prefetched in equal shares before each loop over the current tile.
///
/// While one loop waits for memory, others compute. A chunk's tiles read the same arrays in order, so only the first
/// records them.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// The next tile's ranges: start and cache lines.
    memory: [(usize, usize); MAX_RANGES],
    len: usize,
    /// The lines of the longest range, and the next line.
    lines: usize,
    next: usize,
    is_first: bool,
    /// Loops over this tile so far.
    loops: usize,
    /// Lines per loop, given the loops of the previous tile. Zero for a single loop, which reads in order and leaves
    /// arrays to the CPU's prefetcher.
    share: usize,
}

impl Prefetch {
    /// Begins a chunk; `follows` if another tile of this length follows.
    #[inline]
    pub(crate) fn new(follows: bool) -> Prefetch {
        Prefetch { memory: [(0, 0); MAX_RANGES], len: 0, lines: 0, next: 0, is_first: follows, loops: 0, share: 0 }
    }

    /// Begins a later tile; `follows` as in [`new`](Self::new).
    pub(crate) fn next_tile(&mut self, follows: bool) {
        self.share = if self.loops > 1 { self.lines.div_ceil(self.loops) } else { 0 };
        self.memory[..self.len].iter_mut().for_each(|(from, lines)| *from += *lines * LINE);
        self.next = if follows { 0 } else { self.lines };
        (self.loops, self.is_first) = (0, false);
    }

    /// Returns true on the first of several tiles, which records its ranges.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Records a range of the first tile; the next tile reads the range after it.
    pub(crate) fn reads(&mut self, now: Range<usize>) {
        if self.len < MAX_RANGES {
            let lines = now.len().div_ceil(LINE);
            self.memory[self.len] = (now.end, lines);
            self.lines = self.lines.max(lines);
            self.len += 1;
        }
    }

    pub(crate) fn prefetch_share(&mut self) {
        self.loops += 1;
        let end = self.lines.min(self.next + self.share);
        for (from, lines) in &self.memory[..self.len] {
            for line in self.next..end.min(*lines) {
                prefetch::<false>(core::ptr::without_provenance(from + line * LINE));
            }
        }
        self.next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_prefetched_in_equal_shares() {
        let mut ahead = Prefetch::new(true);
        for (array, len) in [(1 << 20, 4096), (1 << 30, 2048)] {
            ahead.reads(array..array + len);
        }
        // The number of loops is unknown yet.
        (0..4).for_each(|_| ahead.prefetch_share());
        assert_eq!((ahead.lines, ahead.next), (64, 0));
        ahead.next_tile(true);
        let later = [((1 << 20) + 2 * 4096, 64), ((1 << 30) + 2 * 2048, 32)];
        assert_eq!((&ahead.memory[..ahead.len], ahead.share), (&later[..], 16));
        (0..4).for_each(|_| ahead.prefetch_share());
        assert_eq!(ahead.next, 64);
        ahead.next_tile(false);
        ahead.prefetch_share();
        assert_eq!(ahead.next, 64);
        // A single loop leaves its arrays to the CPU's prefetcher.
        ahead.next_tile(true);
        assert_eq!(ahead.share, 0);
    }

    #[test]
    fn nothing_is_recorded_where_no_tile_follows() {
        assert!(!Prefetch::new(false).is_first());
    }
}
