use crate::part::TwoPass;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales};

/// Divides the updates of all leaves by their global norm.
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
/// use gradchain::transform::normalize;
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
/// [`contrib.normalize`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: Optax makes NaN of updates
/// that are all zero; the sum is `f64`.
pub fn normalize() -> Normalize {
    Normalize::with()
}

part! {
    /// See [`normalize`].
    #[derive(Copy, Eq)]
    pub Normalize as "normalize": TwoPass, SCALE_INVARIANT;
}

impl Rescale for Normalize {
    type Of = Updates;
    const BY_LEAF: bool = false;
    type Hyperparams = ();

    fn hyperparams(&self, _: u64, _: Option<f64>) {}

    fn factor((): (), [squares]: [Squares; 1], _: usize) -> f64 {
        let norm = squares.norm();
        if norm == 0.0 { 1.0 } else { 1.0 / norm }
    }
}

rescales!(Normalize);
