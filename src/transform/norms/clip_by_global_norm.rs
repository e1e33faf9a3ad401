use crate::part::prelude::*;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales, shrink};

/// Clips updates by their global norm: scales all leaves down together to a norm of at most `max_norm`.
///
/// # Arithmetic
///
/// ```text
/// norm = √(Σ u²)                          over the elements of all leaves, in f64
/// u ← u · max_norm / norm                 if norm > max_norm; else unchanged
/// ```
///
/// The factor is computed in `f64` and rounded once. An infinite element makes the factor 0 and itself NaN, a NaN makes
/// everything NaN: put [`zero_nans`](crate::zero_nans) before it, or [`apply_if_finite`](crate::apply_if_finite) around
/// it, if such gradients can occur. If squares of `f64` elements overflow or vanish, they are summed once more, scaled
/// by a power of two.
///
/// # Cost
///
/// No state for elements. One more pass, which reads gradients and writes nothing; stateless stages before it are
/// recomputed rather than stored. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `max_norm` is negative or NaN. An infinite one never clips.
///
/// # Example
///
/// The norm of [3, 4] is 5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
///
/// let optimizer = chain((clip_by_global_norm(2.5), scale(-1.0)));
/// let mut params = (1.0_f64, vec![1.0_f64]);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(3.0_f64, vec![4.0_f64]), &mut state)?;
/// assert_eq!(params, (-0.5, vec![-1.0]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pascanu, Mikolov and Bengio, [On the difficulty of training recurrent neural
/// networks](https://arxiv.org/abs/1211.5063), 2012, algorithm 1. Optax,
/// [`clip_by_global_norm`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the sum is `f64`,
/// so that large `f32` updates have a norm; zeros with a `max_norm` of 0, and infinities with an infinite one, are left
/// alone instead of becoming NaN. PyTorch's `clip_grad_norm_` divides by the norm plus 1e-6.
pub fn clip_by_global_norm(max_norm: impl IntoHyperparam) -> ClipByGlobalNorm {
    ClipByGlobalNorm::with(max_norm)
}

part! {
    /// See [`clip_by_global_norm`].
    pub ClipByGlobalNorm as "clip_by_global_norm": TwoPass, LIMITS;
    required {
        /// The largest norm.
        max_norm: AT_LEAST_0;
    }
}

impl Rescale for ClipByGlobalNorm {
    type Of = Updates;
    const BY_LEAF: bool = false;
    type Hyperparams = f64;

    fn hyperparams(&self, count: u64, _: Option<f64>) -> f64 {
        self.max_norm.at(count)
    }

    fn factor(max_norm: f64, [squares]: [Squares; 1], _: usize) -> f64 {
        shrink(squares.norm(), max_norm)
    }
}

rescales!(ClipByGlobalNorm);
