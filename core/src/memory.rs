//! Raw views of leaves and state arrays: the only module that turns pointers into slices.
//!
//! A step accesses parameters, gradients and state arrays in chunks, perhaps on several threads, and keeps its tables
//! between steps to allocate nothing. References cannot express either, so the tables hold pointers. These invariants
//! keep them sound:
//!
//! * A [`RawSlice`] made from a reference is used only while that borrow lasts: the engine makes them at the start of a
//!   step and clears them before it returns.
//! * Every view knows its extent. [`RawSlice`] and [`RawBytes`] check each slice, [`RawStrided`] each run: a view of
//!   the wrong leaf panics instead of reaching another array's memory.
//! * No two threads get overlapping chunks of the same slice: `engine::chunks` cuts chunks once, and each belongs to
//!   one task.
#![allow(unsafe_code, reason = "disjoint slices of arrays on many threads, without allocation: see the module docs")]

mod pages;
mod strided;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{Layout, dealloc, handle_alloc_error};

use crate::element::{DType, Element, QUANTIZED_BLOCK, with_dtype};
pub(crate) use pages::move_to_huge_pages;
use pages::{CAN_ADVISE, HUGE_PAGE, zeroed};
pub(crate) use strided::RawStrided;

/// Bytes of a cache line, and of the widest vector register.
const ALIGN: usize = 64;
const PAGE: usize = 4096;
/// The bytes above which most allocators map an array to its own pages.
const LARGE: usize = 1 << 18;

/// The offset of a large array in its first page. At equal offsets, elements of equal index would map to the same L1
/// set, and a loop needs all of them at once: with five arrays it takes up to a quarter longer (`docs/performance.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PageOffset(usize);

impl PageOffset {
    /// Returns the next offset: 17 of a page's 64 cache lines further. The sequence visits every line, keeps a rule's
    /// arrays far apart, and avoids the start of a page, where users' arrays begin.
    pub(crate) fn next() -> PageOffset {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        PageOffset(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(17 * ALIGN) % PAGE)
    }
}

/// A pointer to `len` elements of type `dtype`.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    ptr: NonNull<u8>,
    len: usize,
    dtype: DType,
    /// The index of the first element in its array.
    first: usize,
}

