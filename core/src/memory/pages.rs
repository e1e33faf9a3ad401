//! Huge pages.
//!
//! A CPU caches the address translations of a few thousand 4096-byte pages, and hardware prefetchers stop at a page's
//! end. Huge pages double the speed of reading an array (`docs/performance.md`). Linux provides them on request, unless
//! configured for always or never.

use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, alloc_zeroed};

/// The bytes of a huge page on x86-64 and most other platforms. Arrays at least as large are aligned to it.
pub(super) const HUGE_PAGE: usize = 1 << 21;

pub(super) const CAN_ADVISE: bool =
    cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));

/// Allocates zeroed memory; large allocations in huge pages, if available.
///
/// # Safety
///
/// The size of `layout` is not zero.
pub(super) unsafe fn zeroed(layout: Layout) -> Option<NonNull<u8>> {
    if layout.align() < HUGE_PAGE {
        // SAFETY: as the caller guarantees.
        return NonNull::new(unsafe { alloc_zeroed(layout) });
    }
    // SAFETY: as the caller guarantees.
    let start = NonNull::new(unsafe { alloc(layout) })?;
    // Requested before the first write, which assigns pages.
    let _ = advise(start.addr().get()..start.addr().get() + layout.size(), Advice::HugePages);
    // SAFETY: `alloc` returned this memory, of this size.
    unsafe { start.write_bytes(0, layout.size()) };
    Some(start)
}

/// Moves the part of this memory that fills huge pages into such pages, if the system can; returns the bytes in huge
/// pages.
pub(crate) fn move_to_huge_pages(memory: Range<usize>) -> usize {
    let whole = memory.start.next_multiple_of(HUGE_PAGE)..memory.end / HUGE_PAGE * HUGE_PAGE;
    let moved =
        !whole.is_empty() && advise(whole.clone(), Advice::HugePages) && advise(whole.clone(), Advice::Collapse);
    if moved { whole.len() } else { 0 }
}

/// Requests, by number in `madvise`.
#[derive(Clone, Copy)]
enum Advice {
    HugePages = 14,
    /// Since Linux 6.1.
    Collapse = 25,
}

/// Sends a request for a range of pages, whose contents stay; returns true on success.
fn advise(pages: Range<usize>, advice: Advice) -> bool {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        use core::ffi::{c_int, c_void};
        // Defined in the C library, which the standard library links.
        unsafe extern "C" {
            fn madvise(start: *mut c_void, size: usize, advice: c_int) -> c_int;
        }
        // SAFETY: neither request changes the contents of any memory.
        unsafe { madvise(core::ptr::without_provenance_mut(pages.start), pages.len(), advice as c_int) == 0 }
    }
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    {
        let _ = (pages, advice);
        false
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_os = "linux", not(miri)))]
    use super::CAN_ADVISE;
    use super::{HUGE_PAGE, move_to_huge_pages};
    use crate::element::DType;
    use crate::memory::Buffer;
    #[cfg(all(target_os = "linux", not(miri)))]
    use crate::memory::PAGE;

    /// Returns the line of `/proc/self/smaps` with this prefix, for an address.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn smaps_line(address: usize, line: &str) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_here = false;
        for text in maps.lines() {
            let range = text.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = range.map(|(start, end)| [start, end].map(|x| usize::from_str_radix(x, 16).ok()));
            if let Some([Some(start), Some(end)]) = ends {
                is_here = (start..end).contains(&address);
            } else if let Some(said) = text.strip_prefix(line).filter(|_| is_here) {
                return Some(said.to_owned());
            }
        }
        None
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_system_is_asked_for_huge_pages_for_large_arrays_only() {
        // A small array may reuse a large one's memory, so this checks the layout.
        let align = |len| Buffer::layout(DType::F32, len).expect("a size that there is").align();
        assert_eq!((align(HUGE_PAGE / 4) == HUGE_PAGE, align(HUGE_PAGE / 4 - PAGE) < HUGE_PAGE), (CAN_ADVISE, true));
        let large = Buffer::zeros(DType::F32, HUGE_PAGE);
        // Some systems do not report it.
        let Some(said) = smaps_line(large.as_bytes().as_ptr().addr(), "VmFlags:") else { return };
        let has_any = CAN_ADVISE && std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(said.split(' ').any(|flag| flag == "hg"), has_any, "{said}");
    }

    #[cfg_attr(miri, ignore = "millions of elements")]
    #[test]
    fn arrays_about_the_size_of_a_page_are_whole() {
        for len in [HUGE_PAGE - 8192, HUGE_PAGE - 4096, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 7] {
            let mut array = Buffer::zeros(DType::F32, len.div_ceil(4));
            let data = array.get_mut::<f32>().expect("f32");
            assert!(data.iter().all(|x| x.to_bits() == 0), "{len}");
            data.iter_mut().zip(0_u32..).for_each(|(x, i)| *x = i as f32);
            assert_eq!(array.clone().get::<f32>(), array.get::<f32>(), "{len}");
        }
    }

    #[cfg_attr(miri, ignore = "millions of elements")]
    #[test]
    fn memory_moved_to_huge_pages_keeps_its_contents() {
        let numbers: Vec<u32> = (0..2 * HUGE_PAGE as u32).collect();
        let range = numbers.as_ptr_range();
        let moved = move_to_huge_pages(range.start.addr()..range.end.addr());
        assert!(moved.is_multiple_of(HUGE_PAGE) && moved <= 4 * 2 * HUGE_PAGE, "{moved}");
        assert!(numbers.iter().zip(0..).all(|(x, i)| *x == i));
        assert_eq!(move_to_huge_pages(range.start.addr()..range.start.addr() + HUGE_PAGE - 1), 0);
    }
}
