//! Raw views of leaves and state arrays: the only module that turns pointers into slices.
//!
//! One step touches the parameters, the gradients and every state array in pieces, possibly on several threads, and
//! holds on to the tables between steps so that nothing is allocated. Neither can be said with references, so the
//! tables hold pointers. What keeps this sound is stated once, here:
//!
//! * A [`RawSlice`] made from a reference is used only while that borrow lasts: the engine makes them at the start of a
//!   step, from the `&mut` and `&` it was given, and clears them before it returns.
//! * Every view knows how far it reaches. [`RawSlice`] and [`RawBytes`] check each slice that is taken of them,
//!   [`RawStrided`] each run: a view of another leaf than the caller thinks is a panic, not another array's memory.
//! * No two threads are ever given overlapping pieces of the same slice: pieces are cut once, in `engine::pieces`, and
//!   each belongs to one task.
#![allow(unsafe_code, reason = "pieces of many arrays on many threads, without allocation: see the module's head")]

mod pages;
mod strided;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{Layout, dealloc, handle_alloc_error};

use crate::element::{CODED_BLOCK, DType, Element, with_dtype};
pub(crate) use pages::move_to_huge_pages;
use pages::{CAN_ASK, HUGE_PAGE, zeroed};
pub(crate) use strided::RawStrided;

/// A cache line, and the widest vector register.
const ALIGN: usize = 64;
/// The size of a page of memory.
const PAGE: usize = 4096;
/// Arrays of more bytes get pages of their own from most allocators.
const LARGE: usize = 1 << 18;

/// Where in a page a large array begins.
///
/// Arrays that begin at the same place, as large ones do if nothing is done about it, have the elements of the same
/// number in the same set of the first-level cache, all of which a loop through them needs at once: with five arrays
/// such a loop takes up to a quarter longer (`docs/performance.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InPage(usize);

impl InPage {
    /// Another place than the last one: 17 of a page's 64 lines further on, which comes to every line in turn, and so
    /// that the arrays of one rule are far from each other, and from the start of a page, where the user's are.
    pub(crate) fn next() -> InPage {
        static PLACES: AtomicUsize = AtomicUsize::new(1);
        InPage(PLACES.fetch_add(1, Ordering::Relaxed).wrapping_mul(17 * ALIGN) % PAGE)
    }
}

/// A pointer to `len` elements of type `dtype`.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    ptr: NonNull<u8>,
    len: usize,
    dtype: DType,
    /// The number of the first of the elements, in the array that they are a stretch of.
    first: usize,
}

