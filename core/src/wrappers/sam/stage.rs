//! The mode of `sam` in which adversarial steps are steps of the caller.

use super::{Sam, SamState, check_period};
use crate::engine::{
    Absent, Emission, HoldsBack, OnView, ParamSource, PassRange, PassStructure, Skips, SlotJob, StageChunk,
    StageOffset, Summary, Then, Tile, TileScratch, Walk, allows_absent, at_point, run_own_loops, slot_tile,
};
use crate::needs::Needs;
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::state::{StateWalk, restart};
use crate::tree::LeafSpec;

/// The optimizer that runs in a step.
#[derive(Debug)]
pub enum SamRun<O, A, S> {
    /// The adversarial optimizer; true if the round begins and the parameters are copied.
    Ascend(A, bool),
    /// The optimizer; true if the round starts at the current point, as in rounds of one step. The box has the
    /// adversarial optimizer's new state, if reset.
    Descend(O, bool, Option<Box<S>>),
}

#[derive(Clone, Copy)]
struct CopyParams;

impl<C: Real> SlotJob<C> for CopyParams {
    #[inline(always)]
    fn run(self, _: &mut [C], p: &[C], cache: &mut [C]) {
        cache.copy_from_slice(p);
    }
}

#[derive(Clone, Copy)]
struct RestoreParams;

impl<C: Real> SlotJob<C> for RestoreParams {
    #[inline(always)]
    fn run(self, u: &mut [C], p: &[C], cache: &mut [C]) {
        restore_params(u, p, cache);
    }
}

#[inline(always)]
fn restore_params<C: Real>(u: &mut [C], p: &[C], cache: &[C]) {
    for ((u, p), c) in u.iter_mut().zip(p).zip(cache) {
        *u += *c - *p;
    }
}

/// Both copying and returning read the parameters.
const READS: PassStructure = PassStructure::elementwise(false, true);

impl<O: Stage, A: Stage> Sam<O, A> {
    /// The optimizer's sums follow the adversarial one's; both reach their barriers together.
    fn optimizer_offset(&self, place: StageOffset) -> StageOffset {
        StageOffset { sum: place.sum + self.adv_optimizer.shape().sums, ..place }
    }
}

/// Returns the step context with the parameters at the start of the round.
fn at_round_start<'a>(cache: &'a Moments, here: bool, at: &StepContext<'a>) -> StepContext<'a> {
    StepContext { params: if here { at.params } else { ParamSource::Arrays(cache) }, ..*at }
}

