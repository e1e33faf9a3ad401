use crate::part::TwoPass;
use crate::transform::rescale::{Params, Rescale, Squares, at_least, rescales};

/// Multiplies the updates of each leaf by the norm of its parameters.
///
/// # Arithmetic
///
/// ```text
/// u ← u·max(‖p‖, min_scale)
/// ```
///
/// Squares are summed in `f64`.
///
/// # Cost
///
/// No state for elements. One more pass, which reduces and reads parameters.
///
/// # Errors
///
/// `init` fails if `min_scale` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_param_block_norm;
///
/// let optimizer = scale_by_param_block_norm();
/// let params = vec![3.0_f64, -4.0];
/// let updates = optimizer.update(&vec![1.0_f64, 2.0], &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [5.0, 10.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`scale_by_param_block_norm`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// squares are summed in `f64`.
pub fn scale_by_param_block_norm() -> ScaleByParamBlockNorm {
    ScaleByParamBlockNorm::with()
}

part! {
    /// See [`scale_by_param_block_norm`].
    pub ScaleByParamBlockNorm as "scale_by_param_block_norm": TwoPass, SAME_DIRECTION;
    hyperparams {
        /// The least factor.
        min_scale: NOT_NEGATIVE = 1e-3;
    }
}

impl Rescale for ScaleByParamBlockNorm {
    type Of = Params;
    const BY_LEAF: bool = true;
    type Hyperparams = f64;

    fn hyperparams(&self, count: u64, _: Option<f64>) -> f64 {
        self.min_scale.at(count)
    }

    fn factor(min_scale: f64, [squares]: [Squares; 1], _: usize) -> f64 {
        at_least(squares.norm(), min_scale)
    }
}

rescales!(ScaleByParamBlockNorm);
