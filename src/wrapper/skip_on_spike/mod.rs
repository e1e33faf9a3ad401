mod statistic;

pub use statistic::{OfLoss, OfNorm, SpikeStatistic};

use crate::part::prelude::*;

/// Throws away steps whose gradient has a norm far above what it was lately: the update is zero, and nothing inside is
/// touched.
///
/// Nothing that comes after it in a chain runs in such a step, nor anything around it.
///
/// With [`of_loss`](SkipOnSpike::of_loss) it goes by the loss instead; what a step must be given is then part of the
/// type. A value that is not finite is always thrown away.
///
/// How far is too far, `deviations`, is 6 in the training of OLMo 2; ZClip, which clips where this skips, has 2.5.
///
/// # Arithmetic
///
/// With `x` the norm (or the loss) of this step and `n` the number of those that count so far:
///
/// ```text
/// spike:      x is not finite, or n ≥ warmup_steps and x > mean + deviations·√variance
/// spike:      u ← 0;  nothing else changes
/// otherwise:  u ← inner(u)
///             n ← n + 1;  a = max(1/n, 1 − decay);  d = x − mean
///             mean ← mean + a·d;  variance ← (1 − a)·(variance + a·d²)
/// ```
///
/// So for the first steps mean and variance are those of all values, then running ones. After `max_consecutive` spikes
/// in a row that are finite it is not a spike but how things are now: the step is taken, and `n` starts again from 0.
///
/// Defaults: `decay` 0.97, `warmup_steps` 25, `max_consecutive` 10.
///
/// # Cost
///
/// A few numbers of state. One more pass, which reads the gradients; none if it goes by the loss.
///
/// # Errors
///
/// `init` fails if `deviations` is negative or NaN, or `decay` is not in `[0, 1)`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::skip_on_spike;
///
/// let optimizer = skip_on_spike(sgd(1.0), 6.0).warmup_steps(3);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for gradient in [1.0, 3.0, 2.0] { // a mean of 2, a deviation of 0.8
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!(optimizer.step(&mut params, &100.0, &mut state)?.skipped());
/// assert_eq!(params, -6.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// OLMo team, [2 OLMo 2 Furious](https://arxiv.org/abs/2501.00656), 2025, whose optimizer skips a step if loss or norm
/// is more than 6 standard deviations from the mean of the last 128 steps; Kumar, Owen, Chowdhury and Güra, [ZClip:
/// adaptive spike mitigation for LLM pre-training](https://arxiv.org/abs/2504.02507), 2025, for running statistics
/// after a warm-up; Chowdhery et al., [PaLM](https://arxiv.org/abs/2204.02311), 2022, section 5.1, who skipped batches
/// by hand. Differs: from OLMo, running means instead of a window, and spikes do not count in them; only what is too
/// large is one. Optax has nothing like it.
pub fn skip_on_spike<T: Stage>(inner: T, deviations: f64) -> SkipOnSpike<T> {
    SkipOnSpike::with(inner, deviations, OfNorm)
}

wrapper! {
    /// See [`skip_on_spike`].
    pub SkipOnSpike<T, S: SpikeStatistic = OfNorm> as "skip_on_spike" around inner: Around<S::Needs> {
        deviations: f64 in AT_LEAST_0;
        of: @decides S;
        /// How much of mean and variance is kept from one step to the next, once there are enough steps; 0.97 by
        /// default.
        decay: f64 in DECAY = 0.97;
        /// How many steps must count before one can be a spike; 25 by default.
        warmup_steps: u64 = 25;
        /// How many finite spikes in a row are thrown away before they are taken for how things are now; 10 by default.
        max_consecutive: u64 = 10;
    }
    shows "{:?}": of;
}

