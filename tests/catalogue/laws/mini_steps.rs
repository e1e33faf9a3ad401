use gradchain::Stage;
use gradchain::wrapper::multi_steps;

use super::{Problem, Subject, holds, same_state};
use crate::common::trees::map;
use crate::common::{close, run, same_values};

/// Mini-batches g/8 and g/8, whose mean is g/8, and g/16 and g/16, whose sum is that: both exact in every type here.
fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let name = entry.name();
    if !entry.about().per_step {
        return;
    }
    let eighth: Vec<_> = grads.iter().map(|g| map(plan, g, |_, value| value * 0.125)).collect();
    let minis = |factor: f64| -> Vec<_> {
        eighth.iter().flat_map(|g| [0, 1].map(|_| map(plan, g, |_, value| value * factor))).collect()
    };
    let batch = entry.run(params, &eighth);
    let mean = run(&multi_steps(entry.boxed(), 2), params, &minis(1.0));
    same_values(&batch.params, &mean.params).unwrap_or_else(|at| panic!("{name}, mean: {at}"));
    assert!(same_state(&batch.state, mean.state.inner()), "{name}: the inner states differ");
    // The loss that a step is given is always 1 here, and the sum of two is not that of the batch.
    if entry.boxed().needs() != gradchain::needs::Level::Nothing {
        return;
    }
    let sum = run(&multi_steps(entry.boxed(), 2).use_grad_mean(false), params, &minis(0.5));
    close(&batch.params, &sum.params, 2e-3).unwrap_or_else(|at| panic!("{name}, sum: {at}"));
    let windows = sum.state.gradient_step().get();
    assert_eq!((windows, sum.state.mini_step().get()), (grads.len() as u64, 0), "{name}");
}

#[test]
fn mini_batches_equal_the_batch() {
    holds(law, 2);
}
