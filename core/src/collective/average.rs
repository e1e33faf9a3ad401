//! The mean over ranks.

use super::pairwise::{merge_all, merge_equal};
use super::{Collective, agree, gather, wait_checked};
use crate::element::{Element, with_dtype};
use crate::error::Result;
use crate::tree::{
    BufferPolicy, LeafMut, LeafRef, Structure, TreeMut, WalkMut, bytes_of, mean_of_buffer, write_buffers,
};

/// Replaces a tree by the mean of all ranks' trees: the rare communication of local SGD and DiLoCo.
///
/// The state of an optimizer is averaged by kind: [`OptState::average_over`](crate::OptState::average_over).
///
/// # Arithmetic
///
/// In `f64`, in pairs of neighbouring ranks, pairs of pairs, and so on; rounded once to the leaf's type. Values equal
/// on all ranks stay bitwise identical. The result is bitwise identical on all ranks.
///
/// [Buffers](crate::tree::Buffer) are averaged too, by [`BufferPolicy::Average`]; [`average_with`] has the other
/// policies. Fields that the tree does not show stay as they are on each rank.
///
/// # Errors
///
/// If the trees differ in structure, all ranks return an error that names the leaf, and nothing has been changed. If a
/// rank is lost, some leaves may be means already.
///
/// # Cost
///
/// For `n` bytes each of `k` ranks sends `n(k − 1)/k` twice, in two messages for each leaf, and allocates twice the
/// size of the largest leaf.
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
/// Stich, [Local SGD converges fast and communicates little](https://arxiv.org/abs/1805.09767), 2019, algorithm 1.
/// PyTorch averages by `all_reduce`, whose order is the library's; `DistributedDataParallel` sends the buffers of rank
/// 0 to all.
pub fn average<P: TreeMut + ?Sized>(collective: &dyn Collective, params: &mut P) -> Result<()> {
    average_with(collective, params, BufferPolicy::default())
}

/// As [`average`], with a policy for [buffers](crate::tree::Buffer).
///
/// # Errors
///
/// As [`average`]. If the policy refuses, all ranks return an error that names the buffer, and nothing has been
/// changed.
///
/// # Cost
///
/// As [`average`]; with buffers, one more message in which each rank sends its own to all.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::tree::BufferPolicy;
/// use gradchain::collective::{Collective, average_with, threads};
/// use gradchain::tree::Tree;
///
/// #[derive(Tree)]
/// struct Norm {
///     scale: Vec<f32>,
///     #[tree(buffer)]
///     running_mean: Vec<f32>,
/// }
///
/// std::thread::scope(|scope| {
///     for ranks in threads(2, Duration::from_secs(10)) {
///         scope.spawn(move || {
///             let rank = ranks.rank() as f32;
///             let mut norm = Norm { scale: vec![rank], running_mean: vec![rank + 1.0] };
///             average_with(&ranks, &mut norm, BufferPolicy::First).unwrap();
///             assert_eq!((norm.scale[0], norm.running_mean[0]), (0.5, 1.0)); // rank 0 has a mean of 1
///         });
///     }
/// });
/// ```
pub fn average_with<P: TreeMut + ?Sized>(
    collective: &dyn Collective,
    params: &mut P,
    policy: BufferPolicy,
) -> Result<()> {
    let own = bytes_of(params)?;
    let leaves: Vec<String> = Structure::of(params)?.leaves().iter().map(ToString::to_string).collect();
    let buffers = own.iter().map(|(spec, _)| format!("buffer {spec}"));
    agree(
        collective,
        "the structure of the averaged parameters",
        &leaves.into_iter().chain(buffers).collect::<Vec<_>>(),
    )?;
    // Buffers come before the leaves, so that a refusal changes nothing.
    let means = if own.is_empty() {
        Vec::new()
    } else {
        let all = gather(collective, &own.iter().flat_map(|(_, bytes)| bytes).copied().collect::<Vec<_>>())?;
        let share = 1.0 / all.len() as f64;
        let mut begin = 0;
        let mean = |(spec, bytes): &(_, Vec<u8>)| {
            let range = begin..begin + bytes.len();
            begin = range.end;
            let column = all.iter().map(|rank| (rank.get(range.clone()).unwrap_or_default(), share));
            mean_of_buffer(spec, &column.collect::<Vec<_>>(), policy)
        };
        own.iter().map(mean).collect::<Result<Vec<_>>>()?
    };
    write_buffers(params, means)?;
    let mut done = Ok(());
    params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |_, mut leaf| {
        if done.is_ok() {
            done = leaf_mean(collective, &mut leaf);
        }
    }));
    done
}

/// Averages a leaf; each rank computes a chunk.
pub(crate) fn leaf_mean(collective: &dyn Collective, leaf: &mut LeafMut<'_>) -> Result<()> {
    if leaf.dtype().is_quantized() {
        let mut numbers = leaf.parts.decoded();
        leaf_mean(collective, &mut LeafMut::lend(leaf.parts.over(&mut numbers)))?;
        leaf.parts.encode(&numbers);
        return Ok(());
    }
    let (all, rank, size) = (LeafRef::lend(leaf.parts.clone()).to_bytes(), collective.rank(), collective.size());
    let bytes = leaf.dtype().size();
    let len = all.len() / bytes;
    let lens: Vec<usize> = (0..size).map(|i| (len * (i + 1) / size - len * i / size) * bytes).collect();
    let own = lens[rank];
    let from = vec![own; size];
    let pending = collective.begin_all_to_all(all, &lens, Vec::new(), &from);
    let [all, mut received] = wait_checked(collective, pending, &from)?;
    with_dtype!(leaf.dtype(), T => {
        let mut there = vec![T::default(); own / bytes];
        let mut values = Vec::with_capacity(size);
        for message in received.chunks(own.max(1)) {
            LeafMut::from_slice(&mut there, &[own / bytes])?.take_bytes(message);
            values.push(there.iter().map(|x| x.as_f64()).collect::<Vec<_>>());
        }
        let means = mean_of(&values).into_iter().map(T::from_f64).collect::<Vec<_>>();
        received = LeafRef::from_slice(&means, &[means.len()])?.to_bytes();
    });
    let [_, all] = wait_checked(collective, collective.begin_all_gather(received, all, &lens), &lens)?;
    leaf.take_bytes(&all);
    Ok(())
}

fn mean_of(values: &[Vec<f64>]) -> Vec<f64> {
    let mut add = |before: &mut Vec<f64>, last: &Vec<f64>| {
        before.iter_mut().zip(last).for_each(|(before, last)| *before += last);
    };
    let mut sums = Vec::new();
    for of_rank in values {
        sums.push((1, of_rank.clone()));
        merge_equal(&mut sums, &mut add);
    }
    merge_all(&mut sums, &mut add);
    let (n, mut mean) = sums.pop().unwrap_or_default();
    for (i, x) in mean.iter_mut().enumerate() {
        let first = values[0][i];
        *x = if values.iter().all(|of_rank| of_rank[i] == first) { first } else { *x / n as f64 };
    }
    mean
}
