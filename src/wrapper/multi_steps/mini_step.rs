//! What a `multi_steps` does in one mini-step.

use super::{MultiSteps, SkipUpdate, Window};
use crate::element::{DType, Real};
use crate::engine::{Around, Decision, InitContext, Part, Stage, StepContext, Wrapper};
use crate::error::Result;
use crate::needs::{Level, Nothing};
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Flag, Scalar};

/// How a gradient is taken up; worked out for one mini-step.
#[derive(Clone, Copy, Debug)]
pub struct Accumulate<C = f64> {
    /// By which the gradient, or its distance from the mean, is multiplied.
    factor: C,
    mean: bool,
    /// There is no gradient; the accumulator is emitted as it is.
    flush: bool,
    /// The window is full, and the accumulator emptied.
    emit: bool,
    /// The loss that what is inside is given.
    value: Option<f64>,
}

impl<T: Stage, S: SkipUpdate> MultiSteps<T, S> {
    /// Counts a mini-step that is not thrown away, and says whether it was the last of its window.
    fn count(&self, window: &mut Window, at: &StepContext<'_>) -> Accumulate {
        let mut step =
            Accumulate { factor: 1.0, mean: self.use_grad_mean, flush: at.is_flush(), emit: false, value: None };
        if step.flush {
            step.emit = window.mini_step.get() > 0;
        } else {
            let weight = window.next_weight.get();
            let total = window.weight.get() + weight;
            step.factor = if self.use_grad_mean { weight / total } else { weight };
            if let (Some(sum), Some(value)) = (&mut window.value, at.value()) {
                let change = if self.use_grad_mean { value - sum.get() } else { value };
                sum.set(sum.get() + change * step.factor);
            }
            window.weight.set(total);
            window.next_weight.set(1.0);
            window.mini_step.increment();
            step.emit = window.mini_step.get() as f64 >= self.window(window.gradient_step.get());
        }
        if step.emit {
            window.mini_step.reset();
            window.weight.set(0.0);
            window.gradient_step.increment();
            step.value = window.value.as_mut().map(|sum| core::mem::take(sum).get());
        }
        step
    }
}

impl<T: Stage, S: SkipUpdate> Part for MultiSteps<T, S> {
    const NAME: &'static str = "multi_steps";
    type Form = Around;

    fn validate(&self) -> Result<()> {
        if let Hyperparam::Schedule(schedule) = &self.every_k {
            schedule.validate()?;
        }
        self.check_window(0)?;
        self.skip.validate()
    }

    fn recipe(&self) -> Recipe {
        let every_k = match self.every_k {
            Hyperparam::Number(k) if k.fract() == 0.0 => Recipe::Integer(k as i128),
            _ => self.every_k.to_recipe(),
        };
        let arguments = [
            ("inner", self.inner.recipe()),
            ("every_k_schedule", every_k),
            ("use_grad_mean", self.use_grad_mean.to_recipe()),
            ("should_skip_update_fn", self.skip.to_recipe()),
            ("accumulator_dtype", self.accumulator_dtype.to_recipe()),
        ];
        Recipe::call(Self::NAME, arguments)
    }

    fn describe(&self) -> String {
        match &self.every_k {
            Hyperparam::Number(k) => format!("multi_steps({}, {k})", self.inner.describe()),
            schedule => format!("multi_steps({}, {schedule})", self.inner.describe()),
        }
    }
}

impl<T: Stage, S: SkipUpdate> Wrapper for MultiSteps<T, S> {
    const SLOTS: &'static [&'static str] = &["accumulator"];
    const LOOKS: bool = S::DECIDES;
    const BEFORE: bool = true;
    type Inner = T;
    type Asks = Nothing;
    type Memory = Window;
    type Run = Accumulate;
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = Accumulate<C>;

    fn inner(&self) -> &T {
        &self.inner
    }

    fn slot_dtype(&self, _: usize) -> Option<DType> {
        self.accumulator_dtype
    }

    fn start(&self, _: &InitContext<'_>, _: &T::State) -> Result<Window> {
        Ok(Window {
            mini_step: Count::default(),
            gradient_step: Count::default(),
            weight: Scalar::default(),
            next_weight: Scalar::new(1.0),
            skipped: Flag::default(),
            measured: Scalar::default(),
            value: (self.inner.needs() >= Level::Value).then(Scalar::default),
        })
    }

    fn check(&self, window: &Window, _: &StepContext<'_>) -> Result<()> {
        self.check_window(window.gradient_step.get())
    }

    fn look<C: Real>(u: C) -> C::Wide {
        <C::Wide as Real>::of(S::measure(u))
    }

    fn decide(&self, window: &mut Window, at: &StepContext<'_>, seen: f64) -> Decision<Accumulate> {
        if S::DECIDES {
            window.measured.set(seen);
        }
        let skips = S::DECIDES && !at.is_flush() && self.skip.skips(seen);
        window.skipped.set(skips);
        if skips {
            return Decision::Skip;
        }
        let step = self.count(window, at);
        if step.emit { Decision::Run(step) } else { Decision::Hold(step) }
    }

    fn tell<'a>(&self, step: &Accumulate, at: &StepContext<'a>) -> StepContext<'a> {
        // What is inside has its gradients, whether or not this step brought any.
        at.with_gradients(step.value)
    }

    fn scalars<C: Real>(&self, _: &Window, step: &Accumulate, _: usize) -> Accumulate<C> {
        let Accumulate { factor, mean, flush, emit, value } = *step;
        Accumulate { factor: C::of(factor), mean, flush, emit, value }
    }

    #[inline(always)]
    fn before<C: Real>(k: Accumulate<C>, [acc]: &mut [C; 1], u: C, _: C) -> C {
        let change = if k.mean { u - *acc } else { u };
        let next = if k.flush { *acc } else { *acc + change * k.factor };
        *acc = if k.emit { C::zero() } else { next };
        next
    }
}
