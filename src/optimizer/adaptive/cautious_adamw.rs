use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Cautious, Masked, cautious, masked};

/// Cautious AdamW: [`adamw`](crate::adamw()) without the elements of a step that oppose the gradient.
///
/// # Arithmetic
///
/// ```text
/// chain(cautious(scale_by_adam(b1, b2, eps, eps_root, nesterov), xi, against_gradient=false),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: those of [`adamw`](crate::adamw()), and `xi` 1. Hyperparameters tuned for AdamW need no change.
///
/// # Cost
///
/// Two floats of state per parameter. Two passes, which store the updates in between: one more float per parameter, not
/// part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam`] and [`cautious`] give, or a pattern of the
/// mask matches no leaf.
///
/// # Example
///
/// All of three elements agree in the first step, which is therefore `3 / (3 + 1)` of Adam's:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::cautious_adamw;
///
/// let optimizer = cautious_adamw(0.4).weight_decay(0.0).eps(0.0);
/// let mut params = vec![0.0_f64; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![2.0_f64, -1.0, 1e-3], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[-0.3, 0.3, -0.3][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liang, Chen, Liu and Liu, [Cautious optimizers: improving training with one line of
/// code](https://arxiv.org/abs/2411.16085), 2024, algorithm 2. Optax has none. Differs: see [`cautious`].
pub fn cautious_adamw(learning_rate: impl IntoHyperparam) -> CautiousAdamw {
    let decay = masked(add_decayed_weights(1e-4), Mask::all());
    let adam = cautious(scale_by_adam()).against_gradient(false);
    CautiousAdamw { chain: (adam, decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`cautious_adamw`](cautious_adamw()).
    CautiousAdamw as "cautious_adamw" = (Cautious<ScaleByAdam>, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.inner.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.inner.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.inner.eps] "Sets the epsilon added to the root.",
            eps_root [0.inner.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.",
            xi [0.xi] "Sets the epsilon added to the number of agreeing elements; positive.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.inner.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.inner.nu_dtype] "Sets the dtype of the second moment.",
            nesterov: bool [0.inner.nesterov] "Sets whether the first moment is Nesterov momentum.";
    }
}
