use serde::{Deserialize, Serialize};

use crate::element::DType;
use crate::tree::Structure;

/// Paths, dtypes and shapes, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leaves {
    pub(crate) fingerprint: String,
    pub(crate) leaves: Vec<Leaf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Leaves {
    #[doc(hidden)]
    pub fn of(structure: &Structure) -> Leaves {
        let leaf = |leaf: &crate::tree::LeafSpec| Leaf {
            path: leaf.path().into(),
            dtype: leaf.dtype(),
            shape: leaf.shape().into(),
        };
        let fingerprint = format!("{:016x}", structure.fingerprint());
        Leaves { fingerprint, leaves: structure.leaves().iter().map(leaf).collect() }
    }

    /// Returns the structure; `None` if a leaf exceeds the address space.
    #[doc(hidden)]
    pub fn structure(&self) -> Option<Structure> {
        self.leaves
            .iter()
            .all(|leaf| fits_in_memory(&leaf.shape, leaf.dtype))
            .then(|| Structure::from_parts(self.leaves.iter().map(|leaf| (&*leaf.path, leaf.dtype, &*leaf.shape))))
    }
}

/// Returns whether an array and each of its axes fit the address space.
pub fn fits_in_memory(shape: &[usize], dtype: DType) -> bool {
    let mut all = shape.iter().copied().chain([dtype.size()]).filter(|len| *len > 0);
    all.try_fold(1_isize, |bytes, len| bytes.checked_mul(isize::try_from(len).ok()?)).is_some()
}
