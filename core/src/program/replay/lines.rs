use std::collections::HashMap;

use super::Tensors;
use crate::element::DType;
use crate::error::{Error, Result};
use crate::program::{Binary, Comparison, LeafProgram, Op, Type, Unary, Value};

enum Line<T: Tensors> {
    Number(T::Tensor),
    Mask(T::Mask),
}

/// Uploaded numbers, once each, by type and bits.
pub(super) type Numbers<T> = HashMap<(DType, u64), <T as Tensors>::Tensor>;

pub(super) struct Lines<'t, T: Tensors> {
    pub(super) tensors: &'t T,
    pub(super) compute: DType,
    /// Constants, and scalars of this step.
    pub(super) constants: &'t mut Numbers<T>,
    pub(super) scalars: &'t mut Numbers<T>,
}

impl<T: Tensors> Lines<'_, T> {
    pub(super) fn number(&mut self, value: f64, dtype: DType) -> Result<T::Tensor> {
        known(self.tensors, self.constants, value, dtype)
    }

    /// Runs a program and returns the values of the lines `wanted`. Other values are dropped after their last use.
    pub(super) fn run(
        &mut self,
        of: &LeafProgram,
        [update, param]: [&T::Tensor; 2],
        slots: &[T::Tensor],
        wanted: &[u32],
    ) -> Result<Vec<T::Tensor>> {
        let lines = of.program.lines();
        let mut last_use = vec![0; lines.len()];
        for (line, (op, _)) in lines.iter().enumerate() {
            op.operands().for_each(|operand| last_use[operand as usize] = line);
        }
        wanted.iter().for_each(|line| last_use[*line as usize] = usize::MAX);
        let mut values: Vec<Option<Line<T>>> = Vec::with_capacity(lines.len());
        for (line, &(op, ty)) in lines.iter().enumerate() {
            let value = match op {
                Op::Scalar(i) => {
                    let dtype = self.dtype(ty);
                    Line::Number(known(self.tensors, self.scalars, of.scalars[i as usize], dtype)?)
                }
                Op::Update => Line::Number(update.clone()),
                Op::Param => Line::Number(param.clone()),
                Op::Slot(i) => Line::Number(slots[i as usize].clone()),
                op => self.line(op, ty, &values)?,
            };
            values.push(Some(value));
            op.operands().filter(|operand| last_use[*operand as usize] == line).for_each(|operand| {
                values[operand as usize] = None;
            });
        }
        wanted.iter().map(|line| Ok(number(&values, *line).clone())).collect()
    }

    /// Returns the dtype of a type's values. Counts are summed as numbers, which represent them.
    fn dtype(&self, ty: Type) -> DType {
        match ty {
            Type::F32 => DType::F32,
            Type::F64 if self.compute == DType::F64 => DType::F64,
            _ => self.tensors.wide(),
        }
    }

    fn line(&mut self, op: Op, ty: Type, values: &[Option<Line<T>>]) -> Result<Line<T>> {
        let (dtype, of) = (self.dtype(ty), |line| number(values, line));
        Ok(Line::Number(match op {
            Op::Constant(Value::Bool(yes)) => return self.constant(yes).map(Line::Mask),
            Op::Constant(value) => self.number(value.as_f64(), dtype)?,
            Op::Widen(x) => self.tensors.convert(of(x), dtype)?,
            Op::Round(x, to) => self.tensors.convert(&self.tensors.convert(of(x), to)?, dtype)?,
            Op::Unary(op, x) => self.unary(op, of(x), dtype)?,
            Op::Binary(op, x, y) => self.binary(op, of(x), of(y), dtype)?,
            Op::Powi(x, n) => self.powi(of(x), n, dtype)?,
            Op::Compare(op, x, y) => return self.tensors.compare(op, of(x), of(y)).map(Line::Mask),
            Op::Select(c, x, y) => {
                let masked = |line| match &values[line as usize] {
                    Some(Line::Mask(mask)) => Some(mask.clone()),
                    _ => None,
                };
                let c = masked(c).unwrap_or_else(|| unreachable!("a comparison decides"));
                match (masked(x), masked(y)) {
                    (Some(x), Some(y)) => return self.either(&c, &x, &y).map(Line::Mask),
                    _ => self.tensors.select(&c, of(x), of(y))?,
                }
            }
            Op::Transpose(x, shape) => {
                let shape = shape.map(|size| size as usize);
                let x = self.tensors.fill(of(x), shape.iter().product())?;
                self.tensors.transpose(&x, shape).unwrap_or_else(|| Err(self.lacks("transpose")))?
            }
            Op::Product(x, y, shape, transposed) => {
                let shape @ [batch, n, k, m] = shape.map(|size| size as usize);
                let x = self.tensors.fill(of(x), batch * n * k)?;
                let y = self.tensors.fill(of(y), batch * k * m)?;
                self.tensors.product(&x, &y, shape, transposed).unwrap_or_else(|| Err(self.lacks("product")))?
            }
            Op::Dots(x, y, [len, stretch]) => {
                let wide = self.tensors.wide();
                let [x, y] = [self.tensors.convert(of(x), wide)?, self.tensors.convert(of(y), wide)?];
                let products = self.tensors.fill(&self.binary(Binary::Mul, &x, &y, wide)?, len as usize)?;
                self.tensors.convert(&self.tensors.sums(&products, stretch as usize)?, dtype)?
            }
            Op::Repeat(x, [len, times]) => {
                let x = self.tensors.fill(of(x), len as usize)?;
                self.tensors.repeat(&x, times as usize).unwrap_or_else(|| Err(self.lacks("repeat")))?
            }
            op => return Err(self.lacks(&format!("{op:?}"))),
        }))
    }

    fn lacks(&self, name: &str) -> Error {
        Error::state(T::NAME, format!("it has no operation `{name}`"))
    }

    fn constant(&mut self, yes: bool) -> Result<T::Mask> {
        let (one, other) = (self.number(1.0, self.compute)?, self.number(f64::from(yes), self.compute)?);
        self.tensors.compare(Comparison::Equal, &one, &other)
    }

    /// Selects between masks, converted to numbers, because not all frameworks can select masks.
    fn either(&mut self, c: &T::Mask, x: &T::Mask, y: &T::Mask) -> Result<T::Mask> {
        let (one, zero) = (self.number(1.0, self.compute)?, self.number(0.0, self.compute)?);
        let [x, y] = [self.tensors.select(x, &one, &zero)?, self.tensors.select(y, &one, &zero)?];
        self.tensors.compare(Comparison::Equal, &self.tensors.select(c, &x, &y)?, &one)
    }

    fn unary(&mut self, op: Unary, x: &T::Tensor, dtype: DType) -> Result<T::Tensor> {
        match op {
            Unary::Recip => {
                let one = self.number(1.0, dtype)?;
                self.binary(Binary::Div, &one, x, dtype)
            }
            Unary::Trunc => self.trunc(x, dtype),
            Unary::Fract => {
                let whole = self.trunc(x, dtype)?;
                self.binary(Binary::Sub, x, &whole, dtype)
            }
            // Ties away from zero.
            Unary::Round => {
                let [half, one] = [0.5, 1.0].map(|x| self.number(x, dtype));
                let (half, one, whole) = (half?, one?, self.trunc(x, dtype)?);
                let rest = self.binary(Binary::Sub, x, &whole, dtype)?;
                let (rest, one) = (self.unary(Unary::Abs, &rest, dtype)?, self.with_sign_of(&one, x, dtype)?);
                let next = self.binary(Binary::Add, &whole, &one, dtype)?;
                self.tensors.select(&self.tensors.compare(Comparison::Less, &rest, &half)?, &whole, &next)
            }
            Unary::Signum => {
                let one = self.number(1.0, dtype)?;
                let sign = self.with_sign_of(&one, x, dtype)?;
                self.tensors.select(&self.tensors.compare(Comparison::Equal, x, x)?, &sign, x)
            }
            op => self.tensors.unary(op, x).unwrap_or_else(|| Err(self.lacks(op.name()))),
        }
    }

    fn binary(&mut self, op: Binary, x: &T::Tensor, y: &T::Tensor, dtype: DType) -> Result<T::Tensor> {
        let tensors = self.tensors;
        match op {
            // If one operand is NaN, returns the other.
            Binary::Max | Binary::Min => {
                let [low, high] = if op == Binary::Max { [x, y] } else { [y, x] };
                let other = tensors.select(&tensors.compare(Comparison::Less, low, high)?, y, x)?;
                tensors.select(&tensors.compare(Comparison::Equal, x, x)?, &other, y)
            }
            Binary::Copysign => self.with_sign_of(x, y, dtype),
            op => tensors.binary(op, x, y).unwrap_or_else(|| Err(self.lacks(op.name()))),
        }
    }

    fn trunc(&mut self, x: &T::Tensor, dtype: DType) -> Result<T::Tensor> {
        let zero = self.number(0.0, dtype)?;
        let [up, down] = [self.unary(Unary::Ceil, x, dtype)?, self.unary(Unary::Floor, x, dtype)?];
        self.tensors.select(&self.tensors.compare(Comparison::Less, x, &zero)?, &up, &down)
    }

    /// Returns `x` with the sign of `y`, also of zeros; NaN has no sign.
    fn with_sign_of(&mut self, x: &T::Tensor, y: &T::Tensor, dtype: DType) -> Result<T::Tensor> {
        let (tensors, zero) = (self.tensors, self.number(0.0, dtype)?);
        let infinite = self.unary(Unary::Recip, y, dtype)?;
        let signed = tensors.select(&tensors.compare(Comparison::Equal, y, &zero)?, &infinite, y)?;
        let size = self.unary(Unary::Abs, x, dtype)?;
        let opposite = self.unary(Unary::Neg, &size, dtype)?;
        tensors.select(&tensors.compare(Comparison::Less, &signed, &zero)?, &opposite, &size)
    }

    /// Computes a power by squaring, in the compilers' order.
    fn powi(&mut self, x: &T::Tensor, n: i32, dtype: DType) -> Result<T::Tensor> {
        let (mut square, mut power, mut rest) = (x.clone(), self.number(1.0, dtype)?, n.unsigned_abs());
        while rest > 0 {
            if rest % 2 == 1 {
                power = self.binary(Binary::Mul, &power, &square, dtype)?;
            }
            rest /= 2;
            if rest > 0 {
                square = self.binary(Binary::Mul, &square, &square, dtype)?;
            }
        }
        if n < 0 { self.unary(Unary::Recip, &power, dtype) } else { Ok(power) }
    }
}

/// Returns a number as a tensor, uploaded on first use.
fn known<T: Tensors>(tensors: &T, numbers: &mut Numbers<T>, value: f64, dtype: DType) -> Result<T::Tensor> {
    if let Some(number) = numbers.get(&(dtype, value.to_bits())) {
        return Ok(number.clone());
    }
    let number = tensors.number(value, dtype)?;
    numbers.insert((dtype, value.to_bits()), number.clone());
    Ok(number)
}

fn number<T: Tensors>(values: &[Option<Line<T>>], line: u32) -> &T::Tensor {
    match &values[line as usize] {
        Some(Line::Number(tensor)) => tensor,
        _ => unreachable!("operands have a type that the operation supports, and are kept until their last use"),
    }
}
