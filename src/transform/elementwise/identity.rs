use crate::part::prelude::*;

/// Returns updates unchanged.
///
/// The empty chain, `chain(())`, does the same without a name.
///
/// # Arithmetic
///
/// ```text
/// u ← u
/// ```
///
/// # Cost
///
/// None.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::identity;
///
/// let optimizer = identity();
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &0.5_f64, &mut state)?;
/// assert_eq!(params, 1.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`identity`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn identity() -> Identity {
    Identity::with()
}

part! {
    /// See [`identity`].
    #[derive(Copy, Default, Eq)]
    pub Identity as "identity": OneElement, SAME_DIRECTION;
}

impl Rule for Identity {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> C {
        u
    }
}
