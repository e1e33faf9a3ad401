//! The contexts of `init` and of a step.

use core::fmt;
use std::sync::{Mutex, OnceLock};

use super::leaf::{Table, TableLeaf, arrays, is_among, read_here, read_leaf};
use super::slot::{Quantization, Slot};
use crate::element::{DType, Real};
use crate::error::{Error, Result};
use crate::state::{Count, Moments, PerLeaf};
use crate::tree::{LeafSpec, Structure};

/// The context of `init`: the structure of the parameters and the active leaves.
#[derive(Clone, Copy, Debug)]
pub struct InitContext<'a> {
    pub(crate) structure: &'a Structure,
    pub(crate) active: &'a [bool],
    pub(crate) params: &'a [TableLeaf],
    /// True if leaves may rest, so that updates are counted by leaf.
    pub(crate) by_leaf: bool,
    pub(crate) quantization: Option<Quantization<'a>>,
    /// True if parameters appear in the compute type.
    pub(crate) in_full: bool,
    /// Out-parameter: the cost of each leaf that must not be sharded.
    pub(crate) whole: Option<&'a Mutex<Vec<Option<f64>>>>,
}

impl<'a> InitContext<'a> {
    /// Returns the structure of the parameters.
    pub fn structure(&self) -> &'a Structure {
        self.structure
    }

    /// Returns a flag for each leaf: state is made for the active leaves only.
    pub fn active(&self) -> &'a [bool] {
        self.active
    }

    /// Returns zeroed arrays of the leaves' shapes in their compute types (`f32` for 16-bit leaves).
    ///
    /// # Errors
    ///
    /// If not enough memory is available.
    pub fn moments(&self) -> Result<Moments> {
        self.moments_of(None)
    }

    /// Returns zeroed arrays of the leaves' shapes, of `dtype` or else the leaves' compute types.
    ///
    /// # Errors
    ///
    /// If not enough memory is available, or the dtype needs the feature `half`.
    pub fn moments_of(&self, dtype: Option<DType>) -> Result<Moments> {
        Moments::like(self.structure, self.active, 0.0, |leaf| dtype.unwrap_or(leaf.dtype().compute()))
    }

    /// Returns zeroed arrays for a slot, in 8 bits inside [`quantized`].
    ///
    /// They have 8 bits if no dtype is given and the slot may be rounded.
    ///
    /// [`Moments::rewrite`] reads and writes arrays of any dtype.
    ///
    /// # Errors
    ///
    /// As [`moments_of`](Self::moments_of).
    ///
    /// [`quantized`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.quantized.html
    pub fn moments_for(&self, slot: Slot, dtype: Option<DType>) -> Result<Moments> {
        if dtype.is_some() {
            return self.moments_of(dtype);
        }
        Moments::filled(self.structure, self.active, 0.0, &|number, leaf| {
            let quantized = self.quantization.and_then(|quantization| quantization.dtype(slot, (number, leaf)));
            quantized.unwrap_or_else(|| leaf.dtype().compute())
        })
    }

    /// Returns a zero count of updates for each active leaf.
    ///
    /// It has no counts if all leaves have the same number of updates. See [`Clock::begin`](crate::part::Clock::begin).
    pub fn updates(&self) -> PerLeaf<Count> {
        if self.by_leaf { PerLeaf::new(self.active, Count::default()) } else { PerLeaf::default() }
    }

    /// Returns copies of the parameters in their compute types.
    ///
    /// # Errors
    ///
    /// If not enough memory is available.
    pub fn params_as_moments(&self) -> Result<Moments> {
        let mut copies = self.moments()?;
        for (i, spec) in self.structure.leaves().iter().enumerate().filter(|(i, _)| self.active[*i]) {
            match spec.dtype().compute() {
                DType::F64 => read_here::<f64>(&self.params[i], spec, copies.get_mut(i)),
                _ => read_here::<f32>(&self.params[i], spec, copies.get_mut(i)),
            }
        }
        Ok(copies)
    }

    /// Returns a whole parameter leaf, in memory order, including the elements of other processes.
    ///
    /// # Errors
    ///
    /// If the arrays that replace the parameters lack elements.
    #[doc(hidden)]
    pub fn whole_leaf<C: Real>(&self, leaf: usize) -> Result<Vec<C>> {
        let (spec, values) = (&self.structure.leaves()[leaf], &self.params[leaf]);
        if values.data.len() != spec.len() {
            let expected = "made of parts that treat each leaf or element separately";
            return Err(Error::argument("sharded", "inner", expected, "a measure of unchanged whole leaves"));
        }
        let mut copy = vec![C::zero(); spec.len()];
        read_leaf::<C>(values, spec, Some(&mut copy));
        Ok(copy)
    }

    /// Returns copies of the parameters, of `dtype` or else their compute types.
    ///
    /// # Errors
    ///
    /// If not enough memory is available, or the dtype needs the feature `half`.
    pub fn params_as_moments_of(&self, dtype: Option<DType>) -> Result<Moments> {
        let copies = self.params_as_moments()?;
        if dtype.is_none() {
            return Ok(copies);
        }
        let mut rounded = self.moments_of(dtype)?;
        rounded.map(|leaf, i, _| copies.at(leaf, i, copies.strides(leaf)));
        Ok(rounded)
    }

    /// Returns true if a leaf's parameters are rounded to a dtype narrower than the compute type: 16-bit leaves outside
    /// a [`master`].
    ///
    /// [`master`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.master.html
    pub fn is_rounded(&self, leaf: usize) -> bool {
        let dtype = self.structure.leaves()[leaf].dtype();
        !self.in_full && dtype != dtype.compute()
    }

    pub(crate) fn restricted(&self, on: &[bool]) -> Vec<bool> {
        self.active.iter().zip(on).map(|(a, b)| *a && *b).collect()
    }

    pub(crate) fn active_where(&self, is: &dyn Fn(&LeafSpec) -> bool) -> Vec<bool> {
        self.structure.leaves().iter().zip(self.active).map(|(leaf, on)| *on && is(leaf)).collect()
    }

    /// Declares the cost of the active leaves, which must not be sharded.
    pub(crate) fn declare_whole(&self, work: &dyn Fn(&LeafSpec) -> f64) {
        let Some(mut whole) = self.whole.and_then(|whole| whole.lock().ok()) else { return };
        for ((all, leaf), on) in whole.iter_mut().zip(self.structure.leaves()).zip(self.active) {
            if *on {
                *all = Some(all.unwrap_or(0.0) + work(leaf));
            }
        }
    }

    pub(crate) fn with_active<'b>(&'b self, active: &'b [bool]) -> InitContext<'b> {
        InitContext { active, ..*self }
    }
}

