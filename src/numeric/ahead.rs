//! Asking for memory before it is read.
//!
//! A stretch of a leaf goes through one loop after another: of each member of a chain, or into codes and back. Only
//! some of them wait for memory, and while one waits no other calculates. So each asks for a little of what the next
//! stretch is going to read.
#![allow(unsafe_code, reason = "a hint to the processor")]

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::OnceLock;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::isa::{Isa, detected_isa};

/// Bytes that come into the cache together.
pub(crate) const LINE: usize = 64;

/// The most stretches of memory that are asked for at a time.
const MOST: usize = 10;

/// Bytes of a tile's elements.
const PAGE: usize = 4096;

/// How far ahead, in bytes, loops ask for their own memory. The processor's own prefetcher follows each array, but it
/// stops at the end of each page and falls behind where the arithmetic of a block takes long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reach {
    /// Loops that write.
    writing: usize,
    /// Of these, those of two arrays: parameters and gradients.
    of_two: usize,
    /// Loops that write what has 16 bits, which calculate longer for each line.
    halves: usize,
    /// Loops that only read, into the second-level cache; 0 if they do not ask.
    reading: usize,
}

/// Parameters of so many bytes are, with gradients and two arrays of state, more than a second-level cache of 1 MiB
/// holds.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LARGE: usize = 1 << 18;
/// The same, without arrays of state.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LARGE_OF_TWO: usize = 2 * LARGE;

/// What was fastest on an AMD EPYC of family 25. Asking 1024 to 8192 bytes ahead was slower there, and so was asking
/// in loops that only read. Processors that nobody has tried have this too.
const USUAL: Reach = Reach { writing: 384, of_two: 384, halves: 384, reading: 0 };

/// What was fastest on an AMD EPYC of family 26. Loops that only read were a twelfth faster with two pages ahead, not
/// at all with 384 bytes; those on 16 bits a fifth, and no slower in the cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AMD_26: Reach = Reach { writing: 384, of_two: 384, halves: 8192, reading: 8192 };

/// The same where arrays come from memory or the last cache: steps were up to a third faster so, and where they lie in
/// the second-level cache, up to a sixth slower. Two arrays came an eighth faster with 8192 bytes than with 2560.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LARGE_ON_AMD_26: Reach = Reach { writing: 2560, of_two: 8192, ..AMD_26 };

/// What was fastest on an Intel Xeon with AVX-512: the first-level cache waits for few lines at a time there, and for
/// each of them long, so that loops that only read took a third longer without.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const INTEL: Reach = Reach { writing: 1024, of_two: 1024, halves: 1024, reading: 4096 };

static WRITING: AtomicUsize = AtomicUsize::new(USUAL.writing);
static OF_TWO: AtomicUsize = AtomicUsize::new(USUAL.of_two);
static HALVES: AtomicUsize = AtomicUsize::new(USUAL.halves);
static READING: AtomicUsize = AtomicUsize::new(USUAL.reading);

/// Sets how far ahead this processor is asked from now on, for parameters of so many bytes: before a step's first loop.
/// Where steps on large and on small ones run at once, some ask as the other would. No bit depends on it.
pub(crate) fn set_reach(bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        static BY_SIZE: OnceLock<[Reach; 2]> = OnceLock::new();
        let by_size = BY_SIZE.get_or_init(|| match detected_isa() {
            Isa::Avx512 => Reach::of(vendor(), family()),
            _ => [USUAL; 2],
        });
        let reach = by_size[usize::from(bytes >= LARGE)];
        WRITING.store(reach.writing, Ordering::Relaxed);
        OF_TWO.store(by_size[usize::from(bytes >= LARGE_OF_TWO)].of_two, Ordering::Relaxed);
        HALVES.store(reach.halves, Ordering::Relaxed);
        READING.store(reach.reading, Ordering::Relaxed);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = bytes;
}

impl Reach {
    /// For loops that do not ask.
    pub(crate) const NONE: Reach = Reach { writing: 0, of_two: 0, halves: 0, reading: 0 };

