use crate::element::Real;
use crate::engine::{Sums, sum_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::transform::rescale::{Rescale, rescale_stage};
use crate::tree::Structure;

/// Gives each leaf's updates a norm in proportion to the parameters' own.
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
/// An infinite or NaN update or parameter makes its leaf's updates zero or NaN, as the quotient has it. A quotient too
/// large for the type that the leaf's arithmetic is done in is that type's largest number.
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
/// You and others, [Large batch optimization for deep learning](https://arxiv.org/abs/1904.00962), 2019, algorithm 2, with
/// the identity for φ. Optax,
/// [`scale_by_trust_ratio`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: norms are summed
/// in `f64`, so that those of tiny `f32` updates are not 0.
pub fn scale_by_trust_ratio() -> ScaleByTrustRatio {
    ScaleByTrustRatio { min_norm: 0.0.into(), trust_coefficient: 1.0.into(), eps: 0.0.into() }
}

/// See [`scale_by_trust_ratio`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByTrustRatio {
    /// What smaller norms are taken to be; not negative.
    pub min_norm: Hyperparam,
    /// Multiplies the quotient: any finite number.
    pub trust_coefficient: Hyperparam,
    /// Added to the updates' norm; not negative.
    pub eps: Hyperparam,
}

builder! {
    ScaleByTrustRatio as "scale_by_trust_ratio" {
        hyperparams: min_norm, trust_coefficient, eps;
        options: ;
    }
}

impl Rescale for ScaleByTrustRatio {
    const NAME: &'static str = "scale_by_trust_ratio";
    const SUMS: usize = 2;
    const READS_PARAMS: bool = true;
    type Scalars = [f64; 3];

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Rescale>::NAME;
        for (argument, value) in [("min_norm", &self.min_norm), ("eps", &self.eps)] {
            value.validate(name, argument, "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        }
        self.trust_coefficient.validate(name, "trust_coefficient", "finite", f64::is_finite)
    }

    fn scalars(&self, count: u64) -> [f64; 3] {
        [&self.min_norm, &self.trust_coefficient, &self.eps].map(|h| h.at(count))
    }

    #[inline(always)]
    fn add_up<C: Real>(u: &[C], p: &[C], sums: &mut [f64]) {
        sums[0] += sum_tile(u, |u| u.as_f64() * u.as_f64());
        sums[1] += sum_tile(p, |p| p.as_f64() * p.as_f64());
    }

    fn factors(k: [f64; 3], sums: Sums<'_>, _: &Structure, factors: &mut [f64]) {
        let [min_norm, trust_coefficient, eps] = k;
        // Not `max`, which would give `min_norm` for NaN.
        let at_least = |norm: f64| if norm <= min_norm { min_norm } else { norm };
        for (leaf, factor) in factors.iter_mut().enumerate() {
            let [of_updates, of_params] = [0, 1].map(|i| at_least(sums.leaf(i, leaf).sqrt()));
            let none = of_updates == 0.0 || of_params == 0.0;
            *factor = if none { 1.0 } else { trust_coefficient * of_params / (of_updates + eps) };
        }
    }
}

rescale_stage!(ScaleByTrustRatio, [f64; 3]);
