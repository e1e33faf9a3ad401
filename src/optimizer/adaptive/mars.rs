use crate::element::DType;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{
    AddDecayedWeights, ClipByBlockNorm, ReduceVariance, ScaleByAdam, ScaleByLearningRate, add_decayed_weights,
    clip_by_block_norm, reduce_variance, scale_by_adam, scale_by_learning_rate,
};
use crate::wrapper::{Argument, Arguments, Masked, masked};

/// MARS-AdamW: [`adamw`](crate::adamw()) on gradients whose variance is reduced by the gradient of the last step.
///
/// # Arithmetic
///
/// ```text
/// chain(reduce_variance(gamma, b1),
///       clip_by_block_norm(max_norm),
///       scale_by_adam(b1, b2, eps),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.95, `b2` 0.99, `eps` 1e-8, `gamma` 0.025, `max_norm` 1, `weight_decay` 0 on all leaves.
///
/// # Cost
///
/// Three floats of state for each parameter. Two passes, between which the corrected gradients are stored: one more float for
/// each parameter, which is not part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`reduce_variance`], [`clip_by_block_norm`] and [`scale_by_adam`] give,
/// or a pattern of the mask matches no leaf.
///
/// # Example
///
/// The first step is Adam's:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = mars(0.1).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.5_f64, -0.2], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.9, 1.1][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Yuan, Liu, Wu, Zhou and Gu, [MARS: unleashing the power of variance reduction for training large
/// models](https://arxiv.org/abs/2411.10438), 2024, algorithm 2, in the approximate form, which needs no second gradient. Optax
/// has none. Differs: all leaves are treated alike, where the authors' code gives those of fewer than two axes to AdamW with
/// other hyperparameters; [`partition`](crate::partition) does that.
pub fn mars(learning_rate: impl Into<Hyperparam>) -> Mars {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let adam = scale_by_adam().b1(0.95).b2(0.99);
    let rate = scale_by_learning_rate(learning_rate);
    Mars { chain: (reduce_variance(), clip_by_block_norm(1.0), adam, decay, rate) }
}

type Chain = (ReduceVariance, ClipByBlockNorm, ScaleByAdam, Masked<AddDecayedWeights>, ScaleByLearningRate);

/// See [`mars`](mars()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Mars {
    chain: Chain,
}

impl Mars {
    /// Sets the learning rate.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.chain.4.learning_rate = learning_rate.into();
        self
    }

    /// Sets the decay of the first moment, in `[0, 1)`.
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.chain.2.b1 = b1.into();
        self.share();
        self
    }

    /// Sets the decay of the second moment, in `[0, 1)`.
    pub fn b2(mut self, b2: impl Into<Hyperparam>) -> Self {
        self.chain.2.b2 = b2.into();
        self
    }

    /// Sets what is added to the root.
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.chain.2.eps = eps.into();
        self
    }

    /// Sets how much of the difference to the last gradient is made up for; with 0 it is AdamW with clipped gradients.
    pub fn gamma(mut self, gamma: impl Into<Hyperparam>) -> Self {
        self.chain.0.gamma = gamma.into();
        self
    }

    /// Sets the largest norm of a leaf's corrected gradient.
    pub fn max_norm(mut self, max_norm: impl Into<Hyperparam>) -> Self {
        self.chain.1.max_norm = max_norm.into();
        self
    }

    /// Sets the decay of the weights for each unit of learning rate.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.chain.3.inner.weight_decay = weight_decay.into();
        self
    }

    /// Sets which leaves decay.
    pub fn mask(mut self, mask: impl Into<Mask>) -> Self {
        self.chain.3.mask = mask.into();
        self
    }

    /// Sets the type of the first moment.
    pub fn mu_dtype(mut self, mu_dtype: impl Into<Option<DType>>) -> Self {
        self.chain.2.mu_dtype = mu_dtype.into();
        self
    }

    /// Sets the type of the second moment.
    pub fn nu_dtype(mut self, nu_dtype: impl Into<Option<DType>>) -> Self {
        self.chain.2.nu_dtype = nu_dtype.into();
        self
    }

    /// Tells the correction how slow the running mean is.
    fn share(&mut self) {
        self.chain.0.b1.clone_from(&self.chain.2.b1);
    }
}

impl Arguments for Mars {
    const NAME: &'static str = "mars";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let (correction, clip, adam, decay, rate) = &mut self.chain;
        visit("learning_rate", Argument::Hyperparam(&mut rate.learning_rate));
        visit("b1", Argument::Hyperparam(&mut adam.b1));
        visit("b2", Argument::Hyperparam(&mut adam.b2));
        visit("eps", Argument::Hyperparam(&mut adam.eps));
        visit("gamma", Argument::Hyperparam(&mut correction.gamma));
        visit("max_norm", Argument::Hyperparam(&mut clip.max_norm));
        visit("weight_decay", Argument::Hyperparam(&mut decay.inner.weight_decay));
        visit("mask", Argument::Static(&decay.mask));
        visit("mu_dtype", Argument::Static(&adam.mu_dtype));
        visit("nu_dtype", Argument::Static(&adam.nu_dtype));
        // What was visited may have been set.
        self.share();
    }
}

crate::engine::delegate_stage!(Mars => chain: Chain);
