//! A line search must be given the loss as a function, wherever it is.

use gradchain::extra;
use gradchain::needs::ValueAndGradFn;
use gradchain::prelude::*;
use gradchain::transform::{scale_by_backtracking_linesearch, scale_by_zoom_linesearch};

fn search() -> gradchain::transform::ScaleByZoomLinesearch {
    scale_by_zoom_linesearch(20)
}

fn step<T: GradientTransformation<Needs = Nothing>>(_: T) {}

fn main() -> gradchain::Result<()> {
    let mut p = 1.0_f64;

    let optimizer = chain((clip(1.0), sgd(1.0), search()));
    let mut state = optimizer.init(&p)?;
    optimizer.step(&mut p, &1.0, &mut state)?;
    // The value alone is not enough, nor are values.
    optimizer.step_with(&mut p, &1.0, extra::value(0.5), &mut state)?;
    optimizer.step_with(&mut p, &1.0, extra::value_fn(0.5, |p: &f64| p * p / 2.0), &mut state)?;
    optimizer.update(&1.0, &mut state, &p)?;

    step(masked(search(), Mask::all()));
    step(multi_steps(search(), 2));
    step(inject_hyperparams(lbfgs()));
    step(scale_by_backtracking_linesearch(20));
    let _: Boxed = Box::new(search());
    let member: Boxed<ValueAndGradFn> = Box::new(search());
    step(chain(vec![member]));
    Ok(())
}
