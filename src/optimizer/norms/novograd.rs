use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleByNovograd, scale_by_learning_rate, scale_by_novograd};

/// NovoGrad: momentum on gradients divided by the running gradient norm of their leaf.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_novograd(b1, b2, eps, eps_root, weight_decay), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.25, `eps` 1e-6, `eps_root` 0, `weight_decay` 0.
///
/// # Cost
///
/// One float of state per parameter, half of [`adam`](crate::adam())'s. Two passes; the first reads and reduces.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// The first step has the length of the learning rate in every leaf:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::novograd;
///
/// let optimizer = novograd(0.5).eps(0.0);
/// let mut params = (1.0_f64, vec![1.0_f64, 1.0]);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(100.0_f64, vec![0.03_f64, 0.04]), &mut state)?;
/// assert_eq!(params.0, 0.5);
/// approx::assert_relative_eq!(&params.1[..], &[0.7, 0.6][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Ginsburg and others, [Stochastic gradient methods with layer-wise adaptive moments for training of deep
/// networks](https://arxiv.org/abs/1905.11286), 2019, algorithm 1. Optax,
/// [`novograd`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the squared norm is summed and
/// kept in `f64`.
pub fn novograd(learning_rate: impl IntoHyperparam) -> Novograd {
    Novograd { chain: (scale_by_novograd().eps(1e-6), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`novograd`](novograd()).
    #[derive(PartialEq)]
    Novograd as "novograd" = (ScaleByNovograd, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the sum, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the squared norm, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [0.weight_decay] "Sets the weight decay, the multiple of the parameters added to the sum.";
    }
}
