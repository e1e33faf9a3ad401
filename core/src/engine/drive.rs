//! One step: its passes over all leaves and the barriers between them.
#![allow(unsafe_code, reason = "disjoint slices of raw leaves on many threads; see `memory`")]

use core::ptr::NonNull;
use std::sync::OnceLock;

use super::chunks::Chunks;
use super::context::ParamSource;
use super::leaf::Table;
use super::ranks::Ranks;
use super::remote::OnDevice;
use super::repeats::{Repeats, restore};
use super::rows::Rows;
use super::simd::current_simd_level;
use super::sink::Sink;
use super::tile::TileScratch;
use super::transform::checked_shape;
use super::walk::{Start, Walk};
use super::{
    Emission, Evaluate, EvaluateLoss, Objective, Outcome, PassStructure, Stage, StepContext, Sums, Transform, WholeTree,
};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::memory::{Buffer, RawSlice};
use crate::tree::{LeafSpec, Structure};

/// Buffers kept between steps.
pub struct Work {
    chunks: Chunks,
    pub(crate) params: Table,
    pub(crate) grads: Table,
    pub(crate) rows: Rows,
    /// Leaves without a gradient; empty if all have one.
    pub(crate) absent: Vec<bool>,
    pub(crate) path: String,
    sums: Vec<f64>,
    stored: Vec<Buffer>,
    converted_grads: Vec<Option<Buffer>>,
    converted_params: Vec<Option<Buffer>>,
    trial_params: Table,
    active: Vec<bool>,
    scratch: Box<TileScratch>,
    shape: PassStructure,
    /// True if sums of squares can leave the range of `f64`: over `f64` leaves.
    doubles: bool,
    /// Saved sums while others are reduced again.
    saved_sums: Vec<f64>,
    pub(crate) ranks: Option<Box<Ranks>>,
}

impl Work {
    /// # Errors
    ///
    /// If the transformation has too many barriers.
    pub(crate) fn new(structure: &Structure, transformation: &dyn Transform) -> Result<Work> {
        Work::new_for(structure, &vec![true; structure.len()], transformation)
    }

    /// As [`new`](Work::new), for the active leaves only.
    ///
    /// # Errors
    ///
    /// As [`new`](Work::new).
    pub(crate) fn new_for(structure: &Structure, active: &[bool], transformation: &dyn Transform) -> Result<Work> {
        Ok(Work::of_shape(structure, active, checked_shape(transformation)?))
    }

    fn of_shape(structure: &Structure, active: &[bool], shape: PassStructure) -> Work {
        let chunks = Chunks::new(structure, active);
        let stored = |(leaf, on): (&LeafSpec, &bool)| {
            Buffer::zeros(leaf.dtype().compute(), if *on { leaf.here().len() } else { 0 })
        };
        let leaves = || structure.leaves().iter().zip(active).filter(|(_, on)| **on);
        Work {
            params: Table::with_capacity(structure.len()),
            grads: Table::with_capacity(structure.len()),
            rows: Rows::default(),
            absent: Vec::with_capacity(structure.len()),
            path: String::new(),
            stored: if shape.stores_any() {
                structure.leaves().iter().zip(active).map(stored).collect()
            } else {
                Vec::new()
            },
            converted_grads: Vec::new(),
            converted_params: Vec::new(),
            trial_params: Table::new(),
            active: active.into(),
            doubles: leaves().any(|(leaf, _)| leaf.dtype() == DType::F64),
            saved_sums: Vec::new(),
            scratch: Box::default(),
            sums: vec![0.0; chunks.all.len() * shape.sums],
            chunks,
            shape,
            ranks: None,
        }
    }

    pub(crate) fn shape(&self) -> PassStructure {
        self.shape
    }

    /// Makes buffers for a copy of the state.
    pub(crate) fn fresh(&self, structure: &Structure) -> Work {
        self.fresh_for(structure, &vec![true; structure.len()])
    }

    /// As [`fresh`](Work::fresh), for the active leaves only.
    pub(crate) fn fresh_for(&self, structure: &Structure, active: &[bool]) -> Work {
        Work { ranks: self.ranks.clone(), ..Work::of_shape(structure, active, self.shape) }
    }

    /// Runs a step on the leaves in the tables; an empty gradient table means zero gradients.
    pub(crate) fn step<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        objective: Option<&mut (dyn EvaluateLoss + '_)>,
        sink: Sink<'_>,
    ) -> Outcome {
        self.run(&mut RunningChain::new(transformation, state), at, objective, sink)
    }

