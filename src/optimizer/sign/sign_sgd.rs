use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleBySign, scale_by_learning_rate, scale_by_sign};

/// signSGD: steps of the learning rate against the sign of each element's gradient.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_sign(), scale_by_learning_rate(learning_rate))
/// ```
///
/// # Cost
///
/// No state; one pass.
///
/// # Errors
///
/// `init` fails if `learning_rate` is out of the range that [`scale_by_learning_rate`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::sign_sgd;
///
/// let optimizer = sign_sgd(0.5);
/// let mut params = vec![1.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.01_f32, -100.0, 0.0], &mut state)?;
/// assert_eq!(params, [0.5, 1.5, 1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Bernstein, Wang, Azizzadenesheli and Anandkumar, [signSGD: compressed optimisation for non-convex
/// problems](https://arxiv.org/abs/1802.04434), 2018, algorithm 1; Balles, Pedregosa and Le Roux, [The geometry of sign
/// gradient descent](https://arxiv.org/abs/2002.08056), 2020. Optax,
/// [`sign_sgd`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: none.
pub fn sign_sgd(learning_rate: impl IntoHyperparam) -> SignSgd {
    SignSgd { chain: (scale_by_sign(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`sign_sgd`](sign_sgd()).
    #[derive(PartialEq)]
    SignSgd as "sign_sgd" = (ScaleBySign, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.";
    }
}
