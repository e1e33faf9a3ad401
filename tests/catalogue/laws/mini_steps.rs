use crate::common::given::needs;
use gradchain::wrapper::multi_steps;

use super::{Problem, Subject, holds, same_state};
use crate::common::trees::map;
use crate::common::{run, same_values};

/// Mini-batches g and g, whose mean is g, and g/2 and g/2, whose sum is that. The halves are made first and g is twice
/// them, so that a half of f16's smallest numbers, which rounds, is not taken for the batch: both are exact in every
/// type.
fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let name = entry.name();
    let scaled = |grads: &[_], factor: f64| -> Vec<_> {
        grads.iter().map(|g| map(plan, g, |_, value| value * factor)).collect()
    };
    let halves = scaled(grads, 0.0625);
    let eighth = scaled(&halves, 2.0);
    let twice = |grads: &[_]| {
        scaled(grads, 1.0).into_iter().zip(scaled(grads, 1.0)).flat_map(<[_; 2]>::from).collect::<Vec<_>>()
    };
    let batch = entry.run(params, &eighth);
    let mean = run(&multi_steps(entry.boxed(), 2), params, &twice(&eighth));
    same_values(&batch.params, &mean.params).unwrap_or_else(|at| panic!("{name}, mean: {at}"));
    assert!(same_state(&batch.state, mean.state.inner()), "{name}: the inner states differ");
    // The loss that a step is given is always 1 here, and the sum of two is not that of the batch.
    if needs(&entry.boxed()) != gradchain::needs::Level::Nothing {
        return;
    }
    let sum = run(&multi_steps(entry.boxed(), 2).use_grad_mean(false), params, &twice(&halves));
    same_values(&batch.params, &sum.params).unwrap_or_else(|at| panic!("{name}, sum: {at}"));
    let windows = sum.state.gradient_step().get();
    assert_eq!((windows, sum.state.mini_step().get()), (grads.len() as u64, 0), "{name}");
}

#[test]
fn mini_batches_equal_the_batch() {
    holds(law, 2);
}
