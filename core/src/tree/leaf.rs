//! One leaf of a tree.

use core::marker::PhantomData;
use core::ptr::NonNull;

use ndarray::{ArrayBase, Data, DataMut, Dimension, RawData};

use super::ArrayElement;
use crate::element::{DType, Element, QUANTIZED_BLOCK, Real, with_dtype};
use crate::error::{Error, Result};
use crate::layout::{Cursor, Extent, Shape, Strided, Strides, axes, dense_strides, is_dense};
#[cfg(feature = "serde")]
use crate::layout::{elements, matching_strides};
#[cfg(feature = "checkpoint")]
use crate::memory::Buffer;
use crate::memory::{RawSlice, RawStrided};
use crate::numeric::convert::{load, store};
use crate::numeric::simd::current_simd_level;

/// The common part of both kinds of leaf.
#[derive(Clone, Debug)]
pub(crate) struct LeafParts {
    /// The first element in logical order, with the number of elements.
    pub(crate) data: RawSlice,
    pub(crate) shape: Shape,
    pub(crate) strides: Strides,
}

impl LeafParts {
    // Inlined, like all constructors of leaves: to return a leaf by copy costs a tenth of the time of a step on a small
    // leaf.
    #[inline(always)]
    pub(crate) fn new(data: RawSlice, shape: &[usize], strides: &[isize]) -> LeafParts {
        LeafParts { data, shape: axes(shape), strides: axes(strides) }
    }

    /// Returns all elements of `data`, each once.
    #[cfg(feature = "checkpoint")]
    fn filling(data: RawSlice, shape: &[usize], strides: &[isize]) -> LeafParts {
        assert_eq!((elements(shape), strides.len()), (Some(data.len()), shape.len()), "a buffer for the shape");
        assert!(is_dense(shape, strides, &matching_strides(shape, strides)), "strides reach each element once");
        LeafParts::new(data, shape, strides)
    }

    /// Returns a leaf over a slice, as one axis.
    #[inline(always)]
    fn axis<T: Element>(ptr: NonNull<T>, len: usize) -> LeafParts {
        LeafParts::new(RawSlice::new(ptr, len), &[len], &[1])
    }

    #[inline(always)]
    fn dense<T: Element>(ptr: NonNull<T>, len: usize, shape: &[usize]) -> Result<LeafParts> {
        // The most common shape: models create many such leaves in each step.
        if *shape == [len] {
            return Ok(LeafParts::axis(ptr, len));
        }
        LeafParts::check(len, shape)?;
        Ok(LeafParts { data: RawSlice::new(ptr, len), shape: axes(shape), strides: dense_strides(shape) })
    }

