//! candle's operations.

use candle_core::{DType, Device, Result as Candle, Shape, Tensor};
use gradchain::device::DeviceTensor;
use gradchain::program::{Binary, Comparison, Tensors, Unary};
use gradchain::{Error, Result};

use crate::from_candle;

fn dtype(dtype: gradchain::DType) -> DType {
    match dtype {
        gradchain::DType::F64 => DType::F64,
        gradchain::DType::F16 => DType::F16,
        gradchain::DType::Bf16 => DType::BF16,
        _ => DType::F32,
    }
}

/// candle's operations on a device, for [`TensorState`](gradchain::device::TensorState).
///
/// Its tensors have one axis, or none if they have one element.
#[derive(Clone, Debug)]
pub struct CandleTensors(pub(super) Device);

impl CandleTensors {
    /// Detaches a variable or its gradient from the graph.
    pub(super) fn device_tensor(&self, path: &str, tensor: &Tensor) -> Result<DeviceTensor<Tensor>> {
        let dtype = match tensor.dtype() {
            DType::F64 => gradchain::DType::F64,
            DType::F32 => gradchain::DType::F32,
            DType::F16 => gradchain::DType::F16,
            DType::BF16 => gradchain::DType::Bf16,
            other => return Err(Error::argument("DeviceState", path, "of type f32, f64, f16 or bf16", other.as_str())),
        };
        let device = tensor.device();
        let other_device = (!device.same_device(&self.0)).then(|| format!("{:?}", device.location()));
        let flat = tensor.detach().flatten_all().map_err(from_candle)?;
        Ok(DeviceTensor::new(flat, dtype, tensor.dims()).other_device(other_device))
    }
}

impl Tensors for CandleTensors {
    const NAME: &'static str = "candle";

    type Tensor = Tensor;
    type Mask = Tensor;

    fn number(&self, value: f64, ty: gradchain::DType) -> Result<Tensor> {
        let number = Tensor::new(value, &Device::Cpu).and_then(|number| number.to_dtype(dtype(ty)));
        number.and_then(|number| number.to_device(&self.0)).map_err(from_candle)
    }

    fn convert(&self, x: &Tensor, ty: gradchain::DType) -> Result<Tensor> {
        x.to_dtype(dtype(ty)).map_err(from_candle)
    }

    fn unary(&self, op: Unary, x: &Tensor) -> Option<Result<Tensor>> {
        let made = match op {
            Unary::Neg => x.neg(),
            Unary::Abs => x.abs(),
            Unary::Sqrt => x.sqrt(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Exp => x.exp(),
            Unary::Ln => x.log(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            _ => return None,
        };
        Some(made.map_err(from_candle))
    }

    fn binary(&self, op: Binary, x: &Tensor, y: &Tensor) -> Option<Result<Tensor>> {
        let made = match op {
            Binary::Add => x.broadcast_add(y),
            Binary::Sub => x.broadcast_sub(y),
            Binary::Mul => x.broadcast_mul(y),
            Binary::Div => x.broadcast_div(y),
            _ => return None,
        };
        Some(made.map_err(from_candle))
    }

    fn compare(&self, op: Comparison, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let mask = match op {
            Comparison::Less => x.broadcast_lt(y),
            Comparison::LessOrEqual => x.broadcast_le(y),
            Comparison::Equal => x.broadcast_eq(y),
        };
        mask.map_err(from_candle)
    }

    fn select(&self, mask: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let shapes = [mask.shape(), x.shape(), y.shape()];
        let largest: &Shape = shapes.into_iter().max_by_key(|shape| shape.rank()).unwrap_or(mask.shape());
        let select = || mask.broadcast_as(largest)?.where_cond(&x.broadcast_as(largest)?, &y.broadcast_as(largest)?);
        select().map_err(from_candle)
    }

    fn fill(&self, x: &Tensor, len: usize) -> Result<Tensor> {
        x.broadcast_as(len).and_then(|full| full.contiguous()).map_err(from_candle)
    }

    fn keep(&self, x: &Tensor) -> Result<Tensor> {
        x.copy().map_err(from_candle)
    }

    fn sums(&self, x: &Tensor, chunk: usize) -> Result<Tensor> {
        let sums = || -> Candle<Tensor> {
            let wide = x.to_dtype(DType::F64)?;
            let whole = x.elem_count() / chunk * chunk;
            let rest = x.elem_count() - whole;
            let mut sums = Vec::with_capacity(2);
            if whole > 0 {
                sums.push(wide.narrow(0, 0, whole)?.reshape(((), chunk))?.sum(1)?);
            }
            if rest > 0 {
                sums.push(wide.narrow(0, whole, rest)?.sum_keepdim(0)?);
            }
            Tensor::cat(&sums, 0)
        };
        sums().map_err(from_candle)
    }

    fn transpose(&self, x: &Tensor, shape: [usize; 4]) -> Option<Result<Tensor>> {
        let turned = x.reshape(&shape[..]).and_then(|x| x.transpose(1, 2)?.flatten_all());
        Some(turned.map_err(from_candle))
    }

    fn product(&self, x: &Tensor, y: &Tensor, [b, n, k, m]: [usize; 4], transposed: bool) -> Option<Result<Tensor>> {
        let product = || {
            let y = if transposed { y.reshape((b, m, k))?.t()? } else { y.reshape((b, k, m))? };
            x.reshape((b, n, k))?.matmul(&y)?.flatten_all()
        };
        Some(product().map_err(from_candle))
    }

    fn repeat(&self, x: &Tensor, times: usize) -> Option<Result<Tensor>> {
        let len = x.elem_count();
        let repeat = x.reshape((len, 1)).and_then(|x| x.broadcast_as((len, times))?.flatten_all());
        Some(repeat.map_err(from_candle))
    }

    fn read(&self, x: &Tensor) -> Result<Vec<f64>> {
        x.to_vec1().map_err(from_candle)
    }

    fn upload(&self, bytes: &[u8], ty: gradchain::DType) -> Result<Tensor> {
        Tensor::from_raw_buffer(bytes, dtype(ty), &[bytes.len() / ty.size()], &self.0).map_err(from_candle)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        x.write_bytes(&mut bytes).map(|()| bytes).map_err(from_candle)
    }
}
