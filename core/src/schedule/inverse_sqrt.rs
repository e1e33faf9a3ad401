//! Inverse square root decay.

use super::Kind;
use super::declared::schedule;

/// Warms up linearly, then decays with the inverse square root of the step.
///
/// # Arithmetic
///
/// ```text
/// t = count + 1
/// value = peak_value·min(t / warmup_steps, √(warmup_steps / t))
/// ```
///
/// Steps are counted from 1, so that the first has a value above 0; the peak is the `warmup_steps`-th.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `warmup_steps` 0 and a value that is not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::inverse_sqrt;
/// let schedule = inverse_sqrt(8.0, 4);
/// assert_eq!([0, 1, 3, 15, 63].map(|count| schedule.at(count)), [2.0, 4.0, 8.0, 4.0, 2.0]);
/// ```
///
/// # References
///
/// Vaswani et al., [Attention is all you need](https://arxiv.org/abs/1706.03762), 2017, section 5.3, which derives the
/// peak from the model's width: see [`noam`]. fairseq: `inverse_sqrt`, which may start above 0. Optax and PyTorch:
/// none.
pub fn inverse_sqrt(peak_value: f64, warmup_steps: u64) -> InverseSqrt {
    InverseSqrt::with(peak_value, warmup_steps)
}

/// Returns the [`inverse_sqrt`] of the Transformer, with the peak `1 / √(model_width·warmup_steps)`.
///
/// ```text
/// value = model_width^−0.5 · min(t^−0.5, t·warmup_steps^−1.5)          t = count + 1
/// ```
///
/// ```
/// use gradchain::schedule::noam;
/// assert_eq!([0, 15, 63].map(|count| noam(4, 16).at(count)), [1.0 / 128.0, 0.125, 0.0625]);
/// ```
pub fn noam(model_width: u64, warmup_steps: u64) -> InverseSqrt {
    inverse_sqrt(1.0 / (model_width as f64 * warmup_steps as f64).sqrt(), warmup_steps)
}

schedule! {
    /// See [`inverse_sqrt`].
    #[derive(Copy)]
    InverseSqrt as "inverse_sqrt" (
        /// The largest value.
        peak_value: f64 in FINITE,
        /// The step of the largest value, from 1.
        warmup_steps: u64 in AT_LEAST_1,
    )
}

impl Kind for InverseSqrt {
    fn value(&self, count: u64) -> f64 {
        let (t, warmup_steps) = (count as f64 + 1.0, self.warmup_steps as f64);
        self.peak_value * (t / warmup_steps).min((warmup_steps / t).sqrt())
    }
}
