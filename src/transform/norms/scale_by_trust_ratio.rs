use crate::part::prelude::*;
use crate::transform::rescale::{Rescale, Squares, UpdatesAndParams, at_least, rescales};

/// Scales the updates of each leaf to a norm proportional to that of its parameters.
///
/// # Arithmetic
///
/// For each leaf, with norms summed in `f64`:
///
/// ```text
/// P = max(‖p‖, min_norm)
/// U = max(‖u‖, min_norm)
/// u ← u · trust_coefficient · P / (U + eps)          unchanged if P or U is 0
/// ```
///
/// An infinite or NaN update or parameter makes its leaf's updates zero or NaN, by the quotient. A quotient too large
/// for the compute type saturates at the type's largest number.
///
/// # Cost
///
/// No state for elements. One more pass, which reads updates and parameters. Fuses.
///
/// # Errors
///
/// `init` fails if `min_norm` or `eps` is negative or not finite, or `trust_coefficient` is not finite.
///
/// # Example
///
/// The parameters' norm is 5, the updates' 10:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_trust_ratio;
///
/// let optimizer = scale_by_trust_ratio();
/// let mut params = vec![3.0_f64, 4.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![10.0_f64, 0.0], &mut state)?;
/// assert_eq!(params, [3.0 + 5.0, 4.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// You, Gitman and Ginsburg, [Large batch training of convolutional networks](https://arxiv.org/abs/1708.03888), 2017;
/// You and others, [Large batch optimization for deep learning](https://arxiv.org/abs/1904.00962), 2019, algorithm 2,
/// with the identity for φ. Optax,
/// [`scale_by_trust_ratio`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: norms are summed
/// in `f64`, so that those of tiny `f32` updates are not 0.
pub fn scale_by_trust_ratio() -> ScaleByTrustRatio {
    ScaleByTrustRatio::with()
}

part! {
    /// See [`scale_by_trust_ratio`].
    pub ScaleByTrustRatio as "scale_by_trust_ratio": TwoPass, SAME_DIRECTION;
    hyperparams {
        /// Lower bound of both norms.
        min_norm: NOT_NEGATIVE = 0.0;
        /// Multiplies the quotient.
        trust_coefficient: FINITE = 1.0;
        /// Added to the updates' norm.
        eps: NOT_NEGATIVE = 0.0;
    }
}

impl Rescale for ScaleByTrustRatio {
    type Of = UpdatesAndParams;
    const BY_LEAF: bool = true;
    type Hyperparams = [f64; 3];

    fn hyperparams(&self, count: u64, _: Option<f64>) -> [f64; 3] {
        Hyperparam::all_at([&self.min_norm, &self.trust_coefficient, &self.eps], count)
    }

    fn factor([min_norm, trust_coefficient, eps]: [f64; 3], squares: [Squares; 2], _: usize) -> f64 {
        let [of_updates, of_params] = squares.map(|squares| at_least(squares.norm(), min_norm));
        let none = of_updates == 0.0 || of_params == 0.0;
        if none { 1.0 } else { trust_coefficient * of_params / (of_updates + eps) }
    }
}

rescales!(ScaleByTrustRatio);
