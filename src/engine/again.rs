//! Sums that lost something to the range of `f64` and are added up once more, of numbers that are scaled.

use core::cell::RefCell;

use super::pieces::Pieces;

/// What parts ask for at a barrier before anything is decided there.
#[derive(Default)]
pub struct Again {
    /// True if the engine has stored the updates that were added up: a part adds them up itself then.
    pub(super) stored: bool,
    /// The leaves whose sums the pass must add up again.
    leaves: RefCell<Vec<usize>>,
    /// What parts have added up again: the number of the sum, the leaf, the sum.
    sums: RefCell<Vec<(usize, usize, f64)>>,
}

impl Again {
    pub(super) fn new(stored: bool) -> Again {
        Again { stored, ..Again::default() }
    }

    /// Asks for another pass over a leaf.
    pub(super) fn ask(&self, leaf: usize) {
        let mut leaves = self.leaves.borrow_mut();
        if !leaves.contains(&leaf) {
            leaves.push(leaf);
        }
    }

    /// Replaces a sum over a leaf.
    pub(super) fn put(&self, sum: usize, leaf: usize, value: f64) {
        self.sums.borrow_mut().push((sum, leaf, value));
    }

    /// Writes down what parts have added up, clears the sums of the leaves that are asked for, and returns these.
    pub(super) fn prepare(&self, pieces: &Pieces, width: usize, sums: &mut [f64], saved: &mut Vec<f64>) -> Vec<usize> {
        for (sum, leaf, value) in self.sums.take() {
            for (i, piece) in pieces.of_leaf[leaf].clone().enumerate() {
                sums[piece * width + sum] = if i == 0 { value } else { 0.0 };
            }
        }
        let leaves = self.leaves.take();
        if leaves.is_empty() {
            return leaves;
        }
        saved.clear();
        saved.extend_from_slice(sums);
        leaves.iter().for_each(|leaf| of_leaf(pieces, width, *leaf, sums).fill(0.0));
        leaves
    }
}

/// Restores the sums to which the repeated pass added nothing: those of other passes.
pub(super) fn restore(pieces: &Pieces, width: usize, leaves: &[usize], sums: &mut [f64], saved: &mut [f64]) {
    for leaf in leaves {
        let pairs = of_leaf(pieces, width, *leaf, sums).iter_mut().zip(of_leaf(pieces, width, *leaf, saved));
        pairs.filter(|(sum, _)| **sum == 0.0).for_each(|(sum, saved)| *sum = *saved);
    }
}

fn of_leaf<'a>(pieces: &Pieces, width: usize, leaf: usize, sums: &'a mut [f64]) -> &'a mut [f64] {
    let pieces = &pieces.of_leaf[leaf];
    &mut sums[pieces.start * width..pieces.end * width]
}
