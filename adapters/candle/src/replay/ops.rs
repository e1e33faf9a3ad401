//! Programs as operations of candle.

use std::collections::HashMap;

use candle_core::{DType, Device, Result as Candle, Shape, Tensor};
use gradchain::program::{Binary, Comparison, Op, Program, Type, Unary, Value};
use gradchain::{Error, Result};

/// candle's name of a type.
pub(super) fn dtype(dtype: gradchain::DType) -> DType {
    match dtype {
        gradchain::DType::F64 => DType::F64,
        gradchain::DType::F16 => DType::F16,
        gradchain::DType::Bf16 => DType::BF16,
        _ => DType::F32,
    }
}

/// The type in which candle has values of a kind. Counts are added up in `f64`, which holds them.
fn of_type(ty: Type) -> DType {
    match ty {
        Type::F32 => DType::F32,
        Type::Bool => DType::U8,
        _ => DType::F64,
    }
}

/// Numbers on a device, each sent there once.
pub(super) struct Numbers {
    device: Device,
    sent: HashMap<(DType, u64), Tensor>,
}

impl Numbers {
    pub(super) fn new(device: &Device) -> Numbers {
        Numbers { device: device.clone(), sent: HashMap::new() }
    }

    /// A tensor without axes.
    fn get(&mut self, number: f64, dtype: DType) -> Candle<Tensor> {
        if let Some(sent) = self.sent.get(&(dtype, number.to_bits())) {
            return Ok(sent.clone());
        }
        let tensor = Tensor::new(number, &Device::Cpu)?.to_dtype(dtype)?.to_device(&self.device)?;
        self.sent.insert((dtype, number.to_bits()), tensor.clone());
        Ok(tensor)
    }
}

/// What a program is given: tensors of one shape and of the type that it computes in, and the numbers of the step.
pub(super) struct Given<'a> {
    pub(super) update: &'a Tensor,
    pub(super) param: &'a Tensor,
    pub(super) slots: &'a [Tensor],
    pub(super) scalars: &'a [f64],
}

/// Runs a program on all elements of a leaf. Of its lines, the values that `wanted` names are returned, in that order
/// and in the leaf's shape; the others are dropped as soon as no line needs them.
///
/// # Errors
///
/// If candle has no such operation, which is then named, or cannot do it.
pub(super) fn run(program: &Program, given: &Given<'_>, wanted: &[u32], numbers: &mut Numbers) -> Result<Vec<Tensor>> {
    let lines = program.lines();
    let mut last_use = vec![0; lines.len()];
    for (line, (op, _)) in lines.iter().enumerate() {
        op.operands().for_each(|operand| last_use[operand as usize] = line);
    }
    wanted.iter().for_each(|line| last_use[*line as usize] = usize::MAX);
    let mut values: Vec<Option<Tensor>> = Vec::with_capacity(lines.len());
    for (line, &(op, ty)) in lines.iter().enumerate() {
        let of = |operand: u32| values[operand as usize].as_ref().expect("it is kept until its last use");
        let value = match op {
            Op::Constant(value) => Some(numbers.get(number_of(value), of_type(ty))),
            Op::Scalar(i) => Some(numbers.get(given.scalars[i as usize], of_type(ty))),
            Op::Update => Some(Ok(given.update.clone())),
            Op::Param => Some(Ok(given.param.clone())),
            Op::Slot(i) => Some(Ok(given.slots[i as usize].clone())),
            op => operation(op, of),
        };
        let Some(value) = value else {
            return Err(Error::state("candle", format!("it has no operation {}", name(op))));
        };
        values.push(Some(value.map_err(crate::of_candle)?));
        op.operands().filter(|operand| last_use[*operand as usize] == line).for_each(|operand| {
            values[operand as usize] = None;
        });
    }
    let full = |line: &u32| {
        let value = values[*line as usize].as_ref().expect("what is wanted is kept");
        // The parameter is the variable's own memory, which is written later.
        let is_param = lines[*line as usize].0 == Op::Param;
        let value = if is_param { value.copy() } else { Ok(value.clone()) }.map_err(crate::of_candle)?;
        value.broadcast_as(given.param.shape()).and_then(|full| full.contiguous()).map_err(crate::of_candle)
    };
    wanted.iter().map(full).collect()
}