    fn check(len: usize, shape: &[usize]) -> Result<()> {
        // The product skips zero lengths, so that no later product of some lengths overflows.
        let scratch = shape.iter().filter(|n| **n > 0).try_fold(1_usize, |scratch, n| scratch.checked_mul(*n));
        let Some(scratch) = scratch.filter(|scratch| isize::try_from(*scratch).is_ok()) else {
            let found = format!("the shape {shape:?}");
            return Err(Error::argument("leaf", "shape", "within the address space", found));
        };
        let expected = if shape.contains(&0) { 0 } else { scratch };
        if expected != len {
            let found = format!("a slice of {len} for the shape {shape:?}");
            return Err(Error::argument("leaf", "data", &format!("as long as its shape says ({expected})"), found));
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn array<A: ArrayElement>(
        ptr: *const A,
        len: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Option<LeafParts> {
        Some(LeafParts::new(A::raw(NonNull::new(ptr.cast_mut())?, len)?, shape, strides))
    }

    /// Returns the strides; `None` if the leaf is contiguous in the order of the strides `dense`.
    pub(crate) fn strides_unless(&self, dense: &[isize]) -> Option<Strided> {
        let strided = || Strided { strides: self.strides.clone(), extent: self.extent() };
        (!is_dense(&self.shape, &self.strides, dense)).then(strided)
    }

    fn extent(&self) -> Extent {
        Extent::of(&self.shape, &self.strides)
    }

    pub(crate) fn view(&self) -> RawStrided {
        RawStrided::new(self.data, self.extent())
    }

    fn to_f64(&self) -> Vec<f64> {
        if self.data.dtype().is_quantized() {
            return self.over(&mut self.decoded()).to_f64();
        }
        let mut out = Vec::with_capacity(self.data.len());
        let order = dense_strides(&self.shape);
        let view = self.view();
        with_dtype!(self.data.dtype(), T => {
            Cursor::new(&self.shape, &order, &self.strides, 0).take(self.data.len()).for_each(|run| {
                // SAFETY: the leaf's borrow is alive, and the cursor stays inside the leaf's shape.
                #[allow(unsafe_code, reason = "one of the two readers of strided memory; the other is the engine")]
                unsafe { view.read::<T>(run, |x| out.push(x.as_f64())) }
            });
        });
        out
    }
}

impl LeafParts {
    pub(crate) fn decoded(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.data.len()];
        // SAFETY: the leaf's borrow is alive.
        #[allow(unsafe_code, reason = "whole arrays of quantized blocks")]
        unsafe {
            load(current_simd_level(), self.data, 0, &mut numbers);
        }
        numbers
    }

    /// Encodes numbers in memory order, in a leaf borrowed exclusively.
    pub(crate) fn encode(&mut self, numbers: &[f32]) {
        // SAFETY: the leaf is borrowed exclusively.
        #[allow(unsafe_code, reason = "whole arrays of quantized blocks")]
        unsafe {
            store(current_simd_level(), self.data, 0, numbers);
        }
    }

    /// Rewrites contiguous elements by a function, in chunks, in a leaf borrowed exclusively.
    pub(crate) fn rewrite<C: Real>(&mut self, f: &mut dyn FnMut(usize, &mut [C])) {
        // Whole blocks of 8-bit elements.
        const SLICE_LEN: usize = 4 * QUANTIZED_BLOCK;
        let mut scratch = [C::zero(); SLICE_LEN];
        for start in (0..self.data.len()).step_by(SLICE_LEN) {
            let numbers = &mut scratch[..SLICE_LEN.min(self.data.len() - start)];
            // SAFETY: the leaf is borrowed exclusively, and the chunk ends within it.
            #[allow(unsafe_code, reason = "as above")]
            unsafe {
                load(current_simd_level(), self.data, start, numbers);
            }
            f(start, numbers);
            // SAFETY: as above.
            #[allow(unsafe_code, reason = "as above")]
            unsafe {
                store(current_simd_level(), self.data, start, numbers);
            }
        }
    }

    /// Returns this layout over `numbers`.
    pub(crate) fn over(&self, numbers: &mut [f32]) -> LeafParts {
        LeafParts { data: RawSlice::new(NonNull::from(&mut *numbers).cast::<f32>(), numbers.len()), ..self.clone() }
    }
}

/// The whole array of a chunk, in memory order.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PartOf {
    #[doc(hidden)]
    pub begins: usize,
    /// Its shape.
    #[doc(hidden)]
    pub shape: Vec<usize>,
    /// Its strides.
    #[doc(hidden)]
    pub strides: Vec<isize>,
}

/// A leaf for reading: a float array of any layout, borrowed.
#[derive(Clone, Debug)]
pub struct LeafRef<'a> {
    pub(crate) parts: LeafParts,
    /// The rows of a row-sparse gradient.
    pub(crate) rows: Option<&'a [usize]>,
    /// The whole array, if this is a chunk of sharded state.
    #[doc(hidden)]
    pub part: Option<Box<PartOf>>,
    borrow: PhantomData<&'a [u8]>,
}

