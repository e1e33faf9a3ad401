//! gradchain's optimizers for modules of [burn]: a step over all parameters at once, in place.
//!
//! ```text
//! cargo add burn gradchain gradchain-burn
//! ```
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::optim::GradientsParams;
//! use burn::tensor::{Device, Tensor};
//! use gradchain::prelude::*;
//!
//! let device = Device::flex().autodiff();
//! let mut layer = LinearConfig::new(2, 1).init(&device);
//! let optimizer = chain((clip_by_global_norm(1.0), adamw(0.125).weight_decay(0.0).mask(Mask::path("weight"))));
//! let mut state = gradchain_burn::init(&optimizer, &layer)?;
//!
//! let before = layer.weight.val().into_data().try_to_vec::<f32>().unwrap();
//! let loss = layer.forward(Tensor::<2>::from_floats([[3.0, -4.0]], &device)).sum();
//! let grads = GradientsParams::from_grads(loss.backward(), &layer);
//! gradchain_burn::step(&optimizer, &mut layer, &grads, &mut state)?;
//!
//! // The first step of Adam is the sign of the gradient times the learning rate.
//! let after = layer.weight.val().into_data().try_to_vec::<f32>().unwrap();
//! assert!((after[0] - (before[0] - 0.125)).abs() < 1e-6);
//! assert!((after[1] - (before[1] + 0.125)).abs() < 1e-6);
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! A training loop needs [`init`] and [`step`]. [`params`], [`params_mut`] and [`gradients`] show a module as a tree to
//! the rest of gradchain: plans, checkpoints, norms, line searches. [`eval_module`] evaluates with averages.
//! [`whole_tree`] with [`optimize`], and [`per_tensor`], return optimizers of burn's own type, for its `Learner`.
//! [`DeviceState`] runs steps on devices whose memory the CPU cannot address.
//!
//! The [guide](_guide) trains a model, and lists the properties that hold in burn and those that do not.
//!
//! # Features
//!
//! `flex`, on by default: modules on burn's CPU backend. `ndarray`: on its older one, which burn will remove.
//!
//! Differs: burn's optimizers receive one tensor at a time, keep state by `ParamId`, and allocate new tensors in each
//! step.

#[cfg(not(any(feature = "flex", feature = "ndarray")))]
compile_error!("gradchain-burn needs one of the features `flex` and `ndarray`");

mod buffers;
mod host;
mod leaves;
mod optimizer;
mod replay;
mod walkers;

use burn::module::Module;
use burn::optim::GradientsParams;
use gradchain::needs::Provides;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

pub use leaves::{Leaves, LeavesMut, gradients, params, params_mut};
pub use optimizer::{Rate, optimize, per_tensor, whole_tree};
pub use replay::{BurnTensors, DeviceState, Elements};

#[cfg(doctest)]
mod table;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod _guide {}

/// Returns the state of an optimizer before the first step, for the trained parameters of a module.
///
/// The state is keyed by path: it fits another module with the same paths, shapes and types too.
///
/// # Errors
///
/// As [`params`]; as [`GradientTransformation::init`], if an argument is out of its range or a mask matches no leaf.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use gradchain::prelude::*;
///
/// let layer = LinearConfig::new(2, 3).init(&Device::flex().autodiff());
/// let state = gradchain_burn::init(&adam(1e-3), &layer)?;
/// assert_eq!(state.structure().leaves()[0].to_string(), "weight: f32 [2, 3]");
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn init<T: GradientTransformation, M: Module>(optimizer: &T, module: &M) -> Result<OptState<T>> {
    optimizer.init(&params(module)?)
}

/// Steps all trained parameters of a module together, in place.
///
/// # Cost
///
/// That of [`GradientTransformation::step`] and of [`params_mut`]. Gradients are read in place, and stay yours.
///
/// # Errors
///
/// As [`params_mut`], [`gradients`] and [`GradientTransformation::step`]. The module and the state are unchanged.
///
/// # Panics
///
/// Only if your own code does, such as a schedule; the module has its parameters then.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
///
/// let device = Device::flex().autodiff();
/// let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device);
/// let optimizer = sgd(0.5);
/// let mut state = gradchain_burn::init(&optimizer, &layer)?;
/// let before = layer.weight.val().into_scalar::<f32>();
///
/// let loss = layer.forward(Tensor::<2>::from_floats([[2.0]], &device)).sum();
/// let grads = GradientsParams::from_grads(loss.backward(), &layer);
/// let outcome = gradchain_burn::step(&optimizer, &mut layer, &grads, &mut state)?;
/// assert!(outcome.emitted());
/// assert_eq!(layer.weight.val().into_scalar::<f32>(), before - 1.0);
///
/// let error = gradchain_burn::step(&optimizer, &mut layer, &GradientsParams::new(), &mut state).unwrap_err();
/// assert!(error.to_string().contains("weight"));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn step<T, M>(optimizer: &T, module: &mut M, grads: &GradientsParams, state: &mut OptState<T>) -> Result<Outcome>
where
    T: GradientTransformation,
    M: Module,
    (): Provides<T::Needs>,
{
    let mut params = leaves::trained_mut(module)?;
    let grads = params.gradients(grads)?;
    optimizer.step(&mut params, &grads, state)
}

/// Returns a copy of a module with its evaluation parameters.
///
/// Wrappers such as [`params_ema`](gradchain::params_ema()) and [`schedule_free`](gradchain::wrapper::schedule_free())
/// train other parameters than they evaluate. The copy shares everything that is not trained with the module. Call
/// [`valid`](Module::valid) on the copy to leave autodiff out too, and drop it before the next step.
///
/// # Cost
///
/// A copy of the trained parameters.
///
/// # Errors
///
/// As [`OptState::eval_params`] and [`params_mut`]. For a module on another device than the CPU, pass a copy of it on
/// the CPU: `eval_module(&module.clone().to_device(&cpu), &state.to_state()?)`.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain::wrapper::schedule_free;
///
/// let device = Device::flex().autodiff();
/// let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device);
/// let optimizer = schedule_free(sgd(1.0), 1.0).b1(0.5);
/// let mut state = gradchain_burn::init(&optimizer, &layer)?;
/// let start = layer.weight.val().into_scalar::<f64>();
/// for _ in 0..2 {
///     let loss = layer.forward(Tensor::<2>::from_floats([[1.0]], &device)).sum();
///     let grads = GradientsParams::from_grads(loss.backward(), &layer);
///     gradchain_burn::step(&optimizer, &mut layer, &grads, &mut state)?;
/// }
/// // The steps of sgd lead to −1 and −2. Their mean is −1.5; half way between that and −2 is trained on.
/// let averaged = gradchain_burn::eval_module(&layer, &state)?.valid();
/// assert!((averaged.weight.val().into_scalar::<f64>() - start + 1.5).abs() < 1e-6);
/// assert!((layer.weight.val().into_scalar::<f64>() - start + 1.75).abs() < 1e-6);
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn eval_module<T: GradientTransformation, M: Module>(module: &M, state: &OptState<T>) -> Result<M> {
    let mut copy = module.clone();
    state.eval_params_into(&mut leaves::trained_mut(&mut copy)?)?;
    Ok(copy)
}
