//! The stage: on one rank the inner transformation, on several an exchange of messages between two passes.

use std::sync::Mutex;

use super::exchange::Exchange;
use super::{PARTS, Sharded, ShardedState, Shared, agreement};
use crate::element::Contribution;
use crate::engine::ranks::Ranks;
use crate::engine::{
    Absent, Emission, HoldsBack, Nested, OnView, PassRange, PassStructure, Sink, Skips, SlotAccesses, SlotList,
    StageChunk, Summary, Then, TileScratch, Walk, allows_absent, run_own_loops,
};
use crate::memory::RawBytes;
use crate::needs::Level;
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;
use crate::tree::LeafSpec;

/// The values of a step.
#[derive(Debug)]
pub struct ShardedRun<R> {
    /// On a single rank.
    single_rank: Option<R>,
    /// On several ranks: messages of gradients, later of updates.
    messages: Vec<RawBytes>,
    step_outcome: Option<Outcome>,
}

/// On several ranks messages store gradients and supply updates.
const SHARED: PassStructure =
    PassStructure { barriers: 1, materializes: 1, keeps: 1, joins: true, ..PassStructure::NONE };

impl<T: Stage> Transform for Sharded<T> {
    fn as_dyn(&self) -> &dyn Transform {
        self
    }

    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        visit(&self.inner);
    }

    fn absent(&self) -> Absent {
        Absent::Refused
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        allows_absent(self, skips, place)
    }

    fn shape(&self) -> PassStructure {
        if self.is_single_rank { PassStructure { joins: true, ..self.inner.shape() } } else { SHARED }
    }

    fn validate(&self) -> Result<()> {
        if !PARTS.contains(&self.parts) {
            return Err(Error::argument("sharded", "parts", "from 1 to 2²⁴", self.parts));
        }
        if let Some(dtype) = self.reduce_dtype.filter(|dtype| !dtype.is_supported()) {
            return Err(Error::argument("sharded", "reduce_dtype", "f32 or f64 without the feature `half`", dtype));
        }
        self.inner.validate()
    }

    fn holds_back(&self) -> HoldsBack {
        self.inner.holds_back().min(HoldsBack::All)
    }

    fn summary(&self) -> Summary {
        Summary::around("sharded", "inner", self.inner.summary())
    }

    /// Returns the inner recipe: sharding is no part of an optimizer.
    fn recipe(&self) -> Recipe {
        self.inner.recipe()
    }

    fn describe(&self) -> String {
        format!("sharded({})", self.inner.describe())
    }
}

impl<T: Stage> Stage for Sharded<T> {
    type Needs = T::Needs;
    type State = ShardedState<T::State>;
    type Run = ShardedRun<T::Run>;
    type Kernel<C: Real> = T::Kernel<C>;

    const SHAPE: PassStructure = PassStructure { joins: true, ..T::SHAPE };
    const FUSES: bool = T::FUSES;
    const SLOTS: usize = T::SLOTS;
    const SLOT_ACCESSES: SlotAccesses = T::SLOT_ACCESSES;

