//! burn's operations.

use burn::tensor::{Bool, DType, Device, FloatDType, Tensor, TensorData};
use gradchain::device::Placed;
use gradchain::program::{Binary, Comparison, Tensors, Unary};
use gradchain::{Error, Result};

use crate::leaves::Leaf;
use crate::walkers::Held;

/// A parameter or gradient on whatever device: its elements one after the other, and its shape.
#[derive(Clone, Debug)]
pub(super) struct Flat {
    pub(super) tensor: Tensor<1>,
    dims: Vec<usize>,
}

impl Held for Flat {
    const EXPECTED: &'static str = "of type f64, f32, f16 or bf16";

    fn of<const D: usize>(tensor: Tensor<D>) -> Result<Flat, String> {
        let (dims, tensor) = (tensor.dims().to_vec(), tensor.inner());
        match tensor.dtype() {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
                Ok(Flat { tensor: tensor.reshape([dims.iter().product::<usize>()]), dims })
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn into_tensor<const D: usize>(self) -> Tensor<D> {
        self.tensor.reshape::<D, _>(core::array::from_fn::<usize, D, _>(|axis| self.dims[axis]))
    }

    /// Values were compared when the state was made, which is no matter of a step: they would have to be read.
    fn is(&self, other: &Flat) -> bool {
        (&self.dims, self.tensor.dtype()) == (&other.dims, other.tensor.dtype())
    }

    /// No operation writes a tensor that something else has.
    fn part(_: &mut [Leaf<Flat>]) {}
}

/// burn's operations on a device, for [`TensorState`](gradchain::device::TensorState).
#[derive(Clone, Debug)]
pub struct OnBurn(pub(super) Device);

impl OnBurn {
    /// Parameters as they are, by path.
    pub(super) fn all<'l>(&self, leaves: &'l [Leaf<Flat>]) -> Vec<(&'l str, Placed<Tensor<1>>)> {
        leaves.iter().map(|leaf| (&*leaf.path, self.placed(&leaf.held))).collect()
    }

    pub(super) fn placed(&self, Flat { tensor, dims }: &Flat) -> Placed<Tensor<1>> {
        let (dtype, device) = (gradchains(tensor.dtype()), tensor.device());
        let elsewhere = (device != self.0).then(|| format!("{device:?}"));
        Placed { tensor: tensor.clone(), dtype, shape: dims.clone(), elsewhere }
    }
}

impl Tensors for OnBurn {
    const NAME: &'static str = "burn";

    type Tensor = Tensor<1>;
    type Mask = Tensor<1, Bool>;

    fn wide(&self) -> gradchain::DType {
        if self.0.supports_dtype(FloatDType::F64) { gradchain::DType::F64 } else { gradchain::DType::F32 }
    }

    fn number(&self, value: f64, dtype: gradchain::DType) -> Result<Tensor<1>> {
        Ok(Tensor::full([1], value, (&self.0, burns(dtype).into())))
    }

    fn convert(&self, x: &Tensor<1>, dtype: gradchain::DType) -> Result<Tensor<1>> {
        Ok(x.clone().cast(burns(dtype)))
    }

