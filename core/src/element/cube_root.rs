//! Cube roots by plain arithmetic: vectorized, and bitwise identical on all CPUs.

/// Returns the cube root, with the number's sign, within two units in the last place of the rounded exact root.
///
/// Half a unit is lost in the final sum, up to one in the product that it corrects, a third in `e` (1.6 at most were
/// found). NaN stays NaN. Terms are added in pairs: the longest dependency chain determines the loop's time.
#[inline(always)]
pub(super) fn single(x: f32) -> f32 {
    // The number compared with the root must neither lose digits nor overflow.
    let (up, down) =
        if x.abs() < 1.0 { (2.0_f32.powi(72), 2.0_f32.powi(-24)) } else { (2.0_f32.powi(-12), 2.0_f32.powi(4)) };
    let y = x * up;
    // 1/∛y from a third of the exponent, with its sign, in eight bits, so that its cube is exact. It is off by up to 4
    // %, its cube times y by up to e = 0.114.
    let bits = y.to_bits();
    let third = ((bits >> 16) & 0x7FFF) * 0x5556;
    let inverse = f32::from_bits(0x54A1_0000_u32.wrapping_sub(third & 0xFFFF_0000) | (bits & 0x8000_0000));
    let square = inverse * inverse;
    let e = 1.0 - y * (square * inverse);
    let root = (y * down) * square;
    // ((1 − e)^(−2/3) − 1) / e by its minimax polynomial: 1.2e-9 of the root.
    let e2 = e * e;
    let low = 0.666_666_75 + e * 0.555_556_3;
    let high = (0.493_785_47 + e * 0.452_405_66) + e2 * (0.430_002_33 + e * 0.422_645_5);
    let near = root + (root * e) * (low + e2 * high);
    // Infinities and NaN stay.
    if e.abs() <= 1.0 { near } else { x }
}

/// As [`single`], within one and a half units in the last place of the rounded exact root.
///
/// Half a unit is lost in the product, half in the final sum, a third in `e`. A first step brings the inverse root so
/// near that the second's polynomial is short.
#[inline(always)]
pub(super) fn double(x: f64) -> f64 {
    let (up, down) =
        if x.abs() < 1.0 { (2.0_f64.powi(600), 2.0_f64.powi(-200)) } else { (2.0_f64.powi(-300), 2.0_f64.powi(100)) };
    let y = x * up;
    // 1/∛y from a third of the exponent, by the upper half of the bits. Its cube times y is off by up to e = 0.1021.
    let bits = y.to_bits();
    let third = ((bits >> 32 & 0x7FFF_FFFF) * 0xAAAA_AAAB) >> 33;
    let inverse = f64::from_bits((0x553E_E93F_u64.wrapping_sub(third) << 32) | (bits & 1 << 63));
    let e = 1.0 - y * (inverse * inverse * inverse);
    // (1 − e)^(−1/3) by its minimax polynomial: 2e-6; then cut to 17 bits, so that its cube is exact.
    let (low, high) = (0.999_998_015_693_247_5 + e * 0.333_328_428_549_291_4, 0.223_738_105_535_023_32);
    let inverse = inverse * (low + (e * e) * (high + e * 0.174_560_191_404_507_38));
    let inverse = f64::from_bits(inverse.to_bits() & !0 << 36);
    let square = inverse * inverse;
    let e = 1.0 - y * (square * inverse);
    let root = (y * down) * square;
    // ((1 − e)^(−2/3) − 1) / e, for e up to 3e-5.
    let near = root + (root * e) * (2.0 / 3.0 + e * (5.0 / 9.0 + e * (40.0 / 81.0)));
    // Infinities and NaN stay.
    if e.abs() <= 1.0 { near } else { x }
}

#[cfg(test)]
mod tests {
    use crate::element::Real;

    fn cube_root<C: Real>(x: C) -> C {
        x.cube_root()
    }

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
            assert!(cube_root(x).to_bits().abs_diff((exact as f32).to_bits()) <= 2, "∛{x:e}: {}", cube_root(x));
            assert_eq!(cube_root(-x), -cube_root(x));
        }
        for x in [0.0_f32, f32::INFINITY, f32::NEG_INFINITY, -0.0] {
            assert_eq!(cube_root(x).to_bits(), x.to_bits());
        }
        assert_eq!([27.0_f32, 64.0, -8.0].map(cube_root), [3.0, 4.0, -2.0]);
        assert!(cube_root(f32::NAN).is_nan());
    }
}
