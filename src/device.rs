//! A state whose arrays are a framework's tensors on a device, and steps with it: for adapters of frameworks.

use core::fmt;

use crate::element::DType;
use crate::engine::Outcome;
use crate::error::{Error, Result};
use crate::needs::Provides;
use crate::program::{StateTensors, Tensors, Traffic};
use crate::transformation::{GradientTransformation, OptState};
use crate::tree::Tree;

/// A parameter or a gradient as a framework's tensor, with what has to fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Placed<X> {
    /// The elements one after the other, in row-major order.
    pub tensor: X,
    /// Their type.
    pub dtype: DType,
    /// The shape of the leaf.
    pub shape: Vec<usize>,
    /// Where it is, if that is not the device of the [`Tensors`].
    pub elsewhere: Option<String>,
}

impl<X> Placed<X> {
    /// A tensor on the device of the [`Tensors`].
    pub fn new(tensor: X, dtype: DType, shape: impl Into<Vec<usize>>) -> Placed<X> {
        Placed { tensor, dtype, shape: shape.into(), elsewhere: None }
    }

    /// Sets the device that it is on, if that is another.
    pub fn elsewhere(mut self, device: impl Into<Option<String>>) -> Placed<X> {
        self.elsewhere = device.into();
        self
    }
}

impl<X> fmt::Display for Placed<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)?;
        self.elsewhere.as_ref().map_or(Ok(()), |device| write!(f, " on {device}"))
    }
}

/// The state of an optimizer whose arrays are tensors of a framework, and whose steps are its operations: what the
/// `DeviceState`s of `gradchain-burn` and `gradchain-candle` are made of.
///
/// It checks what a step is given, so that a framework's adapter has only to find its tensors. [`Tensors`] has an
/// example.
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
    /// A state whose arrays are copied to where tensors are, for these parameters by path, in order, of which `copies`
    /// are where the CPU can address them.
    ///
    /// # Errors
    ///
    /// If the state is not for these parameters, one of them is elsewhere, or the optimizer cannot be replayed: then
    /// the part or the operation is named.
    pub fn new<P: Tree + ?Sized>(
        tensors: T,
        optimizer: &O,
        state: OptState<O>,
        params: &[(&str, Placed<T::Tensor>)],
        copies: &P,
    ) -> Result<TensorState<O, T>> {
        fit(&state, params)?;
        let programs = optimizer.programs(copies)?;
        let arrays = StateTensors::new(tensors, &programs, &*state)?;
        Ok(TensorState { state, arrays })
    }

    /// The framework's operations, and where they are done.
    pub fn tensors(&self) -> &T {
        self.arrays.tensors()
    }

    /// A step with these parameters by path, in order, and the gradient of each. `write` is given the number of each
    /// leaf, and its new parameter.
    ///
    /// # Errors
    ///
    /// If the parameters are others than the state is for, or a gradient is missing, or of another shape, type or
    /// device than its parameter: then nothing has been changed. If the device fails in the middle of the step, the
    /// state [cannot be used any more](Error::is_poisoned).
    pub fn step(
        &mut self,
        optimizer: &O,
        params: Vec<(&str, Placed<T::Tensor>)>,
        gradients: Vec<Option<Placed<T::Tensor>>>,
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

    /// The state with copies of the arrays as they are on the device: to save it, or to go on on the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn to_state(&self) -> Result<OptState<O>> {
        let mut state = self.state.clone();
        self.arrays.state_into(&mut *state).map(|()| state)
    }

    /// The state without its arrays, which are as they were when it was made: counts, flags, and what
    /// [`readings`](GradientTransformation::readings) reads.
    pub fn state(&self) -> &OptState<O> {
        &self.state
    }

    /// How many bytes have crossed between this machine and the device by what this has done: in a step the numbers
    /// that are worked out here, and one for each sum and each 16384 elements.
    pub fn traffic(&self) -> Traffic {
        self.arrays.traffic()
    }
}

/// Whether a state is for these parameters, and all are on its device.
fn fit<O: GradientTransformation, X>(state: &OptState<O>, params: &[(&str, Placed<X>)]) -> Result<()> {
    let structure = state.structure();
    let refused =
        |argument: &str, expected: &str, found: String| Err(Error::argument("DeviceState", argument, expected, found));
    if params.len() != structure.len() {
        let expected = format!("{} leaves, as the state is for", structure.len());
        return refused("params", &expected, params.len().to_string());
    }
    for ((path, param), leaf) in params.iter().zip(structure.leaves()) {
        if (*path, &*param.shape, param.dtype) != (leaf.path(), leaf.shape(), leaf.dtype()) {
            return refused(path, &leaf.to_string(), format!("{path}: {param}"));
        }
        if param.elsewhere.is_some() {
            return refused(path, "on the device of the state", param.to_string());
        }
    }
    Ok(())
}

/// The gradient of a parameter, if it fits.
fn gradient<X>(path: &str, param: &Placed<X>, found: Option<Placed<X>>) -> Result<X> {
    let refused = |found: String| {
        let expected = format!("{param} on the device of the state");
        Err(Error::argument("gradient", path, &expected, found))
    };
    match found {
        None => refused("none".into()),
        Some(found)
            if found.shape == param.shape
                && [param.dtype, param.dtype.compute()].contains(&found.dtype)
                && found.elsewhere.is_none() =>
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

    fn placed(dtype: DType, len: usize, elsewhere: Option<&str>) -> Placed<()> {
        Placed { tensor: (), dtype, shape: vec![len], elsewhere: elsewhere.map(Into::into) }
    }

    #[test]
    fn what_is_elsewhere_or_of_another_type_or_shape_is_refused() {
        let param = placed(DType::Bf16, 3, None);
        for dtype in [DType::Bf16, DType::F32] {
            assert!(gradient("w", &param, Some(placed(dtype, 3, None))).is_ok());
        }
        let others = [placed(DType::F64, 3, None), placed(DType::F32, 2, None), placed(DType::F32, 3, Some("gpu 1"))];
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
        let given = |dtype, elsewhere| fit(&state, &[("", placed(dtype, 3, elsewhere))]);
        given(DType::F32, None).unwrap();
        let error = given(DType::F32, Some("gpu 1")).unwrap_err().to_string();
        assert!(error.contains("on the device of the state, found f32 [3] on gpu 1"), "{error}");
        assert!(given(DType::F64, None).unwrap_err().to_string().contains("found : f64 [3]"));
    }
}
