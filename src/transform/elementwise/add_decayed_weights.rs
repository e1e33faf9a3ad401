use crate::part::prelude::*;

/// Adds a multiple of the parameters to the updates: weight decay.
///
/// # Arithmetic
///
/// ```text
/// u ← u + weight_decay·p
/// ```
///
/// Before [`scale_by_learning_rate`](crate::scale_by_learning_rate) and after the rescaling of gradients it is
/// decoupled weight decay; before the rescaling it is L2 regularization.
///
/// # Cost
///
/// No state for elements. Fuses; reads parameters.
///
/// # Errors
///
/// `init` fails if `weight_decay` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
///
/// let optimizer = chain((add_decayed_weights(0.5), scale(-1.0)));
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &0.25_f64, &mut state)?;
/// assert_eq!(params, 2.0 - (0.25 + 0.5 * 2.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`add_decayed_weights`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: its `mask`
/// argument is [`masked`](crate::masked) here.
pub fn add_decayed_weights(weight_decay: impl IntoHyperparam) -> AddDecayedWeights {
    AddDecayedWeights::with(weight_decay)
}

part! {
    /// See [`add_decayed_weights`].
    pub AddDecayedWeights as "add_decayed_weights": OneElement;
    required {
        /// The multiple.
        weight_decay: FINITE;
    }
    effect Self::effect_of;
}

impl AddDecayedWeights {
    fn effect_of(&self) -> Effect {
        Effect::SAME_DIRECTION.decays(&self.weight_decay)
    }
}

impl Rule for AddDecayedWeights {
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.weight_decay.at(clock.count))
    }

    #[inline(always)]
    fn apply<C: Real>(weight_decay: C, _: &mut [C; 0], u: C, p: C) -> C {
        u + weight_decay * p
    }
}
