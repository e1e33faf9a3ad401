//! Every entry trains, saves and resumes leaves of every small shape.

use super::resuming::{resumed, saved};
use super::{LeafPlan, Number, Order, Problem, Subject, all_cases, noise, registry, tree};
use crate::common::values;

/// Returns shapes of at most four axes of lengths 0, 1 or 2.
fn shapes() -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    let mut from = 0;
    for _ in 0..4 {
        let longer: Vec<_> =
            all[from..].iter().flat_map(|shape| (0..3).map(|side| [&shape[..], &[side]].concat())).collect();
        from = all.len();
        all.extend(longer);
    }
    all
}

fn small_problem(plan: Vec<LeafPlan>) -> Problem {
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..3).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

/// Takes three steps, repeats the last from a file; parameters stay finite.
fn trains(entry: &dyn Subject, problem: &Problem) {
    let straight = entry.run(&problem.params, &problem.grads);
    for (path, values) in values(&straight.params) {
        assert!(values.iter().all(|x| x.is_finite()), "{}: {path} is {values:?}", entry.name());
    }
    let files = saved(entry, problem, 2..=2);
    files.into_iter().for_each(|bytes| resumed(entry, problem, 2, bytes, &straight));
}

/// Each entry takes half of the assignments of dtypes, or all with `all_cases`.
#[test]
fn all_small_shapes_in_one_tree_are_trained_and_resumed() {
    let numbers = if cfg!(feature = "half") {
        vec![Number::F32, Number::F64, Number::Bf16, Number::F16]
    } else {
        vec![Number::F32, Number::F64]
    };
    let entries = registry();
    let orders = [Order::C, Order::Fortran, Order::Strided, Order::Negative];
    for (first, _) in numbers.iter().enumerate() {
        let leaf = |(i, shape): (usize, _)| {
            let (number, order) = (numbers[(first + i) % numbers.len()], orders[(first + i / 3) % orders.len()]);
            LeafPlan { number, shape, order }
        };
        let problem = small_problem(shapes().into_iter().enumerate().map(leaf).collect());
        let trained = entries.iter().enumerate().filter(|(e, _)| (first + e).is_multiple_of(2) || all_cases());
        trained.for_each(|(_, entry)| trains(&**entry, &problem));
    }
}

/// A single leaf must not depend on another's presence.
///
/// Each entry trains all shapes of up to two axes and a quarter of the others, or all with `all_cases`.
#[test]
fn each_small_shape_alone_is_trained_and_resumed() {
    let (shapes, entries) = (shapes(), registry());
    assert_eq!(shapes.len(), 1 + 3 + 9 + 27 + 81);
    for (s, shape) in shapes.into_iter().enumerate() {
        let by_all = shape.len() <= 2 || all_cases();
        let problem = small_problem(vec![LeafPlan { number: Number::F32, shape, order: Order::C }]);
        let trained = entries.iter().enumerate().filter(|(e, _)| by_all || (s + e).is_multiple_of(4));
        trained.for_each(|(_, entry)| trains(&**entry, &problem));
    }
}
