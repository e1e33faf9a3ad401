//! Two convolutions and a linear layer.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::data::Digits;

#[derive(Module, Debug)]
pub(crate) struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    out: Linear,
}

impl Net {
    pub(crate) fn new(device: &Device) -> Net {
        let conv = |channels, stride| {
            let config = Conv2dConfig::new(channels, [3, 3]).with_stride(stride);
            config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        Net {
            conv1: conv([1, 12], [1, 1]),
            conv2: conv([12, 24], [2, 2]),
            out: LinearConfig::new(24 * 4 * 4, 10).init(device),
        }
    }

    fn forward(&self, images: Tensor<2>) -> Tensor<2> {
        let [n, _] = images.dims();
        let x = relu(self.conv1.forward(images.reshape([n, 1, 8, 8])));
        let x = relu(self.conv2.forward(x));
        self.out.forward(x.reshape([n, 24 * 4 * 4]))
    }

    /// Returns the images as a tensor on the network's device.
    fn images(&self, digits: &Digits) -> Tensor<2> {
        let pixels = digits.images.iter().copied().collect();
        Tensor::from_data(TensorData::new(pixels, [digits.labels.len(), 64]), &self.out.weight.device())
    }

    pub(crate) fn loss(&self, batch: &Digits) -> Tensor<1> {
        let scores = self.forward(self.images(batch));
        let labels: Vec<i32> = batch.labels.iter().map(|label| *label as i32).collect();
        let labels = Tensor::<1, Int>::from_data(&labels[..], &scores.device());
        CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels)
    }

    /// Returns the share of images whose digit scores highest.
    pub(crate) fn accuracy(&self, digits: &Digits) -> f64 {
        let best = self.forward(self.images(digits)).argmax(1).into_data();
        let right = best.iter::<i64>().zip(&digits.labels).filter(|(best, label)| *best == **label as i64);
        right.count() as f64 / digits.labels.len() as f64
    }
}
