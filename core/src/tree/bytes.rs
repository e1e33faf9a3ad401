//! Leaves as bytes of files: little-endian, row-major.

#![allow(unsafe_code, reason = "strided memory as bytes: two more readers and writers of it, next to `leaf`")]

use super::leaf::LeafParts;
use super::{Cursor, LeafMut, LeafRef, dense_strides, is_dense};

/// Bytes per chunk: few calls, and it stays in L2.
const CHUNK: usize = 1 << 18;

impl LeafParts {
    /// Returns whether memory and file agree: 8-bit elements are written in memory order.
    fn as_in_files(&self) -> bool {
        self.data.dtype().is_quantized()
            || cfg!(target_endian = "little") && is_dense(&self.shape, &self.strides, &dense_strides(&self.shape))
    }

    fn size(&self) -> usize {
        self.data.dtype().size()
    }

    /// Iterates over row-major chunks: first element and length.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (len, step) = (self.data.len(), CHUNK / self.size());
        (0..len).step_by(step).map(move |start| (start, step.min(len - start)))
    }

    fn cursor(&self, start: usize) -> Cursor {
        Cursor::new(&self.shape, &dense_strides(&self.shape), &self.strides, start)
    }
}

fn swap(bytes: &mut [u8], size: usize) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

impl LeafRef<'_> {
    #[doc(hidden)]
    pub fn read_bytes<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (parts, size) = (&self.parts, self.parts.size());
        if parts.as_in_files() {
            // SAFETY: borrowed while `self` is, and dense.
            return parts.chunks().try_for_each(|(start, len)| take(unsafe { parts.data.bytes(start, len) }));
        }
        let (view, mut ordered) = (parts.view(), Vec::with_capacity(CHUNK));
        parts.chunks().try_for_each(|(start, len)| {
            ordered.clear();
            for run in parts.cursor(start).take(len) {
                // SAFETY: borrowed while `self` is, and the cursor stays inside the shape.
                unsafe { view.read_bytes(run, &mut ordered) };
            }
            swap(&mut ordered, size);
            take(&ordered)
        })
    }

    #[doc(hidden)]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.dtype().bytes(self.parts.data.len()));
        let Ok(()) = self.read_bytes(|chunk| -> Result<(), core::convert::Infallible> {
            all.extend_from_slice(chunk);
            Ok(())
        });
        all
    }
}

impl LeafMut<'_> {
    /// Fills the bytes in order, in chunks. On an error, the chunks before it are already replaced.
    #[doc(hidden)]
    pub fn write_bytes<E>(&mut self, mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let (parts, size) = (&self.parts, self.parts.size());
        if parts.as_in_files() {
            // SAFETY: borrowed exclusively while `self` is, and dense.
            return parts.chunks().try_for_each(|(start, len)| fill(unsafe { parts.data.bytes_mut(start, len) }));
        }
        let (view, mut ordered) = (parts.view(), vec![0; CHUNK]);
        parts.chunks().try_for_each(|(start, len)| {
            let ordered = &mut ordered[..len * size];
            fill(ordered)?;
            swap(ordered, size);
            let mut elements = ordered.chunks_exact(size);
            for run in parts.cursor(start).take(len) {
                // SAFETY: borrowed exclusively while `self` is, and the cursor stays inside the shape.
                unsafe { view.write_bytes(run, &mut elements) };
            }
            Ok(())
        })
    }

    /// Copies the elements of a leaf of the same shape, in any memory order.
    ///
    /// Elements of another type are rounded, and so are 8-bit elements that move to other blocks.
    #[doc(hidden)]
    pub fn copy_from(&mut self, from: &LeafRef<'_>) {
        debug_assert!(self.shape() == from.shape(), "checked by the caller");
        let moved = self.dtype().is_quantized() && self.parts.strides_unless(&from.parts.strides).is_some();
        if self.dtype() != from.dtype() || moved {
            return self.assign_f64(&from.to_f64());
        }
        self.take_bytes(&from.to_bytes());
    }

    #[doc(hidden)]
    pub fn take_bytes(&mut self, mut rest: &[u8]) {
        let Ok(()) = self.write_bytes(|chunk| -> Result<(), core::convert::Infallible> {
            let (now, later) = rest.split_at(chunk.len());
            chunk.copy_from_slice(now);
            rest = later;
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Array3, ShapeBuilder, s};

    use super::*;

    #[test]
    fn bytes_do_not_depend_on_the_memory_order() {
        let value = |(i, j, k): (usize, usize, usize)| (100 * i + 10 * j + k) as f32;
        let (c, f) = (Array3::from_shape_fn((2, 3, 4), value), Array3::from_shape_fn((2, 3, 4).f(), value));
        let bytes = |leaf: LeafRef<'_>| leaf.to_bytes();
        let expected = bytes(LeafRef::from_array(&c).unwrap());
        assert_eq!(bytes(LeafRef::from_array(&f).unwrap()), expected);

        // Backwards and with gaps.
        let mut wide = Array3::<f32>::zeros((2, 6, 4));
        let mut view = wide.slice_mut(s![.., ..;-2, ..;-1]);
        LeafMut::from_array(&mut view).unwrap().copy_from(&LeafRef::from_array(&c).unwrap());
        assert_eq!(bytes(LeafRef::from_array(&view).unwrap()), expected);
    }

    #[test]
    fn a_leaf_of_many_chunks_comes_in_order() {
        let n = CHUNK / 8 * 2 + 12_345;
        let long = Array2::from_shape_fn((n / 5, 5).f(), |(i, j)| (i * 5 + j) as f64);
        let bytes = LeafRef::from_array(&long).unwrap().to_bytes();
        assert!(bytes.chunks_exact(8).enumerate().all(|(i, b)| b == (i as f64).to_le_bytes()));
    }
}
