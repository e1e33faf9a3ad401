use super::row_major::{RowMajorChunks, leaves, leaves_mut, rewrite};
use super::same_shapes;
use crate::error::{Error, Result};
use crate::tree::{Tree, TreeMut};

/// Returns a copy of a tree with all elements zero, for example to accumulate gradients.
///
/// ```
/// use gradchain::tree::{tree_add_scaled, tree_zeros_like};
///
/// let params = (1.0_f32, vec![2.0_f64, 3.0]);
/// let mut sum = tree_zeros_like(&params);
/// for gradient in [(1.0_f32, vec![0.5_f64, 0.0]), (2.0, vec![0.5, 1.0])] {
///     tree_add_scaled(&mut sum, 0.5, &gradient)?;
/// }
/// assert_eq!(sum, (1.5, vec![0.5, 0.5]));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn tree_zeros_like<T: TreeMut + Clone>(tree: &T) -> T {
    let mut zeros = tree.clone();
    tree_fill(&mut zeros, 0.0);
    zeros
}

/// Sets every element.
///
/// ```
/// let mut tree = (1.0_f32, vec![2.0_f64, 3.0]);
/// gradchain::tree::tree_fill(&mut tree, 0.5);
/// assert_eq!(tree, (0.5, vec![0.5, 0.5]));
/// ```
pub fn tree_fill<T: TreeMut + ?Sized>(tree: &mut T, value: f64) {
    tree_map(tree, |_| value);
}

/// Multiplies every element.
///
/// ```
/// let mut tree = (1.0_f32, vec![2.0_f64, 3.0]);
/// gradchain::tree::tree_scale(&mut tree, -2.0);
/// assert_eq!(tree, (-2.0, vec![-4.0, -6.0]));
/// ```
pub fn tree_scale<T: TreeMut + ?Sized>(tree: &mut T, factor: f64) {
    tree_map(tree, |x| factor * x);
}

/// Replaces every element `x` by `f(x)`, computed in `f64` and rounded to the leaf's type.
///
/// ```
/// let mut tree = (1.0_f32, vec![4.0_f64, 9.0]);
/// gradchain::tree::tree_map(&mut tree, f64::sqrt);
/// assert_eq!(tree, (1.0, vec![2.0, 3.0]));
/// ```
pub fn tree_map<T: TreeMut + ?Sized>(tree: &mut T, mut f: impl FnMut(f64) -> f64) {
    for leaf in &mut leaves_mut(tree) {
        rewrite(leaf, |_, x| x.iter_mut().for_each(|x| *x = f(*x)));
    }
}

/// Adds a multiple of another tree: `x ← x + scalar·y`.
///
/// # Errors
///
/// Fails, with nothing changed, if the trees differ in structure. They may be of different float types.
///
/// # Example
///
/// ```
/// let mut tree = (1.0_f32, vec![2.0_f64, 3.0]);
/// gradchain::tree::tree_add_scaled(&mut tree, -0.5, &(2.0_f64, vec![2.0_f32, 4.0]))?;
/// assert_eq!(tree, (0.0, vec![1.0, 1.0]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`optax.tree.add_scale`](https://optax.readthedocs.io/en/latest/api/utilities.html); with 1 and −1 `add` and
/// `sub`. Differs: in place, in `f64`.
pub fn tree_add_scaled<X: TreeMut + ?Sized, Y: Tree + ?Sized>(x: &mut X, scalar: f64, y: &Y) -> Result<()> {
    combine("the tree to add differs", x, y, |x, y| x + scalar * y)
}

/// Copies the values of another tree, of any type with the same leaves.
///
/// # Errors
///
/// Fails, with nothing changed, if the trees differ in structure. They may be of different float types.
///
/// # Example
///
/// ```
/// let mut single = (0.0_f32, vec![0.0_f32; 2]);
/// gradchain::tree::tree_assign(&mut single, &(1.0_f64, vec![2.0_f64, 0.1]))?;
/// assert_eq!(single, (1.0, vec![2.0, 0.1]));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn tree_assign<X: TreeMut + ?Sized, Y: Tree + ?Sized>(to: &mut X, from: &Y) -> Result<()> {
    combine("the tree to copy differs", to, from, |_, y| y)
}

