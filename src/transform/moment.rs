//! Helpers for rules with running means.

use crate::part::prelude::*;

/// Weights of the old mean and the new value; they sum to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean<C> {
    keep: C,
    take: C,
}

impl<C: Real> Mean<C> {
    pub(super) fn of(decay: f64) -> Mean<C> {
        Mean { keep: C::of(decay), take: C::of(1.0 - decay) }
    }

    #[inline(always)]
    pub(super) fn with(self, mean: C, x: C) -> C {
        self.keep * mean + self.take * x
    }
}

/// Returns the bias correction of a mean that starts at zero, or 1 unless `wanted`.
pub(super) fn unbias(clock: Clock, decay: f64, wanted: bool) -> f64 {
    if wanted { 1.0 / clock.bias_correction(decay) } else { 1.0 }
}

/// Returns the weights of mean and update for NAdam's momentum, which grows from `decay / 2`.
///
/// At step `t`, `μₜ = decay·(1 − 0.96^(t·momentum_decay) / 2)`.
pub(super) fn growing_first_moment(clock: Clock, decay: f64, momentum_decay: f64) -> (f64, f64) {
    let momentum = |t: f64| decay * (1.0 - 0.5 * 0.96_f64.powf(t * momentum_decay));
    let (mut product, mut t) = (1.0, 0.0);
    // A product below the last bit of 1 no longer changes its difference from 1.
    while t < clock.t() && product > f64::EPSILON / 16.0 {
        t += 1.0;
        product *= momentum(t);
    }
    let (now, next) = (momentum(clock.t()), momentum(clock.t() + 1.0));
    (next / (1.0 - product * next), (1.0 - now) / (1.0 - product))
}

/// Returns the weights of mean and update in the bias-corrected or Nesterov first moment.
pub(super) fn first_moment(clock: Clock, decay: f64, nesterov: bool) -> (f64, f64) {
    let unbias = 1.0 / clock.bias_correction(decay);
    let mut next = clock;
    next.updates = clock.updates.saturating_add(1);
    match nesterov {
        true => (decay / next.bias_correction(decay), (1.0 - decay) * unbias),
        false => (unbias, 0.0),
    }
}
