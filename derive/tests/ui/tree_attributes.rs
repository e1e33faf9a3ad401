//! Attributes that mean nothing where they stand.

use gradchain::Tree;

#[derive(Tree)]
struct Unknown {
    #[tree(frozen)]
    weight: f32,
}

#[derive(Tree)]
#[tree(skip)]
struct Misplaced {
    weight: f32,
}

#[derive(Tree)]
enum OnVariant {
    #[tree(read_only)]
    Dense(f32),
}

#[derive(Tree)]
struct Empty {
    #[tree]
    weight: f32,
}

#[derive(Tree)]
struct Assigned {
    #[tree = "skip"]
    weight: f32,
}

#[derive(Tree)]
struct Text {
    #[tree("skip")]
    weight: f32,
}

#[derive(Tree)]
struct NotSeparated {
    #[tree(skip rename = "w")]
    weight: f32,
}

#[derive(Tree)]
union Either {
    single: f32,
    double: f64,
}

fn main() {}
