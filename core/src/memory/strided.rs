use super::RawSlice;
use crate::element::Element;
use crate::layout::{Extent, Run};

/// A strided array: its first element in logical order, and its range of offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStrided {
    first: RawSlice,
    extent: Extent,
}

impl RawStrided {
    pub(crate) fn new(first: RawSlice, extent: Extent) -> RawStrided {
        RawStrided { first, extent }
    }

    /// Returns the address of a run's first element.
    ///
    /// # Panics
    ///
    /// If the run leaves the array.
    #[inline]
    fn start(self, run: Run) -> *mut u8 {
        if !self.extent.has(run) {
            Self::out_of_bounds(run, self.extent);
        }
        // An empty run may have any offset.
        self.first.ptr.as_ptr().wrapping_offset(run.offset.wrapping_mul(self.first.dtype.size() as isize))
    }

    #[cold]
    #[track_caller]
    fn out_of_bounds(run: Run, extent: Extent) -> ! {
        panic!("{run:?} leaves an array of {extent:?}")
    }

    /// As [`start`](Self::start), for elements of type `T`.
    ///
    /// # Panics
    ///
    /// If the run leaves the array, or the elements have another dtype.
    #[inline]
    pub(crate) fn pointer<T: Element>(self, run: Run) -> *mut T {
        assert_eq!(self.first.dtype, T::DTYPE, "an array of {} is read as {}", self.first.dtype, T::DTYPE);
        self.start(run).cast()
    }

    /// Reads the elements of a run.
    ///
    /// # Safety
    ///
    /// The memory is alive, and nothing writes to the run during the call.
    #[inline]
    pub(crate) unsafe fn read<T: Element>(self, run: Run, mut each: impl FnMut(T)) {
        let start = self.pointer::<T>(run);
        for i in 0..run.len as isize {
            // SAFETY: `pointer` checked bounds and dtype; the caller guarantees live memory without writes.
            each(unsafe { *start.offset(i * run.stride) });
        }
    }

    /// Overwrites the elements of a run.
    ///
    /// # Safety
    ///
    /// The memory is alive and writable, and nothing else reads or writes the run during the call.
    #[inline]
    pub(crate) unsafe fn write<T: Element>(self, run: Run, mut next: impl FnMut() -> T) {
        // SAFETY: as the caller guarantees.
        unsafe { self.update(run, |_| next()) }
    }

    /// Replaces each element of a run by a function of it.
    ///
    /// # Safety
    ///
    /// As [`write`](RawStrided::write).
    #[inline]
    pub(crate) unsafe fn update<T: Element>(self, run: Run, mut next: impl FnMut(T) -> T) {
        let start = self.pointer::<T>(run);
        for i in 0..run.len as isize {
            // SAFETY: `pointer` checked bounds and dtype; the caller guarantees live memory and exclusive use.
            unsafe {
                let element = start.offset(i * run.stride);
                *element = next(*element);
            }
        }
    }

    /// Appends the bytes of a run's elements.
    ///
    /// # Safety
    ///
    /// As [`read`](RawStrided::read).
    pub(crate) unsafe fn read_bytes(self, run: Run, out: &mut Vec<u8>) {
        let (size, start) = (self.first.dtype.size(), self.start(run).cast_const());
        for i in 0..run.len as isize {
            // SAFETY: `start` checked the bounds; the caller guarantees live memory without writes.
            let element = unsafe { start.offset(i * run.stride * size as isize) };
            // SAFETY: an element has `size` bytes.
            out.extend_from_slice(unsafe { core::slice::from_raw_parts(element, size) });
        }
    }

