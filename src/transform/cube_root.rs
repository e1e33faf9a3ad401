//! Cube roots as plain arithmetic, which vectorises and has the same bits everywhere.

use crate::element::Real;

/// The cube root of a number that is not negative, to a unit or two in the last place; NaN stays NaN.
#[inline(always)]
pub(super) fn cube_root<C: Real>(x: C) -> C {
    if size_of::<C>() == 4 { C::of(single(x.as_f64())) } else { C::of(double(x.as_f64())) }
}

/// Of numbers in the range of `f32`, to 4e-9, a fifteenth of what rounding to that takes away: half the steps are enough. The
/// guess is off by 4 %, then by 2·0.04², then by twice the square of that, 2e-5; the root, by twice this, once more squared.
#[inline(always)]
fn single(x: f64) -> f64 {
    let root = refined(x, 2);
    if x > 0.0 && x < f64::INFINITY { root } else { x }
}

#[inline(always)]
fn double(x: f64) -> f64 {
    // Powers of two of which the root is known bring numbers to where nothing vanishes or overflows.
    let (up, down) = if x < 1e-200 { (2.0_f64.powi(300), 2.0_f64.powi(-100)) } else { (1.0, 1.0) };
    let (up, down) = if x > 1e300 { (2.0_f64.powi(-30), 2.0_f64.powi(10)) } else { (up, down) };
    let root = refined(x * up, 4);
    if x > 0.0 && x < f64::INFINITY { root * down } else { x }
}

/// The root after so many steps towards its inverse and one towards itself. The first guess is off by up to 4 %, and each step
/// doubles the digits.
#[inline(always)]
fn refined(y: f64, steps: usize) -> f64 {
    // A third of the exponent, from the upper half of the bits: 1/∛y.
    let third = ((y.to_bits() >> 32) * 0xAAAA_AAAB) >> 33;
    let mut inverse = f64::from_bits(0x553E_F0FF_u64.wrapping_sub(third) << 32);
    // Newton's method for 1/r³ = y, without division.
    for _ in 0..steps {
        inverse *= (4.0 - (y * inverse) * (inverse * inverse)) * (1.0 / 3.0);
    }
    let square = inverse * inverse;
    let root = y * square;
    // And once for r³ = y, where 1/r² is known already.
    root - (root * root * root - y) * square * (1.0 / 3.0)
}

#[cfg(test)]
mod tests {
    use super::{cube_root, single};

    #[test]
    fn agrees_with_the_systems() {
        let mut x = 5e-324_f64;
        while x < 1e308 {
            let (ours, systems): (f64, f64) = (cube_root(x), x.cbrt());
            assert!((ours - systems).abs() <= 4e-16 * systems, "∛{x:e}: {ours:e} and {systems:e}");
            x *= 1.000_37;
            x += 5e-324;
        }
        for x in [0.0_f64, f64::INFINITY, -0.0] {
            assert_eq!(cube_root(x), x);
        }
        assert_eq!([27.0_f64, 64.0, 1e300].map(cube_root), [3.0, 4.0, 1e100]);
        assert!((cube_root(f64::MAX) / f64::MAX.cbrt() - 1.0).abs() < 4e-16);
        assert!(cube_root(f64::NAN).is_nan());
    }

    #[test]
    fn agrees_in_single_precision() {
        for bits in (1..f32::INFINITY.to_bits()).step_by(4099) {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).cbrt();
            assert!((single(x.into()) - exact).abs() <= 4e-9 * exact, "∛{x:e}: {} and {exact}", single(x.into()));
            assert!(cube_root(x).to_bits().abs_diff((exact as f32).to_bits()) <= 1, "∛{x:e}: {}", cube_root(x));
        }
        for x in [0.0_f32, f32::INFINITY, -0.0] {
            assert_eq!(cube_root(x), x);
        }
        assert!(cube_root(f32::NAN).is_nan());
    }
}
