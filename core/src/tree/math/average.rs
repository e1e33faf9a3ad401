use super::buffers::{BufferPolicy, bytes_of, mean_of_buffer, write_buffers};
use super::row_major::{RowMajorChunks, leaves, leaves_mut, rewrite};
use crate::error::{Error, Result};
use crate::tree::{Structure, TreeMut};

/// Returns the weighted mean of trees, such as replicas' parameters: one round of local or federated averaging.
///
/// # Arithmetic
///
/// ```text
/// Σ wᵢ·xᵢ / Σ wᵢ     for each element, in f64, rounded once to the leaf's type
/// ```
///
/// computed relative to the first tree, so that elements on which all agree stay bitwise identical. A tree of weight
/// zero is ignored, even if it is NaN or infinite.
///
/// [Buffers](crate::tree::Buffer) are averaged too, by type: floats such as running means like leaves, integers such as
/// counters by their maximum, a `bool` is set if it is in any tree. [`average_params_with`] has the other policies. The
/// result is a clone of the first tree with these values, so a field that the tree does not show, such as one with
/// `#[tree(skip)]`, is the first tree's: show a running mean as `#[tree(buffer)]`.
///
/// # Errors
///
/// Fails without trees, if a weight is negative or not finite, all weights are zero, or a tree differs in structure
/// from the first: in paths, types or shapes. Every difference is listed. Also fails if trees differ in their buffers'
/// paths, types or shapes, or in a buffer that has no mean.
///
/// # Example
///
/// Three times as many examples, three times the weight:
///
/// ```
/// use gradchain::tree::average_params;
///
/// let (a, b) = ((1.0_f32, vec![2.0_f64, 3.0]), (5.0_f32, vec![2.0_f64, 7.0]));
/// assert_eq!(average_params(&[(&a, 3.0), (&b, 1.0)])?, (2.0, vec![2.0, 4.0]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// McMahan, Moore, Ramage, Hampson and Agüera y Arcas, [Communication-efficient learning of deep networks from
/// decentralized data](https://arxiv.org/abs/1602.05629), 2017, algorithm 1, where the weights are numbers of examples.
/// Stich, [Local SGD converges fast and communicates little](https://arxiv.org/abs/1805.09767), 2019, with equal ones.
/// For optimizers' states see [`OptState::average`](crate::OptState::average). PyTorch's `AveragedModel` averages
/// buffers with `use_buffers=True` and keeps the first copy by default; integers are averaged like floats there.
pub fn average_params<P: TreeMut + Clone>(replicas: &[(&P, f64)]) -> Result<P> {
    average_params_with(replicas, BufferPolicy::default())
}

