//! The engine's requirements on numbers beyond arithmetic, and dispatch by type.

use core::ops::Range;

use super::{DType, Element, Real, Rounding};

/// The engine's requirements on numbers. Sealed.
pub trait EngineReal: Sized {
    /// Rounds to a leaf type with this compute type, ties to even.
    fn rounded(self, to: Rounding) -> Self;

    /// Returns the number with the bits in `keep`, and those in `set`. Not for recorded numbers.
    #[inline(always)]
    fn masked(self, keep: Self, set: Self) -> Self {
        let _ = (keep, set);
        self
    }

    /// Returns zero for NaN, else the number.
    #[inline(always)]
    fn nan_to_zero(self) -> Self
    where
        Self: Real,
    {
        if self.is_nan() { Self::zero() } else { self }
    }

    /// Returns one for NaN, else zero.
    #[inline(always)]
    fn count_nan(self) -> u32
    where
        Self: Real,
    {
        self.is_nan().into()
    }

    /// Returns the number with all bits set.
    #[inline(always)]
    fn all_bits_set() -> Self
    where
        Self: Real,
    {
        Self::nan()
    }

    /// Returns the larger of two non-negative numbers, or NaN.
    #[inline(always)]
    fn max_or_nan(self, other: Self) -> Self
    where
        Self: Real,
    {
        if other > self || other.is_nan() { other } else { self }
    }

    /// True for recorded values, which have no storage.
    const RECORDS: bool = false;

    /// Runs a part's operation on an element: its state in these arrays, its update, which is returned, and these sums
    /// of the chain. For types that [record](EngineReal::RECORDS) only.
    ///
    /// The operation runs once per path through it, and later operations continue with one value per result: a part's
    /// comparisons do not multiply the paths of the next.
    fn record(arrays: &[Option<RecordedArray>], sums: Range<usize>, part: ElementFn<'_, Self>) -> Self
    where
        Self: Real,
    {
        let _ = (arrays, sums, part);
        unreachable!("only recording types are recorded")
    }

    /// Begins recording this part, and returns the outer one.
    fn enter(part: &'static str) -> &'static str {
        part
    }

    /// Notes why the part last [entered](EngineReal::enter) cannot be recorded.
    fn refuse(why: &'static str) {
        let _ = why;
    }

    /// Returns a pair's member for this type; none for a type that records.
    fn member<F: TypeFamily>(both: &BothTypes<F>) -> Option<&F::Of<Self>>
    where
        Self: Real;

    /// Runs a job's method for this type.
    fn dispatch_type<J: TypedJob>(job: J, argument: J::Argument<Self>)
    where
        Self: Real;
}

/// A part's operation on an element's arrays and contributions; returns the update.
pub(crate) type ElementFn<'a, C> = &'a dyn Fn(&mut [C], &mut [Contribution<C>]) -> C;

/// The contribution of an element to a sum of a chain: a count or a number.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<C: Real> {
    pub(crate) count: u32,
    pub(crate) sum: Option<C::Wide>,
    /// The incoming update and parameter of the contributing part.
    ///
    /// `None` if the contribution cannot be computed after all else; see
    /// [`PassStructure::deferrable`](crate::engine::PassStructure::deferrable).
    pub(crate) inputs: Option<(C, C)>,
}

impl<C: Real> Contribution<C> {
    /// Returns the contribution: a count as a number, and minus zero, which changes no sum, if empty.
    #[inline(always)]
    pub(crate) fn number(&self) -> f64 {
        let count = if self.count == 0 { -0.0 } else { f64::from(self.count) };
        self.sum.map_or(count, |sum| sum.as_f64())
    }
}

impl<C: Real> Default for Contribution<C> {
    #[inline(always)]
    fn default() -> Contribution<C> {
        Contribution { count: 0, sum: None, inputs: None }
    }
}

/// A leaf's array for recorded values: its address as id, and its dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedArray {
    pub(crate) address: usize,
    pub(crate) dtype: DType,
}

/// A job with a method per compute type where it cannot be generic, such as a trait object's method.
pub trait TypedJob {
    /// The operand.
    type Argument<C: Real>;
    /// Runs for `f32`.
    fn single(self, argument: Self::Argument<f32>);
    /// Runs for `f64`.
    fn double(self, argument: Self::Argument<f64>);
    /// Runs for a recording type, whose values are numbered lines. Does nothing by default, as for values in storage,
    /// which recorded values have not.
    #[cfg(feature = "program")]
    fn recorded<C: Real>(self, argument: Self::Argument<C>, number: fn(C) -> u32, line: fn(u32) -> C)
    where
        Self: Sized,
    {
        let _ = (argument, number, line);
    }
}

/// A type family with a member per compute type: values that a step computes for `f32` and for `f64`.
pub trait TypeFamily {
    /// The member for `C`.
    type Of<C: Real>: Copy + Send + Sync;
}

/// The two members of a [`TypeFamily`] family.
pub struct BothTypes<F: TypeFamily> {
    #[doc(hidden)]
    pub single: F::Of<f32>,
    #[doc(hidden)]
    pub double: F::Of<f64>,
}

/// Implements a [`Real`] in memory, by bits.
macro_rules! by_bits {
    ($Real:ident, $Bits:ident) => {
        #[inline(always)]
        fn masked(self, keep: $Real, set: $Real) -> $Real {
            $Real::from_bits(self.to_bits() & keep.to_bits() | set.to_bits())
        }

        /// A select would make the loop one of masked stores, which is slow.
        #[inline(always)]
        fn nan_to_zero(self) -> $Real {
            self.masked(if self.is_nan() { 0.0 } else { $Real::all_bits_set() }, 0.0)
        }

        /// Above the bits of infinity. A comparison would make a loop that also selects split its mask's lanes for
        /// counting.
        #[inline(always)]
        fn count_nan(self) -> u32 {
            ($Real::INFINITY.to_bits().wrapping_sub(self.abs().to_bits()) >> ($Bits::BITS - 1)) as u32
        }

        /// As integers, bits have the same order, with NaN the largest: one instruction instead of five for two
        /// comparisons and a select.
        #[inline(always)]
        fn max_or_nan(self, other: $Real) -> $Real {
            $Real::from_bits(self.to_bits().max(other.to_bits()))
        }

        #[inline(always)]
        fn all_bits_set() -> $Real {
            $Real::from_bits($Bits::MAX)
        }
    };
}

impl EngineReal for f32 {
    #[inline(always)]
    fn rounded(self, to: Rounding) -> f32 {
        to.single(self)
    }

    by_bits!(f32, u32);

    #[inline(always)]
    fn member<F: TypeFamily>(both: &BothTypes<F>) -> Option<&F::Of<f32>> {
        Some(&both.single)
    }

    fn dispatch_type<J: TypedJob>(job: J, argument: J::Argument<f32>) {
        job.single(argument)
    }
}

impl EngineReal for f64 {
    #[inline(always)]
    fn rounded(self, _: Rounding) -> f64 {
        self
    }

    by_bits!(f64, u64);

    #[inline(always)]
    fn member<F: TypeFamily>(both: &BothTypes<F>) -> Option<&F::Of<f64>> {
        Some(&both.double)
    }

    fn dispatch_type<J: TypedJob>(job: J, argument: J::Argument<f64>) {
        job.double(argument)
    }
}
