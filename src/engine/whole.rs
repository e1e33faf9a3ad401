//! The updates of all leaves in memory, for what must look at whole leaves or the whole tree.

use std::sync::Arc;

use super::bounds::Bounds;
use super::leaf::{Table, TableLeaf, arrays, is_among, read_leaf};
use super::objective::Ask;
use super::remote::{Line, RemoteLeaf, RemoteTree};
use super::rows::LeafRows;
use crate::element::{DType, Real};
use crate::memory::Buffer;
use crate::state::Moments;
use crate::tree::{LeafSpec, Structure};

/// The updates of a step in memory, and the parameters, leaf by leaf.
pub struct WholeTree<'a> {
    pub(crate) structure: &'a Structure,
    pub(crate) active: &'a [bool],
    /// Which leaves rest in this step; empty where none may.
    pub(crate) resting: &'a [bool],
    /// Which leaves have no gradient in this step; empty where all have one.
    pub(crate) absent: &'a [bool],
    pub(crate) stored: &'a mut [Buffer],
    /// Where the updates are of leaves that have gradients of rows only.
    pub(crate) rows: &'a mut [LeafRows],
    pub(crate) params: &'a Table,
    /// The gradients that the step was given; none in a flush.
    pub(crate) grads: &'a [TableLeaf],
    /// Whether `stored` has the updates as they are now; else `grads` are the updates.
    pub(crate) has_stored: bool,
    /// Copies of gradients that are not dense and of the compute type; made when first looked at.
    pub(crate) given: &'a mut Vec<Option<Buffer>>,
    /// Copies of parameters that are not dense and of the compute type; made when first needed.
    pub(crate) copies: &'a mut Vec<Option<Buffer>>,
    /// Room for a table of parameters at another point.
    pub(crate) there: &'a mut Table,
    pub(crate) objective: Option<&'a mut (dyn Ask + 'a)>,
    /// Who has the leaves, if this machine has not.
    pub(crate) remote: Option<&'a mut (dyn RemoteTree + 'a)>,
}

/// One leaf of a [`WholeTree`]: updates to rewrite, and parameters, in memory order.
///
/// The elements lie as [`shape`](LeafSpec::shape) and the strides say: element `[i, j]` is at
/// `i·strides[0] + j·strides[1]`; dense, usually but not always in row-major order.
#[non_exhaustive]
pub struct WholeLeaf<'a, C> {
    /// The number of the leaf.
    pub index: usize,
    /// Path, type, shape.
    pub spec: &'a LeafSpec,
    /// The updates, to rewrite.
    pub u: &'a mut [C],
    /// The parameters.
    pub p: &'a [C],
    /// If the step has gradients of some rows only, which, ascending: then `u` has these rows, one after another, and
    /// `p` nothing. Only what works on [rows](crate::part::Scope::rows) is shown such a leaf.
    pub rows: Option<&'a [usize]>,
}

impl<C> WholeLeaf<'_, C> {
    /// How many elements apart the neighbours along each axis are, in `u` and `p`.
    pub fn strides(&self) -> &[isize] {
        self.spec.strides()
    }
}

/// Something done to leaves of either compute type.
pub trait LeafVisitor {
    /// Called with one leaf.
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>);

    /// Called with one leaf that another machine has, of a part that says how to do it
    /// [there](crate::part::Scope::remote); returns the new updates.
    fn visit_remote(&mut self, leaf: usize, on: &mut dyn RemoteLeaf) -> Line {
        let _ = leaf;
        on.refuse(NOT_REMOTE);
        on.update()
    }
}

/// Something that is found out of leaves of either compute type, which stay as they are.
pub trait LeafLooker {
    /// Called with one leaf: its number, its path and shape, and its updates in memory order.
    fn look<C: Real>(&mut self, leaf: usize, spec: &LeafSpec, u: &[C]);
}

/// Why most parts cannot work on leaves that another machine has.
pub(crate) const NOT_REMOTE: &str = "it works on whole leaves, between passes";

