use crate::part::prelude::*;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales, shrink};

/// Clips the updates of each leaf to a root mean square of at most `threshold`.
///
/// # Arithmetic
///
/// For each leaf of `n` elements:
///
/// ```text
/// rms = √(Σ u² / n)                       in f64
/// u ← u · threshold / rms                 if rms > threshold; else unchanged
/// ```
///
/// An infinite element makes the leaf's factor 0 and itself NaN, a NaN makes the leaf NaN; other leaves are unaffected.
///
/// # Cost
///
/// No state for elements. One more pass, which reads gradients and writes nothing. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `threshold` is negative or NaN.
///
/// # Example
///
/// The first leaf has a root mean square of 5, the second of 1:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::clip_by_block_rms;
///
/// let optimizer = clip_by_block_rms(2.0);
/// let mut params = (vec![0.0_f64, 0.0], 0.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(vec![5.0_f64, -5.0], 1.0_f64), &mut state)?;
/// assert_eq!(params, (vec![2.0, -2.0], 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Shazeer and Stern, [Adafactor](https://arxiv.org/abs/1804.04235), 2018, section 6. Optax,
/// [`clip_by_block_rms`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the sum is `f64`,
/// and zeros with a `threshold` of 0 stay zeros instead of becoming NaN.
pub fn clip_by_block_rms(threshold: impl IntoHyperparam) -> ClipByBlockRms {
    ClipByBlockRms::with(threshold)
}

part! {
    /// See [`clip_by_block_rms`].
    pub ClipByBlockRms as "clip_by_block_rms": TwoPass, SAME_DIRECTION;
    required {
        /// The largest root mean square.
        threshold: AT_LEAST_0;
    }
}

impl Rescale for ClipByBlockRms {
    type Of = Updates;
    const BY_LEAF: bool = true;
    type Hyperparams = f64;

    fn hyperparams(&self, count: u64, _: Option<f64>) -> f64 {
        self.threshold.at(count)
    }

    fn factor(threshold: f64, [squares]: [Squares; 1], len: usize) -> f64 {
        shrink(squares.rms(len), threshold)
    }
}

rescales!(ClipByBlockRms);
