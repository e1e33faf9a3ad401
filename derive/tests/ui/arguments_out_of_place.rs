//! A state for gradients, and read-only trees for parameters.

use gradchain::prelude::*;
use gradchain::tree::Slices;

fn main() {
    let optimizer = params_ema(sgd(0.1), 0.9);
    let (mut params, grads) = (vec![1.0_f32], vec![1.0_f32]);
    let mut state = optimizer.init(&params).unwrap();

    // As Optax's `update`.
    optimizer.step(&mut params, &state, &grads);

    let mut evaluated = state.eval_params(&params).unwrap();
    optimizer.step(&mut evaluated, &grads, &mut state);

    let mut lent = Slices::new().with("w", &grads, &[1]).unwrap();
    optimizer.step(&mut lent, &grads, &mut state);

    // The function itself, and names in a chain.
    chain((clip_by_global_norm, sgd(0.1)));
    named_chain(("clip", clip(1.0)), ("sgd", sgd(0.1)));
}
