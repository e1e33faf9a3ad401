//! States and steps on a device, with a framework's tensors as arrays; for adapters of frameworks.

use core::fmt;

use crate::element::DType;
use crate::engine::Outcome;
use crate::error::{Error, Result};
use crate::needs::Provides;
use crate::program::{StateTensors, Tensors, Traffic};
use crate::transformation::{GradientTransformation, OptState};
use crate::tree::Tree;

/// A parameter or gradient as a framework's tensor, with the properties that a step checks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceTensor<X> {
    /// The elements, contiguous in row-major order.
    pub tensor: X,
    /// The dtype.
    pub dtype: DType,
    /// The shape of the leaf.
    pub shape: Vec<usize>,
    /// The device of the tensor, if it is not that of the [`Tensors`].
    pub other_device: Option<String>,
}

impl<X> DeviceTensor<X> {
    /// Wraps a tensor on the device of the [`Tensors`].
    pub fn new(tensor: X, dtype: DType, shape: impl Into<Vec<usize>>) -> DeviceTensor<X> {
        DeviceTensor { tensor, dtype, shape: shape.into(), other_device: None }
    }

    /// Sets the device, if it is another one.
    pub fn other_device(mut self, device: impl Into<Option<String>>) -> DeviceTensor<X> {
        self.other_device = device.into();
        self
    }
}

impl<X> fmt::Display for DeviceTensor<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)?;
        self.other_device.as_ref().map_or(Ok(()), |device| write!(f, " on {device}"))
    }
}

/// The state of an optimizer on a device: arrays are a framework's tensors, and steps are its operations.
///
/// The `DeviceState`s of `gradchain-burn` and `gradchain-candle` use it. It checks the inputs of a step, so that an
/// adapter only finds tensors. [`Tensors`] has an example.
#[derive(Clone)]
pub struct TensorState<O: GradientTransformation, T: Tensors> {
    state: OptState<O>,
    arrays: StateTensors<T>,
}

impl<O: GradientTransformation, T: Tensors> fmt::Debug for TensorState<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.arrays.fmt(f)
    }
}

impl<O: GradientTransformation, T: Tensors> TensorState<O, T> {
    /// Copies the arrays of a state to the device.
    ///
    /// `params` are the parameters by path, in order, and `copies` has their values in CPU memory.
    ///
    /// # Errors
    ///
    /// If the state is not for these parameters, one of them is on another device, or the optimizer cannot be replayed;
    /// the error then names the part or the operation.
    pub fn new<P: Tree + ?Sized>(
        tensors: T,
        optimizer: &O,
        state: OptState<O>,
        params: &[(&str, DeviceTensor<T::Tensor>)],
        copies: &P,
    ) -> Result<TensorState<O, T>> {
        fit(&state, params)?;
        let programs = optimizer.programs(copies)?;
        let arrays = StateTensors::new(tensors, &programs, &*state)?;
        Ok(TensorState { state, arrays })
    }

    /// Returns the framework's operations and their device.
    pub fn tensors(&self) -> &T {
        self.arrays.tensors()
    }

    /// Runs a step on parameters by path, in order, with the gradient of each. `write` gets the index and the new
    /// parameter of each leaf.
    ///
    /// # Errors
    ///
    /// If the state is for other parameters, or if a gradient is missing or differs from its parameter in shape, dtype
    /// or device: nothing has been changed then. If the device fails during the step, the state is
    /// [poisoned](Error::is_poisoned).
    pub fn step(
        &mut self,
        optimizer: &O,
        params: Vec<(&str, DeviceTensor<T::Tensor>)>,
        gradients: Vec<Option<DeviceTensor<T::Tensor>>>,
        write: &mut dyn FnMut(usize, T::Tensor) -> Result<()>,
    ) -> Result<Outcome>
    where
        (): Provides<O::Needs>,
    {
        fit(&self.state, &params)?;
        let mut gradients = gradients.into_iter();
        let gradients = params.iter().map(|(path, param)| gradient(path, param, gradients.next().flatten()));
        let gradients = gradients.collect::<Result<Vec<_>>>()?;
        let params = params.into_iter().map(|(_, param)| param.tensor).collect();
        optimizer.step_on(&mut self.arrays.replay(params, gradients, write), (), &mut self.state)
    }

