//! The mean of what each rank has.

use super::{Collective, gather};
use crate::element::{Element, with_dtype};
use crate::error::{Error, Result};
use crate::tree::{LeafMut, LeafRef, Structure, TreeMut, WalkMut};

/// Replaces a tree by the mean of all ranks' trees: what local SGD and DiLoCo send, once in many steps.
///
/// # Arithmetic
///
/// In `f64`, in pairs of neighbouring ranks, pairs of pairs, and so on; rounded once to the leaf's type. All ranks have the same bits.
///
/// # Errors
///
/// If the trees differ in structure: all ranks have an error then, and nothing has been changed. If a rank is lost, some leaves may be means
/// already.
///
/// # Cost
///
/// Each rank sends the tree once to all others, leaf by leaf, and has room for the largest leaf of all ranks.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{Collective, average, threads};
///
/// std::thread::scope(|scope| {
///     for ranks in threads(2, Duration::from_secs(10)) {
///         scope.spawn(move || {
///             let mut params = (vec![ranks.rank() as f32, 2.0], 1.0_f64);
///             average(&ranks, &mut params).unwrap();
///             assert_eq!(params, (vec![0.5, 2.0], 1.0));
///         });
///     }
/// });
/// ```
///
/// # References
///
/// Stich, [Local SGD converges fast and communicates little](https://arxiv.org/abs/1805.09767), 2019, algorithm 1. PyTorch averages by
/// `all_reduce`, whose order is the library's.
pub fn average<P: TreeMut + ?Sized>(collective: &dyn Collective, params: &mut P) -> Result<()> {
    let structure = Structure::of(params)?.fingerprint().to_le_bytes();
    let all = gather(collective, &structure)?;
    if let Some(other) = all.iter().position(|other| *other != all[0]) {
        let problem =
            format!("the ranks differ in the structure of what is averaged: rank {other} has another than rank 0");
        return Err(Error::collective(collective.rank(), problem));
    }
    let mut done = Ok(());
    params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |_, mut leaf| {
        if done.is_ok() {
            done = leaf_mean(collective, &mut leaf);
        }
    }));
    done
}

fn leaf_mean(collective: &dyn Collective, leaf: &mut LeafMut<'_>) -> Result<()> {
    let (mut send, mut all) = (LeafRef::lend(leaf.parts.clone()).to_bytes(), Vec::new());
    let (len, size) = (send.len(), collective.size());
    collective.all_gather(&mut send, &mut all, &vec![len; size])?;
    let values = |bytes: &[u8]| -> Vec<f64> {
        with_dtype!(leaf.dtype(), T => {
            let mut values = vec![T::default(); len / size_of::<T>()];
            if let Ok(mut view) = LeafMut::from_slice(&mut values, &[len / size_of::<T>()]) {
                view.take_bytes(bytes);
            }
            values.into_iter().map(|x| x.as_f64()).collect()
        })
    };
    let mut add = |before: &mut Vec<f64>, last: &Vec<f64>| {
        before.iter_mut().zip(last).for_each(|(before, last)| *before += last);
    };
    let mut sums: Vec<(usize, Vec<f64>)> = Vec::new();
    for rank in 0..size {
        sums.push((1, values(&all[rank * len..][..len])));
        super::pairwise::merge_equal(&mut sums, &mut add);
    }
    super::pairwise::merge_all(&mut sums, &mut add);
    if let Some((n, mut sum)) = sums.pop() {
        sum.iter_mut().for_each(|x| *x /= n as f64);
        leaf.assign_f64(&sum);
    }
    Ok(())
}
