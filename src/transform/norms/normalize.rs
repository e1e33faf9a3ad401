use crate::element::Real;
use crate::engine::{Sums, sum_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::transform::rescale::{Rescale, rescale_stage};
use crate::tree::Structure;

/// Divides the updates of all leaves by their common norm.
///
/// # Arithmetic
///
/// ```text
/// u ← u / √(Σ u²)                         summed over all leaves in f64; zeros stay zeros
/// ```
///
/// # Cost
///
/// No state for elements. One more pass, which reads gradients and writes nothing. Fuses; reads no parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = normalize();
/// let mut params = (0.0_f64, vec![0.0_f64; 2]);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(2.0_f64, vec![4.0_f64, -4.0]), &mut state)?;
/// approx::assert_relative_eq!(&params.1[..], &[2.0 / 3.0, -2.0 / 3.0][..], max_relative = 1e-15);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Hazan, Levy and Shalev-Shwartz, [Beyond convexity: stochastic quasi-convex
/// optimization](https://arxiv.org/abs/1507.02030), 2015, algorithm 1. Optax,
/// [`contrib.normalize`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: Optax makes NaN of updates that
/// are all zero; the sum is `f64`.
pub fn normalize() -> Normalize {
    Normalize
}

/// See [`normalize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Normalize;

builder! {
    Normalize as "normalize" {
        hyperparams: ;
        options: ;
    }
}

impl Rescale for Normalize {
    const NAME: &'static str = "normalize";
    const SUMS: usize = 1;
    const READS_PARAMS: bool = false;
    type Scalars = ();

    fn check_arguments(&self) -> Result<()> {
        Ok(())
    }

    fn scalars(&self, _: u64) {}

    #[inline(always)]
    fn add_up<C: Real>(u: &[C], _: &[C], sums: &mut [f64]) {
        sums[0] += sum_tile(u, |u| u.as_f64() * u.as_f64());
    }

    fn factors((): (), sums: Sums<'_>, _: &Structure, factors: &mut [f64]) {
        let norm = sums.total(0).sqrt();
        factors.fill(if norm == 0.0 { 1.0 } else { 1.0 / norm });
    }
}

rescale_stage!(Normalize, ());
