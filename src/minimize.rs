//! Steps of what is given the loss as a function, without evaluating it twice anywhere.

use crate::element::{DType, Real};
use crate::engine::{Evaluate, GradientSink, Outcome, Trial, dot, table::Table};
use crate::error::Result;
use crate::extra::evaluate;
use crate::needs::Level;
use crate::recall::{Known, Recall};
use crate::state::Moments;
use crate::transformation::{GradientTransformation, OptState};
use crate::tree::{Structure, Tree, TreeMut, fingerprint};

/// Minimizes a function: steps that evaluate it themselves, for every [`GradientTransformation`].
///
/// A line search has evaluated the function where it ended, and that is where the next step begins. What is known there is
/// kept in the [`OptState`], with a fingerprint of the parameters' bits: if they are the ones that the next step is given,
/// nothing is evaluated again. A change of the parameters, by you or by a later member of the chain, is never missed.
///
/// The function must be the same in every step. Where it changes from step to step, as the loss over mini-batches does, use
/// [`step_with`](GradientTransformation::step_with).
pub trait Minimize: GradientTransformation + Sized {
    /// One step, for a function that gives value and gradient.
    ///
    /// # Cost
    ///
    /// Up to three copies of the gradient and one of the parameters.
    ///
    /// # Errors
    ///
    /// As [`step_with`](GradientTransformation::step_with).
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = lbfgs();
    /// let mut p = 2.0_f64;
    /// let mut state = optimizer.init(&p)?;
    /// let step = optimizer.minimize_step(&mut p, |p| (p * p / 2.0, *p), &mut state)?;
    /// // Once at 2, and once at 1, where the line search ended: a first step of length 1 was right.
    /// assert_eq!((step.value, step.evaluations, p), (2.0, 2, 1.0));
    ///
    /// let step = optimizer.minimize_step(&mut p, |p| (p * p / 2.0, *p), &mut state)?;
    /// assert_eq!((step.value, step.evaluations, p), (0.5, 1, 0.0)); // what it is at 1 was known
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    fn minimize_step<P, F, V, G>(&self, params: &mut P, mut f: F, state: &mut OptState<Self>) -> Result<MinimizeStep>
    where
        P: TreeMut + Clone,
        F: FnMut(&P) -> (V, G),
        V: Into<f64>,
        G: Tree,
    {
        let f = |p: &P, to: Option<GradientSink<'_>>| evaluate(&mut f, p, to);
        let mut memory = Memory::of(state, f)?;
        memory.look(params)?;
        let Known { value, .. } = memory.recall.here;
        let gradient_norm = memory.gradient_norm();
        let outcome = memory.step(self, params, state)?;
        let evaluations = memory.evaluations;
        state.recall = Some(memory.recall);
        Ok(MinimizeStep { value, gradient_norm, evaluations, outcome })
    }

    /// Steps until the norm of the gradient is at most `tol`, or `max_steps` are done.
    ///
    /// # Errors
    ///
    /// As [`minimize_step`](Minimize::minimize_step).
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::minimize::Stop;
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = lbfgs();
    /// let mut p = [3.0_f64, -1.0];
    /// let mut state = optimizer.init(&p)?;
    /// let bowl = |p: &[f64; 2]| (p[0] * p[0] + 5.0 * p[1] * p[1], [2.0 * p[0], 10.0 * p[1]]);
    /// let report = optimizer.minimize(&mut p, bowl, &mut state, 1e-12, 100)?;
    /// assert_eq!(report.stop, Stop::Converged);
    /// assert!(report.value < 1e-24 && report.gradient_norm <= 1e-12);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    fn minimize<P, F, V, G>(
        &self,
        params: &mut P,
        mut f: F,
        state: &mut OptState<Self>,
        tol: f64,
        max_steps: usize,
    ) -> Result<Report>
    where
        P: TreeMut + Clone,
        F: FnMut(&P) -> (V, G),
        V: Into<f64>,
        G: Tree,
    {
        let f = |p: &P, to: Option<GradientSink<'_>>| evaluate(&mut f, p, to);
        let mut memory = Memory::of(state, f)?;
        let (mut steps, mut stood_still) = (0, 0);
        let stop = loop {
            memory.look(params)?;
            let gradient_norm = memory.gradient_norm();
            if !memory.recall.here.value.is_finite() || !gradient_norm.is_finite() {
                break Stop::NotFinite;
            } else if gradient_norm <= tol {
                break Stop::Converged;
            } else if steps >= max_steps {
                break Stop::MaxSteps;
            } else if stood_still >= Stop::STALLED_AFTER {
                break Stop::Stalled;
            }
            let before = memory.recall.here.fingerprint;
            let outcome = memory.step(self, params, state)?;
            steps += 1;
            let moved = memory.recall.here.fingerprint != before;
            stood_still = if moved { 0 } else { stood_still + usize::from(outcome.emitted()) };
        };
        let (value, gradient_norm, evaluations) =
            (memory.recall.here.value, memory.gradient_norm(), memory.evaluations);
        state.recall = Some(memory.recall);
        Ok(Report { steps, evaluations, value, gradient_norm, stop })
    }
}

impl<T: GradientTransformation + Sized> Minimize for T {}

/// What a [`minimize_step`](Minimize::minimize_step) did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MinimizeStep {
    /// The value before the step.
    pub value: f64,
    /// The Euclidean norm of the gradient before the step, over all leaves.
    pub gradient_norm: f64,
    /// How often the function was called.
    pub evaluations: usize,
    /// What the step did.
    pub outcome: Outcome,
}

