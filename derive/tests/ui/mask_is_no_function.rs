use gradchain::prelude::*;

fn main() {
    // A function where a mask is asked for.
    let optimizer = adamw(1e-3).mask(|leaf| leaf.ndim() > 1);

    // Gradients of another type.
    let optimizer = sgd(0.1);
    let mut params = vec![1.0_f32];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![1_i32], &mut state).unwrap();
}