/// As [`average_params`], with a policy for [buffers](crate::tree::Buffer).
///
/// # Errors
///
/// As [`average_params`]; also fails if the policy refuses, with the name of the buffer.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::{BufferPolicy, average_params, average_params_with};
///
/// #[derive(Clone, Tree)]
/// struct Norm {
///     scale: Vec<f32>,
///     #[tree(buffer)]
///     running_mean: Vec<f32>,
///     #[tree(buffer)]
///     batches: u64,
/// }
///
/// let a = Norm { scale: vec![1.0], running_mean: vec![0.0], batches: 10 };
/// let b = Norm { scale: vec![3.0], running_mean: vec![4.0], batches: 12 };
/// let mean = average_params(&[(&a, 1.0), (&b, 1.0)])?;
/// assert_eq!((mean.scale[0], mean.running_mean[0], mean.batches), (2.0, 2.0, 12));
///
/// let mean = average_params_with(&[(&a, 1.0), (&b, 1.0)], BufferPolicy::First)?;
/// assert_eq!((mean.scale[0], mean.running_mean[0], mean.batches), (2.0, 0.0, 10));
///
/// let error = average_params_with(&[(&a, 1.0), (&b, 1.0)], BufferPolicy::Equal).err().unwrap();
/// assert_eq!(error.to_string(), "average: buffer `running_mean`: the trees differ in it");
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn average_params_with<P: TreeMut + Clone>(replicas: &[(&P, f64)], buffers: BufferPolicy) -> Result<P> {
    const NAME: &str = "average_params";
    let Some(((first, _), others)) = replicas.split_first() else {
        return Err(Error::argument(NAME, "replicas", "at least one tree", 0));
    };
    let shares = shares(NAME, replicas.iter().map(|replica| replica.1))?;
    let structure = Structure::of(*first)?;
    for (i, (other, _)) in others.iter().enumerate() {
        let differences = structure.differences(*other);
        if !differences.is_empty() {
            let what = format!("{NAME}: tree {} does not fit tree 0", i + 1);
            return Err(Error::structure(what, differences));
        }
    }
    let means = means_of_buffers(replicas, &shares, buffers)?;
    let mut mean = (*first).clone();
    write_buffers(&mut mean, means)?;
    let all: Vec<_> = replicas.iter().map(|(replica, _)| leaves(*replica)).collect();
    for (i, leaf) in leaves_mut(&mut mean).iter_mut().enumerate() {
        let mut columns: Vec<_> = all.iter().map(|leaves| RowMajorChunks::of(&leaves[i])).collect();
        rewrite(leaf, |_, mean| {
            let columns: Vec<&[f64]> = columns.iter_mut().map(RowMajorChunks::next).collect();
            for (i, mean) in mean.iter_mut().enumerate() {
                *mean = weighted_mean(columns.iter().zip(&shares).map(|(column, share)| (column[i], *share)));
            }
        });
    }
    Ok(mean)
}

fn means_of_buffers<P: TreeMut>(replicas: &[(&P, f64)], shares: &[f64], policy: BufferPolicy) -> Result<Vec<Vec<u8>>> {
    let all = replicas.iter().map(|(replica, _)| bytes_of(*replica)).collect::<Result<Vec<_>>>()?;
    let specs = |i: usize| all[i].iter().map(|(spec, _)| spec.to_string()).collect::<Vec<_>>();
    let ours = specs(0);
    if let Some(other) = (1..all.len()).find(|i| specs(*i) != ours) {
        let problem = format!("the buffers are {:?}; those of tree 0 are {ours:?}", specs(other));
        return Err(Error::state(format!("average_params: tree {other}"), problem));
    }
    let column = |i: usize| all.iter().zip(shares).map(|(tree, share)| (&*tree[i].1, *share)).collect::<Vec<_>>();
    all[0].iter().enumerate().map(|(i, (spec, _))| mean_of_buffer(spec, &column(i), policy)).collect()
}

pub(crate) fn shares(function: &str, weights: impl Iterator<Item = f64>) -> Result<Vec<f64>> {
    let weights: Vec<f64> = weights.collect();
    let total: f64 = weights.iter().sum();
    if weights.iter().all(|w| *w >= 0.0) && total > 0.0 && total.is_finite() {
        return Ok(weights.iter().map(|w| w / total).collect());
    }
    Err(Error::argument(function, "weights", "non-negative with a positive sum", format!("{weights:?}")))
}

/// Returns the mean of numbers, with shares that sum to 1.
///
/// Numbers of share zero are ignored, even NaN or infinite; the mean of equal numbers is that number.
pub(crate) fn weighted_mean(values: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let mut counted = values.filter(|(_, share)| *share > 0.0);
    let all = counted.clone();
    let Some((first, _)) = counted.next() else { return f64::NAN };
    if all.clone().all(|(x, _)| x == first) {
        return first;
    }
    let mean = first + counted.map(|(x, share)| share * (x - first)).sum::<f64>();
    // Infinite values have no distance, and huge ones an infinite one.
    if mean.is_finite() { mean } else { all.map(|(x, share)| share * x).sum() }
}
