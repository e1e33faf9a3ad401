use crate::engine::delegate_stage;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{
    AddDecayedWeights, ScaleByDowg, ScaleByLearningRate, add_decayed_weights, scale_by_dowg, scale_by_learning_rate,
};
use crate::wrapper::{Argument, Arguments, Masked, masked};

/// DoWG: as [`dog`](crate::dog()), with each gradient weighted by the distance gone when it was taken.
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
/// One float of state for each parameter. Two passes.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
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
/// [`scale_by_dowg`](crate::scale_by_dowg); a mask is a [`Mask`].
pub fn dowg() -> Dowg {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Dowg { chain: (decay, scale_by_dowg(), scale_by_learning_rate(1.0)) }
}

type Chain = (Masked<AddDecayedWeights>, ScaleByDowg, ScaleByLearningRate);

/// See [`dowg`](dowg()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Dowg {
    chain: Chain,
}

impl Dowg {
    /// Sets what steps are multiplied by.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.chain.2.learning_rate = learning_rate.into();
        self
    }

    /// Sets the first guess of the squared distance to the solution.
    pub fn init_estim_sq_dist(mut self, init_estim_sq_dist: impl Into<Hyperparam>) -> Self {
        self.chain.1 = self.chain.1.init_estim_sq_dist(init_estim_sq_dist);
        self
    }

    /// Sets what is added to the root, and the first guess unless there is another.
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.chain.1.eps = eps.into();
        self
    }

    /// Sets how much of the parameters is added to the gradients.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.chain.0.inner.weight_decay = weight_decay.into();
        self
    }

    /// Sets which leaves decay.
    pub fn mask(mut self, mask: impl Into<Mask>) -> Self {
        self.chain.0.mask = mask.into();
        self
    }
}

impl Arguments for Dowg {
    const NAME: &'static str = "dowg";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let (decay, scaled, rate) = &mut self.chain;
        visit("learning_rate", Argument::Hyperparam(&mut rate.learning_rate));
        scaled.arguments(visit);
        visit("weight_decay", Argument::Hyperparam(&mut decay.inner.weight_decay));
        visit("mask", Argument::Static(&decay.mask));
    }
}

delegate_stage!(Dowg => chain: Chain);
