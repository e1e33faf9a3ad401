use crate::element::Real;
use crate::engine::{Sums, sum_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::transform::rescale::{Rescale, rescale_stage};
use crate::tree::Structure;

/// Gives the updates of all leaves together a given norm, or nearly.
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
/// Optax, [`normalize_by_update_norm`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: with an
/// `eps` of 0, Optax makes NaN of updates that are all zero; the sum is `f64`.
pub fn normalize_by_update_norm() -> NormalizeByUpdateNorm {
    NormalizeByUpdateNorm { scale_factor: 1.0.into(), eps: 1e-6.into() }
}

/// See [`normalize_by_update_norm`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct NormalizeByUpdateNorm {
    /// The norm that updates get: any finite number.
    pub scale_factor: Hyperparam,
    /// Added to the norm; not negative.
    pub eps: Hyperparam,
}

builder! {
    NormalizeByUpdateNorm as "normalize_by_update_norm" {
        hyperparams: scale_factor, eps;
        options: ;
    }
}

impl Rescale for NormalizeByUpdateNorm {
    const NAME: &'static str = "normalize_by_update_norm";
    const SUMS: usize = 1;
    const READS_PARAMS: bool = false;
    type Scalars = [f64; 2];

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Rescale>::NAME;
        self.scale_factor.validate(name, "scale_factor", "finite", f64::is_finite)?;
        self.eps.validate(name, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())
    }

    fn scalars(&self, count: u64) -> [f64; 2] {
        [&self.scale_factor, &self.eps].map(|h| h.at(count))
    }

    #[inline(always)]
    fn add_up<C: Real>(u: &[C], _: &[C], sums: &mut [f64]) {
        sums[0] += sum_tile(u, |u| u.as_f64() * u.as_f64());
    }

    fn factors([scale_factor, eps]: [f64; 2], sums: Sums<'_>, _: &Structure, factors: &mut [f64]) {
        let norm = sums.total(0).sqrt() + eps;
        factors.fill(if norm == 0.0 { 1.0 } else { scale_factor / norm });
    }
}

rescale_stage!(NormalizeByUpdateNorm, [f64; 2]);
