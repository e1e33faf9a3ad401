use crate::part::prelude::*;
use core::hint::select_unpredictable;

/// Accumulates updates, and emits the sum every `k` steps and zero between.
///
/// The other members of a chain still run at every step: with [`adam`](crate::adam()) before it, `k` mini-batches are
/// `k` steps of Adam. Use [`multi_steps`](crate::multi_steps) for `k` mini-batches as one large batch.
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// sum ← u if t mod k = 1 (or k = 1), else sum + u
/// u ← sum if t mod k = 0, else 0
/// ```
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `k` is 0.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::apply_every;
///
/// let optimizer = apply_every(2);
/// let params = 0.0_f32;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(1.0_f32, 0.0), (2.0, 3.0), (5.0, 0.0), (6.0, 11.0)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f32>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`apply_every`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: zeros are
/// assigned, not multiplied by, so that a NaN affects only the sum that contains it; the count continues instead of
/// restarting.
pub fn apply_every(k: u64) -> ApplyEvery {
    ApplyEvery::with().k(k)
}

part! {
    /// See [`apply_every`].
    #[derive(Eq)]
    pub ApplyEvery as "apply_every": OneElement, SAME_DIRECTION;
    integers {
        /// Number of steps per sum.
        k: u64 = 1, AT_LEAST_1;
    }
}

/// Scalars of [`ApplyEvery`], computed once per step: whether a sum begins, and whether it is emitted.
#[derive(Clone, Copy, Debug)]
pub struct ApplyEveryScalars {
    begins: bool,
    ends: bool,
}

impl Rule for ApplyEvery {
    // Rows without a gradient may have updates that are due.
    const SLOTS: &'static [Slot] = &[Slot::exact("sum").of_all_rows()];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = ApplyEveryScalars;

    fn scalars<C: Real>(&self, clock: Clock) -> ApplyEveryScalars {
        let place = clock.updates % self.k;
        ApplyEveryScalars { begins: place == 0, ends: place == self.k - 1 }
    }

    #[inline(always)]
    fn apply<C: Real>(k: ApplyEveryScalars, [sum]: &mut [C; 1], u: C, _: C) -> C {
        *sum = select_unpredictable(k.begins, C::zero(), *sum) + u;
        select_unpredictable(k.ends, *sum, C::zero())
    }
}
