//! A mini-step of `multi_steps`.

use super::{MultiSteps, MultiStepsMemory, SkipUpdate};
use crate::engine::Absent;
use crate::needs::Level;
use crate::part::prelude::*;

/// The accumulation of one mini-step's gradient.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accumulation<C = f64> {
    /// Of the gradient, or of its distance from the mean.
    factor: C,
    mean: bool,
    /// True if no gradient counts and the accumulator stays.
    flush: bool,
    /// True if the window is full and the accumulator is emptied.
    emit: bool,
    value: Option<f64>,
}

impl MultiStepsMemory {
    /// Counts a mini-step unless its gradients are missing or discarded; decides whether to emit.
    fn count<T, S>(&mut self, steps: &MultiSteps<T, S>, at: &StepContext<'_>, takes: bool) -> Accumulation {
        let mean = steps.use_grad_mean;
        let mut accumulation = Accumulation { factor: 1.0, mean, flush: !takes, emit: at.flush, value: None };
        if takes {
            let weight = self.next_weight.get();
            // A gradient of weight 0 is not read: it may be NaN.
            accumulation.flush = weight == 0.0;
            if weight > 0.0 {
                self.accumulate(&mut accumulation, at, weight);
            }
            self.next_weight.set(1.0);
            self.mini_step.increment();
            accumulation.emit |= self.mini_step.get() as f64 >= steps.every_k_schedule.window(self.gradient_step.get());
        }
        if accumulation.emit && self.weight.get() == 0.0 {
            // Accumulators are zero, so no mean is emitted.
            self.mini_step.reset();
            accumulation.emit = false;
        }
        if accumulation.emit {
            self.mini_step.reset();
            self.weight.set(0.0);
            self.gradient_step.increment();
            for (leaf, seen) in self.seen.iter_mut() {
                self.absent[leaf] = !core::mem::take(seen).get();
            }
            accumulation.value = self.value.as_mut().map(|sum| core::mem::take(sum).get());
        }
        accumulation
    }

    /// Adds a gradient of positive weight to the window.
    fn accumulate(&mut self, accumulation: &mut Accumulation, at: &StepContext<'_>, weight: f64) {
        let total = self.weight.get() + weight;
        accumulation.factor = if accumulation.mean { weight / total } else { weight };
        if let (Some(sum), Some(value)) = (&mut self.value, at.value()) {
            let change = if accumulation.mean { value - sum.get() } else { value };
            sum.set(sum.get() + change * accumulation.factor);
        }
        self.weight.set(total);
        for (leaf, seen) in self.seen.iter_mut() {
            *seen = Flag::new(seen.get() || !at.is_absent(leaf));
        }
    }
}

impl<T: Stage, S: SkipUpdate> Wrapper for MultiSteps<T, S> {
    type Memory = MultiStepsMemory;
    const RUNS: Runs = Runs::DECIDED.reduces_gradients(S::DECIDES).holds_back(true).windows();

    fn start(&self, window: &mut MultiStepsMemory, at: &InitContext<'_>) -> Result<()> {
        window.use_grad_mean = self.use_grad_mean;
        window.value = (self.inner.needs() >= Level::Value).then(Scalar::default);
        if self.inner.absent() != Absent::Refused {
            window.seen = PerLeaf::new(at.active(), Flag::default());
            window.absent = vec![false; at.structure().len()];
        }
        Ok(())
    }

    fn check(&self, window: &MultiStepsMemory, _: &StepContext<'_>) -> Result<()> {
        self.every_k_schedule.check(window.gradient_step.get())
    }

    #[inline(always)]
    fn gradient_term<C: Real>(u: C) -> C::Wide {
        S::measure(u)
    }

    fn decide(&self, window: &mut MultiStepsMemory, at: &StepContext<'_>, gradient_sum: f64) -> Decision {
        if S::DECIDES {
            window.measured.set(gradient_sum);
        }
        let judged = S::DECIDES && !at.is_flush() && window.next_weight.get() > 0.0;
        let skips = judged && self.should_skip_update_fn.skips(gradient_sum);
        window.skipped.set(skips);
        if skips {
            // The weight belonged to this mini-step.
            window.next_weight.set(1.0);
        }
        let takes = !at.is_flush() && !skips;
        if !(takes || at.flush && window.mini_step.get() > 0) {
            return match (skips, window.pending_inside && at.is_flush()) {
                (true, _) => Decision::Skip,
                (_, true) => Decision::InnerOnly,
                _ => Decision::Hold,
            };
        }
        window.accumulation = window.count(self, at, takes);
        if window.accumulation.emit { Decision::Run } else { Decision::Hold }
    }

    fn inner_context<'a>(&self, window: &'a MultiStepsMemory, at: &StepContext<'a>) -> StepContext<'a> {
        // The inner transformation has gradients even if this step has none, except for leaves without one in the whole
        // window.
        StepContext { absent: &window.absent, ..at.with_gradients(window.accumulation.value) }
    }
}

impl<T: Stage, S: SkipUpdate> Arithmetic for MultiSteps<T, S> {
    const SLOTS: &'static [Slot] = &[Slot::exact("accumulator")];
    // `before` only reads: after a barrier the mean is computed again instead of being stored twice.
    const ELEMENTS: Elements = Elements::NONE.before(true).after(false).before_reads().completes();
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Accumulation<C>;

    fn scalars<C: Real>(&self, window: &MultiStepsMemory, _: usize) -> Accumulation<C> {
        let Accumulation { factor, mean, flush, emit, value } = window.accumulation;
        Accumulation { factor: C::of(factor), mean, flush, emit, value }
    }

    #[inline(always)]
    fn before<C: Real>(k: Accumulation<C>, [acc]: &mut [C; 1], u: C, _: C) -> C {
        let change = if k.mean { u - *acc } else { u };
        let next = if k.flush { *acc } else { *acc + change * k.factor };
        // If the mean is emitted, `after` empties the accumulator.
        *acc = next;
        next
    }

    #[inline(always)]
    fn after<C: Real>(_: Accumulation<C>, [acc]: &mut [C; 1], u: C, _: C) -> C {
        *acc = C::zero();
        u
    }
}
