//! Values hidden from LLVM.

use crate::element::Real;

/// Hides an index. Otherwise the scalar loop after the last block becomes another blocked loop, larger than the main
/// loop.
#[inline(always)]
pub(crate) fn hidden(i: usize) -> usize {
    core::hint::black_box(i)
}

/// Keeps LLVM from turning a select and a store into a masked store, by OR-ing in an opaque zero.
///
/// A masked store is about ten times slower on AMD with AVX2.
#[derive(Clone, Copy)]
pub struct Always<C>(C);

impl<C: Real> Always<C> {
    #[inline(always)]
    #[doc(hidden)]
    pub fn new() -> Always<C> {
        Always(core::hint::black_box(C::zero()))
    }

    /// Returns `x` unchanged.
    #[inline(always)]
    #[doc(hidden)]
    pub fn store(self, x: C) -> C {
        x.masked(C::all_bits_set(), self.0)
    }
}
