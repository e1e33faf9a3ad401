//! What a stage is told, when its state is made and in every phase of a step.

use core::fmt;
use std::sync::{Mutex, OnceLock};

use super::leaf::{Table, TableLeaf, arrays, is_among, read_here, read_leaf};
use super::slot::{Codes, Slot};
use crate::element::{DType, Real};
use crate::error::{Error, Result};
use crate::state::{Count, Moments, PerLeaf};
use crate::tree::{LeafSpec, Structure};

/// What `init` is told: the parameters' structure, and which of its leaves to act on.
#[derive(Clone, Copy, Debug)]
pub struct InitContext<'a> {
    pub(crate) structure: &'a Structure,
    pub(crate) active: &'a [bool],
    pub(crate) params: &'a [TableLeaf],
    /// Whether leaves may rest for some steps, so that updates are counted for each.
    pub(crate) by_leaf: bool,
    pub(crate) codes: Option<Codes<'a>>,
    /// True if parameters are seen in the type that arithmetic is done in, whatever the leaf's.
    pub(crate) in_full: bool,
    /// Where it is written down which leaves must be whole on one machine, and how much work each is, if that is asked.
    pub(crate) whole: Option<&'a Mutex<Vec<Option<f64>>>>,
}

impl<'a> InitContext<'a> {
    /// The parameters' leaves.
    pub fn structure(&self) -> &'a Structure {
        self.structure
    }

    /// Which leaves to act on: state is made for these only.
    pub fn active(&self) -> &'a [bool] {
        self.active
    }

    /// Arrays of zeros of the leaves' shapes in the types their arithmetic is done in (`f32` for 16-bit leaves).
    ///
    /// # Errors
    ///
    /// If there is not enough memory for them.
    pub fn moments(&self) -> Result<Moments> {
        self.moments_of(None)
    }

    /// Arrays of zeros of the leaves' shapes, of a type asked for or else the one their arithmetic is done in.
    ///
    /// # Errors
    ///
    /// If there is not enough memory for them, or the type needs the feature `half`.
    pub fn moments_of(&self, dtype: Option<DType>) -> Result<Moments> {
        Moments::like(self.structure, self.active, 0.0, |leaf| dtype.unwrap_or(leaf.dtype().compute()))
    }

    /// The same, in 8 bits inside of [`quantized`](crate::quantized()) if no type is asked for and the slot may be
    /// rounded. [`Moments::rewrite`] reads and writes them, whatever their type is.
    ///
    /// # Errors
    ///
    /// As [`moments_of`](Self::moments_of).
    pub fn moments_for(&self, slot: Slot, dtype: Option<DType>) -> Result<Moments> {
        if dtype.is_some() {
            return self.moments_of(dtype);
        }
        Moments::filled(self.structure, self.active, 0.0, &|number, leaf| {
            let coded = self.codes.and_then(|codes| codes.dtype(slot, (number, leaf)));
            coded.unwrap_or_else(|| leaf.dtype().compute())
        })
    }

    /// No updates so far, counted for each leaf to act on: of none, where all leaves have the same number. See
    /// [`Clock::begin`](crate::part::Clock::begin).
    pub fn updates(&self) -> PerLeaf<Count> {
        if self.by_leaf { PerLeaf::new(self.active, Count::default()) } else { PerLeaf::default() }
    }

    /// Copies of the parameters, in the types that their arithmetic is done in.
    ///
    /// # Errors
    ///
    /// If there is not enough memory for them.
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

    /// A copy of all elements of a leaf of the parameters, in memory order, wherever they are worked on.
    ///
    /// # Errors
    ///
    /// If there are arrays in place of the parameters, and not all elements are in them.
    pub(crate) fn whole_leaf<C: Real>(&self, leaf: usize) -> Result<Vec<C>> {
        let (spec, values) = (&self.structure.leaves()[leaf], &self.params[leaf]);
        if values.data.len() != spec.len() {
            let expected = "of parts that work on each leaf by itself, or element by element";
            return Err(Error::argument("sharded", "inner", expected, "a measure of leaves as they were"));
        }
        let mut copy = vec![C::zero(); spec.len()];
        read_leaf::<C>(values, spec, Some(&mut copy));
        Ok(copy)
    }

    /// Copies of the parameters, of a type asked for or else the one that their arithmetic is done in.
    ///
    /// # Errors
    ///
    /// If there is not enough memory for them, or the type needs the feature `half`.
    pub fn params_as_moments_of(&self, dtype: Option<DType>) -> Result<Moments> {
        let copies = self.params_as_moments()?;
        if dtype.is_none() {
            return Ok(copies);
        }
        let mut rounded = self.moments_of(dtype)?;
        rounded.map(|leaf, i, _| copies.at(leaf, i, copies.strides(leaf)));
        Ok(rounded)
    }

    /// Returns whether a leaf's parameters are rounded to a type narrower than the one that arithmetic is done in: 16
    /// bits, and not inside a [`master`](crate::wrapper::master()).
    pub fn is_rounded(&self, leaf: usize) -> bool {
        let dtype = self.structure.leaves()[leaf].dtype();
        !self.in_full && dtype != dtype.compute()
    }

    /// The leaves to act on that are also `on`.
    pub(crate) fn restricted(&self, on: &[bool]) -> Vec<bool> {
        self.active.iter().zip(on).map(|(a, b)| *a && *b).collect()
    }

    /// The leaves to act on of which something is true.
    pub(crate) fn active_where(&self, is: &dyn Fn(&LeafSpec) -> bool) -> Vec<bool> {
        self.structure.leaves().iter().zip(self.active).map(|(leaf, on)| *on && is(leaf)).collect()
    }

    /// Says that the leaves to act on must be whole on one machine, and how much work each of them is in a step.
    pub(crate) fn must_be_whole(&self, work: &dyn Fn(&LeafSpec) -> f64) {
        let Some(mut whole) = self.whole.and_then(|whole| whole.lock().ok()) else { return };
        for ((all, leaf), on) in whole.iter_mut().zip(self.structure.leaves()).zip(self.active) {
            if *on {
                *all = Some(all.unwrap_or(0.0) + work(leaf));
            }
        }
    }

    /// The same, for other leaves.
    pub(crate) fn with_active<'b>(&'b self, active: &'b [bool]) -> InitContext<'b> {
        InitContext { active, ..*self }
    }
}

