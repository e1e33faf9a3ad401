//! Arithmetic on whole trees.

mod average;
mod combine;
mod fingerprint;
mod norm;
mod per_example;
pub(crate) mod stretch;
mod vdot;

pub use average::average_params;
pub(crate) use average::{shares, weighted_mean};
pub use combine::{
    incremental_update, periodic_update, tree_add_scaled, tree_assign, tree_fill, tree_map, tree_scale, tree_zeros_like,
};
pub(crate) use fingerprint::fingerprint;
pub(crate) use norm::is_safe;
pub use norm::{Norm, tree_norm, tree_sum};
pub use per_example::{per_example_global_norm_clip, per_example_layer_norm_clip};
pub(crate) use vdot::same_shapes;
pub use vdot::tree_vdot;

use super::{Cursor, LeafMut, LeafRef, Structure, Tree, TreeMut, Walk, WalkMut, is_dense};
use crate::element::{DType, Element, Real, with_dtype};
use crate::error::{Error, Result};
use crate::layout::matching_strides;

/// Adds updates to parameters, leaf by leaf: what [`step`](crate::GradientTransformation::step) does in the same
/// registers as the update itself, with the same bits.
///
/// ```text
/// p ← p + u     where u is not zero; a zero update leaves the parameter's bits (−0 stays −0)
/// ```
///
/// The sum is taken in the wider of the two types (in `f32` for 16-bit leaves) and rounded to the parameter's.
///
/// # Errors
///
/// If the trees differ in structure; then nothing is changed. Updates may be of another float type.
///
/// # Panics
///
/// If a tree written by hand shows other leaves on its second walk than on its first.
///
/// # Example
///
/// ```
/// use gradchain::apply_updates;
/// use ndarray::array;
///
/// let mut params = (array![1.0_f32, 2.0], 3.0_f64);
/// apply_updates(&mut params, &(array![0.5_f32, -0.5], 1.0_f64))?;
/// assert_eq!(params, (array![1.5, 1.5], 4.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn apply_updates<P, U>(params: &mut P, updates: &U) -> Result<()>
where
    P: TreeMut + ?Sized,
    U: Tree + ?Sized,
{
    let structure = Structure::of(params)?;
    let differences = structure.compare(&Structure::of(updates)?, |_, _| true);
    if !differences.is_empty() {
        return Err(Error::structure("the updates do not fit the parameters", differences));
    }
    let (mut given, mut changed) = (Vec::with_capacity(structure.len()), Vec::with_capacity(structure.len()));
    updates.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| given.push(leaf)));
    params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |_, leaf| changed.push(leaf)));
    // What follows goes by address and trusts the shapes, so they are looked at once more, before anything is written.
    let same = changed.iter().map(LeafMut::shape).eq(given.iter().map(LeafRef::shape));
    assert!(same, "each walk over a tree must show the same leaves");
    changed.iter_mut().zip(&given).for_each(|(params, updates)| add_leaf(params, updates));
    Ok(())
}

/// `p + u`, except that a zero update leaves the parameter's bits: adding −0 changes no number, adding +0 changes −0.
#[inline(always)]
pub(crate) fn add_update<C: Real>(p: C, u: C) -> C {
    // A choice between two updates, not between two sums: the latter is compiled to a conditional store.
    p + if u == C::zero() { C::neg_zero() } else { u }
}

fn add_leaf(params: &mut LeafMut<'_>, updates: &LeafRef<'_>) {
    if params.dtype() == updates.dtype() {
        with_dtype!(params.dtype(), T => {
            combine(params, updates, |p: T, u: T| T::narrow(add_update(p.widen(), u.widen())));
        });
    } else {
        with_dtype!(params.dtype(), P => with_dtype!(updates.dtype(), U => combine(params, updates, add_mixed::<P, U>)));
    }
}

/// The sum of two types, in `f64` if either is, else in `f32`.
#[inline(always)]
fn add_mixed<P: Element, U: Element>(p: P, u: U) -> P {
    if P::DTYPE == DType::F64 || U::DTYPE == DType::F64 {
        P::from_f64(add_update(p.as_f64(), u.as_f64()))
    } else {
        // The sum in `f32` is rounded once here and once to the parameter's type, as where both are of that type.
        P::from_f64(f64::from(add_update(p.as_f64() as f32, u.as_f64() as f32)))
    }
}

/// `p ← f(p, u)` for each element, in the parameter's memory order.
fn combine<P: Element, U: Element>(params: &mut LeafMut<'_>, updates: &LeafRef<'_>, f: impl Fn(P, U) -> P) {
    let (p, u) = (&params.parts, &updates.parts);
    assert_eq!(p.shape, u.shape, "both leaves are walked by the shape of one");
    let (shape, len, order) = (&p.shape, p.data.len(), matching_strides(&p.shape, &p.strides));
    if is_dense(shape, &p.strides, &order) && is_dense(shape, &u.strides, &order) {
        // SAFETY: the parameters are borrowed exclusively and the updates shared, and neither has gaps.
        #[allow(unsafe_code, reason = "back to the slices that the leaves were made from")]
        let (p, u) = unsafe { (p.data.slice_mut::<P>(0, len), u.data.slice::<U>(0, len)) };
        p.iter_mut().zip(u).for_each(|(p, u)| *p = f(*p, *u));
        return;
    }
    let (to, from) = (p.data.pointer::<P>(), u.data.pointer::<U>());
    let mut runs = Cursor::new(shape, &order, &u.strides, 0);
    // Runs end where the shape says, so those of both leaves have the same lengths.
    for (to_run, from_run) in Cursor::new(shape, &order, &p.strides, 0).take(len).zip(runs.take(len)) {
        for i in 0..to_run.len as isize {
            // SAFETY: as above; the cursors stay inside the shape, which the leaves share.
            #[allow(unsafe_code, reason = "strided memory; see `memory`")]
            unsafe {
                let p = to.offset(to_run.offset + i * to_run.stride);
                *p = f(*p, *from.offset(from_run.offset + i * from_run.stride));
            }
        }
    }
}

/// Shows every leaf of a tree with its path, in order: to print, to compare, to save.
///
/// ```
/// use gradchain::tree::for_each_leaf;
///
/// let mut seen = Vec::new();
/// for_each_leaf(&(1.0_f32, vec![2.0_f64, 3.0]), |path, leaf| seen.push((path.to_string(), leaf.to_f64())));
/// assert_eq!(seen, [("0".into(), vec![1.0]), ("1".into(), vec![2.0, 3.0])]);
/// ```
pub fn for_each_leaf<'a, T: Tree + ?Sized>(tree: &'a T, mut show: impl FnMut(&str, LeafRef<'a>)) {
    tree.walk(&mut Walk::new(&mut String::new(), &mut show));
}
