//! The state before the first step, and the step.

use candle_core::backprop::GradStore;
use gradchain::needs::Nothing;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

use crate::Vars;

/// Returns the state of an optimizer before its first step, for these variables.
///
/// The state is in gradchain's memory, separate from the model; moments of 16-bit variables are `f32`. Checkpoints,
/// migrations and readings work on it as on any state.
///
/// # Errors
///
/// As [`GradientTransformation::init`]; and if a variable is not on the CPU.
pub fn init<T: GradientTransformation>(optimizer: &T, vars: &Vars) -> Result<OptState<T>> {
    vars.read(|params| optimizer.init(params))?
}

/// Transforms gradients and adds the updates to the variables, in place.
///
/// Reads the gradients and writes the variables in candle's memory. Nothing is copied. Temporary allocations take some
/// hundred bytes for each variable, whatever its size.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap};
/// use gradchain::prelude::*;
/// use gradchain_candle::{Vars, init, step};
///
/// let map = VarMap::new();
/// let model = candle_nn::linear(3, 1, VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
/// let vars = Vars::of(&map)?;
///
/// let optimizer = chain((clip_by_global_norm(1.0), adamw(cosine_decay(0.05, 100)).mask(Mask::path("weight"))));
/// let mut state = init(&optimizer, &vars)?;
/// let (x, mut losses) = (Tensor::ones((4, 3), DType::F32, &Device::Cpu)?, Vec::new());
/// for _ in 0..100 {
///     let loss = (model.forward(&x)? - 1.0)?.sqr()?.mean_all()?;
///     losses.push(loss.to_scalar::<f32>()?);
///     step(&optimizer, &vars, &loss.backward()?, &mut state)?;
/// }
/// assert!(losses[99] < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`GradientTransformation::step`], with nothing changed: a gradient of another shape, or of a type whose
/// conversion would lose precision; a variable without a gradient, unless the optimizer is a
/// [`skip_absent`](gradchain::wrapper::skip_absent). And as [`Vars::write_with`].
///
/// # Locks
///
/// A step holds the locks of all variables at once. Do not run a forward pass on another thread meanwhile: it may hold
/// one lock while it waits for another, which deadlocks both threads.
pub fn step<T>(optimizer: &T, vars: &Vars, grads: &GradStore, state: &mut OptState<T>) -> Result<Outcome>
where
    T: GradientTransformation<Needs = Nothing>,
{
    vars.write_with(grads, |params, grads| optimizer.step(params, grads, state))?
}
