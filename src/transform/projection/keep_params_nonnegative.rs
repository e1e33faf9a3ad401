use crate::part::prelude::*;
use core::hint::select_unpredictable;

/// Shortens updates that would make a parameter negative, so that it becomes zero.
///
/// # Arithmetic
///
/// ```text
/// u ← −p if p + u < 0, else u
/// ```
///
/// A parameter that is already negative becomes zero unless its update lifts it above. A NaN is left alone. Put it
/// last: a later stage may undo it.
///
/// # Cost
///
/// No state for elements. Fuses; reads parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::keep_params_nonnegative;
///
/// let optimizer = chain((sgd(1.0), keep_params_nonnegative()));
/// let mut params = vec![1.0_f32, 1.0, -1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.25_f32, 4.0, 0.0], &mut state)?;
/// assert_eq!(params, [0.75, 0.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`keep_params_nonnegative`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn keep_params_nonnegative() -> KeepParamsNonnegative {
    KeepParamsNonnegative::with()
}

part! {
    /// See [`keep_params_nonnegative`].
    #[derive(Copy, Default, Eq)]
    pub KeepParamsNonnegative as "keep_params_nonnegative": OneElement;
}

impl Rule for KeepParamsNonnegative {
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    // `if` compiles to slow masked stores if nothing else changes `u`.
    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, p: C) -> C {
        select_unpredictable(p + u < C::zero(), -p, u)
    }
}