impl<'a> LeafRef<'a> {
    /// Returns a leaf over a slice in row-major order.
    ///
    /// # Errors
    ///
    /// Fails if the slice is not as long as the product of the shape, or the lengths of its axes without the zeros
    /// multiply to more than memory can hold.
    #[inline(always)]
    pub fn from_slice<T: Element>(data: &'a [T], shape: &[usize]) -> Result<LeafRef<'a>> {
        LeafParts::dense(NonNull::from(data).cast::<T>(), data.len(), shape).map(LeafRef::lend)
    }

    /// Returns a leaf over a slice of the length of shape and strides; `None` if its elements are not floats.
    #[inline(always)]
    pub(super) fn over<A: ArrayElement>(data: &'a [A], shape: &[usize], strides: &[isize]) -> Option<LeafRef<'a>> {
        LeafParts::array(data.as_ptr(), data.len(), shape, strides).map(LeafRef::lend)
    }

    /// Returns the elements of a buffer as a leaf.
    ///
    /// # Panics
    ///
    /// If the strides do not reach each element once.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn of_buffer(buffer: &'a Buffer, shape: &[usize], strides: &[isize]) -> LeafRef<'a> {
        LeafRef::lend(LeafParts::filling(buffer.raw(), shape, strides))
    }

    /// Returns a leaf over memory borrowed for `'a`: the caller has such a reference to its owner.
    #[inline(always)]
    pub(crate) fn lend(parts: LeafParts) -> LeafRef<'a> {
        LeafRef { parts, rows: None, part: None, borrow: PhantomData }
    }

    /// Returns a leaf of 8-bit elements; `None` if the bytes do not match their number.
    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn quantized(bytes: &'a [u8], dtype: DType, shape: &[usize], strides: &[isize]) -> Option<LeafRef<'a>> {
        let len = elements(shape).filter(|_| strides.len() == shape.len())?;
        let data = RawSlice::quantized(bytes, dtype, len)?;
        is_dense(shape, strides, &matching_strides(shape, strides))
            .then(|| LeafRef::lend(LeafParts::new(data, shape, strides)))
    }

    pub(crate) fn of_part(self, part: Option<Box<PartOf>>) -> LeafRef<'a> {
        LeafRef { part, ..self }
    }

    /// Returns a leaf over an array of any layout; `None` if its elements are not floats.
    #[inline(always)]
    pub fn from_array<A: ArrayElement, S: Data<Elem = A>, D: Dimension>(
        array: &'a ArrayBase<S, D>,
    ) -> Option<LeafRef<'a>> {
        LeafParts::array(array.as_ptr(), array.len(), array.shape(), array.strides()).map(LeafRef::lend)
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.parts.data.dtype()
    }

    /// Returns the axis lengths.
    pub fn shape(&self) -> &[usize] {
        &self.parts.shape
    }

    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn strides(&self) -> &[isize] {
        &self.parts.strides
    }

    /// Returns the elements in logical (row-major) order, in `f64`, which represents each exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        self.parts.to_f64()
    }

    /// Returns the elements, if they are of type `T` and contiguous in row-major order.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        let parts = &self.parts;
        let dense = is_dense(&parts.shape, &parts.strides, &dense_strides(&parts.shape));
        // SAFETY: `borrow` says that the elements are borrowed for `'a`, and they are dense.
        #[allow(unsafe_code, reason = "back to the slice that the leaf was made from")]
        (dense && self.dtype() == T::DTYPE).then(|| unsafe { parts.data.slice(0, parts.data.len()) })
    }
}

