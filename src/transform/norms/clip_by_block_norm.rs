use crate::part::prelude::*;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales, shrink};

/// Clips the updates of each leaf to a norm of at most `max_norm`.
///
/// # Arithmetic
///
/// For each leaf:
///
/// ```text
/// norm = √(Σ u²)                          in f64
/// u ← u · max_norm / norm                 if norm > max_norm; else unchanged
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
/// `init` fails if `max_norm` is negative or NaN.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::clip_by_block_norm;
///
/// let optimizer = clip_by_block_norm(2.5);
/// let mut params = (vec![0.0_f64, 0.0], 0.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(vec![3.0_f64, -4.0], 1.0_f64), &mut state)?;
/// assert_eq!(params, (vec![1.5, -2.0], 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pascanu, Mikolov and Bengio, [On the difficulty of training recurrent neural
/// networks](https://arxiv.org/abs/1211.5063), 2012, algorithm 1, for each leaf. Optax has none;
/// [`clip_by_block_rms`](crate::transform::clip_by_block_rms) is similar. Differs: the sum is `f64`.
pub fn clip_by_block_norm(max_norm: impl IntoHyperparam) -> ClipByBlockNorm {
    ClipByBlockNorm::with(max_norm)
}

part! {
    /// See [`clip_by_block_norm`].
    pub ClipByBlockNorm as "clip_by_block_norm": TwoPass, LIMITS;
    required {
        /// The largest norm of a leaf.
        max_norm: AT_LEAST_0;
    }
}

impl Rescale for ClipByBlockNorm {
    type Of = Updates;
    const BY_LEAF: bool = true;
    type Hyperparams = f64;

    fn hyperparams(&self, count: u64, _: Option<f64>) -> f64 {
        self.max_norm.at(count)
    }

    fn factor(max_norm: f64, [squares]: [Squares; 1], _: usize) -> f64 {
        shrink(squares.norm(), max_norm)
    }
}

rescales!(ClipByBlockNorm);