/// How a [`minimize`](Minimize::minimize) went.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Steps done.
    pub steps: usize,
    /// How often the function was called.
    pub evaluations: usize,
    /// The value at the parameters, as they are now.
    pub value: f64,
    /// The Euclidean norm of the gradient there, over all leaves.
    pub gradient_norm: f64,
    /// Why it ended.
    pub stop: Stop,
}

impl Report {
    /// Whether the gradient became as small as was asked for.
    pub fn converged(&self) -> bool {
        self.stop == Stop::Converged
    }
}

/// Why a [`minimize`](Minimize::minimize) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The norm of the gradient is at most what was asked for.
    Converged,
    /// As many steps as were allowed are done.
    MaxSteps,
    /// Twenty steps one after the other left the parameters as they were: rounding errors hide what is left to be gained,
    /// or the direction does not go down.
    Stalled,
    /// The value or the gradient at the parameters is infinite or NaN.
    NotFinite,
}

impl Stop {
    const STALLED_AFTER: usize = 20;
}

/// The function, and what is known of it.
struct Memory<P, F> {
    trial: Trial<P, F>,
    recall: Box<Recall>,
    structure: std::sync::Arc<Structure>,
    evaluations: usize,
}

impl<P: TreeMut + Clone, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Memory<P, F> {
    fn of<T: GradientTransformation>(state: &mut OptState<T>, f: F) -> Result<Self> {
        state.usable()?;
        let recall = state.recall.take().unwrap_or_default();
        let mut memory =
            Memory { trial: Trial::new(None, f), recall, structure: state.shared_structure(), evaluations: 0 };
        memory.make_room(|recall| &mut recall.here)?;
        Ok(memory)
    }

    fn make_room(&mut self, of: fn(&mut Recall) -> &mut Known) -> Result<()> {
        let Known { gradient, .. } = of(&mut self.recall);
        if gradient.is_empty() {
            let active = vec![true; self.structure.len()];
            *gradient = Moments::like(&self.structure, &active, 0.0, |leaf| leaf.dtype().compute())?;
        }
        Ok(())
    }

    /// Makes sure that value and gradient at the parameters are known.
    fn look(&mut self, params: &P) -> Result<()> {
        let (print, here) = (Some(fingerprint(params)), &mut self.recall.here);
        if here.fingerprint != print {
            here.fingerprint = None;
            here.value = self.trial.call(params, &self.structure, &mut here.gradient)?;
            here.fingerprint = print;
            self.evaluations += 1;
        }
        Ok(())
    }

    /// A step from where one has looked.
    fn step<T: GradientTransformation>(
        &mut self,
        transformation: &T,
        params: &mut P,
        state: &mut OptState<T>,
    ) -> Result<Outcome> {
        if transformation.needs() >= Level::ValueFn {
            self.make_room(|recall| &mut recall.last)?;
            self.make_room(|recall| &mut recall.best)?;
            self.trial.point().get_or_insert_with(|| params.clone());
        }
        let Memory { trial, recall, evaluations, .. } = self;
        let Recall { here, last, best } = &mut **recall;
        (last.fingerprint, best.fingerprint) = (None, None);
        let mut watched = Watched { trial, last, best, evaluations };
        let outcome = state.step_from(transformation, params, here, Some(&mut watched))?;
        let print = Some(fingerprint(params));
        if here.fingerprint != print {
            if last.fingerprint == print {
                core::mem::swap(here, last);
            } else if best.fingerprint == print {
                core::mem::swap(here, best);
            } else {
                here.fingerprint = None;
            }
        }
        Ok(outcome)
    }

    fn gradient_norm(&self) -> f64 {
        let gradient = &self.recall.here.gradient;
        fn square<C: Real>(structure: &Structure, gradient: &Moments, leaf: usize) -> f64 {
            let g = gradient.get::<C>(leaf).unwrap_or_default();
            dot(&structure.leaves()[leaf], g, g)
        }
        let squares = gradient.leaves().map(|leaf| match gradient.dtype(leaf) {
            Some(DType::F64) => square::<f64>(&self.structure, gradient, leaf),
            _ => square::<f32>(&self.structure, gradient, leaf),
        });
        squares.sum::<f64>().sqrt()
    }
}

/// Keeps what is evaluated.
struct Watched<'a, P, F> {
    trial: &'a mut Trial<P, F>,
    last: &'a mut Known,
    best: &'a mut Known,
    evaluations: &'a mut usize,
}

impl<P: TreeMut, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Evaluate for Watched<'_, P, F> {
    fn evaluate(
        &mut self,
        structure: &Structure,
        params: &Table,
        point: &Moments,
        gradient: Option<&mut Moments>,
    ) -> Result<f64> {
        let Watched { trial, last, best, evaluations } = self;
        let worth_keeping = best.fingerprint.is_none() || best.value.is_nan() || last.value < best.value;
        if last.fingerprint.is_some() && worth_keeping {
            core::mem::swap(*last, *best);
        }
        last.fingerprint = None;
        **evaluations += 1;
        last.value = trial.evaluate(structure, params, point, Some(&mut last.gradient))?;
        last.fingerprint = trial.point().as_ref().map(fingerprint);
        gradient.into_iter().for_each(|to| to.copy_from(&last.gradient));
        Ok(last.value)
    }
}
