use core::fmt::Debug;
use core::ops::ControlFlow::{self, Break, Continue};

use super::erased::{OnMember, OnView, Running, Viewed};
use super::stage_chunk::{StageChunk, Then};
use super::{
    Contribution, Emission, InitContext, Outcome, PassRange, PassStructure, SlotAccess, SlotAccesses, SlotList,
    StepContext, Sums, TileScratch, Transform, Walk, WholeTree,
};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::Needs;
use crate::state::{State, StateWalk, StateWalkMut};

/// A transformation with its types: state, the scalars of a step, and element loops.
///
/// Custom parts do not implement it: element arithmetic is a [`Rule`](super::Rule), and whole leaves or the whole tree
/// take a [`WholeTreeTransformation`](crate::part::WholeTreeTransformation). A step calls `check` (may fail, changes
/// nothing), `begin`, then passes with `barrier` between them, then `finish`. A pass runs `apply` in one loop, or
/// `prepare_chunk` by tiles. See `docs/architecture.md`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a gradient transformation",
    label = "not a gradient transformation",
    note = "a transformation is the result of a constructor (`adam(0.1)`), a tuple of at most 12 transformations (nest \
            longer chains: `chain((chain((a, b)), c))`), a `Vec` or a box of them, or your own type that implements \
            `Part` and the trait of its form, such as `Rule`",
    note = "each member of a tuple must be a transformation: `clip(1.0)`, not `clip`; names go to `named_chain([\"a\", \"b\"], (a, b))`",
    note = "parameters, gradients and states are not transformations: write `optimizer.init(&params)`, `Save::new(&optimizer, &state)`",
    note = "in a generic function, require `T: GradientTransformation<Needs = Nothing>`, with \
            `gradchain::needs::Nothing`"
)]
pub trait Stage: Transform + Clone + Debug {
    // Once a step.

    /// The inputs of a step besides gradients, such as [`needs::Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// The values kept between steps.
    type State: State;
    /// The values computed once per step: scalars, decisions.
    type Run: Send + Sync;

    /// Returns the name of an argument other than numbers and schedules that differs from `original`.
    fn changed(&self, original: &Self) -> Option<&'static str>;

