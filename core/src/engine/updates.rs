use std::sync::Arc;

use super::Outcome;
use crate::element::{DType, Element};
use crate::memory::Buffer;
use crate::tree::{LeafMut, LeafParts, LeafRef, LeafSpec, Structure, Tree, TreeMut, Walk, WalkMut};

/// The result of [`update`](crate::GradientTransformation::update): an array for each parameter leaf.
///
/// Each array has the path, shape, dtype and memory order of its leaf. [`apply_updates`](crate::apply_updates) adds
/// them to the parameters. `Updates` is a tree: its leaves can be walked, compared, and changed before they are
/// applied.
#[derive(Clone, Debug)]
pub struct Updates {
    #[doc(hidden)]
    pub structure: Arc<Structure>,
    #[doc(hidden)]
    pub leaves: Vec<Buffer>,
    pub(crate) outcome: Outcome,
}

impl Updates {
    pub(crate) fn new(structure: Arc<Structure>) -> Updates {
        let leaves = structure.leaves().iter().map(|l| Buffer::zeros(l.dtype(), l.len())).collect();
        Updates { structure, leaves, outcome: Outcome::NOTHING }
    }

    /// Returns zeros of other dtypes, for means used as gradients.
    pub(crate) fn of_types(structure: Arc<Structure>, dtype: impl Fn(&LeafSpec) -> DType) -> Updates {
        let leaves = structure.leaves().iter().map(|l| Buffer::zeros(dtype(l), l.len())).collect();
        Updates { structure, leaves, outcome: Outcome::NOTHING }
    }

    /// Returns the outcome of the step that made these updates.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the structure, which is that of the parameters.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Returns a copy of the update at a path, in row-major order.
    ///
    /// Returns `None` if no such leaf exists or its dtype is not `T`.
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
