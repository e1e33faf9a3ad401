//! Cube roots as plain arithmetic, which vectorises and has the same bits everywhere.

use crate::element::Real;

/// The cube root of a number, to a unit or two in the last place; of its sign, as the cube is. NaN stays NaN.
#[inline(always)]
pub(super) fn cube_root<C: Real>(x: C) -> C {
    // What is of that type already goes to `f64` and back for nothing, and the compiler leaves it out.
    if size_of::<C>() == 4 { C::of(single(x.as_f64() as f32).into()) } else { C::of(double(x.as_f64())) }
}

/// As [`double`], in half the width, with a root that is at most one unit in the last place off.
#[inline(always)]
fn single(x: f32) -> f32 {
    let y = x.abs();
    // The cube of the root is compared with what it is the root of, which must not have lost digits, nor overflow.
    let (up, down) = if y < 1.0 { (2.0_f32.powi(72), 2.0_f32.powi(-24)) } else { (2.0_f32.powi(-12), 2.0_f32.powi(4)) };
    let y = y * up;
    // 1/∛y from a third of the exponent, a quarter and a quarter of that and so on: off by up to 4 %, so that the cube of it
    // times y is off by up to e = 0.11.
    let third = (y.to_bits() >> 2) + (y.to_bits() >> 4);
    let third = third + (third >> 4);
    let third = third + (third >> 8);
    let inverse = f32::from_bits(0x54A2_1D2A_u32.wrapping_sub(third));
    // (1 − e)^(−1/3) to its third power, which leaves 2e-5.
    let e = 1.0 - (y * inverse) * (inverse * inverse);
    let inverse = inverse + inverse * (e * (1.0 / 3.0 + e * (2.0 / 9.0 + e * (14.0 / 81.0))));
    let root = closer(y, inverse * inverse) * down;
    if x.abs() < f32::INFINITY { root.copysign(x) } else { x }
}

#[inline(always)]
fn double(x: f64) -> f64 {
    let y = x.abs();
    // Powers of two of which the root is known bring numbers to where nothing vanishes or overflows.
    let (up, down) = if y < 1e-200 { (2.0_f64.powi(300), 2.0_f64.powi(-100)) } else { (1.0, 1.0) };
    let (up, down) = if y > 1e300 { (2.0_f64.powi(-30), 2.0_f64.powi(10)) } else { (up, down) };
    let y = y * up;
    // A third of the exponent, from the upper half of the bits: 1/∛y, off by up to 4 %.
    let third = ((y.to_bits() >> 32) * 0xAAAA_AAAB) >> 33;
    let mut inverse = f64::from_bits(0x553E_F0FF_u64.wrapping_sub(third) << 32);
    // Newton's method for 1/r³ = y, without division: each step doubles the digits.
    for _ in 0..4 {
        inverse *= (4.0 - (y * inverse) * (inverse * inverse)) * (1.0 / 3.0);
    }
    let root = closer(y, inverse * inverse) * down;
    if x.abs() < f64::INFINITY { root.copysign(x) } else { x }
}

/// The root from the square of its inverse, with one step for r³ = y, which doubles its digits again.
#[inline(always)]
fn closer<C: Real>(y: C, square: C) -> C {
    let root = y * square;
    root - (root * root * root - y) * (square * C::of(1.0 / 3.0))
}

#[cfg(test)]
mod tests {
    use super::cube_root;

    #[test]
    fn agrees_with_the_systems() {
        let mut x = 5e-324_f64;
        while x < 1e308 {
            let (ours, systems): (f64, f64) = (cube_root(x), x.cbrt());
            assert!((ours - systems).abs() <= 4e-16 * systems, "∛{x:e}: {ours:e} and {systems:e}");
            x *= 1.000_37;
            x += 5e-324;
        }
        for x in [0.0_f64, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            assert_eq!(cube_root(x).to_bits(), x.to_bits());
        }
        assert_eq!([27.0_f64, 64.0, -8.0, 1e300].map(cube_root), [3.0, 4.0, -2.0, 1e100]);
        assert!((cube_root(f64::MAX) / f64::MAX.cbrt() - 1.0).abs() < 4e-16);
        assert!(cube_root(f64::NAN).is_nan());
    }

    #[test]
    fn agrees_in_single_precision() {
        for bits in (1..f32::INFINITY.to_bits()).step_by(4099) {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).cbrt();
            assert!(cube_root(x).to_bits().abs_diff((exact as f32).to_bits()) <= 1, "∛{x:e}: {}", cube_root(x));
            assert_eq!(cube_root(-x), -cube_root(x));
        }
        for x in [0.0_f32, f32::INFINITY, f32::NEG_INFINITY, -0.0] {
            assert_eq!(cube_root(x).to_bits(), x.to_bits());
        }
        assert_eq!([27.0_f32, 64.0, -8.0].map(cube_root), [3.0, 4.0, -2.0]);
        assert!(cube_root(f32::NAN).is_nan());
    }
}
