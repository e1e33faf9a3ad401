//! Stands for `ranks` without the feature `collective`: its types have no values.

use super::{Sums, Tile};
use crate::element::Real;
use crate::error::Result;
use crate::memory::RawBytes;

/// A step shared by processes.
#[derive(Clone, Debug)]
pub(crate) enum Ranks {}

impl Ranks {
    pub(crate) fn clear(&mut self, _: usize) {
        match *self {}
    }

    pub(crate) fn complete(&mut self, _: &[f64], _: usize) -> Result<()> {
        match *self {}
    }

    pub(super) fn sums<'a>(&'a self, _: Sums<'a>) -> Sums<'a> {
        match *self {}
    }
}

/// The layout of chunks in messages.
#[derive(Clone, Debug)]
pub(crate) enum Layout {}

impl Layout {
    pub(crate) fn store<C: Real>(&self, _: &[RawBytes], _: &mut Tile<'_, C>) {
        match *self {}
    }
}
