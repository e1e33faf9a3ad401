use core::hint::select_unpredictable;

use super::scale_by_sign::sign;
use crate::part::prelude::*;

/// Replaces updates by per-element steps that grow while the sign of the gradient stays and shrink when it changes.
///
/// The size of the gradient does not matter, so this is for full-batch gradients, not for mini-batches.
///
/// # Arithmetic
///
/// With `last` the sign of the update before, or 0 if that was held back, both starting at 0, and `step` starting at
/// `learning_rate`:
///
/// ```text
/// sign(u)·last > 0:   step ← min(step·eta_plus, max_step_size)
/// sign(u)·last < 0:   step ← max(step·eta_minus, min_step_size);  u ← 0 instead of what follows
/// u ← step·sign(u)
/// last ← sign(u)
/// ```
///
/// More exactly, `step` is limited on both sides whenever it changes.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `learning_rate` is not finite, `eta_minus` or `eta_plus` is negative or not finite, or the limits
/// are negative or NaN.
///
/// # Example
///
/// The step grows by 1.2 while the sign stays; when it changes, there is no step, and the next one is half as large:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_rprop;
///
/// let optimizer = scale_by_rprop(0.5);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(3.0, 0.5), (7.0, 0.6), (-0.1, 0.0), (-0.2, -0.3)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Riedmiller and Braun, [A direct adaptive method for faster backpropagation learning: the RPROP
/// algorithm](https://doi.org/10.1109/ICNN.1993.298623), 1993; Igel and Hüsken, [Empirical evaluation of the improved
/// Rprop learning algorithms](https://doi.org/10.1016/S0925-2312%2801%2900700-7), 2003, for this variant, iRprop⁻,
/// which is PyTorch's `Rprop` too. Optax,
/// [`scale_by_rprop`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: Optax's update is
/// always that of the step before, zero at first. PyTorch limits the first step too; Riedmiller and Braun take the last
/// step back when the sign changes.
pub fn scale_by_rprop(learning_rate: impl IntoHyperparam) -> ScaleByRprop {
    ScaleByRprop::with(learning_rate)
}

part! {
    /// See [`scale_by_rprop`].
    pub ScaleByRprop as "scale_by_rprop": OneElement, SCALE_INVARIANT;
    required {
        /// The first step's size. Read once, in `init`: for a schedule, the value at 0.
        learning_rate: FINITE;
    }
    hyperparams {
        /// Factor of a step when the sign changes.
        eta_minus: NOT_NEGATIVE = 0.5;
        /// Factor of a step while the sign stays.
        eta_plus: NOT_NEGATIVE = 1.2;
        /// The smallest step.
        min_step_size: AT_LEAST_0 = 1e-6;
        /// The largest step.
        max_step_size: AT_LEAST_0 = 50.0;
    }
}

/// Scalars of [`ScaleByRprop`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct RpropScalars<C> {
    eta_minus: C,
    eta_plus: C,
    least: C,
    most: C,
}

impl Rule for ScaleByRprop {
    const SLOTS: &'static [Slot] = &[Slot::not_negative("step_sizes"), Slot::signed("last_signs")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = RpropScalars<C>;

    fn slot(&self, slot: Slot) -> Slot {
        if slot.name() == "step_sizes" { slot.starts_at(self.learning_rate.at(0)) } else { slot }
    }

    fn scalars<C: Real>(&self, clock: Clock) -> RpropScalars<C> {
        let [eta_minus, eta_plus, least, most] =
            [&self.eta_minus, &self.eta_plus, &self.min_step_size, &self.max_step_size]
                .map(|h| C::of(h.at(clock.count)));
        RpropScalars { eta_minus, eta_plus, least, most }
    }

    // Compares signs, because products of gradients could underflow.
    #[inline(always)]
    fn apply<C: Real>(k: RpropScalars<C>, [step, last]: &mut [C; 2], u: C, _: C) -> C {
        let zero = C::zero();
        let sign = sign(u);
        let agreement = sign * *last;
        let changed = *step * select_unpredictable(agreement > zero, k.eta_plus, k.eta_minus);
        let changed = select_unpredictable(changed < k.least, k.least, changed);
        let changed = select_unpredictable(changed > k.most, k.most, changed);
        *step = select_unpredictable(agreement == zero, *step, changed);
        *last = select_unpredictable(agreement < zero, zero, sign);
        *step * *last
    }
}
