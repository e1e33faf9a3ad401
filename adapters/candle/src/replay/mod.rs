//! Steps as operations of candle, for devices whose memory cannot be lent.

mod tensors;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use gradchain::needs::Nothing;
use gradchain::program::{StateTensors, Traffic};
use gradchain::tree::{Slices, Structure};
use gradchain::{Error, GradientTransformation, OptState, Outcome, Result};

use self::tensors::{OnCandle, dtype};
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
pub struct DeviceState<T: GradientTransformation> {
    state: OptState<T>,
    arrays: StateTensors<OnCandle>,
}

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
        fits(vars, state.structure())?;
        let programs = copied(vars, |params| optimizer.programs(params))?;
        let device = vars.iter().next().map_or(Device::Cpu, |(_, var)| var.device().clone());
        let arrays = StateTensors::new(OnCandle(device), &programs, &*state)?;
        Ok(DeviceState { state, arrays })
    }

    /// As [`step`](crate::step), on the device.
    ///
    /// # Errors
    ///
    /// If the variables are others than the state is for, or a gradient is missing, or of another shape, type or device
    /// than its variable: then nothing has been changed. If the device fails in the middle of the step, variables may
    /// have been changed, and the state [cannot be used any more](Error::is_poisoned).
    pub fn step(&mut self, optimizer: &T, vars: &Vars, grads: &GradStore) -> Result<Outcome> {
        fits(vars, self.state.structure())?;
        vars.gradients(grads)?;
        let flat = |tensor: &Tensor| tensor.detach().flatten_all().map_err(of_candle);
        let gradients = vars.iter().map(|(path, var)| flat(gradient(path, var, grads)?)).collect::<Result<Vec<_>>>()?;
        let params = vars.iter().map(|(_, var)| flat(var)).collect::<Result<Vec<_>>>()?;
        let mut write = |leaf: usize, new: Tensor| {
            let (_, var) = &vars.as_slice()[leaf];
            new.reshape(var.shape()).and_then(|new| var.set(&new)).map_err(of_candle)
        };
        let mut replay = self.arrays.replay(params, gradients, &mut write);
        optimizer.step_on(&mut replay, (), &mut self.state)
    }

    /// The state with copies of the arrays as they are on the device: to save it, or to go on on the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn to_state(&self) -> Result<OptState<T>> {
        let mut state = self.state.clone();
        self.arrays.state_into(&mut *state).map(|()| state)
    }

    /// The state without its arrays, which are as they were when it was made: counts, flags, and what
    /// [`readings`](GradientTransformation::readings) reads.
    pub fn state(&self) -> &OptState<T> {
        &self.state
    }

    /// How many bytes have crossed between this machine and the device by what this has done: in a step the numbers
    /// that are worked out here, and one for each sum and each 16384 elements.
    pub fn traffic(&self) -> Traffic {
        self.arrays.traffic()
    }
}

/// Does something with copies of the variables on the CPU.
fn copied<R>(vars: &Vars, f: impl FnOnce(&Slices<'_>) -> Result<R>) -> Result<R> {
    let copies = vars.iter().map(|(_, var)| var.to_device(&Device::Cpu)).collect::<candle_core::Result<Vec<_>>>();
    let copies = copies.map_err(of_candle)?;
    lend(vars.paths().zip(&copies).collect(), f)?
}

/// Whether variables are those that a state is for, and on one device.
fn fits(vars: &Vars, structure: &Structure) -> Result<()> {
    let refused =
        |argument: &str, expected: &str, found: String| Err(Error::argument("DeviceState", argument, expected, found));
    if vars.len() != structure.len() {
        return refused("vars", &format!("{} variables, as the state is for", structure.len()), vars.len().to_string());
    }
    let device = vars.iter().next().map(|(_, var)| var.device());
    for ((path, var), leaf) in vars.iter().zip(structure.leaves()) {
        if (path, var.dims(), var.dtype()) != (leaf.path(), leaf.shape(), dtype(leaf.dtype())) {
            return refused(path, &leaf.to_string(), format!("{path}: {} {:?}", var.dtype().as_str(), var.dims()));
        }
        if !device.is_some_and(|device| device.same_device(var.device())) {
            return refused(path, "on the device of the first variable", format!("{:?}", var.device().location()));
        }
    }
    Ok(())
}

/// The gradient of a variable, if it fits.
fn gradient<'a>(path: &str, var: &Var, grads: &'a GradStore) -> Result<&'a Tensor> {
    let expected = format!("{} {:?} on {:?}", var.dtype().as_str(), var.dims(), var.device().location());
    let refused = |found: String| Err(Error::argument("gradient", path, &expected, found));
    let Some(gradient) = grads.get(var) else { return refused("none".into()) };
    let fits = gradient.dims() == var.dims() && gradient.device().same_device(var.device());
    let compute = if var.dtype() == candle_core::DType::F64 { var.dtype() } else { candle_core::DType::F32 };
    if !fits || ![var.dtype(), compute].contains(&gradient.dtype()) {
        let (dtype, device) = (gradient.dtype().as_str(), gradient.device().location());
        return refused(format!("{dtype} {:?} on {device:?}", gradient.dims()));
    }
    Ok(gradient)
}
