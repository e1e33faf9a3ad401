//! The updates of all leaves in memory, by leaf or for the tree.

use std::sync::Arc;

use super::bounds::Bounds;
use super::leaf::{Table, TableLeaf, arrays, is_among, read_leaf};
use super::objective::EvaluateLoss;
use super::remote::OnDevice;
use super::rows::LeafRows;
use crate::element::{DType, Real};
use crate::memory::Buffer;
use crate::state::Moments;
use crate::tree::{LeafSpec, Structure};

/// A step's updates and parameters, by leaf.
pub struct WholeTree<'a> {
    pub(crate) structure: &'a Structure,
    pub(crate) active: &'a [bool],
    /// Leaves that rest in this step; empty if none may.
    pub(crate) resting: &'a [bool],
    /// Leaves without a gradient; empty if all have one.
    pub(crate) absent: &'a [bool],
    pub(crate) stored: &'a mut [Buffer],
    pub(crate) rows: &'a mut [LeafRows],
    pub(crate) params: &'a Table,
    /// The gradients; empty in a flush.
    pub(crate) grads: &'a [TableLeaf],
    /// True if `stored` holds the updates, else `grads`.
    pub(crate) has_stored: bool,
    /// Copies of gradients that are strided or of another dtype, on demand.
    pub(crate) converted_grads: &'a mut Vec<Option<Buffer>>,
    /// Copies of such parameters, on demand.
    pub(crate) converted_params: &'a mut Vec<Option<Buffer>>,
    /// A table of parameters at another point.
    pub(crate) trial_params: &'a mut Table,
    pub(crate) objective: Option<&'a mut (dyn EvaluateLoss + 'a)>,
    pub(crate) device: OnDevice<'a>,
}

/// One leaf of a [`WholeTree`]: updates to rewrite, and parameters, in memory order.
///
/// Element `[i, j]` is at `i·strides[0] + j·strides[1]`. The elements are contiguous, usually but not always in
/// row-major order.
#[non_exhaustive]
pub struct WholeLeaf<'a, C> {
    /// The index of the leaf.
    pub index: usize,
    /// Path, dtype and shape.
    pub spec: &'a LeafSpec,
    /// The updates, to rewrite.
    pub u: &'a mut [C],
    /// The parameters.
    pub p: &'a [C],
    /// The rows that have a gradient, ascending, if the leaf's gradients are row-sparse.
    ///
    /// `u` then holds these rows, one after another, and `p` is empty. Only parts that work on
    /// [rows](crate::part::Scope::rows) visit such a leaf.
    pub rows: Option<&'a [usize]>,
}

impl<C> WholeLeaf<'_, C> {
    /// Returns the distance, in elements of `u` and `p`, between neighbours along each axis.
    pub fn strides(&self) -> &[isize] {
        self.spec.strides()
    }
}

/// A visitor of whole leaves, of either compute type.
pub trait LeafVisitor {
    /// Visits one leaf.
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>);

    /// Records the work on one leaf that a device holds, for parts that [support it](crate::part::Scope::remote).
    /// Returns the new updates.
    #[cfg(feature = "program")]
    #[cfg_attr(docsrs, doc(cfg(feature = "program")))]
    fn visit_remote(&mut self, leaf: usize, on: &mut dyn super::recorded::RemoteLeaf) -> super::recorded::Line {
        let _ = leaf;
        on.refuse(NOT_REMOTE);
        on.update()
    }
}

/// A reader of whole leaves' updates, of either compute type.
pub trait LeafObserver {
    /// Reads one leaf: its index, its description, and its updates in memory order.
    fn observe<C: Real>(&mut self, leaf: usize, spec: &LeafSpec, u: &[C]);
}

/// The reason why most parts do not run on a device.
pub(crate) const NOT_REMOTE: &str = "it works on whole leaves, between passes";

