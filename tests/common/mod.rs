//! Shared by the laws: random trees, the registry of transformations, bitwise comparison.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test program uses a part of it")]

pub mod chunk;
pub mod extra_inputs;
pub mod registry;
pub mod subject;
pub mod trees;
pub mod wrapped;

use gradchain::tree::DynTree;
use gradchain::{OptState, Tree};

use self::extra_inputs::Registered;

/// Returns the path and the values of each leaf, in logical order.
pub fn values<T: Tree + ?Sized>(tree: &T) -> Vec<(String, Vec<f64>)> {
    let mut out = Vec::new();
    gradchain::tree::for_each_leaf(tree, |path, leaf| out.push((path.to_owned(), leaf.to_f64())));
    out
}

/// Compares two trees bit for bit.
///
/// NaNs are equal whatever their payload, since the compiler chooses the operand whose payload survives.
pub fn same_values<A: Tree + ?Sized, B: Tree + ?Sized>(a: &A, b: &B) -> Result<(), String> {
    let (a, b) = (values(a), values(b));
    if a.len() != b.len() {
        return Err(format!("{} and {} leaves", a.len(), b.len()));
    }
    for ((path, a), (_, b)) in a.iter().zip(&b) {
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            if x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()) {
                return Err(format!("{path}[{i}]: {x:e} and {y:e}"));
            }
        }
    }
    Ok(())
}

pub fn close<A: Tree + ?Sized, B: Tree + ?Sized>(a: &A, b: &B, tolerance: f64) -> Result<(), String> {
    for ((path, a), (_, b)) in values(a).iter().zip(&values(b)) {
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            if (x - y).abs() > tolerance * (1.0 + x.abs().max(y.abs())) {
                return Err(format!("{path}[{i}]: {x:e} and {y:e}"));
            }
        }
    }
    Ok(())
}

pub struct StateAfter<S> {
    pub params: DynTree,
    pub state: S,
}

pub fn run<T: Registered>(t: &T, params: &DynTree, grads: &[DynTree]) -> StateAfter<OptState<T>> {
    let mut params = params.clone();
    let mut state = t.init(&params).expect("a registered transformation fits every tree");
    for grads in grads {
        t.step_with_inputs(&mut params, grads, &mut state).expect("gradients of the parameters' structure");
    }
    StateAfter { params, state }
}
