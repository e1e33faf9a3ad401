//! The adapter's guarantees, on candle's CPU device.
#![allow(missing_docs, reason = "tests")]

mod buffers;
mod errors;
mod evaluate;
mod in_place;
mod memory;
mod reference;
mod replay;
mod saved;
mod trait_of_candle;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use gradchain_candle::Vars;

pub(crate) type Tested = Result<(), Box<dyn std::error::Error>>;

/// Returns numbers of both signs, between 0.25 and 2 in size.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (bits >> 12) as f64 / (1_u64 << 52) as f64;
        (0.25 + 1.75 * unit) * if bits & 1 << 11 == 0 { 1.0 } else { -1.0 }
    };
    std::iter::repeat_with(number).take(n).collect()
}

pub(crate) fn tensor(dims: &[usize], dtype: DType, seed: u64) -> Tensor {
    let numbers = numbers(dims.iter().product(), seed);
    Tensor::from_vec(numbers, dims, &Device::Cpu).and_then(|x| x.to_dtype(dtype)).expect("a tensor")
}

pub(crate) fn var(dims: &[usize], dtype: DType, seed: u64) -> Var {
    Var::from_tensor(&tensor(dims, dtype, seed)).expect("a variable")
}

/// Computes the gradients of a loss that is linear in each variable.
pub(crate) fn gradients(of: &[(&Var, Tensor)]) -> GradStore {
    let mut grads = Var::zeros(1, DType::F32, &Device::Cpu).and_then(|x| x.backward()).expect("a store");
    of.iter().for_each(|(var, gradient)| _ = grads.insert(var, gradient.clone()));
    grads
}

/// Returns the bits of any tensor.
///
/// candle cannot convert empty tensors on CUDA, so it copies to the CPU first.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u64> {
    let here = tensor.to_device(&Device::Cpu).and_then(|x| x.to_dtype(DType::F64));
    let numbers = here.and_then(|x| x.flatten_all()).and_then(|x| x.to_vec1::<f64>());
    numbers.expect("floats").into_iter().map(f64::to_bits).collect()
}

pub(crate) fn all_bits(vars: &Vars) -> Vec<Vec<u64>> {
    vars.iter().map(|(_, var)| bits(var)).collect()
}

/// Layers `fc1` and `fc2`, and the data to fit.
pub(crate) struct Network {
    pub(crate) map: VarMap,
    layers: [candle_nn::Linear; 2],
    x: Tensor,
    y: Tensor,
}

impl Network {
    pub(crate) fn new(dtype: DType) -> Network {
        let map = VarMap::new();
        let builder = VarBuilder::from_varmap(&map, dtype, &Device::Cpu);
        let layer = |name, i, o| candle_nn::linear(i, o, builder.pp(name)).expect("a layer");
        let network = Network {
            layers: [layer("fc1", 5, 8), layer("fc2", 8, 3)],
            x: tensor(&[16, 5], dtype, 1),
            y: tensor(&[16, 3], dtype, 2),
            map,
        };
        for (i, (_, var)) in network.vars().iter().enumerate() {
            var.set(&tensor(var.dims(), dtype, 10 + i as u64).affine(0.25, 0.0).expect("smaller")).expect("set");
        }
        network
    }

    pub(crate) fn vars(&self) -> Vars {
        Vars::of(&self.map).expect("floats on the CPU")
    }

    pub(crate) fn loss(&self) -> Tensor {
        let [first, second] = &self.layers;
        let out = first.forward(&self.x).and_then(|x| x.tanh()).and_then(|x| second.forward(&x));
        out.and_then(|out| (out - &self.y)?.sqr()?.mean_all()).expect("a loss")
    }

    pub(crate) fn grads(&self) -> GradStore {
        self.loss().backward().expect("gradients")
    }
}
