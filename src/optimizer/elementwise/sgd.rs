use crate::part::prelude::*;
use crate::transform::{ScaleByLearningRate, Trace, scale_by_learning_rate, trace};

/// Stochastic gradient descent (SGD), with or without momentum.
///
/// [`momentum`](Sgd::momentum) adds momentum, a decaying sum of gradients.
///
/// # Arithmetic
///
/// ```text
/// chain((), scale_by_learning_rate(learning_rate))
/// chain(trace(momentum, nesterov), scale_by_learning_rate(learning_rate))         with momentum
/// ```
///
/// Defaults: no momentum; with it, no nesterov.
///
/// # Cost
///
/// No state for elements; with momentum one float per parameter. One pass.
///
/// # Errors
///
/// `init` fails if the learning rate or the momentum is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = sgd(0.5).momentum(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [-0.5, -1.25, -2.125] {
///     optimizer.step(&mut params, &1.0_f64, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Sutskever, Martens, Dahl and Hinton, [On the importance of initialization and momentum in deep
/// learning](https://proceedings.mlr.press/v28/sutskever13.html), 2013. Optax,
/// [`sgd`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: momentum is part of the type, and only
/// a type with momentum has its options; a momentum of 0 keeps a trace. PyTorch's `SGD` has the same momentum and
/// nesterov; its `weight_decay` is an [`add_decayed_weights`](crate::add_decayed_weights) before this. Its `dampening`
/// is, without nesterov, a [`scale_by_schedule`](crate::transform::scale_by_schedule) before this that is 1 in the
/// first step and then `1 − dampening`.
pub fn sgd(learning_rate: impl IntoHyperparam) -> Sgd {
    Sgd { chain: ((), scale_by_learning_rate(learning_rate)) }
}

/// See [`sgd`](sgd()). `M` is the momentum: `()`, or [`Trace`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Sgd<M = ()> {
    pub(crate) chain: (M, ScaleByLearningRate),
}

type Plain = Sgd<()>;
type WithMomentum = Sgd<Trace>;

impl Sgd<()> {
    /// Adds momentum: a decaying sum of gradients, of which each step keeps the fraction `momentum`.
    pub fn momentum(self, momentum: impl IntoHyperparam) -> Sgd<Trace> {
        Sgd { chain: (trace(momentum), self.chain.1) }
    }
}

optimizer! {
    for Plain as "sgd" = ((), ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.";
    }
}

optimizer! {
    for WithMomentum as "sgd" = (Trace, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            momentum [0.decay] "Sets the decay of the sum of gradients.";
        options:
            nesterov: bool [0.nesterov] "Sets whether the sum is Nesterov momentum.",
            accumulator_dtype: Option<DType> [0.accumulator_dtype] "Sets the dtype of the sum.";
    }
}
