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
        for i in 0..LANES {
            lanes[i] += f(chunk[i]);
        }
    }
    for (i, x) in chunks.remainder().iter().enumerate() {
        lanes[i] += f(*x);
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
    let (x, rest_x) = x.as_chunks::<LANES>();
    let (y, rest_y) = y.as_chunks::<LANES>();
    let (z, rest_z) = z.as_chunks::<LANES>();
    let (y, z) = (&y[..x.len()], &z[..x.len()]);
    for block in 0..x.len() {
        for i in 0..LANES {
            lanes[i] += f(x[block][i], y[block][i], z[block][i]);
        }
    }
    for i in 0..rest_x.len() {
        lanes[i] += f(rest_x[i], rest_y[i], rest_z[i]);
    }
    lanes.iter().sum()
}
