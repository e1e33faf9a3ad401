//! Singular vectors by one-sided Jacobi rotations: the columns are rotated, two at a time, until all are at right
//! angles. Small singular values come out as accurate as large ones.

use super::Room;
use crate::numeric::isa::{Isa, Job, dispatch};
use crate::numeric::sums::{sum_pairs, sum_tile};

/// A sine of the angle between two columns that is as good as zero.
const RIGHT_ANGLE: f64 = 1e-15;
/// Going through all pairs converges quadratically: rarely are more than ten times needed.
const SWEEPS: usize = 60;

/// Replaces columns by those that they are turned into: the left singular vectors, each times its singular value, in no
/// order. Whether they were found. There are no fewer rows than columns.
pub(in super::super) fn rotate(isa: Isa, columns: &mut [f64], [rows, cols]: [usize; 2], _: &mut Room) -> bool {
    dispatch(isa, Rotate { columns, rows, cols })
}

/// Brings all columns to right angles.
struct Rotate<'a> {
    columns: &'a mut [f64],
    rows: usize,
    cols: usize,
}

impl Job for Rotate<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Rotate { columns, rows, cols } = self;
        for _ in 0..SWEEPS {
            let mut rotated = false;
            for i in 0..cols {
                for j in i + 1..cols {
                    let (head, tail) = columns.split_at_mut(j * rows);
                    let (x, y) = (&mut head[i * rows..][..rows], &mut tail[..rows]);
                    rotated |= rotate_two(x, y);
                }
            }
            if !rotated {
                return true;
            }
        }
        false
    }
}

/// Rotates two columns to a right angle, unless they are at one.
#[inline(always)]
fn rotate_two(x: &mut [f64], y: &mut [f64]) -> bool {
    let [xx, yy] = [&*x, &*y].map(|x| sum_tile(x, |x| x * x));
    let xy = sum_pairs(x, y, |x, y| x * y);
    if xy.abs() <= RIGHT_ANGLE * xx.sqrt() * yy.sqrt() {
        return false;
    }
    // The smaller of the two angles.
    let cotangent = (yy - xx) / (2.0 * xy);
    let tangent = 1.0_f64.copysign(cotangent) / (cotangent.abs() + (1.0 + cotangent * cotangent).sqrt());
    let cos = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sin = cos * tangent;
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
    }
    true
}
