use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleByYogi, scale_by_learning_rate, scale_by_yogi};

/// Yogi: [`adam`](crate::adam()) with additive updates of the second moment, which decreases slowly.
///
/// The effective learning rate does not rise abruptly after large gradients.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_yogi(b1, b2, eps), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-3.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_yogi`](crate::transform::scale_by_yogi) gives.
///
/// # Example
///
/// A first gradient that is large enough gives a step of the learning rate:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::yogi;
///
/// let optimizer = yogi(0.1);
/// let mut params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e3_f64, -1e3], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[-0.1, 0.1][..], max_relative = 1e-5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zaheer and others, [Adaptive methods for nonconvex
/// optimization](https://papers.nips.cc/paper/8186-adaptive-methods-for-nonconvex-optimization), 2018. Optax,
/// [`yogi`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as
/// [`scale_by_yogi`](crate::transform::scale_by_yogi). PyTorch has none.
pub fn yogi(learning_rate: impl IntoHyperparam) -> Yogi {
    Yogi { chain: (scale_by_yogi(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`yogi`](yogi()).
    #[derive(PartialEq)]
    Yogi as "yogi" = (ScaleByYogi, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, which moves by `1 − b2` of each square; in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.";
    }
}