// SAFETY: it is only an address; whoever turns it into a slice promises exclusive use of that range.
unsafe impl Send for RawSlice {}
// SAFETY: as above.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    /// No elements.
    // Aligned for every type.
    pub(crate) const NOWHERE: RawSlice =
        RawSlice { ptr: NonNull::<f64>::dangling().cast(), len: 0, dtype: DType::F64, first: 0 };

    pub(crate) fn new<T: Element>(ptr: NonNull<T>, len: usize) -> RawSlice {
        RawSlice { ptr: ptr.cast(), len, dtype: T::DTYPE, first: 0 }
    }

    /// Where a value's elements would be if there were any; for leaves that are absent.
    pub(crate) fn empty(dtype: DType) -> RawSlice {
        RawSlice { dtype, ..RawSlice::NOWHERE }
    }

    /// The elements of a slice, to read.
    #[inline]
    pub(crate) fn of<T: Element>(slice: &[T]) -> RawSlice {
        RawSlice::new(NonNull::from(slice).cast::<T>(), slice.len())
    }

    /// The elements of a slice, to read and write.
    #[inline]
    pub(crate) fn of_mut<T: Element>(slice: &mut [T]) -> RawSlice {
        RawSlice::new(NonNull::from(&mut *slice).cast::<T>(), slice.len())
    }

    /// So many elements of a type of 8 bits, unless these are not their bytes.
    #[cfg(feature = "serde")]
    pub(crate) fn coded(bytes: &[u8], dtype: DType, len: usize) -> Option<RawSlice> {
        let fits = dtype.is_coded() && len <= bytes.len() && dtype.bytes(len) == bytes.len();
        fits.then(|| RawSlice { ptr: NonNull::from(bytes).cast(), len, dtype, first: 0 })
    }

    /// The same elements, as a stretch of an array: they are asked for by their places in that.
    pub(crate) fn placed_at(self, first: usize) -> RawSlice {
        RawSlice { first, ..self }
    }

    /// The same elements, which do not follow one another: no slice of them can be taken.
    pub(crate) fn scattered(self) -> RawSlice {
        RawSlice { first: usize::MAX, ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where in memory a stretch begins, in elements.
    #[inline]
    fn at(&self, start: usize, len: usize) -> usize {
        let at = start.wrapping_sub(self.first);
        if start < self.first || at > self.len || len > self.len - at {
            Self::lacks([start, len], [self.len, self.first]);
        }
        at
    }

    /// Given numbers: what is given away by reference has to lie in memory, and is copied there for each call of `at`.
    #[cold]
    #[track_caller]
    fn lacks([start, len]: [usize; 2], [of, first]: [usize; 2]) -> ! {
        panic!("{start} + {len} of {of} from {first} on")
    }

    /// Where in memory a stretch begins, and how long it is, in bytes. Of coded elements it is one of whole blocks, but
    /// for the last of the array.
    fn in_bytes(&self, start: usize, len: usize) -> (usize, usize) {
        let at = self.at(start, len);
        let whole = at.is_multiple_of(CODED_BLOCK) && (len.is_multiple_of(CODED_BLOCK) || at + len == self.len);
        assert!(whole || !self.dtype.is_coded(), "{start} + {len} of {} in {} cuts a block", self.len, self.dtype);
        (self.dtype.bytes(at), self.dtype.bytes(len))
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where in memory a stretch lies; of coded elements, one of whole blocks.
    pub(crate) fn addresses(&self, start: usize, len: usize) -> core::ops::Range<usize> {
        let (at, bytes) = self.in_bytes(start, len);
        let begin = self.address() + at;
        begin..begin + bytes
    }

    /// Where in memory a stretch ends, or near that; to prefetch what lies after it.
    pub(crate) fn end_of(&self, start: usize, len: usize) -> usize {
        self.address() + self.dtype.bytes(start.wrapping_sub(self.first) + len)
    }

    /// Where the first element is, to compare with where others are.
    pub(crate) fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    #[inline(always)]
    fn pointer<T: Element>(&self) -> *mut T {
        assert_eq!(self.dtype, T::DTYPE, "a slice of {} is read as {}", self.dtype, T::DTYPE);
        self.ptr.as_ptr().cast()
    }

    /// The address of a stretch, after checks that the array has it, and elements of type `T`.
    #[inline(always)]
    pub(crate) fn checked<T: Element>(&self, start: usize, len: usize) -> *mut T {
        self.pointer::<T>().wrapping_add(self.at(start, len))
    }

    /// # Safety
    ///
    /// The memory is alive, and nothing writes to this range while the slice is used.
    pub(crate) unsafe fn slice<'a, T: Element>(&self, start: usize, len: usize) -> &'a [T] {
        let at = self.at(start, len);
        // SAFETY: in bounds by `at`; alive and not written to by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.pointer::<T>().add(at), len) }
    }

    /// # Safety
    ///
    /// The memory is alive and writable, and nothing else reads or writes this range while the slice is used.
    pub(crate) unsafe fn slice_mut<'a, T: Element>(&self, start: usize, len: usize) -> &'a mut [T] {
        let at = self.at(start, len);
        // SAFETY: in bounds by `at`; alive, writable and exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.pointer::<T>().add(at), len) }
    }

    /// # Safety
    ///
    /// As [`slice`](RawSlice::slice).
    pub(crate) unsafe fn bytes<'a>(&self, start: usize, len: usize) -> &'a [u8] {
        let (at, bytes) = self.in_bytes(start, len);
        // SAFETY: in bounds by `in_bytes`; alive and not written to by the caller's promise; plain numbers.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().add(at), bytes) }
    }

    /// # Safety
    ///
    /// As [`slice_mut`](RawSlice::slice_mut).
    pub(crate) unsafe fn bytes_mut<'a>(&self, start: usize, len: usize) -> &'a mut [u8] {
        let (at, bytes) = self.in_bytes(start, len);
        // SAFETY: as above, and exclusive; every pattern of bits is a number.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr().add(at), bytes) }
    }
}

/// Bytes of which each piece has some: messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBytes {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only an address; whoever turns it into a slice promises exclusive use of that range.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

impl RawBytes {
    pub(crate) fn of(bytes: &mut [u8]) -> RawBytes {
        RawBytes { len: bytes.len(), ptr: NonNull::from(bytes).cast() }
    }

    /// # Safety
    ///
    /// As [`RawSlice::slice`].
    pub(crate) unsafe fn slice<'a>(&self, at: usize, len: usize) -> &'a [u8] {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} of {}", self.len);
        // SAFETY: in bounds; alive and not written to by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().add(at), len) }
    }

    /// # Safety
    ///
    /// As [`RawSlice::slice_mut`].
    pub(crate) unsafe fn slice_mut<'a>(&self, at: usize, len: usize) -> &'a mut [u8] {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} of {}", self.len);
        // SAFETY: in bounds; alive and exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr().add(at), len) }
    }
}