#[derive(Clone, Copy)]
pub enum ParamSource<'a> {
    Leaves(&'a [TableLeaf]),
    /// Arrays for the active leaves.
    Arrays(&'a Moments),
    OnDemand(&'a dyn Fn() -> Result<Moments>),
}

impl ParamSource<'_> {
    /// None, before a step has begun.
    pub(crate) const NONE: ParamSource<'static> = ParamSource::Leaves(&[]);

    /// Calls `then` with the table of leaves.
    ///
    /// # Errors
    ///
    /// If arrays made on demand do not fit in memory.
    pub(crate) fn with<R>(self, structure: &Structure, then: impl FnOnce(&[TableLeaf]) -> R) -> Result<R> {
        let original;
        let moments = match self {
            ParamSource::Leaves(leaves) => {
                assert_eq!(leaves.len(), structure.len(), "a table has one entry for each leaf");
                return Ok(then(leaves));
            }
            ParamSource::Arrays(arrays) => arrays,
            ParamSource::OnDemand(make) => {
                original = make()?;
                &original
            }
        };
        let mut table = Table::new();
        arrays(moments, structure, &[], &mut table);
        Ok(then(&table))
    }
}

impl fmt::Debug for ParamSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamSource::Leaves(leaves) => f.debug_tuple("Leaves").field(leaves).finish(),
            ParamSource::Arrays(arrays) => f.debug_tuple("Arrays").field(arrays).finish(),
            ParamSource::OnDemand(_) => f.write_str("OnDemand"),
        }
    }
}

/// The context of every phase of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    pub(crate) structure: &'a Structure,
    pub(crate) gradients: bool,
    pub(crate) flush: bool,
    pub(crate) value: Option<f64>,
    pub(crate) params: ParamSource<'a>,
    /// Leaves without a gradient; empty if all have one.
    pub(crate) absent: &'a [bool],
    /// Leaves that rest in this step; empty if none may.
    pub(crate) resting: &'a [bool],
    pub(crate) by_leaf: bool,
    pub(crate) quantization: Option<Quantization<'a>>,
    pub(crate) in_full: bool,
    pub(crate) rows: &'a [usize],
    /// True if a device runs the passes and holds parameters and state arrays.
    pub(crate) on_device: bool,
    /// The active leaves, for checks; empty if all are.
    pub(crate) active: &'a [bool],
    pub(crate) failure: Option<&'a OnceLock<Error>>,
}

