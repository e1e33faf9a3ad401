//! Constraints that mean nothing, or are none.

use gradchain::Tree;

#[derive(Tree)]
struct Twice {
    #[tree(constraint = (), constraint = ())]
    scale: f32,
}

#[derive(Tree)]
struct Skipped {
    #[tree(skip, constraint = ())]
    scale: f32,
}

#[derive(Tree)]
struct None {
    #[tree(constraint = 1.0)]
    scale: f32,
}

#[derive(Tree)]
enum OnVariant {
    #[tree(constraint = ())]
    Scaled(f32),
}

fn main() {}