// SAFETY: the value is only an address. The unsafe methods that turn it into a slice require exclusive use of the
// range.
unsafe impl Send for RawSlice {}
// SAFETY: as above.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    // A dangling pointer, aligned for every type.
    pub(crate) const EMPTY: RawSlice =
        RawSlice { ptr: NonNull::<f64>::dangling().cast(), len: 0, dtype: DType::F64, first: 0 };

    pub(crate) fn new<T: Element>(ptr: NonNull<T>, len: usize) -> RawSlice {
        RawSlice { ptr: ptr.cast(), len, dtype: T::DTYPE, first: 0 }
    }

    /// Returns an empty slice, for absent leaves.
    pub(crate) fn empty(dtype: DType) -> RawSlice {
        RawSlice { dtype, ..RawSlice::EMPTY }
    }

    #[inline]
    pub(crate) fn of<T: Element>(slice: &[T]) -> RawSlice {
        RawSlice::new(NonNull::from(slice).cast::<T>(), slice.len())
    }

    #[inline]
    pub(crate) fn of_mut<T: Element>(slice: &mut [T]) -> RawSlice {
        RawSlice::new(NonNull::from(&mut *slice).cast::<T>(), slice.len())
    }

    /// Views bytes as `len` elements of an 8-bit dtype; `None` if lengths do not match.
    #[cfg(feature = "serde")]
    pub(crate) fn quantized(bytes: &[u8], dtype: DType, len: usize) -> Option<RawSlice> {
        let fits = dtype.is_quantized() && len <= bytes.len() && dtype.bytes(len) == bytes.len();
        fits.then(|| RawSlice { ptr: NonNull::from(bytes).cast(), len, dtype, first: 0 })
    }

    /// Returns the elements as a range of an array, from `first` on; accesses use the array's indices.
    pub(crate) fn with_first(self, first: usize) -> RawSlice {
        RawSlice { first, ..self }
    }

    /// Returns a view for strided access only: slicing it panics.
    pub(crate) fn scattered(self) -> RawSlice {
        RawSlice { first: usize::MAX, ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the offset of a range, after a bounds check.
    #[inline]
    fn at(&self, start: usize, len: usize) -> usize {
        let at = start.wrapping_sub(self.first);
        if start < self.first || at > self.len || len > self.len - at {
            Self::out_of_bounds([start, len], [self.len, self.first]);
        }
        at
    }

    /// By value: a reference would spill `self` to memory at each call of `at`.
    #[cold]
    #[track_caller]
    fn out_of_bounds([start, len]: [usize; 2], [of, first]: [usize; 2]) -> ! {
        panic!("{start} + {len} of {of} from {first} on")
    }

    /// Returns a range's offset and length in bytes. A range of 8-bit elements must consist of whole blocks, but for
    /// the array's end.
    fn byte_range(&self, start: usize, len: usize) -> (usize, usize) {
        let at = self.at(start, len);
        let whole = at.is_multiple_of(QUANTIZED_BLOCK) && (len.is_multiple_of(QUANTIZED_BLOCK) || at + len == self.len);
        assert!(whole || !self.dtype.is_quantized(), "{start} + {len} of {} in {} cuts a block", self.len, self.dtype);
        (self.dtype.bytes(at), self.dtype.bytes(len))
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the addresses of a range; of 8-bit elements, of whole blocks.
    pub(crate) fn addresses(&self, start: usize, len: usize) -> core::ops::Range<usize> {
        let (at, bytes) = self.byte_range(start, len);
        let begin = self.address() + at;
        begin..begin + bytes
    }

    /// Returns an address near the end of a range, to prefetch what follows.
    pub(crate) fn end_of(&self, start: usize, len: usize) -> usize {
        self.address() + self.dtype.bytes(start.wrapping_sub(self.first) + len)
    }

    pub(crate) fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    #[inline(always)]
    fn pointer<T: Element>(&self) -> *mut T {
        assert_eq!(self.dtype, T::DTYPE, "a slice of {} is read as {}", self.dtype, T::DTYPE);
        self.ptr.as_ptr().cast()
    }

    /// Returns the address of a range, after checks of bounds and type.
    #[inline(always)]
    pub(crate) fn checked<T: Element>(&self, start: usize, len: usize) -> *mut T {
        self.pointer::<T>().wrapping_add(self.at(start, len))
    }

    /// Returns the elements of a range, to read.
    ///
    /// # Safety
    ///
    /// The memory is alive, and nothing writes to this range while the slice is used.
    pub(crate) unsafe fn slice<'a, T: Element>(&self, start: usize, len: usize) -> &'a [T] {
        let at = self.at(start, len);
        // SAFETY: `at` checked the bounds and `pointer` the dtype; the caller guarantees live memory without writes.
        unsafe { core::slice::from_raw_parts(self.pointer::<T>().add(at), len) }
    }

    /// Returns the elements of a range, to write.
    ///
    /// # Safety
    ///
    /// The memory is alive and writable, and nothing else reads or writes this range while the slice is used.
    pub(crate) unsafe fn slice_mut<'a, T: Element>(&self, start: usize, len: usize) -> &'a mut [T] {
        let at = self.at(start, len);
        // SAFETY: `at` checked the bounds and `pointer` the dtype; the caller guarantees live, writable memory and
        // exclusive use.
        unsafe { core::slice::from_raw_parts_mut(self.pointer::<T>().add(at), len) }
    }

    /// Returns the bytes of a range, to read.
    ///
    /// # Safety
    ///
    /// As [`slice`](RawSlice::slice).
    pub(crate) unsafe fn bytes<'a>(&self, start: usize, len: usize) -> &'a [u8] {
        let (at, bytes) = self.byte_range(start, len);
        // SAFETY: `byte_range` checked the bounds; numbers have no padding; the caller guarantees live memory without
        // writes.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().add(at), bytes) }
    }

    /// Returns the bytes of a range, to write.
    ///
    /// # Safety
    ///
    /// As [`slice_mut`](RawSlice::slice_mut).
    pub(crate) unsafe fn bytes_mut<'a>(&self, start: usize, len: usize) -> &'a mut [u8] {
        let (at, bytes) = self.byte_range(start, len);
        // SAFETY: as above, and the caller guarantees exclusive use; every bit pattern is a valid number.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr().add(at), bytes) }
    }
}

/// The bytes of a message, divided among chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBytes {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the value is only an address. The unsafe methods that turn it into a slice require exclusive use of the
// range.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

impl RawBytes {
    pub(crate) fn of(bytes: &mut [u8]) -> RawBytes {
        RawBytes { len: bytes.len(), ptr: NonNull::from(bytes).cast() }
    }

    /// Returns a range, to read.
    ///
    /// # Safety
    ///
    /// As [`RawSlice::slice`].
    pub(crate) unsafe fn slice<'a>(&self, at: usize, len: usize) -> &'a [u8] {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} of {}", self.len);
        // SAFETY: checked to be in bounds; the caller guarantees live memory without writes.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().add(at), len) }
    }

    /// Returns a range, to write.
    ///
    /// # Safety
    ///
    /// As [`RawSlice::slice_mut`].
    pub(crate) unsafe fn slice_mut<'a>(&self, at: usize, len: usize) -> &'a mut [u8] {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} of {}", self.len);
        // SAFETY: checked to be in bounds; the caller guarantees live memory and exclusive use.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr().add(at), len) }
    }
}

