//! burn's operations.

use burn::tensor::{Bool, DType, Device, FloatDType, Tensor, TensorData};
use gradchain::device::DeviceTensor;
use gradchain::program::{Binary, Comparison, Tensors, Unary};
use gradchain::{Error, Result};

use crate::leaves::Leaf;
use crate::walkers::LeafStorage;

/// A flattened parameter or gradient on any device, and its shape.
#[derive(Clone, Debug)]
pub(super) struct Flat {
    pub(super) tensor: Tensor<1>,
    dims: Vec<usize>,
}

impl LeafStorage for Flat {
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

    /// Compares shape and dtype only; values were compared when the state was made.
    fn same_value(&self, other: &Flat) -> bool {
        (&self.dims, self.tensor.dtype()) == (&other.dims, other.tensor.dtype())
    }

    /// Does nothing: no operation writes a shared tensor.
    fn unshare(_: &mut [Leaf<Flat>]) {}
}

/// A tensor, or a number as an operand of burn's operations, so that `fusion` can make one kernel of all lines.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few, and most are tensors")]
pub enum Elements {
    /// The elements of a leaf, or one.
    Many(Tensor<1>),
    /// A number, representable in this type.
    Number(f64, FloatDType),
}

/// burn's operations on a device, for [`TensorState`](gradchain::device::TensorState).
#[derive(Clone, Debug)]
pub struct BurnTensors(pub(super) Device);

impl BurnTensors {
    /// Returns the parameters by path, without a copy.
    pub(super) fn all<'l>(&self, leaves: &'l [Leaf<Flat>]) -> Vec<(&'l str, DeviceTensor<Elements>)> {
        leaves.iter().map(|leaf| (&*leaf.path, self.device_tensor(&leaf.held))).collect()
    }

    pub(super) fn device_tensor(&self, Flat { tensor, dims }: &Flat) -> DeviceTensor<Elements> {
        let (dtype, device) = (gradchains(tensor.dtype()), tensor.device());
        let other_device = (device != self.0).then(|| format!("{device:?}"));
        DeviceTensor::new(Elements::Many(tensor.clone()), dtype, dims.clone()).other_device(other_device)
    }

    /// Returns the tensor, of one element for a number.
    pub(super) fn tensor(&self, x: &Elements) -> Tensor<1> {
        match x {
            Elements::Many(x) => x.clone(),
            Elements::Number(..) => self.repeated(x, 1),
        }
    }

    /// Returns `len` elements: a tensor of them, or one number repeated.
    fn repeated(&self, x: &Elements, len: usize) -> Tensor<1> {
        match x {
            Elements::Many(x) if x.dims()[0] == len => x.clone(),
            Elements::Many(x) => x.clone().expand([len]),
            Elements::Number(value, dtype) => Tensor::full([len], *value, (&self.0, (*dtype).into())),
        }
    }
}

impl Tensors for BurnTensors {
    const NAME: &'static str = "burn";

    type Tensor = Elements;
    type Mask = Tensor<1, Bool>;

    fn wide(&self) -> gradchain::DType {
        if self.0.supports_dtype(FloatDType::F64) { gradchain::DType::F64 } else { gradchain::DType::F32 }
    }

    fn number(&self, value: f64, dtype: gradchain::DType) -> Result<Elements> {
        self.convert(&Elements::Number(value, FloatDType::F64), dtype)
    }

    fn convert(&self, x: &Elements, dtype: gradchain::DType) -> Result<Elements> {
        Ok(match (x, dtype) {
            (Elements::Number(x, _), gradchain::DType::F64) => Elements::Number(*x, FloatDType::F64),
            (Elements::Number(x, _), gradchain::DType::F32) => Elements::Number((*x as f32).into(), FloatDType::F32),
            _ => Elements::Many(self.tensor(x).cast(burn_dtype(dtype))),
        })
    }

    fn unary(&self, op: Unary, x: &Elements) -> Option<Result<Elements>> {
        let x = self.tensor(x);
        Some(Ok(Elements::Many(match op {
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
        })))
    }

    fn binary(&self, op: Binary, x: &Elements, y: &Elements) -> Option<Result<Elements>> {
        Some(Ok(Elements::Many(match (op, x, y) {
            (Binary::Add, Elements::Many(x), Elements::Number(y, _)) => x.clone().add_scalar(*y),
            (Binary::Add, Elements::Number(x, _), Elements::Many(y)) => y.clone().add_scalar(*x),
            (Binary::Sub, Elements::Many(x), Elements::Number(y, _)) => x.clone().sub_scalar(*y),
            (Binary::Sub, Elements::Number(x, _), Elements::Many(y)) => y.clone().neg().add_scalar(*x),
            (Binary::Mul, Elements::Many(x), Elements::Number(y, _)) => x.clone().mul_scalar(*y),
            (Binary::Mul, Elements::Number(x, _), Elements::Many(y)) => y.clone().mul_scalar(*x),
            (Binary::Div, Elements::Many(x), Elements::Number(y, _)) => x.clone().div_scalar(*y),
            (Binary::Add, ..) => self.tensor(x).add(self.tensor(y)),
            (Binary::Sub, ..) => self.tensor(x).sub(self.tensor(y)),
            (Binary::Mul, ..) => self.tensor(x).mul(self.tensor(y)),
            (Binary::Div, ..) => self.tensor(x).div(self.tensor(y)),
            (Binary::Powf, ..) => self.tensor(x).powf(self.tensor(y)),
            _ => return None,
        })))
    }

