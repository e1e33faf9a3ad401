//! The number types of leaves: how they are stored, and in which type their arithmetic is done.

use core::fmt;
use core::ops::Range;

use num_traits::{Float, NumAssign};

mod cube_root;
mod rounding;
#[cfg(feature = "half")]
mod sixteen_bits;

pub(crate) use rounding::Rounding;
#[cfg(feature = "half")]
pub(crate) use sixteen_bits::SixteenBits;

/// The type of a leaf's elements.
///
/// `F16` and `Bf16` leaves need the feature `half`; the names are always there, so that a schema or a file that
/// mentions them can be read and reported by any build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
// A whole word, so that whatever holds one is copied by words: a byte with nothing beside it is copied by two moves
// that overlap, and who reads what was just written so waits for it.
#[repr(usize)]
pub enum DType {
    /// IEEE half precision: 5 bits of exponent, 10 of fraction.
    F16,
    /// Brain float: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// State in 8 bits, of [`quantized`](crate::quantized()): the root of the size, and a sign. No leaf has this type.
    Root8,
    /// State in 8 bits: the fourth root, of what is never negative. No leaf has this type.
    #[cfg_attr(feature = "serde", serde(rename = "fourth_root8"))]
    FourthRoot8,
    /// State in 8 bits: the logarithm of the size, in eighths of an octave, and a sign. No leaf has this type.
    Log8,
    /// State in 8 bits: the logarithm, in eighths of an octave, of what is never negative. No leaf has this type.
    #[cfg_attr(feature = "serde", serde(rename = "unsigned_log8"))]
    UnsignedLog8,
}

/// Elements of state in 8 bits that have one scale.
pub(crate) const CODED_BLOCK: usize = 256;
/// The bytes of that, before those of the block's elements.
pub(crate) const CODED_SCALE: usize = size_of::<f32>();

impl DType {
    /// Bytes of one element; of types in 8 bits besides its share of the scale, see [`bytes`](DType::bytes).
    pub const fn size(self) -> usize {
        match self {
            DType::Root8 | DType::FourthRoot8 | DType::Log8 | DType::UnsignedLog8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }

    /// Bytes of so many elements in a row: in 8 bits each block of 256 has a scale of 4 bytes too, and so has the last,
    /// however short.
    pub const fn bytes(self, elements: usize) -> usize {
        let scales = if self.is_coded() { elements.div_ceil(CODED_BLOCK) * CODED_SCALE } else { 0 };
        elements * self.size() + scales
    }

    /// Elements of a row of so many bytes, where this is the type of codes; else `n` itself.
    #[cfg(feature = "checkpoint")]
    pub(crate) const fn elements(self, n: usize) -> usize {
        let scales = n.div_ceil(CODED_BLOCK + CODED_SCALE) * CODED_SCALE;
        if self.is_coded() { n.saturating_sub(scales) } else { n }
    }

    /// Whether it is one of the types of 8 bits, which only state has.
    pub const fn is_coded(self) -> bool {
        matches!(self, DType::Root8 | DType::FourthRoot8 | DType::Log8 | DType::UnsignedLog8)
    }

    /// The type that arithmetic on elements of this type is done in: `F64` for itself, `F32` for all others.
    pub const fn compute(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// The name used in schemas, errors and configs: `f16`, `bf16`, `f32`, `f64`; `root8` and the like in schemas only.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Root8 => "root8",
            DType::FourthRoot8 => "fourth_root8",
            DType::Log8 => "log8",
            DType::UnsignedLog8 => "unsigned_log8",
        }
    }