impl<T> SkipOnSpike<T> {
    /// Goes by the loss instead of the norm.
    ///
    /// ```
    /// use gradchain::extra;
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::skip_on_spike;
    ///
    /// let optimizer = skip_on_spike(sgd(1.0), 6.0).of_loss().warmup_steps(1);
    /// let mut params = 0.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step_with(&mut params, &1.0, extra::value(0.5), &mut state)?;
    /// optimizer.step_with(&mut params, &1.0, extra::value(9.0), &mut state)?;
    /// assert_eq!(params, -1.0);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// ```compile_fail
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::skip_on_spike;
    ///
    /// let optimizer = skip_on_spike(sgd(1.0), 6.0).of_loss();
    /// let mut params = 0.0_f64;
    /// let mut state = optimizer.init(&params).unwrap();
    /// optimizer.step(&mut params, &1.0, &mut state).unwrap(); // there is no loss
    /// ```
    pub fn of_loss(self) -> SkipOnSpike<T, OfLoss> {
        let SkipOnSpike { inner, deviations, decay, warmup_steps, max_consecutive, .. } = self;
        SkipOnSpike { inner, deviations, of: OfLoss, decay, warmup_steps, max_consecutive }
    }
}

/// The state of a [`skip_on_spike`].
pub type SkipOnSpikeState<S> = WrapperState<SkipOnSpikeMemory, S>;

memory! {
    /// What a [`skip_on_spike`] remembers besides what is inside.
    pub SkipOnSpikeMemory {
        counted: Count,
        mean: Scalar,
        variance: Scalar,
        last: Scalar,
        spiked: Flag,
        consecutive: Count,
        total_spikes: Count,
    }
}

impl SkipOnSpikeMemory {
    /// The mean of the norms (or losses) lately.
    pub fn mean(&self) -> f64 {
        self.mean.get()
    }

    /// Their standard deviation.
    pub fn deviation(&self) -> f64 {
        self.variance.get().sqrt()
    }

    /// The norm (or loss) of the last step.
    pub fn last(&self) -> f64 {
        self.last.get()
    }

    /// Steps that were thrown away.
    pub fn total_spikes(&self) -> Count {
        self.total_spikes
    }

    /// Takes note of the value of a step; whether the step is to be done.
    fn take<T, S>(&mut self, value: f64, rule: &SkipOnSpike<T, S>) -> bool {
        self.last.set(value);
        let limit = self.mean.get() + rule.deviations * self.deviation();
        let spike = !value.is_finite() || self.counted.get() >= rule.warmup_steps && value > limit;
        if spike && value.is_finite() && self.consecutive.get() >= rule.max_consecutive {
            self.counted.reset();
        } else if spike {
            self.spiked.set(true);
            self.total_spikes.increment();
            if value.is_finite() {
                self.consecutive.increment();
            }
            return false;
        }
        self.spiked.set(false);
        self.consecutive.reset();
        self.counted.increment();
        let n = self.counted.get();
        // The first value is the mean, whatever the mean was before.
        let (mean, variance) = if n == 1 { (value, 0.0) } else { (self.mean.get(), self.variance.get()) };
        let (a, d) = ((1.0 / n as f64).max(1.0 - rule.decay), value - mean);
        self.mean.set(mean + a * d);
        self.variance.set((1.0 - a) * (variance + a * d * d));
        true
    }
}

impl<T: Stage, S: SpikeStatistic> Wrapper for SkipOnSpike<T, S> {
    type Memory = SkipOnSpikeMemory;
    const RUNS: Runs = Runs::DECIDED.looks(S::OF_GRADIENTS).holds_back(true);

    #[inline(always)]
    fn look<C: Real>(u: C) -> C::Wide {
        u.wide() * u.wide()
    }

    fn decide(&self, memory: &mut SkipOnSpikeMemory, at: &StepContext<'_>, squares: f64) -> Decision {
        let value = if S::OF_GRADIENTS { squares.sqrt() } else { at.value().unwrap_or(f64::NAN) };
        // In a step without gradients there is nothing to judge.
        if at.is_flush() || memory.take(value, self) { Decision::Run } else { Decision::Skip }
    }
}
