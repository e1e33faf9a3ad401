use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// DoWG: [`dog`](crate::optimizer::dog()) with each gradient weighted by the distance estimate at its step.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// ```text
/// chain(masked(add_decayed_weights(weight_decay), mask),
///       scale_by_dowg(init_estim_sq_dist, eps),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `learning_rate` 1, `init_estim_sq_dist` the same as `eps`, `eps` 1e-4, `weight_decay` 0 on all leaves.
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
/// use gradchain::optimizer::dowg;
///
/// let optimizer = dowg();
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
/// Khaled, Mishchenko and Jin, [DoWG unleashed: an efficient universal parameter-free gradient descent
/// method](https://arxiv.org/abs/2305.16284), 2023, algorithm 1. Optax,
/// [`contrib.dowg`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_dowg`](crate::transform::scale_by_dowg); a mask is a [`Mask`].
pub fn dowg() -> Dowg {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Dowg { chain: (decay, scale_by_dowg(), scale_by_learning_rate(1.0)) }
}

optimizer! {
    /// See [`dowg`](dowg()).
    Dowg as "dowg" = (Masked<AddDecayedWeights>, ScaleByDowg, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate, a factor of the step size.",
            eps [1.eps] "Sets the epsilon added to the root, which is also the default first estimate.",
            weight_decay [0.inner.weight_decay] "Sets the weight decay, the multiple of the parameters added to the \
                                                 gradients.";
        options:
            mask: Mask [0.mask] "Sets which leaves decay.";
        optional: init_estim_sq_dist |it| it.chain.1.init_estim_sq_dist.as_mut();
    }
}

impl Dowg {
    /// Sets the first estimate of the squared distance to the solution.
    pub fn init_estim_sq_dist(mut self, init_estim_sq_dist: impl IntoHyperparam) -> Self {
        self.chain.1.init_estim_sq_dist = Some(init_estim_sq_dist.into());
        self
    }
}