    /// Returns the state before the first step.
    ///
    /// # Errors
    ///
    /// If a mask or label does not fit the parameters.
    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// Calls `visit` with this stage and its state. Not inlined, as [`visit_in_step`](Stage::visit_in_step) is not: a
    /// crate that chains a stage shares the methods of the crate that has instantiated them.
    #[inline(never)]
    fn visit_view<'a>(
        &self,
        number: usize,
        state: &'a Self::State,
        run: Option<&Self::Run>,
        visit: &mut OnView<'_, 'a>,
    ) -> ControlFlow<()> {
        visit(number, &Viewed { stage: self, state, run })
    }

    /// Calls `visit` with this stage in a step.
    #[inline(never)]
    fn visit_in_step<'a>(
        &self,
        number: usize,
        state: &'a mut Self::State,
        run: &mut Option<Self::Run>,
        visit: &mut OnMember<'_, 'a>,
    ) -> ControlFlow<()> {
        visit(number, &mut Running::new(self, state, run))
    }

    /// Calls `visit` with each member and its state. The default methods forward to the members in order.
    fn views<'a>(&self, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let _ = (state, run, visit);
    }

    /// Checks that the step can run. Changes nothing.
    ///
    /// # Errors
    ///
    /// If the step cannot run.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let mut checked = Ok(());
        self.views(state, None, &mut |_, member| {
            checked = member.check(at);
            if checked.is_ok() { Continue(()) } else { Break(()) }
        });
        checked
    }

    /// Starts a step: counts it and computes the scalars.
    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run;

    /// Handles barrier `index` of this stage. Its reductions are complete; if the stage
    /// materializes, `tree` holds the updates.
    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let _ = (state, run, at, index, sums, tree);
    }

    /// Ends a step: writes reductions to the state and reports. `outcome` describes the input (whether all of it was
    /// zero, if known), then the output.
    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let _ = (state, run, sums, outcome);
    }

    /// True if every step emits updates, decided at its start: [`emission`](Stage::emission) is constant.
    const ALWAYS_EMITS: bool = false;

    /// Returns the output mode of this step, if decided. Called after `begin` and each barrier.
    #[inline(always)]
    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        let _ = (state, run);
        Emission::Updates
    }

    /// Returns the leaves that rest: those without an update in a `Partly` step, and those that
    /// rested before.
    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        let _ = state;
        &[]
    }

    /// Reports masks and groups that match no leaf. The flag marks certain mistakes.
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        self.views(state, None, &mut |_, member| {
            member.unused(report);
            Continue(())
        });
    }

    /// Shows the last step's readings: single values of the state, readings of parts, arguments.
    ///
    /// # Errors
    ///
    /// If another transformation made the state.
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()>;

    // In passes and their loops.

    /// The values that the element loop needs for one leaf.
    type Kernel<C: Real>: Copy + Send + Sync;
    /// Barriers and reductions known at compile time; `shape` adds the rest.
    const SHAPE: PassStructure;
    /// True if the whole stage can run as one element loop.
    const FUSES: bool;
    /// True if it always does: the engine skips [`fuses_now`](Stage::fuses_now), and members have no loops of their
    /// own.
    const FUSES_ALWAYS: bool = false;
    /// True if a box instantiates whole-chain loops even if its type allows more needs than this stage has. Such a box
    /// is usually a member of a chain, so this is true only of stages made of others and of types that are whole
    /// chains.
    const WHOLE: bool = true;
    /// The number of state arrays in that loop.
    const SLOTS: usize = 0;
    /// Each pass's accesses to these arrays.
    const SLOT_ACCESSES: SlotAccesses = SlotAccess::ALWAYS.of_all();

    /// Runs a pass over all leaves, as a whole chain, by `run_own_loops`. A stage that renames
    /// or boxes a chain forwards to its loops, from gradients to parameters.
    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch);

    /// Looks up what the tiles of a chunk share, and calls `then` with a function of a tile.
    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>);

    /// Returns true if the fused loop is valid for this leaf and step.
    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        let _ = (state, run, leaf);
        Self::FUSES
    }

    /// Returns the values that the element loop needs for a leaf.
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C>;

    /// Lists the [`SLOTS`](Stage::SLOTS) state arrays of a leaf.
    fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        let _ = (state, leaf, list);
    }

    /// Transforms one element and sets its contributions to reductions.
    fn apply<C: Real>(
        kernel: &Self::Kernel<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>],
    ) -> C {
        let _ = (kernel, at, range, slots, p, terms);
        u
    }

    /// Returns the bytes of a leaf's state that a pass reads and writes. `at` counts the barriers before this stage.
    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        let mut bytes = 0;
        self.views(state, None, &mut |_, member| {
            bytes += member.state_bytes(leaf, at, range);
            Continue(())
        });
        bytes
    }
}

/// Instantiates the methods that crates share, where a static refers to this function.
pub fn instantiate<T: Stage>(stage: &T, at: &InitContext<'_>) {
    if let Ok(mut state) = stage.init_state(at) {
        let _ = stage.visit_view(0, &state, None, &mut |_, _| Break(()));
        let _ = stage.visit_in_step(0, &mut state, &mut None, &mut |_, _| Break(()));
        state.walk(&mut StateWalk::new(&mut |_, _| {}));
        state.walk_mut(&mut StateWalkMut::new(&mut |_, _| {}));
    }
    let _ = stage.as_dyn().describe();
}

impl StepContext<'_> {
    /// Makes a state as `init` does, for the parameters of this step.
    ///
    /// # Errors
    ///
    /// Those of `init`; [`can_reinitialize`](Self::can_reinitialize) finds them before the step.
    fn try_reinitialize<T: Stage>(&self, transformation: &T, active: &[bool]) -> Result<T::State> {
        if self.on_device {
            return Err(Error::unrecordable(&transformation.describe(), "its state restarts from the parameters"));
        }
        self.as_init(active, |at| transformation.init_state(at))
    }

    /// Returns an error if [`reinitialize`](Self::reinitialize) would fail; changes nothing, for [`Stage::check`].
    pub(crate) fn can_reinitialize<T: Stage>(&self, transformation: &T, active: &[bool]) -> Result<()> {
        self.try_reinitialize(transformation, active).map(drop)
    }

    /// Makes a state as `init` does, after [`can_reinitialize`](Self::can_reinitialize).
    pub(crate) fn reinitialize<T: Stage>(&self, transformation: &T, active: &[bool]) -> T::State {
        self.try_reinitialize(transformation, active).expect("`check` has tested the restart")
    }
}