    fn compare(&self, op: Comparison, x: &Elements, y: &Elements) -> Result<Tensor<1, Bool>> {
        Ok(match (op, x, y) {
            (Comparison::Less, Elements::Many(x), Elements::Number(y, _)) => x.clone().lower_elem(*y),
            (Comparison::Less, Elements::Number(x, _), Elements::Many(y)) => y.clone().greater_elem(*x),
            (Comparison::Less, ..) => self.tensor(x).lower(self.tensor(y)),
            (Comparison::LessOrEqual, Elements::Many(x), Elements::Number(y, _)) => x.clone().lower_equal_elem(*y),
            (Comparison::LessOrEqual, Elements::Number(x, _), Elements::Many(y)) => y.clone().greater_equal_elem(*x),
            (Comparison::LessOrEqual, ..) => self.tensor(x).lower_equal(self.tensor(y)),
            (Comparison::Equal, Elements::Many(x), Elements::Number(y, _))
            | (Comparison::Equal, Elements::Number(y, _), Elements::Many(x)) => x.clone().equal_elem(*y),
            (Comparison::Equal, ..) => self.tensor(x).equal(self.tensor(y)),
        })
    }

    fn select(&self, mask: &Tensor<1, Bool>, x: &Elements, y: &Elements) -> Result<Elements> {
        let len = |x: &Elements| if let Elements::Many(x) = x { x.dims()[0] } else { 1 };
        let len = mask.dims()[0].max(len(x)).max(len(y));
        let mask = if mask.dims()[0] == len { mask.clone() } else { mask.clone().expand([len]) };
        let other = self.repeated(y, len);
        Ok(Elements::Many(match x {
            Elements::Number(x, _) => other.mask_fill(mask, *x),
            Elements::Many(_) => other.mask_where(mask, self.repeated(x, len)),
        }))
    }

    fn fill(&self, x: &Elements, len: usize) -> Result<Elements> {
        Ok(Elements::Many(self.repeated(x, len)))
    }

    fn sums(&self, x: &Elements, chunk: usize) -> Result<Elements> {
        let wide = self.tensor(x).cast(burn_dtype(self.wide()));
        let whole = wide.dims()[0] / chunk * chunk;
        let rest = wide.dims()[0] - whole;
        let mut sums = Vec::with_capacity(2);
        if whole > 0 {
            let chunks = wide.clone().narrow(0, 0, whole).reshape([whole / chunk, chunk]);
            sums.push(chunks.sum_dim(1).reshape([whole / chunk]));
        }
        if rest > 0 {
            sums.push(wide.narrow(0, whole, rest).sum());
        }
        Ok(Elements::Many(Tensor::cat(sums, 0)))
    }

    fn transpose(&self, x: &Elements, shape: [usize; 4]) -> Option<Result<Elements>> {
        Some(Ok(Elements::Many(self.tensor(x).reshape(shape).swap_dims(1, 2).reshape([-1]))))
    }

    fn product(
        &self,
        x: &Elements,
        y: &Elements,
        [batch, n, k, m]: [usize; 4],
        transposed: bool,
    ) -> Option<Result<Elements>> {
        let (x, y) = (self.tensor(x).reshape([batch, n, k]), self.tensor(y));
        let y = if transposed { y.reshape([batch, m, k]).swap_dims(1, 2) } else { y.reshape([batch, k, m]) };
        Some(Ok(Elements::Many(x.matmul(y).reshape([-1]))))
    }

    fn repeat(&self, x: &Elements, times: usize) -> Option<Result<Elements>> {
        let x = self.tensor(x);
        let len = x.dims()[0];
        Some(Ok(Elements::Many(x.reshape([len, 1]).expand([len, times]).reshape([-1]))))
    }

    fn read(&self, x: &Elements) -> Result<Vec<f64>> {
        Ok(data(self.tensor(x))?.iter::<f64>().collect())
    }

    fn upload(&self, bytes: &[u8], dtype: gradchain::DType) -> Result<Elements> {
        let burn_dtype = burn_dtype(dtype).into();
        let data = TensorData::from_bytes_vec(bytes.to_vec(), [bytes.len() / dtype.size()], burn_dtype);
        Ok(Elements::Many(Tensor::from_data(data, (&self.0, burn_dtype))))
    }

    fn download(&self, x: &Elements) -> Result<Vec<u8>> {
        Ok(data(self.tensor(x))?.as_bytes().to_vec())
    }
}

fn gradchains(dtype: DType) -> gradchain::DType {
    match dtype {
        DType::F64 => gradchain::DType::F64,
        DType::F16 => gradchain::DType::F16,
        DType::BF16 => gradchain::DType::Bf16,
        _ => gradchain::DType::F32,
    }
}

fn burn_dtype(dtype: gradchain::DType) -> FloatDType {
    match dtype {
        gradchain::DType::F64 => FloatDType::F64,
        gradchain::DType::F16 => FloatDType::F16,
        gradchain::DType::Bf16 => FloatDType::BF16,
        _ => FloatDType::F32,
    }
}

fn data(x: Tensor<1>) -> Result<TensorData> {
    x.try_into_data().map_err(|error| Error::state(BurnTensors::NAME, error.to_string()))
}
