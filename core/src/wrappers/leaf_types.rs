//! The dtypes of leaves, for transformations that round to them.

use crate::element::{DType, Rounding};
use crate::part::InitContext;
use crate::state::{State, StateWalk, StateWalkMut};
use crate::tree::LeafSpec;

/// The dtypes of the leaves. Not saved: a state fits only leaves of the dtypes it was made for.
#[derive(Clone, Debug, Default)]
pub struct LeafTypes(Vec<DType>);

impl LeafTypes {
    #[doc(hidden)]
    pub fn of(at: &InitContext<'_>) -> LeafTypes {
        LeafTypes(at.structure().leaves().iter().map(LeafSpec::dtype).collect())
    }

    #[doc(hidden)]
    pub fn rounding(&self, leaf: usize) -> Rounding {
        Rounding::to(self.0[leaf])
    }
}

impl State for LeafTypes {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("dtypes", &self.0);
    }
    fn walk_mut<'a>(&'a mut self, _: &mut StateWalkMut<'a, '_>) {}
}
