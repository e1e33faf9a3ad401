//! Making columns orthogonal, by Householder's reflections.

use super::Room;
use crate::numeric::isa::{Isa, Job, dispatch};
use crate::numeric::sums::{sum_pairs, sum_tile};

/// The `Q` of `S = QR`, with a positive diagonal of `R`. What was in `s` is lost.
///
/// Orthogonal to the last digits whatever `S` is, even if its columns depend on each other.
pub(crate) fn orthogonalize(isa: Isa, s: &mut [f64], n: usize, q: &mut [f64], _: &mut Room) {
    dispatch(isa, Reflect { s, n, q });
}

struct Reflect<'a> {
    s: &'a mut [f64],
    n: usize,
    q: &'a mut [f64],
}

/// Columns that are worked on together: what they are reflected along is read once for all of them.
const PANEL: usize = 16;

impl Job for Reflect<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Reflect { s, n, q } = self;
        for first in (0..n).step_by(PANEL) {
            let (done, rest) = s.split_at_mut(first * n);
            let panel = &mut rest[..PANEL.min(n - first) * n];
            for (k, mirror) in done.chunks_exact(n).enumerate() {
                reflect_all(&mirror[k..], k, panel, n);
            }
            for (k, at) in (first..n).zip(0..panel.len() / n) {
                let (head, later) = panel.split_at_mut((at + 1) * n);
                let mirror = &mut head[at * n + k..];
                let norm = sum_tile(mirror, |x: f64| x * x).sqrt();
                // What is left of the column becomes `−sign·norm` and zeros; here lies what it is reflected along.
                mirror[0] += norm.copysign(mirror[0]);
                reflect_all(mirror, k, later, n);
            }
        }
        q.fill(0.0);
        q.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        for (first, panel) in (0..n).step_by(PANEL).zip(q.chunks_mut(PANEL * n.max(1))) {
            // Reflections after the last column of the panel leave it as it is.
            let last = first + panel.len() / n;
            for k in (0..last).rev() {
                let mirror = &s[k * n + k..(k + 1) * n];
                reflect_all(mirror, k, &mut panel[k.saturating_sub(first) * n..], n);
                // The diagonal of `R` has the other sign than where the reflection began; reflections before this one
                // do not change that.
                if k >= first && mirror[0] > 0.0 {
                    panel[(k - first) * n..][..n].iter_mut().for_each(|x| *x = -*x);
                }
            }
        }
    }
}

/// Reflects columns of length `n`, from their element `from` on, along a vector; one of zeros changes nothing.
#[inline(always)]
fn reflect_all(mirror: &[f64], from: usize, columns: &mut [f64], n: usize) {
    let squares = sum_tile(mirror, |x: f64| x * x);
    if squares != 0.0 {
        columns.chunks_exact_mut(n).for_each(|column| reflect(mirror, squares, &mut column[from..]));
    }
}

/// Reflects a column along a vector with this sum of squares.
#[inline(always)]
fn reflect(mirror: &[f64], squares: f64, column: &mut [f64]) {
    let along = 2.0 * sum_pairs(mirror, column, |x, y| x * y) / squares;
    column.iter_mut().zip(mirror).for_each(|(x, m)| *x -= along * m);
}