    fn changed(&self, original: &Self) -> Option<&'static str> {
        let parts = (self.parts != original.parts).then_some("parts");
        let dtype = (self.reduce_dtype != original.reduce_dtype).then_some("reduce_dtype");
        parts.or(dtype).or_else(|| self.inner.changed(&original.inner))
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let structure = at.structure();
        if structure.leaves().iter().any(LeafSpec::is_shared) {
            let expected = "made of parts that treat each leaf or element separately";
            return Err(Error::argument("sharded", "inner", expected, "sharded"));
        }
        let travel = self.reduce_dtype.map_or("as they are".into(), |dtype| format!("as {dtype}"));
        let what = [format!("{:?}", self.inner.recipe()), format!("gradients sent {travel}")];
        agreement::on_leaves(&*self.collective, what, structure, at.active())?;
        // A dry run without elements collects the leaves that must not be sharded.
        let whole = Mutex::new(vec![None; structure.len()]);
        let nothing = structure.only(&vec![0..0; structure.len()]);
        self.inner.init_state(&InitContext { structure: &nothing, whole: Some(&whole), by_leaf: false, ..*at })?;
        if self.is_single_rank {
            return Ok(ShardedState { inner: self.inner.init_state(at)?, shared: None });
        }
        let whole = whole.into_inner().unwrap_or_default();
        let ranks = Ranks::share(self.collective.clone(), structure, at.active(), &whole);
        let here = structure.only(&ranks.here(structure, self.collective.rank()));
        let inside = InitContext { structure: &here, by_leaf: false, ..*at };
        let inner = self.inner.init_state(&inside)?;
        let exchange = Exchange::new(&ranks, structure, &inside, self.parts, self.reduce_dtype)?;
        let nested = Nested::of_rank(&here, at.active(), &self.inner, ranks)?;
        Ok(ShardedState { inner, shared: Some(Shared { nested, exchange, compared: Default::default() }) })
    }

    fn views<'a>(&self, state: &'a Self::State, _: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let _ = self.inner.visit_view(0, &state.inner, None, visit);
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        at.whole_leaves("sharded")?;
        let Some(Shared { nested, compared, .. }) = &state.shared else { return self.inner.check(&state.inner, at) };
        nested.check(&self.inner, &state.inner, at, at.params)?;
        let mut compared = compared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*compared {
            agreement::on_values(&*self.collective, at)?;
        }
        *compared = true;
        let value = at.value().filter(|_| self.inner.needs() >= Level::Value);
        agreement::on_step(&*self.collective, &state.inner, at.is_flush(), value)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let (mut single_rank, mut messages) = (None, Vec::new());
        match &mut state.shared {
            None => single_rank = Some(self.inner.begin(&mut state.inner, at)),
            Some(_) if at.is_flush() => {}
            Some(shared) => messages = shared.exchange.lend(),
        }
        ShardedRun { single_rank, messages, step_outcome: None }
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
        if let Some(run) = &mut run.single_rank {
            return self.inner.barrier(&mut state.inner, run, at, index, sums, tree);
        }
        if let Some(shared) = state.shared.as_mut().filter(|_| sums.repeats.is_none()) {
            let done = shared.step(self, &mut state.inner, at, tree, run);
            done.unwrap_or_else(|error| at.fail(error));
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        match (run.single_rank, run.step_outcome) {
            (Some(run), _) => self.inner.finish(&mut state.inner, run, sums, outcome),
            (None, Some(step_outcome)) => {
                *outcome = Outcome { skipped: outcome.skipped | step_outcome.skipped, ..step_outcome };
            }
            // A step may end before the barrier.
            (None, None) => {}
        }
    }

    /// Several ranks do not share which leaves lack updates, so a single rank does not report them either.
    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        let emission = match (&run.single_rank, run.step_outcome) {
            (Some(run), _) => self.inner.emission(&state.inner, run),
            (None, Some(step_outcome)) if step_outcome.held => Emission::Nothing(1),
            (None, Some(_)) => Emission::Updates,
            (None, None) => Emission::Undecided,
        };
        if emission == Emission::Partly { Emission::Updates } else { emission }
    }

    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut TileScratch) {
        run_own_loops(self, (state, run), walk, spare);
    }

    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        if let Some(run) = &run.single_rank {
            return self.inner.prepare_chunk(&state.inner, run, at, then);
        }
        then(&mut |tile| {
            if const { C::RECORDS } {
                return C::refuse("other ranks hold shards of it");
            }
            let Some(Shared { exchange, .. }) = &state.shared else { return };
            if at.range.to == at.place.at {
                exchange.grads.store(&run.messages, tile);
            } else if at.range.has(at.place.at + 1) {
                match run.step_outcome {
                    Some(step_outcome) if step_outcome.emitted => exchange.updates.read_tile(&run.messages, tile),
                    _ => tile.set_zero(),
                }
            }
        });
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        run.single_rank.as_ref().is_some_and(|run| self.inner.fuses_now(&state.inner, run, leaf))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let run = run.single_rank.as_ref().expect("the fused loop is run on one rank");
        self.inner.kernel(&state.inner, run, leaf)
    }

    fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(
        kernel: &Self::Kernel<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>],
    ) -> C {
        T::apply::<C>(kernel, at, range, slots, u, p, terms)
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        if state.shared.is_none() { self.inner.state_bytes(&state.inner, leaf, at, range) } else { 0 }
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.of_part("sharded", Vec::new(), &mut |walk| self.inner.read(&state.inner, walk))
    }
}

impl Shared {
    /// Runs the inner step between the passes, from gradients to updates in messages.
    fn step<T: Stage>(
        &mut self,
        sharded: &Sharded<T>,
        state: &mut T::State,
        at: &StepContext<'_>,
        tree: &WholeTree<'_>,
        run: &mut ShardedRun<T::Run>,
    ) -> Result<()> {
        let (Shared { nested, exchange, .. }, collective) = (self, &*sharded.collective);
        if !at.is_flush() {
            exchange.reduce(collective)?;
        }
        let own = exchange.lend_own();
        let sink = Sink::Messages(&exchange.own, &own);
        let step_outcome = nested.run_on(&sharded.inner, state, at, tree.params, &exchange.mean, sink, None);
        run.step_outcome = Some(step_outcome);
        if step_outcome.emitted && !at.has_failed() {
            run.messages = exchange.spread(collective)?;
        }
        Ok(())
    }
}
