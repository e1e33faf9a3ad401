use crate::part::prelude::*;
use core::hint::select_unpredictable;

/// Clips each element of the updates to `[−max_delta, max_delta]`.
///
/// # Arithmetic
///
/// ```text
/// u ← min(max(u, −max_delta), max_delta)          NaN stays NaN
/// ```
///
/// # Cost
///
/// No state for elements. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `max_delta` is negative or NaN. An infinite one never clips.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = clip(1.0);
/// let mut params = vec![0.0_f32; 4];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.5_f32, 3.0, -3.0, f32::NEG_INFINITY], &mut state)?;
/// assert_eq!(params, [0.5, 1.0, -1.0, -1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`clip`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none. PyTorch:
/// `clip_grad_value_`.
pub fn clip(max_delta: impl IntoHyperparam) -> Clip {
    Clip::with(max_delta)
}

part! {
    /// See [`clip`](clip()).
    pub Clip as "clip": OneElement, LIMITS;
    required {
        /// The largest absolute value.
        max_delta: AT_LEAST_0;
    }
}

impl Rule for Clip {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.max_delta.at(clock.count))
    }

    // `min` and `max` drop NaN; `if` compiles to slow masked stores if nothing else changes `u`.
    #[inline(always)]
    fn apply<C: Real>(most: C, _: &mut [C; 0], u: C, _: C) -> C {
        let u = select_unpredictable(u > most, most, u);
        select_unpredictable(u < -most, -most, u)
    }
}