/// Numbers as they lie.
pub(crate) fn bytes_of<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers, borrowed for as long as the result lives.
    unsafe { core::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Numbers as they lie, to write.
pub(crate) fn bytes_of_mut<T: Element>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and borrowed exclusively; every pattern of bits is a number.
    unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// The numbers that some bytes are, if they lie where numbers can lie.
pub(crate) fn numbers_in<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every pattern of bits is a number.
    let (_, numbers, _) = unsafe { bytes.align_to::<T>() };
    (size_of_val(numbers) == bytes.len()).then_some(numbers)
}

/// An owned array of elements whose type is known at run time: aligned to cache lines, zero at first.
///
/// Unlike a `Vec` it can be read through a pointer taken from a shared reference to the handle and written by the
/// engine that holds the state exclusively, piece by piece.
pub(crate) struct Buffer {
    data: RawSlice,
    /// Bytes between the start of the allocation and that of the data.
    shift: usize,
}

// SAFETY: owns plain numbers.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads, except through `raw`, whose users answer for themselves.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn zeros(dtype: DType, len: usize) -> Buffer {
        Self::must(dtype, len, InPage::next())
    }

    fn must(dtype: DType, len: usize, place: InPage) -> Buffer {
        Self::try_zeros(dtype, len, place)
            .unwrap_or_else(|| handle_alloc_error(Self::layout(dtype, len).unwrap_or(Layout::new::<f64>())))
    }

    /// `None` where there is not enough memory.
    pub(crate) fn try_zeros(dtype: DType, len: usize, place: InPage) -> Option<Buffer> {
        if len == 0 {
            return Some(Buffer { data: RawSlice::empty(dtype), shift: 0 });
        }
        let layout = Self::layout(dtype, len)?;
        // SAFETY: `layout` is not of size zero.
        let start = unsafe { zeroed(layout) }?;
        let is_large = layout.size() > LARGE;
        let shift = if is_large { place.0.wrapping_sub(start.addr().get()) % PAGE } else { 0 };
        // SAFETY: a shift is less than the page that `layout` has for it if the array is large.
        let ptr = unsafe { start.add(shift) };
        Some(Buffer { data: RawSlice { ptr, len, dtype, first: 0 }, shift })
    }

    /// `None` if it is larger than the address space.
    fn layout(dtype: DType, len: usize) -> Option<Layout> {
        // Scales are less than the codes that they are for.
        let size = len.checked_mul(dtype.size().max(2)).map(|_| dtype.bytes(len))?;
        let size = if size > LARGE { size.checked_add(PAGE)? } else { size };
        let align = if CAN_ASK && size >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        Layout::from_size_align(size, align).ok()
    }

    pub(crate) fn raw(&self) -> RawSlice {
        self.data
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len
    }

    pub(crate) fn dtype(&self) -> DType {
        self.data.dtype
    }

    /// The elements, if they are of type `T`.
    pub(crate) fn get<T: Element>(&self) -> Option<&[T]> {
        // SAFETY: owned memory, borrowed shared for as long as the result lives.
        (self.data.dtype == T::DTYPE).then(|| unsafe { self.data.slice(0, self.data.len) })
    }

    /// The elements, if they are of type `T`.
    pub(crate) fn get_mut<T: Element>(&mut self) -> Option<&mut [T]> {
        // SAFETY: owned memory, borrowed exclusively for as long as the result lives.
        (self.data.dtype == T::DTYPE).then(|| unsafe { self.data.slice_mut(0, self.data.len) })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: owned memory, borrowed shared; elements are plain numbers without padding.
        unsafe { self.data.bytes(0, self.data.len) }
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively; every bit pattern is a value.
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
            // SAFETY: allocated in `try_zeros` with this very layout, and the data moved on by the shift.
            unsafe { dealloc(self.data.ptr.as_ptr().sub(self.shift), layout) }
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        // Beside its siblings' copies as it is beside them.
        let place = InPage(self.data.ptr.addr().get() % PAGE);
        let mut copy = Buffer::must(self.data.dtype, self.data.len, place);
        copy.as_bytes_mut().copy_from_slice(self.as_bytes());
        copy
    }
}

