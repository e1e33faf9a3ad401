//! Sums that overflowed or vanished in `f64`, reduced again over scaled elements.

use core::cell::RefCell;

use super::chunks::Chunks;

/// The requests of parts at a barrier to repeat reductions, before the barrier decides.
#[derive(Default)]
pub struct Repeats {
    /// True if the reduced updates are stored: parts then repeat the reduction themselves.
    pub(super) stored: bool,
    leaves: RefCell<Vec<usize>>,
    /// Sums reduced again: index, leaf, value.
    sums: RefCell<Vec<(usize, usize, f64)>>,
}

impl Repeats {
    pub(super) fn new(stored: bool) -> Repeats {
        Repeats { stored, ..Repeats::default() }
    }

    pub(super) fn request(&self, leaf: usize) {
        let mut leaves = self.leaves.borrow_mut();
        if !leaves.contains(&leaf) {
            leaves.push(leaf);
        }
    }

    pub(super) fn store(&self, sum: usize, leaf: usize, value: f64) {
        self.sums.borrow_mut().push((sum, leaf, value));
    }

    /// Stores these sums, clears those of the requested leaves, and returns these leaves.
    pub(super) fn prepare(
        &self,
        chunks: &Chunks,
        width: usize,
        sums: &mut [f64],
        saved_sums: &mut Vec<f64>,
    ) -> Vec<usize> {
        for (sum, leaf, value) in self.sums.take() {
            for (i, chunk) in chunks.of_leaf[leaf].clone().enumerate() {
                sums[chunk * width + sum] = if i == 0 { value } else { 0.0 };
            }
        }
        let leaves = self.leaves.take();
        if leaves.is_empty() {
            return leaves;
        }
        saved_sums.clear();
        saved_sums.extend_from_slice(sums);
        leaves.iter().for_each(|leaf| of_leaf(chunks, width, *leaf, sums).fill(0.0));
        leaves
    }
}

/// Restores the saved sums that the repeated pass did not reduce.
pub(super) fn restore(chunks: &Chunks, width: usize, leaves: &[usize], sums: &mut [f64], saved_sums: &mut [f64]) {
    for leaf in leaves {
        let pairs = of_leaf(chunks, width, *leaf, sums).iter_mut().zip(of_leaf(chunks, width, *leaf, saved_sums));
        pairs.filter(|(sum, _)| **sum == 0.0).for_each(|(sum, saved_sums)| *sum = *saved_sums);
    }
}

fn of_leaf<'a>(chunks: &Chunks, width: usize, leaf: usize, sums: &'a mut [f64]) -> &'a mut [f64] {
    let chunks = &chunks.of_leaf[leaf];
    &mut sums[chunks.start * width..chunks.end * width]
}
