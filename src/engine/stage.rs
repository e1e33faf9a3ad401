//! What the engine runs.

use core::ops::ControlFlow::{Break, Continue};

use super::piece_at::{PieceAt, Then};
use super::typed::OnView;
use super::{
    AllUses, Emission, InitContext, Outcome, Shape, SlotList, Span, Spare, StepContext, Sums, Term, Transform, Uses,
    Walk, WholeTree,
};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::Needs;
use crate::state::{State, StateWalk};

/// What the engine runs: a rule lifted, something that must look at more than one element, or a wrapper.
///
/// You need it only for wrappers of your own; arithmetic on elements is a [`Rule`](super::Rule), and what looks at
/// whole leaves or the whole tree is a [`WholeTree`](crate::part::WholeTreeTransformation). `docs/architecture.md`
/// describes the phases of a step: `check` (may fail, changes nothing), `begin`, then passes with `barrier` between
/// them, then `finish`. A pass runs `apply` in one loop, or `in_piece` by tiles.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transformation of gradients",
    label = "not a transformation of gradients",
    note = "a transformation is what `gradchain` makes (`adam(0.1)`), a tuple of at most 12 of them (longer chains are chains of \
            chains: `chain((chain((a, b)), c))`), a `Vec` or a box of some, or a type of your own that implements `Part` and the \
            trait of its form, such as `Rule`",
    note = "each member of a tuple must be a transformation: `clip(1.0)`, not `clip`; names go to `named_chain([\"a\", \"b\"], (a, b))`",
    note = "parameters, gradients and states are not transformations: write `optimizer.init(&params)`, `Save::new(&optimizer, &state)`",
    note = "in a generic function, ask for `T: GradientTransformation<Needs = Nothing>`, with `gradchain::needs::Nothing`"
)]
pub trait Stage: Transform + Clone {
    // Once a step.

    /// What a step must be given besides gradients, such as [`needs::Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// What is remembered between steps.
    type State: State;
    /// What is worked out for one step: scalars, decisions.
    type Run: Send + Sync;

    /// Returns the name of an argument, neither a number nor a schedule, whose value differs from that in `made`.
    fn changed(&self, made: &Self) -> Option<&'static str>;

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If a mask or label does not fit the parameters.
    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// Calls `visit` with each member and its state. What a stage leaves to its members is done by them in order: see
    /// the default methods.
    fn views<'a>(&self, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let _ = (state, run, visit);
    }

    /// Checks, before anything is changed, that the step can be done.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let mut checked = Ok(());
        self.views(state, None, &mut |_, member| {
            checked = member.check(at);
            if checked.is_ok() { Continue(()) } else { Break(()) }
        });
        checked
    }

    /// Starts a step: counts it and works out the scalars.
    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run;

    /// Between passes: barrier `index` of this stage has been reached, its sums are complete, and if it
    /// [materializes](Shape::materializes) the updates are in `tree`.
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

    /// Ends a step: writes down what the sums tell, and what the step did. `outcome` says what came in, as far as it is
    /// known: whether it was anything but zeros; and then what comes out.
    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let _ = (state, run, sums, outcome);
    }

    /// Returns what the stage emits in this step, as far as that is decided. Called after `begin` and after every
    /// barrier.
    #[inline(always)]
    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        let _ = (state, run);
        Emission::Updates
    }

    /// The leaves for which nothing is emitted in a step that emits [`Partly`](Emission::Partly), and those that rested
    /// before.
    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        let _ = state;
        &[]
    }

    /// Names the masks and groups inside that take no leaf, and says whether that is surely a mistake.
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        self.views(state, None, &mut |_, member| {
            member.unused(report);
            Continue(())
        });
    }

    /// Shows what there is to read of the last step: single values of the state, what parts say besides, and arguments
    /// as they were in that step.
    ///
    /// # Errors
    ///
    /// If the state was made by another transformation.
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()>;

    // In passes and their loops.

    /// What the element loop of one leaf needs.
    type Kernel<C: Real>: Copy + Send + Sync;
    /// Barriers and sums. For what is only known at run time, override [`shape`](Transform::shape).
    const SHAPE: Shape;
    /// Whether the whole stage can run as one element loop.
    const FUSES: bool;
    /// Whether it does so in every step: [`fuses_now`](Stage::fuses_now) is not asked, and no member has its own loop.
    const FUSES_ALWAYS: bool = false;
    /// Whether a box whose type allows more than this needs has loops for it as a whole chain. Such a box is mostly a
    /// member among others; so true for what joins parts, and for what is a whole chain by its type.
    const WHOLE: bool = true;
    /// State arrays in that loop.
    const SLOTS: usize = 0;
    /// What each pass does to each of them.
    const USES: AllUses = Uses::ALWAYS.of_all();

    /// Does a pass over all leaves, as a whole chain: by [`by_own_loops`](super::by_own_loops), or what is only another
    /// name for a chain, or a box around one, by the loops of that, which go from gradients to parameters.
    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut Spare);

    /// Finds what the tiles of a chunk have in common, and calls `then` with a function that transforms a tile.
    fn in_piece<C: Real>(&self, state: &Self::State, run: &Self::Run, at: PieceAt, then: &mut Then<'_, C>);

    /// Whether the fused loop is right for this leaf in this step.
    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        let _ = (state, run, leaf);
        Self::FUSES
    }

    /// What the element loop of a leaf needs.
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C>;

    /// Lists the state arrays of a leaf, [`SLOTS`](Stage::SLOTS) of them.
    fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        let _ = (state, leaf, list);
    }

    /// Transforms one element, and says what it adds to the sums of this stage.
    fn apply<C: Real>(
        kernel: &Self::Kernel<C>,
        at: usize,
        span: Span,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term<C>],
    ) -> C {
        let _ = (kernel, at, span, slots, p, terms);
        u
    }

    /// How many bytes of state a pass reads and writes for a leaf, counted from this stage's own place.
    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let mut bytes = 0;
        self.views(state, None, &mut |_, member| {
            bytes += member.state_bytes(leaf, at, span);
            Continue(())
        });
        bytes
    }
}

/// States that begin anew in a step.
impl StepContext<'_> {
    /// A state as `init` makes it, for the parameters of this step.
    ///
    /// # Errors
    ///
    /// Those of `init`. Asked for before the step begins, by [`can_begin_anew`](Self::can_begin_anew).
    fn try_anew<T: Stage>(&self, transformation: &T, active: &[bool]) -> Result<T::State> {
        if self.elsewhere {
            return Err(Error::unrecordable(&transformation.describe(), "its state begins anew from the parameters"));
        }
        self.as_init(active, |at| transformation.init_state(at))
    }

    /// Whether [`anew`](Self::anew) will find a state: for [`Stage::check`], before anything is changed.
    pub(crate) fn can_begin_anew<T: Stage>(&self, transformation: &T, active: &[bool]) -> Result<()> {
        self.try_anew(transformation, active).map(drop)
    }

    /// A state as `init` makes it, in a step for which it was found that there is one.
    pub(crate) fn anew<T: Stage>(&self, transformation: &T, active: &[bool]) -> T::State {
        self.try_anew(transformation, active).expect("what `check` could begin anew can begin")
    }
}
