use crate::element::Real;
use crate::engine::{Sums, sum_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::transform::rescale::{Rescale, rescale_stage};
use crate::tree::Structure;

/// Multiplies the updates of each leaf by the root mean square of its parameters.
///
/// # Arithmetic
///
/// ```text
/// u ← u·max(√(mean p²), min_scale)
/// ```
///
/// Squares are summed in `f64`.
///
/// # Cost
///
/// No state for elements. Needs one more pass, to add up; reads parameters there.
///
/// # Errors
///
/// `init` fails if `min_scale` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = scale_by_param_block_rms();
/// let params = vec![1.0_f64, -7.0];
/// let updates = optimizer.update(&vec![1.0_f64, 2.0], &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [5.0, 10.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Shazeer and Stern, [Adafactor: adaptive learning rates with sublinear memory cost](https://arxiv.org/abs/1804.04235),
/// 2018, section 8. Optax,
/// [`scale_by_param_block_rms`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: squares are
/// summed in `f64`.
pub fn scale_by_param_block_rms() -> ScaleByParamBlockRms {
    ScaleByParamBlockRms { min_scale: 1e-3.into() }
}

/// See [`scale_by_param_block_rms`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByParamBlockRms {
    /// The least factor; not negative.
    pub min_scale: Hyperparam,
}

builder! {
    ScaleByParamBlockRms as "scale_by_param_block_rms" {
        hyperparams: min_scale;
        options: ;
    }
}

impl Rescale for ScaleByParamBlockRms {
    const NAME: &'static str = "scale_by_param_block_rms";
    const SUMS: usize = 1;
    const READS_PARAMS: bool = true;
    type Scalars = f64;

    fn check_arguments(&self) -> Result<()> {
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        self.min_scale.validate(<Self as Rescale>::NAME, "min_scale", "finite and not negative", not_negative)
    }

    fn scalars(&self, count: u64) -> f64 {
        self.min_scale.at(count)
    }

    #[inline(always)]
    fn add_up<C: Real>(_: &[C], p: &[C], sums: &mut [f64]) {
        sums[0] += sum_tile(p, |p| p.as_f64() * p.as_f64());
    }

    fn factors(min_scale: f64, sums: Sums<'_>, structure: &Structure, factors: &mut [f64]) {
        for (i, (factor, leaf)) in factors.iter_mut().zip(structure.leaves()).enumerate() {
            let rms = (sums.leaf(0, i) / leaf.len() as f64).sqrt();
            // `max` would drop a NaN.
            *factor = if rms <= min_scale { min_scale } else { rms };
        }
    }
}

rescale_stage!(ScaleByParamBlockRms, f64);
