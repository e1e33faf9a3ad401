use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// COCOB: parameter-free optimization by coin betting, without a learning rate to tune.
///
/// # Arithmetic
///
/// ```text
/// chain(masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate, flip_sign: false),
///       scale_by_cocob(alpha, eps))
/// ```
///
/// Defaults: `learning_rate` 1, `alpha` 100, `eps` 1e-8, `weight_decay` 0 on all leaves. The learning rate multiplies
/// gradients, not steps: a constant rate has almost no effect.
///
/// # Cost
///
/// Five floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::cocob;
///
/// let optimizer = cocob();
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..500 {
///     let gradient = (params - 3.0).signum();
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!((params - 3.0).abs() < 0.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Orabona and Tommasi, [Training deep networks without learning rates through coin
/// betting](https://arxiv.org/abs/1705.07795), 2017, algorithm 2. Optax,
/// [`contrib.cocob`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_cocob`](crate::transform::scale_by_cocob); a mask is a [`Mask`].
pub fn cocob() -> Cocob {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Cocob { chain: (decay, scale_by_learning_rate(1.0).flip_sign(false), scale_by_cocob()) }
}

optimizer! {
    /// See [`cocob`](cocob()).
    Cocob as "cocob" = (Masked<AddDecayedWeights>, ScaleByLearningRate, ScaleByCocob) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the factor of gradients.",
            alpha [2.alpha] "Sets the divisor of the first bets.",
            eps [2.eps] "Sets the initial value of the largest gradient.",
            weight_decay [0.inner.weight_decay] "Sets the weight decay, the multiple of the parameters added to the \
                                                 gradients.";
        options:
            mask: Mask [0.mask] "Sets which leaves decay.";
    }
}
