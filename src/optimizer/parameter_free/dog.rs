use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// DoG: gradient descent with the rate `max distance from the initial parameters / √(sum of squared gradient norms)`.
///
/// # Arithmetic
///
/// ```text
/// chain(masked(add_decayed_weights(weight_decay), mask),
///       scale_by_dog(init_step, eps),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `learning_rate` 1, `init_step` `Heuristic(1e-6)`, `eps` 1e-8, `weight_decay` 0 on all leaves. The authors
/// evaluate an average of the parameters over the steps.
///
/// # Cost
///
/// One float of state per parameter. Two passes.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::dog;
///
/// let optimizer = dog();
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..300 {
///     let gradient = params - 3.0;
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!((params - 3.0).abs() < 1e-3);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Ivgi, Hinder and Carmon, [DoG is SGD's best friend: a parameter-free dynamic step size
/// schedule](https://arxiv.org/abs/2302.12022), 2023. Optax,
/// [`contrib.dog`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_dog`](crate::transform::scale_by_dog); a mask is a [`Mask`].
pub fn dog() -> Dog {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Dog { chain: (decay, scale_by_dog(InitStep::Heuristic(1e-6)), scale_by_learning_rate(1.0)) }
}

optimizer! {
    /// See [`dog`](dog()).
    Dog as "dog" = (Masked<AddDecayedWeights>, ScaleByDog, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate, a factor of the step size.",
            eps [1.eps] "Sets the epsilon added to the squared gradients.",
            weight_decay [0.inner.weight_decay] "Sets the weight decay, the multiple of the parameters added to the \
                                                 gradients.";
        options:
            init_step: InitStep [1.init_step] "Sets the size of the first step.",
            mask: Mask [0.mask] "Sets which leaves decay.";
    }
}
