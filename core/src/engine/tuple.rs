//! Chains as tuples of their members.

use super::chain::{self, ChainRun, Stages, chain_methods};
use super::erased::{OnMember, OnView};
use super::limits::{MAX_BARRIERS, MAX_SLOTS};
use super::stage_chunk::{StageChunk, Then};
use super::sums::{MAX_SUMS, split_sums};
use super::tile_driver::fused_loop;
use super::transform::Transform;
use super::{
    Absent, Contribution, Emission, HoldsBack, InitContext, Outcome, PassRange, PassStructure, Skips, SlotAccess,
    SlotAccesses, SlotList, Stage, StepContext, Sums, TileScratch, Walk, WholeTree, append, run_own_loops,
};
use crate::element::Real;
use crate::error::Result;
use crate::state::StateWalk;

/// Returns true if a chain fits in one loop, which has leaf statistics of one part only.
pub(crate) const fn fits(shape: PassStructure, slots: usize) -> bool {
    slots <= MAX_SLOTS
        && shape.sums <= MAX_SUMS
        && shape.barriers <= MAX_BARRIERS
        && shape.materializes == 0
        && shape.reads_updates.count_ones() <= 1
}

macro_rules! needs_of {
    () => { crate::needs::Nothing };
    ($T:ident $($U:ident)*) => { <$T::Needs as crate::needs::Needs>::Or<crate::engine::needs_of!($($U)*)> };
}
pub(crate) use needs_of;

const fn is_empty(members: &[usize]) -> bool {
    members.is_empty()
}

const ALL_BEGUN: &str = "a chain is one loop if all its members have begun";

