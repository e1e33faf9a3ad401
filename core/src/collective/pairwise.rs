//! A mean of gradients in an order that is independent of the number of ranks.

use core::ops::Range;

use super::{Collective, rank_and_size};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::tree::{Structure, Tree, TreeMut, for_each_leaf, tree_add_scaled, tree_map};

/// A mean of trees that is summed in pairs, pairs of pairs, and so on, in the order of arrival.
///
/// The ranks of a [`sharded`] sum their gradients in the same way. If each takes its own
/// [`parts`] of a batch, and passes their mean to a step, the step is bitwise identical for every number of ranks.
///
/// # Arithmetic
///
/// ```text
/// sum(g₁ … gₘ) = sum(g₁ … gₙ) + sum(gₙ₊₁ … gₘ)      n the largest power of two below m
/// mean = sum / m
/// ```
///
/// # Cost
///
/// An addition for each part, and memory for `log₂ m` trees.
///
/// # Example
///
/// ```
/// use gradchain::collective::PairwiseMean;
///
/// let (mut whole, mut halves) = (PairwiseMean::new(), [PairwiseMean::new(), PairwiseMean::new()]);
/// for (i, gradient) in [0.1_f32, 0.2, 0.3, 0.4].into_iter().enumerate() {
///     whole.add(gradient)?;
///     halves[i / 2].add(gradient)?;
/// }
/// let [first, second] = halves.map(|half| half.mean().unwrap());
/// assert_eq!(whole.mean(), Some((first + second) / 2.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Higham, [The accuracy of floating point summation](https://doi.org/10.1137/0914050), 1993, pairwise summation.
/// PyTorch and Optax sum sequentially, so that the bits depend on the distribution of a batch.
///
/// [`sharded`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html
#[derive(Clone, Debug)]
pub struct PairwiseMean<G> {
    /// Sums of powers of two of trees, the largest first.
    sums: Vec<(u64, G)>,
}

impl<G: TreeMut> PairwiseMean<G> {
    /// Returns the mean of nothing yet.
    pub fn new() -> PairwiseMean<G> {
        PairwiseMean { sums: Vec::new() }
    }

    /// Adds the next tree.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if the tree's structure differs from those before it, or it has a leaf of a 16-bit
    /// type, which a sum would be rounded to.
    pub fn add(&mut self, tree: G) -> Result<()> {
        refuse_narrow(&tree)?;
        if let Some((_, first)) = self.sums.first() {
            let differences = Structure::of(first)?.differences(&tree);
            if !differences.is_empty() {
                return Err(Error::structure("PairwiseMean: the tree does not match the earlier ones", differences));
            }
        }
        self.sums.push((1, tree));
        merge_equal(&mut self.sums, &mut add);
        Ok(())
    }

    /// Returns the mean, if any tree was added.
    pub fn mean(mut self) -> Option<G> {
        merge_all(&mut self.sums, &mut add);
        let (n, mut sum) = self.sums.pop()?;
        tree_map(&mut sum, |x| x / n as f64);
        Some(sum)
    }
}

fn add<G: TreeMut>(before: &mut G, last: &G) {
    // Their structures have been compared.
    drop(tree_add_scaled(before, 1.0, last));
}

/// Merges the last two sums while both are of equally many trees; called after each new sum.
pub(crate) fn merge_equal<S>(sums: &mut Vec<(u64, S)>, add: &mut impl FnMut(&mut S, &S)) {
    while let [.., (n, before), (m, last)] = &mut sums[..]
        && n == m
    {
        add(before, last);
        *n += *m;
        sums.pop();
    }
}

/// Merges the remaining sums, from the last on.
pub(crate) fn merge_all<S>(sums: &mut Vec<(u64, S)>, add: &mut impl FnMut(&mut S, &S)) {
    while let [.., (n, before), (m, last)] = &mut sums[..] {
        add(before, last);
        *n += *m;
        sums.pop();
    }
}

/// Returns the parts of a batch that are this rank's, so that the mean is bitwise identical for every number of ranks.
///
/// Each rank has a whole branch of the tree in which a [`PairwiseMean`] sums. Pass the number of parts to
/// [`Sharded::parts`].
///
/// # Arithmetic
///
/// `parts` is split into powers of two, as in its binary representation. The largest of these is halved, the first of
/// equal ones, until each rank has one. A single rank has all.
///
/// # Cost
///
/// A step takes as long as the rank with the most parts. If `parts` is a power of two a rank has up to twice the parts
/// of another: with 8 parts 3 ranks have 2, 2 and 4, at most 1.5 times an even split. Otherwise it can be more: 2 ranks
/// have 8 and 1 of 9.
///
/// # Errors
///
/// Fails with fewer parts than ranks, or, for several ranks, fewer ranks than powers of two; and if the rank is not in
/// the group.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{parts, threads};
///
/// let of = |ranks, m| threads(ranks, Duration::ZERO).iter().map(|rank| parts(rank, m)).collect::<Result<Vec<_>, _>>();
/// assert_eq!(of(2, 8)?, [0..4, 4..8]);
/// assert_eq!(of(3, 8)?, [0..2, 2..4, 4..8]);
/// assert_eq!(of(3, 12)?, [0..4, 4..8, 8..12]);
/// assert!(of(9, 8).unwrap_err().to_string().ends_with("must be from 1 to 8, found 9"));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch's `DistributedSampler` gives all ranks equally many examples, and its mean depends on their number.
///
/// [`Sharded::parts`]: https://docs.rs/gradchain/latest/gradchain/wrapper/struct.Sharded.html#method.parts
pub fn parts(collective: &dyn Collective, parts: usize) -> Result<Range<usize>> {
    let (rank, size) = rank_and_size(collective)?;
    if size == 1 && parts > 0 {
        return Ok(0..parts);
    }
    let powers = (0..usize::BITS).rev().map(|bit| parts & 1 << bit).filter(|power| *power > 0);
    let mut branches: Vec<usize> = powers.collect();
    let least = branches.len();
    if size < least || size > parts {
        let expected = format!("from {least} to {parts}");
        return Err(Error::argument("parts", "ranks", &expected, size));
    }
    while let Some(largest) = branches.iter().copied().max().filter(|_| branches.len() < size) {
        let at = branches.iter().position(|branch| *branch == largest).unwrap_or(0);
        branches.splice(at..=at, [largest / 2; 2]);
    }
    let begins = branches[..rank].iter().sum();
    Ok(begins..begins + branches[rank])
}

impl<G: TreeMut> Default for PairwiseMean<G> {
    fn default() -> Self {
        PairwiseMean::new()
    }
}

fn refuse_narrow<G: Tree>(tree: &G) -> Result<()> {
    let mut narrow = None;
    for_each_leaf(tree, |path, leaf| {
        if !matches!(leaf.dtype(), DType::F32 | DType::F64) {
            narrow.get_or_insert_with(|| format!("`{path}` of {}", leaf.dtype()));
        }
    });
    let expected = "of f32 or f64";
    narrow.map_or(Ok(()), |found| Err(Error::argument("PairwiseMean::add", "tree", expected, found)))
}
