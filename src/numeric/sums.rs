//! Sums whose order does not depend on the instruction set.

use super::isa::{Job, current_isa, dispatch};
use crate::element::Real;

/// How many sums are kept side by side, so that adding up can be vectorised; their number fixes the order of addition
/// and so the result's bits.
pub(crate) const LANES: usize = 16;

/// The sum of `f` over a tile, in `f64`, in an order that does not depend on the instruction set.
#[inline(always)]
pub(crate) fn sum_tile<C: Real>(x: &[C], f: impl Fn(C) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += f(*x);
    }
    lanes.iter().sum()
}

/// The sum of the squares of a stretch.
pub(crate) fn squares<C: Real>(x: &[C]) -> f64 {
    dispatch(current_isa(), Squares(x))
}

struct Squares<'a, C>(&'a [C]);

impl<C: Real> Job for Squares<'_, C> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, |x| x.as_f64() * x.as_f64())
    }
}

/// The sum of `f` over two stretches of one length, in the order of [`sum_tile`].
#[inline(always)]
pub(crate) fn sum_pairs<C: Real>(x: &[C], y: &[C], f: impl Fn(C, C) -> f64) -> f64 {
    sum_triples(x, y, y, |x, y, _| f(x, y))
}

/// The same over three.
#[inline(always)]
pub(crate) fn sum_triples<C: Real>(x: &[C], y: &[C], z: &[C], f: impl Fn(C, C, C) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let whole = x.len() / LANES * LANES;
    let [(x, rest_x), (y, rest_y), (z, rest_z)] = [x, y, z].map(|all| all.split_at(whole));
    for ((x, y), z) in x.chunks_exact(LANES).zip(y.chunks_exact(LANES)).zip(z.chunks_exact(LANES)) {
        for (((lane, x), y), z) in lanes.iter_mut().zip(x).zip(y).zip(z) {
            *lane += f(*x, *y, *z);
        }
    }
    for (((lane, x), y), z) in lanes.iter_mut().zip(rest_x).zip(rest_y).zip(rest_z) {
        *lane += f(*x, *y, *z);
    }
    lanes.iter().sum()
}
