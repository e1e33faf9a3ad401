//! Normal numbers by Box and Muller: a random radius and angle yield a pair.
//!
//! `f64` takes 64 random bits per number, `f32` 32, in arithmetic of its type.
//!
//! No step is a branch, or an integer conversion that only wide SIMD levels have, so loops vectorize at every level.

use super::{halves, rounds};

/// Elements of a block: pairs that fill the widest registers once or twice.
pub const BLOCK: usize = 32;
const PAIRS: usize = BLOCK / 2;

/// Elements of [`normals`](Normal::normals) computed side by side.
pub const BATCH: usize = 4 * BLOCK;

/// A number type with standard normal draws.
pub trait Normal: Copy + Default {
    /// Draws standard normal numbers for a leaf's blocks, from block `first` on.
    ///
    /// Pairs belong to elements half a block apart, so that a register of pairs is two of elements. Must be
    /// `#[inline(always)]`, as `normal`.
    ///
    /// Bits, logarithms and angles have a loop each: each is a dependency chain (rounds, terms of a polynomial), and
    /// one loop of all three would exceed the reorder window and leave units idle.
    fn normals(first: u64, key: [u32; 2], to: &mut [[Self; BLOCK]]);

    /// Draws one element's number, as in its block.
    fn normal(element: u64, key: [u32; 2]) -> Self;
}

/// Returns an element's pair, and its place there.
#[inline(always)]
fn place(element: u64) -> (u64, usize) {
    let at = element as usize % BLOCK;
    (element / BLOCK as u64 * PAIRS as u64 + (at % PAIRS) as u64, at / PAIRS)
}

impl Normal for f64 {
    #[inline(always)]
    fn normals(first: u64, key: [u32; 2], to: &mut [[f64; BLOCK]]) {
        let mut room = [[[0; PAIRS]; 2]; BATCH / BLOCK];
        let mut block = first;
        for to in to.chunks_mut(BATCH / BLOCK) {
            let room = &mut room[..to.len()];
            for [lengths, turns] in &mut *room {
                for i in 0..PAIRS {
                    [lengths[i], turns[i]] = wide_bits(block * PAIRS as u64 + i as u64, key);
                }
                block += 1;
            }
            for [lengths, _] in &mut *room {
                for length in lengths {
                    *length = double::radius(unit_interval(*length)).to_bits();
                }
            }
            for (b, to) in to.iter_mut().enumerate() {
                let ([radii, turns], (first, second)) = (&room[b], to.split_at_mut(PAIRS));
                for i in 0..PAIRS {
                    [first[i], second[i]] = double::at_angle(f64::from_bits(radii[i]), turns[i]);
                }
            }
        }
    }

    #[inline(always)]
    fn normal(element: u64, key: [u32; 2]) -> f64 {
        let (pair, which) = place(element);
        let [length, turn] = wide_bits(pair, key);
        double::at_angle(double::radius(unit_interval(length)), turn)[which]
    }
}

/// Returns the bits of a pair's radius and angle: a counter's 128 bits.
#[inline(always)]
fn wide_bits(pair: u64, key: [u32; 2]) -> [u64; 2] {
    let [low, high] = halves(pair);
    // Words of 32 bits would be combined on the stack and wait for those of the previous counter.
    let x = rounds([low.into(), high.into(), 0, 0], key);
    [x[1] << 32 | x[0], x[3] << 32 | x[2]]
}

/// Returns a number in `(0, 1]`, of finite logarithm.
#[inline(always)]
fn unit_interval(bits: u64) -> f64 {
    2.0 - double::from_one(bits)
}

impl Normal for f32 {
    #[inline(always)]
    fn normals(first: u64, key: [u32; 2], to: &mut [[f32; BLOCK]]) {
        // Bytes, because halves of 64-bit integers are read as 32-bit ones.
        let mut room = [[[0; 4 * PAIRS]; 2]; BATCH / BLOCK];
        let mut radii = [[0.0; PAIRS]; BATCH / BLOCK];
        let mut block = first;
        for to in to.chunks_mut(BATCH / BLOCK) {
            let (room, radii) = (&mut room[..to.len()], &mut radii[..to.len()]);
            for [lengths, turns] in &mut *room {
                let ((lengths, _), (turns, _)) = (lengths.as_chunks_mut::<8>(), turns.as_chunks_mut::<8>());
                for i in 0..PAIRS / 2 {
                    let [length, turn] = narrow_bits(block * (PAIRS / 2) as u64 + i as u64, key);
                    (lengths[i], turns[i]) = (length.to_le_bytes(), turn.to_le_bytes());
                }
                block += 1;
            }
            for (b, radii) in radii.iter_mut().enumerate() {
                let (lengths, _) = room[b][0].as_chunks::<4>();
                for i in 0..PAIRS {
                    radii[i] = single::radius(unit_interval_of(u32::from_le_bytes(lengths[i])));
                }
            }
            for (b, to) in to.iter_mut().enumerate() {
                let (turns, _) = room[b][1].as_chunks::<4>();
                let (first, second) = to.split_at_mut(PAIRS);
                for i in 0..PAIRS {
                    [first[i], second[i]] = single::at_angle(radii[b][i], u32::from_le_bytes(turns[i]));
                }
            }
        }
    }

