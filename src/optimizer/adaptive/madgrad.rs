use crate::schedule::IntoHyperparam;
use crate::transform::{AddDecayedWeights, ScaleByMadgrad, add_decayed_weights, scale_by_madgrad};

/// MADGRAD: dual averaging with momentum, divided by the cube root of a sum of squared gradients.
///
/// # Arithmetic
///
/// ```text
/// chain(add_decayed_weights(weight_decay), scale_by_madgrad(learning_rate, momentum, eps))
/// ```
///
/// Defaults: `momentum` 0.9, `weight_decay` 0, `eps` 1e-6. A good `weight_decay` is often smaller than for other
/// optimizers, and 0 for many problems.
///
/// # Cost
///
/// Three floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::madgrad;
///
/// let optimizer = madgrad(4.0).momentum(0.5).eps(0.0);
/// let mut params = 10.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &4.0_f64, &mut state)?;
/// assert_eq!(params, 8.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// As [`scale_by_madgrad`]. Optax, [`contrib.madgrad`](https://optax.readthedocs.io/en/latest/api/contrib.html).
/// Differs: as there.
pub fn madgrad(learning_rate: impl IntoHyperparam) -> Madgrad {
    Madgrad { chain: (add_decayed_weights(0.0), scale_by_madgrad(learning_rate)) }
}

optimizer! {
    /// See [`madgrad`](madgrad()).
    #[derive(PartialEq)]
    Madgrad as "madgrad" = (AddDecayedWeights, ScaleByMadgrad) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            momentum [1.momentum] "Sets the momentum, the weight of the previous parameters in a step, in `[0, 1)`.",
            weight_decay [0.weight_decay] "Sets the weight decay, the multiple of the parameters added to the \
                                           gradients.",
            eps [1.eps] "Sets the epsilon added to the cube root, and to the learning rate.";
    }
}
