//! Updates in memory, for those who look at them before applying them.

use std::sync::Arc;

use super::Outcome;
use crate::element::{DType, Element};
use crate::memory::Buffer;
use crate::tree::{LeafMut, LeafParts, LeafRef, LeafSpec, Structure, Tree, TreeMut, Walk, WalkMut};

/// What [`update`](crate::GradientTransformation::update) returns: one array for each parameter, of its path, shape,
/// type and memory order, to be added to it by [`apply_updates`](crate::apply_updates).
///
/// It is a tree: its leaves can be walked, compared, and changed before they are applied.
#[derive(Clone, Debug)]
pub struct Updates {
    pub(crate) structure: Arc<Structure>,
    pub(crate) leaves: Vec<Buffer>,
    pub(crate) outcome: Outcome,
}

impl Updates {
    /// Zero updates for parameters of this structure.
    pub(crate) fn new(structure: Arc<Structure>) -> Updates {
        let leaves = structure.leaves().iter().map(|l| Buffer::zeros(l.dtype(), l.len())).collect();
        Updates { structure, leaves, outcome: Outcome::NOTHING }
    }

    /// Zeros of other types, for means that are going to be gradients.
    pub(crate) fn of_types(structure: Arc<Structure>, dtype: impl Fn(&LeafSpec) -> DType) -> Updates {
        let leaves = structure.leaves().iter().map(|l| Buffer::zeros(dtype(l), l.len())).collect();
        Updates { structure, leaves, outcome: Outcome::NOTHING }
    }

    /// What the step that made these updates did.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The structure, which is the parameters'.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// A copy of the update of the leaf at a path, in row-major order, if there is such a leaf and it is of type `T`.
    pub fn to_vec<T: Element>(&self, path: &str) -> Option<Vec<T>> {
        let i = self.structure.index_of(path)?;
        let leaf = LeafRef::lend(self.parts(i));
        (leaf.dtype() == T::DTYPE).then(|| leaf.to_f64().into_iter().map(T::from_f64).collect())
    }

    fn parts(&self, i: usize) -> LeafParts {
        let spec = &self.structure.leaves()[i];
        LeafParts { data: self.leaves[i].raw(), shape: spec.shape().into(), strides: spec.strides().into() }
    }
}

impl Tree for Updates {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        for (i, spec) in self.structure.leaves().iter().enumerate() {
            walk.leaf_at(spec.path(), LeafRef::lend(self.parts(i)));
        }
    }
}

impl TreeMut for Updates {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        let structure = self.structure.clone();
        let parts: Vec<_> = (0..structure.len()).map(|i| self.parts(i)).collect();
        for (spec, parts) in structure.leaves().iter().zip(parts) {
            walk.leaf_at(spec.path(), LeafMut::lend(parts));
        }
    }
}
