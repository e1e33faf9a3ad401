//! Stands for `remote` without the feature `program`: no device holds leaves.

use core::marker::PhantomData;

use super::whole::LeafVisitor;
use crate::tree::LeafSpec;

/// The absence of a device.
pub struct OnDevice<'a>(PhantomData<&'a mut ()>);

impl<'a> OnDevice<'a> {
    pub(super) const NONE: OnDevice<'a> = OnDevice(PhantomData);

    pub(super) fn reborrow(&mut self) -> OnDevice<'_> {
        OnDevice::NONE
    }

    #[inline(always)]
    pub(super) fn enter(&mut self, _: &'static str) {}

    #[inline(always)]
    pub(super) fn visit<V: LeafVisitor>(&mut self, _: usize, _: &LeafSpec, _: &mut V) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn refuse(&mut self, _: usize, _: &LeafSpec) -> bool {
        false
    }
}
