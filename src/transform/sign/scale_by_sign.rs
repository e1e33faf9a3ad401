use crate::part::prelude::*;
use core::hint::select_unpredictable;

/// Replaces updates by their signs.
///
/// # Arithmetic
///
/// ```text
/// u ← −1, 0 or 1                          ±0 and NaN are unmodified
/// ```
///
/// # Cost
///
/// No state. Fuses; reads no parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_sign;
///
/// let optimizer = scale_by_sign();
/// let mut params = vec![0.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e-3_f32, -5.0, 0.0], &mut state)?;
/// assert_eq!(params, [1.0, -1.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Bernstein, Wang, Azizzadenesheli and Anandkumar, [signSGD: compressed optimisation for non-convex
/// problems](https://arxiv.org/abs/1802.04434), 2018. Optax,
/// [`scale_by_sign`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn scale_by_sign() -> ScaleBySign {
    ScaleBySign::with()
}

part! {
    /// See [`scale_by_sign`].
    #[derive(Copy, Eq)]
    pub ScaleBySign as "scale_by_sign": OneElement, SCALE_INVARIANT;
}

impl Rule for ScaleBySign {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> C {
        sign(u)
    }
}

/// Returns −1, 0 or 1. One selection: zero and NaN fail the comparison too.
#[inline(always)]
pub(super) fn sign<C: Real>(x: C) -> C {
    select_unpredictable(x.abs() > C::zero(), C::one().copysign(x), x)
}
