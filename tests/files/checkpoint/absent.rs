//! Runs with absent gradients are saved and resumed.

use gradchain::state::same_bits;
use gradchain::transform::scale_by_stable_adam;
use gradchain::wrapper::skip_absent;

use super::*;

#[derive(Tree)]
struct Gradients {
    weight: Option<Array2<f32>>,
    bias: Option<Array1<f64>>,
}

/// Returns the weights' gradients from the third step on, the bias's before and in every second step after.
fn gradients(step: usize) -> Gradients {
    let Model { weight, bias } = gradient(step as f32);
    Gradients { weight: (step > 1).then_some(weight), bias: (step <= 1 || step.is_multiple_of(2)).then_some(bias) }
}

#[test]
fn the_resumed_run_is_the_uninterrupted_one() {
    let optimizer = skip_absent(chain((clip_by_global_norm(1.0), scale_by_stable_adam(), adamw(0.1))));
    let mut straight = model();
    let mut state = optimizer.init(&straight).unwrap();
    let mut saved = Vec::new();
    for step in 0..7 {
        saved.push(bytes(&Save::new(&optimizer, &state).params(&straight)));
        optimizer.step(&mut straight, &gradients(step), &mut state).unwrap();
    }
    for (cut, bytes) in saved.into_iter().enumerate() {
        let mut params = Model { weight: Array2::zeros((2, 3)), bias: Array1::zeros(2) };
        let file = Checkpoint::from_bytes(bytes).unwrap();
        let mut resumed = file.load(&optimizer, &mut params).unwrap();
        for step in cut..7 {
            optimizer.step(&mut params, &gradients(step), &mut resumed).unwrap();
        }
        assert_eq!(params, straight, "cut before step {cut}");
        assert!(same_bits(&*resumed, &*state), "cut before step {cut}");
    }
}

/// A skipping optimizer keeps other counts.
#[test]
fn it_is_another_optimizer() {
    let (plain, skipping) = (adamw(0.1), skip_absent(adamw(0.1)));
    let (params, state) = trained(&skipping, 2);
    let file = file(&skipping, &state, &params);
    let mut into = model();
    let error = file.load(&plain, &mut into).unwrap_err().to_string();
    assert!(error.contains("skip_absent") && into == model(), "{error}");
}
