use crate::common::extra_inputs::needs;
use gradchain::wrapper::multi_steps;

use super::{Problem, Subject, holds, same_state};
use crate::common::trees::map;
use crate::common::{run, same_values};

/// Two mini-batches of g average to g, and two of g/2 sum to it.
///
/// The halves are drawn first, so that both are exact, also for f16's smallest numbers.
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
    // Each loss is 1, and the sum of two is not the batch's.
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
