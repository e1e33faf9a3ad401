use super::params_average::Averages;
use crate::GradientTransformation;
use crate::part::prelude::*;

/// Keeps an exponential moving average of the parameters that an optimizer trains, for evaluation.
///
/// The trained parameters, passed to `step`, are bitwise identical to those of the inner optimizer. The average is in
/// the state: [`eval_params`](crate::OptState::eval_params) returns it as a tree of a distinct type, which `step` does
/// not accept.
///
/// # Arithmetic
///
/// After emitted step `t`, counted from 1, with `p` the stored parameters, rounded to their dtype:
///
/// ```text
/// average ← decay·average + (1 − decay)·p        if t is a multiple of update_every; starts at the parameters of init
/// ```
///
/// With [`warmup`](ParamsEma::warmup), the `n`-th of these, counted from 1, uses `min(decay, (1 + n)/(10 + n))` in
/// place of `decay`. With [`debias`](ParamsEma::debias) the average starts empty instead of at the initial parameters,
/// and is divided by the sum of the weights:
///
/// ```text
/// mass ← decay·mass + (1 − decay)                starts at 0
/// average ← average + (1 − decay)/mass·(p − average)
/// ```
///
/// A step in which the inner transformation emits nothing, such as one of a [`multi_steps`](crate::multi_steps) that
/// still accumulates, does not count. The average includes changes by later members of a chain, by another optimizer of
/// the same leaves, and by code between steps.
///
/// # Cost
///
/// One float of state per parameter, read and written when the average moves. Fuses if the inner transformation does;
/// reads parameters. A step adds the parameters that the previous step left while they are in registers: the average
/// needs no additional pass.
///
/// # Errors
///
/// `init` fails if `decay` is not in `[0, 1)`, `update_every` is 0, or the inner `init` fails.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = params_ema(sgd(1.0), 0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &-4.0, &mut state)?;
/// assert_eq!((params, *state.eval_params(&params)?), (4.0, 2.0)); // half of 0, half of 4
/// optimizer.step(&mut params, &-2.0, &mut state)?;
/// assert_eq!((params, *state.eval_params(&params)?), (6.0, 4.0)); // half of 2, half of 6
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// The average is not a tree to train:
///
/// ```compile_fail
/// use gradchain::prelude::*;
///
/// let optimizer = params_ema(sgd(1.0), 0.5);
/// let mut params = vec![0.0_f64];
/// let mut state = optimizer.init(&params).unwrap();
/// let mut average = state.eval_params(&params).unwrap();
/// optimizer.step(&mut average, &vec![1.0_f64], &mut state).unwrap();
/// ```
///
/// # References
///
/// Polyak and Juditsky, [Acceleration of stochastic approximation by averaging](https://doi.org/10.1137/0330046), 1992,
/// for averaging; Tarvainen and Valpola, [Mean teachers are better role models](https://arxiv.org/abs/1703.01780),
/// 2017, for this average of networks. The name follows common use: an EMA of parameters, as
/// [`ema`](crate::transform::ema()) is one of updates; timm's `ModelEma`, PyTorch's
/// [`AveragedModel`](https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema) with
/// `get_ema_multi_avg_fn`, TensorFlow's `ExponentialMovingAverage`, whose `num_updates` is `warmup`. Differs: it starts
/// with the parameters of `init`, as timm's and TensorFlow's do; PyTorch's starts with those after the first update, as
/// a `decay` of `table([0.0, decay])` does. Buffers that are not leaves are not averaged. Optax has
/// `incremental_update` alone, as does this crate for loops by hand.
pub fn params_ema<T: GradientTransformation>(inner: T, decay: impl IntoHyperparam) -> ParamsEma<T> {
    ParamsEma::with(inner, decay.into())
}

wrapper! {
    /// See [`params_ema`].
    ///
    /// Its state is a [`ParamsAverageState`](crate::wrapper::ParamsAverageState).
    pub ParamsEma<T> as "params_ema" around inner: AroundWithArithmetic {
        decay: Hyperparam in DECAY;
        /// Sets whether the average starts with the parameters after the first step instead of those before it.
        debias: bool = false;
        /// Sets whether the decay is smaller in the first steps.
        warmup: bool = false;
        /// Sets the number of steps after which the average moves; at least 1.
        update_every: u64 in AT_LEAST_1 = 1;
        /// Sets the dtype of the average; by default the leaf's compute type.
        accumulator_dtype: Option<DType> = None;
    }
    shows "{}": decay;
}

impl<T: GradientTransformation> Averages for ParamsEma<T> {
    fn starts_as_params(&self) -> bool {
        !self.debias
    }

    fn share(&self, steps: Count, averaged: Count, mass: &mut Scalar) -> Option<f64> {
        if !steps.get().is_multiple_of(self.update_every) {
            return None;
        }
        let mut decay = self.decay.at(averaged.get());
        if self.warmup {
            let n = averaged.get().saturating_add(1) as f64;
            decay = decay.min((1.0 + n) / (10.0 + n));
        }
        let gain = 1.0 - decay;
        if !self.debias {
            return Some(gain);
        }
        mass.set(decay * mass.get() + gain);
        // If a schedule reaches 1, the share is 0, not 0/0.
        Some(if gain == 0.0 { 0.0 } else { gain / mass.get() })
    }
}
