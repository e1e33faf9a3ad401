use crate::arguments::{Argument, Arguments};
use crate::element::DType;
use crate::engine::{Stage, delegate_stage};
use crate::recipe::Recipe;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{
    AddDecayedWeights, ScaleByLearningRate, ScaleBySophia, add_decayed_weights, scale_by_learning_rate, scale_by_sophia,
};
use crate::wrapper::{Masked, masked};

/// Sophia: momentum divided by an estimate of the Hessian's diagonal that is renewed now and then, clipped, with decoupled
/// weight decay.
///
/// `hessian_diagonal_fn` makes the diagonal of the gradients: a
/// [`hutchinson_estimator_diag_hessian`](crate::hutchinson_estimator_diag_hessian), which needs the loss and its gradient as
/// a function, or one of your own, such as a [part that sees whole leaves](crate::part::Whole) that has sampled labels' gradients.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_sophia(hessian_diagonal_fn, b1, b2, eps, gamma, clip_threshold, update_interval),
///       add_decayed_weights(weight_decay, weight_decay_mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.965, `b2` 0.99, `eps` 1e-8, `gamma` 0.01, `clip_threshold` 1, `update_interval` 10, `weight_decay` 1e-4
/// on all leaves.
///
/// # Cost
///
/// Two floats of state for each parameter, and room for one more; two passes, and every `update_interval` steps what
/// `hessian_diagonal_fn` takes.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_sophia`] gives, or `weight_decay` or the learning rate is
/// not finite.
///
/// # Example
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
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
/// [`contrib.sophia`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as [`scale_by_sophia`]; what
/// estimates the diagonal is always given.
pub fn sophia<H: Stage>(learning_rate: impl Into<Hyperparam>, hessian_diagonal_fn: H) -> Sophia<H> {
    Sophia {
        chain: (
            scale_by_sophia(hessian_diagonal_fn),
            masked(add_decayed_weights(1e-4), Mask::all()),
            scale_by_learning_rate(learning_rate),
        ),
    }
}

type Chain<H> = (ScaleBySophia<H>, Masked<AddDecayedWeights>, ScaleByLearningRate);

/// See [`sophia`](sophia()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Sophia<H> {
    chain: Chain<H>,
}

impl<H> Sophia<H> {
    /// Sets the decay of the mean of the gradients, in `[0, 1)`.
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.chain.0 = self.chain.0.b1(b1);
        self
    }

    /// Sets the decay of the mean of the diagonals, in `[0, 1)`.
    pub fn b2(mut self, b2: impl Into<Hyperparam>) -> Self {
        self.chain.0 = self.chain.0.b2(b2);
        self
    }

    /// Sets the least that is divided by.
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.chain.0 = self.chain.0.eps(eps);
        self
    }

    /// Sets the decay of the weights for each unit of learning rate.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.chain.1.inner.weight_decay = weight_decay.into();
        self
    }

    /// Sets which leaves decay.
    pub fn weight_decay_mask(mut self, weight_decay_mask: impl Into<Mask>) -> Self {
        self.chain.1.mask = weight_decay_mask.into();
        self
    }

    /// Sets what the mean of the diagonals is multiplied by.
    pub fn gamma(mut self, gamma: impl Into<Hyperparam>) -> Self {
        self.chain.0 = self.chain.0.gamma(gamma);
        self
    }

    /// Sets the largest update before the learning rate.
    pub fn clip_threshold(mut self, clip_threshold: impl Into<Hyperparam>) -> Self {
        self.chain.0 = self.chain.0.clip_threshold(clip_threshold);
        self
    }

    /// Does not clip.
    pub fn without_clipping(mut self) -> Self {
        self.chain.0 = self.chain.0.without_clipping();
        self
    }

    /// Sets every how many steps the diagonal is estimated; at least 1.
    pub fn update_interval(mut self, update_interval: u64) -> Self {
        self.chain.0 = self.chain.0.update_interval(update_interval);
        self
    }

    /// Sets the type of the mean of the gradients.
    pub fn mu_dtype(mut self, mu_dtype: impl Into<Option<DType>>) -> Self {
        self.chain.0 = self.chain.0.mu_dtype(mu_dtype);
        self
    }
}

impl<H: Stage> Arguments for Sophia<H> {
    const NAME: &'static str = "sophia";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let (scale, decay, rate) = &mut self.chain;
        visit("learning_rate", Argument::Hyperparam(&mut rate.learning_rate));
        scale.arguments(visit);
        visit("weight_decay", Argument::Hyperparam(&mut decay.inner.weight_decay));
        visit("weight_decay_mask", Argument::Static(&decay.mask));
    }
}

delegate_stage! {
    Sophia<H> where H: Stage => chain: Chain<H>;
    needs H::Needs;
    recipe |this: &Sophia<H>| {
        let (scale, decay, rate) = &this.chain;
        use crate::recipe::ToRecipe;
        let mut entries = vec![("learning_rate".to_owned(), rate.learning_rate.to_recipe())];
        if let Some((_, Recipe::Map(of_scale))) = scale.recipe().as_call() {
            entries.extend(of_scale.iter().cloned());
        }
        entries.push(("weight_decay".to_owned(), decay.inner.weight_decay.to_recipe()));
        entries.push(("weight_decay_mask".to_owned(), decay.mask.to_recipe()));
        Recipe::Map(vec![("sophia".to_owned(), Recipe::Map(entries))])
    };
    describe |this: &Sophia<H>| format!("sophia[{}]", this.chain.describe())
}