/// A macro: a generic `impl` cannot cover tuples of different lengths.
macro_rules! chains {
    ($($T:ident $i:tt),*) => {
        #[allow(unused_variables, reason = "the empty chain has no members")]
        impl<$($T: Stage),*> Transform for ($($T,)*) {
            fn as_dyn(&self) -> &dyn Transform {
                self
            }

            fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
                $(visit(self.$i.as_dyn());)*
            }

            // These three and `check` are called every step, so computed without a visitor.
            fn shape(&self) -> PassStructure {
                let shape = PassStructure::EMPTY;
                $(let shape = shape.then(self.$i.shape());)*
                shape
            }

            fn holds_back(&self) -> HoldsBack {
                HoldsBack::Never$(.max(self.$i.holds_back()))*
            }

            fn absent(&self) -> Absent {
                Absent::Rests$(.max(self.$i.absent()))*
            }

            fn skips(&self, skips: &mut Skips, place: &str) -> bool {
                chain::skips(self, skips, place)
            }
        }

        #[allow(unused_variables, clippy::unused_unit, reason = "the empty chain has no members")]
        impl<$($T: Stage),*> Stages for ($($T,)*) {
            type Needs = needs_of!($($T)*);
            type States = ($($T::State,)*);
            type Runs = ($(Option<$T::Run>,)*);

            fn len(&self) -> usize {
                <[usize]>::len(&[$($i),*])
            }

            fn shape_of(&self, stage: usize) -> PassStructure {
                match stage {
                    $($i => self.$i.shape(),)*
                    _ => PassStructure::NONE,
                }
            }

            fn changed(&self, original: &Self) -> Option<&'static str> {
                None$(.or_else(|| self.$i.changed(&original.$i)))*
            }

            fn init<'c>(&self, at: &mut dyn FnMut(usize, &dyn Transform) -> InitContext<'c>) -> Result<Self::States> {
                Ok(($(self.$i.init_state(&at($i, self.$i.as_dyn()))?,)*))
            }

            fn views<'a>(&self, states: &'a Self::States, runs: Option<&Self::Runs>, visit: &mut OnView<'_, 'a>) {
                $(
                    let run = runs.and_then(|runs| runs.$i.as_ref());
                    if self.$i.visit_view($i, &states.$i, run, visit).is_break() {
                        return;
                    }
                )*
            }

            fn in_step<'a>(&self, states: &'a mut Self::States, runs: &mut Self::Runs, visit: &mut OnMember<'_, 'a>) {
                $(
                    if self.$i.visit_in_step($i, &mut states.$i, &mut runs.$i, visit).is_break() {
                        return;
                    }
                )*
            }

            fn prepare_chunk<Cx: Real>(
                &self,
                stage: usize,
                states: &Self::States,
                runs: &Self::Runs,
                at: StageChunk,
                then: &mut Then<'_, Cx>,
            ) {
                match stage {
                    $($i => {
                        if let Some(run) = &runs.$i {
                            self.$i.prepare_chunk(&states.$i, run, at, then);
                        }
                    })*
                    _ => {}
                }
            }
        }

        #[allow(
            unused_variables,
            unused_mut,
            unused_assignments,
            clippy::unused_unit,
            reason = "the empty chain has nothing to do"
        )]
        impl<$($T: Stage),*> Stage for ($($T,)*) {
            type Needs = needs_of!($($T)*);
            type State = ($($T::State,)*);
            type Run = ChainRun<($(Option<$T::Run>,)*)>;
            type Kernel<Cx: Real> = ($($T::Kernel<Cx>,)*);

            const SHAPE: PassStructure = { let s = PassStructure::EMPTY; $(let s = s.then($T::SHAPE);)* s };
            const SLOTS: usize = 0 $(+ $T::SLOTS)*;
            const SLOT_ACCESSES: SlotAccesses = {
                let (mut uses, mut arrays, mut before) = (SlotAccess::ALWAYS.of_all(), 0, 0);
                $(
                    uses = append(uses, arrays, $T::SLOT_ACCESSES, before);
                    (arrays, before) = (arrays + $T::SLOTS, before + $T::SHAPE.barriers);
                )*
                uses
            };
            const FUSES: bool = true $(&& $T::FUSES)* && fits(Self::SHAPE, Self::SLOTS);
            const FUSES_ALWAYS: bool = Self::FUSES $(&& $T::FUSES_ALWAYS)*;
            const ALWAYS_EMITS: bool = true $(&& $T::ALWAYS_EMITS)*;
            const WHOLE: bool = !is_empty(&[$($i),*]);

            chain_methods!();

            // Members that always emit are called directly: visits would lengthen small steps.
            fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
                if const { !Self::ALWAYS_EMITS } {
                    return chain::begin(self, state, at);
                }
                debug_assert_eq!(Transform::holds_back(self), HoldsBack::Never, "it always emits");
                let members = ($(Some(self.$i.begin(&mut state.$i, at)),)*);
                ChainRun { members, begun: Stages::len(self), partly: false }
            }

            fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
                if const { !Self::ALWAYS_EMITS } {
                    return chain::finish(self, state, run, sums, outcome);
                }
                let mut sums = sums;
                $(
                    if let Some(run) = run.members.$i {
                        self.$i.finish(&mut state.$i, run, sums, outcome);
                    }
                    if sums.width > 0 {
                        sums = sums.skip(self.$i.shape().sums);
                    }
                )*
            }

            fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
                $(self.$i.check(&state.$i, at)?;)*
                Ok(())
            }

            fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch) {
                run_own_loops(self, (state, run), walk, scratch);
            }

            fn prepare_chunk<Cx: Real>(
                &self,
                state: &Self::State,
                run: &Self::Run,
                at: StageChunk,
                then: &mut Then<'_, Cx>,
            ) {
                match fused_loop(self, (state, run), at.leaf) {
                    Some(one_loop) => one_loop(self, (state, run), at, then),
                    None => chain::prepare_chunk(self, state, run, at, then),
                }
            }

            fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
                Self::FUSES_ALWAYS
                    || Self::FUSES
                        && !run.partly
                        $(&& run.members.$i.as_ref().is_some_and(|run| self.$i.fuses_now(&state.$i, run, leaf)))*
            }

            #[inline]
            fn kernel<Cx: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<Cx> {
                ($(self.$i.kernel::<Cx>(&state.$i, run.members.$i.as_ref().expect(ALL_BEGUN), leaf),)*)
            }

            fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
                $(self.$i.slots(&state.$i, leaf, list);)*
            }

            #[inline(always)]
            fn apply<Cx: Real>(
                kernel: &Self::Kernel<Cx>,
                at: usize,
                range: PassRange,
                slots: &mut [Cx],
                u: Cx,
                p: Cx,
                terms: &mut [Contribution<Cx>],
            ) -> Cx {
                let (mut at, mut u, mut slots, mut terms) = (at, u, slots, terms);
                $(
                    let (own, slots) = split_sums(slots, $T::SLOTS);
                    let (sums, terms) = split_sums(terms, $T::SHAPE.sums);
                    // Otherwise the update is unmodified; unoptimized builds save the call.
                    if range.from <= at + $T::SHAPE.barriers && at <= range.to {
                        u = $T::apply::<Cx>(&kernel.$i, at, range, own, u, p, sums);
                    }
                    at += $T::SHAPE.barriers;
                )*
                u
            }
        }
    };
}
crate::tuples::up_to_twelve!(chains);
