//! Steps as operations of burn, for devices whose memory the CPU cannot address.

mod tensors;

use core::fmt;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gradchain::needs::Provides;
use gradchain::program::{StateTensors, Traffic};
use gradchain::tree::Structure;
use gradchain::{Error, GradientTransformation, OptState, Outcome, Result};

use self::tensors::{OnBurn, Placed};
use crate::leaves::{Leaf, Leaves, found_gradients};
use crate::walkers::{Copies, Putter, Reader, Values};

/// The state of an optimizer whose arrays are tensors on the module's device, and whose steps are burn's operations on
/// them: for devices whose memory the CPU cannot address, such as those of `vulkan`, `wgpu`, `metal`, `cuda` and
/// `rocm`.
///
/// Each [program](gradchain::program) of the chain is gone through line by line, and each line is an operation of burn
/// on a whole leaf, which `fusion` makes kernels of. Parameters, gradients and the state's arrays stay on the device.
/// Counts, schedules and what follows from norms are worked out on the CPU: what comes back from the device is one
/// number for each sum and each 16384 elements.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Tensor};
/// use gradchain::prelude::*;
/// use gradchain_burn::{DeviceState, init, step};
///
/// let device = Device::flex().autodiff(); // or `Device::vulkan(..).autodiff()`
/// let optimizer = chain((clip(0.5), adamw(0.1)));
/// let mut here = LinearConfig::new(2, 1).with_bias(false).init(&device);
/// let mut there = here.clone();
/// let mut state = init(&optimizer, &here)?;
/// let mut on_device = DeviceState::init(&optimizer, &there)?;
/// let x = Tensor::<2>::from_floats([[3.0, -4.0]], &device);
/// for _ in 0..3 {
///     let grads = GradientsParams::from_grads(here.forward(x.clone()).sum().backward(), &here);
///     step(&optimizer, &mut here, &grads, &mut state)?;
///     let grads = GradientsParams::from_grads(there.forward(x.clone()).sum().backward(), &there);
///     on_device.step(&optimizer, &mut there, &grads)?;
/// }
/// assert_eq!(here.weight.val().into_data(), there.weight.val().into_data());
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Which optimizers
///
/// Those whose programs can be [told](GradientTransformation::programs), and use operations that burn has: chains of
/// what works on one element, needs norms or, as `muon` does, products of matrices; in boxes and from configs too.
/// Decompositions of matrices, cube roots, and multiplications and additions that are rounded once, are not among them.
/// What cannot be done is said by [`init`](Self::init), by name.
///
/// # Bits
///
/// On `flex`, chains without sums have the bits of [`step`](crate::step). With sums, these are added up in another
/// order, in `f64`; in `f32` on a device that has no `f64`: then a sum of squares is off by 2⁻¹⁰ of itself at most, and
/// infinite beyond the range of `f32`. On other devices it is for the device to say how it rounds.
///
/// # Cost
///
/// An operation of burn for each line of a program and each leaf: for AdamW some twenty. New parameters and arrays are
/// tensors of their own, so that a step has those before and after it in memory. On `flex`, [`step`](crate::step) is
/// many times as fast.
#[derive(Clone)]
pub struct DeviceState<T: GradientTransformation> {
    state: OptState<T>,
    arrays: StateTensors<OnBurn>,
}

impl<T: GradientTransformation> fmt::Debug for DeviceState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arrays.fmt(f)
    }
}

impl<T: GradientTransformation> DeviceState<T> {
    /// The state before the first step, for the trained parameters of a module.
    ///
    /// # Errors
    ///
    /// As [`init`](crate::init) but for where the parameters are, and as [`of`](Self::of).
    pub fn init<M: Module>(optimizer: &T, module: &M) -> Result<DeviceState<T>> {
        let state = optimizer.init(&copied(module)?)?;
        Self::of(optimizer, state, module)
    }

