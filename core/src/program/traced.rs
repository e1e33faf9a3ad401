use core::cmp::Ordering;
use core::fmt;
use core::iter::{Sum, empty};
use core::num::FpCategory;
use core::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Range, Rem, RemAssign, Sub, SubAssign};

use num_traits::{Float, Num, NumCast, One, ToPrimitive, Zero};

use super::op::{Binary, Comparison, Op, Type, Unary, Value};
use super::recorder::{self, with};
use crate::element::{
    BothTypes, Contribution, DType, Element, EngineReal, Real, RecordedArray, Rounding, TypeFamily, TypedJob, sealed,
};

/// A number in place of one of type `F`: a line of this thread's recording.
///
/// It has the size of `F`, and any bits are valid, as [`Element`] requires: the line is checked on use. All-zero bits
/// are the number zero.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Traced<F: Kind>(F::Line);

/// A type that a [`Traced`] represents.
pub(crate) trait Kind: Real {
    /// A line number, of the size of the number.
    type Line: Copy + Default + Send + Sync + 'static;
    const TYPE: Type;
    fn name_line(line: u32) -> Self::Line;
    fn line_named(name: Self::Line) -> u32;
}

impl Kind for f32 {
    type Line = u32;
    const TYPE: Type = Type::F32;
    fn name_line(line: u32) -> u32 {
        line
    }
    fn line_named(name: u32) -> u32 {
        name
    }
}

impl Kind for f64 {
    type Line = u64;
    const TYPE: Type = Type::F64;
    fn name_line(line: u32) -> u64 {
        line.into()
    }
    fn line_named(name: u64) -> u32 {
        u32::try_from(name).unwrap_or(u32::MAX)
    }
}

/// Not inlined, because every operation of every part calls it: inlined, programs take a sixth of the compile time.
impl<F: Kind> Traced<F> {
    pub(super) fn of_line(line: u32) -> Traced<F> {
        Traced(F::name_line(line))
    }

    #[inline(never)]
    pub(super) fn line(self) -> u32 {
        match F::line_named(self.0) {
            0 => with(|r| r.intern(Op::Constant(Value::number(F::TYPE, 0.0)))),
            line => line,
        }
    }

    #[inline(never)]
    pub(super) fn intern(op: Op) -> Traced<F> {
        Traced::of_line(with(|r| r.intern(op)))
    }

    #[inline(never)]
    fn constant(value: F) -> Traced<F> {
        Traced::intern(Op::Constant(Value::number(F::TYPE, value.as_f64())))
    }

    #[inline(never)]
    fn unary(self, op: Unary) -> Traced<F> {
        Traced::intern(Op::Unary(op, self.line()))
    }

    #[inline(never)]
    fn binary(self, op: Binary, other: Traced<F>) -> Traced<F> {
        Traced::intern(Op::Binary(op, self.line(), other.line()))
    }

    #[inline(never)]
    fn holds(self, comparison: Comparison, other: Traced<F>) -> bool {
        let (a, b) = (self.line(), other.line());
        with(|r| r.decide(comparison, a, b))
    }

    /// Returns the value, unless it differs between elements.
    #[inline(never)]
    fn known(self) -> Option<f64> {
        let line = self.line();
        with(|r| {
            let value = r.value(line);
            if value.is_none() {
                r.refuse("it inspects a number other than by arithmetic and comparisons");
            }
            value.map(Value::as_f64)
        })
    }
}

impl<F: Kind> fmt::Debug for Traced<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", F::line_named(self.0))
    }
}

impl<F: Kind> fmt::Display for Traced<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", F::line_named(self.0))
    }
}

impl<F: Kind> Default for Traced<F> {
    fn default() -> Traced<F> {
        Traced(F::Line::default())
    }
}

impl<F: Kind> PartialEq for Traced<F> {
    fn eq(&self, other: &Traced<F>) -> bool {
        self.holds(Comparison::Equal, *other)
    }
}

impl<F: Kind> PartialOrd for Traced<F> {
    fn partial_cmp(&self, other: &Traced<F>) -> Option<Ordering> {
        if self < other {
            Some(Ordering::Less)
        } else if self == other {
            Some(Ordering::Equal)
        } else if self > other {
            Some(Ordering::Greater)
        } else {
            None
        }
    }
    fn lt(&self, other: &Traced<F>) -> bool {
        self.holds(Comparison::Less, *other)
    }
    fn le(&self, other: &Traced<F>) -> bool {
        self.holds(Comparison::LessOrEqual, *other)
    }
    fn gt(&self, other: &Traced<F>) -> bool {
        other.holds(Comparison::Less, *self)
    }
    fn ge(&self, other: &Traced<F>) -> bool {
        other.holds(Comparison::LessOrEqual, *self)
    }
}

