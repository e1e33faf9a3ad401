//! What the compiler of a loop must not know.

use crate::element::Real;

/// Hides from the compiler which element comes next. What is left after the last block is done one element after the
/// other: it would make a loop for blocks of it again, which is more code than the loop itself.
#[inline(always)]
pub(crate) fn hidden(i: usize) -> usize {
    core::hint::black_box(i)
}

/// What is there or another number, to be stored where it is: the compiler makes a store of it that is done for some
/// numbers of a register only, which takes ten times as long with AVX2 on processors by AMD. So bits are set in it, of
/// which the compiler does not know that they are none.
#[derive(Clone, Copy)]
pub(crate) struct Always<C>(C);

impl<C: Real> Always<C> {
    /// Before a loop.
    #[inline(always)]
    pub(crate) fn new() -> Always<C> {
        Always(core::hint::black_box(C::zero()))
    }

    /// The same number: what is there or what is stored.
    #[inline(always)]
    pub(crate) fn store(self, x: C) -> C {
        x.masked(C::of_all_bits(), self.0)
    }
}
