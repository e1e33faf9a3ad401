//! Raw views of leaves and state arrays: the only module that turns pointers into slices.
//!
//! One step touches the parameters, the gradients and every state array in pieces, possibly on several threads, and
//! holds on to the tables between steps so that nothing is allocated. Neither can be said with references, so the tables
//! hold pointers. What keeps this sound is stated once, here:
//!
//! * A [`RawSlice`] made from a reference is used only while that borrow lasts: the engine makes them at the start of a
//!   step, from the `&mut` and `&` it was given, and clears them before it returns.
//! * No two threads are ever given overlapping pieces of the same slice: pieces are cut once, in `engine::pieces`, and
//!   each belongs to one task.
#![allow(unsafe_code, reason = "pieces of many arrays on many threads, without allocation: see the module's head")]

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crate::element::{DType, Element, with_dtype};
use crate::tree::Run;

/// A cache line, and the widest vector register.
const ALIGN: usize = 64;

/// A pointer to `len` elements of type `dtype`.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct RawSlice {
    ptr: NonNull<u8>,
    len: usize,
    dtype: DType,
}

// SAFETY: it is only an address; whoever turns it into a slice promises exclusive use of that range.
unsafe impl Send for RawSlice {}
// SAFETY: as above.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    pub(crate) fn new<T: Element>(ptr: NonNull<T>, len: usize) -> RawSlice {
        RawSlice { ptr: ptr.cast(), len, dtype: T::DTYPE }
    }

    /// Where a value's elements would be if there were any; for leaves that are absent.
    pub(crate) fn empty(dtype: DType) -> RawSlice {
        with_dtype!(dtype, T => RawSlice::new(NonNull::<T>::dangling(), 0))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn pointer<T: Element>(&self) -> *mut T {
        assert_eq!(self.dtype, T::DTYPE, "a slice of {} is read as {}", self.dtype, T::DTYPE);
        self.ptr.as_ptr().cast()
    }

    /// # Safety
    ///
    /// The memory is alive, and nothing writes to this range while the slice is used.
    pub(crate) unsafe fn slice<'a, T: Element>(self, start: usize, len: usize) -> &'a [T] {
        assert!(start + len <= self.len, "{start} + {len} of {}", self.len);
        // SAFETY: in bounds by the assertion; alive and not written to by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.pointer::<T>().add(start), len) }
    }

    /// # Safety
    ///
    /// The memory is alive and writable, and nothing else reads or writes this range while the slice is used.
    pub(crate) unsafe fn slice_mut<'a, T: Element>(self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start + len <= self.len, "{start} + {len} of {}", self.len);
        // SAFETY: in bounds by the assertion; alive, writable and exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.pointer::<T>().add(start), len) }
    }

    /// # Safety
    ///
    /// As [`slice`](RawSlice::slice).
    pub(crate) unsafe fn bytes<'a>(self, start: usize, len: usize) -> &'a [u8] {
        assert!(start + len <= self.len, "{start} + {len} of {}", self.len);
        let size = self.dtype.size();
        // SAFETY: in bounds by the assertion; alive and not written to by the caller's promise; plain numbers.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr().add(start * size), len * size) }
    }

    /// # Safety
    ///
    /// As [`slice_mut`](RawSlice::slice_mut).
    pub(crate) unsafe fn bytes_mut<'a>(self, start: usize, len: usize) -> &'a mut [u8] {
        assert!(start + len <= self.len, "{start} + {len} of {}", self.len);
        let size = self.dtype.size();
        // SAFETY: as above, and exclusive; every pattern of bits is a number.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr().add(start * size), len * size) }
    }
}

/// An owned array of elements whose type is known at run time: aligned to cache lines, zero at first.
///
/// Unlike a `Vec` it can be read through a pointer taken from a shared reference to the handle and written by the engine
/// that holds the state exclusively, piece by piece.
pub(crate) struct Buffer(RawSlice);