fn number_of(value: Value) -> f64 {
    match value {
        Value::F32(x) => x.into(),
        Value::F64(x) => x,
        Value::Bool(yes) => f64::from(u8::from(yes)),
        Value::Count(n) => n.into(),
        _ => f64::NAN,
    }
}

fn name(op: Op) -> String {
    match op {
        Op::Unary(op, _) => format!("`{}`", op.name()),
        Op::Binary(op, ..) => format!("`{}`", op.name()),
        Op::MulAdd(..) => "`mul_add`".into(),
        op => format!("{op:?}"),
    }
}

/// What a line does to the values of others; nothing where candle has no operation, nor several that do it bit for bit.
fn operation<'v>(op: Op, of: impl Fn(u32) -> &'v Tensor) -> Option<Candle<Tensor>> {
    Some(match op {
        Op::Widen(x) => of(x).to_dtype(DType::F64),
        Op::Round(x, to) => of(x).to_dtype(dtype(to)).and_then(|rounded| rounded.to_dtype(of(x).dtype())),
        Op::Unary(op, x) => return unary(op, of(x)),
        Op::Binary(op, x, y) => return binary(op, of(x), of(y)),
        Op::Powi(x, n) => powi(of(x), n),
        Op::Compare(comparison, x, y) => match comparison {
            Comparison::Less => of(x).broadcast_lt(of(y)),
            Comparison::LessOrEqual => of(x).broadcast_le(of(y)),
            Comparison::Equal => of(x).broadcast_eq(of(y)),
        },
        Op::Select(c, x, y) => select(of(c), of(x), of(y)),
        _ => return None,
    })
}

fn unary(op: Unary, x: &Tensor) -> Option<Candle<Tensor>> {
    Some(match op {
        Unary::Neg => x.neg(),
        Unary::Abs => x.abs(),
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => x.recip(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::Trunc => trunc(x),
        Unary::Fract => trunc(x).and_then(|whole| x.sub(&whole)),
        Unary::Exp => x.exp(),
        Unary::Ln => x.log(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tanh => x.tanh(),
        Unary::Signum => x.ones_like().and_then(|one| select(&x.eq(x)?, &with_sign_of(&one, x)?, x)),
        _ => return None,
    })
}

fn binary(op: Binary, x: &Tensor, y: &Tensor) -> Option<Candle<Tensor>> {
    Some(match op {
        Binary::Add => x.broadcast_add(y),
        Binary::Sub => x.broadcast_sub(y),
        Binary::Mul => x.broadcast_mul(y),
        Binary::Div => x.broadcast_div(y),
        // Of a NaN and a number they are the number.
        Binary::Max => x.broadcast_lt(y).and_then(|less| select(&less, y, x)).and_then(|z| select(&x.eq(x)?, &z, y)),
        Binary::Min => x.broadcast_gt(y).and_then(|more| select(&more, y, x)).and_then(|z| select(&x.eq(x)?, &z, y)),
        Binary::Copysign => with_sign_of(x, y),
        _ => return None,
    })
}

/// If the first holds, the second, else the third, element by element.
fn select(c: &Tensor, x: &Tensor, y: &Tensor) -> Candle<Tensor> {
    let shapes = [c.shape(), x.shape(), y.shape()];
    let largest: &Shape = shapes.into_iter().max_by_key(|shape| shape.rank()).unwrap_or(c.shape());
    c.broadcast_as(largest)?.where_cond(&x.broadcast_as(largest)?, &y.broadcast_as(largest)?)
}

fn trunc(x: &Tensor) -> Candle<Tensor> {
    select(&x.lt(&x.zeros_like()?)?, &x.ceil()?, &x.floor()?)
}

/// The size of `x` with the sign of `y`, also of zeros; a NaN has none here.
fn with_sign_of(x: &Tensor, y: &Tensor) -> Candle<Tensor> {
    let zero = y.zeros_like()?;
    let negative = select(&y.eq(&zero)?, &y.recip()?, y)?.lt(&zero)?;
    let size = x.abs()?;
    select(&negative, &size.neg()?, &size)
}

/// By squaring, in the order in which compilers do it.
fn powi(x: &Tensor, n: i32) -> Candle<Tensor> {
    let (mut square, mut power, mut rest) = (x.clone(), x.ones_like()?, n.unsigned_abs());
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.mul(&square)?;
        }
        rest /= 2;
        if rest > 0 {
            square = square.mul(&square)?;
        }
    }
    if n < 0 { power.recip() } else { Ok(power) }
}
