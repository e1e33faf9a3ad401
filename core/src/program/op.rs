//! The elements of a program: values, and operations on them.

use core::fmt;
use core::hash::{Hash, Hasher};

use crate::element::{DType, Real, convert, with_dtype};

/// The type of value of a line of a [`Program`](super::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// A number in single precision.
    F32,
    /// A number in double precision.
    F64,
    /// The result of a comparison.
    Bool,
    /// A number of elements.
    Count,
}

impl Type {
    /// Returns the name of the Rust type of such values.
    pub fn name(self) -> &'static str {
        match self {
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Bool => "bool",
            Type::Count => "u32",
        }
    }
}

/// A value of one of the [types](Type). Two are equal if their bits are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A number in single precision.
    F32(f32),
    /// A number in double precision.
    F64(f64),
    /// The result of a comparison.
    Bool(bool),
    /// A number of elements.
    Count(u32),
}

impl Value {
    /// Returns its type.
    pub fn ty(self) -> Type {
        match self {
            Value::F32(_) => Type::F32,
            Value::F64(_) => Type::F64,
            Value::Bool(_) => Type::Bool,
            Value::Count(_) => Type::Count,
        }
    }

    pub(super) fn number(ty: Type, value: f64) -> Value {
        if ty == Type::F32 { Value::F32(value as f32) } else { Value::F64(value) }
    }

    pub(super) fn as_f64(self) -> f64 {
        match self {
            Value::F32(x) => f64::from(x),
            Value::F64(x) => x,
            Value::Bool(yes) => f64::from(yes),
            Value::Count(n) => f64::from(n),
        }
    }

    fn bits(self) -> (Type, u64) {
        let bits = match self {
            Value::F32(x) => u64::from(x.to_bits()),
            Value::F64(x) => x.to_bits(),
            Value::Bool(yes) => u64::from(yes),
            Value::Count(n) => u64::from(n),
        };
        (self.ty(), bits)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::F32(x) => write!(f, "{x:?}"),
            Value::F64(x) => write!(f, "{x:?}"),
            Value::Bool(yes) => write!(f, "{yes}"),
            Value::Count(n) => write!(f, "{n}"),
        }
    }
}

macro_rules! functions {
    ($(#[$doc:meta])* $Kind:ident of ($($x:ident),*): $($Name:ident $name:literal $does:expr;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $Kind {
            $(#[doc = concat!("`", $name, "`")] $Name,)*
        }

        impl $Kind {
            /// Returns its name: the operator, or the method of Rust's numbers.
            pub fn name(self) -> &'static str {
                match self {
                    $($Kind::$Name => $name,)*
                }
            }

            /// Computes it, by the same methods that compiled rules call.
            pub(super) fn of<C: Real>(self, $($x: C),*) -> C {
                match self {
                    $($Kind::$Name => $does,)*
                }
            }
        }
    };
}

functions! {
    /// A function of one number.
    Unary of (x):
    Neg "-" -x;
    Abs "abs" x.abs();
    Signum "signum" x.signum();
    Sqrt "sqrt" x.sqrt();
    CubeRoot "cube_root" x.cube_root();
    Cbrt "cbrt" x.cbrt();
    Recip "recip" x.recip();
    Floor "floor" x.floor();
    Ceil "ceil" x.ceil();
    Round "round" x.round();
    Trunc "trunc" x.trunc();
    Fract "fract" x.fract();
    Exp "exp" x.exp();
    Exp2 "exp2" x.exp2();
    ExpM1 "exp_m1" x.exp_m1();
    Ln "ln" x.ln();
    Log2 "log2" x.log2();
    Log10 "log10" x.log10();
    Ln1p "ln_1p" x.ln_1p();
    Sin "sin" x.sin();
    Cos "cos" x.cos();
    Tan "tan" x.tan();
    Asin "asin" x.asin();
    Acos "acos" x.acos();
    Atan "atan" x.atan();
    Sinh "sinh" x.sinh();
    Cosh "cosh" x.cosh();
    Tanh "tanh" x.tanh();
    Asinh "asinh" x.asinh();
    Acosh "acosh" x.acosh();
    Atanh "atanh" x.atanh();
    ToDegrees "to_degrees" x.to_degrees();
    ToRadians "to_radians" x.to_radians();
}

