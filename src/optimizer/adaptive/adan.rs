use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Adan: [`adamw`](crate::adamw()) with Nesterov momentum computed from gradient differences.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adan(b1, b2, b3, eps, eps_root),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.98, `b2` 0.92, `b3` 0.99, `eps` and `eps_root` 1e-8, no `weight_decay`.
///
/// # Cost
///
/// Four floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adan`](crate::transform::scale_by_adan) gives, or a
/// pattern of the mask matches no leaf.
///
/// # Example
///
/// The second gradient is so much smaller that the step goes back:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adan;
///
/// let optimizer = adan(0.5).b1(0.0).b2(0.0).b3(0.0).eps(0.0).eps_root(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(6.0, -0.5), (2.0, 0.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Xie and others, [Adan: adaptive Nesterov momentum algorithm for faster optimizing deep
/// models](https://arxiv.org/abs/2208.06677), 2022, algorithm 1, which divides by `1 + learning_rate·weight_decay`
/// instead of subtracting. Optax, [`adan`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask
/// is a [`Mask`]; its state does not depend on whether one is given. PyTorch has none.
pub fn adan(learning_rate: impl IntoHyperparam) -> Adan {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Adan { chain: (scale_by_adan().eps_root(1e-8), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adan`](adan()).
    Adan as "adan" = (ScaleByAdan, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the mean of changes, in `[0, 1)`.",
            b3 [0.b3] "Sets the decay of the mean of squares, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.";
    }
}