impl WholeTree<'_> {
    /// The parameters' leaves.
    pub fn structure(&self) -> &Structure {
        self.structure
    }

    /// The bounds that the parameters must keep, if the loss is minimized within some.
    pub(crate) fn bounds(&self) -> Option<Arc<Bounds>> {
        self.objective.as_ref()?.bounds()
    }

    /// Whether the transformation acts on a leaf in this step.
    pub fn is_active(&self, leaf: usize) -> bool {
        self.active[leaf] && !is_among(self.resting, leaf) && self.structure.leaves()[leaf].is_whole()
    }

    /// The leaves that the transformation acts on in this step.
    pub fn leaves(&self) -> impl Iterator<Item = usize> + use<> {
        let on: Vec<usize> = (0..self.active.len()).filter(|&i| self.is_active(i)).collect();
        on.into_iter()
    }

    /// One leaf, if the transformation acts on it and its arithmetic is done in `C`.
    pub fn leaf<C: Real>(&mut self, leaf: usize) -> Option<WholeLeaf<'_, C>> {
        let spec = &self.structure.leaves()[leaf];
        // Where updates are only looked at, there are none to rewrite.
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
            // SAFETY: the engine lends the parameters for the step, and no pass is running.
            #[allow(unsafe_code, reason = "a leaf's table entry back to a slice; see `memory`")]
            unsafe {
                table.data.slice(0, table.data.len())
            }
        } else {
            self.copies.resize_with(self.params.len(), || None);
            let copy = self.copies[leaf].get_or_insert_with(|| Buffer::zeros(C::DTYPE, spec.len()));
            let copy = copy.get_mut::<C>().unwrap_or_default();
            read_leaf(table, spec, Some(&mut *copy));
            &*copy
        };
        Some(WholeLeaf { index: leaf, spec, u, p, rows: None })
    }

    /// Does something to each leaf that the transformation acts on, whatever its type.
    pub fn visit<V: LeafVisitor>(&mut self, visitor: &mut V) {
        for i in 0..self.active.len() {
            self.visit_leaf(i, visitor);
        }
    }

    /// Does something to one leaf, if the transformation acts on it. Nothing is to be done where there are no elements:
    /// the other axes may be so long that there is no room for a row.
    pub fn visit_leaf<V: LeafVisitor>(&mut self, leaf: usize, visitor: &mut V) {
        let spec = &self.structure.leaves()[leaf];
        if spec.len() == 0 {
            return;
        }
        if self.remote.is_some() && !self.is_active(leaf) {
            return;
        }
        if let Some(remote) = &mut self.remote {
            return remote.leaf(leaf, spec, &mut |on| visitor.visit_remote(leaf, on));
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

    /// Looks at the updates of each leaf that the transformation acts on, whatever its type, where they are: at the
    /// gradients themselves if nothing has changed them.
    pub fn look<L: LeafLooker>(&mut self, looker: &mut L) {
        for leaf in 0..self.active.len() {
            let spec = &self.structure.leaves()[leaf];
            if spec.len() == 0 || !self.is_active(leaf) {
                continue;
            }
            match (&mut self.remote, spec.dtype().compute()) {
                (Some(remote), _) => remote.leaf(leaf, spec, &mut |on| {
                    on.refuse(NOT_REMOTE);
                    on.update()
                }),
                (None, DType::F64) => looker.look::<f64>(leaf, spec, self.given(leaf)),
                (None, _) => looker.look::<f32>(leaf, spec, self.given(leaf)),
            }
        }
    }

    /// The updates of a leaf as they are now.
    fn given<C: Real>(&mut self, leaf: usize) -> &[C] {
        if self.has_stored {
            return self.stored[leaf].get().unwrap_or_default();
        }
        let (spec, grads) = (&self.structure.leaves()[leaf], self.grads.get(leaf));
        if let Some(grads) = grads.filter(|grads| grads.data.dtype() == C::DTYPE && grads.strided.is_none()) {
            // SAFETY: gradients are lent for the step, and no pass is running.
            #[allow(unsafe_code, reason = "a leaf's table entry back to a slice; see `memory`")]
            return unsafe { grads.data.slice(0, grads.data.len()) };
        }
        self.given.resize_with(self.params.len(), || None);
        let copy = self.given[leaf].get_or_insert_with(|| Buffer::zeros(C::DTYPE, spec.len()));
        let copy = copy.get_mut::<C>().unwrap_or_default();
        match grads {
            Some(grads) => read_leaf(grads, spec, Some(&mut *copy)),
            None => copy.fill(C::zero()),
        }
        copy
    }

    /// The same tree for a transformation that acts on other leaves.
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
            given: &mut *self.given,
            copies: &mut *self.copies,
            there: &mut *self.there,
            objective: self.objective.as_mut().map(|ask| &mut **ask as &mut dyn Ask),
            remote: self.remote.as_mut().map(|remote| &mut **remote as &mut dyn RemoteTree),
        }
    }

    /// The same tree for a step in which some leaves rest.
    pub(crate) fn without<'b>(&'b mut self, resting: &'b [bool]) -> WholeTree<'b> {
        WholeTree { resting, ..self.with_active(self.active) }
    }

    /// Whether the loss can be asked for: not in a step without gradients.
    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    /// The same tree as if the parameters were at another point: at arrays of their shapes and compute types.
    pub(crate) fn at_point(&mut self, point: &Moments, inside: &mut dyn FnMut(&mut WholeTree<'_>)) {
        let mut params = core::mem::take(self.there);
        arrays(point, self.structure, self.params, &mut params);
        inside(&mut WholeTree { params: &params, ..self.with_active(self.active) });
        *self.there = params;
    }

    /// The loss as a function, to be lent to a nested step.
    pub(crate) fn objective(&mut self) -> Option<&mut dyn Ask> {
        self.objective.as_mut().map(|ask| &mut **ask as &mut dyn Ask)
    }

    /// The loss at a point, for what [needs](crate::needs) it as a function; NaN where there is none. Leaves
    /// without an array in `point` have the value that the parameters have.
    pub fn value_at(&mut self, point: &Moments) -> f64 {
        self.objective.as_mut().map_or(f64::NAN, |objective| objective.ask(self.structure, self.params, point, None))
    }

    /// The loss at a point, and into `gradient` its gradient there, for the leaves that have an array in it.
    pub fn value_and_grad_at(&mut self, point: &Moments, gradient: &mut Moments) -> f64 {
        let ask =
            |objective: &mut &mut (dyn Ask + '_)| objective.ask(self.structure, self.params, point, Some(gradient));
        self.objective.as_mut().map_or(f64::NAN, ask)
    }

    /// Copies the gradient of a leaf that the step was given, before any transformation, into the compute type and the
    /// state's order; zero in a step without gradients, and where the leaf rests.
    ///
    /// # Panics
    ///
    /// If `to` is not as long as the leaf, or the step has gradients of some of its [rows](WholeLeaf::rows) only.
    pub fn gradient<C: Real>(&self, leaf: usize, to: &mut [C]) {
        match self.grads.get(leaf).filter(|_| !is_among(self.resting, leaf) && !is_among(self.absent, leaf)) {
            Some(grad) => read_leaf(grad, &self.structure.leaves()[leaf], Some(to)),
            None => to.fill(C::zero()),
        }
    }
}
