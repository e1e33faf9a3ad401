//! Numbers of an array brought side by side.

use super::isa::{Job, current_isa, dispatch};
use crate::element::Real;

struct Spread<'a, C> {
    from: &'a [C],
    step: usize,
    to: &'a mut [C],
}

impl<C: Real> Job for Spread<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Spread { from, step, to } = self;
        match step {
            // Not `fill`, which is compiled for the baseline.
            0 => {
                let one = from[0];
                for x in to {
                    *x = one;
                }
            }
            1 => to.copy_from_slice(&from[..to.len()]),
            _ => {
                for i in 0..to.len() {
                    to[i] = from[i * step];
                }
            }
        }
    }
}

/// Fills a stretch, which has an element at least, with numbers so many places apart; zero places are all the first.
pub(crate) fn spread<C: Real>(from: &[C], step: usize, to: &mut [C]) {
    dispatch(current_isa(), Spread { from, step, to });
}