pub(crate) fn bytes_of<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding, and are borrowed while the result lives.
    unsafe { core::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

pub(crate) fn bytes_of_mut<T: Element>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, borrowed exclusively; every bit pattern is a valid number.
    unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Returns bytes as numbers, if aligned.
pub(crate) fn numbers_in<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every bit pattern is a valid number.
    let (_, numbers, _) = unsafe { bytes.align_to::<T>() };
    (size_of_val(numbers) == bytes.len()).then_some(numbers)
}

/// An owned, zeroed array of a dtype known at run time, aligned to cache lines. Unlike a `Vec`, it lets the engine,
/// which holds the state exclusively, write chunks through pointers from a shared reference.
pub struct Buffer {
    data: RawSlice,
    /// Bytes of the allocation before the data.
    shift: usize,
}

// SAFETY: the buffer owns its memory, which holds plain numbers.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads; writes through `raw` are unsafe and require exclusive use.
unsafe impl Sync for Buffer {}

impl Buffer {
    #[doc(hidden)]
    pub fn zeros(dtype: DType, len: usize) -> Buffer {
        Self::new_or_abort(dtype, len, PageOffset::next())
    }

    fn new_or_abort(dtype: DType, len: usize, place: PageOffset) -> Buffer {
        Self::try_zeros(dtype, len, place)
            .unwrap_or_else(|| handle_alloc_error(Self::layout(dtype, len).unwrap_or(Layout::new::<f64>())))
    }

    /// Returns `None` if not enough memory is available.
    pub(crate) fn try_zeros(dtype: DType, len: usize, place: PageOffset) -> Option<Buffer> {
        if len == 0 {
            return Some(Buffer { data: RawSlice::empty(dtype), shift: 0 });
        }
        let layout = Self::layout(dtype, len)?;
        // SAFETY: `len` is not 0, so neither is the size of `layout`.
        let start = unsafe { zeroed(layout) }?;
        let is_large = layout.size() > LARGE;
        let shift = if is_large { place.0.wrapping_sub(start.addr().get()) % PAGE } else { 0 };
        // SAFETY: the shift is below `PAGE`, and the layout of a large array has `PAGE` bytes more than its data.
        let ptr = unsafe { start.add(shift) };
        Some(Buffer { data: RawSlice { ptr, len, dtype, first: 0 }, shift })
    }

    /// Returns `None` if the array is larger than the address space.
    fn layout(dtype: DType, len: usize) -> Option<Layout> {
        // Scales take less room than their 8-bit elements.
        let size = len.checked_mul(dtype.size().max(2)).map(|_| dtype.bytes(len))?;
        let size = if size > LARGE { size.checked_add(PAGE)? } else { size };
        let align = if CAN_ADVISE && size >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        Layout::from_size_align(size, align).ok()
    }

