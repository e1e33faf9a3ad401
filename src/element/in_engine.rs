//! What the engine asks of numbers besides arithmetic, and what it does by their type.

use core::ops::Range;

use super::{DType, Element, Real, Rounding};

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
