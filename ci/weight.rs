//! A user's first program, for `ci/weight`.
use gradchain::prelude::*;
use ndarray::{Array1, Array2, array};

#[derive(Tree)]
struct Layer {
    weight: Array2<f32>,
    bias: Array1<f32>,
}

fn main() -> Result<(), gradchain::Error> {
    let mut layer = Layer { weight: array![[1.0, -1.0]], bias: array![0.0, 0.0] };
    let optimizer = chain((
        clip_by_global_norm(1.0),
        adamw(warmup_cosine_decay(0.0, 3e-3, 100, 2_000).end_value(1e-5)).weight_decay(1e-2).mask(Mask::path("**/weight")),
    ));
    let mut state = optimizer.init(&layer)?;
    for _ in 0..10 {
        let gradients = Layer { weight: array![[0.5, -2.0]], bias: array![0.1, 0.0] };
        optimizer.step(&mut layer, &gradients, &mut state)?;
    }
    assert!(layer.weight[[0, 0]] < 1.0);
    Ok(())
}