    #[inline(always)]
    fn normal(element: u64, key: [u32; 2]) -> f32 {
        let (pair, which) = place(element);
        let [length, turn] = narrow_bits(pair / 2, key);
        let half = pair as usize % 2;
        single::at_angle(single::radius(unit_interval_of(halves(length)[half])), halves(turn)[half])[which]
    }
}

/// Returns the bits of two pairs' radii and angles, the first in the lower halves.
#[inline(always)]
fn narrow_bits(pairs: u64, key: [u32; 2]) -> [u64; 2] {
    let [low, high] = halves(pairs);
    // The third word distinguishes them from an `f64` pair.
    let x = rounds([low.into(), high.into(), 2, 0], key);
    [x[2] << 32 | x[0], x[3] << 32 | x[1]]
}

/// Returns the rounded middle of one of 2³⁰ intervals of `(0, 1)`: small numbers are as exact as others.
#[inline(always)]
fn unit_interval_of(bits: u32) -> f32 {
    ((bits >> 1 | 1) as i32) as f32 * (1.0 / (1_u32 << 31) as f32)
}

/// Implements radius and angle: the type, its bits, its fraction bits, and the terms of the series of logarithm, sine
/// and cosine for full precision.
macro_rules! arithmetic {
    ($name:ident, $float:ident, $bits:ident, $fraction:literal, $of_logarithm:literal, $of_angle:literal) => {
        mod $name {
            use core::$float::consts::{FRAC_1_SQRT_2, FRAC_PI_2, LN_2};

            const ONE: $bits = (1.0 as $float).to_bits();
            const SIGN: u32 = $bits::BITS - 1;

            /// Returns a number in `[1, 2)` from the upper bits, exactly.
            #[inline(always)]
            pub(super) fn from_one(bits: $bits) -> $float {
                $float::from_bits(bits >> ($bits::BITS - $fraction) | ONE)
            }

            /// Returns the radius of two normal numbers, from a number in `(0, 1]`.
            #[inline(always)]
            pub(super) fn radius(x: $float) -> $float {
                (-2.0 * ln(x)).sqrt()
            }

            #[inline(always)]
            pub(super) fn at_angle(radius: $float, bits: $bits) -> [$float; 2] {
                let [sin, cos] = sin_cos_turn(bits);
                [radius * cos, radius * sin]
            }

            /// Returns a positive normal number's logarithm, to a few units in the last place.
            ///
            /// `2·atanh((m − 1)/(m + 1))` by its series, for `m` between √½ and √2.
            #[inline(always)]
            pub(super) fn ln(x: $float) -> $float {
                // Adding 1 − √½ to the bits carries into the exponent for fractions above √2.
                let shifted = x.to_bits() + (ONE - FRAC_1_SQRT_2.to_bits());
                let m =
                    $float::from_bits(x.to_bits().wrapping_sub((shifted >> $fraction << $fraction).wrapping_sub(ONE)));
                // A small integer is the last bits of a number of this size.
                const LARGE: $float = ((1 as $bits) << $fraction) as $float;
                const BIAS: $float = ($float::MAX_EXP - 1) as $float;
                let exponent = $float::from_bits(shifted >> $fraction | LARGE.to_bits()) - (LARGE + BIAS);
                const TERMS: [$float; $of_logarithm] = odd_parts();
                let s = (m - 1.0) / (m + 1.0);
                let square = s * s;
                let mut sum = TERMS[$of_logarithm - 1];
                for k in (0..$of_logarithm - 1).rev() {
                    sum = sum * square + TERMS[k];
                }
                2.0 * s * sum + exponent * LN_2
            }

            const fn odd_parts() -> [$float; $of_logarithm] {
                let (mut all, mut k) = ([1.0; $of_logarithm], 1);
                while k < all.len() {
                    all[k] = 1.0 / (2 * k + 1) as $float;
                    k += 1;
                }
                all
            }

            /// Returns the Taylor coefficients of cosine (`odd` 0) or sine (1), without common powers.
            const fn series(odd: usize) -> [$float; $of_angle] {
                let (mut all, mut k, mut term) = ([1.0; $of_angle], 1, 1.0_f64);
                while k < all.len() {
                    term /= -(((2 * k + odd) * (2 * k + odd - 1)) as f64);
                    all[k] = term as $float;
                    k += 1;
                }
                all
            }

            /// Returns sine and cosine of a random angle.
            ///
            /// The last two bits are the quarter turn, the upper ones the signed distance from its middle.
            #[inline(always)]
            pub(super) fn sin_cos_turn(bits: $bits) -> [$float; 2] {
                const SERIES: [[$float; $of_angle]; 2] = [series(0), series(1)];
                let angle = (from_one(bits) - 1.5) * FRAC_PI_2;
                let square = angle * angle;
                let mut sums = [SERIES[0][$of_angle - 1], SERIES[1][$of_angle - 1]];
                for k in (0..$of_angle - 1).rev() {
                    sums = [sums[0] * square + SERIES[0][k], sums[1] * square + SERIES[1][k]];
                }
                let [cos, sin] = [sums[0].to_bits(), (sums[1] * angle).to_bits()];
                // Odd quarters swap them; the sine is negative after two and three, the cosine after one and two.
                let swap = (sin ^ cos) & (bits & 1).wrapping_neg();
                let (second, either) = ((bits & 2) << (SIGN - 1), ((bits ^ bits << 1) & 2) << (SIGN - 1));
                [$float::from_bits(sin ^ swap ^ second), $float::from_bits(cos ^ swap ^ either)]
            }
        }
    };
}

