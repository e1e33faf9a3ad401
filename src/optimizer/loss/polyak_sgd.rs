use crate::transform::{PolyakVariant, ScaleByLearningRate, ScaleByPolyak, scale_by_learning_rate, scale_by_polyak};

/// Gradient descent with Polyak's step size, which follows from the value of the loss.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_learning_rate(scaling),
///       scale_by_polyak(f_min, max_learning_rate, eps, variant))
/// ```
///
/// Scaling the gradient first also scales its squared norm: a `scaling` of `s` divides the step by `s`, up to
/// `max_learning_rate`.
///
/// Defaults: `max_learning_rate` 1, `scaling` 1, `f_min` 0, `eps` 0, variant `sps`.
///
/// # Cost
///
/// No state for elements; two passes; the first reads gradients only.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_polyak`] gives.
///
/// # Example
///
/// On `p²/2` Polyak's step halves the distance to the minimum:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::optimizer::polyak_sgd;
///
/// let optimizer = polyak_sgd();
/// let mut params = 8.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for halved in [4.0, 2.0, 1.0] {
///     let (loss, gradient) = (params * params / 2.0, params);
///     optimizer.step_with(&mut params, &gradient, extra::value(loss), &mut state)?;
///     assert_eq!(params, halved);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Loizou, Vaswani, Laradji and Lacoste-Julien, [Stochastic Polyak step-size for
/// SGD](https://arxiv.org/abs/2002.10542), 2020. Optax,
/// [`polyak_sgd`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: none. Optax's documentation
/// says that `scaling` multiplies the step; its code scales the gradient first too, as above.
pub fn polyak_sgd() -> PolyakSgd {
    PolyakSgd { chain: (scale_by_learning_rate(1.0), scale_by_polyak()) }
}

optimizer! {
    /// See [`polyak_sgd`](polyak_sgd()).
    PolyakSgd as "polyak_sgd" = (ScaleByLearningRate, ScaleByPolyak) {
        hyperparams:
            max_learning_rate [1.max_learning_rate] "Sets the largest step size.",
            scaling [0.learning_rate] "Sets the factor of the gradient.",
            f_min [1.f_min] "Sets the minimum of the loss, or an estimate of it.",
            eps [1.eps] "Sets the epsilon added to the squared norm.";
        options:
            variant: PolyakVariant [1.variant] "Sets the treatment of a loss below `f_min`.";
    }
}
