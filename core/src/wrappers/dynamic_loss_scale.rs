use super::multi_steps::not_finite;
use crate::needs::Level;
use crate::part::prelude::*;
use crate::state::StateWalk;
use crate::transformation::OptState;

/// Divides gradients by their loss scale, skips steps in which they are not finite, and adapts the scale.
///
/// It serves mixed-precision training in `f16`. The gradients of a loss are often too small for `f16`, in which numbers
/// below 6e-8 become 0; those of `scale × loss` are not. Multiply the loss by [`loss_scale`](OptState::loss_scale)
/// before the backward pass and pass the gradients to `step` unmodified: the inner transformation sees the gradients of
/// the loss itself, in the compute type (`f32` for `f16`). A gradient that is not finite indicates a scale that is too
/// large. The step is then skipped, [`skipped`](crate::Outcome::skipped) reports it, and the scale backs off. After
/// `growth_interval` steps in a row without one the scale grows.
///
/// A skipped step changes no inner state: moments, step counts and schedules stay. Neither later members of a chain nor
/// wrappers run in it. An inner transformation that needs the loss gets the loss itself, without the scale.
///
/// Around [`multi_steps`] it judges each mini-step and omits one that overflows from the window.
/// Inside, it judges the window, in which all mini-steps have the same scale: `multi_steps(dynamic_loss_scale(t), k)`
/// does what PyTorch's `GradScaler` does with accumulated gradients. A clip goes inside, because outside it would see
/// scaled gradients.
///
/// # Arithmetic
///
/// ```text
/// all gradients finite:   u ← inner(u / scale);  growth_tracker ← growth_tracker + 1
///                         if growth_tracker = growth_interval:
///                             scale ← min(scale·growth_factor, max_scale);  growth_tracker ← 0
/// else:                   u ← 0
///                         scale ← max(scale·backoff_factor, min_scale);     growth_tracker ← 0
/// ```
///
/// Defaults: `init_scale` 2¹⁶, `growth_factor` 2, `backoff_factor` 0.5, `growth_interval` 2000, `min_scale` 1,
/// `max_scale` 2²⁴. Factors that are powers of two keep gradients exact.
///
/// # Cost
///
/// One additional pass, which reads the gradients and stores nothing. The gradients are divided in the pass of the
/// inner transformation. A few numbers of state.
///
/// # Errors
///
/// `init` fails if an argument is out of its range, if `init_scale` is not between `min_scale` and `max_scale`, or if
/// the inner transformation computes gradients of its own (`sam` in opaque mode, line searches), which are not scaled.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::dynamic_loss_scale;
///
/// let optimizer = dynamic_loss_scale(sgd(0.5)).init_scale(1024.0).growth_interval(2);
/// let mut params = 1.0_f32;
/// let mut state = optimizer.init(&params)?;
/// let gradient = |scale: f64| 0.25 * scale as f32; // of the loss times the scale
///
/// let overflow = optimizer.step(&mut params, &f32::INFINITY, &mut state)?;
/// assert!(overflow.skipped() && params == 1.0);
/// assert_eq!(state.loss_scale()?, 512.0);
/// for _ in 0..2 {
///     let scale = state.loss_scale()?;
///     optimizer.step(&mut params, &gradient(scale), &mut state)?;
/// }
/// assert_eq!(params, 0.75);
/// assert_eq!(state.loss_scale()?, 1024.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Micikevicius et al., [Mixed precision training](https://arxiv.org/abs/1710.03740), 2018, section 3.2. PyTorch,
/// [`GradScaler`](https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling), with the same defaults. Differs: the
/// scale has a minimum and a maximum; one call does what `scale`, `unscale_`, `step` and `update` do. Keras,
/// [`LossScaleOptimizer`](https://keras.io/api/optimizers/loss_scale_optimizer/): `initial_scale` and
/// `dynamic_growth_steps` are `init_scale` and `growth_interval` here. DeepMind's
/// [jmp](https://github.com/google-deepmind/jmp), `DynamicLossScale`: `period`, `factor` and `min_loss_scale`. Optax
/// has none.
///
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
pub fn dynamic_loss_scale<T: Stage>(inner: T) -> DynamicLossScale<T> {
    DynamicLossScale::with(inner)
}

wrapper! {
    /// See [`dynamic_loss_scale`].
    pub DynamicLossScale<T> as "dynamic_loss_scale" around inner: AroundWithArithmetic {
        /// Sets the scale of the first step; 65536 by default.
        init_scale: f64 in POSITIVE = 65536.0;
        /// Sets the factor of growth; 2 by default.
        growth_factor: f64 in ABOVE_1 = 2.0;
        /// Sets the factor after a skipped step; 0.5 by default.
        backoff_factor: f64 in OPEN_UNIT_INTERVAL = 0.5;
        /// Sets the number of finite steps in a row after which the scale grows; 2000 by default.
        growth_interval: u64 in AT_LEAST_1 = 2000;
        /// Sets the smallest scale; 1 by default.
        min_scale: f64 in POSITIVE = 1.0;
        /// Sets the largest scale; 2²⁴ by default.
        max_scale: f64 in POSITIVE = 16_777_216.0;
    }
    check Self::check_arguments;
}

