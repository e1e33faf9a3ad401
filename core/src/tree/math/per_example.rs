use super::row_major::{leaves, leaves_mut, read, rewrite};
use crate::error::{Error, Result};
use crate::tree::{LeafRef, SMALL, Structure, Tree, TreeMut};

/// Clips the gradient of each example to a norm and sums them; returns the number of clipped ones.
///
/// The leaves of `grads` have one more axis than those of `sum`, the first: the examples.
///
/// # Arithmetic
///
/// For each example `b`, with the norm over all leaves together:
///
/// ```text
/// sum ← Σ_b grads[b]·min(l2_norm_clip / ‖grads[b]‖, 1)          a gradient of 0 counts as not clipped
/// ```
///
/// # Cost
///
/// Two passes over the gradients; memory for the largest leaf without its examples, in `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if `l2_norm_clip` is negative or NaN, or the leaves of `grads` are not those of `sum`
/// with one more axis, of the same length everywhere.
///
/// # Example
///
/// ```
/// use gradchain::tree::per_example_global_norm_clip;
/// use ndarray::array;
///
/// let grads = array![[0.0_f32, 0.0], [3.0, 4.0], [0.0, 0.5]];
/// let mut sum = array![0.0_f32, 0.0];
/// assert_eq!(per_example_global_norm_clip(&grads, &mut sum, 1.0)?, 1);
/// assert_eq!(sum, array![0.6, 1.3]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Abadi et al., [Deep learning with differential privacy](https://arxiv.org/abs/1607.00133), 2016, algorithm 1. Optax,
/// [`per_example_global_norm_clip`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: norms
/// and sums are in `f64`.
pub fn per_example_global_norm_clip<G, S>(grads: &G, sum: &mut S, l2_norm_clip: f64) -> Result<u64>
where
    G: Tree + ?Sized,
    S: TreeMut + ?Sized,
{
    const NAME: &str = "per_example_global_norm_clip";
    check_clip(NAME, "l2_norm_clip", l2_norm_clip)?;
    let examples = examples(NAME, grads, sum)?;
    let grads = leaves(grads);
    let (factors, clipped) = factors(&norms(&grads, examples), l2_norm_clip);
    for (leaf, sum) in grads.iter().zip(&mut leaves_mut(sum)) {
        write_sum(leaf, &factors, sum);
    }
    Ok(clipped)
}

/// Clips each leaf of each example's gradient by its own norm and sums them; returns the number clipped per leaf.
///
/// The leaves of `grads` have one more axis than those of `sum`, the first: the examples.
///
/// # Arithmetic
///
/// For each of the `K` leaves, with `dᵢ` of `d` elements in all, as in
/// [`per_example_global_norm_clip`](crate::tree::per_example_global_norm_clip) with the norm over that leaf alone and
///
/// ```text
/// l2_norm_clip = global_l2_norm_clip·√(1/K)      if uniform
/// l2_norm_clip = global_l2_norm_clip·√(dᵢ/d)     else
/// ```
///
/// # Cost
///
/// Two passes over the gradients; memory for the largest leaf without its examples, in `f64`.
///
/// # Errors
///
/// As [`per_example_global_norm_clip`](crate::tree::per_example_global_norm_clip).
///
/// # Example
///
/// Two leaves, so that each is clipped to `2/√2 = √2`:
///
/// ```
/// use gradchain::tree::per_example_layer_norm_clip;
/// use ndarray::array;
///
/// let grads = (array![[0.0_f64, 0.0], [3.0, 4.0]], array![1.0_f64, -1.0]);
/// let mut sum = (array![0.0_f64, 0.0], 0.0_f64);
/// assert_eq!(per_example_layer_norm_clip(&grads, &mut sum, 2.0, true)?, [1, 0]);
/// approx::assert_relative_eq!(sum.0[0], 3.0 / 5.0 * 2.0_f64.sqrt(), max_relative = 1e-15);
/// assert_eq!(sum.1, 0.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// McMahan et al., [Learning differentially private recurrent language models](https://arxiv.org/abs/1710.06963), 2017.
/// Optax, [`per_example_layer_norm_clip`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// norms and sums are in `f64`.
pub fn per_example_layer_norm_clip<G, S>(
    grads: &G,
    sum: &mut S,
    global_l2_norm_clip: f64,
    uniform: bool,
) -> Result<Vec<u64>>
where
    G: Tree + ?Sized,
    S: TreeMut + ?Sized,
{
    const NAME: &str = "per_example_layer_norm_clip";
    check_clip(NAME, "global_l2_norm_clip", global_l2_norm_clip)?;
    let examples = examples(NAME, grads, sum)?;
    let (grads, mut sum) = (leaves(grads), leaves_mut(sum));
    let layers = grads.len() as f64;
    let elements: usize = sum.iter().map(|leaf| leaf.parts.data.len()).sum();
    let each = |(leaf, sum): (&LeafRef<'_>, &mut _)| {
        let len = leaf.parts.data.len() / examples.max(1);
        let share = if uniform { 1.0 / layers } else { len as f64 / elements as f64 };
        let norms = norms(core::slice::from_ref(leaf), examples);
        let (factors, clipped) = factors(&norms, global_l2_norm_clip * share.sqrt());
        write_sum(leaf, &factors, sum);
        clipped
    };
    Ok(grads.iter().zip(&mut sum).map(each).collect())
}

