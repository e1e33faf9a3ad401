use super::DType;

/// Rounding of an `f32` to the nearest number of a dtype, ties to even.
///
/// All fields that loops use are numbers, because a loop that branches on dtypes would not vectorize.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    pub(crate) dtype: DType,
    /// The mask of the fraction bits that the dtype lacks.
    below: u32,
    /// The number of these bits.
    shift: u32,
    /// Just below one half in the last place of the dtype, which rounds to nearest when added.
    half: u32,
    /// The bits of the smallest normal number. Smaller ones are multiples of `1.5 / 2²³` of the carrier, which is added
    /// and subtracted.
    normal: i32,
    carrier: f32,
    /// The bits from which numbers are infinite. Signed, as AVX2's comparisons are.
    infinite: i32,
    /// The bits that these become. For `bf16`, where rounding itself yields infinity, both are the maximum, which
    /// changes nothing.
    above: i32,
}

impl Rounding {
    #[inline(always)]
    pub(crate) fn to(dtype: DType) -> Rounding {
        // The exponents of `f16` have a smaller range than those of `f32`; those of `bf16` have the same.
        let (shift, normal, carrier, infinite, above) = match dtype {
            DType::F16 => (13, (127 - 14) << 23, 0.75, 65536.0_f32.to_bits() as i32, 0x7f80_0000),
            DType::Bf16 => (16, 0, 0.0, i32::MAX, i32::MAX),
            _ => (0, 0, 0.0, i32::MAX, i32::MAX),
        };
        let below = (1 << shift) - 1;
        Rounding { dtype, below, shift, half: below >> 1, normal, carrier, infinite, above }
    }

    /// Returns the same, in a loop compiled for one dtype.
    #[inline(always)]
    #[doc(hidden)]
    pub fn known(self, dtype: DType) -> Rounding {
        debug_assert!(self.dtype == dtype, "a loop for another dtype");
        Rounding::to(dtype)
    }

    #[inline(always)]
    pub(super) fn single(self, x: f32) -> f32 {
        let bits = x.to_bits();
        let (sign, size) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
        let odd = size >> self.shift & u32::from(self.below != 0);
        let normal = (size + self.half + odd) & !self.below;
        // The sum rounds: its last bit is the dtype's.
        let subnormal = ((f32::from_bits(size) + self.carrier) - self.carrier).to_bits();
        let size = size as i32;
        let finite = (if size < self.normal { subnormal } else { normal }) as i32;
        let rounded = if finite >= self.infinite { self.above } else { finite };
        // Rounding may have overflowed a NaN's bits.
        f32::from_bits(sign | (if x.is_nan() { size } else { rounded }) as u32)
    }
}

#[cfg(all(test, feature = "half"))]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::element::{Element, EngineReal};

    #[test]
    fn rounding_by_numbers_is_rounding_by_types() {
        // All numbers of both types, their midpoints and neighbours, and others of all sizes.
        let of_types = (0..=u16::MAX).flat_map(|i| {
            [f16::from_bits(i).widen(), bf16::from_bits(i).widen()].into_iter().flat_map(|x| {
                [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff]
                    .map(|more| f32::from_bits(x.to_bits().wrapping_add(more)))
            })
        });
        let others = (0..100_000_u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        for x in of_types.chain(others) {
            for (dtype, expected) in
                [(DType::F16, f16::narrow(x).widen()), (DType::Bf16, bf16::narrow(x).widen()), (DType::F32, x)]
            {
                let found = x.rounded(Rounding::to(dtype));
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{dtype}: {x:e} {found:e} {expected:e}");
            }
        }
    }
}
