mod statistic;

pub use statistic::{OfLoss, OfNorm, SpikeStatistic};

use crate::GradientTransformation;
use crate::part::prelude::*;

/// Skips steps whose gradient norm is far above its recent mean: the update is zero.
///
/// The inner state is then unmodified, and neither later members of a chain nor wrappers run in such a step.
///
/// With [`of_loss`](SkipOnSpike::of_loss) it judges the loss instead; its type then makes the loss an input of a step.
/// A value that is not finite is always skipped.
///
/// The threshold `deviations` is 6 in the training of OLMo 2; ZClip, which clips where this skips, uses 2.5.
///
/// # Arithmetic
///
/// With `x` the norm (or the loss) of this step and `n` the number of counted steps:
///
/// ```text
/// spike:      x is not finite, or n ≥ warmup_steps and x > mean + deviations·√variance
/// spike:      u ← 0;  nothing else changes
/// otherwise:  u ← inner(u)
///             n ← n + 1;  a = max(1/n, 1 − decay);  d = x − mean
///             mean ← mean + a·d;  variance ← (1 − a)·(variance + a·d²)
/// ```
///
/// In the first steps mean and variance cover all values; later they are exponential moving averages. After
/// `max_consecutive` finite spikes in a row the next one counts as a change of level: the step runs, and `n` starts
/// again from 0.
///
/// Defaults: `decay` 0.97, `warmup_steps` 25, `max_consecutive` 10.
///
/// # Cost
///
/// A few numbers of state. One additional pass, which reads the gradients; none with the loss.
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
/// by hand. Differs: from OLMo, running means instead of a window, spikes do not count in them, and only large values
/// are spikes. Optax has none.
pub fn skip_on_spike<T: GradientTransformation>(inner: T, deviations: f64) -> SkipOnSpike<T> {
    SkipOnSpike::with(inner, deviations, OfNorm)
}

wrapper! {
    /// See [`skip_on_spike`].
    pub SkipOnSpike<T, S: SpikeStatistic = OfNorm> as "skip_on_spike" around inner: Around<S::Needs> {
        deviations: f64 in AT_LEAST_0;
        of: @decides S;
        /// Sets the decay of mean and variance after the first steps; 0.97 by default.
        decay: f64 in DECAY = 0.97;
        /// Sets the number of counted steps before one can be a spike; 25 by default.
        warmup_steps: u64 = 25;
        /// Sets the finite spikes in a row that are skipped before they count as a change of level; 10 by default.
        max_consecutive: u64 = 10;
    }
    shows "{:?}": of;
}

impl<T> SkipOnSpike<T> {
    /// Judges the loss instead of the norm.
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
    /// optimizer.step(&mut params, &1.0, &mut state).unwrap(); // no loss
    /// ```
    pub fn of_loss(self) -> SkipOnSpike<T, OfLoss> {
        let SkipOnSpike { inner, deviations, decay, warmup_steps, max_consecutive, .. } = self;
        SkipOnSpike { inner, deviations, of: OfLoss, decay, warmup_steps, max_consecutive }
    }
}

/// The state of a [`skip_on_spike`].
pub type SkipOnSpikeState<S> = WrapperState<SkipOnSpikeMemory, S>;

memory! {
    /// The memory of a [`skip_on_spike`], besides the inner state.
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
    /// Returns the running mean of the norms (or losses).
    pub fn mean(&self) -> f64 {
        self.mean.get()
    }

    /// Returns their standard deviation.
    pub fn deviation(&self) -> f64 {
        self.variance.get().sqrt()
    }

    /// Returns the norm (or loss) of the last step.
    pub fn last(&self) -> f64 {
        self.last.get()
    }

    /// Returns the number of skipped steps.
    pub fn total_spikes(&self) -> Count {
        self.total_spikes
    }

    /// Records a step's value; returns true if the step runs.
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
        // The first value is the mean.
        let (mean, variance) = if n == 1 { (value, 0.0) } else { (self.mean.get(), self.variance.get()) };
        let (a, d) = ((1.0 / n as f64).max(1.0 - rule.decay), value - mean);
        self.mean.set(mean + a * d);
        self.variance.set((1.0 - a) * (variance + a * d * d));
        true
    }
}

impl<T: GradientTransformation, S: SpikeStatistic> Wrapper for SkipOnSpike<T, S> {
    type Memory = SkipOnSpikeMemory;
    const RUNS: Runs = Runs::DECIDED.reduces_gradients(S::OF_GRADIENTS).holds_back(true);

    #[inline(always)]
    fn gradient_term<C: Real>(u: C) -> C::Wide {
        u.wide() * u.wide()
    }

    fn decide(&self, memory: &mut SkipOnSpikeMemory, at: &StepContext<'_>, squares: f64) -> Decision {
        let value = if S::OF_GRADIENTS { squares.sqrt() } else { at.value().unwrap_or(f64::NAN) };
        // A step without gradients is not judged.
        if at.is_flush() || memory.take(value, self) { Decision::Run } else { Decision::Skip }
    }
}
