//! Prefetching.
#![allow(unsafe_code, reason = "a prefetch is a hint to the processor")]

use core::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Maximum number of arrays prefetched for a tile.
const MOST: usize = 10;

/// Prefetch distance of a loop's own arrays, in bytes. The CPU's prefetcher follows each array too, but stops at the
/// end of each page and falls behind if the arithmetic of a block takes long.
pub(crate) const DISTANCE: usize = 1024;

/// The prefetch distance of loops that only read, into the L2 cache.
const READ_DISTANCE: usize = 4096;

/// Prefetches the memory that a loop reaches after a block. The address is derived from the block's, so that the
/// compiler knows that no other memory is accessed: sums in registers stay there.
#[inline(always)]
pub(crate) fn prefetch_after<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<false>(block.as_ptr().wrapping_byte_add(DISTANCE + line).cast());
    }
}

/// Prefetches as much memory as a block has, from another address on.
#[inline(always)]
pub(crate) fn prefetch_beside<T>(block: &[T], address: usize) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<false>(core::ptr::without_provenance(address + line));
    }
}

/// As [`prefetch_after`] in a loop that only reads.
#[inline(always)]
pub(crate) fn prefetch_to_read<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<true>(block.as_ptr().wrapping_byte_add(READ_DISTANCE + line).cast());
    }
}

/// Prefetches a cache line, optionally only into the L2 cache; does nothing except on x86-64.
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

/// The memory that the next tile reads, prefetched in equal shares before each loop over the current one.
///
/// While one loop waits for memory, others compute. All tiles of a chunk read the same arrays in order, so that only
/// the first records them. Arrays take turns line by line, so that the CPU's prefetcher starts in all of them.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// The ranges that the next tile reads: the start and the number of cache lines of each.
    memory: [(usize, usize); MOST],
    len: usize,
    /// The largest number of lines of any range, and the next line.
    lines: usize,
    next: usize,
    is_first: bool,
    /// Number of loops over this tile so far.
    loops: usize,
    /// Lines before each loop, from the number of loops of the previous tile. Zero for a single loop, which reads its
    /// arrays in order and leaves them to the CPU's prefetcher.
    share: usize,
}

impl Prefetch {
    /// Returns the state for a chunk; `follows` is true if a tile of the same length follows the first.
    #[inline]
    pub(crate) fn new(follows: bool) -> Prefetch {
        Prefetch { memory: [(0, 0); MOST], len: 0, lines: 0, next: 0, is_first: follows, loops: 0, share: 0 }
    }

    /// Begins a later tile; `follows` is true if one of the same length comes after it.
    pub(crate) fn go_on(&mut self, follows: bool) {
        self.share = if self.loops > 1 { self.lines.div_ceil(self.loops) } else { 0 };
        self.memory[..self.len].iter_mut().for_each(|(from, lines)| *from += *lines * LINE);
        self.next = if follows { 0 } else { self.lines };
        (self.loops, self.is_first) = (0, false);
    }

    /// Returns true on the first tile of several, which records the ranges that it reads.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Records a range that the first tile reads. The next tile reads the range after it.
    pub(crate) fn reads(&mut self, now: Range<usize>) {
        if self.len < MOST {
            let lines = now.len().div_ceil(LINE);
            self.memory[self.len] = (now.end, lines);
            self.lines = self.lines.max(lines);
            self.len += 1;
        }
    }

    /// Prefetches a share, before a loop over the tile.
    pub(crate) fn prefetch_share(&mut self) {
        self.loops += 1;
        let end = self.lines.min(self.next + self.share);
        for line in self.next..end {
            for (from, lines) in &self.memory[..self.len] {
                if line < *lines {
                    prefetch::<false>(core::ptr::without_provenance(from + line * LINE));
                }
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
        // The number of loops is not known yet.
        (0..4).for_each(|_| ahead.prefetch_share());
        assert_eq!((ahead.lines, ahead.next), (64, 0));
        ahead.go_on(true);
        let later = [((1 << 20) + 2 * 4096, 64), ((1 << 30) + 2 * 2048, 32)];
        assert_eq!((&ahead.memory[..ahead.len], ahead.share), (&later[..], 16));
        (0..4).for_each(|_| ahead.prefetch_share());
        assert_eq!(ahead.next, 64);
        ahead.go_on(false);
        ahead.prefetch_share();
        assert_eq!(ahead.next, 64);
        // A single loop reads its arrays in order and leaves them to the CPU's prefetcher.
        ahead.go_on(true);
        assert_eq!(ahead.share, 0);
    }

    #[test]
    fn nothing_is_recorded_where_no_tile_follows() {
        assert!(!Prefetch::new(false).is_first());
    }
}
