use crate::part::prelude::*;

/// Divides updates by the root of the sum of all their squares so far.
///
/// # Arithmetic
///
/// ```text
/// sum_of_squares ← sum_of_squares + u²           starts at initial_accumulator_value
/// u ← u / √(sum_of_squares + eps)                eps_in_sqrt (the default); 0 where sum_of_squares is 0
/// u ← u / (√sum_of_squares + eps)                otherwise; 0 where sum_of_squares is 0
/// ```
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `initial_accumulator_value` or `eps` is negative or not finite.
///
/// # Example
///
/// The sums are 3², 3² + 4² and so on:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_rss;
///
/// let optimizer = scale_by_rss().initial_accumulator_value(0.0).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(0.0, 0.0), (3.0, 1.0), (-4.0, -0.8)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Duchi, Hazan and Singer, [Adaptive subgradient methods for online learning and stochastic
/// optimization](https://jmlr.org/papers/v12/duchi11a.html), 2011, with a diagonal matrix. Optax,
/// [`scale_by_rss`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the sum of a 16-bit leaf
/// is `f32`; Optax has no `eps_in_sqrt`. PyTorch's `Adagrad` has `eps` outside the root, 1e-10, and starts from 0.
pub fn scale_by_rss() -> ScaleByRss {
    ScaleByRss::with()
}

part! {
    /// See [`scale_by_rss`].
    pub ScaleByRss as "scale_by_rss": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Initial value of the sum.
        initial_accumulator_value: NOT_NEGATIVE = 0.1;
        /// Added under the root or to it.
        eps: NOT_NEGATIVE = 1e-7;
    }
    options {
        /// If true, `eps` is added under the root, else to it.
        eps_in_sqrt: bool = true;
    }
}

impl Rule for ScaleByRss {
    const SLOTS: &'static [Slot] = &[Slot::not_negative("sum_of_squares")];
    type Slots<C: Real> = [C; 1];
    /// Added under the root, and to it.
    type Scalars<C: Real> = [C; 2];

    fn slot(&self, slot: Slot) -> Slot {
        slot.starts_at(self.initial_accumulator_value.at(0))
    }

    fn scalars<C: Real>(&self, clock: Clock) -> [C; 2] {
        let eps = self.eps.at(clock.count);
        if self.eps_in_sqrt { [C::of(eps), C::zero()] } else { [C::zero(), C::of(eps)] }
    }

    #[inline(always)]
    fn apply<C: Real>([under, beside]: [C; 2], [sum]: &mut [C; 1], u: C, _: C) -> C {
        *sum += u * u;
        // Dividing by infinity gives zero, also after a NaN, which stays in the sum.
        let sum = if *sum > C::zero() { *sum } else { C::infinity() };
        u / ((sum + under).sqrt() + beside)
    }
}
