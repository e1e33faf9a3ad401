//! Arithmetic on whole trees.

mod average;
mod buffers;
mod combine;
pub(crate) mod fingerprint;
pub(crate) mod norm;
mod per_example;
pub(crate) mod row_major;
mod vdot;

pub use average::{average_params, average_params_with};
pub(crate) use average::{shares, weighted_mean};
pub use buffers::BufferPolicy;
pub(crate) use buffers::{bytes_of, mean_of_buffer, write_buffers};
pub use combine::{
    incremental_update, periodic_update, tree_add_scaled, tree_assign, tree_fill, tree_map, tree_scale, tree_zeros_like,
};
pub use norm::{Norm, tree_norm, tree_sum};
pub(crate) use norm::{SMALL, is_safe, length};
pub use per_example::{per_example_global_norm_clip, per_example_layer_norm_clip};
pub(crate) use vdot::same_shapes;
pub use vdot::tree_vdot;

use core::slice;

use super::{Cursor, LeafMut, LeafRef, Structure, Tree, TreeMut, Walk, WalkMut, is_dense};
use crate::element::{DType, Element, Real, with_dtype};
use crate::error::{Error, Result};
use crate::layout::{Run, matching_strides};

/// Adds updates to parameters, leaf by leaf.
///
/// [`step`](crate::GradientTransformation::step) does the same in the loop that computes the updates; the results are
/// bitwise identical.
///
/// ```text
/// p ← p + u     where u is not zero; a zero update leaves the parameter's bits (−0 stays −0)
/// ```
///
/// The sum is computed in the wider of the two types (in `f32` for 16-bit leaves) and rounded to the parameter's.
///
/// # Errors
///
/// Fails, with nothing changed, if the trees differ in structure. Updates may be of another float type.
///
/// # Panics
///
/// Panics if a hand-written tree shows other leaves on its second walk than on its first.
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
    // The code below goes by address and trusts the shapes, so they are checked before any write.
    let same = changed.iter().map(LeafMut::shape).eq(given.iter().map(LeafRef::shape));
    assert!(same, "each walk over a tree must visit the same leaves");
    changed.iter_mut().zip(&given).for_each(|(params, updates)| add_leaf(params, updates));
    Ok(())
}

/// Returns `p + u`, but keeps the parameter's bits for a zero update: adding −0 changes no number, +0 changes −0.
#[inline(always)]
pub(crate) fn add_update<C: Real>(p: C, u: C) -> C {
    // Selects between updates: a select between sums would compile to a masked store.
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

/// Adds in `f64` if either number is, else in `f32`.
#[inline(always)]
fn add_mixed<P: Element, U: Element>(p: P, u: U) -> P {
    if P::DTYPE == DType::F64 || U::DTYPE == DType::F64 {
        P::from_f64(add_update(p.as_f64(), u.as_f64()))
    } else {
        // Rounds once in `f32` and once to the parameter's dtype, as for two values of that dtype.
        P::from_f64(f64::from(add_update(p.as_f64() as f32, u.as_f64() as f32)))
    }
}

/// Computes `p ← f(p, u)` for each element, in the parameter's memory order.
#[allow(unsafe_code, reason = "elements by the strides of their leaves; see `memory`")]
fn combine<P: Element, U: Element>(params: &mut LeafMut<'_>, updates: &LeafRef<'_>, f: impl Fn(P, U) -> P) {
    let (p, u) = (&params.parts, &updates.parts);
    assert_eq!(p.shape, u.shape, "both leaves are walked by the shape of one");
    let (to, from) = (p.view(), u.view());
    each_run(&p.shape, [&p.strides, &u.strides], p.data.len(), &mut |[to_run, from_run]| {
        let (to, from, len) = (to.pointer::<P>(to_run), from.pointer::<U>(from_run), to_run.len.min(from_run.len));
        // SAFETY: the parameters are borrowed exclusively and the updates shared, and both runs lie inside their arrays
        // by `pointer`.
        unsafe {
            if to_run.stride == 1 && from_run.stride == 1 {
                let (p, u) = (slice::from_raw_parts_mut(to, len), slice::from_raw_parts(from, len));
                return p.iter_mut().zip(u).for_each(|(p, u)| *p = f(*p, *u));
            }
            for i in 0..len as isize {
                let p = to.offset(i * to_run.stride);
                *p = f(*p, *from.offset(i * from_run.stride));
            }
        }
    });
}

/// Visits the runs of two leaves, in the memory order of the first. Not in `combine`, which is compiled per pair of
/// types.
fn each_run(shape: &[usize], strides: [&[isize]; 2], len: usize, run: &mut dyn FnMut([Run; 2])) {
    let order = matching_strides(shape, strides[0]);
    if strides.iter().all(|strides| is_dense(shape, strides, &order)) {
        return run([Run { offset: 0, len, stride: 1 }; 2]);
    }
    // Runs end at the same elements of the shape, so they have equal lengths.
    let [mut to, mut from] = strides.map(|strides| Cursor::new(shape, &order, strides, 0));
    to.take(len).zip(from.take(len)).for_each(|(to, from)| run([to, from]));
}

/// Calls `show` with every leaf of a tree and its path, in order: to print, to compare, to save.
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
