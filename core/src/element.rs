//! The number types of leaves: storage and compute types.

use core::fmt;

use num_traits::{Float, NumAssign};

mod cube_root;
mod engine_real;
#[cfg(feature = "half")]
mod half_float;
mod rounding;

pub use engine_real::{BothTypes, TypeFamily};
pub(crate) use engine_real::{Contribution, EngineReal, RecordedArray, TypedJob};
#[cfg(feature = "half")]
pub use half_float::HalfFloat;
pub use rounding::Rounding;

/// The type of a leaf's elements.
///
/// `F16` and `Bf16` leaves need the feature `half`; the variants always exist, so that any build can read and report a
/// schema or a file with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
// A whole word: a lone byte makes copies of structs use two overlapping moves, whose result cannot be forwarded to the
// next load.
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
    /// 8-bit state of [`quantized`]: the square root of the magnitude, and a sign. No leaf has this
    /// type.
    ///
    /// [`quantized`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
    Root8,
    /// 8-bit state: the fourth root of non-negative numbers. No leaf has this type.
    #[cfg_attr(feature = "serde", serde(rename = "fourth_root8"))]
    FourthRoot8,
    /// 8-bit state: the logarithm of the magnitude, in eighths of an octave, and a sign. No leaf has this type.
    Log8,
    /// 8-bit state: the logarithm, in eighths of an octave, of non-negative numbers. No leaf has this type.
    #[cfg_attr(feature = "serde", serde(rename = "unsigned_log8"))]
    UnsignedLog8,
}

/// 8-bit elements with a common scale.
pub(crate) const QUANTIZED_BLOCK: usize = 256;
/// Bytes of the scale, which precedes them.
pub(crate) const QUANTIZED_SCALE: usize = size_of::<f32>();

impl DType {
    /// Returns the bytes of one element; of 8-bit types without its share of the scale, see [`bytes`](DType::bytes).
    pub const fn size(self) -> usize {
        match self {
            DType::Root8 | DType::FourthRoot8 | DType::Log8 | DType::UnsignedLog8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }

    /// Returns the bytes of contiguous elements.
    ///
    /// Each 8-bit block of 256 has a scale of 4 bytes too, also a shorter last one.
    pub const fn bytes(self, elements: usize) -> usize {
        let scales = if self.is_quantized() { elements.div_ceil(QUANTIZED_BLOCK) * QUANTIZED_SCALE } else { 0 };
        elements * self.size() + scales
    }

    /// Returns the number of elements in `n` bytes of an 8-bit type; `n` for other types.
    #[cfg(feature = "checkpoint")]
    #[doc(hidden)]
    pub const fn elements(self, n: usize) -> usize {
        let scales = n.div_ceil(QUANTIZED_BLOCK + QUANTIZED_SCALE) * QUANTIZED_SCALE;
        if self.is_quantized() { n.saturating_sub(scales) } else { n }
    }

    /// Returns whether it is one of the 8-bit types, which only state has.
    pub const fn is_quantized(self) -> bool {
        matches!(self, DType::Root8 | DType::FourthRoot8 | DType::Log8 | DType::UnsignedLog8)
    }

    /// Returns whether `wider` represents every number of this type.
    #[doc(hidden)]
    pub const fn is_exact_in(self, wider: DType) -> bool {
        let is_half = matches!(self, DType::F16 | DType::Bf16);
        matches!((self, wider), (DType::F32, DType::F64)) || (is_half && matches!(wider, DType::F32 | DType::F64))
    }

    /// Returns the compute type of elements of this type: `F64` for itself, `F32` for all others.
    pub const fn compute(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// Returns the name for schemas, errors and configs: `f16`, `bf16`, `f32`, `f64`; `root8` and the like in schemas.
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

    /// Returns the leaf type of this name, if it exists.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::named(name).filter(|dtype| !dtype.is_quantized())
    }

    /// As [`from_name`](Self::from_name), with the types of state.
    pub(crate) fn named(name: &str) -> Option<DType> {
        let of_leaves = [DType::F16, DType::Bf16, DType::F32, DType::F64];
        let of_state = [DType::Root8, DType::FourthRoot8, DType::Log8, DType::UnsignedLog8];
        of_leaves.into_iter().chain(of_state).find(|dtype| dtype.name() == name)
    }

    /// Returns whether this build supports leaves of this type.
    pub const fn is_supported(self) -> bool {
        let is_half = matches!(self, DType::F16 | DType::Bf16);
        !self.is_quantized() && (!is_half || cfg!(feature = "half"))
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

/// A number type of leaves: `f32`, `f64`, and with the feature `half` also `f16` and `bf16`.
///
/// Sealed: the engine knows the memory layout of each. All of them are plain numbers of [`DType::size`] bytes for which
/// every bit pattern is a value, and zero is all bits clear.
pub trait Element:
    sealed::Sealed + Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static
{
    /// The compute type of this type.
    type Compute: Real;
    /// This type as a value.
    const DTYPE: DType;

    /// Converts to the compute type, exactly.
    fn widen(self) -> Self::Compute;
    /// Rounds to this type, ties to even.
    fn narrow(value: Self::Compute) -> Self;
    /// Converts to `f64`, exactly.
    fn as_f64(self) -> f64;
    /// Rounds an `f64` to this type, ties to even.
    fn from_f64(value: f64) -> Self;
}

/// A compute type: `f32` or `f64`.
///
/// Rules are generic over it, with all of [`num_traits::Float`]. [`Real::of`] converts constants. With the feature
/// `program` a third type, which no leaf has, records the operations on its values, which makes a [`Program`] of a
/// rule.
///
/// [`Program`]: https://docs.rs/gradchain/latest/gradchain/program/struct.Program.html
pub trait Real: Element<Compute = Self> + Float + NumAssign + fmt::Display + core::iter::Sum + EngineReal {
    /// Rounds an `f64` constant or scalar to this type.
    #[inline(always)]
    fn of(value: f64) -> Self {
        <Self as Element>::from_f64(value)
    }

    /// The type of sums over elements: `f64`.
    type Wide: Real;

    /// Converts to [`Wide`](Real::Wide), exactly.
    fn wide(self) -> Self::Wide;

    /// Returns the cube root, with the sign of the number, to a unit or two in the last place. NaN stays NaN.
    ///
    /// Unlike [`Float::cbrt`] it is plain arithmetic, which vectorizes and is bitwise identical on all CPUs.
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

/// Runs `$body` with `$T` as the Rust type of a [`DType`] value.
///
/// The only place where a run-time dtype becomes a type. Without the feature `half` no 16-bit leaf can be created.
#[doc(hidden)]
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            #[cfg(feature = "half")]
            $crate::DType::F16 => {
                type $T = half::f16;
                $body
            }
            #[cfg(feature = "half")]
            $crate::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            #[cfg(not(feature = "half"))]
            $crate::DType::F16 | $crate::DType::Bf16 => {
                unreachable!("16-bit leaves need the feature `half`")
            }
            quantized => unreachable!("state in {quantized} is read and written block by block"),
        }
    };
}
pub(crate) use with_dtype;

/// Rounds to another element type. Compiles to nothing for equal types, to one conversion where compute types suffice.
#[inline(always)]
pub fn convert<A: Element, B: Element>(value: A) -> B {
    if matches!(A::DTYPE.compute(), DType::F32) {
        // `f32` to `f64` and back cancel; the compute types have only `f64` in common.
        B::narrow(B::Compute::of(value.widen().as_f64()))
    } else {
        B::from_f64(value.as_f64())
    }
}
