//! Updates that a loop gives out, or adds to parameters.

use crate::element::Real;

/// How a loop that only gives out updates does so: multiplied before and after, by neighbours that do nothing else; and
/// to another place, or added to the parameters that are there. Which of these is no condition but masks: two loops for
/// each part would take much longer to compile, and a condition in one comes between its elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gives<C> {
    pub(super) before: C,
    pub(super) after: C,
    /// Which bits are kept of what is there: all or none. `other` is none or all.
    keep: C,
    other: C,
    /// Which are set in it, and which in an update that is zero.
    set: C,
    zero: C,
    /// Whether it asks for what it reads from and writes to, which is in the cache else.
    pub(super) asks: bool,
    /// Whether it adds up before, if it is a loop that can do that apart; see `kernel`.
    pub(super) adds: bool,
}

impl<C: Real> Gives<C> {
    /// To another place, by itself: it multiplies by ones, which changes no number.
    #[inline(always)]
    pub(super) fn out() -> Gives<C> {
        Gives::between(C::one(), C::one())
    }

    /// To another place.
    #[inline(always)]
    pub(super) fn between(before: C, after: C) -> Gives<C> {
        Gives {
            before,
            after,
            keep: C::zero(),
            other: C::of_all_bits(),
            set: C::neg_zero(),
            zero: C::zero(),
            asks: false,
            adds: true,
        }
    }

    /// The same, to be added to the parameters.
    pub(super) fn to_params(self) -> Gives<C> {
        let (keep, other, set, zero) = (C::of_all_bits(), C::zero(), C::zero(), C::neg_zero());
        Gives { keep, other, set, zero, asks: true, ..self }
    }

    /// The same, and adds up before or does not.
    #[inline(always)]
    pub(super) fn adding(self, adds: bool) -> Gives<C> {
        Gives { adds, ..self }
    }

    /// The same, from memory or from the cache.
    #[inline(always)]
    pub(super) fn asking(self, asks: bool) -> Gives<C> {
        Gives { asks, ..self }
    }

    /// The parameter: what is there, if updates are added to it.
    #[inline(always)]
    pub(super) fn param(self, there: C, p: C) -> C {
        there.masked(self.keep, p.masked(self.other, C::zero()))
    }

    /// What is there afterwards: the update, which is added to minus zero, or what `add_update` makes.
    #[inline(always)]
    pub(super) fn put(self, there: C, u: C) -> C {
        let u = if u == C::zero() { u.masked(C::of_all_bits(), self.zero) } else { u };
        there.masked(self.keep, self.set) + u
    }
}