    fn unary(&self, op: Unary, x: &Tensor<1>) -> Option<Result<Tensor<1>>> {
        let x = x.clone();
        Some(Ok(match op {
            Unary::Neg => x.neg(),
            Unary::Abs => x.abs(),
            Unary::Sqrt => x.sqrt(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Exp => x.exp(),
            Unary::Ln => x.log(),
            Unary::Ln1p => x.log1p(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            _ => return None,
        }))
    }

    fn binary(&self, op: Binary, x: &Tensor<1>, y: &Tensor<1>) -> Option<Result<Tensor<1>>> {
        let (x, y) = (x.clone(), y.clone());
        Some(Ok(match op {
            Binary::Add => x.add(y),
            Binary::Sub => x.sub(y),
            Binary::Mul => x.mul(y),
            Binary::Div => x.div(y),
            Binary::Powf => x.powf(y),
            _ => return None,
        }))
    }

    fn compare(&self, op: Comparison, x: &Tensor<1>, y: &Tensor<1>) -> Result<Tensor<1, Bool>> {
        let (x, y) = (x.clone(), y.clone());
        Ok(match op {
            Comparison::Less => x.lower(y),
            Comparison::LessOrEqual => x.lower_equal(y),
            Comparison::Equal => x.equal(y),
        })
    }

    fn select(&self, mask: &Tensor<1, Bool>, x: &Tensor<1>, y: &Tensor<1>) -> Result<Tensor<1>> {
        let len = mask.dims()[0].max(x.dims()[0]).max(y.dims()[0]);
        let mask = if mask.dims()[0] == len { mask.clone() } else { mask.clone().expand([len]) };
        Ok(self.fill(y, len)?.mask_where(mask, self.fill(x, len)?))
    }

    fn fill(&self, x: &Tensor<1>, len: usize) -> Result<Tensor<1>> {
        Ok(if x.dims()[0] == len { x.clone() } else { x.clone().expand([len]) })
    }

    fn sums(&self, x: &Tensor<1>, piece: usize) -> Result<Tensor<1>> {
        let wide = self.convert(x, self.wide())?;
        let whole = x.dims()[0] / piece * piece;
        let rest = x.dims()[0] - whole;
        let mut sums = Vec::with_capacity(2);
        if whole > 0 {
            let pieces = wide.clone().narrow(0, 0, whole).reshape([whole / piece, piece]);
            sums.push(pieces.sum_dim(1).reshape([whole / piece]));
        }
        if rest > 0 {
            sums.push(wide.narrow(0, whole, rest).sum());
        }
        Ok(Tensor::cat(sums, 0))
    }

    fn turn(&self, x: &Tensor<1>, shape: [usize; 4]) -> Option<Result<Tensor<1>>> {
        Some(Ok(x.clone().reshape(shape).swap_dims(1, 2).reshape([-1])))
    }

    fn product(
        &self,
        x: &Tensor<1>,
        y: &Tensor<1>,
        [batch, n, k, m]: [usize; 4],
        transposed: bool,
    ) -> Option<Result<Tensor<1>>> {
        let (x, y) = (x.clone().reshape([batch, n, k]), y.clone());
        let y = if transposed { y.reshape([batch, m, k]).swap_dims(1, 2) } else { y.reshape([batch, k, m]) };
        Some(Ok(x.matmul(y).reshape([-1])))
    }

    fn spread(&self, x: &Tensor<1>, times: usize) -> Option<Result<Tensor<1>>> {
        let len = x.dims()[0];
        Some(Ok(x.clone().reshape([len, 1]).expand([len, times]).reshape([-1])))
    }

    fn read(&self, x: &Tensor<1>) -> Result<Vec<f64>> {
        Ok(data(x)?.iter::<f64>().collect())
    }

    fn upload(&self, bytes: &[u8], dtype: gradchain::DType) -> Result<Tensor<1>> {
        let burns = burns(dtype).into();
        let data = TensorData::from_bytes_vec(bytes.to_vec(), [bytes.len() / dtype.size()], burns);
        Ok(Tensor::from_data(data, (&self.0, burns)))
    }

    fn download(&self, x: &Tensor<1>) -> Result<Vec<u8>> {
        Ok(data(x)?.as_bytes().to_vec())
    }
}

/// gradchain's name of a type of floats.
fn gradchains(dtype: DType) -> gradchain::DType {
    match dtype {
        DType::F64 => gradchain::DType::F64,
        DType::F16 => gradchain::DType::F16,
        DType::BF16 => gradchain::DType::Bf16,
        _ => gradchain::DType::F32,
    }
}

/// burn's name of a type.
fn burns(dtype: gradchain::DType) -> FloatDType {
    match dtype {
        gradchain::DType::F64 => FloatDType::F64,
        gradchain::DType::F16 => FloatDType::F16,
        gradchain::DType::Bf16 => FloatDType::BF16,
        _ => FloatDType::F32,
    }
}

fn data(x: &Tensor<1>) -> Result<TensorData> {
    x.try_to_data().map_err(|error| Error::state(OnBurn::NAME, error.to_string()))
}
