use crate::optimizer::elementwise::{Sgd, sgd};
use crate::schedule::IntoHyperparam;
use crate::transform::{PerExample, Trace, differentially_private_aggregate};

/// Differentially private stochastic gradient descent: [`sgd`](crate::sgd()) on clipped, noisy mean gradients.
///
/// Each example's gradient is clipped, and noise is added to their sum.
///
/// [`step_per_example`](PerExample::step_per_example) does a step, with a gradient for each example. The privacy budget
/// (ε, δ) of a run follows from `noise_multiplier`, the number of steps and the sampling rate of batches; this crate
/// has no privacy accountant.
///
/// # Arithmetic
///
/// ```text
/// differentially_private_aggregate(l2_norm_clip, noise_multiplier, seed), then sgd(learning_rate, momentum, nesterov)
/// ```
///
/// Defaults: no momentum.
///
/// # Cost
///
/// That of its two parts.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that its two parts give.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::dpsgd;
/// use ndarray::array;
///
/// let optimizer = dpsgd(0.5, 1.0, 0.0, 42).momentum(0.5);
/// let mut params = array![0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_per_example(&mut params, &array![[4.0], [0.0]], &mut state)?; // the mean of 1 and 0
/// assert_eq!(params, array![-0.25]);
/// optimizer.step_per_example(&mut params, &array![[0.0], [0.5]], &mut state)?; // 0.25 + 0.5·0.5
/// assert_eq!(params, array![-0.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Abadi et al., [Deep learning with differential privacy](https://arxiv.org/abs/1607.00133), 2016, algorithm 1. Optax,
/// [`contrib.dpsgd`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`differentially_private_aggregate`].
pub fn dpsgd(
    learning_rate: impl IntoHyperparam,
    l2_norm_clip: impl IntoHyperparam,
    noise_multiplier: impl IntoHyperparam,
    seed: u64,
) -> Dpsgd {
    differentially_private_aggregate(l2_norm_clip, noise_multiplier, seed).then(sgd(learning_rate))
}

/// See [`dpsgd`].
pub type Dpsgd<M = ()> = PerExample<Sgd<M>>;

impl Dpsgd {
    /// Adds momentum; `momentum` is the fraction of the sum kept per step.
    pub fn momentum(self, momentum: impl IntoHyperparam) -> Dpsgd<Trace> {
        self.map(|sgd| sgd.momentum(momentum))
    }
}

impl Dpsgd<Trace> {
    /// Sets whether to use Nesterov momentum.
    pub fn nesterov(self, nesterov: bool) -> Self {
        self.map(|sgd| sgd.nesterov(nesterov))
    }
}
