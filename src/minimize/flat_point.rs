//! Value and gradient at points that differ from a given one in a single element.

use crate::internal::engine::{GradientSink, Trial};
use crate::internal::numeric::with_dtype;
use crate::internal::state::{index, leaves, leaves_mut, shown};
use crate::state::Moments;
use crate::tree::{Structure, TreeMut};
use crate::{DType, Element, Result};

/// A function and a point, whose elements are numbered leaf by leaf in row-major order.
pub(super) struct FlatPoint<P, F> {
    pub(super) structure: Structure,
    trial: Trial<P, F>,
    point: P,
    pub(super) values: Vec<f64>,
    gradient: Moments,
}

impl<P: TreeMut + Clone, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> FlatPoint<P, F> {
    pub(super) fn new(params: &P, f: F) -> Result<Self> {
        let structure = Structure::of(params)?;
        let gradient = Moments::like(&structure, &vec![true; structure.len()], 0.0, |leaf| leaf.dtype().compute())?;
        let values = leaves(params).iter().flat_map(|leaf| leaf.to_f64()).collect();
        Ok(FlatPoint { structure, trial: Trial::new(None, f), point: params.clone(), values, gradient })
    }

    /// Evaluates with element `i` set to `x`, rounded to its dtype; also returns that.
    pub(super) fn at(&mut self, i: usize, x: f64) -> Result<(f64, f64, Vec<f64>)> {
        let (leaf, element) = place(&self.structure, i);
        let x = with_dtype!(self.structure.leaves()[leaf].dtype(), T => T::from_f64(x).as_f64());
        self.set(leaf, element, x);
        let evaluated = self.here();
        self.set(leaf, element, self.values[i]);
        let (value, gradient) = evaluated?;
        Ok((x, value, gradient))
    }

    pub(super) fn here(&mut self) -> Result<(f64, Vec<f64>)> {
        let value = self.trial.call(&self.point, &self.structure, &mut self.gradient)?;
        Ok((value, self.gradient.views().flat_map(|(_, leaf)| leaf.to_f64()).collect()))
    }

    fn set(&mut self, leaf: usize, element: usize, x: f64) {
        let mut leaves = leaves_mut(&mut self.point);
        let mut values = leaves[leaf].to_f64();
        values[element] = x;
        leaves[leaf].assign_f64(&values);
    }
}

/// Returns the leaf of an element, and the index in it.
pub(super) fn place(structure: &Structure, mut i: usize) -> (usize, usize) {
    for (leaf, spec) in structure.leaves().iter().enumerate() {
        match i.checked_sub(spec.len()) {
            Some(rest) => i = rest,
            None => return (leaf, i),
        }
    }
    unreachable!("the element is in bounds")
}

/// Returns an element's name, such as `layer/weight[0, 1]`.
pub(super) fn name(structure: &Structure, i: usize) -> String {
    let (leaf, element) = place(structure, i);
    let leaf = &structure.leaves()[leaf];
    format!("{}{}", shown(leaf.path()), index(element, leaf.shape()))
}

pub(super) fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2.0_f64.powi(-10),
        DType::Bf16 => 2.0_f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}