arithmetic!(double, f64, u64, 52, 11, 9);
arithmetic!(single, f32, u32, 23, 5, 5);

#[cfg(test)]
mod tests {
    use super::super::{leaf_key, path_hash, philox};
    use super::*;

    #[test]
    fn logarithm_and_angle_agree_with_the_systems() {
        for i in 0..20_000_u32 {
            let [a, b, c, d] = philox([i, 0, 0, 0], [7, 7]);
            let bits = u64::from(a) << 32 | u64::from(b);
            let x = unit_interval(bits) * 2.0_f64.powi(-(i as i32 % 60));
            assert!((double::ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(0.5), "{x:e}");
            let bits = u64::from(c) << 32 | u64::from(d);
            let quarters = double::from_one(bits) - 1.5 + (bits & 3) as f64;
            let (sin, cos) = (quarters * core::f64::consts::FRAC_PI_2).sin_cos();
            let ours = double::sin_cos_turn(bits);
            assert!((ours[0] - sin).abs() < 2e-15 && (ours[1] - cos).abs() < 2e-15, "{bits:x}");

            let x = unit_interval_of(a) * 2.0_f32.powi(-(i as i32 % 60));
            let ln = f64::from(x).ln();
            assert!((f64::from(single::ln(x)) - ln).abs() <= 2.4e-7 * ln.abs().max(0.5), "{x:e}");
            let quarters = f64::from(single::from_one(c)) - 1.5 + f64::from(c & 3);
            let (sin, cos) = (quarters * core::f64::consts::FRAC_PI_2).sin_cos();
            let ours = single::sin_cos_turn(c).map(f64::from);
            assert!((ours[0] - sin).abs() < 1.2e-7 && (ours[1] - cos).abs() < 1.2e-7, "{c:x}");
        }
        assert_eq!((double::ln(1.0), single::ln(1.0)), (0.0, 0.0));
        let right_angles = [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]];
        assert_eq!([0, 1, 2, 3].map(|quarter| double::sin_cos_turn(1 << 63 | quarter)), right_angles);
        assert_eq!([0, 1, 2, 3].map(|quarter| single::sin_cos_turn(1 << 31 | quarter).map(f64::from)), right_angles);
    }

