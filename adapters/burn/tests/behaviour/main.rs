//! A step in burn changes only the trained parameters.

mod buffers;
mod learner;
mod reference;
mod replay;
mod resume;
mod times;
mod tree;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Mlp {
        Mlp { fc1: LinearConfig::new(6, 5).init(device), fc2: LinearConfig::new(5, 3).init(device) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc2.forward(relu(self.fc1.forward(x)))
    }

    fn gradients(&self, number: usize) -> GradientsParams {
        let from = number as i64;
        let x = Tensor::arange(from..from + 24, &self.fc1.weight.device()).float().sin().reshape([4, 6]);
        GradientsParams::from_grads(self.forward(x).powi_scalar(2).mean().backward(), self)
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// Returns every float parameter in `f64`, which is exact.
fn values<M: Module>(module: &M) -> Vec<Vec<f64>> {
    #[derive(Default)]
    struct Values(Vec<Vec<f64>>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().into_data().iter::<f64>().collect());
        }
    }
    let mut values = Values::default();
    module.visit(&mut values);
    values.0
}
