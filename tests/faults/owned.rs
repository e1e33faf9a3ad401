//! Gradients by value: their arrays hold the updates, without more memory.

use gradchain::optimizer::polyak_sgd;
use gradchain::state::same_bits;
use gradchain::transform::trace;
use gradchain::tree::DynTree;
use gradchain::{extra, needs};
use ndarray::{Axis, ShapeBuilder, Slice};

use super::edges::{optimizers, trees};
use super::*;

#[test]
fn the_arrays_of_the_gradients_hold_the_updates() {
    let optimizer = chain((clip_by_global_norm(1.0), adamw(0.1)));
    let params = model();
    let mut state = optimizer.init(&params).unwrap();
    let grads = gradient(&params, 1);
    let places = (grads.weight.as_ptr(), grads.bias.as_ptr());
    let (updates, outcome) = optimizer.update_owned(grads, &mut state, &params).unwrap();
    assert!(outcome.emitted());
    assert_eq!(places, (updates.weight.as_ptr(), updates.bias.as_ptr()));
    let mut lent = gradient(&params, 2);
    let place = lent.weight.as_ptr();
    optimizer.update_owned(&mut lent, &mut state, &params).unwrap();
    assert_eq!(place, lent.weight.as_ptr());
}

/// For complete and incomplete windows, waiting stages, and leaves of every shape.
#[test]
fn the_bits_are_those_of_update() {
    for (name, optimizer) in optimizers() {
        for (number, mut params) in trees(&|_, i| noise(i as u64)).into_iter().enumerate() {
            let Ok(mut state) = optimizer.init(&params) else { continue };
            let mut of_owned = state.clone();
            for step in 0..6 {
                let grads = trees(&|_, i| noise(step << 10 ^ i as u64)).swap_remove(number);
                let expected = optimizer.update(&grads, &mut state, &params).unwrap();
                let (updates, outcome) = optimizer.update_owned(grads, &mut of_owned, &params).unwrap();
                assert!(bits_of(&updates) == bits_of(&expected), "{name}, tree {number}, step {step}");
                assert_eq!(outcome, expected.outcome(), "{name}, tree {number}, step {step}");
                assert!(same_bits(&*state, &*of_owned), "{name}, tree {number}, step {step}");
                apply_updates(&mut params, &updates).unwrap();
            }
        }
    }
}

/// Gaps stay untouched.
#[test]
fn gradients_of_any_layout_are_overwritten_in_place() {
    let optimizer = adam(0.1);
    let params = model();
    let dense = gradient(&params, 1);
    let mut state = optimizer.init(&params).unwrap();
    let expected = optimizer.update(&dense, &mut state, &params).unwrap();

    let mut wide = Array2::<f32>::from_elem((60, 200), 7.0);
    wide.slice_axis_mut(Axis(1), Slice::new(0, None, 2)).assign(&dense.weight);
    let mut backwards = dense.bias.clone();
    backwards.invert_axis(Axis(0));
    backwards.assign(&dense.bias);
    let mut state = optimizer.init(&params).unwrap();
    {
        #[derive(Tree)]
        struct Views<'a> {
            weight: ndarray::ArrayViewMut2<'a, f32>,
            bias: &'a mut Array1<f64>,
        }
        let weight = wide.slice_axis_mut(Axis(1), Slice::new(0, None, 2));
        optimizer.update_owned(Views { weight, bias: &mut backwards }, &mut state, &params).unwrap();
    }
    let strided = Model { weight: wide.slice_axis(Axis(1), Slice::new(0, None, 2)).to_owned(), bias: backwards };
    assert!(bits_of(&strided) == bits_of(&expected));
    assert!(
        wide.slice_axis(Axis(1), Slice::new(1, None, 2)).iter().all(|x| *x == 7.0),
        "what lies between is as it was"
    );

    let mut columns = Array2::zeros((60, 100).f());
    columns.assign(&dense.weight);
    let columns = Model { weight: columns, bias: dense.bias };
    let mut state = optimizer.init(&params).unwrap();
    let (updates, _) = optimizer.update_owned(columns, &mut state, &params).unwrap();
    assert!(bits_of(&updates) == bits_of(&expected));
}

/// As by `update`.
#[cfg(feature = "half")]
#[test]
fn sixteen_bit_gradients_hold_updates_of_sixteen_bits() {
    use half::{bf16, f16};

    let leaves = |seed: u64| {
        let bf16s = Array1::from_shape_fn(700, |i| bf16::from_f64(noise(seed ^ i as u64)));
        let mut f16s = Array1::from_shape_fn(30, |i| f16::from_f64(noise(seed ^ i as u64)));
        f16s.invert_axis(Axis(0));
        (bf16s, f16s)
    };
    let optimizer = chain((clip_by_global_norm(1.0), adamw(0.1)));
    let params = leaves(1 << 20);
    let mut state = optimizer.init(&params).unwrap();
    let mut of_owned = state.clone();
    for step in 2..5 {
        let expected = optimizer.update(&leaves(step << 20), &mut state, &params).unwrap();
        let (updates, _) = optimizer.update_owned(leaves(step << 20), &mut of_owned, &params).unwrap();
        assert!(bits_of(&updates) == bits_of(&expected) && same_bits(&*state, &*of_owned), "step {step}");
    }
}

#[cfg(feature = "rayon")]
#[test]
fn threads_are_bitwise_identical() {
    let params = Array1::from_shape_fn(200_000, |i| noise(i as u64) as f32);
    let optimizer = chain((scale_by_adam(), clip_by_global_norm(1.0), trace(0.9)));
    let run = |threads| {
        let work = || {
            let mut state = optimizer.init(&params).unwrap();
            let first = optimizer.update_owned(params.mapv(|p| p * 2.0), &mut state, &params).unwrap().0;
            (optimizer.update_owned(first, &mut state, &params).unwrap().0, state)
        };
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    };
    let (one, of_one) = run(1);
    let (four, of_four) = run(4);
    assert!(bits_of(&one) == bits_of(&four) && same_bits(&*of_one, &*of_four));
}

#[test]
fn mismatched_gradients_are_unchanged() {
    let optimizer = adam(0.1);
    let params = vec![1.0_f32, 2.0];
    let mut state = optimizer.init(&params).unwrap();
    let copy = state.clone();
    let mut wide = vec![1.0_f64, 2.0];
    let error = optimizer.update_owned(&mut wide, &mut state, &params).unwrap_err();
    let said = "the gradients do not fit the parameters that the state was made for; updates overwrite gradients, so \
                gradients must have the dtypes of the parameters: 1 difference\n  (root): expected type f32, found \
                f64";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(wide, [1.0, 2.0]);
    let mut tree = DynTree::new();
    tree.insert("w", ndarray::array![1.0_f32]);
    assert!(optimizer.update_owned(tree, &mut state, &params).unwrap_err().is_structure());
    assert!(same_bits(&*state, &*copy));
}

#[test]
fn a_loss_can_be_given_too() {
    let optimizer: Boxed<needs::Value> = Box::new(polyak_sgd());
    let mut state = optimizer.init(&2.0_f64).unwrap();
    let (update, _) = optimizer.update_owned_with(2.0_f64, extra::value(2.0), &mut state, &2.0).unwrap();
    assert_eq!(update, -1.0);
}