    #[test]
    fn radii_are_finite_and_of_all_sizes() {
        for (bits, of) in [(0, 1_u32), (1, 1), (3, 1), (4, 3), (1 << 20, (1 << 19) + 1), (u32::MAX, 1 << 31)] {
            let expected = (-2.0 * (f64::from(of) / 2.0_f64.powi(31)).ln()).sqrt();
            let found = single::radius(unit_interval_of(bits));
            assert!((f64::from(found) - expected).abs() < 1e-6, "{bits:x} {found} {expected}");
        }
        // Next to 1, the logarithm could round above 0, without a real root.
        for below in 1..100_000 {
            let (one, other) = (f32::from_bits(1.0_f32.to_bits() - below), 1.0_f64.to_bits() - u64::from(below));
            assert!(single::radius(one) > 0.0 && double::radius(f64::from_bits(other)) > 0.0, "{below}");
        }
        assert_eq!(double::radius(unit_interval(0)), 0.0);
        let largest = (104.0 * core::f64::consts::LN_2).sqrt();
        assert!((double::radius(unit_interval(u64::MAX)) - largest).abs() < 1e-14);
    }

    fn is_its_elements<X: Normal + PartialEq + core::fmt::Debug>() {
        let key = leaf_key(3, 1, path_hash("layer/weight"));
        for block in [0, 1, u64::from(u32::MAX) / 16, 1 << 40] {
            // More than are computed side by side, and no multiple.
            let mut numbers = [[X::default(); BLOCK]; BATCH / BLOCK + 3];
            X::normals(block, key, &mut numbers);
            for (i, x) in numbers.into_iter().flatten().enumerate() {
                assert_eq!(x, X::normal(block * BLOCK as u64 + i as u64, key), "{block}, {i}");
            }
        }
    }

    #[test]
    fn a_block_is_the_numbers_of_its_elements() {
        is_its_elements::<f64>();
        is_its_elements::<f32>();
    }

    /// Checks moments, tails and correlations of a million numbers, within five standard deviations.
    ///
    /// Mean, variance, skewness and kurtosis; tails from 1, 2, 3 and 4; correlations of neighbours, members of a pair,
    /// and blocks.
    fn are_normal_and_independent(x: &[f64]) {
        let n = x.len();
        let mean = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        let within = |found: f64, expected: f64, variance: f64| {
            assert!((found - expected).abs() < 5.0 * (variance / n as f64).sqrt(), "{found} {expected}");
        };
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            within(mean(&|i| x[i].powi(power)), expected, variance);
        }
        for (bound, beyond) in [(1.0, 0.317_310_5), (2.0, 0.045_500_26), (3.0, 0.002_699_796), (4.0, 6.334_248e-5)] {
            within(mean(&|i| f64::from(x[i].abs() > bound)), beyond, beyond);
        }
        for lag in [1, PAIRS, BLOCK, 1024] {
            within(mean(&|i| x[i] * x[(i + lag) % n]), 0.0, 1.0);
            within(mean(&|i| (x[i] * x[(i + lag) % n]).powi(2)), 1.0, 8.0);
        }
        // Kolmogorov and Smirnov: the largest distance from the distribution, at 400 points.
        let mut sorted = x.to_vec();
        sorted.sort_by(f64::total_cmp);
        for i in -200..200 {
            let at = f64::from(i) / 40.0;
            let below = sorted.partition_point(|x| *x < at) as f64 / n as f64;
            assert!((below - distribution(at)).abs() < 2.0 / (n as f64).sqrt(), "{at}");
        }
    }

    /// Returns the standard normal distribution, by a series from 0.
    fn distribution(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for k in 1..200 {
            term *= x * x / f64::from(2 * k + 1);
            sum += term;
        }
        0.5 + sum * (-x * x / 2.0).exp() / (2.0 * core::f64::consts::PI).sqrt()
    }

    fn a_million<X: Normal>() -> Vec<X> {
        let mut x = vec![[X::default(); BLOCK]; 1_000_000 / BLOCK];
        X::normals(0, [5, 6], &mut x);
        x.into_iter().flatten().collect()
    }

    #[test]
    fn a_million_numbers_are_normal_and_independent() {
        are_normal_and_independent(&a_million::<f64>());
        are_normal_and_independent(&a_million::<f32>().into_iter().map(f64::from).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_of_two_types_are_independent() {
        let (wide, narrow) = (a_million::<f64>(), a_million::<f32>());
        let n = wide.len() as f64;
        let products = wide.iter().zip(&narrow).map(|(x, y)| x * f64::from(*y)).sum::<f64>() / n;
        assert!(products.abs() < 5.0 / n.sqrt(), "{products}");
    }
}