fn check_clip(function: &str, argument: &str, clip: f64) -> Result<()> {
    if clip >= 0.0 { Ok(()) } else { Err(Error::argument(function, argument, "not negative", clip)) }
}

fn examples<G: Tree + ?Sized, S: Tree + ?Sized>(function: &str, grads: &G, sum: &S) -> Result<usize> {
    let (grads, sum) = (Structure::of(grads)?, Structure::of(sum)?);
    let examples = grads.leaves().iter().find_map(|leaf| leaf.shape().first().copied()).unwrap_or(0);
    let differences = sum.batched(examples).compare(&grads, |_, _| true);
    if differences.is_empty() {
        return Ok(examples);
    }
    Err(Error::structure(
        format!("{function}: the per-example gradients do not fit the sum with a leading axis of examples"),
        differences,
    ))
}

/// Calls `each` with each chunk by example: the example's index, the place in it, the elements.
fn by_example(leaf: &LeafRef<'_>, examples: usize, mut each: impl FnMut(usize, usize, &[f64])) {
    let len = leaf.parts.data.len() / examples.max(1);
    read(leaf, |start, mut row_major| {
        let mut at = start;
        while !row_major.is_empty() {
            let (part, rest) = row_major.split_at(row_major.len().min(len - at % len));
            each(at / len, at % len, part);
            (at, row_major) = (at + part.len(), rest);
        }
    });
}

/// Returns each example's norm; 0 if squares vanish, which is not clipped either.
fn norms(leaves: &[LeafRef<'_>], examples: usize) -> Vec<f64> {
    let norms = |scale: f64| -> Vec<f64> {
        let mut squares = vec![0.0; examples];
        for leaf in leaves {
            let square = |g: &f64| (scale * g) * (scale * g);
            by_example(leaf, examples, |b, _, g| squares[b] += g.iter().map(square).sum::<f64>());
        }
        squares.into_iter().map(|square| square.sqrt() / scale).collect()
    };
    let plain = norms(1.0);
    match plain.iter().any(|norm| norm.is_infinite()) {
        true => {
            plain.into_iter().zip(norms(SMALL)).map(|(x, scaled)| if x.is_infinite() { scaled } else { x }).collect()
        }
        false => plain,
    }
}

/// Returns each example's factor, and the number below 1.
fn factors(norms: &[f64], clip: f64) -> (Vec<f64>, u64) {
    // Unlike `min`, does not clip for 0/0: a zero gradient and a zero clip.
    let factor = |norm: &f64| if clip / norm < 1.0 { clip / norm } else { 1.0 };
    let factors: Vec<f64> = norms.iter().map(factor).collect();
    let clipped = factors.iter().filter(|factor| **factor < 1.0).count();
    (factors, clipped as u64)
}

fn write_sum(leaf: &LeafRef<'_>, factors: &[f64], sum: &mut crate::tree::LeafMut<'_>) {
    let mut totals = vec![0.0; sum.parts.data.len()];
    by_example(leaf, factors.len(), |b, at, g| {
        totals[at..].iter_mut().zip(g).for_each(|(total, g)| *total += factors[b] * g);
    });
    rewrite(sum, |start, sum| sum.copy_from_slice(&totals[start..][..sum.len()]));
}
