use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByBelief, ScaleByLearningRate, scale_by_belief, scale_by_learning_rate};

/// AdaBelief: [`adam`](crate::adam()) that divides by the deviation of the gradient from its running mean.
///
/// It takes large steps where the gradient is steady.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_belief(b1, b2, eps, eps_root, nesterov), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` and `eps_root` 1e-16, no nesterov.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_belief`](crate::transform::scale_by_belief) gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adabelief;
///
/// let optimizer = adabelief(0.5).b1(0.5).b2(0.5).eps(0.0).eps_root(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(8.0, -1.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhuang and others, [AdaBelief optimizer: adapting stepsizes by the belief in observed
/// gradients](https://arxiv.org/abs/2010.07468), 2020. Optax,
/// [`adabelief`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as
/// [`scale_by_belief`](crate::transform::scale_by_belief). PyTorch has none.
pub fn adabelief(learning_rate: impl IntoHyperparam) -> Adabelief {
    Adabelief { chain: (scale_by_belief(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adabelief`](adabelief()).
    #[derive(PartialEq)]
    Adabelief as "adabelief" = (ScaleByBelief, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the mean of squared differences, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added to the mean of squared differences at every step.";
        options:
            nesterov: bool [0.nesterov] "Sets whether the mean is Nesterov momentum.";
    }
}