    pub(crate) fn raw(&self) -> RawSlice {
        self.data
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len
    }

    #[doc(hidden)]
    pub fn dtype(&self) -> DType {
        self.data.dtype
    }

    pub(crate) fn get<T: Element>(&self) -> Option<&[T]> {
        // SAFETY: the buffer owns the memory, which is borrowed while the result lives.
        (self.data.dtype == T::DTYPE).then(|| unsafe { self.data.slice(0, self.data.len) })
    }

    #[doc(hidden)]
    pub fn get_mut<T: Element>(&mut self) -> Option<&mut [T]> {
        // SAFETY: the buffer owns the memory, which is borrowed exclusively while the result lives.
        (self.data.dtype == T::DTYPE).then(|| unsafe { self.data.slice_mut(0, self.data.len) })
    }

    #[doc(hidden)]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the buffer owns the memory, which is borrowed while the result lives; numbers have no padding.
        unsafe { self.data.bytes(0, self.data.len) }
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively; every bit pattern is a valid number.
        unsafe { self.data.bytes_mut(0, self.data.len) }
    }

    pub(crate) fn fill(&mut self, value: f64) {
        with_dtype!(self.data.dtype, T => {
            if let Some(data) = self.get_mut::<T>() {
                data.fill(T::from_f64(value));
            }
        });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.data.dtype, self.data.len).filter(|layout| layout.size() > 0) {
            // SAFETY: `try_zeros` allocated with this layout and moved the data by `shift`.
            unsafe { dealloc(self.data.ptr.as_ptr().sub(self.shift), layout) }
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        // The original's offset, which keeps the distance between sibling arrays.
        let place = PageOffset(self.data.ptr.addr().get() % PAGE);
        let mut copy = Buffer::new_or_abort(self.data.dtype, self.data.len, place);
        copy.as_bytes_mut().copy_from_slice(self.as_bytes());
        copy
    }
}

impl core::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.data.dtype.is_quantized() {
            return f.debug_list().entries(self.as_bytes()).finish();
        }
        with_dtype!(self.data.dtype, T => f.debug_list().entries(self.get::<T>().unwrap_or_default()).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, Buffer, LARGE, PAGE, PageOffset, RawSlice};
    use crate::element::DType;

    /// Copied for each leaf and step. With padding the copy would use overlapping moves, which defeat store forwarding.
    #[test]
    fn a_slice_is_whole_words_without_gaps() {
        assert_eq!(size_of::<RawSlice>(), 3 * size_of::<usize>() + size_of::<DType>());
        assert_eq!((size_of::<DType>(), size_of::<Option<RawSlice>>()), (size_of::<usize>(), size_of::<RawSlice>()));
    }

    #[test]
    fn large_arrays_begin_where_they_are_told_to() {
        let len = LARGE / 4 + 1;
        let page_offset = |buffer: &Buffer| buffer.as_bytes().as_ptr().addr() % PAGE;
        for place in (0..PAGE).step_by(5 * ALIGN) {
            let mut array = Buffer::try_zeros(DType::F32, len, PageOffset(place)).expect("memory");
            assert_eq!(page_offset(&array), place);
            let data = array.get_mut::<f32>().expect("f32");
            assert!(data.iter().all(|x| x.to_bits() == 0), "at {place}");
            (data[0], data[len - 1]) = (1.0, 2.0);
            let copy = array.clone();
            assert_eq!((page_offset(&copy), copy.as_bytes()), (place, array.as_bytes()));
        }
        assert_ne!(PageOffset::next(), PageOffset::next());
    }

    #[test]
    fn arrays_of_all_sizes_about_the_limit_are_whole() {
        for len in [0, 1, 15, 16, 17, LARGE / 8 - 1, LARGE / 8, LARGE / 8 + 1] {
            let mut array = Buffer::zeros(DType::F64, len);
            array.fill(3.0);
            assert_eq!(array.clone().get::<f64>(), Some(&vec![3.0; len][..]));
        }
        assert!(Buffer::try_zeros(DType::F64, usize::MAX / 8, PageOffset::next()).is_none());
        assert!(Buffer::try_zeros(DType::F64, usize::MAX, PageOffset::next()).is_none());
    }
}
