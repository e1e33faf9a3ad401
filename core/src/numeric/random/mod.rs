//! Counter-based random numbers: functions of a key and a counter, independent of the order of requests.
//!
//! Plain arithmetic, without the system's mathematical library: bitwise identical on all CPUs.

mod normal;

pub use normal::{BATCH, BLOCK, Normal};

/// Returns Philox4x32-10 of a counter and a key.
///
/// Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [a, b, c, d] = counter;
    let [a, b, c, d] = rounds([a.into(), b.into(), c.into(), d.into()], key);
    [a as u32, b as u32, c as u32, d as u32]
}

/// Computes [`philox`] on words in the lower halves of wider ones, as SIMD multiplications need.
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

/// Returns the low and the high half of a word.
#[inline(always)]
pub fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// Returns a path's FNV-1a hash, as in [`Structure::fingerprint`](crate::tree::Structure::fingerprint).
pub fn path_hash(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the key of a seed, step and leaf; the counter is the element's.
pub fn leaf_key(seed: u64, step: u64, path_hash: u64) -> [u32; 2] {
    let [a, b] = halves(path_hash);
    let [c, d] = halves(step);
    let [k0, k1, ..] = philox([a, b, c, d], halves(seed));
    [k0, k1]
}

/// Elements of a block of [`words`]: 16 counters of eight 16-bit words.
pub const WORDS: usize = 128;
const COUNTERS: usize = WORDS / 8;

/// Draws 16 random bits for each element, from block `first` on.
///
/// A counter's words belong to elements 16 apart, so that registers of counters yield registers of elements.
#[inline(always)]
pub fn words(first: u64, key: [u32; 2], to: &mut [[u16; WORDS]]) {
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

/// Returns one element's bits, as in its block.
#[inline(always)]
pub fn word(element: u64, key: [u32; 2]) -> u16 {
    let at = element as usize % WORDS;
    let bits = counted(element / WORDS as u64 * COUNTERS as u64 + (at % COUNTERS) as u64, key);
    (bits[at / COUNTERS / 2] >> (at / COUNTERS % 2 * 16)) as u16
}

/// Returns a counter's bits for [`words`], which no pair of normal numbers uses.
#[inline(always)]
fn counted(index: u64, key: [u32; 2]) -> [u32; 4] {
    let [low, high] = halves(index);
    philox([low, high, 1, 0], key)
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
    fn a_block_of_words_is_the_words_of_its_elements_and_all_words_are_as_frequent() {
        let key = leaf_key(3, 1, path_hash("layer/weight"));
        for block in [0, 1, u64::from(u32::MAX) / 16, 1 << 40] {
            let mut numbers = [[0; WORDS]; 3];
            words(block, key, &mut numbers);
            for (i, x) in numbers.into_iter().flatten().enumerate() {
                assert_eq!(x, word(block * WORDS as u64 + i as u64, key), "{block}, {i}");
            }
        }
        // Of 2²⁰ words: each bit is set in half, as is its difference between neighbours; upper bytes are equally
        // frequent; all within five standard deviations.
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
}
