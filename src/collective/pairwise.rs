//! A mean of gradients in an order that does not depend on who adds up.

use core::ops::Range;

use super::{Collective, place_in};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::tree::{Structure, Tree, TreeMut, for_each_leaf, tree_add_scaled, tree_map};

/// A mean of trees that is added up in pairs, pairs of pairs, and so on, in the order in which they come.
///
/// So do the ranks of a [`sharded`](crate::wrapper::sharded()) with what they have each. If each takes the [`parts`] of
/// a batch that are its own, and gives a step their mean, the bits of the step are the same for every number of ranks.
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
/// An addition for each part, and room for `log₂ m` trees.
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
/// PyTorch and Optax add up one after another, so that the bits depend on how a batch is shared out.
#[derive(Clone, Debug)]
pub struct PairwiseMean<G> {
    /// Sums, each of a power of two of trees, the largest first.
    sums: Vec<(u64, G)>,
}

impl<G: TreeMut> PairwiseMean<G> {
    /// Of nothing yet.
    pub fn new() -> PairwiseMean<G> {
        PairwiseMean { sums: Vec::new() }
    }

    /// Adds the next tree.
    ///
    /// # Errors
    ///
    /// If it is not of the structure of those before it, or has a leaf of a 16-bit type, which a sum would be rounded
    /// to. Then nothing has been changed.
    pub fn add(&mut self, tree: G) -> Result<()> {
        refuse_narrow(&tree)?;
        if let Some((_, first)) = self.sums.first() {
            let differences = Structure::of(first)?.differences(&tree);
            if !differences.is_empty() {
                return Err(Error::structure("PairwiseMean: the tree is not like those before it", differences));
            }
        }
        self.sums.push((1, tree));
        merge_equal(&mut self.sums, &mut add);
        Ok(())
    }

    /// The mean, if there was any tree.
    pub fn mean(mut self) -> Option<G> {
        merge_all(&mut self.sums, &mut add);
        let (n, mut sum) = self.sums.pop()?;
        tree_map(&mut sum, |x| x / n as f64);
        Some(sum)
    }
}

fn add<G: TreeMut>(before: &mut G, last: &G) {
    // Their structure has been compared.
    drop(tree_add_scaled(before, 1.0, last));
}

/// Adds the last of some sums, each of so many, to the one before, as long as both are of as many: after each that
/// comes.
pub(crate) fn merge_equal<S>(sums: &mut Vec<(u64, S)>, add: &mut impl FnMut(&mut S, &S)) {
    while let [.., (n, before), (m, last)] = &mut sums[..]
        && n == m
    {
        add(before, last);
        *n += *m;
        sums.pop();
    }
}

/// Adds up what is left, from the last on: when all have come.
pub(crate) fn merge_all<S>(sums: &mut Vec<(u64, S)>, add: &mut impl FnMut(&mut S, &S)) {
    while let [.., (n, before), (m, last)] = &mut sums[..] {
        add(before, last);
        *n += *m;
        sums.pop();
    }
}

/// Which of `parts` parts of a batch are this rank's, so that the mean of all has the same bits for every number of
/// ranks: each has a whole branch of the tree in which a [`PairwiseMean`] adds up. How many they are is told to
/// [`Sharded::parts`](crate::wrapper::Sharded::parts).
///
/// # Arithmetic
///
/// `parts` is cut into powers of two, as it is written in binary. Of these the largest is cut into halves, the first of
/// equal ones, until there is one for each rank. One rank alone has all.
///
/// # Cost
///
/// A step takes as long as the rank that has most. If `parts` is a power of two a rank has up to twice the parts of
/// another: with 8 parts 3 ranks have 2, 2 and 4, which takes a half more than if they were even. Else it can be more:
/// 2 ranks have 8 and 1 of 9.
///
/// # Errors
///
/// If there are fewer parts than ranks, or, of several ranks, fewer ranks than powers of two. If the rank is none of
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
/// PyTorch's `DistributedSampler` gives all ranks as many examples, and has the mean depend on their number.
pub fn parts(collective: &dyn Collective, parts: usize) -> Result<Range<usize>> {
    let (rank, size) = place_in(collective)?;
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
