//! Two convolutions and one layer.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, VarBuilder, VarMap, conv2d, linear};

use crate::data::{Digits, Random};

/// 8 by 8 pixels, and labels.
pub(crate) struct Batch {
    pub(crate) images: Tensor,
    pub(crate) labels: Tensor,
}

impl Batch {
    pub(crate) fn of(digits: &Digits) -> Result<Batch> {
        let n = digits.labels.len();
        let labels: Vec<u32> = digits.labels.iter().map(|&label| label as u32).collect();
        Ok(Batch {
            images: Tensor::from_iter(digits.images.iter().copied(), &Device::Cpu)?.reshape((n, 1, 8, 8))?,
            labels: Tensor::new(labels, &Device::Cpu)?,
        })
    }
}

pub(crate) struct Network {
    pub(crate) map: VarMap,
    first: Conv2d,
    second: Conv2d,
    head: Linear,
}

impl Network {
    /// Returns a network with weights from `random`.
    ///
    /// candle's random numbers on the CPU have no seed. The scale keeps the variance of the activations (He et al.,
    /// 2015).
    pub(crate) fn new(random: &mut Random) -> Result<Network> {
        let map = VarMap::new();
        let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
        let same = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        let network = Network {
            first: conv2d(1, 16, 3, same, builder.pp("first"))?,
            second: conv2d(16, 32, 3, same, builder.pp("second"))?,
            head: linear(32 * 2 * 2, 10, builder.pp("head"))?,
            map: map.clone(),
        };
        for tensor in [network.first.weight(), network.second.weight(), network.head.weight()] {
            let limit = (6.0 * tensor.dim(0)? as f64 / tensor.elem_count() as f64).sqrt();
            let numbers = (0..tensor.elem_count()).map(|_| ((2.0 * random.uniform() - 1.0) * limit) as f32);
            let drawn = Tensor::from_iter(numbers, &Device::Cpu)?.reshape(tensor.shape())?;
            candle_core::Var::from_tensor(tensor)?.set(&drawn)?;
        }
        for bias in [network.first.bias(), network.second.bias(), network.head.bias()].into_iter().flatten() {
            candle_core::Var::from_tensor(bias)?.set(&bias.zeros_like()?)?;
        }
        Ok(network)
    }

    pub(crate) fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(images)?.relu()?.max_pool2d(2)?;
        let x = self.second.forward(&x)?.relu()?.max_pool2d(2)?;
        self.head.forward(&x.flatten_from(1)?)
    }

    /// Returns the share of images whose digit scores highest.
    pub(crate) fn accuracy(&self, digits: &Digits) -> Result<f64> {
        let batch = Batch::of(digits)?;
        let best = self.forward(&batch.images)?.argmax(D::Minus1)?;
        let right = best.eq(&batch.labels)?.to_dtype(DType::F64)?.mean_all()?;
        right.to_scalar()
    }
}
