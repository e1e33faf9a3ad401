//! The loss as a function, for parts that evaluate it at other points within a step.

use std::sync::Arc;

use super::bounds::Bounds;
use super::leaf::{Table, read_leaf, write_leaf};
use super::table;
use crate::element::DType;
use crate::error::Result;
use crate::state::Moments;
use crate::tree::{Structure, Tree, TreeMut};

/// The parameters of a step, which fit its structure.
#[derive(Clone, Copy)]
pub struct Current<'a> {
    structure: &'a Structure,
    params: &'a Table,
}

/// A loss with its gradient.
pub trait Evaluate {
    /// Returns the loss at `point`, and writes the gradient to `gradient`. Leaves without an array in `point` keep
    /// their parameters; those without one in `gradient` are not written.
    fn evaluate(&mut self, current: Current<'_>, point: &Moments, gradient: Option<&mut Moments>) -> Result<f64>;

    /// Returns the bounds of the parameters, if any.
    fn bounds(&self) -> Option<Arc<Bounds>> {
        None
    }
}

/// A destination for a gradient of the loss.
pub struct GradientSink<'a> {
    structure: &'a Structure,
    table: &'a mut Table,
    path: &'a mut String,
    to: &'a mut Moments,
}

impl GradientSink<'_> {
    /// Copies a gradient with the parameters' structure.
    pub(crate) fn take<G: Tree + ?Sized>(self, gradient: &G) -> Result<()> {
        table::grads(&|walk| gradient.walk(walk), self.structure, self.table, self.path)?;
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

/// Returns the value, and passes the gradient on if requested.
pub fn deliver<V: Into<f64>, G: Tree>((value, gradient): (V, G), to: Option<GradientSink<'_>>) -> Result<f64> {
    to.map_or(Ok(()), |to| to.take(&gradient))?;
    Ok(value.into())
}

/// A function of the parameters and the copy that it is called with.
pub struct Trial<P, F> {
    point: Option<P>,
    f: F,
    table: Table,
    path: String,
    evaluation_buffer: Vec<f64>,
}

impl<P, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Trial<P, F> {
    /// Without a copy, only [`call`](Self::call) works.
    #[doc(hidden)]
    pub fn new(point: Option<P>, f: F) -> Self {
        Trial { point, f, table: Table::new(), path: String::new(), evaluation_buffer: Vec::new() }
    }

    /// The copy, as of its last call.
    #[doc(hidden)]
    pub fn point(&mut self) -> &mut Option<P> {
        &mut self.point
    }

    #[doc(hidden)]
    pub fn call(&mut self, params: &P, structure: &Structure, gradient: &mut Moments) -> Result<f64> {
        let Trial { f, table, path, .. } = self;
        f(params, Some(GradientSink { structure, table, path, to: gradient }))
    }
}

impl<P: TreeMut, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Evaluate for Trial<P, F> {
    fn evaluate(&mut self, current: Current<'_>, point: &Moments, gradient: Option<&mut Moments>) -> Result<f64> {
        let Current { structure, params } = current;
        let Trial { point: Some(trial), f, table, path, evaluation_buffer } = self else { return Ok(f64::NAN) };
        table::params_mut(trial, structure, table, path)?;
        for (leaf, (to, spec)) in table.iter().zip(structure.leaves()).enumerate() {
            match point.dtype(leaf) {
                Some(DType::F64) => write_leaf::<f64>(to, spec, point.get(leaf).unwrap_or_default()),
                Some(_) => write_leaf::<f32>(to, spec, point.get(leaf).unwrap_or_default()),
                // An earlier evaluation, of other leaves, may have changed it.
                None => {
                    evaluation_buffer.resize(spec.len(), 0.0);
                    read_leaf(&params[leaf], spec, Some(evaluation_buffer));
                    write_leaf(to, spec, evaluation_buffer);
                }
            }
        }
        table.clear();
        f(trial, gradient.map(|to| GradientSink { structure, table, path, to }))
    }
}

/// A step's objective, with its first error.
pub(crate) struct Objective<'a> {
    evaluate: &'a mut dyn Evaluate,
    /// The loss failed, or a gradient did not fit the parameters.
    pub(crate) error: Option<crate::error::Error>,
}

impl<'a> Objective<'a> {
    pub(crate) fn new(evaluate: &'a mut dyn Evaluate) -> Objective<'a> {
        Objective { evaluate, error: None }
    }
}

/// Evaluates the loss and keeps the first error.
pub(crate) trait EvaluateLoss {
    /// Returns true after an error, which abandons the step.
    fn failed(&self) -> bool;

    fn evaluate_loss(
        &mut self,
        structure: &Structure,
        params: &Table,
        point: &Moments,
        gradient: Option<&mut Moments>,
    ) -> f64;

    fn bounds(&self) -> Option<Arc<Bounds>>;
}

impl EvaluateLoss for Objective<'_> {
    fn failed(&self) -> bool {
        self.error.is_some()
    }

    fn evaluate_loss(
        &mut self,
        structure: &Structure,
        params: &Table,
        point: &Moments,
        gradient: Option<&mut Moments>,
    ) -> f64 {
        if self.failed() {
            return f64::NAN;
        }
        match self.evaluate.evaluate(Current { structure, params }, point, gradient) {
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
