//! Cube roots as plain arithmetic, which vectorises and has the same bits everywhere.

/// The cube root of a number that is not negative, to a unit or two in the last place; NaN stays NaN.
#[inline(always)]
pub(super) fn cube_root(x: f64) -> f64 {
    // Powers of two of which the root is known bring numbers to where nothing vanishes or overflows.
    let (up, down) = if x < 1e-200 { (2.0_f64.powi(300), 2.0_f64.powi(-100)) } else { (1.0, 1.0) };
    let (up, down) = if x > 1e300 { (2.0_f64.powi(-30), 2.0_f64.powi(10)) } else { (up, down) };
    let y = x * up;
    // A third of the exponent, from the upper half of the bits: 1/∛y to about 4 %.
    let third = ((y.to_bits() >> 32) * 0xAAAA_AAAB) >> 33;
    let mut inverse = f64::from_bits(0x553E_F0FF_u64.wrapping_sub(third) << 32);
    // Newton's method for 1/r³ = y, without division; each step doubles the digits.
    for _ in 0..4 {
        inverse *= (4.0 - (y * inverse) * (inverse * inverse)) * (1.0 / 3.0);
    }
    let square = inverse * inverse;
    let root = y * square;
    // And once for r³ = y, where 1/r² is known already.
    let root = root - (root * root * root - y) * square * (1.0 / 3.0);
    if x > 0.0 && x < f64::INFINITY { root * down } else { x }
}

#[cfg(test)]
mod tests {
    use super::cube_root;

    #[test]
    fn agrees_with_the_systems() {
        let mut x = 5e-324;
        while x < 1e308 {
            let (ours, systems) = (cube_root(x), x.cbrt());
            assert!((ours - systems).abs() <= 4e-16 * systems, "∛{x:e}: {ours:e} and {systems:e}");
            x *= 1.000_37;
            x += 5e-324;
        }
        for x in [0.0, f64::INFINITY, -0.0] {
            assert_eq!(cube_root(x), x);
        }
        assert_eq!([27.0, 64.0, 1e300].map(cube_root), [3.0, 4.0, 1e100]);
        assert!((cube_root(f64::MAX) / f64::MAX.cbrt() - 1.0).abs() < 4e-16);
        assert!(cube_root(f64::NAN).is_nan());
    }
}
