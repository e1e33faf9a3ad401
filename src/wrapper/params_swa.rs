use super::params_average::Averages;
use crate::part::prelude::*;

/// Keeps the equal mean of parameters that an optimizer passes through, to evaluate with: stochastic weight averaging.
///
/// The parameters that are trained, and given to `step`, are those of the optimizer inside, to the bit. The average is
/// in the state: [`eval_params`](crate::OptState::eval_params) gives it as a tree of a type of its own, which cannot be
/// stepped; before anything has been averaged it gives the parameters that are trained. The optimizer's learning rate
/// should stay high or go in cycles, or there is little to average.
///
/// # Arithmetic
///
/// After emitted step `t`, counted from 1, with `p` the parameters as they are stored, rounded to their type:
///
/// ```text
/// n ← n + 1;  average ← average + (p − average)/n        if t ≥ start and t − start is a multiple of every
/// ```
///
/// A step in which what is inside emits nothing, such as a [`multi_steps`](crate::multi_steps) that is still
/// collecting, does not count. What comes behind this in a chain is in the average; what another optimizer does to the
/// same leaves, or the hand between two steps, is as well.
///
/// # Cost
///
/// One float of state for each parameter, read and written only in the step after one whose parameters are averaged.
/// Fuses then if what is inside does; reads parameters. In other steps the average is not touched, and there is no cost
/// but that the update goes through the first-level cache.
///
/// # Errors
///
/// `init` fails if `every` is 0, or what is inside refuses.
///
/// # Example
///
/// The parameters after steps 2 and 4:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::params_swa;
///
/// let optimizer = params_swa(sgd(1.0)).start(2).every(2);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let mut means = Vec::new();
/// for _ in 0..4 {
///     optimizer.step(&mut params, &-1.0, &mut state)?;
///     means.push(*state.eval_params(&params)?);
/// }
/// assert_eq!(params, 4.0);
/// assert_eq!(means, [1.0, 2.0, 2.0, 3.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, [Averaging weights leads to wider optima and better
/// generalization](https://arxiv.org/abs/1803.05407), 2018, algorithm 1, where `every` is the cycle length. PyTorch,
/// [`AveragedModel`](https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema). Optax has none.
/// Differs: nothing else is averaged; what a model measures on data, such as the statistics of batch normalization,
/// must be measured again with the average, as PyTorch's `update_bn` does.
pub fn params_swa<T: Stage>(inner: T) -> ParamsSwa<T> {
    ParamsSwa::with(inner)
}

wrapper! {
    /// See [`params_swa`].
    ///
    /// Its state is a [`ParamsAverageState`](crate::wrapper::ParamsAverageState).
    pub ParamsSwa<T> as "params_swa" around inner: AroundWithArithmetic {
        /// Sets the first step, counted from 1, whose parameters are averaged; 0 is as 1 unless `every` says otherwise.
        start: u64 = 0;
        /// Sets how many steps apart the parameters are that are averaged; at least 1.
        every: u64 in AT_LEAST_1 = 1;
        /// Sets the type of the average; by default the one that the leaf's arithmetic is done in.
        accumulator_dtype: Option<DType> = None;
    }
}

impl<T: Stage> Averages for ParamsSwa<T> {
    fn starts_as_params(&self) -> bool {
        false
    }

    fn share(&self, steps: Count, _: Count, mass: &mut Scalar) -> Option<f64> {
        let since = steps.get().checked_sub(self.start)?;
        if !since.is_multiple_of(self.every) {
            return None;
        }
        mass.set(mass.get() + 1.0);
        Some(1.0 / mass.get())
    }
}