    /// That of a processor with AVX-512, for what its caches may hold and for what they do not.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn of(vendor: [u8; 12], family: u32) -> [Reach; 2] {
        match (&vendor, family) {
            (b"GenuineIntel", _) => [INTEL; 2],
            (b"AuthenticAMD", 26..) => [AMD_26, LARGE_ON_AMD_26],
            _ => [USUAL; 2],
        }
    }

    /// That of this processor, for a loop to ask for when it begins: numbers to load.
    #[inline(always)]
    pub(crate) fn here() -> Reach {
        // Not `map` of an array, which may be a call.
        Reach {
            writing: WRITING.load(Ordering::Relaxed),
            of_two: OF_TWO.load(Ordering::Relaxed),
            halves: HALVES.load(Ordering::Relaxed),
            reading: READING.load(Ordering::Relaxed),
        }
    }

    /// The same, for a loop that has so many arrays of state.
    #[inline(always)]
    pub(crate) fn beside(arrays: usize) -> Reach {
        let here = Reach::here();
        if arrays == 0 { Reach { writing: here.of_two, ..here } } else { here }
    }

    /// The same, for a loop on what has 16 bits.
    #[cfg(feature = "half")]
    #[inline(always)]
    pub(crate) fn of_halves() -> Reach {
        let here = Reach::here();
        Reach { writing: here.halves, ..here }
    }

    /// Asks for the memory that a loop comes to after this block of it. The address is made from that of the block, so
    /// that the compiler knows that no other memory is meant: sums that are in registers stay there.
    #[inline(always)]
    pub(crate) fn ask_after<T>(self, block: &[T]) {
        for line in (0..size_of_val(block)).step_by(LINE) {
            ask::<false>(block.as_ptr().wrapping_byte_add(self.writing + line).cast());
        }
    }

    /// Whether loops that only read ask.
    #[inline]
    pub(crate) fn is_asked_to_read(self) -> bool {
        self.reading > 0
    }

    /// As [`ask_after`](Reach::ask_after), in a loop that only reads.
    #[inline(always)]
    pub(crate) fn ask_to_read<T>(self, block: &[T]) {
        for line in (0..size_of_val(block)).step_by(LINE) {
            ask::<true>(block.as_ptr().wrapping_byte_add(self.reading + line).cast());
        }
    }

    /// Whether a stretch is longer than so many times what is asked for ahead in it: what lies ahead of one as short as
    /// a row is not its own.
    #[inline(always)]
    pub(crate) fn is_in<T>(self, stretch: &[T], times: usize) -> bool {
        size_of_val(stretch) > times * self.writing
    }
}

/// What the processor says of itself.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask_processor(leaf: u32) -> core::arch::x86_64::CpuidResult {
    #[allow(unused_unsafe, reason = "safe in later versions of the standard library")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        core::arch::x86_64::__cpuid(leaf)
    }
}

/// Who made the processor.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn vendor() -> [u8; 12] {
    let said = ask_processor(0);
    let mut vendor = [0; 12];
    vendor.as_chunks_mut().0.copy_from_slice(&[said.ebx, said.edx, said.ecx].map(u32::to_le_bytes));
    vendor
}

/// Its family, which is the sum of two numbers where the first is as large as it can be.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn family() -> u32 {
    let said = ask_processor(1).eax;
    let (base, more) = (said >> 8 & 0xf, said >> 20 & 0xff);
    if base == 0xf { base + more } else { base }
}

/// Asks for the line at an address, or no further than into the second-level cache, in which more lines may be waited
/// for; elsewhere than on x86-64 there is no way to ask.
#[inline(always)]
fn ask<const SECOND_LEVEL: bool>(address: *const i8) {
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

/// Asks for a stretch of memory, which comes while something else is worked out.
pub(crate) fn ask_for(memory: Range<usize>) {
    for address in memory.step_by(LINE) {
        ask::<false>(core::ptr::without_provenance(address));
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
            ask::<false>(core::ptr::without_provenance(self.next.wrapping_add(line * LINE)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    #[test]
    fn whose_processor_it_is_is_what_the_system_says() {
        let system = std::fs::read_to_string("/proc/cpuinfo").expect("Linux says");
        let says = |key: &str| {
            let mut lines = system.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(name, _)| name.trim() == key).expect("Linux says").1.trim()
        };
        assert_eq!(vendor(), says("vendor_id").as_bytes());
        assert_eq!(family().to_string(), says("cpu family"));
        let expected = match detected_isa() {
            Isa::Avx512 => Reach::of(vendor(), family()),
            _ => [USUAL; 2],
        };
        // Other tests take steps at the same time, but no large ones.
        set_reach(LARGE - 1);
        assert_eq!(Reach::here(), expected[0]);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn processors_that_nobody_has_tried_are_asked_as_usual() {
        for (vendor, family, expected) in [
            (b"GenuineIntel", 6, [INTEL; 2]),
            (b"AuthenticAMD", 25, [USUAL; 2]),
            (b"AuthenticAMD", 26, [AMD_26, LARGE_ON_AMD_26]),
            (b"SomeoneElses", 26, [USUAL; 2]),
        ] {
            assert_eq!(Reach::of(*vendor, family), expected);
        }
    }

    #[test]
    fn a_stretch_as_short_as_what_is_asked_for_is_not_asked_for() {
        let reach = USUAL;
        assert!(!reach.is_asked_to_read());
        assert!(!reach.is_in(&[0.0_f32; 96], 1) && reach.is_in(&[0.0_f32; 97], 1));
        assert!(!reach.is_in(&[0.0_f32; 192], 2) && reach.is_in(&[0.0_f32; 193], 2));
        // What lies ahead need not be there.
        let far = Reach { writing: 1 << 40, of_two: 1 << 40, halves: 1 << 40, reading: 1 << 40 };
        far.ask_after(&[0.0_f32; 32]);
        far.ask_to_read(&[0.0_f32; 32]);
    }
}
