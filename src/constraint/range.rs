//! The representable numbers of a dtype.

use crate::DType;

/// Returns the mantissa bits and the exponents of the smallest normal and largest number.
fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F16 => (10, -14, 15),
        DType::Bf16 => (7, -126, 127),
        DType::F64 => (52, -1022, 1023),
        _ => (23, -126, 127),
    }
}

pub(super) fn epsilon(dtype: DType) -> f64 {
    2.0_f64.powi(-format(dtype).0)
}

pub(super) fn largest(dtype: DType) -> f64 {
    (2.0 - epsilon(dtype)) * 2.0_f64.powi(format(dtype).2)
}

/// Returns the tolerance for sums of `n` products: eight units in the last place, growing like a random walk.
pub(super) fn slack(dtype: DType, n: usize) -> f64 {
    8.0 * epsilon(dtype) * (n.max(1) as f64).sqrt()
}

/// Returns the least and largest number strictly between two bounds, if any.
pub(super) fn open(dtype: DType, lower: f64, upper: f64) -> Option<(f64, f64)> {
    let (least, most) = (above(dtype, lower).max(-largest(dtype)), (-above(dtype, -upper)).min(largest(dtype)));
    (least <= most).then_some((least, most))
}

/// Returns the least number above `x`.
fn above(dtype: DType, x: f64) -> f64 {
    if dtype == DType::F64 {
        return x.next_up();
    }
    // Below a power of two numbers are twice as dense, and towards zero that side counts.
    let size = if x < 0.0 { x.next_up() } else { x };
    let (bits, smallest, _) = format(dtype);
    let exponent = ((size.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let spacing = 2.0_f64.powi(exponent.max(smallest) - bits);
    ((x / spacing).floor() + 1.0) * spacing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_number_is_that_of_the_type() {
        for x in [0.0, 1.0, -1.0, 2.0, -2.0, 0.1, -0.1, 1e-40, -1e-40, 1.5e30, f32::MIN_POSITIVE, -f32::MIN_POSITIVE] {
            assert_eq!(above(DType::F32, f64::from(x)), f64::from(x.next_up()), "{x:e}");
        }
        // Between numbers of the type, rounding up gives the next one.
        assert_eq!(above(DType::F32, 1.0 + 1e-12), f64::from(1.0_f32.next_up()));
        assert_eq!(above(DType::F32, 1.0 - 1e-12), 1.0);
        assert_eq!(above(DType::F16, 0.0), 2.0_f64.powi(-24));
        assert_eq!(above(DType::F16, 1.0), 1.0 + 2.0_f64.powi(-10));
        assert_eq!(above(DType::Bf16, -1.0), -1.0 + 2.0_f64.powi(-8));
        assert_eq!(above(DType::F64, 0.0), f64::from_bits(1));
    }

    #[test]
    fn open_bounds_are_not_reached() {
        assert_eq!(open(DType::F16, 0.0, 1.0), Some((2.0_f64.powi(-24), 1.0 - 2.0_f64.powi(-11))));
        assert_eq!(open(DType::F32, 1.0, 1.0 + 1e-9), None);
        assert_eq!(open(DType::F16, 0.0, f64::INFINITY), Some((2.0_f64.powi(-24), 65504.0)));
        assert_eq!(open(DType::F32, 1e39, 1e40), None);
        assert_eq!(largest(DType::F32), f64::from(f32::MAX));
        assert_eq!(largest(DType::F64), f64::MAX);
    }
}