/// A leaf for writing: a float array of any layout, borrowed exclusively.
#[derive(Debug)]
pub struct LeafMut<'a> {
    pub(crate) parts: LeafParts,
    /// The whole array, if this is a chunk of sharded state.
    #[doc(hidden)]
    pub part: Option<Box<PartOf>>,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> LeafMut<'a> {
    /// Returns a leaf over a slice in row-major order.
    ///
    /// # Errors
    ///
    /// Fails if the slice is not as long as the product of the shape, or the lengths of its axes without the zeros
    /// multiply to more than memory can hold.
    #[inline(always)]
    pub fn from_slice<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<LeafMut<'a>> {
        let len = data.len();
        let parts = LeafParts::dense(NonNull::from(data).cast::<T>(), len, shape)?;
        Ok(LeafMut { parts, part: None, borrow: PhantomData })
    }

    /// As [`LeafRef::over`].
    #[inline(always)]
    pub(super) fn over<A: ArrayElement>(data: &'a mut [A], shape: &[usize], strides: &[isize]) -> Option<LeafMut<'a>> {
        LeafParts::array(data.as_mut_ptr().cast_const(), data.len(), shape, strides).map(LeafMut::lend)
    }

    /// As [`LeafRef::of_buffer`], to write.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub fn of_buffer(buffer: &'a mut Buffer, shape: &[usize], strides: &[isize]) -> LeafMut<'a> {
        LeafMut::lend(LeafParts::filling(buffer.raw(), shape, strides))
    }

    /// Returns the leaf, to read.
    #[doc(hidden)]
    pub fn shared(&self) -> LeafRef<'_> {
        LeafRef::lend(self.parts.clone())
    }

    /// Returns a leaf over memory borrowed exclusively for `'a`: the caller has such a reference to its owner.
    #[inline(always)]
    pub(crate) fn lend(parts: LeafParts) -> LeafMut<'a> {
        LeafMut { parts, part: None, borrow: PhantomData }
    }

    pub(crate) fn of_part(self, part: Option<Box<PartOf>>) -> LeafMut<'a> {
        LeafMut { part, ..self }
    }

    /// Returns a leaf over an array of any layout; `None` if its elements are not floats.
    ///
    /// A shared array (`ArcArray`, `CowArray`) is made unique first.
    #[inline(always)]
    pub fn from_array<A, S, D>(array: &'a mut ArrayBase<S, D>) -> Option<LeafMut<'a>>
    where
        A: ArrayElement,
        S: RawData<Elem = A> + DataMut,
        D: Dimension,
    {
        let ptr = array.as_mut_ptr();
        let parts = LeafParts::array(ptr.cast_const(), array.len(), array.shape(), array.strides())?;
        Some(LeafMut { parts, part: None, borrow: PhantomData })
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.parts.data.dtype()
    }

    /// Returns the axis lengths.
    pub fn shape(&self) -> &[usize] {
        &self.parts.shape
    }

    /// Returns the elements in logical (row-major) order, in `f64`, which represents each exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        self.parts.to_f64()
    }

    /// Returns the elements, if they are of type `T` and contiguous in row-major order.
    pub fn into_slice<T: Element>(self) -> Option<&'a mut [T]> {
        let parts = &self.parts;
        let dense = is_dense(&parts.shape, &parts.strides, &dense_strides(&parts.shape));
        // SAFETY: `borrow` says that the elements are borrowed exclusively for `'a`, and they are dense.
        #[allow(unsafe_code, reason = "back to the slice that the leaf was made from")]
        (dense && self.dtype() == T::DTYPE).then(|| unsafe { parts.data.slice_mut(0, parts.data.len()) })
    }

    /// Overwrites the elements, given in logical (row-major) order, each rounded to this leaf's type.
    ///
    /// # Panics
    ///
    /// Panics unless there are exactly as many values as elements.
    pub fn assign_f64(&mut self, values: &[f64]) {
        let parts = &self.parts;
        assert_eq!(values.len(), parts.data.len(), "one value for each element");
        if parts.data.dtype().is_quantized() {
            let mut numbers = vec![0.0; values.len()];
            LeafMut::lend(parts.over(&mut numbers)).assign_f64(values);
            return self.parts.encode(&numbers);
        }
        let order = dense_strides(&parts.shape);
        let view = parts.view();
        let mut values = values.iter();
        with_dtype!(parts.data.dtype(), T => {
            Cursor::new(&parts.shape, &order, &parts.strides, 0).take(parts.data.len()).for_each(|run| {
                // SAFETY: the leaf is borrowed exclusively, and the cursor stays inside the leaf's shape.
                #[allow(unsafe_code, reason = "the one writer of strided memory besides the engine")]
                unsafe { view.write::<T>(run, || T::from_f64(values.next().copied().unwrap_or_default())) }
            });
        });
    }
}