// SAFETY: owns plain numbers.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads, except through `raw`, whose users answer for themselves.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn zeros(dtype: DType, len: usize) -> Buffer {
        Self::try_zeros(dtype, len)
            .unwrap_or_else(|| handle_alloc_error(Self::layout(dtype, len).unwrap_or(Layout::new::<f64>())))
    }

    /// `None` where there is not enough memory.
    pub(crate) fn try_zeros(dtype: DType, len: usize) -> Option<Buffer> {
        if len == 0 {
            return Some(Buffer(RawSlice::empty(dtype)));
        }
        let layout = Self::layout(dtype, len)?;
        // SAFETY: `layout` is not of size zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer(RawSlice { ptr, len, dtype }))
    }

    /// `None` if it is larger than the address space.
    fn layout(dtype: DType, len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_mul(dtype.size())?, ALIGN).ok()
    }

    pub(crate) fn raw(&self) -> RawSlice {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    pub(crate) fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The elements, if they are of type `T`.
    pub(crate) fn get<T: Element>(&self) -> Option<&[T]> {
        // SAFETY: owned memory, borrowed shared for as long as the result lives.
        (self.0.dtype == T::DTYPE).then(|| unsafe { self.0.slice(0, self.0.len) })
    }

    /// The elements, if they are of type `T`.
    pub(crate) fn get_mut<T: Element>(&mut self) -> Option<&mut [T]> {
        // SAFETY: owned memory, borrowed exclusively for as long as the result lives.
        (self.0.dtype == T::DTYPE).then(|| unsafe { self.0.slice_mut(0, self.0.len) })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: elements are plain numbers without padding.
        unsafe { core::slice::from_raw_parts(self.0.ptr.as_ptr(), self.0.len * self.0.dtype.size()) }
    }

    pub(crate) fn fill(&mut self, value: f64) {
        with_dtype!(self.0.dtype, T => {
            if let Some(data) = self.get_mut::<T>() {
                data.fill(T::from_f64(value));
            }
        });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.0.dtype, self.0.len).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated in `try_zeros` with this very layout.
            unsafe { dealloc(self.0.ptr.as_ptr(), layout) }
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut copy = Buffer::zeros(self.0.dtype, self.0.len);
        with_dtype!(self.0.dtype, T => {
            if let (Some(to), Some(from)) = (copy.get_mut::<T>(), self.get::<T>()) {
                to.copy_from_slice(from);
            }
        });
        copy
    }
}

impl core::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        with_dtype!(self.0.dtype, T => f.debug_list().entries(self.get::<T>().unwrap_or_default()).finish())
    }
}

/// A strided array, by its first element in logical order: runs say how to get to the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStrided {
    pub(crate) first: RawSlice,
}

impl RawStrided {
    /// Shows the elements of one run.
    ///
    /// # Safety
    ///
    /// The memory is alive and not written to meanwhile, and the run lies inside the array.
    #[inline]
    pub(crate) unsafe fn read<T: Element>(self, run: Run, mut each: impl FnMut(T)) {
        let start = self.first.pointer::<T>();
        for i in 0..run.len as isize {
            // SAFETY: inside the array by the caller's promise.
            each(unsafe { *start.offset(run.offset + i * run.stride) });
        }
    }

    /// Overwrites the elements of one run.
    ///
    /// # Safety
    ///
    /// The memory is alive and exclusively the caller's, and the run lies inside the array.
    #[inline]
    pub(crate) unsafe fn write<T: Element>(self, run: Run, mut next: impl FnMut() -> T) {
        let start = self.first.pointer::<T>();
        for i in 0..run.len as isize {
            // SAFETY: inside the array by the caller's promise.
            unsafe { *start.offset(run.offset + i * run.stride) = next() };
        }
    }

    /// Appends the bytes of the elements of one run.
    ///
    /// # Safety
    ///
    /// As [`read`](RawStrided::read).
    pub(crate) unsafe fn read_bytes(self, run: Run, out: &mut Vec<u8>) {
        let size = self.first.dtype.size();
        let start = self.first.ptr.as_ptr().cast_const();
        for i in 0..run.len as isize {
            // SAFETY: inside the array by the caller's promise.
            let element = unsafe { start.offset((run.offset + i * run.stride) * size as isize) };
            // SAFETY: an element is `size` bytes.
            out.extend_from_slice(unsafe { core::slice::from_raw_parts(element, size) });
        }
    }

    /// Overwrites the elements of one run, while there are elements to write.
    ///
    /// # Safety
    ///
    /// As [`write`](RawStrided::write).
    pub(crate) unsafe fn write_bytes<'b>(self, run: Run, elements: &mut impl Iterator<Item = &'b [u8]>) {
        let size = self.first.dtype.size();
        let start = self.first.ptr.as_ptr();
        for (i, element) in (0..run.len as isize).zip(elements) {
            debug_assert_eq!(element.len(), size, "one element");
            // SAFETY: inside the array by the caller's promise.
            let place = unsafe { start.offset((run.offset + i * run.stride) * size as isize) };
            // SAFETY: an element is `size` bytes, exclusively the caller's, while `element` is somebody else's.
            unsafe { core::ptr::copy_nonoverlapping(element.as_ptr(), place, size.min(element.len())) };
        }
    }
}
