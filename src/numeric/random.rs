//! Random numbers by counter: a number is a function of a key and a place, so that it does not matter who asks first.
//!
//! Everything here is plain arithmetic, without the system's mathematical library, so that it has the same bits everywhere.

/// Philox4x32-10 of Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011: ten rounds that scramble a counter
/// by a key.
#[inline(always)]
pub(crate) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut x, mut key) = (counter, key);
    for _ in 0..10 {
        let a = u64::from(x[0]) * 0xD251_1F53;
        let b = u64::from(x[2]) * 0xCD9E_8D57;
        x = [(b >> 32) as u32 ^ x[1] ^ key[0], b as u32, (a >> 32) as u32 ^ x[3] ^ key[1], a as u32];
        // The Weyl constants of the paper: the golden ratio and the root of 3, less 1.
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    x
}

/// The halves of a word, low first.
#[inline(always)]
pub(crate) fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// FNV-1a of a leaf's path, as in [`Structure::fingerprint`](crate::tree::Structure::fingerprint).
pub(crate) fn path_hash(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One key for each seed, step and leaf; the counter is then free to be the element's.
pub(crate) fn leaf_key(seed: u64, step: u64, path_hash: u64) -> [u32; 2] {
    let [a, b] = halves(path_hash);
    let [c, d] = halves(step);
    let [k0, k1, ..] = philox([a, b, c, d], halves(seed));
    [k0, k1]
}

/// The normal numbers of elements `2·index` and `2·index + 1` of a leaf.
#[inline(always)]
pub(crate) fn pair(index: u64, key: [u32; 2]) -> [f64; 2] {
    let [low, high] = halves(index);
    two_normals(philox([low, high, 0, 0], key))
}

/// Two independent standard normal numbers from 128 random bits, by Box and Muller.
#[inline(always)]
pub(crate) fn two_normals(bits: [u32; 4]) -> [f64; 2] {
    let [a, b] = [[bits[0], bits[1]], [bits[2], bits[3]]].map(|[low, high]| u64::from(high) << 32 | u64::from(low));
    // In (0, 1], so that the logarithm is finite.
    let unit = ((a >> 11) + 1) as f64 * 2.0_f64.powi(-53);
    let radius = (-2.0 * ln(unit)).sqrt();
    let [sin, cos] = sin_cos_turn(b);
    [radius * cos, radius * sin]
}

/// The logarithm of a positive normal number, to a few units in the last place: `2·atanh((m − 1)/(m + 1))` by its series,
/// for `m` between √½ and √2, where 11 terms are enough.
#[inline(always)]
fn ln(x: f64) -> f64 {
    // Adding 1 − √½ to the bits carries into the exponent where the fraction is above √2.
    let shifted = x.to_bits() + (1.0_f64.to_bits() - core::f64::consts::FRAC_1_SQRT_2.to_bits());
    let exponent = (shifted >> 52) as i32 - 1023;
    let m = f64::from_bits(x.to_bits().wrapping_sub((shifted >> 52).wrapping_sub(1023) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    2.0 * s * sum + f64::from(exponent) * core::f64::consts::LN_2
}

/// Sine and cosine of `2π·bits/2⁶⁴`: the nearest quarter turn exactly, and the rest by Taylor's series, which 9 terms of
/// each are enough for.
#[inline(always)]
fn sin_cos_turn(bits: u64) -> [f64; 2] {
    let quarter = bits.wrapping_add(1 << 61) >> 62;
    let rest = bits.wrapping_sub(quarter << 62) as i64;
    // 53 bits, which convert exactly.
    let angle = (rest >> 9) as f64 * (core::f64::consts::TAU * 2.0_f64.powi(-55));
    let square = angle * angle;
    let (mut sin, mut cos) = (0.0, 0.0);
    for k in (0..9).rev() {
        sin = 1.0 - sin * square / f64::from((2 * k + 2) * (2 * k + 3));
        cos = 1.0 - cos * square / f64::from((2 * k + 1) * (2 * k + 2));
    }
    let sin = sin * angle;
    match quarter & 3 {
        0 => [sin, cos],
        1 => [cos, -sin],
        2 => [-sin, -cos],
        _ => [-cos, sin],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        // `kat_vectors` of the authors' Random123.
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, answer) in known {
            assert_eq!(philox(counter, key), answer);
        }
    }

    #[test]
    fn logarithm_and_angle_agree_with_the_systems() {
        for i in 0..20_000_u32 {
            let [a, b, c, d] = philox([i, 0, 0, 0], [7, 7]);
            let bits = u64::from(a) << 32 | u64::from(b);
            let x = ((bits >> 11) + 1) as f64 * 2.0_f64.powi(-53 - (i % 60) as i32);
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(0.5), "{x:e}");
            let bits = u64::from(c) << 32 | u64::from(d);
            let (sin, cos) = (bits as f64 / 2.0_f64.powi(64) * core::f64::consts::TAU).sin_cos();
            let ours = sin_cos_turn(bits);
            assert!((ours[0] - sin).abs() < 2e-15 && (ours[1] - cos).abs() < 2e-15, "{bits:x}");
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(sin_cos_turn(0), [0.0, 1.0]);
        assert_eq!(sin_cos_turn(1 << 62), [1.0, -0.0]);
    }
}
