//! Conversions between `f32`, `f16` and `bf16`.

use super::{DType, Element};

impl Element for half::f16 {
    type Compute = f32;
    const DTYPE: DType = DType::F16;

    // Branch-free in both directions: `half` checks the CPU per element, which keeps loops from vectorizing. A test
    // compares every bit pattern with `half`.
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7fff) << 13;
        // Biases differ by 112; the product is exact, for subnormals too.
        let finite = (f32::from_bits(magnitude) * f32::from_bits((112 + 127) << 23)).to_bits();
        // NaN becomes quiet, as by the CPU's instruction.
        const INFINITE: u32 = 0x7c00 << 13;
        let special = magnitude | if magnitude > INFINITE { 0x7fc0_0000 } else { 0x7f80_0000 };
        f32::from_bits((bits & 0x8000) << 16 | if magnitude >= INFINITE { special } else { finite })
    }
    #[inline(always)]
    fn narrow(value: f32) -> half::f16 {
        let sign = (value.to_bits() >> 16) & 0x8000;
        let bits = value.to_bits() & 0x7fff_ffff;
        // Subnormal: adding a half makes the addition shift and round.
        let subnormal = (f32::from_bits(bits) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
        let odd = (bits >> 13) & 1;
        let normal = bits.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        // NaN keeps its upper fraction bits, as by the CPU's instruction.
        let special = if bits > 0x7f80_0000 { 0x7e00 | (bits >> 13) & 0x3ff } else { 0x7c00 };
        let finite = if bits < 113 << 23 { subnormal } else { normal };
        half::f16::from_bits((sign | if bits >= (127 + 16) << 23 { special } else { finite }) as u16)
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self.widen())
    }
    #[inline(always)]
    fn from_f64(value: f64) -> half::f16 {
        half::f16::narrow(round_to_odd(value))
    }
}

impl Element for half::bf16 {
    type Compute = f32;
    const DTYPE: DType = DType::Bf16;

    // Not `to_f32`, whose branch for NaN keeps loops from vectorizing; a shift is exact.
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    // Rounds bits to nearest, ties to even; NaN stays by its quiet bit. Branch-free as `widen`.
    #[inline(always)]
    fn narrow(value: f32) -> half::bf16 {
        half::bf16::from_bits((rounded(value) >> 16) as u16)
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self.widen())
    }
    #[inline(always)]
    fn from_f64(value: f64) -> half::bf16 {
        half::bf16::narrow(round_to_odd(value))
    }
}

/// Returns the nearest `bf16` in the upper half; the lower is arbitrary.
#[inline(always)]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { bits | 0x40_0000 } else { nearest(bits) }
}

#[inline(always)]
fn nearest(bits: u32) -> u32 {
    bits.wrapping_add(0x7fff + ((bits >> 16) & 1))
}

/// A 16-bit float with arithmetic in `f32`.
pub trait HalfFloat: Element<Compute = f32> {
    /// Rounds to nearest, in `f32`.
    #[inline(always)]
    fn rounded(value: f32) -> f32 {
        Self::narrow(value).widen()
    }

    /// Rounds a sum of two numbers of this type.
    #[inline(always)]
    fn of_sum(sum: f32) -> Self {
        Self::narrow(sum)
    }

    /// Rounds stochastically, by 16 random bits, to one of the two neighbours; the expectation is `value`.
    ///
    /// Numbers of this type are unchanged; those beyond the largest are rounded to nearest.
    fn stochastic(value: f32, random: u16) -> f32;
}

impl HalfFloat for half::bf16 {
    #[inline(always)]
    fn rounded(value: f32) -> f32 {
        f32::from_bits(rounded(value) & 0xffff_0000)
    }

    // The lower half of a NaN sum of two such numbers is zero, so it stays NaN without a test.
    #[inline(always)]
    fn of_sum(sum: f32) -> half::bf16 {
        half::bf16::from_bits((nearest(sum.to_bits()) >> 16) as u16)
    }