    /// The type of leaves of this name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::named(name).filter(|dtype| !dtype.is_coded())
    }

    /// The type of leaves or of state of this name.
    pub(crate) fn named(name: &str) -> Option<DType> {
        let of_leaves = [DType::F16, DType::Bf16, DType::F32, DType::F64];
        let of_state = [DType::Root8, DType::FourthRoot8, DType::Log8, DType::UnsignedLog8];
        of_leaves.into_iter().chain(of_state).find(|dtype| dtype.name() == name)
    }

    /// Whether this build can hold leaves of this type.
    pub const fn is_supported(self) -> bool {
        let is_half = matches!(self, DType::F16 | DType::Bf16);
        !self.is_coded() && (!is_half || cfg!(feature = "half"))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    #[cfg(feature = "half")]
    impl Sealed for half::f16 {}
    #[cfg(feature = "half")]
    impl Sealed for half::bf16 {}
}

/// A number type that leaves can have: `f32`, `f64`, and with the feature `half` also `f16` and `bf16`.
///
/// Sealed: the engine knows the memory layout of each. All of them are plain numbers of [`DType::size`] bytes for
/// which every bit pattern is a value, and zero is all bits clear.
pub trait Element:
    sealed::Sealed + Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static
{
    /// The type that arithmetic on this one is done in.
    type Compute: Real;
    /// The name of this type as a value.
    const DTYPE: DType;

    /// This value in its compute type, exactly.
    fn widen(self) -> Self::Compute;
    /// The nearest value of this type, ties to even.
    fn narrow(value: Self::Compute) -> Self;
    /// This value in `f64`, exactly.
    fn as_f64(self) -> f64;
    /// The nearest value of this type to an `f64`, ties to even.
    fn from_f64(value: f64) -> Self;
}

/// A type that arithmetic is done in: `f32` or `f64`.
///
/// Rules are generic over it; all of [`num_traits::Float`] is at hand. Constants come in through [`Real::of`]. There is
/// one more such type, which no leaf has: a value of it stands for a number, and what is done with it is written down,
/// which makes a [`Program`](crate::program::Program) of a rule.
pub trait Real: Element<Compute = Self> + Float + NumAssign + fmt::Display + core::iter::Sum + InEngine {
    /// The nearest value of this type to an `f64` constant or scalar.
    #[inline(always)]
    fn of(value: f64) -> Self {
        <Self as Element>::from_f64(value)
    }

    /// The type in which sums over elements are kept: `f64`.
    type Wide: Real;

    /// This value in [`Wide`](Real::Wide), exactly.
    fn wide(self) -> Self::Wide;

    /// The cube root, to a unit or two in the last place; of its sign, as the cube is. NaN stays NaN.
    ///
    /// Unlike [`Float::cbrt`] it is plain arithmetic, which vectorises and has the same bits everywhere.
    fn cube_root(self) -> Self;
}

/// What the engine asks of a number besides. It has no path outside of this crate.
pub trait InEngine: Sized {
    /// The nearest value of a type of leaves that this is the compute type of, ties to even.
    fn rounded(self, to: Rounding) -> Self;

    /// The number with those of its bits that `keep` has, and those of `set`. For numbers in memory only.
    #[inline(always)]
    fn masked(self, keep: Self, set: Self) -> Self {
        let _ = (keep, set);
        self
    }

    /// Zero for NaN.
    #[inline(always)]
    fn unless_nan(self) -> Self
    where
        Self: Real,
    {
        if self.is_nan() { Self::zero() } else { self }
    }

    /// One for NaN, else zero.
    #[inline(always)]
    fn count_nan(self) -> u32
    where
        Self: Real,
    {
        self.is_nan().into()
    }

    /// The number of which every bit is set.
    #[inline(always)]
    fn of_all_bits() -> Self
    where
        Self: Real,
    {
        Self::nan()
    }

    /// The larger of two numbers that are not negative, or NaN.
    #[inline(always)]
    fn larger(self, other: Self) -> Self
    where
        Self: Real,
    {
        if other > self || other.is_nan() { other } else { self }
    }

    /// Whether what is done to a value of this type is written down: it goes the engine's way, and is nowhere in
    /// memory.
    const RECORDS: bool = false;

