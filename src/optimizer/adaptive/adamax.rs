use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByAdamax, ScaleByLearningRate, scale_by_adamax, scale_by_learning_rate};

/// Adamax: [`adam`](crate::adam()) with the infinity norm: divides by a decaying maximum of absolute gradients.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adamax`](crate::transform::scale_by_adamax) gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adamax;
///
/// let optimizer = adamax(1.0).b1(0.0).b2(0.5).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(8.0, -1.0), (-1.0, -0.75)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014, algorithm 2.
/// Optax, [`adamax`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as
/// [`scale_by_adamax`](crate::transform::scale_by_adamax). PyTorch's `Adamax` has a learning rate of 2e-3.
pub fn adamax(learning_rate: impl IntoHyperparam) -> Adamax {
    Adamax { chain: (scale_by_adamax(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adamax`](adamax()).
    #[derive(PartialEq)]
    Adamax as "adamax" = (ScaleByAdamax, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the infinity norm, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to every magnitude.";
    }
}
