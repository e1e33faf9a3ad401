//! Raw leaves in memory.

use std::sync::Arc;

use crate::DType;
use crate::tree::{LeafMut, LeafRef};

#[derive(Clone, Debug)]
pub(super) struct RawLeaf {
    /// The index of the constrained leaf.
    pub(super) leaf: usize,
    pub(super) path: Arc<str>,
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers,
}

#[derive(Clone, Debug)]
pub(super) enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Numbers {
    /// Rounds values to a compute type; finite values stay finite.
    pub(super) fn of(dtype: DType, values: &[f64]) -> Numbers {
        let most = f64::from(f32::MAX);
        let saturated = |x: f64| if x.is_finite() { x.clamp(-most, most) as f32 } else { x as f32 };
        match dtype.compute() {
            DType::F64 => Numbers::F64(values.into()),
            _ => Numbers::F32(values.iter().map(|x| saturated(*x)).collect()),
        }
    }

    pub(super) fn append_to(&self, out: &mut Vec<f64>) {
        match self {
            Numbers::F32(numbers) => out.extend(numbers.iter().map(|x| f64::from(*x))),
            Numbers::F64(numbers) => out.extend(numbers),
        }
    }
}

impl RawLeaf {
    pub(super) fn show(&self) -> LeafRef<'_> {
        let leaf = match &self.numbers {
            Numbers::F32(numbers) => LeafRef::from_slice(numbers, &self.shape),
            Numbers::F64(numbers) => LeafRef::from_slice(numbers, &self.shape),
        };
        leaf.expect("there are as many numbers as the shape says")
    }

    pub(super) fn show_mut(&mut self) -> LeafMut<'_> {
        let leaf = match &mut self.numbers {
            Numbers::F32(numbers) => LeafMut::from_slice(numbers, &self.shape),
            Numbers::F64(numbers) => LeafMut::from_slice(numbers, &self.shape),
        };
        leaf.expect("there are as many numbers as the shape says")
    }
}