    /// Runs what is done to an element in one place of a chain: to the state of it in these arrays, to the update,
    /// which is returned, and to those sums of the chain. Called for types that [record](InEngine::RECORDS) only.
    ///
    /// It is run once for each way through it, and what follows goes on with one value for each result: so what one
    /// part compares does not multiply the ways through the next.
    fn record(arrays: &[Option<InRecord>], sums: Range<usize>, part: Does<'_, Self>) -> Self
    where
        Self: Real,
    {
        let _ = (arrays, sums, part);
        unreachable!("numbers are in memory, and gone through in loops")
    }

    /// From here on the part of this name is recorded; which one was so far.
    fn enter(part: &'static str) -> &'static str {
        part
    }

    /// Says why the part that was [entered](InEngine::enter) last cannot be recorded.
    fn refuse(why: &'static str) {
        let _ = why;
    }

    /// The member of a pair that is made for this type; none for a type that records.
    fn pick<F: PerReal>(both: &Both<F>) -> Option<&F::Of<Self>>
    where
        Self: Real;

    /// Does what a job has for this type.
    fn split<J: ByReal>(job: J, argument: J::Argument<Self>) -> J::Output
    where
        Self: Real;
}

/// What a part does to one element, given the numbers of its arrays and its terms of sums: it returns the update.
pub(crate) type Does<'a, C> = &'a dyn Fn(&mut [C], &mut [Term<C>]) -> C;

/// What one element adds to one of the sums of a chain: it is counted, or a number is added up.
#[derive(Clone, Copy, Debug)]
pub struct Term<C: Real> {
    pub(crate) count: u32,
    pub(crate) sum: Option<C::Wide>,
    /// The update and the parameter as the part got them that adds to this sum, if that can be worked out after all
    /// else is done to the element; see [`Shape::later`](crate::engine::Shape::later).
    pub(crate) went_in: Option<(C, C)>,
}

impl<C: Real> Term<C> {
    /// What is added: a count as a number, and minus zero, which changes no sum, where there is nothing to add.
    #[inline(always)]
    pub(crate) fn number(&self) -> f64 {
        let count = if self.count == 0 { -0.0 } else { f64::from(self.count) };
        self.sum.map_or(count, |sum| sum.as_f64())
    }
}

impl<C: Real> Default for Term<C> {
    #[inline(always)]
    fn default() -> Term<C> {
        Term { count: 0, sum: None, went_in: None }
    }
}

/// A leaf's array, where values are recorded: which array it is, by its address, and the type of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRecord {
    pub(crate) address: usize,
    pub(crate) dtype: DType,
}

/// What is said apart for each compute type, since it cannot be generic: a call of a method of a trait object, say.
pub trait ByReal {
    /// What it is done to.
    type Argument<C: Real>;
    /// What comes of it.
    type Output;
    /// For `f32`.
    fn single(self, argument: Self::Argument<f32>) -> Self::Output;
    /// For `f64`.
    fn double(self, argument: Self::Argument<f64>) -> Self::Output;
    /// For a type that records, whose values are lines with numbers.
    fn recorded<C: Real>(self, argument: Self::Argument<C>, number: fn(C) -> u32, line: fn(u32) -> C) -> Self::Output;
}

/// A family of types with a member for each compute type: what a step works out once for `f32` and once for `f64`.
pub trait PerReal {
    /// The member for `C`.
    type Of<C: Real>: Copy + Send + Sync;
}

/// The two members of a [`PerReal`] family.
pub struct Both<F: PerReal> {
    pub(crate) single: F::Of<f32>,
    pub(crate) double: F::Of<f64>,
}

/// What a [`Real`] in memory does by its bits.
macro_rules! by_bits {
    ($Real:ident, $Bits:ident) => {
        #[inline(always)]
        fn masked(self, keep: $Real, set: $Real) -> $Real {
            $Real::from_bits(self.to_bits() & keep.to_bits() | set.to_bits())
        }

        /// With a choice a loop would be one of stores that are done for NaNs only, which is slow.
        #[inline(always)]
        fn unless_nan(self) -> $Real {
            self.masked(if self.is_nan() { 0.0 } else { $Real::of_all_bits() }, 0.0)
        }

        /// Its bits are more than those of infinity. A loop that also chooses by a comparison would take the lanes of
        /// its mask apart to count them.
        #[inline(always)]
        fn count_nan(self) -> u32 {
            ($Real::INFINITY.to_bits().wrapping_sub(self.abs().to_bits()) >> ($Bits::BITS - 1)) as u32
        }

        /// As whole numbers their bits have the same order, and those of NaN are the largest: one instruction, where
        /// two comparisons and a choice are five.
        #[inline(always)]
        fn larger(self, other: $Real) -> $Real {
            $Real::from_bits(self.to_bits().max(other.to_bits()))
        }

        #[inline(always)]
        fn of_all_bits() -> $Real {
            $Real::from_bits($Bits::MAX)
        }
    };
}

impl Real for f32 {
    type Wide = f64;

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn cube_root(self) -> f32 {
        cube_root::single(self)
    }
}

impl InEngine for f32 {
    #[inline(always)]
    fn rounded(self, to: Rounding) -> f32 {
        to.single(self)
    }