    /// A state from elsewhere, from a checkpoint for example, whose arrays are copied to the device.
    ///
    /// # Errors
    ///
    /// If the state is not for these parameters, they are on several devices, or the optimizer cannot be replayed: then
    /// the part or the operation is named.
    pub fn of<M: Module>(optimizer: &T, state: OptState<T>, module: &M) -> Result<DeviceState<T>> {
        let device = fits(&params(module)?, state.structure())?;
        let programs = optimizer.programs(&copied(module)?)?;
        let arrays = StateTensors::new(OnBurn(device), &programs, &*state)?;
        Ok(DeviceState { state, arrays })
    }

    /// As [`step`](crate::step), on the device.
    ///
    /// # Errors
    ///
    /// If the parameters are others than the state is for, or a gradient is missing, or of another shape, type or
    /// device than its parameter. If the device fails in the middle of the step, the state [cannot be used any
    /// more](Error::is_poisoned). The module is as it was.
    pub fn step<M: Module>(&mut self, optimizer: &T, module: &mut M, grads: &GradientsParams) -> Result<Outcome>
    where
        (): Provides<T::Needs>,
    {
        let mut params = params(module)?;
        let device = fits(&params, self.state.structure())?;
        let mut found = found_gradients::<_, Placed>(module, grads)?.into_iter().peekable();
        let gradients = params.iter().map(|param| gradient(param, found.next_if(|leaf| leaf.id == param.id), &device));
        let gradients = gradients.collect::<Result<Vec<_>>>()?;
        let given = params.iter().map(|leaf| leaf.held.tensor.clone()).collect();
        let mut write = |leaf: usize, new| {
            params[leaf].held.tensor = new;
            Ok(())
        };
        let mut replay = self.arrays.replay(given, gradients, &mut write);
        let outcome = optimizer.step_on(&mut replay, (), &mut self.state)?;
        *module = Putter::put(module.clone(), params);
        Ok(outcome)
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

/// The trained parameters, where they are.
fn params<M: Module>(module: &M) -> Result<Vec<Leaf<Placed>>> {
    Reader::read(module, Values).params()
}

/// Copies of the trained parameters that the CPU can address.
fn copied<M: Module>(module: &M) -> Result<Leaves> {
    Reader::read(module, Copies).params().map(|leaves| Leaves { leaves })
}

/// Whether parameters are those that a state is for; on which device they all are.
fn fits(params: &[Leaf<Placed>], structure: &Structure) -> Result<Device> {
    let refused =
        |argument: &str, expected: &str, found: String| Err(Error::argument("DeviceState", argument, expected, found));
    if params.len() != structure.len() {
        let expected = format!("one with {} trained parameters, as the state is for", structure.len());
        return refused("module", &expected, params.len().to_string());
    }
    let device = params.first().map(|first| first.held.tensor.device()).unwrap_or_default();
    for (Leaf { path, held, .. }, leaf) in params.iter().zip(structure.leaves()) {
        if (&**path, &*held.dims, held.dtype()) != (leaf.path(), leaf.shape(), leaf.dtype()) {
            return refused(path, &leaf.to_string(), format!("{path}: {held}"));
        }
        if held.tensor.device() != device {
            return refused(
                path,
                &format!("on {device:?}, as the first parameter"),
                format!("{:?}", held.tensor.device()),
            );
        }
    }
    Ok(device)
}

/// The gradient of a parameter, if it fits.
fn gradient(param: &Leaf<Placed>, found: Option<Leaf<Placed>>, device: &Device) -> Result<Tensor<1>> {
    let refused = |found: String| {
        let expected = format!("{} on {device:?}", param.held);
        Err(Error::argument("gradient", &param.path, &expected, found))
    };
    let Some(Leaf { held, .. }) = found else { return refused("none".into()) };
    let types = [param.held.dtype(), param.held.dtype().compute()];
    if held.dims != param.held.dims || !types.contains(&held.dtype()) || held.tensor.device() != *device {
        return refused(format!("{held} on {:?}", held.tensor.device()));
    }
    Ok(held.tensor)
}