impl core::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.data.dtype.is_coded() {
            return f.debug_list().entries(self.as_bytes()).finish();
        }
        with_dtype!(self.data.dtype, T => f.debug_list().entries(self.get::<T>().unwrap_or_default()).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, Buffer, InPage, LARGE, PAGE, RawSlice};
    use crate::element::DType;

    /// It is copied for each leaf in each step. A gap is copied by moves that overlap, and who reads it next waits.
    #[test]
    fn a_slice_is_whole_words_without_gaps() {
        assert_eq!(size_of::<RawSlice>(), 3 * size_of::<usize>() + size_of::<DType>());
        assert_eq!((size_of::<DType>(), size_of::<Option<RawSlice>>()), (size_of::<usize>(), size_of::<RawSlice>()));
    }

    #[test]
    fn large_arrays_begin_where_they_are_told_to() {
        let len = LARGE / 4 + 1;
        let in_page = |buffer: &Buffer| buffer.as_bytes().as_ptr().addr() % PAGE;
        for place in (0..PAGE).step_by(5 * ALIGN) {
            let mut array = Buffer::try_zeros(DType::F32, len, InPage(place)).expect("memory");
            assert_eq!(in_page(&array), place);
            let data = array.get_mut::<f32>().expect("f32");
            assert!(data.iter().all(|x| x.to_bits() == 0), "at {place}");
            (data[0], data[len - 1]) = (1.0, 2.0);
            let copy = array.clone();
            assert_eq!((in_page(&copy), copy.as_bytes()), (place, array.as_bytes()));
        }
        assert_ne!(InPage::next(), InPage::next());
    }

    #[test]
    fn arrays_of_all_sizes_about_the_limit_are_whole() {
        for len in [0, 1, 15, 16, 17, LARGE / 8 - 1, LARGE / 8, LARGE / 8 + 1] {
            let mut array = Buffer::zeros(DType::F64, len);
            array.fill(3.0);
            assert_eq!(array.clone().get::<f64>(), Some(&vec![3.0; len][..]));
        }
        assert!(Buffer::try_zeros(DType::F64, usize::MAX / 8, InPage::next()).is_none());
        assert!(Buffer::try_zeros(DType::F64, usize::MAX, InPage::next()).is_none());
    }
}
