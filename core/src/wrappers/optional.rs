//! A member of a chain that may be absent.

use crate::engine::{
    Contribution, Emission, OnView, PassRange, PassStructure, Skips, SlotAccess, SlotAccesses, SlotList, StageChunk,
    Summary, Then, TileScratch, Walk, run_own_loops,
};
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;

/// The kernel of the member, if present.
#[derive(Clone, Copy)]
pub struct OptionalKernel<K>(Option<K>);

/// Returns true if a chain's loop omits this member: it has arrays and is often absent.
const fn is_left_out<T: Stage>() -> bool {
    T::SLOTS > 0 && T::SHAPE.barriers == 0
}

/// Returns true if a chain's loop is the same without this member.
const fn fits_either<T: Stage>() -> bool {
    T::SLOTS == 0 && T::SHAPE.barriers == 0 && T::SHAPE.sums == 0
}

impl<T: Stage> Transform for Option<T> {
    fn as_dyn(&self) -> &dyn Transform {
        self
    }

    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        self.iter().for_each(|member| visit(member));
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        self.as_ref().is_none_or(|member| member.skips(skips, place))
    }

    fn summary(&self) -> Summary {
        self.as_ref().map_or(Summary::Chain(Vec::new()), Transform::summary)
    }

    fn recipe(&self) -> Recipe {
        // An empty chain, without state.
        self.as_ref().map_or_else(|| ().recipe(), Transform::recipe)
    }

    fn describe(&self) -> String {
        self.as_ref().map_or("()".into(), Transform::describe)
    }
}

/// `None` changes nothing and has no state. It serves optimizers whose arguments select their parts.
impl<T: Stage> Stage for Option<T> {
    type Needs = T::Needs;
    type State = Option<T::State>;
    type Run = Option<T::Run>;
    type Kernel<C: Real> = OptionalKernel<T::Kernel<C>>;

    const SHAPE: PassStructure = if is_left_out::<T>() { PassStructure::EMPTY } else { T::SHAPE };
    const FUSES: bool = is_left_out::<T>() || T::FUSES && T::SLOTS == 0;
    const FUSES_ALWAYS: bool = Self::FUSES && T::FUSES_ALWAYS && fits_either::<T>();
    const WHOLE: bool = false;
    const SLOTS: usize = if is_left_out::<T>() { 0 } else { T::SLOTS };
    const SLOT_ACCESSES: SlotAccesses = if is_left_out::<T>() { SlotAccess::ALWAYS.of_all() } else { T::SLOT_ACCESSES };

    fn changed(&self, original: &Self) -> Option<&'static str> {
        match (self, original) {
            (Some(t), Some(original)) => t.changed(original),
            (None, None) => None,
            _ => Some("optional member"),
        }
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        self.as_ref().map(|t| t.init_state(at)).transpose()
    }

    fn views<'a>(&self, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        if let (Some(stage), Some(state)) = (self, state) {
            let _ = stage.visit_view(0, state, run.and_then(Option::as_ref), visit);
        }
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        Some(self.as_ref()?.begin(state.as_mut()?, at))
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
        if let (Some(t), Some(state), Some(run)) = (self, state, run) {
            t.barrier(state, run, at, index, sums, tree);
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        if let (Some(t), Some(state), Some(run)) = (self, state, run) {
            t.finish(state, run, sums, outcome);
        }
    }

    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        match (self, state, run) {
            (Some(t), Some(state), Some(run)) => t.emission(state, run),
            _ => Emission::Updates,
        }
    }

    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        if let (Some(t), Some(state)) = (self, state) { t.resting(state) } else { &[] }
    }

    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut TileScratch) {
        run_own_loops(self, (state, run), walk, spare);
    }

    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        match (self, state, run) {
            (Some(t), Some(state), Some(run)) => t.prepare_chunk(state, run, at, then),
            _ => then(&mut |_| {}),
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        match (self, state, run) {
            (Some(t), Some(state), Some(run)) => !is_left_out::<T>() && t.fuses_now(state, run, leaf),
            _ => is_left_out::<T>() || fits_either::<T>(),
        }
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inside = || Some(self.as_ref()?.kernel(state.as_ref()?, run.as_ref()?, leaf));
        OptionalKernel(inside())
    }

    fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        if let (Some(t), Some(state)) = (self, state)
            && !is_left_out::<T>()
        {
            t.slots(state, leaf, list);
        }
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &Self::Kernel<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>],
    ) -> C {
        match &k.0 {
            Some(k) if const { !is_left_out::<T>() } => T::apply::<C>(k, at, range, slots, u, p, terms),
            _ => u,
        }
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        if let (Some(t), Some(state)) = (self, state) { t.read(state, walk) } else { Ok(()) }
    }
}
