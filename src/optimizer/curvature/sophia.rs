use crate::GradientTransformation;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Sophia: clipped momentum over an estimate of the Hessian's diagonal, with decoupled weight decay.
///
/// `hessian_diagonal_fn` estimates the diagonal. Pass a
/// [`hutchinson_estimator_diag_hessian`](crate::transform::hutchinson_estimator_diag_hessian), which needs the loss and
/// its gradient as a function, or your own estimator, such as Gauss-Newton-Bartlett with gradients of sampled labels,
/// as a [part that sees whole leaves](crate::part::Whole).
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_sophia(hessian_diagonal_fn, b1, b2, eps, gamma, clip_threshold, update_interval),
///       add_decayed_weights(weight_decay, weight_decay_mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.965, `b2` 0.99, `eps` 1e-8, `gamma` 0.01, `clip_threshold` 1, `update_interval` 10, `weight_decay`
/// 1e-4 on all leaves.
///
/// # Cost
///
/// Two floats of state per parameter, and scratch space for one more. Two passes, and the cost of `hessian_diagonal_fn`
/// every `update_interval` steps.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_sophia`] gives, or `weight_decay` or the learning
/// rate is not finite.
///
/// # Example
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::optimizer::sophia;
/// use gradchain::transform::hutchinson_estimator_diag_hessian;
///
/// // x² + 100·y²: Newton's step is as long for y as for x.
/// let loss = |p: &(f64, f64)| (p.0 * p.0 + 100.0 * p.1 * p.1, (2.0 * p.0, 200.0 * p.1));
/// let estimate = hutchinson_estimator_diag_hessian(42);
/// let optimizer = sophia(0.5, estimate).b1(0.0).b2(0.0).gamma(1.0).weight_decay(0.0);
/// let mut params = (2.0, 2.0);
/// let mut state = optimizer.init(&params)?;
/// for expected in [1.5, 1.0, 0.5, 0.25] {
///     let (value, gradient) = loss(&params);
///     optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, loss), &mut state)?;
///     assert!((params.0 - expected).abs() < 1e-6 && (params.1 - expected).abs() < 1e-6);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu, Li, Hall, Liang and Ma, [Sophia: a scalable stochastic second-order optimizer for language model
/// pre-training](https://arxiv.org/abs/2305.14342), 2023, algorithm 3. Optax,
/// [`contrib.sophia`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as [`scale_by_sophia`]; the
/// estimator of the diagonal is mandatory.
pub fn sophia<H: GradientTransformation>(learning_rate: impl IntoHyperparam, hessian_diagonal_fn: H) -> Sophia<H> {
    Sophia {
        chain: (
            scale_by_sophia(hessian_diagonal_fn),
            masked(add_decayed_weights(1e-4), Mask::all()),
            scale_by_learning_rate(learning_rate),
        ),
    }
}

optimizer! {
    /// See [`sophia`](sophia()).
    Sophia<H: GradientTransformation> as "sophia" = (ScaleBySophia<H>, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean of the gradients, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the mean of the diagonals, in `[0, 1)`.",
            eps [0.eps] "Sets the lower bound of the divisor.",
            gamma [0.gamma] "Sets the factor of the mean of the diagonals.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            weight_decay_mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the mean of the gradients.";
        integers:
            update_interval: u64 [0.update_interval] "Sets the number of steps from one estimate of the diagonal to \
                                                      the next; at least 1.";
        optional: clip_threshold |it| it.chain.0.clip_threshold.as_mut();
        shown: hessian_diagonal_fn |it| it.chain.0.inner.recipe();
    }
}

impl<H: GradientTransformation> Sophia<H> {
    /// Sets the largest update before the learning rate.
    pub fn clip_threshold(mut self, clip_threshold: impl IntoHyperparam) -> Self {
        self.chain.0 = self.chain.0.clip_threshold(clip_threshold);
        self
    }

    /// Disables clipping.
    pub fn without_clipping(mut self) -> Self {
        self.chain.0 = self.chain.0.without_clipping();
        self
    }
}