impl<T: Stage> DynamicLossScale<T> {
    fn check_arguments(&self) -> Result<()> {
        let refuse = |argument, expected: &str, found: String| {
            Err(Error::argument("dynamic_loss_scale", argument, expected, found))
        };
        if !(self.min_scale..=self.max_scale).contains(&self.init_scale) {
            let expected = format!("from `min_scale` ({}) to `max_scale` ({})", self.min_scale, self.max_scale);
            return refuse("init_scale", &expected, self.init_scale.to_string());
        }
        if self.inner.needs() >= Level::ValueFn {
            let expected = "without parts that compute their own, unscaled gradients: put it around their base";
            return refuse("inner", expected, self.inner.describe());
        }
        Ok(())
    }
}

/// The state of a [`dynamic_loss_scale`].
pub type DynamicLossScaleState<S> = WrapperState<LossScale, S>;

memory! {
    /// The memory of a [`dynamic_loss_scale`], besides the state of the inner transformation.
    pub LossScale {
        scale: Scalar,
        growth_tracker: Count,
        last_finite: Flag = Flag::new(true),
        total_skipped: Count,
    }
    beside {
        /// The factor of this step's gradients.
        unscale: f64,
    }
    shown as part;
}

impl LossScale {
    /// Returns the factor of the next step's loss.
    pub fn scale(&self) -> f64 {
        self.scale.get()
    }

    /// Returns the number of finite steps in a row since the scale last changed.
    pub fn growth_tracker(&self) -> Count {
        self.growth_tracker
    }

    /// Returns whether the last gradients were finite.
    pub fn last_finite(&self) -> Flag {
        self.last_finite
    }

    /// Returns the number of skipped steps.
    pub fn total_skipped(&self) -> Count {
        self.total_skipped
    }
}

impl<T: Stage> OptState<T> {
    /// Returns the scale of the next step's loss, from the optimizer's [`dynamic_loss_scale`].
    ///
    /// It finds this at any depth: in chains, wrappers and boxes.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::dynamic_loss_scale;
    ///
    /// let optimizer: Boxed = boxed(multi_steps(dynamic_loss_scale(sgd(1.0)), 2));
    /// let state = optimizer.init(&1.0_f32)?;
    /// assert_eq!(state.loss_scale()?, 65536.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the optimizer has no `dynamic_loss_scale`, or several, because one loss has one scale; if the state is
    /// poisoned.
    pub fn loss_scale(&self) -> Result<f64> {
        self.usable()?;
        let mut found: Vec<(String, f64)> = Vec::new();
        self.walk(&mut StateWalk::of_parts(&mut |path, part| {
            found.extend(part.downcast_ref().map(|memory: &LossScale| (path.to_owned(), memory.scale())));
        }));
        let problem = match &found[..] {
            [(_, scale)] => return Ok(*scale),
            [] => "this optimizer has no `dynamic_loss_scale`".to_owned(),
            several => {
                let paths = several.iter().map(|(path, _)| format!("`{path}`")).collect::<Vec<_>>();
                format!("this optimizer has several, at {}: put one around all", paths.join(", "))
            }
        };
        Err(Error::state("loss_scale", problem))
    }
}

impl<T: Stage> Wrapper for DynamicLossScale<T> {
    type Memory = LossScale;
    const RUNS: Runs = Runs::DECIDED.reduces_gradients(true).holds_back(true);

    fn start(&self, memory: &mut LossScale, _: &InitContext<'_>) -> Result<()> {
        memory.scale.set(self.init_scale);
        Ok(())
    }

    #[inline(always)]
    fn gradient_term<C: Real>(u: C) -> C::Wide {
        <C::Wide as Real>::of(not_finite(u))
    }

    fn decide(&self, memory: &mut LossScale, at: &StepContext<'_>, not_finite: f64) -> Decision {
        if at.is_flush() {
            return Decision::InnerOnly;
        }
        let (scale, finite) = (memory.scale.get(), not_finite == 0.0);
        memory.unscale = 1.0 / scale;
        memory.last_finite.set(finite);
        if !finite {
            memory.scale.set((scale * self.backoff_factor).max(self.min_scale));
            memory.growth_tracker.reset();
            memory.total_skipped.increment();
            return Decision::Skip;
        }
        memory.growth_tracker.increment();
        if memory.growth_tracker.get() >= self.growth_interval {
            memory.scale.set((scale * self.growth_factor).min(self.max_scale));
            memory.growth_tracker.reset();
        }
        Decision::Run
    }
}

impl<T: Stage> Arithmetic for DynamicLossScale<T> {
    const ELEMENTS: Elements = Elements::NONE.before(true);
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, memory: &LossScale, _: usize) -> C {
        C::of(memory.unscale)
    }

    #[inline(always)]
    fn before<C: Real>(unscale: C, _: &mut [C; 0], u: C, _: C) -> C {
        u * unscale
    }
}
