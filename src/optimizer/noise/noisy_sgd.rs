use crate::schedule::IntoHyperparam;
use crate::transform::{AddNoise, ScaleByLearningRate, add_noise, scale_by_learning_rate};

/// Gradient descent with Gaussian noise on the gradients, whose variance decays with the steps.
///
/// # Arithmetic
///
/// ```text
/// chain(add_noise(eta, gamma, seed), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `eta` 0.01, `gamma` 0.55.
///
/// # Cost
///
/// No state for elements; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// Two runs with the same seed are the same:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::noisy_sgd;
///
/// let run = |seed| -> gradchain::Result<f64> {
///     let optimizer = noisy_sgd(0.5, seed);
///     let mut params = 1.0_f64;
///     let mut state = optimizer.init(&params)?;
///     optimizer.step(&mut params, &1.0_f64, &mut state)?;
///     Ok(params)
/// };
/// assert_eq!(run(1)?, run(1)?);
/// assert_ne!(run(1)?, run(2)?);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Neelakantan et al., [Adding gradient noise improves learning for very deep
/// networks](https://arxiv.org/abs/1511.06807), 2015. Optax,
/// [`noisy_sgd`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: other random numbers; the seed
/// must be given.
pub fn noisy_sgd(learning_rate: impl IntoHyperparam, seed: u64) -> NoisySgd {
    NoisySgd { chain: (add_noise(0.01, 0.55, seed), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`noisy_sgd`](noisy_sgd()).
    #[derive(PartialEq)]
    NoisySgd as "noisy_sgd" = (AddNoise, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            eta [0.eta] "Sets the variance of the noise at the first step.",
            gamma [0.gamma] "Sets the exponent of the decay of the variance.";
        integers: seed: u64 [0.seed] "Sets the seed of the random numbers.";
    }
}