    /// Checks and runs a step of a chain; returns an error of the objective, the device or a part. The state counts as
    /// poisoned from the first change until the step completes.
    pub(crate) fn checked_step(
        &mut self,
        chain: &mut dyn ErasedChain,
        poisoned: &mut bool,
        at: &StepContext<'_>,
        objective: Option<&mut (dyn Evaluate + '_)>,
        sink: Sink<'_>,
    ) -> Result<Outcome> {
        let failure = OnceLock::new();
        let at = &StepContext { failure: Some(&failure), ..*at };
        let params = ParamSource::Leaves(&self.params);
        chain.check(&StepContext { params, rows: &self.rows.leaves, absent: &self.absent, ..*at })?;
        *poisoned = true;
        #[allow(clippy::redundant_closure, reason = "it shortens the borrow")]
        let mut objective = objective.map(|evaluate| Objective::new(evaluate));
        let evaluate_loss = objective.as_mut().map(|objective| objective as &mut dyn EvaluateLoss);
        let outcome = self.run(chain, at, evaluate_loss, sink);
        self.params.clear();
        self.grads.clear();
        let error = objective.and_then(|objective| objective.error).or(failure.into_inner());
        if let Some(error) = error.or_else(|| chain.error()) {
            return Err(error);
        }
        *poisoned = false;
        #[cfg(feature = "tracing")]
        if outcome.skipped {
            tracing::warn!(target: "gradchain", emitted = outcome.emitted, "a step discarded its gradients");
        }
        Ok(outcome)
    }

    /// Runs a step; compiled once for all chains.
    pub(super) fn run(
        &mut self,
        chain: &mut dyn ErasedChain,
        at: &StepContext<'_>,
        mut objective: Option<&mut (dyn EvaluateLoss + '_)>,
        sink: Sink<'_>,
    ) -> Outcome {
        let shape = self.shape;
        let at = &StepContext { params: ParamSource::Leaves(&self.params), absent: &self.absent, ..*at };
        self.rows.cut(at.structure, &self.active);
        let chunks = if self.rows.leaves.is_empty() { &self.chunks } else { &self.rows.chunks };
        if let Sink::Updates(buffers) = sink {
            for updates in self.rows.leaves.iter().map(|leaf| &buffers[*leaf]) {
                // SAFETY: the updates are borrowed for the step to be written, and no pass is running.
                unsafe { updates.raw().bytes_mut(0, updates.len()) }.fill(0);
            }
        }
        self.sums.clear();
        self.sums.resize(chunks.all.len() * shape.sums, 0.0);
        if let Some(ranks) = &mut self.ranks {
            ranks.clear(shape.sums);
        }
        let (structure, resting) = (at.structure, at.absent);
        let none = Sums { chunks, values: &[], width: shape.sums, first: 0, structure, resting, repeats: None };
        chain.begin(at);
        let (mut number, mut only, mut repeats, mut passed) = (0, Vec::new(), None, false);
        let emission = loop {
            let (emission, range) = (chain.emission(), shape.range(number));
            let walk = Walk {
                structure: at.structure,
                chunks,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                absent: at.absent,
                stored: &self.stored,
                sums: RawSlice::new(NonNull::from(self.sums.as_mut_slice()).cast::<f64>(), self.sums.len()),
                range,
                start: Start::of(shape, range),
                backwards: number % 2 == 1,
                shape,
                ends: emission.end().is_some_and(|end| number >= end),
                sink,
                only: &only,
                simd: current_simd_level(),
            };
            let last = walk.ends || number == shape.barriers;
            let reduces = shape.reduces_in(number);
            if !passed {
                let Some(added) = chain.pass(walk, &mut self.scratch) else { return Outcome::NOTHING };
                self.sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
                restore(chunks, shape.sums, &only, &mut self.sums, &mut self.saved_sums);
                if let Some(ranks) = self.ranks.as_mut().filter(|_| reduces)
                    && let Err(error) = ranks.complete(&self.sums, shape.sums)
                {
                    at.fail(error);
                    return Outcome::NOTHING;
                }
                // A repeated reduction is not repeated again. Over stored updates of several processes, none can repeat
                // it alone.
                let may_repeat = only.is_empty() && reduces && self.doubles && !last && chain.is_on_host();
                let stored = shape.stores(number);
                repeats = (may_repeat && !(stored && self.ranks.is_some())).then(|| Repeats::new(stored));
            }
            if last {
                break emission;
            }
            let tree = &mut WholeTree {
                structure: at.structure,
                active: &self.active,
                resting: at.absent,
                absent: at.absent,
                stored: &mut self.stored,
                rows: &mut self.rows.of_leaf,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                has_stored: shape.has_stored(number),
                converted_grads: &mut self.converted_grads,
                converted_params: &mut self.converted_params,
                trial_params: &mut self.trial_params,
                objective: objective.as_mut().map(|evaluate_loss| &mut **evaluate_loss as &mut dyn EvaluateLoss),
                device: OnDevice::NONE,
            };
            let sums = complete(&self.ranks, Sums { values: &self.sums, repeats: repeats.as_ref(), ..none });
            let done = chain.barrier(at, number, sums, tree);
            if let Some(repeats) = repeats.take() {
                only = repeats.prepare(chunks, shape.sums, &mut self.sums, &mut self.saved_sums);
                passed = only.is_empty();
                continue;
            }
            if !done || at.has_failed() || objective.as_ref().is_some_and(|objective| objective.failed()) {
                // Only the last pass writes parameters.
                return Outcome::NOTHING;
            }
            (number, passed) = (number + 1, false);
            only.clear();
        };
        let mut outcome = Outcome { emitted: at.gradients, ..Outcome::GRADIENTS };
        chain.finish(complete(&self.ranks, Sums { values: &self.sums, ..none }), &mut outcome);
        Outcome { held: emission.is_nothing(), ..outcome }
    }
}

pub(crate) trait ErasedChain {
    fn check(&self, at: &StepContext<'_>) -> Result<()>;
    fn begin(&mut self, at: &StepContext<'_>);
    /// True if the engine, not a device, runs the passes.
    fn is_on_host(&self) -> bool {
        true
    }
    fn emission(&self) -> Emission;
    /// Runs a pass. Returns what a device contributes to each sum of each chunk; `None` if the pass failed.
    fn pass(&mut self, walk: Walk<'_>, scratch: &mut TileScratch) -> Option<Vec<f64>>;
    /// Returns false if the barrier failed.
    fn barrier(&mut self, at: &StepContext<'_>, number: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>) -> bool;
    fn finish(&mut self, sums: Sums<'_>, outcome: &mut Outcome);
    /// Returns the device's error.
    fn error(&mut self) -> Option<Error> {
        None
    }
}

/// A chain in a step.
pub(crate) struct RunningChain<'a, T: Stage> {
    pub(super) transformation: &'a T,
    pub(super) state: &'a mut T::State,
    /// `Some` once the step has begun.
    pub(super) run: Option<T::Run>,
}

impl<'a, T: Stage> RunningChain<'a, T> {
    pub(crate) fn new(transformation: &'a T, state: &'a mut T::State) -> Self {
        RunningChain { transformation, state, run: None }
    }
}

impl<T: Stage> ErasedChain for RunningChain<'_, T> {
    fn check(&self, at: &StepContext<'_>) -> Result<()> {
        self.transformation.check(self.state, at)
    }

    fn begin(&mut self, at: &StepContext<'_>) {
        self.run = Some(self.transformation.begin(self.state, at));
    }

    fn emission(&self) -> Emission {
        self.run.as_ref().map_or(Emission::Undecided, |run| self.transformation.emission(self.state, run))
    }

    fn pass(&mut self, walk: Walk<'_>, scratch: &mut TileScratch) -> Option<Vec<f64>> {
        let run = self.run.as_ref()?;
        if !walk.is_idle() {
            self.transformation.pass(self.state, run, &walk, scratch);
        }
        Some(Vec::new())
    }

    fn barrier(&mut self, at: &StepContext<'_>, number: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>) -> bool {
        let Some(run) = &mut self.run else { return false };
        self.transformation.barrier(self.state, run, at, number, sums, tree);
        true
    }

    fn finish(&mut self, sums: Sums<'_>, outcome: &mut Outcome) {
        if let Some(run) = self.run.take() {
            self.transformation.finish(self.state, run, sums, outcome);
        }
    }
}

fn complete<'a>(ranks: &'a Option<Box<Ranks>>, here: Sums<'a>) -> Sums<'a> {
    ranks.as_ref().map_or(here, |ranks| ranks.sums(here))
}
