use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Adadelta: steps scaled to the size of earlier steps, so that they have the units of the parameters.
///
/// The learning rate is 1 in the paper.
///
/// # Arithmetic
///
/// ```text
/// chain(masked(add_decayed_weights(weight_decay), weight_decay_mask),
///       scale_by_adadelta(rho, eps),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `rho` 0.9, `eps` 1e-6, no `weight_decay`. The decay comes before the scaling: it is L2 regularization.
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adadelta`] gives, or a pattern of the mask matches
/// no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adadelta;
///
/// let optimizer = adadelta(0.75).rho(0.5).eps(1.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &4.0_f64, &mut state)?;
/// approx::assert_relative_eq!(params, -1.0, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zeiler, [ADADELTA: an adaptive learning rate method](https://arxiv.org/abs/1212.5701), 2012. Optax,
/// [`adadelta`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the learning rate is mandatory.
/// Without one Optax does not flip the sign either, which is `chain((add_decayed_weights(w), scale_by_adadelta()))`
/// here. A mask is a [`Mask`]. PyTorch's `Adadelta`: the same, with a learning rate of 1.
pub fn adadelta(learning_rate: impl IntoHyperparam) -> Adadelta {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Adadelta { chain: (decay, scale_by_adadelta(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adadelta`](adadelta()).
    Adadelta as "adadelta" = (Masked<AddDecayedWeights>, ScaleByAdadelta, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            rho [1.rho] "Sets the decay of both means, in `[0, 1)`.",
            eps [1.eps] "Sets the epsilon added under both roots.",
            weight_decay [0.inner.weight_decay] "Sets the weight decay, the multiple of the parameters added to the gradient.";
        options:
            weight_decay_mask: Mask [0.mask] "Sets which leaves decay.";
    }
}