    /// Returns the state with copies of the device's arrays, to save it or to continue on the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn to_state(&self) -> Result<OptState<O>> {
        let mut state = self.state.clone();
        self.arrays.state_into(&mut *state).map(|()| state)
    }

    /// Returns the state with the arrays that it was made with: counts, flags, and the fields that
    /// [`readings`](GradientTransformation::readings) reads are current.
    pub fn state(&self) -> &OptState<O> {
        &self.state
    }

    /// Returns the bytes transferred between CPU and device so far: per step the scalars computed on the CPU, and one
    /// number for each reduction and each 16384 elements.
    pub fn traffic(&self) -> Traffic {
        self.arrays.traffic()
    }
}

/// Checks that a state is for these parameters, all on its device.
fn fit<O: GradientTransformation, X>(state: &OptState<O>, params: &[(&str, DeviceTensor<X>)]) -> Result<()> {
    let structure = state.structure();
    let refused =
        |argument: &str, expected: &str, found: String| Err(Error::argument("DeviceState", argument, expected, found));
    if params.len() != structure.len() {
        let expected = format!("{} leaves, as in the state", structure.len());
        return refused("params", &expected, params.len().to_string());
    }
    for ((path, param), leaf) in params.iter().zip(structure.leaves()) {
        if (*path, &*param.shape, param.dtype) != (leaf.path(), leaf.shape(), leaf.dtype()) {
            return refused(path, &leaf.to_string(), format!("{path}: {param}"));
        }
        if param.other_device.is_some() {
            return refused(path, "on the device of the state", param.to_string());
        }
    }
    Ok(())
}

fn gradient<X>(path: &str, param: &DeviceTensor<X>, found: Option<DeviceTensor<X>>) -> Result<X> {
    let refused = |found: String| {
        let expected = format!("{param} on the device of the state");
        Err(Error::argument("gradient", path, &expected, found))
    };
    match found {
        None => refused("none".into()),
        Some(found)
            if found.shape == param.shape
                && [param.dtype, param.dtype.compute()].contains(&found.dtype)
                && found.other_device.is_none() =>
        {
            Ok(found.tensor)
        }
        Some(found) => refused(found.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformation::GradientTransformation;

    fn device_tensor(dtype: DType, len: usize, other_device: Option<&str>) -> DeviceTensor<()> {
        DeviceTensor { tensor: (), dtype, shape: vec![len], other_device: other_device.map(Into::into) }
    }

    #[test]
    fn gradients_of_another_device_dtype_or_shape_are_refused() {
        let param = device_tensor(DType::Bf16, 3, None);
        for dtype in [DType::Bf16, DType::F32] {
            assert!(gradient("w", &param, Some(device_tensor(dtype, 3, None))).is_ok());
        }
        let others = [
            device_tensor(DType::F64, 3, None),
            device_tensor(DType::F32, 2, None),
            device_tensor(DType::F32, 3, Some("gpu 1")),
        ];
        for (other, found) in others.into_iter().zip(["f64 [3]", "f32 [2]", "f32 [3] on gpu 1"]) {
            let error = gradient("w", &param, Some(other)).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("`w` must be bf16 [3] on the device of the state, found {found}")),
                "{error}"
            );
        }
    }

    #[test]
    fn parameters_on_another_device_than_the_state_are_refused() {
        let state = ().init(&vec![0.0_f32; 3]).unwrap();
        let given = |dtype, other_device| fit(&state, &[("", device_tensor(dtype, 3, other_device))]);
        given(DType::F32, None).unwrap();
        let error = given(DType::F32, Some("gpu 1")).unwrap_err().to_string();
        assert!(error.contains("on the device of the state, found f32 [3] on gpu 1"), "{error}");
        assert!(given(DType::F64, None).unwrap_err().to_string().contains("found : f64 [3]"));
    }
}