/// Moves an average of parameters a fraction of the way to new ones: Polyak averaging.
///
/// # Arithmetic
///
/// ```text
/// old ← step_size·new + (1 − step_size)·old
/// ```
///
/// # Errors
///
/// Fails, with nothing changed, if the trees differ in structure. They may be of different float types.
///
/// # Example
///
/// ```
/// use gradchain::tree::incremental_update;
///
/// let mut average = vec![0.0_f32, 4.0];
/// incremental_update(&vec![1.0_f32, 0.0], &mut average, 0.25)?;
/// assert_eq!(average, [0.25, 3.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Polyak and Juditsky, [Acceleration of stochastic approximation by averaging](https://doi.org/10.1137/0330046), 1992.
/// Optax, [`incremental_update`](https://optax.readthedocs.io/en/latest/api/apply_updates.html). Differs: in place, in
/// the type of the average, computed in `f64`.
pub fn incremental_update<N, O>(new_tensors: &N, old_tensors: &mut O, step_size: f64) -> Result<()>
where
    N: Tree + ?Sized,
    O: TreeMut + ?Sized,
{
    let keep = 1.0 - step_size;
    combine("the new tensors do not fit the average", old_tensors, new_tensors, |old, new| step_size * new + keep * old)
}

/// Replaces old parameters by new ones every `update_period` steps, for a target network; returns whether it did.
///
/// # Arithmetic
///
/// ```text
/// old ← new     if steps is a multiple of update_period; else unchanged
/// ```
///
/// # Errors
///
/// Fails, with nothing changed, if `update_period` is 0, or the trees differ in structure.
///
/// # Example
///
/// ```
/// use gradchain::tree::periodic_update;
///
/// let (online, mut target) = (vec![1.0_f32, 2.0], vec![0.0_f32, 0.0]);
/// assert!(!periodic_update(&online, &mut target, 3, 2)?);
/// assert_eq!(target, [0.0, 0.0]);
/// assert!(periodic_update(&online, &mut target, 4, 2)?);
/// assert_eq!(target, [1.0, 2.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Mnih et al., [Playing Atari with deep reinforcement learning](https://arxiv.org/abs/1312.5602), 2013; Grill et al.,
/// [Bootstrap your own latent](https://arxiv.org/abs/2006.07733), 2020. Optax,
/// [`periodic_update`](https://optax.readthedocs.io/en/latest/api/apply_updates.html). Differs: in place.
pub fn periodic_update<N, O>(new_tensors: &N, old_tensors: &mut O, steps: u64, update_period: u64) -> Result<bool>
where
    N: Tree + ?Sized,
    O: TreeMut + ?Sized,
{
    const WHAT: &str = "the new tensors do not fit the old ones";
    if update_period == 0 {
        return Err(Error::argument("periodic_update", "update_period", "at least 1", 0));
    }
    same_shapes(WHAT, old_tensors, new_tensors)?;
    let due = steps.is_multiple_of(update_period);
    if due {
        combine(WHAT, old_tensors, new_tensors, |_, new| new)?;
    }
    Ok(due)
}

fn combine<X, Y>(what: &str, x: &mut X, y: &Y, f: impl Fn(f64, f64) -> f64) -> Result<()>
where
    X: TreeMut + ?Sized,
    Y: Tree + ?Sized,
{
    same_shapes(what, x, y)?;
    for (x, y) in leaves_mut(x).iter_mut().zip(&leaves(y)) {
        let mut others = RowMajorChunks::of(y);
        rewrite(x, |_, x| x.iter_mut().zip(others.next()).for_each(|(x, y)| *x = f(*x, *y)));
    }
    Ok(())
}
