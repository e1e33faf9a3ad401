//! Evaluations of the function, cached so that no point is evaluated twice.

use std::sync::Arc;

use super::within::Within;
use crate::internal::engine::{Bounds, CachedEvaluation, Current, Evaluate, EvaluationCache, GradientSink, Trial};
use crate::internal::numeric::{dot, is_safe, length};
use crate::internal::state::fingerprint;
use crate::needs::Level;
use crate::projection::Operand;
use crate::state::Moments;
use crate::tree::{Structure, TreeMut};
use crate::{DType, GradientTransformation, OptState, Outcome, Real, Result};

pub(super) struct Memory<P, F> {
    trial: Trial<P, F>,
    pub(super) eval_cache: Box<EvaluationCache>,
    structure: std::sync::Arc<Structure>,
    pub(super) evaluations: usize,
    within: Option<Within>,
}

impl<P: TreeMut + Clone, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Memory<P, F> {
    pub(super) fn of<T: GradientTransformation>(state: &mut OptState<T>, f: F) -> Result<Self> {
        state.usable()?;
        let eval_cache = state.eval_cache.take().unwrap_or_default();
        let mut memory = Memory {
            trial: Trial::new(None, f),
            eval_cache,
            structure: state.shared_structure(),
            evaluations: 0,
            within: None,
        };
        memory.make_room(|eval_cache| &mut eval_cache.here)?;
        Ok(memory)
    }

    /// Moves the parameters into bounds, also in later steps.
    pub(super) fn keep_within(&mut self, bounds: [&Operand; 2], params: &mut P) -> Result<()> {
        let within = Within::new("minimize", &self.structure, bounds)?;
        within.project(params);
        self.within = Some(within);
        Ok(())
    }

    /// Forgets the evaluation: the function may have changed.
    pub(super) fn invalidate(&mut self) {
        self.eval_cache.here.fingerprint = None;
    }

    fn make_room(&mut self, of: fn(&mut EvaluationCache) -> &mut CachedEvaluation) -> Result<()> {
        let CachedEvaluation { gradient, .. } = of(&mut self.eval_cache);
        if gradient.is_empty() {
            let active = vec![true; self.structure.len()];
            *gradient = Moments::like(&self.structure, &active, 0.0, |leaf| leaf.dtype().compute())?;
        }
        Ok(())
    }

    /// Evaluates value and gradient at the parameters, unless cached.
    pub(super) fn evaluate_at(&mut self, params: &P) -> Result<()> {
        let (print, here) = (Some(fingerprint(params)), &mut self.eval_cache.here);
        if here.fingerprint != print {
            here.fingerprint = None;
            here.value = self.trial.call(params, &self.structure, &mut here.gradient)?;
            here.fingerprint = print;
            self.evaluations += 1;
        }
        Ok(())
    }

    pub(super) fn step<T: GradientTransformation>(
        &mut self,
        transformation: &T,
        params: &mut P,
        state: &mut OptState<T>,
    ) -> Result<Outcome> {
        if transformation.needs() >= Level::ValueFn {
            self.make_room(|eval_cache| &mut eval_cache.last)?;
            self.make_room(|eval_cache| &mut eval_cache.best)?;
            self.trial.point().get_or_insert_with(|| params.clone());
        }
        let Memory { trial, eval_cache, evaluations, within, .. } = self;
        let EvaluationCache { here, last, best } = &mut **eval_cache;
        (last.fingerprint, best.fingerprint) = (None, None);
        let mut watched = Watched { trial, last, best, evaluations, within: within.as_ref() };
        let outcome = state.step_from(transformation, params, here, Some(&mut watched))?;
        within.iter().for_each(|within| within.project(params));
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

    /// Returns the norm of the gradient, or within bounds of the projected gradient.
    pub(super) fn gradient_norm(&self, params: &P) -> f64 {
        let norm = self.whole_gradient_norm();
        match &self.within {
            Some(within) if norm.is_finite() => within.gradient_norm(params, &self.eval_cache.here.gradient),
            _ => norm,
        }
    }

    fn whole_gradient_norm(&self) -> f64 {
        let gradient = &self.eval_cache.here.gradient;
        fn square<C: Real>(structure: &Structure, gradient: &Moments, leaf: usize) -> f64 {
            let g = gradient.get::<C>(leaf).unwrap_or_default();
            dot(&structure.leaves()[leaf], g, g)
        }
        let squares = gradient.leaves().map(|leaf| match gradient.dtype(leaf) {
            Some(DType::F64) => square::<f64>(&self.structure, gradient, leaf),
            _ => square::<f32>(&self.structure, gradient, leaf),
        });
        let squares = squares.sum::<f64>();
        if is_safe(squares) {
            return squares.sqrt();
        }
        length(&mut || gradient.sizes())
    }
}

struct Watched<'a, P, F> {
    trial: &'a mut Trial<P, F>,
    last: &'a mut CachedEvaluation,
    best: &'a mut CachedEvaluation,
    evaluations: &'a mut usize,
    within: Option<&'a Within>,
}

impl<P: TreeMut, F: FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>> Evaluate for Watched<'_, P, F> {
    fn evaluate(&mut self, current: Current<'_>, point: &Moments, gradient: Option<&mut Moments>) -> Result<f64> {
        let Watched { trial, last, best, evaluations, .. } = self;
        let worth_keeping = best.fingerprint.is_none() || best.value.is_nan() || last.value < best.value;
        if last.fingerprint.is_some() && worth_keeping {
            core::mem::swap(*last, *best);
        }
        last.fingerprint = None;
        **evaluations += 1;
        last.value = trial.evaluate(current, point, Some(&mut last.gradient))?;
        last.fingerprint = trial.point().as_ref().map(fingerprint);
        gradient.into_iter().for_each(|to| to.copy_from(&last.gradient));
        Ok(last.value)
    }

    fn bounds(&self) -> Option<Arc<Bounds>> {
        self.within.map(|within| within.bounds.clone())
    }
}
