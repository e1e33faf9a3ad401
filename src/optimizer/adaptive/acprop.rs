use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// ACProp: the gradient divided by the root of the running variance of earlier gradients.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_acprop(b1, b2, eps, eps_root),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` and `eps_root` 1e-16, no `weight_decay`.
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_acprop`](crate::transform::scale_by_acprop) gives,
/// or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::acprop;
///
/// let optimizer = acprop(0.5).b2(0.0).eps(0.0).eps_root(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -2.0), (2.0, -2.25)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhuang and others, [Momentum centering and asynchronous update for adaptive gradient
/// methods](https://arxiv.org/abs/2110.05454), 2021. Optax,
/// [`acprop`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_acprop`](crate::transform::scale_by_acprop); a mask is a [`Mask`]. PyTorch has none.
pub fn acprop(learning_rate: impl IntoHyperparam) -> Acprop {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Acprop { chain: (scale_by_acprop(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`acprop`](acprop()).
    Acprop as "acprop" = (ScaleByAcprop, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the mean of squared differences, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added to the mean of squared differences at every step.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.";
    }
}
