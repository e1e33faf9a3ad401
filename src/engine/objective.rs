//! The loss as a function of the parameters, for what asks for it at other points in the middle of a step.

use std::sync::Arc;

use super::bounds::Bounds;
use super::leaf::{Table, read_leaf, write_leaf};
use super::table;
use crate::element::DType;
use crate::error::Result;
use crate::state::Moments;
use crate::tree::{Structure, Tree, TreeMut};

/// Gives the loss at a point.
pub(crate) trait Evaluate {
    /// The value at `point`; leaves that have no array there keep the value that the parameters have. The gradient goes
    /// to `gradient`, for the leaves that have an array there.
    fn evaluate(
        &mut self,
        structure: &Structure,
        params: &Table,
        point: &Moments,
        gradient: Option<&mut Moments>,
    ) -> Result<f64>;

    /// The bounds that points must keep, if there are any.
    fn bounds(&self) -> Option<Arc<Bounds>> {
        None
    }
}

/// Where the gradient at a point goes.
pub(crate) struct GradientSink<'a> {
    structure: &'a Structure,
    table: &'a mut Table,
    path: &'a mut String,
    to: &'a mut Moments,
}

impl GradientSink<'_> {
    /// Copies a gradient, if it has the parameters' structure.
    pub(crate) fn take<G: Tree + ?Sized>(self, gradient: &G) -> Result<()> {
        table::grads(gradient, self.structure, self.table, self.path)?;
        for (leaf, (from, spec)) in self.table.iter().zip(self.structure.leaves()).enumerate() {
            match self.to.dtype(leaf) {
                Some(DType::F64) => read_leaf::<f64>(from, spec, self.to.get_mut(leaf)),
                Some(_) => read_leaf::<f32>(from, spec, self.to.get_mut(leaf)),
                None => {}
            }
        }
        self.table.clear();
        Ok(())
    }
}

/// A function of the parameters and a copy of them to call it with.
pub(crate) struct Trial<P, F> {
    point: Option<P>,
    f: F,
    table: Table,
    path: String,
    spare: Vec<f64>,
}

impl<P, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Trial<P, F> {
    /// Without a copy the function can be called with the parameters themselves only.
    pub(crate) fn new(point: Option<P>, f: F) -> Self {
        Trial { point, f, table: Table::new(), path: String::new(), spare: Vec::new() }
    }

    /// The copy, as it was when the function was last called with it.
    pub(crate) fn point(&mut self) -> &mut Option<P> {
        &mut self.point
    }

    /// Calls the function with the parameters themselves.
    pub(crate) fn call(&mut self, params: &P, structure: &Structure, gradient: &mut Moments) -> Result<f64> {
        let Trial { f, table, path, .. } = self;
        f(params, Some(GradientSink { structure, table, path, to: gradient }))
    }
}

impl<P: TreeMut, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Evaluate for Trial<P, F> {
    fn evaluate(
        &mut self,
        structure: &Structure,
        params: &Table,
        point: &Moments,
        gradient: Option<&mut Moments>,
    ) -> Result<f64> {
        let Trial { point: Some(trial), f, table, path, spare } = self else { return Ok(f64::NAN) };
        table::params_mut(trial, structure, table, path)?;
        for (leaf, (to, spec)) in table.iter().zip(structure.leaves()).enumerate() {
            match point.dtype(leaf) {
                Some(DType::F64) => write_leaf::<f64>(to, spec, point.get(leaf).unwrap_or_default()),
                Some(_) => write_leaf::<f32>(to, spec, point.get(leaf).unwrap_or_default()),
                // An evaluation before, for other leaves, may have moved it.
                None => {
                    spare.resize(spec.len(), 0.0);
                    read_leaf(&params[leaf], spec, Some(spare));
                    write_leaf(to, spec, spare);
                }
            }
        }
        table.clear();
        f(trial, gradient.map(|to| GradientSink { structure, table, path, to }))
    }
}

/// The objective of a step, and whether asking it went wrong.
pub(crate) struct Objective<'a> {
    evaluate: &'a mut dyn Evaluate,
    /// The gradient at a point did not have the structure of the parameters, or the loss failed.
    pub(crate) error: Option<crate::error::Error>,
}

impl<'a> Objective<'a> {
    pub(crate) fn new(evaluate: &'a mut dyn Evaluate) -> Objective<'a> {
        Objective { evaluate, error: None }
    }
}

/// Asks for the loss; what goes wrong is kept for the end of the step.
pub(crate) trait Ask {
    /// Whether it went wrong, after which the loss is not asked again and the step is given up.
    fn failed(&self) -> bool;

    fn ask(&mut self, structure: &Structure, params: &Table, point: &Moments, gradient: Option<&mut Moments>) -> f64;

    /// The bounds that points must keep, if there are any.
    fn bounds(&self) -> Option<Arc<Bounds>>;
}

impl Ask for Objective<'_> {
    fn failed(&self) -> bool {
        self.error.is_some()
    }

    fn ask(&mut self, structure: &Structure, params: &Table, point: &Moments, gradient: Option<&mut Moments>) -> f64 {
        if self.failed() {
            return f64::NAN;
        }
        match self.evaluate.evaluate(structure, params, point, gradient) {
            Ok(value) => value,
            Err(error) => {
                self.error = Some(error);
                f64::NAN
            }
        }
    }

    fn bounds(&self) -> Option<Arc<Bounds>> {
        self.evaluate.bounds()
    }
}
