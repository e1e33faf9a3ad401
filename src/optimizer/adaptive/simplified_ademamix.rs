use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Simplified AdEMAMix: [`adamw`](crate::adamw()) with one slow momentum, and extra weight of the current gradient.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_simplified_ademamix(b1, b2, alpha, eps, eps_root),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.99, `b2` 0.95, `alpha` 0, `eps` 1e-8, `eps_root` 0, no `weight_decay`.
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that
/// [`scale_by_simplified_ademamix`](crate::transform::scale_by_simplified_ademamix) gives, or a pattern of the mask
/// matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::simplified_ademamix;
///
/// let optimizer = simplified_ademamix(0.5).b1(0.5).b2(0.0).alpha(2.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -1.5), (4.0, -3.25)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Morwani and others, [Connections between schedule-free optimizers, AdEMAMix, and accelerated SGD
/// variants](https://arxiv.org/abs/2502.02431), 2025. Optax,
/// [`simplified_ademamix`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_simplified_ademamix`](crate::transform::scale_by_simplified_ademamix); a mask is a [`Mask`]. PyTorch has
/// none.
pub fn simplified_ademamix(learning_rate: impl IntoHyperparam) -> SimplifiedAdemamix {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    SimplifiedAdemamix { chain: (scale_by_simplified_ademamix(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`simplified_ademamix`](simplified_ademamix()).
    SimplifiedAdemamix as "simplified_ademamix" = (ScaleBySimplifiedAdemamix, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the sum.",
            b2 [0.b2] "Sets the decay of the mean of squares, in `[0, 1)`.",
            alpha [0.alpha] "Sets the additional weight of the current gradient.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.";
    }
}