/// Implements methods: constants, functions of one and two numbers, operators.
macro_rules! recorded {
    (constant: $($f:ident),*) => {$(
        fn $f() -> Self {
            Traced::constant(F::$f())
        }
    )*};
    (Unary: $($f:ident $Name:ident),*) => {$(
        fn $f(self) -> Self {
            self.unary(Unary::$Name)
        }
    )*};
    (Binary: $($f:ident $Name:ident),*) => {$(
        fn $f(self, other: Self) -> Self {
            self.binary(Binary::$Name, other)
        }
    )*};
    (operators: $($Trait:ident $f:ident $Assign:ident $assign:ident),*) => {$(
        impl<F: Kind> $Trait for Traced<F> {
            type Output = Traced<F>;
            recorded!(Binary: $f $Trait);
        }

        impl<F: Kind> $Assign for Traced<F> {
            fn $assign(&mut self, other: Traced<F>) {
                *self = self.binary(Binary::$Trait, other);
            }
        }
    )*};
}
recorded!(
    operators: Add add AddAssign add_assign, Sub sub SubAssign sub_assign, Mul mul MulAssign mul_assign,
    Div div DivAssign div_assign, Rem rem RemAssign rem_assign
);

impl<F: Kind> Neg for Traced<F> {
    type Output = Traced<F>;
    fn neg(self) -> Traced<F> {
        self.unary(Unary::Neg)
    }
}

impl<F: Kind> Sum for Traced<F> {
    fn sum<I: Iterator<Item = Traced<F>>>(numbers: I) -> Traced<F> {
        // Starts from the sum of no numbers in the standard library.
        numbers.fold(Traced::constant(empty::<F>().sum()), |sum, x| sum + x)
    }
}

impl<F: Kind> Zero for Traced<F> {
    fn zero() -> Traced<F> {
        Traced::default()
    }
    fn is_zero(&self) -> bool {
        *self == Traced::zero()
    }
}

impl<F: Kind> One for Traced<F> {
    fn one() -> Traced<F> {
        Traced::constant(F::one())
    }
}

impl<F: Kind> Num for Traced<F> {
    type FromStrRadixErr = <F as Num>::FromStrRadixErr;
    fn from_str_radix(text: &str, radix: u32) -> Result<Traced<F>, Self::FromStrRadixErr> {
        F::from_str_radix(text, radix).map(Traced::constant)
    }
}

impl<F: Kind> ToPrimitive for Traced<F> {
    fn to_i64(&self) -> Option<i64> {
        self.known().and_then(|value| value.to_i64())
    }
    fn to_u64(&self) -> Option<u64> {
        self.known().and_then(|value| value.to_u64())
    }
    fn to_f64(&self) -> Option<f64> {
        Some(self.as_f64())
    }
}

impl<F: Kind> NumCast for Traced<F> {
    fn from<N: ToPrimitive>(number: N) -> Option<Traced<F>> {
        <F as NumCast>::from(number).map(|number| Traced::from_f64(number.as_f64()))
    }
}

impl<F: Kind> Float for Traced<F> {
    recorded!(constant: nan, infinity, neg_infinity, neg_zero, min_value, min_positive_value, epsilon, max_value);
    recorded!(Unary:
        floor Floor, ceil Ceil, round Round, trunc Trunc, fract Fract, abs Abs, signum Signum, recip Recip, sqrt Sqrt, exp Exp,
        exp2 Exp2, ln Ln, log2 Log2, log10 Log10, to_degrees ToDegrees, to_radians ToRadians, cbrt Cbrt, sin Sin, cos Cos, tan Tan,
        asin Asin, acos Acos, atan Atan, exp_m1 ExpM1, ln_1p Ln1p, sinh Sinh, cosh Cosh, tanh Tanh, asinh Asinh, acosh Acosh,
        atanh Atanh
    );
    recorded!(Binary:
        powf Powf, log Log, max Max, min Min, abs_sub AbsSub, hypot Hypot, atan2 Atan2, copysign Copysign
    );

