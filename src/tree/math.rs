//! Arithmetic on whole trees.

use super::leaf::LeafParts;
use super::{Cursor, LeafMut, Structure, Tree, TreeMut, Walk, WalkMut};
use crate::element::{DType, Element, with_dtype};
use crate::error::{Error, Result};
use crate::memory::RawStrided;

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
    let mut given: Vec<LeafParts> = Vec::with_capacity(structure.len());
    updates.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| given.push(leaf.parts)));
    let mut given = given.iter();
    params.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |_, leaf| {
        if let Some(update) = given.next() {
            add_leaf(&leaf, update);
        }
    }));
    Ok(())
}

/// `p + u`, except that a zero update leaves the parameter's bits: adding −0 changes no number, adding +0 changes −0.
#[inline(always)]
pub(crate) fn add_update<C: crate::element::Real>(p: C, u: C) -> C {
    // A choice between two updates, not between two sums: the latter is compiled to a conditional store.
    p + if u == C::zero() { C::neg_zero() } else { u }
}

fn add_leaf(params: &LeafMut<'_>, updates: &LeafParts) {
    let (p, u) = (&params.parts, updates);
    with_dtype!(p.data.dtype(), P => with_dtype!(u.data.dtype(), U => {
        let wide = P::DTYPE == DType::F64 || U::DTYPE == DType::F64;
        let mut values = Vec::with_capacity(u.data.len());
        read::<U>(u, &p.shape, |x| values.push(x));
        let mut values = values.into_iter();
        let view = RawStrided { first: p.data, strides: &p.strides };
        let order = super::dense_strides(&p.shape);
        for run in Cursor::new(&p.shape, &order, &p.strides, 0).take(p.data.len()) {
            let mut old = Vec::with_capacity(run.len);
            // SAFETY: the parameters are borrowed exclusively, and the cursor stays inside the leaf's shape.
            #[allow(unsafe_code, reason = "strided memory; see `memory`")]
            unsafe {
                view.read::<P>(run, |x| old.push(x));
                let mut sums = old.into_iter().zip(&mut values).map(|(p, u)| {
                    if wide {
                        P::from_f64(add_update(p.to_f64(), u.to_f64()))
                    } else {
                        // Both are at most 24 bits wide, so the sum in f64 is rounded as if it were taken in f32.
                        P::from_f64(f64::from(add_update(p.to_f64() as f32, u.to_f64() as f32)))
                    }
                });
                view.write::<P>(run, || sums.next().unwrap_or_default());
            }
        }
    }));
}

fn read<T: Element>(leaf: &LeafParts, shape: &[usize], mut each: impl FnMut(T)) {
    let view = RawStrided { first: leaf.data, strides: &leaf.strides };
    for run in Cursor::new(shape, &super::dense_strides(shape), &leaf.strides, 0).take(leaf.data.len()) {
        // SAFETY: the leaf is borrowed, and the cursor stays inside its shape.
        #[allow(unsafe_code, reason = "strided memory; see `memory`")]
        unsafe {
            view.read::<T>(run, &mut each);
        }
    }
}

/// The Euclidean norm of all leaves together, summed in `f64`.
///
/// # Example
///
/// ```
/// use gradchain::tree::tree_norm;
/// assert_eq!(tree_norm(&(3.0_f32, vec![4.0_f64])), 5.0);
/// ```
pub fn tree_norm<T: Tree + ?Sized>(tree: &T) -> f64 {
    let mut sum = 0.0;
    tree.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| {
        sum += leaf.to_f64().iter().map(|x| x * x).sum::<f64>();
    }));
    sum.sqrt()
}