    #[inline(always)]
    fn stochastic(value: f32, random: u16) -> f32 {
        let bits = value.to_bits();
        // Carries if the lower half exceeds the random bits.
        let chosen = f32::from_bits(bits.wrapping_add(u32::from(!random)) & 0xffff_0000);
        let nearest = half::bf16::rounded(value);
        if bits & 0x7fff_ffff < 0x7f7f_0000 { chosen } else { nearest }
    }
}

impl HalfFloat for half::f16 {
    #[inline(always)]
    fn stochastic(value: f32, random: u16) -> f32 {
        let (bits, random) = (value.to_bits(), u32::from(random));
        let magnitude = bits & 0x7fff_ffff;
        // Carries if the lower 13 bits, each worth eight, exceed the random ones.
        let normal = (magnitude + ((u32::from(u16::MAX) - random) >> 3)) & !0x1fff;
        // Subnormal: multiples of 2⁻²⁴, small enough that no step rounds.
        const LARGE: f32 = (1 << 24) as f32;
        let multiples = f32::from_bits(magnitude) * LARGE;
        // Computed in floats: a saturating conversion to integers does not vectorize.
        let whole = (multiples + LARGE / 2.0) - LARGE / 2.0;
        let below = if whole > multiples { whole - 1.0 } else { whole };
        let up = if (multiples - below) * 65536.0 > random as i32 as f32 { 1.0 } else { 0.0 };
        let subnormal = ((below + up) / LARGE).to_bits();
        let chosen = if magnitude < (127 - 14) << 23 { subnormal } else { normal };
        // Infinity begins half a step above the largest number. NaN keeps its upper fraction bits.
        const INFINITY: u32 = f32::INFINITY.to_bits();
        const LARGEST: u32 = 65504.0_f32.to_bits();
        let infinite = if magnitude > INFINITY { (magnitude | 0x40_0000) & !0x1fff } else { INFINITY };
        let nearest = if magnitude < 65520.0_f32.to_bits() { LARGEST } else { infinite };
        f32::from_bits(bits & 0x8000_0000 | if magnitude < LARGEST { chosen } else { nearest })
    }
}