functions! {
    /// A function of two numbers.
    Binary of (x, y):
    Add "+" x + y;
    Sub "-" x - y;
    Mul "*" x * y;
    Div "/" x / y;
    Rem "%" x % y;
    Max "max" x.max(y);
    Min "min" x.min(y);
    Copysign "copysign" x.copysign(y);
    Powf "powf" x.powf(y);
    Log "log" x.log(y);
    AbsSub "abs_sub" x.abs_sub(y);
    Hypot "hypot" x.hypot(y);
    Atan2 "atan2" x.atan2(y);
}

impl Unary {
    /// Returns whether it is written before its operand, without parentheses.
    pub fn is_operator(self) -> bool {
        self == Unary::Neg
    }
}

impl Binary {
    /// Returns whether it is written between its operands.
    pub fn is_operator(self) -> bool {
        matches!(self, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem)
    }
}

/// A comparison of two numbers. The others follow by swapping operands or negating results; with NaN none holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
}

impl Comparison {
    /// Returns the operator.
    pub fn name(self) -> &'static str {
        match self {
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Equal => "==",
        }
    }

    fn of<C: Real>(self, x: C, y: C) -> bool {
        match self {
            Comparison::Less => x < y,
            Comparison::LessOrEqual => x <= y,
            Comparison::Equal => x == y,
        }
    }
}

/// One line of a [`Program`](super::Program): an operation, whose operands are indices of earlier lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The same value in each step.
    Constant(Value),
    /// A number computed once per step, by index.
    Scalar(u32),
    /// The incoming update.
    Update,
    /// The parameter.
    Param,
    /// The element of a state array, by index.
    Slot(u32),
    /// The operand in double precision, exactly.
    Widen(u32),
    /// The nearest number of a smaller storage type, ties to even.
    Round(u32, DType),
    /// A function of one number.
    Unary(Unary, u32),
    /// A number to the power of a whole number.
    Powi(u32, i32),
    /// A function of two numbers. Counts are only added.
    Binary(Binary, u32, u32),
    /// The first times the second, plus the third, rounded once.
    MulAdd(u32, u32, u32),
    /// True if the comparison of two numbers holds.
    Compare(Comparison, u32, u32),
    /// The second if the first is true, else the third.
    Select(u32, u32, u32),
    /// A row-major array of shape `[a, b, c, d]` with its middle axes transposed, of shape `[a, c, b, d]`.
    ///
    /// This and the following operate on arrays, not on single elements: operands have an element for each of the
    /// leaf's, or are results of such operations.
    Transpose(u32, [u32; 4]),
    /// A batch of products of matrices `[n, k]` and `[k, m]`; the first of four numbers is the batch size.
    ///
    /// If transposed, the products are of `[n, k]` and the transpose of `[m, k]`.
    Product(u32, u32, [u32; 4], bool),
    /// The inner products of the chunks of two arrays; the numbers are those of elements, and of elements per chunk.
    /// Summed like sums, then rounded.
    Dots(u32, u32, [u32; 2]),
    /// Each element repeated in place; the numbers are those of elements, and of repetitions.
    Repeat(u32, [u32; 2]),
}

impl Op {
    /// Returns the lines of its operands.
    pub fn operands(self) -> impl Iterator<Item = u32> {
        let (operands, n) = self.all_operands();
        operands.into_iter().take(n)
    }

    fn all_operands(self) -> ([u32; 3], usize) {
        match self {
            Op::Constant(_) | Op::Scalar(_) | Op::Update | Op::Param | Op::Slot(_) => ([0; 3], 0),
            Op::Widen(a) | Op::Round(a, _) | Op::Unary(_, a) | Op::Powi(a, _) => ([a, 0, 0], 1),
            Op::Transpose(a, _) | Op::Repeat(a, _) => ([a, 0, 0], 1),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => ([a, b, 0], 2),
            Op::Product(a, b, ..) | Op::Dots(a, b, _) => ([a, b, 0], 2),
            Op::MulAdd(a, b, c) | Op::Select(a, b, c) => ([a, b, c], 3),
        }
    }

