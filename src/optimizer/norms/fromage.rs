use crate::part::prelude::*;
use crate::range::FINITE;
use crate::transform::{ScaleByTrustRatio, scale_by_trust_ratio};

/// Fromage: steps relative to the norm of each leaf's parameters, which are then shrunk to offset their growth.
///
/// # Arithmetic
///
/// For each leaf:
///
/// ```text
/// u ← u·max(‖p‖, min_norm) / max(‖u‖, min_norm)          scale_by_trust_ratio(min_norm)
/// p ← (p − learning_rate·u) / √(1 + learning_rate²)
/// ```
///
/// written as an update. Default: `min_norm` 1e-6.
///
/// # Cost
///
/// No state for elements. Two passes; the first reads and reduces.
///
/// # Errors
///
/// `init` fails if `learning_rate` is not finite, or `min_norm` is negative or not finite.
///
/// # Example
///
/// A step at a right angle to the parameters keeps their norm:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::fromage;
///
/// let optimizer = fromage(0.75);
/// let mut params = vec![5.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f64, 2.0], &mut state)?;
/// assert_eq!(params, [4.0, -3.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Bernstein, Vahdat, Yue and Liu, [On the distance between two neural networks and the stability of
/// learning](https://arxiv.org/abs/2002.03432), 2020, algorithm 1. Optax,
/// [`fromage`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: norms are summed in `f64`.
pub fn fromage(learning_rate: impl IntoHyperparam) -> Fromage {
    let ratio = scale_by_trust_ratio().min_norm(1e-6);
    Fromage { chain: (ratio, FromageStep::new(learning_rate)) }
}

optimizer! {
    /// See [`fromage`](fromage()).
    #[derive(PartialEq)]
    Fromage as "fromage" = (ScaleByTrustRatio, FromageStep) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            min_norm [0.min_norm] "Sets the lower bound of norms.";
    }
}

/// The second half of [`fromage`](fromage()).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FromageStep {
    /// Factor of the gradients, before the parameters shrink.
    pub learning_rate: Hyperparam,
}

impl FromageStep {
    /// Returns the step of a learning rate, with the subsequent shrinking of the parameters.
    pub fn new(learning_rate: impl IntoHyperparam) -> FromageStep {
        FromageStep { learning_rate: learning_rate.into() }
    }
}

impl crate::part::Part for FromageStep {
    const NAME: &'static str = "fromage_step";
    type Form = crate::part::OneElement;

    fn effect(&self) -> crate::part::Effect {
        crate::part::Effect::STEP.at_rate(&self.learning_rate)
    }

    fn validate(&self) -> Result<()> {
        self.learning_rate.check_range("fromage", "learning_rate", FINITE)
    }
}

impl Rule for FromageStep {
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = [C; 2];

    fn scalars<C: Real>(&self, clock: Clock) -> [C; 2] {
        let rate = self.learning_rate.at(clock.count);
        let square = rate * rate;
        let root = (1.0 + square).sqrt();
        // 1/root − 1, without cancellation at small rates.
        let shrink = if square.is_finite() { -square / (root * (1.0 + root)) } else { 1.0 / root - 1.0 };
        [C::of(-rate / root), C::of(shrink)]
    }

    #[inline(always)]
    fn apply<C: Real>([step, shrink]: [C; 2], _: &mut [C; 0], u: C, p: C) -> C {
        step * u + shrink * p
    }
}