impl WholeTree<'_> {
    /// Returns the structure of the parameters.
    pub fn structure(&self) -> &Structure {
        self.structure
    }

    /// Returns the bounds, if the loss is minimized within bounds.
    #[doc(hidden)]
    pub fn bounds(&self) -> Option<Arc<Bounds>> {
        self.objective.as_ref()?.bounds()
    }

    /// Returns true if the transformation acts on a leaf in this step.
    pub fn is_active(&self, leaf: usize) -> bool {
        self.active[leaf] && !is_among(self.resting, leaf) && self.structure.leaves()[leaf].is_whole()
    }

    /// Returns the leaves on which the transformation acts in this step.
    pub fn leaves(&self) -> impl Iterator<Item = usize> + use<> {
        let on: Vec<usize> = (0..self.active.len()).filter(|&i| self.is_active(i)).collect();
        on.into_iter()
    }

    /// Returns one leaf if the transformation acts on it and its compute type is `C`. Not inlined: shared by all parts.
    #[inline(never)]
    pub fn leaf<C: Real>(&mut self, leaf: usize) -> Option<WholeLeaf<'_, C>> {
        let spec = &self.structure.leaves()[leaf];
        // A barrier that only reads has no updates to rewrite.
        if !self.has_stored || !self.is_active(leaf) || spec.dtype().compute() != C::DTYPE {
            return None;
        }
        if self.grads.get(leaf).is_some_and(|grads| grads.own) {
            let (rows, u) = self.rows[leaf].updates();
            return Some(WholeLeaf { index: leaf, spec, u, p: &[], rows: Some(rows) });
        }
        let u = self.stored.get_mut(leaf)?.get_mut().unwrap_or_default();
        let table = &self.params[leaf];
        let p = if table.data.dtype() == C::DTYPE && table.strided.is_none() {
            // SAFETY: the engine borrows the parameters for the step, and no pass is running.
            #[allow(unsafe_code, reason = "a leaf's table entry back to a slice; see `memory`")]
            unsafe {
                table.data.slice(0, table.data.len())
            }
        } else {
            self.converted_params.resize_with(self.params.len(), || None);
            let copy = self.converted_params[leaf].get_or_insert_with(|| Buffer::zeros(C::DTYPE, spec.len()));
            let copy = copy.get_mut::<C>().unwrap_or_default();
            read_leaf(table, spec, Some(&mut *copy));
            &*copy
        };
        Some(WholeLeaf { index: leaf, spec, u, p, rows: None })
    }

    /// Visits each leaf on which the transformation acts, of any dtype.
    pub fn visit<V: LeafVisitor>(&mut self, visitor: &mut V) {
        for i in 0..self.active.len() {
            self.visit_leaf(i, visitor);
        }
    }

    /// Visits one leaf if the transformation acts on it. Skips leaves without elements, whose other axes may be too
    /// long to allocate a row.
    pub fn visit_leaf<V: LeafVisitor>(&mut self, leaf: usize, visitor: &mut V) {
        let spec = &self.structure.leaves()[leaf];
        if spec.len() == 0 || !self.is_active(leaf) || self.device.visit(leaf, spec, visitor) {
            return;
        }
        match spec.dtype().compute() {
            DType::F64 => {
                if let Some(leaf) = self.leaf::<f64>(leaf) {
                    visitor.visit(leaf);
                }
            }
            _ => {
                if let Some(leaf) = self.leaf::<f32>(leaf) {
                    visitor.visit(leaf);
                }
            }
        }
    }

    /// Reads the updates of each leaf on which the transformation acts, of any dtype. They are read in place: from the
    /// gradients, if no stage has changed them.
    pub fn observe<L: LeafObserver>(&mut self, observer: &mut L) {
        for leaf in 0..self.active.len() {
            let spec = &self.structure.leaves()[leaf];
            if spec.len() == 0 || !self.is_active(leaf) || self.device.refuse(leaf, spec) {
                continue;
            }
            match spec.dtype().compute() {
                DType::F64 => observer.observe::<f64>(leaf, spec, self.converted_grads(leaf)),
                _ => observer.observe::<f32>(leaf, spec, self.converted_grads(leaf)),
            }
        }
    }

    fn converted_grads<C: Real>(&mut self, leaf: usize) -> &[C] {
        if self.has_stored {
            return self.stored[leaf].get().unwrap_or_default();
        }
        let (spec, grads) = (&self.structure.leaves()[leaf], self.grads.get(leaf));
        if let Some(grads) = grads.filter(|grads| grads.data.dtype() == C::DTYPE && grads.strided.is_none()) {
            // SAFETY: gradients are borrowed for the step, and no pass is running.
            #[allow(unsafe_code, reason = "a leaf's table entry back to a slice; see `memory`")]
            return unsafe { grads.data.slice(0, grads.data.len()) };
        }
        self.converted_grads.resize_with(self.params.len(), || None);
        let copy = self.converted_grads[leaf].get_or_insert_with(|| Buffer::zeros(C::DTYPE, spec.len()));
        let copy = copy.get_mut::<C>().unwrap_or_default();
        match grads {
            Some(grads) => read_leaf(grads, spec, Some(&mut *copy)),
            None => copy.fill(C::zero()),
        }
        copy
    }

    pub(crate) fn with_active<'b>(&'b mut self, active: &'b [bool]) -> WholeTree<'b> {
        WholeTree {
            structure: self.structure,
            active,
            resting: self.resting,
            absent: self.absent,
            stored: &mut *self.stored,
            rows: &mut *self.rows,
            params: self.params,
            grads: self.grads,
            has_stored: self.has_stored,
            converted_grads: &mut *self.converted_grads,
            converted_params: &mut *self.converted_params,
            trial_params: &mut *self.trial_params,
            objective: self.objective.as_mut().map(|evaluate_loss| &mut **evaluate_loss as &mut dyn EvaluateLoss),
            device: self.device.reborrow(),
        }
    }

    pub(crate) fn without<'b>(&'b mut self, resting: &'b [bool]) -> WholeTree<'b> {
        WholeTree { resting, ..self.with_active(self.active) }
    }

    /// Returns true if this step can evaluate the loss at other points; false in a flush.
    #[doc(hidden)]
    pub fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    /// Calls `inside` with parameters `point`: arrays of the same shapes, in the compute types.
    pub(crate) fn at_point(&mut self, point: &Moments, inside: &mut dyn FnMut(&mut WholeTree<'_>)) {
        let mut params = core::mem::take(self.trial_params);
        arrays(point, self.structure, self.params, &mut params);
        inside(&mut WholeTree { params: &params, ..self.with_active(self.active) });
        *self.trial_params = params;
    }

    pub(crate) fn objective(&mut self) -> Option<&mut dyn EvaluateLoss> {
        self.objective.as_mut().map(|evaluate_loss| &mut **evaluate_loss as &mut dyn EvaluateLoss)
    }

    /// Returns the loss at a point, for parts that [need](crate::needs) it as a function; NaN without one. Leaves
    /// without an array in `point` keep their parameters.
    pub fn value_at(&mut self, point: &Moments) -> f64 {
        self.objective
            .as_mut()
            .map_or(f64::NAN, |objective| objective.evaluate_loss(self.structure, self.params, point, None))
    }

    /// Returns the loss at a point and writes its gradient there to the arrays of `gradient`.
    pub fn value_and_grad_at(&mut self, point: &Moments, gradient: &mut Moments) -> f64 {
        let evaluate_loss = |objective: &mut &mut (dyn EvaluateLoss + '_)| {
            objective.evaluate_loss(self.structure, self.params, point, Some(gradient))
        };
        self.objective.as_mut().map_or(f64::NAN, evaluate_loss)
    }

    /// Copies the gradient of a leaf, before any transformation, to the compute type and the state's memory order.
    /// Writes zeros in a step without gradients and for a leaf that rests.
    ///
    /// # Panics
    ///
    /// If `to` is not as long as the leaf, or the leaf's gradients are [row-sparse](WholeLeaf::rows).
    pub fn gradient<C: Real>(&self, leaf: usize, to: &mut [C]) {
        match self.grads.get(leaf).filter(|_| !is_among(self.resting, leaf) && !is_among(self.absent, leaf)) {
            Some(grad) => read_leaf(grad, &self.structure.leaves()[leaf], Some(to)),
            None => to.fill(C::zero()),
        }
    }
}
