//! Random numbers by counter: a number is a function of a key and a place, so that it does not matter who asks first.
//!
//! Everything here is plain arithmetic, without the system's mathematical library, so that it has the same bits
//! everywhere.

/// Philox4x32-10 of Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011: ten rounds that scramble a
/// counter by a key.
#[inline(always)]
pub(crate) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [a, b, c, d] = counter;
    let [a, b, c, d] = rounds([a.into(), b.into(), c.into(), d.into()], key);
    [a as u32, b as u32, c as u32, d as u32]
}

/// The rounds of [`philox`] on words that are each the lower half of a wider one, which is how processors multiply
/// several at once.
#[inline(always)]
fn rounds(mut x: [u64; 4], mut key: [u32; 2]) -> [u64; 4] {
    const LOW: u64 = u32::MAX as u64;
    for _ in 0..10 {
        let (a, b) = (x[0] * 0xD251_1F53, x[2] * 0xCD9E_8D57);
        let [first, second] = [u64::from(key[0]), u64::from(key[1])];
        x = [b >> 32 ^ x[1] ^ first, b & LOW, a >> 32 ^ x[3] ^ second, a & LOW];
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

/// Elements of a block: pairs of numbers that fill the widest registers twice.
pub(crate) const BLOCK: usize = 32;
const PAIRS: usize = BLOCK / 2;

/// Elements of the blocks of [`normals`] that are worked out side by side.
pub(crate) const TOGETHER: usize = 4 * BLOCK;

/// The standard normal numbers of blocks of a leaf's elements, from block `first` on. A pair belongs to two elements
/// that lie half a block apart, so that a register of pairs is two registers of elements.
///
/// Bits, logarithms and angles have a loop each. Each waits for itself: a round of the bits for the one before, a
/// term of a polynomial for the last. A loop of all three is longer than what a processor looks ahead, which then has
/// nothing else to do.
#[inline(always)]
pub(crate) fn normals(first: u64, key: [u32; 2], to: &mut [[f64; BLOCK]]) {
    let mut room = [[[0; PAIRS]; 2]; TOGETHER / BLOCK];
    let mut block = first;
    for to in to.chunks_mut(TOGETHER / BLOCK) {
        let room = &mut room[..to.len()];
        for [lengths, turns] in &mut *room {
            for i in 0..PAIRS {
                [lengths[i], turns[i]] = pair_bits(block * PAIRS as u64 + i as u64, key);
            }
            block += 1;
        }
        for [lengths, _] in &mut *room {
            for length in lengths {
                *length = radius(*length).to_bits();
            }
        }
        for (b, to) in to.iter_mut().enumerate() {
            let ([radii, turns], (first, second)) = (&room[b], to.split_at_mut(PAIRS));
            for i in 0..PAIRS {
                [first[i], second[i]] = at_angle(f64::from_bits(radii[i]), turns[i]);
            }
        }
    }
}

/// The one of one element: that in its block.
#[inline(always)]
pub(crate) fn normal(element: u64, key: [u32; 2]) -> f64 {
    let at = element as usize % BLOCK;
    pair(element / BLOCK as u64 * PAIRS as u64 + (at % PAIRS) as u64, key)[at / PAIRS]
}

/// Elements of a block of [`words`]: each of 16 counters gives eight of 16 bits.
pub(crate) const WORDS: usize = 128;
const COUNTERS: usize = WORDS / 8;

/// The 16 random bits of each element of blocks of a leaf, from block `first` on. Those of one counter belong to
/// elements that lie 16 apart, so that a register of counters is registers of elements.
#[inline(always)]
pub(crate) fn words(first: u64, key: [u32; 2], to: &mut [[u16; WORDS]]) {
    for (block, to) in to.iter_mut().enumerate() {
        let block = first + block as u64;
        for i in 0..COUNTERS {
            let bits = counted(block * COUNTERS as u64 + i as u64, key);
            for (j, word) in bits.into_iter().enumerate() {
                to[2 * j * COUNTERS + i] = word as u16;
                to[(2 * j + 1) * COUNTERS + i] = (word >> 16) as u16;
            }
        }
    }
}

/// The ones of one element: those in its block.
#[inline(always)]
pub(crate) fn word(element: u64, key: [u32; 2]) -> u16 {
    let at = element as usize % WORDS;
    let bits = counted(element / WORDS as u64 * COUNTERS as u64 + (at % COUNTERS) as u64, key);
    (bits[at / COUNTERS / 2] >> (at / COUNTERS % 2 * 16)) as u16
}

/// The bits of a counter of [`words`], which no pair of normal numbers is made of.
#[inline(always)]
fn counted(index: u64, key: [u32; 2]) -> [u32; 4] {
    let [low, high] = halves(index);
    philox([low, high, 1, 0], key)
}

/// Two independent standard normal numbers from 128 random bits, by Box and Muller.
///
/// No step of it is a branch or a conversion of integers that only wide instruction sets have, so that a loop over it
/// becomes vector instructions everywhere.
#[inline(always)]
fn pair(index: u64, key: [u32; 2]) -> [f64; 2] {
    let [length, turn] = pair_bits(index, key);
    at_angle(radius(length), turn)
}

/// What a pair's radius and angle are made of.
#[inline(always)]
fn pair_bits(index: u64, key: [u32; 2]) -> [u64; 2] {
    let [low, high] = halves(index);
    // Not as words of 32 bits: put together in pairs on the stack, they would wait for those of the counter before.
    let x = rounds([low.into(), high.into(), 0, 0], key);
    [x[1] << 32 | x[0], x[3] << 32 | x[2]]
}

/// The distance from the origin of two normal numbers.
#[inline(always)]
fn radius(bits: u64) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    (-2.0 * ln(2.0 - from_one(bits))).sqrt()
}

#[inline(always)]
fn at_angle(radius: f64, bits: u64) -> [f64; 2] {
    let [sin, cos] = sin_cos_turn(bits);
    [radius * cos, radius * sin]
}

/// The bits of 1.
const ONE: u64 = 1.0_f64.to_bits();

/// A number in `[1, 2)` from the upper 52 bits, exactly.
#[inline(always)]
fn from_one(bits: u64) -> f64 {
    f64::from_bits(bits >> 12 | ONE)
}

/// The logarithm of a positive normal number, to a few units in the last place: `2·atanh((m − 1)/(m + 1))` by its
/// series, for `m` between √½ and √2, where 11 terms are enough.
#[inline(always)]
fn ln(x: f64) -> f64 {
    // Adding 1 − √½ to the bits carries into the exponent where the fraction is above √2.
    let shifted = x.to_bits() + (ONE - core::f64::consts::FRAC_1_SQRT_2.to_bits());
    let m = f64::from_bits(x.to_bits().wrapping_sub((shifted >> 52 << 52).wrapping_sub(ONE)));
    // A small integer is the last bits of a number of 2⁵² and more.
    const LARGE: f64 = (1_u64 << 52) as f64;
    let exponent = f64::from_bits(shifted >> 52 | LARGE.to_bits()) - (LARGE + 1023.0);
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    2.0 * s * sum + exponent * core::f64::consts::LN_2
}

/// Coefficients of Taylor's series of the cosine (`odd` is 0) or the sine (1), less the powers that they have in
/// common.
const fn series(odd: usize) -> [f64; 9] {
    let (mut all, mut k, mut term) = ([1.0; 9], 1, 1.0);
    while k < all.len() {
        term /= -(((2 * k + odd) * (2 * k + odd - 1)) as f64);
        all[k] = term;
        k += 1;
    }
    all
}

/// Sine and cosine of the angle that random bits stand for: the last two say the quarter turn, and the upper 52 how far
/// from its middle, on either side. Within half a quarter, 9 terms of Taylor's series are enough.
#[inline(always)]
fn sin_cos_turn(bits: u64) -> [f64; 2] {
    const SERIES: [[f64; 9]; 2] = [series(0), series(1)];
    let angle = (from_one(bits) - 1.5) * core::f64::consts::FRAC_PI_2;
    let square = angle * angle;
    let sum = |terms: [f64; 9]| terms.iter().rev().fold(0.0, |sum, term| sum * square + term);
    let [cos, sin] = [sum(SERIES[0]).to_bits(), (sum(SERIES[1]) * angle).to_bits()];
    // After an odd number of quarters they change places; the sine is negative after two and three, the cosine after
    // one and two.
    let swap = (sin ^ cos) & (bits & 1).wrapping_neg();
    let [sin, cos] = [sin ^ swap ^ (bits & 2) << 62, cos ^ swap ^ ((bits ^ bits << 1) & 2) << 62];
    [f64::from_bits(sin), f64::from_bits(cos)]
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
            let x = (2.0 - from_one(bits)) * 2.0_f64.powi(-(i as i32 % 60));
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(0.5), "{x:e}");
            let bits = u64::from(c) << 32 | u64::from(d);
            let quarters = from_one(bits) - 1.5 + (bits & 3) as f64;
            let (sin, cos) = (quarters * core::f64::consts::FRAC_PI_2).sin_cos();
            let ours = sin_cos_turn(bits);
            assert!((ours[0] - sin).abs() < 2e-15 && (ours[1] - cos).abs() < 2e-15, "{bits:x}");
        }
        assert_eq!(ln(1.0), 0.0);
        let middle = 1 << 63;
        assert_eq!(
            [0, 1, 2, 3].map(|quarter| sin_cos_turn(middle | quarter)),
            [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]
        );
    }

    #[test]
    fn a_block_is_the_numbers_of_its_elements() {
        let key = leaf_key(3, 1, path_hash("layer/weight"));
        for block in [0, 1, u64::from(u32::MAX) / 16, 1 << 40] {
            // More than are worked out side by side, and not a multiple of them.
            let mut numbers = [[0.0; BLOCK]; TOGETHER / BLOCK + 3];
            normals(block, key, &mut numbers);
            for (i, x) in numbers.into_iter().flatten().enumerate() {
                assert_eq!(x.to_bits(), normal(block * BLOCK as u64 + i as u64, key).to_bits(), "{block}, {i}");
            }
        }
    }

    #[test]
    fn a_block_of_words_is_the_words_of_its_elements_and_all_words_are_as_frequent() {
        let key = leaf_key(3, 1, path_hash("layer/weight"));
        for block in [0, 1, u64::from(u32::MAX) / 16, 1 << 40] {
            let mut numbers = [[0; WORDS]; 3];
            words(block, key, &mut numbers);
            for (i, x) in numbers.into_iter().flatten().enumerate() {
                assert_eq!(x, word(block * WORDS as u64 + i as u64, key), "{block}, {i}");
            }
        }
        // Of 2²⁰ words: each bit is set in half of them, as is whether one and the next differ in it; each upper byte
        // is as frequent as the others, all within five standard deviations.
        let n = 1 << 20;
        let mut all = vec![[0; WORDS]; n / WORDS];
        words(0, key, &mut all);
        let all = all.as_flattened();
        let within = |found: usize, chance: f64| {
            let deviation = (n as f64 * chance * (1.0 - chance)).sqrt();
            assert!((found as f64 - n as f64 * chance).abs() < 5.0 * deviation, "{found} of {n}, {chance}");
        };
        for bit in 0..16 {
            within(all.iter().filter(|x| *x >> bit & 1 == 1).count(), 0.5);
            for lag in [1, COUNTERS, WORDS] {
                within((0..n).filter(|i| (all[*i] ^ all[(i + lag) % n]) >> bit & 1 == 1).count(), 0.5);
            }
        }
        for byte in 0..256 {
            within(all.iter().filter(|x| **x >> 8 == byte).count(), 1.0 / 256.0);
        }
    }

    /// Mean, variance, skewness, kurtosis, how many are beyond 1, 2, 3 and 4, and how far neighbours, members of a
    /// pair, and blocks go together: each within five standard deviations of a million numbers.
    #[test]
    fn a_million_numbers_are_normal_and_independent() {
        let n = 1_000_000_usize;
        let mut x = vec![[0.0; BLOCK]; n / BLOCK];
        normals(0, [5, 6], &mut x);
        let x = x.as_flattened();
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
    }
}
