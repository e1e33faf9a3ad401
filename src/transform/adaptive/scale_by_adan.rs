use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Adds a running mean of changes to that of the updates, and divides the sum by a running root mean square.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// d = u − g                                      0 at the first step
/// m ← b1·m + (1 − b1)·u                          starts at 0
/// v ← b2·v + (1 − b2)·d                          starts at 0
/// n ← b3·n + (1 − b3)·(u + (1 − b2)·d)²          starts at 0
/// g ← u                                          the incoming update
/// u ← (m / (1 − b1ᵗ) + (1 − b2)·v / (1 − b2ᵗ)) / (√(n / (1 − b3ᵗ) + eps_root) + eps)
/// ```
///
/// # Cost
///
/// Four floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1`, `b2` or `b3` is not in `[0, 1)`, or `eps` or `eps_root` is negative or not finite.
///
/// # Example
///
/// With all decays 0 the second update is `2 + (2 − 6) = −2`, divided by its absolute value:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_adan;
///
/// let optimizer = scale_by_adan().b1(0.0).b2(0.0).b3(0.0).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(6.0, 1.0), (2.0, -1.0)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Xie and others, [Adan: adaptive Nesterov momentum algorithm for faster optimizing deep
/// models](https://arxiv.org/abs/2208.06677), 2022, algorithm 1; the paper's betas are 1 minus these, and its bias
/// corrections are in its code. Optax,
/// [`scale_by_adan`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: `1 − b2` is Optax's,
/// where the paper and its code multiply by `b2`; state of 16-bit leaves is `f32`. PyTorch has none.
pub fn scale_by_adan() -> ScaleByAdan {
    ScaleByAdan::with()
}

part! {
    /// See [`scale_by_adan`].
    pub ScaleByAdan as "scale_by_adan": OneElement;
    hyperparams {
        /// Decay of the mean.
        b1: DECAY = 0.98;
        /// Decay of the mean of changes.
        b2: DECAY = 0.92;
        /// Decay of the mean of squares.
        b3: DECAY = 0.99;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
    }
    effect Self::effect_of;
}

impl ScaleByAdan {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByAdan`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdanScalars<C> {
    first: bool,
    update_mean: Mean<C>,
    change_mean: Mean<C>,
    square_mean: Mean<C>,
    change_weight: C,
    unbias1: C,
    /// Includes the factor `change_weight`.
    unbias2: C,
    unbias3: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAdan {
    const SLOTS: &'static [Slot] = &[Slot::signed("m"), Slot::signed("v"), Slot::not_negative("n"), Slot::signed("g")];
    type Slots<C: Real> = [C; 4];
    type Scalars<C: Real> = AdanScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AdanScalars<C> {
        let [b1, b2, b3] = Hyperparam::all_at([&self.b1, &self.b2, &self.b3], clock.count);
        AdanScalars {
            first: clock.updates == 0,
            update_mean: Mean::of(b1),
            change_mean: Mean::of(b2),
            square_mean: Mean::of(b3),
            change_weight: C::of(1.0 - b2),
            unbias1: C::of(1.0 / clock.bias_correction(b1)),
            unbias2: C::of((1.0 - b2) / clock.bias_correction(b2)),
            unbias3: C::of(1.0 / clock.bias_correction(b3)),
            eps: C::of(self.eps.at(clock.count)),
            eps_root: C::of(self.eps_root.at(clock.count)),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdanScalars<C>, [m, v, n, g]: &mut [C; 4], u: C, _: C) -> C {
        let change = u - if k.first { u } else { *g };
        let sum = u + k.change_weight * change;
        *m = k.update_mean.with(*m, u);
        *v = k.change_mean.with(*v, change);
        *n = k.square_mean.with(*n, sum * sum);
        *g = u;
        (k.unbias1 * *m + k.unbias2 * *v) / ((k.unbias3 * *n + k.eps_root).sqrt() + k.eps)
    }
}
