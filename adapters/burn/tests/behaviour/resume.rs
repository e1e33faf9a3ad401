//! An interrupted and resumed run is bitwise identical to an uninterrupted one.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain_burn::{init, params, params_mut, step};

use crate::{Mlp, device, values};

#[test]
fn by_a_checkpoint_of_ours() {
    let optimizer = multi_steps(chain((clip_by_global_norm(1.0), adamw(1e-2).mask(Mask::path("**/weight")))), 2);
    let mut mlp = Mlp::new(&device());
    let mut same = mlp.clone();
    let (mut state, mut same_state) = (init(&optimizer, &mlp).unwrap(), init(&optimizer, &same).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.safetensors");
    for number in 0..9 {
        if number == 5 {
            Save::new(&optimizer, &state).params(&params(&mlp).unwrap()).to_file(&file).unwrap();
            // Another process's values and ids.
            mlp = Mlp::new(&device());
            assert_ne!(values(&mlp), values(&same));
            state = Checkpoint::open(&file).unwrap().load(&optimizer, &mut params_mut(&mut mlp).unwrap()).unwrap();
        }
        let grads = mlp.gradients(number);
        step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
        let grads = same.gradients(number);
        step(&optimizer, &mut same, &grads, &mut same_state).unwrap();
    }
    assert_eq!(values(&mlp), values(&same));
}

#[test]
fn the_model_by_a_record_of_burns_and_the_state_by_a_checkpoint() {
    let optimizer = adamw(1e-2);
    let mut mlp = Mlp::new(&device());
    let mut state = init(&optimizer, &mlp).unwrap();
    let grads = mlp.gradients(0);
    step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
    let mut bytes = std::io::Cursor::new(Vec::new());
    Save::new(&optimizer, &state).to_writer(&mut bytes).unwrap();
    let record = mlp.clone().into_record();

    let mut again = Mlp::new(&device()).load_record(record);
    let checkpoint = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
    let mut again_state = checkpoint.load_state(&optimizer, &params(&again).unwrap()).unwrap();
    for number in 1..4 {
        let grads = mlp.gradients(number);
        step(&optimizer, &mut mlp, &grads, &mut state).unwrap();
        let grads = again.gradients(number);
        step(&optimizer, &mut again, &grads, &mut again_state).unwrap();
    }
    assert_eq!(values(&mlp), values(&again));
}

#[test]
fn a_checkpoint_of_another_model_changes_nothing() {
    let optimizer = sgd(0.1).momentum(0.5);
    let mlp = Mlp::new(&device());
    let mut bytes = std::io::Cursor::new(Vec::new());
    let state = init(&optimizer, &mlp.fc1).unwrap();
    Save::new(&optimizer, &state).params(&params(&mlp.fc1).unwrap()).to_writer(&mut bytes).unwrap();
    let mut other = Param::from_tensor(Tensor::<1>::ones([2], &device()));
    let checkpoint = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
    let error = checkpoint.load(&optimizer, &mut params_mut(&mut other).unwrap()).unwrap_err();
    assert!(error.to_string().contains("weight"), "{error}");
    assert_eq!(values(&other), [[1.0, 1.0]]);
}
