//! Loaded state equals the saved bit for bit; a misfit or damage is refused, and changes nothing.

mod absent;
mod bad_loads;
mod buffers;
mod continued;
pub(crate) mod damage;
mod fixtures;
mod folders;
mod import;
mod models;
mod refusals;
mod round_trips;

use std::io::Cursor;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain::tree::{DynTree, TreeMut};
use gradchain::{GradientTransformation, Tree};
use ndarray::{Array1, Array2, array};

#[derive(Clone, Debug, PartialEq, Tree)]
struct Model {
    weight: Array2<f32>,
    bias: Array1<f64>,
}

fn model() -> Model {
    Model { weight: array![[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]], bias: array![0.1, 0.2] }
}

fn gradient(seed: f32) -> Model {
    let model = model();
    Model { weight: model.weight.mapv(|w| w * seed - 0.5), bias: model.bias.mapv(|b| b + f64::from(seed)) }
}

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    chain((clip_by_global_norm(1.0), adamw(0.1).weight_decay(0.01).mask(Mask::path("weight"))))
}

fn bytes<T: GradientTransformation, P: Tree + ?Sized>(save: &Save<'_, T, P>) -> Vec<u8> {
    let mut to = Cursor::new(Vec::new());
    save.to_writer(&mut to).unwrap();
    to.into_inner()
}

fn file<T: GradientTransformation, P: Tree + ?Sized>(
    transformation: &T,
    state: &OptState<T>,
    params: &P,
) -> Checkpoint {
    Checkpoint::from_bytes(bytes(&Save::new(transformation, state).params(params))).unwrap()
}

fn trained<T: GradientTransformation<Needs = Nothing>>(transformation: &T, steps: usize) -> (Model, OptState<T>) {
    let mut params = model();
    let mut state = transformation.init(&params).unwrap();
    for t in 0..steps {
        transformation.step(&mut params, &gradient(t as f32), &mut state).unwrap();
    }
    (params, state)
}

fn dyn_tree(leaves: &[(&str, &[f32])]) -> DynTree {
    let mut tree = DynTree::new();
    for (path, values) in leaves {
        tree.insert(*path, Array1::from(values.to_vec()));
    }
    tree
}
