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

/// The same for loops that only read, into the second-level cache.
const READ_DISTANCE: usize = 4096;

/// Prefetches the memory that a loop comes to after a block. The address is made from the block's, so that the compiler
/// knows that no other memory is meant: sums that are in registers stay there.
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

/// The same in a loop that only reads.
#[inline(always)]
pub(crate) fn prefetch_to_read<T>(block: &[T]) {
    for line in (0..size_of_val(block)).step_by(LINE) {
        prefetch::<true>(block.as_ptr().wrapping_byte_add(READ_DISTANCE + line).cast());
    }
}

/// Prefetches a line, or no further than into the second-level cache; elsewhere than on x86-64 nothing.
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

/// The memory that the next tile reads, prefetched in equal shares before each loop over this one: while one loop
/// waits for memory, others calculate. All tiles of a piece read the same arrays, one stretch after another, so that
/// only the first says which. A line of each array is prefetched before the next line of any: a processor that reads
/// ahead by itself then does so in all of them.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The stretches that the next tile reads: where each begins, and how many lines it has.
    memory: [(usize, usize); MOST],
    len: usize,
    /// The most lines of any, and which of them is next.
    lines: usize,
    next: usize,
    is_first: bool,
    /// How many loops have gone over this tile.
    loops: usize,
    /// Lines before each loop, by how many loops the tile before had; none before a single loop, which reads its arrays
    /// in order as the processor's own prefetcher does.
    share: usize,
}

impl Ahead {
    /// For a piece in which a tile of the same length follows the first, or none does.
    #[inline]
    pub(crate) fn new(follows: bool) -> Ahead {
        Ahead { memory: [(0, 0); MOST], len: 0, lines: 0, next: 0, is_first: follows, loops: 0, share: 0 }
    }

    /// Begins a tile that is not the first; `follows` says whether one of the same length comes after it.
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

    /// Says that the first tile reads a stretch of memory. The next one reads what lies after it.
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
        let mut ahead = Ahead::new(true);
        for (array, len) in [(1 << 20, 4096), (1 << 30, 2048)] {
            ahead.reads(array..array + len);
        }
        // Nothing is known of how many loops come.
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
        // One loop goes over its arrays in order, as the processor's prefetcher does.
        ahead.go_on(true);
        assert_eq!(ahead.share, 0);
    }

    #[test]
    fn nothing_is_recorded_where_no_tile_follows() {
        assert!(!Ahead::new(false).is_first());
    }
}
