//! Names that would make paths ambiguous.

use gradchain::Tree;

#[derive(Tree)]
struct Slash {
    #[tree(rename = "dense/w")]
    weight: f32,
}

#[derive(Tree)]
struct Empty {
    #[tree(rename = "")]
    weight: f32,
}

#[derive(Tree)]
struct Taken {
    weight: f32,
    #[tree(rename = "weight")]
    bias: f32,
}

#[derive(Tree)]
struct TakenByNumber(f32, #[tree(rename = "0")] f32);

#[derive(Tree)]
enum TakenByVariant {
    #[tree(rename = "Norm")]
    Dense(f32),
    Norm(f32),
}

#[derive(Tree)]
struct NoText {
    #[tree(rename = 3)]
    weight: f32,
}

#[derive(Tree)]
struct NoName {
    #[tree(rename)]
    weight: f32,
}

#[derive(Tree)]
struct Escaped {
    #[tree(rename = "\n")]
    weight: f32,
}

#[derive(Tree)]
struct Twice {
    #[tree(rename = "w", rename = "v")]
    weight: f32,
}

#[derive(Tree)]
struct Skipped {
    #[tree(skip, rename = "w")]
    weight: f32,
}

fn main() {}
