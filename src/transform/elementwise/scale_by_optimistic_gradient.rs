use crate::part::prelude::*;

/// Adds to each update its change since the last step, as an extrapolation.
///
/// # Arithmetic
///
/// ```text
/// before = previous_gradient                         u itself at the first step
/// previous_gradient ← u
/// u ← (alpha + beta)·u − beta·before
/// ```
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `alpha` or `beta` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_optimistic_gradient;
///
/// let optimizer = scale_by_optimistic_gradient();
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, 4.0), (3.0, 2.0), (3.0, 3.0)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Mokhtari, Ozdaglar and Pattathil, [A unified analysis of extra-gradient and optimistic gradient methods for saddle
/// point problems](https://arxiv.org/abs/1901.08511), 2019, with separate `alpha` and `beta`. Optax,
/// [`scale_by_optimistic_gradient`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: `alpha`
/// and `beta` may be schedules; the gradient kept of a 16-bit leaf is `f32`. PyTorch has none.
pub fn scale_by_optimistic_gradient() -> ScaleByOptimisticGradient {
    ScaleByOptimisticGradient::with()
}

part! {
    /// See [`scale_by_optimistic_gradient`].
    pub ScaleByOptimisticGradient as "scale_by_optimistic_gradient": OneElement, SAME_DIRECTION;
    hyperparams {
        /// Factor of the update.
        alpha: FINITE = 1.0;
        /// Factor of its change.
        beta: FINITE = 1.0;
    }
}

/// Scalars of [`ScaleByOptimisticGradient`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticScalars<C> {
    first: bool,
    update_weight: C,
    previous_weight: C,
}

impl Rule for ScaleByOptimisticGradient {
    const SLOTS: &'static [Slot] = &[Slot::signed("previous_gradient")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = OptimisticScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> OptimisticScalars<C> {
        let [alpha, beta] = Hyperparam::all_at([&self.alpha, &self.beta], clock.count);
        OptimisticScalars {
            first: clock.updates == 0,
            update_weight: C::of(alpha + beta),
            previous_weight: C::of(beta),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: OptimisticScalars<C>, [previous]: &mut [C; 1], u: C, _: C) -> C {
        let before = if k.first { u } else { *previous };
        *previous = u;
        k.update_weight * u - k.previous_weight * before
    }
}
