use crate::internal::recipe::words;
use crate::needs::Value;
use crate::part::TwoPass;
use crate::transform::rescale::{Rescale, Squares, Updates, rescales};

/// Multiplies updates by Polyak's step size: the excess of the loss over its minimum, divided by the squared norm.
///
/// A step needs the [value](crate::extra::value) of the loss. If the loss were linear, the step would reduce it to
/// `f_min`.
///
/// # Arithmetic
///
/// ```text
/// gap = value − f_min                      with sps+: at least 0
/// n = Σ u²                                 over all leaves, in f64
/// u ← u · min(gap / (n + eps), max_learning_rate)
/// ```
///
/// If `n + eps` is at most 2.2e-16, the update is 0. With `sps` a loss below `f_min` gives a negative step.
///
/// # Cost
///
/// No state for elements. One more pass, which reads gradients and writes nothing. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `f_min` is not finite, `max_learning_rate` is NaN, or `eps` is negative or not finite.
///
/// # Example
///
/// The squared norm is 25; the loss is 5 above the least value.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_polyak;
///
/// let optimizer = scale_by_polyak().f_min(2.0);
/// let params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// let updates = optimizer.update_with(&vec![3.0, 4.0], extra::value(7.0), &mut state, &params)?;
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &[0.6, 0.8][..]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Polyak, Introduction to optimization, 1987, section 5.3; Loizou, Vaswani, Laradji and Lacoste-Julien, [Stochastic
/// Polyak step-size for SGD](https://arxiv.org/abs/2002.10542), 2020, equation 4 with c = 1; Garrigos, Gower and
/// Schaipp, [Function value learning](https://arxiv.org/abs/2307.14528), 2023, for `sps+`. Optax,
/// [`scale_by_polyak`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the sum is `f64`.
pub fn scale_by_polyak() -> ScaleByPolyak {
    ScaleByPolyak::with()
}

part! {
    /// See [`scale_by_polyak`].
    pub ScaleByPolyak as "scale_by_polyak": TwoPass<Value>, SAME_DIRECTION;
    hyperparams {
        /// The minimum of the loss, or an estimate of it.
        f_min: FINITE = 0.0;
        /// The largest step size.
        max_learning_rate: NUMBER = 1.0;
        /// Added to the squared norm.
        eps: NOT_NEGATIVE = 0.0;
    }
    options {
        /// Behaviour for a loss below `f_min`.
        variant: PolyakVariant = PolyakVariant::Sps;
    }
}

/// Behaviour of [`scale_by_polyak`] for a loss below `f_min`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolyakVariant {
    /// `sps`: the step size is negative.
    #[default]
    Sps,
    /// `sps+`: the step size is zero.
    SpsPlus,
}

words!(PolyakVariant { Sps = "sps", SpsPlus = "sps+" });

/// Scalars of [`ScaleByPolyak`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct PolyakScalars {
    gap: f64,
    max_learning_rate: f64,
    eps: f64,
}

impl Rescale for ScaleByPolyak {
    type Of = Updates;
    const BY_LEAF: bool = false;
    type Hyperparams = PolyakScalars;

    fn hyperparams(&self, count: u64, value: Option<f64>) -> PolyakScalars {
        let gap = value.unwrap_or(f64::NAN) - self.f_min.at(count);
        PolyakScalars {
            // NaN fails the comparison; `max` would turn it into 0.
            gap: if self.variant == PolyakVariant::SpsPlus && gap < 0.0 { 0.0 } else { gap },
            max_learning_rate: self.max_learning_rate.at(count),
            eps: self.eps.at(count),
        }
    }

    fn factor(k: PolyakScalars, [squares]: [Squares; 1], _: usize) -> f64 {
        let step = squares.divide(k.gap, k.eps);
        let step = if step > k.max_learning_rate { k.max_learning_rate } else { step };
        if squares.sum() + k.eps <= f64::EPSILON { 0.0 } else { step }
    }
}

rescales!(ScaleByPolyak);
