use super::params_average::Averages;
use crate::GradientTransformation;
use crate::part::prelude::*;

/// Stochastic weight averaging (SWA): keeps the mean of the parameters that an optimizer passes through.
///
/// The trained parameters, passed to `step`, are bitwise identical to those of the inner optimizer. The average is in
/// the state: [`eval_params`](crate::OptState::eval_params) returns it as a tree of a distinct type, which `step` does
/// not accept. Until parameters have been averaged it returns the trained ones. The optimizer's learning rate should
/// stay high or be cyclic; otherwise the parameters hardly differ.
///
/// # Arithmetic
///
/// After emitted step `t`, counted from 1, with `p` the stored parameters, rounded to their dtype:
///
/// ```text
/// n ← n + 1;  average ← average + (p − average)/n        if t ≥ start and t − start is a multiple of every
/// ```
///
/// A step in which the inner transformation emits nothing, such as one of a [`multi_steps`](crate::multi_steps) that
/// still accumulates, does not count. The average includes changes by later members of a chain, by another optimizer of
/// the same leaves, and by code between steps.
///
/// # Cost
///
/// One float of state per parameter, read and written only in the step after one whose parameters are averaged. That
/// step fuses if the inner transformation does; it reads parameters. Other steps do not access the average, and cost
/// only that the update goes through L1.
///
/// # Errors
///
/// `init` fails if `every` is 0, or the inner `init` fails.
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
/// Differs: only parameters are averaged. Batch normalization statistics must be recomputed with the average, as
/// PyTorch's `update_bn` does.
pub fn params_swa<T: GradientTransformation>(inner: T) -> ParamsSwa<T> {
    ParamsSwa::with(inner)
}

wrapper! {
    /// See [`params_swa`].
    ///
    /// Its state is a [`ParamsAverageState`](crate::wrapper::ParamsAverageState).
    pub ParamsSwa<T> as "params_swa" around inner: AroundWithArithmetic {
        /// Sets the first step, counted from 1, whose parameters are averaged; 0 equals 1 unless `every` is set.
        start: u64 = 0;
        /// Sets the number of steps between averaged parameters; at least 1.
        every: u64 in AT_LEAST_1 = 1;
        /// Sets the dtype of the average; by default the leaf's compute type.
        accumulator_dtype: Option<DType> = None;
    }
}

impl<T: GradientTransformation> Averages for ParamsSwa<T> {
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
