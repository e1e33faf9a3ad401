//! A read-only tree cannot be written; a tree that is to be written holds no shared views.

use gradchain::{Tree, apply_updates};
use ndarray::ArrayView1;

#[derive(Tree)]
#[tree(read_only)]
struct Gradients<'a> {
    weight: ArrayView1<'a, f32>,
}

#[derive(Tree)]
struct Params<'a> {
    weight: ArrayView1<'a, f32>,
}

fn add(mut params: Gradients<'_>) {
    let _ = apply_updates(&mut params, &1.0_f32);
}

fn main() {}
