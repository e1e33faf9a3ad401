//! Steps as operations of candle, for devices whose memory cannot be lent.

mod tensors;

use core::ops::Deref;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use gradchain::device::{DeviceTensor, TensorState};
use gradchain::needs::Nothing;
use gradchain::tree::Slices;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

pub use self::tensors::CandleTensors;
use crate::open::lend;
use crate::{Vars, from_candle};

/// The state of an optimizer on the variables' device, for devices whose memory candle does not lend, such as CUDA's.
///
/// Its arrays are candle tensors, and its steps are candle's operations on them. A step interprets the chain's
/// [programs](gradchain::program); each line becomes an operation of candle on a whole leaf. Variables, gradients and
/// the state's arrays stay on the device. The CPU computes counts, schedules and the values that depend on norms; the
/// device sends back one number for each reduction and each 16384 elements.
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use gradchain::prelude::*;
/// use gradchain_candle::{DeviceState, Vars, init, step};
///
/// let device = Device::Cpu; // or `Device::new_cuda(0)?`
/// let optimizer = chain((clip_by_global_norm(1.0), adamw(0.1)));
/// let run = |on_device: bool| -> Result<Vec<f32>, Box<dyn std::error::Error>> {
///     let w = Var::new(&[3.0_f32, 4.0], &device)?;
///     let vars = Vars::named([("w", w.clone())])?;
///     if on_device {
///         let mut state = DeviceState::init(&optimizer, &vars)?;
///         state.step(&optimizer, &vars, &w.sqr()?.sum_all()?.backward()?)?;
///     } else {
///         let mut state = init(&optimizer, &vars)?;
///         step(&optimizer, &vars, &w.sqr()?.sum_all()?.backward()?, &mut state)?;
///     }
///     Ok(w.to_vec1()?)
/// };
/// assert_eq!(run(true)?, run(false)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Which optimizers
///
/// Optimizers with [recordable programs](GradientTransformation::programs) of candle's operations: chains of
/// elementwise transformations, norms and, as in `muon`, matrix products; boxed ones and those from configs too. Matrix
/// decompositions, cube roots and fused multiply-adds are not supported. [`init`](Self::init) refuses them by name.
///
/// # Bits
///
/// On candle's CPU device, chains without reductions are bitwise identical to [`step`](crate::step). Reductions add in
/// another order, in `f64`. Other devices may round differently.
///
/// # Cost
///
/// An operation of candle for each line of a program and each leaf, each with its own tensor: some twenty for AdamW. On
/// the CPU [`step`](crate::step) is many times as fast.
#[derive(Clone, Debug)]
pub struct DeviceState<T: GradientTransformation>(TensorState<T, CandleTensors>);

impl<T: GradientTransformation<Needs = Nothing>> DeviceState<T> {
    /// Returns the state before the first step.
    ///
    /// # Errors
    ///
    /// As [`GradientTransformation::init`] and [`of`](Self::of).
    pub fn init(optimizer: &T, vars: &Vars) -> Result<DeviceState<T>> {
        let state = with_copies(vars, |params| optimizer.init(params))?;
        Self::of(optimizer, state, vars)
    }

    /// Copies a state, for example from a checkpoint, to the device.
    ///
    /// # Errors
    ///
    /// If the state does not fit these variables, if they are on several devices, or if the optimizer cannot run there:
    /// the message names the part or the operation.
    pub fn of(optimizer: &T, state: OptState<T>, vars: &Vars) -> Result<DeviceState<T>> {
        let on = CandleTensors(vars.iter().next().map_or(Device::Cpu, |(_, var)| var.device().clone()));
        let params = params(vars, &on)?;
        with_copies(vars, |copies| TensorState::new(on, optimizer, state, &params, copies)).map(DeviceState)
    }

    /// Runs [`step`](crate::step) on the device.
    ///
    /// # Errors
    ///
    /// If the state does not fit the variables, or a gradient is missing or has another shape, type or device than its
    /// variable; then nothing has changed. If the device fails in the middle of the step, variables may have changed,
    /// and the state [cannot be used any more](gradchain::Error::is_poisoned).
    pub fn step(&mut self, optimizer: &T, vars: &Vars, grads: &GradStore) -> Result<Outcome> {
        vars.gradients(grads)?;
        let on = self.0.tensors();
        let gradient =
            |(path, var): (&str, &Var)| grads.get(var).map(|tensor| on.device_tensor(path, tensor)).transpose();
        let gradients = vars.iter().map(gradient).collect::<Result<Vec<_>>>()?;
        let params = params(vars, on)?;
        self.0.step(optimizer, params, gradients, &mut |leaf, new| {
            let (_, var) = &vars.as_slice()[leaf];
            new.reshape(var.shape()).and_then(|new| var.set(&new)).map_err(from_candle)
        })
    }
}

/// Gives access to the methods that need no variables.
///
/// These are [`to_state`](TensorState::to_state), [`state`](TensorState::state) and [`traffic`](TensorState::traffic).
impl<T: GradientTransformation> Deref for DeviceState<T> {
    type Target = TensorState<T, CandleTensors>;
    fn deref(&self) -> &TensorState<T, CandleTensors> {
        &self.0
    }
}

fn with_copies<R>(vars: &Vars, f: impl FnOnce(&Slices<'_>) -> Result<R>) -> Result<R> {
    let copies = vars.iter().map(|(_, var)| var.to_device(&Device::Cpu)).collect::<candle_core::Result<Vec<_>>>();
    let copies = copies.map_err(from_candle)?;
    lend(vars.paths().zip(&copies).collect(), f)?
}

fn params<'v>(vars: &'v Vars, on: &CandleTensors) -> Result<Vec<(&'v str, DeviceTensor<Tensor>)>> {
    vars.iter().map(|(path, var)| Ok((path, on.device_tensor(path, var)?))).collect()
}
