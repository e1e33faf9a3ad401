use crate::part::prelude::*;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales};

/// Scales the updates of all leaves together to a given norm, up to `eps`.
///
/// # Arithmetic
///
/// ```text
/// u ← u·scale_factor / (√(Σ u²) + eps)    summed over all leaves in f64; zeros stay zeros
/// ```
///
/// # Cost
///
/// No state for elements. One more pass, which reads gradients and writes nothing. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `scale_factor` is not finite, or `eps` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::normalize_by_update_norm;
///
/// let optimizer = normalize_by_update_norm().scale_factor(2.0).eps(0.0);
/// let mut params = (0.0_f64, 0.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(6.0_f64, 8.0_f64), &mut state)?;
/// approx::assert_relative_eq!(params.0, 1.2, max_relative = 1e-15);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`normalize_by_update_norm`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: with
/// an `eps` of 0, Optax makes NaN of updates that are all zero; the sum is `f64`.
pub fn normalize_by_update_norm() -> NormalizeByUpdateNorm {
    NormalizeByUpdateNorm::with()
}

part! {
    /// See [`normalize_by_update_norm`].
    pub NormalizeByUpdateNorm as "normalize_by_update_norm": TwoPass, SAME_DIRECTION;
    hyperparams {
        /// The norm of the updates.
        scale_factor: FINITE = 1.0;
        /// Added to the norm.
        eps: NOT_NEGATIVE = 1e-6;
    }
}

impl Rescale for NormalizeByUpdateNorm {
    type Of = Updates;
    const BY_LEAF: bool = false;
    type Hyperparams = [f64; 2];

    fn hyperparams(&self, count: u64, _: Option<f64>) -> [f64; 2] {
        Hyperparam::all_at([&self.scale_factor, &self.eps], count)
    }

    fn factor([scale_factor, eps]: [f64; 2], [squares]: [Squares; 1], _: usize) -> f64 {
        let norm = squares.norm() + eps;
        if norm == 0.0 { 1.0 } else { scale_factor / norm }
    }
}

rescales!(NormalizeByUpdateNorm);
