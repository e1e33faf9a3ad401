use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// AdamaxW: [`adamax`](crate::optimizer::adamax()) with decoupled weight decay.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adamax(b1, b2, eps),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `weight_decay` 1e-4 on all leaves.
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adamax`](crate::transform::scale_by_adamax) gives,
/// or a pattern of the mask matches no leaf.
///
/// # Example
///
/// With a gradient of zero only the decay is left: `1 − 0.1·0.5`.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adamaxw;
///
/// let optimizer = adamaxw(0.1).weight_decay(0.5);
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &0.0_f64, &mut state)?;
/// assert_eq!(params, 0.95);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014, algorithm 2;
/// Loshchilov and Hutter, [Decoupled weight decay regularization](https://arxiv.org/abs/1711.05101), 2017. Optax,
/// [`adamaxw`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask is a [`Mask`]; its state
/// does not depend on whether one is given. PyTorch has none: its `Adamax(weight_decay=...)` adds L2 regularization.
pub fn adamaxw(learning_rate: impl IntoHyperparam) -> Adamaxw {
    let decay = masked(add_decayed_weights(1e-4), Mask::all());
    Adamaxw { chain: (scale_by_adamax(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adamaxw`](adamaxw()).
    Adamaxw as "adamaxw" = (ScaleByAdamax, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the infinity norm, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to every magnitude.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.";
    }
}
