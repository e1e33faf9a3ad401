//! Steps as operations of burn, for devices whose memory the CPU cannot address.

mod tensors;

use core::ops::Deref;

use burn::module::Module;
use burn::optim::GradientsParams;
use gradchain::device::TensorState;
use gradchain::needs::Provides;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

use self::tensors::Flat;
pub use self::tensors::{BurnTensors, Elements};
use crate::leaves::{Leaf, Leaves, found_gradients};
use crate::walkers::{HostCopies, PutLeaves, Reader, Values};

/// The state of an optimizer on the module's device, for devices whose memory the CPU cannot address.
///
/// Its arrays are burn tensors, and its steps are burn's operations on them. Examples of such devices are those of
/// `vulkan`, `wgpu`, `metal`, `cuda` and `rocm`.
///
/// A step interprets the chain's [programs](gradchain::program); each line becomes an operation of burn on a whole
/// leaf, and `fusion` compiles these to kernels. Parameters, gradients and the state's arrays stay on the device. The
/// CPU computes counts, schedules and the values that depend on norms; the device sends back one number for each
/// reduction and each 16384 elements.
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
/// Optimizers with [recordable programs](GradientTransformation::programs) of burn's operations: chains of elementwise
/// transformations, norms and, as in `muon`, matrix products; boxed ones and those from configs too. Matrix
/// decompositions, cube roots and fused multiply-adds are not supported. [`init`](Self::init) refuses them by name.
///
/// # Bits
///
/// On `flex`, chains without reductions are bitwise identical to [`step`](crate::step). Reductions add in another
/// order, in `f64`. A device without `f64` adds in `f32`: the relative error of a sum of squares is at most 2⁻¹⁰, and
/// it overflows beyond the range of `f32`. Other devices may round differently.
///
/// # Cost
///
/// An operation of burn for each line of a program and each leaf: some twenty for AdamW. New parameters and arrays are
/// separate tensors, so memory holds those before and after the step. On `flex`, [`step`](crate::step) is many times as
/// fast.
#[derive(Clone, Debug)]
pub struct DeviceState<T: GradientTransformation>(TensorState<T, BurnTensors>);

impl<T: GradientTransformation> DeviceState<T> {
    /// Returns the state before the first step, for the trained parameters of a module.
    ///
    /// # Errors
    ///
    /// As [`init`](crate::init), except that any device will do, and as [`of`](Self::of).
    pub fn init<M: Module>(optimizer: &T, module: &M) -> Result<DeviceState<T>> {
        let state = optimizer.init(&host_copies(module)?)?;
        Self::of(optimizer, state, module)
    }

    /// Copies a state, for example from a checkpoint, to the device.
    ///
    /// # Errors
    ///
    /// If the state does not fit these parameters, if they are on several devices, or if the optimizer cannot run
    /// there: the message names the part or the operation.
    pub fn of<M: Module>(optimizer: &T, state: OptState<T>, module: &M) -> Result<DeviceState<T>> {
        let params = params(module)?;
        let on = BurnTensors(params.first().map(|first| first.held.tensor.device()).unwrap_or_default());
        let device_tensor = on.all(&params);
        TensorState::new(on, optimizer, state, &device_tensor, &host_copies(module)?).map(DeviceState)
    }

    /// Runs [`step`](crate::step) on the device.
    ///
    /// # Errors
    ///
    /// If the state does not fit the parameters, or a gradient is missing or has another shape, type or device than its
    /// parameter. If the device fails in the middle of the step, the state [cannot be used any
    /// more](gradchain::Error::is_poisoned). The module is unchanged.
    pub fn step<M: Module>(&mut self, optimizer: &T, module: &mut M, grads: &GradientsParams) -> Result<Outcome>
    where
        (): Provides<T::Needs>,
    {
        let (params, on) = (params(module)?, self.0.tensors().clone());
        let mut found = found_gradients::<_, Flat>(module, grads)?.into_iter().peekable();
        let gradient =
            |param: &Leaf<Flat>| found.next_if(|leaf| leaf.id == param.id).map(|leaf| on.device_tensor(&leaf.held));
        let gradients = params.iter().map(gradient).collect();
        let (device_tensor, mut new) = (on.all(&params), params.clone());
        let outcome = self.0.step(optimizer, device_tensor, gradients, &mut |leaf, made| {
            new[leaf].held.tensor = on.tensor(&made);
            Ok(())
        })?;
        *module = PutLeaves::put(module.clone(), new, []);
        Ok(outcome)
    }
}

/// Gives access to the methods that need no module.
///
/// These are [`to_state`](TensorState::to_state), [`state`](TensorState::state) and [`traffic`](TensorState::traffic).
impl<T: GradientTransformation> Deref for DeviceState<T> {
    type Target = TensorState<T, BurnTensors>;
    fn deref(&self) -> &TensorState<T, BurnTensors> {
        &self.0
    }
}

fn params<M: Module>(module: &M) -> Result<Vec<Leaf<Flat>>> {
    Reader::read(module, Values).params()
}

/// Copies the trained parameters to host memory.
fn host_copies<M: Module>(module: &M) -> Result<Leaves> {
    Reader::read(module, HostCopies).params().map(Leaves::of)
}