    pub(super) fn with_operands(self, mut f: impl FnMut(u32) -> u32) -> Op {
        match self {
            Op::Constant(_) | Op::Scalar(_) | Op::Update | Op::Param | Op::Slot(_) => self,
            Op::Widen(a) => Op::Widen(f(a)),
            Op::Round(a, dtype) => Op::Round(f(a), dtype),
            Op::Unary(op, a) => Op::Unary(op, f(a)),
            Op::Powi(a, n) => Op::Powi(f(a), n),
            Op::Binary(op, a, b) => Op::Binary(op, f(a), f(b)),
            Op::Compare(op, a, b) => Op::Compare(op, f(a), f(b)),
            Op::MulAdd(a, b, c) => Op::MulAdd(f(a), f(b), f(c)),
            Op::Select(a, b, c) => Op::Select(f(a), f(b), f(c)),
            Op::Transpose(a, shape) => Op::Transpose(f(a), shape),
            Op::Product(a, b, shape, transposed) => Op::Product(f(a), f(b), shape, transposed),
            Op::Dots(a, b, stretches) => Op::Dots(f(a), f(b), stretches),
            Op::Repeat(a, times) => Op::Repeat(f(a), times),
        }
    }

    /// Returns whether it computes an array of whole arrays, not an element of elements.
    pub fn is_array_op(self) -> bool {
        matches!(self, Op::Transpose(..) | Op::Product(..) | Op::Dots(..) | Op::Repeat(..))
    }

    /// Returns whether it is an input, not computed from other lines.
    pub fn is_input(self) -> bool {
        self.all_operands().1 == 0
    }

    /// Returns the type of its value, given those of its operands; inputs have `input`.
    pub(super) fn ty(self, input: Type, of: impl Fn(u32) -> Type) -> Type {
        match self {
            Op::Constant(value) => value.ty(),
            Op::Scalar(_) | Op::Update | Op::Param | Op::Slot(_) => input,
            Op::Widen(_) => Type::F64,
            Op::Round(a, _) | Op::Unary(_, a) | Op::Powi(a, _) | Op::Binary(_, a, _) => of(a),
            Op::MulAdd(a, _, _) | Op::Select(_, a, _) => of(a),
            Op::Transpose(a, _) | Op::Product(a, ..) | Op::Dots(a, ..) | Op::Repeat(a, _) => of(a),
            Op::Compare(..) => Type::Bool,
        }
    }

    /// Evaluates it; `None` for inputs and operations on arrays.
    pub(super) fn evaluate(self, of: impl Fn(u32) -> Value) -> Option<Value> {
        use Value::{Bool, Count, F32, F64};
        Some(match self {
            Op::Constant(value) => value,
            Op::Scalar(_) | Op::Update | Op::Param | Op::Slot(_) => return None,
            Op::Transpose(..) | Op::Product(..) | Op::Dots(..) | Op::Repeat(..) => return None,
            Op::Widen(a) => F64(of(a).as_f64()),
            Op::Round(a, dtype) => with_dtype!(dtype, T => match of(a) {
                F32(x) => F32(convert::<T, f32>(convert::<f32, T>(x))),
                F64(x) => F64(convert::<T, f64>(convert::<f64, T>(x))),
                other => ill_typed(other),
            }),
            Op::Unary(op, a) => match of(a) {
                F32(x) => F32(op.of(x)),
                F64(x) => F64(op.of(x)),
                other => ill_typed(other),
            },
            Op::Powi(a, n) => match of(a) {
                F32(x) => F32(x.powi(n)),
                F64(x) => F64(x.powi(n)),
                other => ill_typed(other),
            },
            Op::Binary(op, a, b) => match (of(a), of(b)) {
                (F32(x), F32(y)) => F32(op.of(x, y)),
                (F64(x), F64(y)) => F64(op.of(x, y)),
                (Count(x), Count(y)) if op == Binary::Add => Count(x.wrapping_add(y)),
                (other, _) => ill_typed(other),
            },
            Op::MulAdd(a, b, c) => match (of(a), of(b), of(c)) {
                (F32(x), F32(y), F32(z)) => F32(x.mul_add(y, z)),
                (F64(x), F64(y), F64(z)) => F64(x.mul_add(y, z)),
                (other, ..) => ill_typed(other),
            },
            Op::Compare(op, a, b) => match (of(a), of(b)) {
                (F32(x), F32(y)) => Bool(op.of(x, y)),
                (F64(x), F64(y)) => Bool(op.of(x, y)),
                (other, _) => ill_typed(other),
            },
            Op::Select(c, a, b) => match of(c) {
                Bool(yes) => of(if yes { a } else { b }),
                other => ill_typed(other),
            },
        })
    }
}

/// Panics: the recorder passes supported types only.
fn ill_typed(value: Value) -> ! {
    unreachable!("an operation that {value:?} does not support")
}
