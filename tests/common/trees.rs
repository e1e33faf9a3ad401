//! Random trees: shapes of up to six axes, empty and single elements, all dtypes mixed, all memory layouts.

use gradchain::tree::{DynElement, DynTree};
use ndarray::{Array, ArrayD, Axis, IxDyn, ShapeBuilder, Slice};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    C,
    Fortran,
    /// Every second element of a larger array.
    Strided,
    /// The last axis reversed.
    Negative,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    F32,
    F64,
    F16,
    Bf16,
}

#[derive(Clone, Debug)]
pub struct LeafPlan {
    pub number: Number,
    pub shape: Vec<usize>,
    pub order: Order,
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![0]),
        Just(vec![1]),
        Just(vec![3]),
        Just(vec![700]),
        Just(vec![2, 3]),
        Just(vec![5, 0]),
        Just(vec![4, 1, 5]),
        Just(vec![2, 1, 3, 1, 2, 2]),
    ]
}

fn number() -> impl Strategy<Value = Number> {
    if cfg!(feature = "half") {
        prop_oneof![Just(Number::F32), Just(Number::F64), Just(Number::F16), Just(Number::Bf16)].boxed()
    } else {
        prop_oneof![Just(Number::F32), Just(Number::F64)].boxed()
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::C), Just(Order::Fortran), Just(Order::Strided), Just(Order::Negative)]
}

pub fn plan() -> impl Strategy<Value = Vec<LeafPlan>> {
    let leaf = (number(), shape(), order()).prop_map(|(number, shape, order)| LeafPlan { number, shape, order });
    prop::collection::vec(leaf, 0..5)
}

/// Returns an array of `f(i)` in logical order.
fn array<T: DynElement>(shape: &[usize], order: Order, f: impl Fn(usize) -> f64) -> ArrayD<T> {
    let mut i = 0;
    let logical: ArrayD<T> = Array::from_shape_simple_fn(IxDyn(shape), || {
        i += 1;
        T::from_f64(f(i - 1))
    });
    let Some(last) = shape.len().checked_sub(1) else { return logical };
    match order {
        Order::C => logical,
        Order::Fortran => {
            let mut out: ArrayD<T> = Array::from_elem(IxDyn(shape).f(), T::default());
            out.assign(&logical);
            out
        }
        Order::Strided => {
            let mut wide: Vec<usize> = shape.into();
            wide[last] *= 2;
            let mut out: ArrayD<T> = Array::from_elem(IxDyn(&wide), T::from_f64(1e4));
            out.slice_axis_inplace(Axis(last), Slice::new(0, None, 2));
            out.assign(&logical);
            out
        }
        Order::Negative => {
            let mut out: ArrayD<T> = Array::from_elem(IxDyn(shape), T::default());
            out.invert_axis(Axis(last));
            out.assign(&logical);
            out
        }
    }
}

/// Returns a tree of values by leaf and element.
pub fn tree(plan: &[LeafPlan], f: impl Fn(usize, usize) -> f64) -> DynTree {
    let mut tree = DynTree::new();
    for (leaf, LeafPlan { number, shape, order }) in plan.iter().enumerate() {
        let name = format!("layer{}/p{leaf}", leaf % 2);
        match number {
            Number::F32 => tree.insert(name, array::<f32>(shape, *order, |i| f(leaf, i))),
            Number::F64 => tree.insert(name, array::<f64>(shape, *order, |i| f(leaf, i))),
            #[cfg(feature = "half")]
            Number::F16 => tree.insert(name, array::<half::f16>(shape, *order, |i| f(leaf, i))),
            #[cfg(feature = "half")]
            Number::Bf16 => tree.insert(name, array::<half::bf16>(shape, *order, |i| f(leaf, i))),
            #[cfg(not(feature = "half"))]
            _ => unreachable!("not drawn without the feature"),
        }
    }
    tree
}

/// Returns a tree of values by place and another tree's value.
pub fn map(plan: &[LeafPlan], source: &DynTree, f: impl Fn(usize, f64) -> f64) -> DynTree {
    let values = super::values(source);
    tree(plan, |leaf, i| {
        let path = format!("layer{}/p{leaf}", leaf % 2);
        let (_, leaf) = values.iter().find(|(p, _)| *p == path).expect("a leaf of the same path");
        f(i, leaf[i])
    })
}

/// Returns a number in (−1, 1) that depends only on its arguments.
pub fn noise(seed: u64, leaf: usize, i: usize) -> f64 {
    let mut x = seed ^ (leaf as u64) << 40 ^ i as u64;
    for _ in 0..3 {
        x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Parameters and gradients of one structure, each in its own layout.
#[derive(Clone, Debug)]
pub struct Problem {
    pub plan: Vec<LeafPlan>,
    pub params: DynTree,
    pub grads: Vec<DynTree>,
}

pub fn problem(steps: usize) -> impl Strategy<Value = Problem> {
    (plan(), any::<u64>(), prop::collection::vec(order(), 5)).prop_map(move |(plan, seed, orders)| {
        let params = tree(&plan, |leaf, i| noise(seed, leaf, i));
        let mut other = plan.clone();
        other.iter_mut().zip(orders).for_each(|(leaf, order)| leaf.order = order);
        let step = |t: usize| tree(&other, |leaf, i| noise(seed ^ (t as u64 + 1) << 20, leaf, i));
        Problem { params, grads: (0..steps).map(step).collect(), plan }
    })
}
