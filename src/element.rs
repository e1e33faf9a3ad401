//! The number types of leaves: how they are stored, and in which type their arithmetic is done.

use core::fmt;

use num_traits::{Float, NumAssign};

mod cube_root;
mod in_engine;
mod rounding;
#[cfg(feature = "half")]
mod sixteen_bits;

pub(crate) use in_engine::{Both, ByReal, InEngine, InRecord, PerReal, Term};
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

    /// True if every number of this type is one of `wider` too.
    pub(crate) const fn is_exact_in(self, wider: DType) -> bool {
        let is_half = matches!(self, DType::F16 | DType::Bf16);
        matches!((self, wider), (DType::F32, DType::F64)) || (is_half && matches!(wider, DType::F32 | DType::F64))
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
