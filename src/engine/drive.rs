//! One step: the passes over all leaves, and what happens between them.
#![allow(unsafe_code, reason = "pieces of raw leaves on many threads; see `memory`")]

use core::ptr::NonNull;

use super::isa::current_isa;
use super::pass::Pass;
use super::pieces::Pieces;
use super::ranks::Ranks;
use super::remote::RemoteTree;
use super::rows::Rows;
use super::table::Table;
use super::tile::Spare;
use super::written::Sink;
use super::{Ask, Outcome, Shape, Stage, StepContext, Sums, WholeTree};
use crate::error::Error;
use crate::memory::{Buffer, RawSlice};
use crate::tree::{LeafSpec, Structure};

/// Whoever goes through the leaves in place of the engine, on another machine.
pub(crate) trait Remote<T: Stage>: RemoteTree {
    /// Does a pass, and says what it added to each sum of each piece; none if it failed.
    fn pass(&mut self, pass: &Pass<'_, T>) -> Option<Vec<f64>>;
    /// Does what was written down of whole leaves at a barrier; none if it failed.
    fn leaves(&mut self, barrier: usize) -> Option<()>;
    /// Why a pass failed, if one did.
    fn error(&mut self) -> Option<Error>;
}

/// What a state keeps between steps besides what it remembers: cuts, tables, sums, and where a chain needs it a place
/// to store updates between passes.
pub(crate) struct Work {
    pieces: Pieces,
    pub(crate) params: Table,
    pub(crate) grads: Table,
    pub(crate) rows: Rows,
    /// Which gradients are not there; of none if all are.
    pub(crate) absent: Vec<bool>,
    pub(crate) path: String,
    sums: Vec<f64>,
    stored: Vec<Buffer>,
    given: Vec<Option<Buffer>>,
    copies: Vec<Option<Buffer>>,
    there: Table,
    active: Vec<bool>,
    spare: Box<Spare>,
    shape: Shape,
    /// The other machines that have sums of the same step, if there are any.
    pub(crate) ranks: Option<Box<Ranks>>,
}

impl Work {
    pub(crate) fn new(structure: &Structure, shape: Shape) -> Work {
        Work::new_for(structure, &vec![true; structure.len()], shape)
    }

    /// For passes over the active leaves only.
    pub(crate) fn new_for(structure: &Structure, active: &[bool], shape: Shape) -> Work {
        let pieces = Pieces::new(structure, active);
        let stored = |(leaf, on): (&LeafSpec, &bool)| {
            Buffer::zeros(leaf.dtype().compute(), if *on { leaf.here().len() } else { 0 })
        };
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
            given: Vec::new(),
            copies: Vec::new(),
            there: Table::new(),
            active: active.into(),
            spare: Box::default(),
            sums: vec![0.0; pieces.all.len() * shape.sums],
            pieces,
            shape,
            ranks: None,
        }
    }

    /// What it is for.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The same, for a copy of the state.
    pub(crate) fn fresh(&self, structure: &Structure) -> Work {
        Work::new(structure, self.shape)
    }

    /// The same, for passes over the active leaves only.
    pub(crate) fn fresh_for(&self, structure: &Structure, active: &[bool]) -> Work {
        Work { ranks: self.ranks.clone(), ..Work::new_for(structure, active, self.shape) }
    }

    /// Does a step on the leaves in the tables. Without gradients in the table, all gradients are zero.
    pub(crate) fn step<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        mut objective: Option<&mut (dyn Ask + '_)>,
        sink: Sink<'_>,
        mut elsewhere: Option<&mut (dyn Remote<T> + '_)>,
    ) -> Outcome {
        let shape = self.shape;
        let at = &StepContext { params: &self.params, absent: &self.absent, point: None, ..*at };
        self.rows.cut(at.structure, &self.active);
        let pieces = if self.rows.leaves.is_empty() { &self.pieces } else { &self.rows.pieces };
        if let Sink::Updates(buffers) = sink {
            for updates in self.rows.leaves.iter().map(|leaf| &buffers[*leaf]) {
                // SAFETY: the updates are lent for the step to be written, and no pass is running.
                unsafe { updates.raw().bytes_mut(0, updates.len()) }.fill(0);
            }
        }
        self.sums.clear();
        self.sums.resize(pieces.all.len() * shape.sums, 0.0);
        if let Some(ranks) = &mut self.ranks {
            ranks.clear(shape.sums);
        }
        let (structure, resting) = (at.structure, at.absent);
        let none = Sums { pieces, values: &[], width: shape.sums, first: 0, structure, resting };
        let mut run = transformation.begin(state, at);
        for number in 0..=shape.barriers {
            let ends = transformation.ends_at(state, &run);
            let pass = Pass {
                transformation,
                state: &*state,
                run: &run,
                structure: at.structure,
                pieces,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                absent: at.absent,
                stored: &self.stored,
                sums: RawSlice::new(NonNull::from(self.sums.as_mut_slice()).cast::<f64>(), self.sums.len()),
                span: shape.span(number),
                backwards: number % 2 == 1,
                shape,
                ends: ends.is_some_and(|end| number >= end),
                sink,
                isa: current_isa(),
            };
            let last = pass.ends || number == shape.barriers;
            let idle = shape.is_idle(number) && !last;
            match elsewhere.as_mut().map(|elsewhere| elsewhere.pass(&pass)) {
                None if idle => {}
                None => pass.run(&mut self.spare),
                Some(None) => return Outcome { emitted: false, skipped: false },
                Some(Some(added)) => self.sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += added),
            }
            if let Some(ranks) = self.ranks.as_mut().filter(|_| shape.adds_in(number))
                && let Err(error) = ranks.complete(&self.sums, shape.sums)
            {
                at.fail(error);
                return Outcome { emitted: false, skipped: false };
            }
            if last {
                break;
            }
            let mut tree = WholeTree {
                structure: at.structure,
                active: &self.active,
                resting: at.absent,
                stored: &mut self.stored,
                rows: &mut self.rows.of_leaf,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                has_stored: shape.has_stored(number),
                given: &mut self.given,
                copies: &mut self.copies,
                there: &mut self.there,
                objective: objective.as_mut().map(|ask| &mut **ask as &mut dyn Ask),
                remote: elsewhere.as_mut().map(|elsewhere| &mut **elsewhere as &mut dyn RemoteTree),
            };
            let sums = complete(&self.ranks, Sums { values: &self.sums, ..none });
            transformation.barrier(state, &mut run, at, number, sums, &mut tree);
            let done = elsewhere.as_mut().is_none_or(|elsewhere| elsewhere.leaves(number).is_some());
            if !done || at.has_failed() || objective.as_ref().is_some_and(|objective| objective.failed()) {
                // Only the last pass writes parameters.
                return Outcome { emitted: false, skipped: false };
            }
        }
        let mut outcome = Outcome { emitted: at.gradients, skipped: false };
        let sums = complete(&self.ranks, Sums { values: &self.sums, ..none });
        transformation.finish(state, run, sums, &mut outcome);
        outcome
    }
}

/// The sums of all machines, where there are others.
fn complete<'a>(ranks: &'a Option<Box<Ranks>>, here: Sums<'a>) -> Sums<'a> {
    ranks.as_ref().map_or(here, |ranks| ranks.sums(here))
}