impl<'a> StepContext<'a> {
    pub(crate) fn new(structure: &'a Structure, flush: bool, value: Option<f64>) -> StepContext<'a> {
        StepContext {
            structure,
            gradients: !flush,
            flush,
            value,
            params: ParamSource::NONE,
            absent: &[],
            resting: &[],
            by_leaf: false,
            quantization: None,
            in_full: false,
            rows: &[],
            on_device: false,
            active: &[],
            failure: None,
        }
    }

    /// Aborts a step that has begun; it returns this error.
    pub(crate) fn fail(&self, error: Error) {
        // The first of several errors is the cause.
        if let Some(failure) = self.failure {
            drop(failure.set(error));
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some_and(|failure| failure.get().is_some())
    }

    /// Returns the structure of the parameters.
    pub fn structure(&self) -> &'a Structure {
        self.structure
    }

    /// Returns the path, dtype and shape of a leaf.
    pub fn leaf(&self, leaf: usize) -> &'a LeafSpec {
        &self.structure.leaves()[leaf]
    }

    /// Returns true if a leaf rests in this step.
    ///
    /// It is [frozen] or [has no gradient].
    ///
    /// Passes skip its elements, and its state must not change.
    ///
    /// [frozen]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    /// [has no gradient]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
    pub fn rests(&self, leaf: usize) -> bool {
        is_among(self.resting, leaf)
    }

    /// Returns true if a leaf lacks a gradient in this step and may lack one.
    pub(crate) fn is_absent(&self, leaf: usize) -> bool {
        is_among(self.absent, leaf)
    }

    /// Returns true if this step emits accumulated updates without gradients.
    pub fn is_flush(&self) -> bool {
        !self.gradients
    }

    /// Returns this step with gradients and this value of the loss.
    pub fn with_gradients(self, value: Option<f64>) -> StepContext<'a> {
        StepContext { gradients: true, value, ..self }
    }

    /// Returns the value of the loss: `Some` in every step of a transformation that [needs](crate::needs) it.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// Returns this step for an inner transformation that has its own leaves or runs a whole step. `params` belong to
    /// `structure`.
    pub(crate) fn for_inner<'b>(&self, structure: &'b Structure, params: ParamSource<'b>) -> StepContext<'b>
    where
        'a: 'b,
    {
        let quantization = self.quantization.map(|quantization| quantization.of_leaves(structure.len()));
        StepContext {
            structure,
            params,
            absent: &[],
            resting: &[],
            by_leaf: false,
            quantization,
            in_full: false,
            rows: &[],
            active: &[],
            ..*self
        }
    }

    pub(crate) fn on<'b>(&self, active: &'b [bool]) -> StepContext<'b>
    where
        'a: 'b,
    {
        StepContext { active, ..*self }
    }

    /// Refuses row-sparse gradients.
    #[doc(hidden)]
    pub fn whole_leaves(&self, part: &str) -> Result<()> {
        let mut rows = self.rows.iter().filter(|leaf| self.active.get(**leaf) != Some(&false));
        rows.next().map_or(Ok(()), |leaf| {
            let found = format!(
                "a row-sparse gradient of `{}`; a `partition` can give that leaf another optimizer",
                self.leaf(*leaf)
            );
            Err(Error::argument(part, "gradients", "dense", found))
        })
    }

    /// Calls `then` with the context of `init` for these leaves and the current parameters.
    pub(crate) fn as_init<R>(&self, active: &[bool], then: impl FnOnce(&InitContext<'_>) -> Result<R>) -> Result<R> {
        let (StepContext { structure, by_leaf, quantization, in_full, .. }, whole) = (*self, None);
        let init = |params: &[TableLeaf]| {
            then(&InitContext { structure, active, params, by_leaf, quantization, in_full, whole })
        };
        self.params.with(structure, init)?
    }

    pub(crate) fn with_quantization(self, quantization: Option<Quantization<'a>>) -> Self {
        StepContext { quantization: quantization.or(self.quantization), ..self }
    }
}
