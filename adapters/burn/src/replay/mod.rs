//! Steps as operations of burn, for devices whose memory the CPU cannot address.

mod tensors;

use core::ops::Deref;

use burn::module::Module;
use burn::optim::GradientsParams;
use gradchain::device::TensorState;
use gradchain::needs::Provides;
use gradchain::{GradientTransformation, OptState, Outcome, Result};

use self::tensors::Flat;
pub use self::tensors::{Elements, OnBurn};
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
#[derive(Clone, Debug)]
pub struct DeviceState<T: GradientTransformation>(TensorState<T, OnBurn>);

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
        let params = params(module)?;
        let on = OnBurn(params.first().map(|first| first.held.tensor.device()).unwrap_or_default());
        let placed = on.all(&params);
        TensorState::new(on, optimizer, state, &placed, &copied(module)?).map(DeviceState)
    }

    /// As [`step`](crate::step), on the device.
    ///
    /// # Errors
    ///
    /// If the parameters are others than the state is for, or a gradient is missing, or of another shape, type or
    /// device than its parameter. If the device fails in the middle of the step, the state [cannot be used any
    /// more](gradchain::Error::is_poisoned). The module is as it was.
    pub fn step<M: Module>(&mut self, optimizer: &T, module: &mut M, grads: &GradientsParams) -> Result<Outcome>
    where
        (): Provides<T::Needs>,
    {
        let (params, on) = (params(module)?, self.0.tensors().clone());
        let mut found = found_gradients::<_, Flat>(module, grads)?.into_iter().peekable();
        let gradient = |param: &Leaf<Flat>| found.next_if(|leaf| leaf.id == param.id).map(|leaf| on.placed(&leaf.held));
        let gradients = params.iter().map(gradient).collect();
        let (placed, mut new) = (on.all(&params), params.clone());
        let outcome = self.0.step(optimizer, placed, gradients, &mut |leaf, made| {
            new[leaf].held.tensor = on.tensor(&made);
            Ok(())
        })?;
        *module = Putter::put(module.clone(), new, []);
        Ok(outcome)
    }
}

/// What does not need the module: [`to_state`](TensorState::to_state), [`state`](TensorState::state) and
/// [`traffic`](TensorState::traffic).
impl<T: GradientTransformation> Deref for DeviceState<T> {
    type Target = TensorState<T, OnBurn>;
    fn deref(&self) -> &TensorState<T, OnBurn> {
        &self.0
    }
}

/// The trained parameters, where they are.
fn params<M: Module>(module: &M) -> Result<Vec<Leaf<Flat>>> {
    Reader::read(module, Values).params()
}

/// Copies of the trained parameters that the CPU can address.
fn copied<M: Module>(module: &M) -> Result<Leaves> {
    Reader::read(module, Copies).params().map(Leaves::of)
}
