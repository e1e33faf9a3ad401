//! 16-bit parameters under a master train as `f32`, bit for bit.

use gradchain::prelude::*;
use gradchain::state::{Entry, State, StateWalk};
use gradchain::tree::DynTree;
use gradchain::wrapper::master;

use super::{LeafPlan, Number, Order, noise, registry, same_state, tree};
use crate::common::extra_inputs::{Member, Registered};
use crate::common::subject::AnyState;
use crate::common::values;

/// Elementwise, with passes, on whole leaves, with noise, and around others.
const HELD: [&str; 7] = ["adamw", "lamb", "dog", "sm3", "add_noise", "lookahead", "lookahead_reset"];

/// Returns numbers that 16-bit floats hold; no step halves or doubles a parameter.
fn numbers(number: Number, seed: u64, shift: f64) -> DynTree {
    let leaf = |shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    tree(&[leaf(&[40]), leaf(&[3, 4]), leaf(&[])], |leaf, i| {
        let x = noise(seed, leaf, i);
        half::bf16::from_f64(x + if x < 0.0 { -shift } else { shift }).to_f64()
    })
}

/// Returns the masters, which are the parameters of `f32` training, and the inner state.
fn trained(entry: &Member, number: Number) -> Option<(Vec<Vec<f64>>, AnyState)> {
    let grads = (0..4).map(|t| numbers(number, 2 + t, 0.0));
    let mut params = numbers(number, 1, 64.0);
    if number == Number::F32 {
        let mut state = entry.init(&params).unwrap();
        for grads in grads {
            entry.step_with_inputs(&mut params, &grads, &mut state).unwrap();
        }
        return Some((values(&params).into_iter().map(|(_, x)| x).collect(), AnyState::of(&*state)));
    }
    let optimizer = master(entry.clone());
    let mut state = optimizer.init(&params).unwrap();
    for grads in grads {
        optimizer.step_with_inputs(&mut params, &grads, &mut state).unwrap();
        let rounded = state.master().leaves().map(|leaf| state.master().get::<f32>(leaf).unwrap().to_vec());
        // Without an update to the rounded master this does not apply.
        for ((_, leaf), master) in values(&params).iter().zip(rounded) {
            if leaf.iter().zip(master).any(|(p, m)| *p != half::bf16::from_f32(m).to_f64()) {
                return None;
            }
        }
    }
    let mut masters = Vec::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| {
        if let ("master", Entry::Moments(moments)) = (path, entry) {
            masters = (0..3).map(|leaf| moments.to_array(leaf).unwrap().into_iter().collect()).collect();
        }
    }));
    Some((masters, AnyState::of(state.inner())))
}

#[test]
fn a_master_copy_is_trained_as_f32_parameters_are() {
    for entry in registry().iter().filter(|entry| HELD.contains(&entry.name())) {
        let boxed = entry.boxed();
        let (single, Some(held)) = (trained(&boxed, Number::F32).unwrap(), trained(&boxed, Number::Bf16)) else {
            continue;
        };
        assert_eq!(single.0, held.0, "{}: the master", entry.name());
        assert!(same_state(&single.1, &held.1), "{}: the states differ", entry.name());
    }
}
