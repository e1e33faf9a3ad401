use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// AdEMAMix: [`adamw`](crate::adamw()) with a second, slow running mean.
///
/// It remembers gradients for thousands of steps.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_ademamix(b1, b2, b3, alpha, eps, eps_root),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `b3` 0.9999, `alpha` 5, `eps` 1e-8, `eps_root` 0, no `weight_decay`.
///
/// # Cost
///
/// Three floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_ademamix`](crate::transform::scale_by_ademamix)
/// gives, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::ademamix;
///
/// let optimizer = ademamix(0.5).b3(0.5).alpha(2.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(8.0, -1.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     approx::assert_relative_eq!(params, expected, max_relative = 1e-12);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pagliardini, Ablin and Grangier, [The AdEMAMix optimizer: better, faster, older](https://arxiv.org/abs/2409.03137),
/// 2024. Optax, [`ademamix`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_ademamix`](crate::transform::scale_by_ademamix); a mask is a [`Mask`]. Its default `alpha` is not that of
/// the part, as in Optax. PyTorch has none.
pub fn ademamix(learning_rate: impl IntoHyperparam) -> Ademamix {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Ademamix { chain: (scale_by_ademamix().alpha(5.0), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`ademamix`](ademamix()).
    Ademamix as "ademamix" = (ScaleByAdemamix, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the fast mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            b3 [0.b3] "Sets the decay of the slow mean, in `[0, 1]`.",
            alpha [0.alpha] "Sets the weight of the slow mean.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the state.";
    }
}