/// The parameters of a context, leaf by leaf of its structure.
#[derive(Clone, Copy)]
pub(crate) enum ParamSource<'a> {
    /// The leaves.
    Leaves(&'a [TableLeaf]),
    /// Arrays in place of the leaves, of those that are acted on.
    Arrays(&'a Moments),
    /// The same, made on demand.
    OnDemand(&'a dyn Fn() -> Result<Moments>),
}

impl ParamSource<'_> {
    /// The parameters of what has not begun.
    pub(crate) const NONE: ParamSource<'static> = ParamSource::Leaves(&[]);

    /// Calls a function with a table that has one entry for each leaf.
    ///
    /// # Errors
    ///
    /// If there is not enough memory for arrays that are made on demand.
    pub(crate) fn with<R>(self, structure: &Structure, then: impl FnOnce(&[TableLeaf]) -> R) -> Result<R> {
        let made;
        let moments = match self {
            ParamSource::Leaves(leaves) => {
                assert_eq!(leaves.len(), structure.len(), "a table has one entry for each leaf");
                return Ok(then(leaves));
            }
            ParamSource::Arrays(arrays) => arrays,
            ParamSource::OnDemand(make) => {
                made = make()?;
                &made
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

/// What every phase of a step is told.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    pub(crate) structure: &'a Structure,
    /// Whether there are gradients in this step.
    pub(crate) gradients: bool,
    /// What was accumulated is to be emitted.
    pub(crate) flush: bool,
    pub(crate) value: Option<f64>,
    pub(crate) params: ParamSource<'a>,
    /// Which leaves have no gradient in this step; empty where all have one.
    pub(crate) absent: &'a [bool],
    /// Which leaves rest in this step; empty where none may.
    pub(crate) resting: &'a [bool],
    pub(crate) by_leaf: bool,
    pub(crate) codes: Option<Codes<'a>>,
    pub(crate) in_full: bool,
    pub(crate) rows: &'a [usize],
    /// Leaves are gone through elsewhere: parameters and state arrays are not here.
    pub(crate) elsewhere: bool,
    /// The leaves that are acted on; empty where all are. For checks.
    pub(crate) active: &'a [bool],
    /// Where it is said that a step cannot be ended, though it has begun.
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
            codes: None,
            in_full: false,
            rows: &[],
            elsewhere: false,
            active: &[],
            failure: None,
        }
    }

    /// Ends the step, which has begun, with an error.
    pub(crate) fn fail(&self, error: Error) {
        // Of several the first says what happened.
        if let Some(failure) = self.failure {
            drop(failure.set(error));
        }
    }

    /// Whether the step has ended with an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some_and(|failure| failure.get().is_some())
    }

    /// The parameters' leaves.
    pub fn structure(&self) -> &'a Structure {
        self.structure
    }

    /// One leaf's path, type and shape.
    pub fn leaf(&self, leaf: usize) -> &'a LeafSpec {
        &self.structure.leaves()[leaf]
    }

    /// Returns true if a leaf rests in this step, since it is [frozen](crate::wrapper::freezable) or [has no
    /// gradient](crate::wrapper::skip_absent): its elements are not gone through, and what is remembered of it must
    /// stay as it is.
    pub fn rests(&self, leaf: usize) -> bool {
        is_among(self.resting, leaf)
    }

    /// Whether a leaf has no gradient in this step, where that may be.
    pub(crate) fn is_absent(&self, leaf: usize) -> bool {
        is_among(self.absent, leaf)
    }

    /// Whether there are no gradients in this step: what has been accumulated is to be emitted.
    pub fn is_flush(&self) -> bool {
        !self.gradients
    }

    /// The same step, as one that has gradients and this value of the loss.
    pub fn with_gradients(self, value: Option<f64>) -> StepContext<'a> {
        StepContext { gradients: true, value, ..self }
    }

    /// The value of the loss: `Some` in every step of what [needs](crate::needs) it.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// The same step, for a transformation with leaves of its own, or one that is run to its end in the middle of the
    /// step. `params` are the parameters of `structure`.
    pub(crate) fn inside<'b>(&self, structure: &'b Structure, params: ParamSource<'b>) -> StepContext<'b>
    where
        'a: 'b,
    {
        let codes = self.codes.map(|codes| codes.of_leaves(structure.len()));
        StepContext {
            structure,
            params,
            absent: &[],
            resting: &[],
            by_leaf: false,
            codes,
            in_full: false,
            rows: &[],
            active: &[],
            ..*self
        }
    }

    /// The same step, for what acts on some leaves only.
    pub(crate) fn on<'b>(&self, active: &'b [bool]) -> StepContext<'b>
    where
        'a: 'b,
    {
        StepContext { active, ..*self }
    }

    /// Refuses gradients of rows, for what must have those of whole leaves.
    pub(crate) fn whole_leaves(&self, part: &str) -> Result<()> {
        let mut rows = self.rows.iter().filter(|leaf| self.active.get(**leaf) != Some(&false));
        rows.next().map_or(Ok(()), |leaf| {
            let found = format!("rows of `{}`; a `partition` gives a leaf an optimizer of its own", self.leaf(*leaf));
            Err(Error::argument(part, "gradients", "of whole leaves", found))
        })
    }

    /// Calls a function with what `init` would be told of these leaves and the parameters of this step.
    pub(crate) fn as_init<R>(&self, active: &[bool], then: impl FnOnce(&InitContext<'_>) -> Result<R>) -> Result<R> {
        let (StepContext { structure, by_leaf, codes, in_full, .. }, whole) = (*self, None);
        let init =
            |params: &[TableLeaf]| then(&InitContext { structure, active, params, by_leaf, codes, in_full, whole });
        self.params.with(structure, init)?
    }

    /// The same step, for what has its state in these codes, if it is said here.
    pub(crate) fn in_codes(self, codes: Option<Codes<'a>>) -> Self {
        StepContext { codes: codes.or(self.codes), ..self }
    }
}