    by_bits!(f32, u32);

    #[inline(always)]
    fn pick<F: PerReal>(both: &Both<F>) -> Option<&F::Of<f32>> {
        Some(&both.single)
    }

    fn split<J: ByReal>(job: J, argument: J::Argument<f32>) -> J::Output {
        job.single(argument)
    }
}

impl Real for f64 {
    type Wide = f64;

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn cube_root(self) -> f64 {
        cube_root::double(self)
    }
}

impl InEngine for f64 {
    #[inline(always)]
    fn rounded(self, _: Rounding) -> f64 {
        self
    }

    by_bits!(f64, u64);

    #[inline(always)]
    fn pick<F: PerReal>(both: &Both<F>) -> Option<&F::Of<f64>> {
        Some(&both.double)
    }

    fn split<J: ByReal>(job: J, argument: J::Argument<f64>) -> J::Output {
        job.double(argument)
    }
}

impl Element for f32 {
    type Compute = f32;
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn narrow(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
}

impl Element for f64 {
    type Compute = f64;
    const DTYPE: DType = DType::F64;

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_f64(value: f64) -> f64 {
        value
    }
}

/// Runs `$body` with the type alias `$T` standing for the Rust type of a [`DType`] value.
///
/// The one place where a run-time dtype becomes a type; without the feature `half` the 16-bit types cannot occur, since
/// nothing can create a leaf of them.
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::element::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::element::DType::F64 => {
                type $T = f64;
                $body
            }
            #[cfg(feature = "half")]
            $crate::element::DType::F16 => {
                type $T = half::f16;
                $body
            }
            #[cfg(feature = "half")]
            $crate::element::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            #[cfg(not(feature = "half"))]
            $crate::element::DType::F16 | $crate::element::DType::Bf16 => {
                unreachable!("leaves of 16-bit types cannot be made without the feature `half`")
            }
            coded => unreachable!("state in {coded} is read and written block by block"),
        }
    };
}
pub(crate) use with_dtype;

/// The nearest value of another element type. Compiles to nothing where the types are the same, and to one conversion
/// in the compute types where they fit.
#[inline(always)]
pub(crate) fn convert<A: Element, B: Element>(value: A) -> B {
    if matches!(A::DTYPE.compute(), DType::F32) {
        // `f32` to `f64` and back cancel; written so because the two compute types have no common supertype but `f64`.
        B::narrow(B::Compute::of(value.widen().as_f64()))
    } else {
        B::from_f64(value.as_f64())
    }
}