/// Returns an `f32` with the same 16-bit rounding as the `f64`.
///
/// Two roundings to nearest can go wrong at a tie, so the first truncates and sets the last bit if inexact.
#[inline(always)]
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    let inexact = f64::from(near) != value && near.is_finite();
    // Steps back towards zero if the conversion rounded away from it, then sets the last bit.
    let away = inexact && f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(away)) | u32::from(inexact))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Checks that results are neighbours with the number as mean; exact numbers stay.
    fn is_unbiased<H: HalfFloat>(of_bits: fn(u16) -> H) {
        for i in 0..90_u16 {
            // All sizes, on numbers of the type and between.
            let from = of_bits(i.wrapping_mul(727)).widen();
            let between = [1, 0x7ff, 0x1000, 0x7fff, 0x8000, 0xffff][usize::from(i) % 6];
            for value in [from, f32::from_bits(from.to_bits().wrapping_add(between))] {
                if value.is_nan() || value.abs() >= 65504.0 {
                    continue;
                }
                let results: Vec<f32> = (0..=u16::MAX).map(|random| H::stochastic(value, random)).collect();
                let (low, high) = (results[usize::from(u16::MAX)], results[0]);
                assert!(results.iter().all(|x| *x == low || *x == high), "{value:e}");
                assert_eq!((H::narrow(low).widen(), H::narrow(high).widen()), (low, high), "{value:e}");
                assert!(low.abs() <= value.abs() && value.abs() <= high.abs(), "{low:e} {value:e} {high:e}");
                let ups = results.iter().filter(|x| **x != low).count() as f64 / 65536.0;
                let mean = f64::from(low) + ups * (f64::from(high) - f64::from(low));
                let step = (f64::from(high) - f64::from(low)).abs();
                assert!((mean - f64::from(value)).abs() <= step / 65536.0, "{mean:e} {value:e}");
            }
        }
        // The largest `f16`, half a step beyond it, and their neighbours; NaN, quiet or not.
        let near = [65504.0_f32, 65520.0].map(|x| [x.to_bits() - 1, x.to_bits(), x.to_bits() + 1].map(f32::from_bits));
        let of_f16 = near.as_flattened().iter().filter(|x| H::DTYPE == DType::F16 && **x >= 65504.0);
        let not = [0x7f80_0001, 0x7fff_ffff, 0x7fc0_2000, 0x7fa0_1fff].map(f32::from_bits);
        let all = [f32::INFINITY, f32::MAX, 0.0].into_iter().chain(not).chain(of_f16.copied());
        for value in all.flat_map(|x| [x, f32::from_bits(x.to_bits() | 1 << 31)]) {
            let nearest = H::narrow(value).widen().to_bits();
            assert!(
                [0, 9999, u16::MAX].iter().all(|random| H::stochastic(value, *random).to_bits() == nearest),
                "{value}"
            );
        }
    }

    #[test]
    fn rounding_by_chance_has_the_mean_of_no_rounding() {
        is_unbiased(f16::from_bits);
        is_unbiased(bf16::from_bits);
    }

    /// Checks each number of a type with some of each size, sign and kind.
    fn sums_are_rounded<H: HalfFloat>(of_bits: fn(u16) -> H, bits: fn(H) -> u16) {
        for other in (0..=u16::MAX).step_by(373).chain([0, 0x7f80, 0xff80, 0x7f81, 0x7fff, 0x7c00, 0x7c01, 0x8000]) {
            for one in 0..=u16::MAX {
                let sum = of_bits(one).widen() + of_bits(other).widen();
                assert_eq!(bits(H::of_sum(sum)), bits(H::narrow(sum)), "{one:x} + {other:x}");
                let value = f32::from_bits(u32::from(one) << 16 | u32::from(other));
                let rounded = (H::rounded(value).to_bits(), H::narrow(value).widen().to_bits());
                assert_eq!(rounded.0, rounded.1, "{value:e}");
            }
        }
    }

    #[test]
    fn loop_rounding_matches_narrow() {
        sums_are_rounded(bf16::from_bits, bf16::to_bits);
        sums_are_rounded(f16::from_bits, f16::to_bits);
    }

    #[test]
    fn rounding_from_f64_is_rounding_once() {
        // Above, at and below a tie, by less than the precision of `f32`.
        let tiny = 2.0_f64.powi(-40);
        for (tie, up) in [
            (1.0 + 2.0_f64.powi(-11), 1.0 + 2.0_f64.powi(-10)),
            (1.0 + 3.0 * 2.0_f64.powi(-11), 1.0 + 2.0_f64.powi(-9)),
        ] {
            assert_eq!(Element::as_f64(<f16 as Element>::from_f64(tie + tiny)), up);
            assert!(Element::as_f64(<f16 as Element>::from_f64(tie - tiny)) < up);
            assert_eq!(Element::as_f64(<f16 as Element>::from_f64(-tie - tiny)), -up);
        }
        assert_eq!(<bf16 as Element>::from_f64(1.0 + 2.0_f64.powi(-8) + tiny).widen(), 1.0 + 2.0_f32.powi(-7));
        assert_eq!(<bf16 as Element>::from_f64(1e300).widen(), f32::INFINITY);
        assert!(<f16 as Element>::from_f64(f64::NAN).widen().is_nan());
    }

    #[test]
    fn sixteen_bit_conversions_agree_with_half_for_every_bit_pattern() {
        for bits in 0..=u16::MAX {
            let (f, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(f.widen().to_bits() == f.to_f32().to_bits() || f.is_nan() && f.widen().is_nan(), "{bits:x}");
            assert!(b.widen().to_bits() == b.to_f32().to_bits() || b.is_nan() && b.widen().is_nan(), "{bits:x}");
            // The value, its `f32` neighbours, and the ties on either side.
            for wide in [f.widen(), b.widen()] {
                for offset in [0_i32, 1, -1, 0xfff, 0x1000, 0x1001, -0x1000, 0x7fff, 0x8000, 0x8001, -0x8000] {
                    let x = f32::from_bits(wide.to_bits().wrapping_add_signed(offset));
                    let (ours, theirs) = (f16::narrow(x), f16::from_f32(x));
                    assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{x:e}");
                    let (ours, theirs) = (bf16::narrow(x), bf16::from_f32(x));
                    assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{x:e}");
                }
            }
        }
    }
}
