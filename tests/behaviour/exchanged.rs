//! States put in place of others.

use gradchain::prelude::*;
use gradchain::state::AverageOptions;
use ndarray::{Array2, ShapeBuilder, array};

fn in_order(columns: bool) -> Array2<f32> {
    Array2::from_shape_fn((2, 3).set_f(columns), |(i, j)| (3 * i + j) as f32)
}

/// A mean takes the receiving state's memory order.
#[test]
fn replace_converts_the_memory_order_of_an_averaged_state() {
    let optimizer = sgd(1.0).momentum(0.5);
    let (mut rows, mut columns) = (in_order(false), in_order(true));
    let gradient = in_order(false);
    let (mut of_rows, mut of_columns) = (optimizer.init(&rows).unwrap(), optimizer.init(&columns).unwrap());
    optimizer.step(&mut rows, &gradient, &mut of_rows).unwrap();
    optimizer.step(&mut columns, &gradient, &mut of_columns).unwrap();
    let mean = OptState::average(&[(&of_rows, 1.0), (&of_columns, 1.0)], AverageOptions::default()).unwrap();

    // Assignment would read it in the wrong order.
    let mut wrong = of_columns.clone();
    *wrong = (*mean).clone();
    let before = columns.clone();
    let error = optimizer.step(&mut columns, &gradient, &mut wrong).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the replacement of the state does not fit: `0.trace[]: moment f32 [2, 3]` has another memory order; \
         `OptState::replace` converts it"
    );
    assert_eq!(columns, before);
    assert!(optimizer.step(&mut columns, &gradient, &mut wrong).is_err(), "it stays an error");

    of_columns.replace((*mean).clone()).unwrap();
    optimizer.step(&mut columns, &gradient, &mut of_columns).unwrap();
    optimizer.step(&mut rows, &gradient, &mut of_rows).unwrap();
    assert_eq!(columns, rows);
}

#[test]
fn group_assignments_of_exchanged_states_are_compared() {
    let params = (array![1.0_f32], array![1.0_f32]);
    let gradient = params.clone();
    let optimizer = |first: &str, second: &str| {
        partition((("a", sgd(1.0)), ("b", sgd(0.1))), Labels::tree([("0", first.to_owned()), ("1", second.to_owned())]))
    };
    let (one, other) = (optimizer("a", "b"), optimizer("b", "a"));
    let mut state = one.init(&params).unwrap();
    let theirs = other.init(&params).unwrap();
    core::mem::swap(&mut *state, &mut *theirs.clone());
    let mut after = params.clone();
    let error = one.step(&mut after, &gradient, &mut state).unwrap_err();
    assert!(
        error.to_string().contains("`groups` is for other leaves, or was made by another transformation"),
        "{error}"
    );
    assert_eq!(after, params);

    // `replace` copies values, not the assignment of leaves to groups.
    let mut state = one.init(&params).unwrap();
    state.replace((*theirs).clone()).unwrap();
    one.step(&mut after, &gradient, &mut state).unwrap();
    assert_eq!(after, (array![0.0], array![0.9]));
}

#[test]
fn boxes_of_other_transformations_are_told_apart() {
    let params = array![1.0_f32];
    let one: Boxed = boxed(chain((clip_by_global_norm(1.0), sgd(0.1))));
    let other: Boxed = boxed(sgd(0.1));
    let (mut state, mut theirs) = (one.init(&params).unwrap(), other.init(&params).unwrap());
    core::mem::swap(&mut *state, &mut *theirs);
    let mut after = params.clone();
    assert!(one.step(&mut after, &params, &mut state).is_err());
    assert!(other.step(&mut after, &params, &mut theirs).is_err());
    // Passed directly.
    let mut theirs = other.init(&params).unwrap();
    let error = one.step(&mut after, &params, &mut theirs).unwrap_err();
    assert!(error.to_string().contains("made by another transformation"), "{error}");
    assert_eq!(after, params);
}

#[test]
fn setting_a_hyperparameter_is_no_exchange() {
    let optimizer = inject_hyperparams(sgd(0.5));
    let mut p = 1.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..3 {
        state.hyperparams_mut().set("learning_rate", 0.25).unwrap();
        let copy = state.clone();
        optimizer.step(&mut p, &1.0, &mut state).unwrap();
        optimizer.step(&mut 1.0, &1.0, &mut copy.clone()).unwrap();
        state = copy;
    }
    assert_eq!(p, 1.0 - 3.0 * 0.25);
}

#[test]
fn updates_made_for_another_memory_order_are_told_apart() {
    let optimizer = sgd(1.0);
    let (rows, columns) = (in_order(false), in_order(true));
    let mut of_rows = optimizer.init(&rows).unwrap();
    let mut updates = optimizer.init(&columns).unwrap().zero_updates();
    let error = optimizer.update_into(&rows, &mut of_rows, &rows, &mut updates).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the updates were made for other parameters: 1 difference\n  \
         (root): expected a memory order of strides [3, 1], found [1, 2]"
    );
}