    fn powi(self, n: i32) -> Self {
        Traced::intern(Op::Powi(self.line(), n))
    }
    fn mul_add(self, a: Self, b: Self) -> Self {
        Traced::intern(Op::MulAdd(self.line(), a.line(), b.line()))
    }
    fn sin_cos(self) -> (Self, Self) {
        (self.sin(), self.cos())
    }
    fn clamp(self, min: Self, max: Self) -> Self {
        let x = if self < min { min } else { self };
        if x > max { max } else { x }
    }
    fn is_nan(self) -> bool {
        !self.holds(Comparison::Equal, self)
    }
    fn is_infinite(self) -> bool {
        self.abs() == Self::infinity()
    }
    fn is_finite(self) -> bool {
        self.abs() < Self::infinity()
    }
    fn is_normal(self) -> bool {
        self.classify() == FpCategory::Normal
    }
    fn is_subnormal(self) -> bool {
        self.classify() == FpCategory::Subnormal
    }
    fn classify(self) -> FpCategory {
        let size = self.abs();
        if size.is_nan() {
            FpCategory::Nan
        } else if size == Self::infinity() {
            FpCategory::Infinite
        } else if size >= Self::min_positive_value() {
            FpCategory::Normal
        } else if size > Self::zero() {
            FpCategory::Subnormal
        } else {
            FpCategory::Zero
        }
    }
    fn is_sign_positive(self) -> bool {
        !self.is_sign_negative()
    }
    fn is_sign_negative(self) -> bool {
        // Also for zeros and NaN.
        Self::one().copysign(self) < Self::zero()
    }
    fn integer_decode(self) -> (u64, i16, i8) {
        self.as_f64().integer_decode()
    }
}

impl<F: Kind> sealed::Sealed for Traced<F> {}

impl<F: Kind> Element for Traced<F> {
    type Compute = Traced<F>;
    const DTYPE: DType = F::DTYPE;

    fn widen(self) -> Traced<F> {
        self
    }
    fn narrow(value: Traced<F>) -> Traced<F> {
        value
    }
    fn as_f64(self) -> f64 {
        self.known().unwrap_or(f64::NAN)
    }
    #[inline(never)]
    fn from_f64(value: f64) -> Traced<F> {
        Traced::of_line(with(|r| r.number(F::TYPE, value)))
    }
}

impl<F: Kind> Real for Traced<F> {
    type Wide = Traced<f64>;

    fn wide(self) -> Traced<f64> {
        match F::TYPE {
            Type::F64 => Traced::of_line(self.line()),
            _ => Traced::intern(Op::Widen(self.line())),
        }
    }

    fn cube_root(self) -> Traced<F> {
        self.unary(Unary::CubeRoot)
    }
}

impl<F: Kind> EngineReal for Traced<F> {
    const RECORDS: bool = true;

    fn rounded(self, to: Rounding) -> Traced<F> {
        let line = self.line();
        Traced::of_line(with(|r| r.rounded(line, to.dtype)))
    }

    fn record(
        arrays: &[Option<RecordedArray>],
        sums: Range<usize>,
        part: &dyn Fn(&mut [Traced<F>], &mut [Contribution<Traced<F>>]) -> Traced<F>,
    ) -> Traced<F> {
        if arrays.iter().flatten().any(|array| array.dtype.is_quantized()) {
            Traced::<F>::refuse("its state is 8-bit, which devices do not support");
        }
        let held = |array: &Option<RecordedArray>| array.map(|array| with(|r| r.slot(array)));
        let held: Vec<_> =
            arrays.iter().map(|array| held(array).map_or_else(Traced::default, Traced::of_line)).collect();
        let results = recorder::all_paths(&mut || {
            let (mut slots, mut terms) = (held.clone(), vec![Contribution::default(); sums.len()]);
            let u = part(&mut slots, &mut terms);
            let slots = slots.into_iter().map(Traced::line);
            let terms = terms.into_iter().map(|term: Contribution<Traced<F>>| match term.sum {
                Some(sum) => sum.line(),
                None => with(|r| r.intern(Op::Constant(Value::Count(term.count)))),
            });
            slots.chain(terms).chain([u.line()]).collect()
        });
        let (slots, rest) = results.split_at(arrays.len());
        let (terms, u) = rest.split_at(sums.len());
        with(|r| {
            let written = arrays.iter().zip(slots).filter_map(|(array, line)| Some(((*array)?, *line)));
            written.for_each(|(array, line)| r.write(array, line));
            sums.zip(terms).for_each(|(sum, line)| r.add(sum, *line));
        });
        Traced::of_line(u[0])
    }

    fn enter(part: &'static str) -> &'static str {
        with(|r| r.enter(part))
    }

    fn refuse(why: &'static str) {
        with(|r| r.refuse(why));
    }

    fn member<P: TypeFamily>(_: &BothTypes<P>) -> Option<&P::Of<Traced<F>>> {
        None
    }

    fn dispatch_type<J: TypedJob>(job: J, argument: J::Argument<Traced<F>>) {
        job.recorded(argument, Traced::line, Traced::of_line)
    }
}
