//! What the loops of [`kernel`](super::kernel) are given.

#[cfg(feature = "half")]
use core::marker::PhantomData;

use super::Stage;
#[cfg(feature = "half")]
use super::blocks::{ReadBlocks, SlotBlocks, WriteBlocks};
#[cfg(feature = "half")]
use super::halves::Source;
use super::sums::Lanes;
use crate::element::DType;

/// The most state arrays that a fused chain may have.
pub(crate) const MOST_SLOTS: usize = 8;
/// The most barriers that a fused chain may have.
pub(crate) const MOST_BARRIERS: usize = 3;

/// Elements between two requests for memory: two or four lines of each array, so that the requests of a block do not
/// fill the queue that they wait in.
pub(crate) const BLOCK: usize = 32;

/// Of the loops of a pass those that are written for an instruction set.
#[cfg(feature = "half")]
pub(super) struct On<I>(PhantomData<I>);

/// What a loop needs, and the leaf's type where the loop is compiled for one.
pub(super) type Typed<S, C> = (<S as Stage>::Kernel<C>, Option<DType>);

/// The state arrays of one piece; those past the chain's own are empty.
pub(crate) type Slots<'a, C> = [&'a mut [C]; MOST_SLOTS];

/// Updates to read, and the address of what is prefetched with the first of them.
pub(super) type ReadAhead<'a, C> = (&'a [C], usize);

/// No array at any place.
#[inline(always)]
pub(crate) fn no_slots<'a, C>() -> Slots<'a, C> {
    [&mut [], &mut [], &mut [], &mut [], &mut [], &mut [], &mut [], &mut []]
}

pub(super) type MapFn<S, C, const N: usize> =
    fn(<S as Stage>::Kernel<C>, &[C], &mut [C], &[C], Slots<'_, C>, &mut Lanes<N>);
pub(super) type ApplyFn<S, C, const N: usize> =
    fn(<S as Stage>::Kernel<C>, ReadAhead<'_, C>, &mut [C], Slots<'_, C>, &mut Lanes<N>);
#[cfg(feature = "half")]
pub(super) type HalvesFn<S, const N: usize> =
    fn(<S as Stage>::Kernel<f32>, Source<'_>, &mut [u16], Slots<'_, f32>, &mut Lanes<N>);
#[cfg(feature = "half")]
pub(super) type MixedFn<S> = fn(Typed<S, f32>, ReadBlocks<'_>, WriteBlocks<'_>, SlotBlocks<'_>);
#[cfg(feature = "half")]
pub(super) type DropHalvesFn<S, const N: usize> =
    fn(<S as Stage>::Kernel<f32>, &[u16], &[u16], Slots<'_, f32>, &mut Lanes<N>);