    /// Overwrites a run, until `elements` ends.
    ///
    /// # Safety
    ///
    /// As [`write`](RawStrided::write).
    pub(crate) unsafe fn write_bytes<'b>(self, run: Run, elements: &mut impl Iterator<Item = &'b [u8]>) {
        let (size, start) = (self.first.dtype.size(), self.start(run));
        for (i, element) in (0..run.len as isize).zip(elements) {
            debug_assert_eq!(element.len(), size, "one element");
            // SAFETY: `start` checked the bounds; the caller guarantees live memory and exclusive use.
            let place = unsafe { start.offset(i * run.stride * size as isize) };
            // SAFETY: an element has `size` bytes, and the caller has exclusive use of them; `element` is borrowed and
            // so does not overlap.
            unsafe { core::ptr::copy_nonoverlapping(element.as_ptr(), place, size.min(element.len())) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, RawSlice, RawStrided, Run};
    use core::ptr::NonNull;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn view(numbers: &mut [f32], first: usize, shape: &[usize], strides: &[isize]) -> RawStrided {
        let first = NonNull::from(&mut numbers[first]);
        RawStrided::new(RawSlice::new(first, shape.iter().product()).scattered(), Extent::of(shape, strides))
    }

    #[test]
    fn every_second_element_backwards_is_read_and_written() {
        let mut numbers: Vec<f32> = (0_u8..6).map(f32::from).collect();
        let view = view(&mut numbers, 4, &[3], &[-2]);
        let (run, mut seen) = (Run { offset: 0, stride: -2, len: 3 }, Vec::new());
        #[allow(unsafe_code, reason = "the memory is this function's")]
        // SAFETY: the numbers are alive, and this is the only view of them.
        unsafe {
            view.update::<f32>(run, |x| 10.0 * x);
            view.read::<f32>(run, |x| seen.push(x));
        }
        assert_eq!((seen, numbers), (vec![40.0, 20.0, 0.0], vec![0.0, 1.0, 20.0, 3.0, 40.0, 5.0]));
    }

    /// A run of the wrong leaf panics, and touches nothing outside the array.
    #[test]
    fn a_run_that_leaves_the_array_is_a_panic() {
        let mut numbers = [0.0_f32; 7];
        let view = view(&mut numbers, 3, &[2, 2], &[-3, 2]);
        let runs = [
            Run { offset: 0, stride: 2, len: 3 },
            Run { offset: 0, stride: -3, len: 3 },
            Run { offset: 3, stride: 1, len: 1 },
            Run { offset: -4, stride: 1, len: 1 },
            Run { offset: 0, stride: 1_000_000, len: 22 },
            Run { offset: isize::MIN, stride: -1, len: usize::MAX },
        ];
        let mut bytes = Vec::new();
        for run in runs {
            #[allow(unsafe_code, reason = "the memory is this function's")]
            // SAFETY: the numbers are alive, and this is the only view of them.
            let mut ways: [Box<dyn FnMut() + '_>; 4] = unsafe {
                [
                    Box::new(|| view.read::<f32>(run, |_| {})),
                    Box::new(|| view.write::<f32>(run, || 1.0)),
                    Box::new(|| view.read_bytes(run, &mut bytes)),
                    Box::new(|| view.write_bytes(run, &mut core::iter::repeat(&[0_u8; 4][..]))),
                ]
            };
            for way in &mut ways {
                assert!(catch_unwind(AssertUnwindSafe(way)).is_err(), "{run:?}");
            }
        }
        assert_eq!((numbers, bytes.len()), ([0.0; 7], 0));
    }

    #[test]
    fn no_slice_is_taken_of_scattered_elements() {
        let mut numbers = [0.0_f32; 4];
        let scattered = RawSlice::new(NonNull::from(&mut numbers[0]), 4).scattered();
        for (start, len) in [(0, 1), (0, 0), (4, 0), (usize::MAX, 0)] {
            #[allow(unsafe_code, reason = "the memory is this function's")]
            // SAFETY: the numbers are alive, and nothing writes to them.
            let slice = || unsafe { scattered.slice::<f32>(start, len) }.len();
            assert_eq!(catch_unwind(slice).ok(), (start == usize::MAX).then_some(0), "{start} + {len}");
        }
    }
}
