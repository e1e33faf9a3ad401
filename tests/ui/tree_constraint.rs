//! Constraints that mean nothing, or are none.

use gradchain::Tree;
use gradchain::constraint::{interval, positive};

#[derive(Tree)]
struct Twice {
    #[tree(constraint = positive(), constraint = interval(0.0, 1.0))]
    scale: f32,
}

#[derive(Tree)]
struct Skipped {
    #[tree(skip, constraint = positive())]
    scale: f32,
}

#[derive(Tree)]
struct None {
    #[tree(constraint = 1.0)]
    scale: f32,
}

#[derive(Tree)]
enum OnVariant {
    #[tree(constraint = positive())]
    Scaled(f32),
}

fn main() {}
