//! Steps as operations of candle, for devices whose memory cannot be lent.

mod tensors;

use core::ops::Deref;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use gradchain::device::{Placed, TensorState};
use gradchain::needs::Nothing;
use gradchain::tree::Slices;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

pub use self::tensors::OnCandle;
use crate::open::lend;
use crate::{Vars, of_candle};

/// The state of an optimizer whose arrays are tensors on the variables' device, and whose steps are candle's operations
/// on them: for devices whose memory candle does not lend, such as CUDA's.
///
/// Each [program](gradchain::program) of the chain is gone through line by line, and each line is an operation of
/// candle on a whole leaf. Variables, gradients and the state's arrays stay on the device. Counts, schedules and what
/// follows from norms are worked out on the CPU: what comes back from the device is one number for each sum and each
/// 16384 elements.
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
/// Those whose programs can be [told](GradientTransformation::programs), and use operations that candle has: chains of
/// what works on one element, needs norms or, as `muon` does, products of matrices; in boxes and from configs too.
/// Decompositions of matrices, cube roots, and multiplications and additions that are rounded once, are not among them.
/// What cannot be done is said by [`init`](Self::init), by name.
///
/// # Bits
///
/// On candle's CPU device, chains without sums have the bits of [`step`](crate::step). With sums, these are added up in
/// another order, in `f64`. On other devices it is for the device to say how it rounds.
///
/// # Cost
///
/// An operation of candle for each line of a program and each leaf, each with a tensor of its own: for AdamW some
/// twenty. On the CPU [`step`](crate::step) is many times as fast.
#[derive(Clone, Debug)]
pub struct DeviceState<T: GradientTransformation>(TensorState<T, OnCandle>);

impl<T: GradientTransformation<Needs = Nothing>> DeviceState<T> {
    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// As [`GradientTransformation::init`] and [`of`](Self::of).
    pub fn init(optimizer: &T, vars: &Vars) -> Result<DeviceState<T>> {
        let state = copied(vars, |params| optimizer.init(params))?;
        Self::of(optimizer, state, vars)
    }

    /// A state from elsewhere, from a checkpoint for example, whose arrays are copied to the device.
    ///
    /// # Errors
    ///
    /// If the state is not for these variables, they are on several devices, or the optimizer cannot be replayed: then
    /// the part or the operation is named.
    pub fn of(optimizer: &T, state: OptState<T>, vars: &Vars) -> Result<DeviceState<T>> {
        let on = OnCandle(vars.iter().next().map_or(Device::Cpu, |(_, var)| var.device().clone()));
        let params = params(vars, &on)?;
        copied(vars, |copies| TensorState::new(on, optimizer, state, &params, copies)).map(DeviceState)
    }

    /// As [`step`](crate::step), on the device.
    ///
    /// # Errors
    ///
    /// If the variables are others than the state is for, or a gradient is missing, or of another shape, type or device
    /// than its variable: then nothing has been changed. If the device fails in the middle of the step, variables may
    /// have been changed, and the state [cannot be used any more](gradchain::Error::is_poisoned).
    pub fn step(&mut self, optimizer: &T, vars: &Vars, grads: &GradStore) -> Result<Outcome> {
        vars.gradients(grads)?;
        let on = self.0.tensors();
        let gradient = |(path, var): (&str, &Var)| grads.get(var).map(|tensor| on.placed(path, tensor)).transpose();
        let gradients = vars.iter().map(gradient).collect::<Result<Vec<_>>>()?;
        let params = params(vars, on)?;
        self.0.step(optimizer, params, gradients, &mut |leaf, new| {
            let (_, var) = &vars.as_slice()[leaf];
            new.reshape(var.shape()).and_then(|new| var.set(&new)).map_err(of_candle)
        })
    }
}

/// What does not need the variables: [`to_state`](TensorState::to_state), [`state`](TensorState::state) and
/// [`traffic`](TensorState::traffic).
impl<T: GradientTransformation> Deref for DeviceState<T> {
    type Target = TensorState<T, OnCandle>;
    fn deref(&self) -> &TensorState<T, OnCandle> {
        &self.0
    }
}

/// Does something with copies of the variables on the CPU.
fn copied<R>(vars: &Vars, f: impl FnOnce(&Slices<'_>) -> Result<R>) -> Result<R> {
    let copies = vars.iter().map(|(_, var)| var.to_device(&Device::Cpu)).collect::<candle_core::Result<Vec<_>>>();
    let copies = copies.map_err(of_candle)?;
    lend(vars.paths().zip(&copies).collect(), f)?
}

/// The variables as they are, by path.
fn params<'v>(vars: &'v Vars, on: &OnCandle) -> Result<Vec<(&'v str, Placed<Tensor>)>> {
    vars.iter().map(|(path, var)| Ok((path, on.placed(path, var)?))).collect()
}
