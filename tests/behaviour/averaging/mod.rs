//! Averages of parameters and states match naive `f64` ones, and keep each field's kind.

mod kinds;
mod oracle;
mod replicas;
mod wrappers;

use gradchain::Tree;
use gradchain::tree::for_each_leaf;

fn flat<P: Tree>(tree: &P) -> Vec<f64> {
    let mut values = Vec::new();
    for_each_leaf(tree, |_, leaf| values.extend(leaf.to_f64()));
    values
}

/// Returns a number in (−1, 1).
fn noise(seed: u64, i: usize) -> f64 {
    let mut x = seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ i as u64;
    for _ in 0..3 {
        x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}
