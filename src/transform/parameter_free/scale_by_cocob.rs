use crate::part::prelude::*;
use core::hint::select_unpredictable;

/// Computes steps by coin betting on each element's gradient, without a learning rate.
///
/// The update is the step itself, not a direction: no later stage may scale it.
///
/// # Arithmetic
///
/// With `x0` the parameters in `init`, `L` starting at `eps`, the rest at 0:
///
/// ```text
/// L ← max(L, |u|)                         the largest gradient
/// G ← G + |u|
/// R ← max(R − u·(p − x0), 0)              reward of the bets
/// C ← C − u
/// u ← x0 + C / (L·max(G + L, alpha·L))·(L + R) − p
/// ```
///
/// # Cost
///
/// Five floats of state per parameter. Fuses; reads parameters.
///
/// # Errors
///
/// `init` fails if `alpha` is negative or not finite, or `eps` is negative or not finite.
///
/// # Example
///
/// The first step is `1/alpha`, against the sign of the gradient:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_cocob;
///
/// let optimizer = scale_by_cocob().alpha(4.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![8.0_f64, -0.5], &mut state)?;
/// assert_eq!(params, [0.75, 1.25]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Orabona and Tommasi, [Training deep networks without learning rates through coin
/// betting](https://arxiv.org/abs/1705.07795), 2017, algorithm 2. Optax,
/// [`contrib.scale_by_cocob`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: with an `eps` of 0,
/// Optax makes NaN where all gradients were zero; state of 16-bit leaves is `f32`.
pub fn scale_by_cocob() -> ScaleByCocob {
    ScaleByCocob::with()
}

part! {
    /// See [`scale_by_cocob`].
    pub ScaleByCocob as "scale_by_cocob": OneElement, STEP;
    hyperparams {
        /// Divisor of the first bets.
        alpha: NOT_NEGATIVE = 100.0;
        /// Initial value of the largest gradient, read once, in `init`.
        eps: NOT_NEGATIVE = 1e-8;
    }
}

impl Rule for ScaleByCocob {
    const SLOTS: &'static [Slot] = &[
        Slot::exact("init_particles").starts_as_params(),
        Slot::exact("cumulative_gradients"),
        Slot::not_negative("scale"),
        Slot::not_negative("subgradients"),
        Slot::exact("reward"),
    ];
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 5];
    type Scalars<C: Real> = C;

    fn slot(&self, slot: Slot) -> Slot {
        if slot.name() == "scale" { slot.starts_at(self.eps.at(0)) } else { slot }
    }

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.alpha.at(clock.count))
    }

    #[inline(always)]
    fn apply<C: Real>(alpha: C, [start, gradients, scale, sizes, reward]: &mut [C; 5], u: C, p: C) -> C {
        let zero = C::zero();
        let size = u.abs();
        // The comparison keeps NaN.
        *scale = select_unpredictable(size <= *scale, *scale, size);
        *sizes += size;
        let won = *reward - u * (p - *start);
        *reward = select_unpredictable(won <= zero, zero, won);
        *gradients -= u;
        let [least, most] = [*sizes + *scale, alpha * *scale];
        let divisor = *scale * select_unpredictable(least <= most, most, least);
        let bet = select_unpredictable(divisor == zero, zero, *gradients / divisor);
        *start + bet * (*scale + *reward) - p
    }
}