impl<O: Stage, A: Stage> Transform for Sam<O, A> {
    fn as_dyn(&self) -> &dyn Transform {
        self
    }

    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        visit(&self.optimizer);
        visit(&self.adv_optimizer);
    }

    fn absent(&self) -> Absent {
        Absent::Refused
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        allows_absent(self, skips, place)
    }

    fn shape(&self) -> PassStructure {
        READS.then(self.adv_optimizer.shape().union(self.optimizer.shape())).then(READS)
    }

    fn validate(&self) -> Result<()> {
        Error::all([check_period(self.sync_period), self.optimizer.validate(), self.adv_optimizer.validate()])
    }

    fn holds_back(&self) -> HoldsBack {
        self.optimizer.holds_back().max(self.adv_optimizer.holds_back()).min(HoldsBack::All)
    }

    fn summary(&self) -> Summary {
        Summary::around("sam", "optimizer", self.optimizer.summary())
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "sam",
            [
                ("optimizer", self.optimizer.recipe()),
                ("adv_optimizer", self.adv_optimizer.recipe()),
                ("sync_period", self.sync_period.to_recipe()),
                ("reset_state", self.reset_state.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("sam({}, {})", self.optimizer.describe(), self.adv_optimizer.describe())
    }
}

impl<O: Stage, A: Stage> Stage for Sam<O, A> {
    type Needs = <O::Needs as Needs>::Or<A::Needs>;
    type State = SamState<O::State, A::State>;
    type Run = SamRun<O::Run, A::Run, A::State>;
    type Kernel<C: Real> = ();

    const SHAPE: PassStructure = READS.then(A::SHAPE.union(O::SHAPE)).then(READS);
    const FUSES: bool = false;

    fn changed(&self, original: &Self) -> Option<&'static str> {
        let inner = self.optimizer.changed(&original.optimizer);
        inner.or_else(|| self.adv_optimizer.changed(&original.adv_optimizer))
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let cache = at.params_as_moments()?;
        if self.reset_state && at.structure().leaves().iter().any(LeafSpec::is_shared) {
            // A new state may read all elements, of which this process owns a part.
            let begin = |params: &[_]| self.adv_optimizer.init_state(&InitContext { params, whole: None, ..*at });
            ParamSource::Arrays(&cache).with(at.structure(), begin)??;
        }
        Ok(SamState {
            steps_since_sync: Count::default(),
            opt_state: self.optimizer.init_state(at)?,
            adv_state: self.adv_optimizer.init_state(at)?,
            cache,
        })
    }

    fn views<'a>(&self, state: &'a Self::State, _: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let first = self.optimizer.visit_view(0, &state.opt_state, None, visit);
        if first.is_continue() {
            let _ = self.adv_optimizer.visit_view(1, &state.adv_state, None, visit);
        }
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        at.whole_leaves("sam")?;
        let SamState { steps_since_sync, opt_state, adv_state, cache, .. } = state;
        let begun = at_round_start(cache, steps_since_sync.get() == 0, at);
        if self.reset_state && steps_since_sync.get() + 1 >= self.sync_period {
            begun.can_reinitialize(&self.adv_optimizer, &active(cache))?;
        }
        self.optimizer.check(opt_state, &begun)?;
        self.adv_optimizer.check(adv_state, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let first = state.steps_since_sync.get() == 0;
        if state.steps_since_sync.get() + 1 < self.sync_period {
            return SamRun::Ascend(self.adv_optimizer.begin(&mut state.adv_state, at), first);
        }
        let SamState { opt_state, cache, .. } = state;
        let at = at_round_start(cache, first, at);
        let fresh = || Box::new(at.reinitialize(&self.adv_optimizer, &active(cache)));
        let fresh = self.reset_state.then(fresh);
        SamRun::Descend(self.optimizer.begin(opt_state, &at), first, fresh)
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let adversary = self.adv_optimizer.shape();
        match run {
            SamRun::Ascend(run, _) if index < adversary.barriers => {
                self.adv_optimizer.barrier(&mut state.adv_state, run, at, index, sums, tree);
            }
            SamRun::Descend(run, here, _) if index < self.optimizer.shape().barriers => {
                let SamState { opt_state, cache, .. } = state;
                let sums = sums.skip(adversary.sums);
                let at = &at_round_start(cache, *here, at);
                let mut inside = |tree: &mut WholeTree<'_>| {
                    self.optimizer.barrier(opt_state, run, at, index, sums, tree);
                };
                // Only a stage with updates in memory reads parameters there.
                match *here || !self.optimizer.shape().needs_memory(index) {
                    true => inside(tree),
                    false => tree.at_point(cache, &mut inside),
                }
            }
            _ => {}
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        match run {
            SamRun::Ascend(run, _) => {
                if !self.adv_optimizer.emission(&state.adv_state, &run).is_nothing() {
                    state.steps_since_sync.increment();
                }
                self.adv_optimizer.finish(&mut state.adv_state, run, sums, outcome);
            }
            SamRun::Descend(run, here, fresh) => {
                state.steps_since_sync.reset();
                let fresh = fresh.filter(|_| !(here && self.optimizer.emission(&state.opt_state, &run).is_nothing()));
                let sums = sums.skip(self.adv_optimizer.shape().sums);
                self.optimizer.finish(&mut state.opt_state, run, sums, outcome);
                outcome.emitted |= !here;
                if let Some(fresh) = fresh {
                    restart(&mut state.adv_state, *fresh, sums.resting);
                }
            }
        }
    }

    /// The parameters return even if the optimizer emits nothing.
    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        let emission = match run {
            SamRun::Ascend(run, _) => self.adv_optimizer.emission(&state.adv_state, run),
            SamRun::Descend(run, true, _) => self.optimizer.emission(&state.opt_state, run),
            SamRun::Descend(_, false, _) => return Emission::Updates,
        };
        match emission {
            Emission::Undecided | Emission::Nothing(_) => emission,
            _ => Emission::Updates,
        }
    }

    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut TileScratch) {
        run_own_loops(self, (state, run), walk, spare);
    }

    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        let (at, ends) = (at.read(), at.range.has(at.place.at + self.shape().barriers));
        let (SamRun::Ascend(_, first) | SamRun::Descend(_, first, _)) = run;
        // The output mode is decided, and the parameters have not moved yet.
        let remembers = *first && ends && !self.emission(state, run).is_nothing();
        let begin = |tile: &mut Tile<'_, C>| {
            if remembers {
                slot_tile(&state.cache, tile, CopyParams);
            }
        };
        match run {
            SamRun::Ascend(run, _) => self.adv_optimizer.prepare_chunk(&state.adv_state, run, at, &mut |inside| {
                then(&mut |tile| {
                    begin(tile);
                    inside(tile);
                    if ends {
                        tile.u().iter_mut().for_each(|u| *u = -*u);
                    }
                });
            }),
            SamRun::Descend(run, here, _) => {
                let at = StageChunk { place: self.optimizer_offset(at.place), ..at };
                self.optimizer.prepare_chunk(&state.opt_state, run, at, &mut |inside| {
                    then(&mut |tile| {
                        begin(tile);
                        if *here {
                            return inside(tile);
                        }
                        at_point(&state.cache, tile, &mut *inside);
                        if ends {
                            slot_tile(&state.cache, tile, RestoreParams);
                        }
                    });
                });
            }
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        let own = state.cache.as_bytes(leaf).map_or(0, <[u8]>::len);
        let inner = self.optimizer.state_bytes(&state.opt_state, leaf, at, range);
        if range.has(at + self.shape().barriers) { inner + own } else { inner }
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.within("opt_state", &mut |walk| self.optimizer.read(&state.opt_state, walk))?;
        walk.within("adv_state", &mut |walk| self.adv_optimizer.read(&state.adv_state, walk))
    }
}

fn active(cache: &Moments) -> Vec<bool> {
    (0..cache.len()).map(|leaf| cache.dtype(leaf).is_some()).collect()
}
