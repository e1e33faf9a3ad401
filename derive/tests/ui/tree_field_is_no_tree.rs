//! Every field of a tree is a tree, or skipped.

use gradchain::Tree;

#[derive(Tree)]
struct Model {
    weight: Vec<f32>,
    activation: fn(f32) -> f32,
}

#[derive(Tree)]
struct Generic<T> {
    inner: T,
}

struct NoTree;

fn main() {
    let _ = gradchain::tree::tree_norm(&Generic { inner: NoTree });
}
