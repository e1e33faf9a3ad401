use crate::part::prelude::*;
use crate::transform::{ScaleByAmsgrad, ScaleByLearningRate, scale_by_amsgrad, scale_by_learning_rate};

/// AMSGrad: [`adam`](crate::adam()) that divides by the root of the largest second moment so far.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_amsgrad(b1, b2, eps, eps_root, bias_correction_mu, bias_correction_nu),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, both bias corrections.
///
/// # Cost
///
/// Three floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_amsgrad`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::amsgrad;
///
/// let optimizer = amsgrad(0.5).b1(0.0).b2(0.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -0.5), (1.0, -0.625)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Reddi, Kale and Kumar, [On the convergence of Adam and beyond](https://arxiv.org/abs/1904.09237), 2018. Optax,
/// [`amsgrad`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as [`scale_by_amsgrad`]. PyTorch:
/// `Adam(amsgrad=True)`, see there.
pub fn amsgrad(learning_rate: impl IntoHyperparam) -> Amsgrad {
    Amsgrad { chain: (scale_by_amsgrad(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`amsgrad`](amsgrad()).
    #[derive(PartialEq)]
    Amsgrad as "amsgrad" = (ScaleByAmsgrad, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.";
        options:
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            bias_correction_mu: bool [0.bias_correction_mu] "Sets whether the first moment is bias-corrected.",
            bias_correction_nu: bool [0.bias_correction_nu] "Sets whether the second moment is bias-corrected.";
    }
}
