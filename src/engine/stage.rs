//! What the engine runs.

use super::in_piece::{PieceAt, Then};
use super::pass::by_own_loops;
use super::{
    AllUses, InitContext, Shape, SlotList, Span, Spare, StepContext, Sums, Term, Transform, Uses, Walk, WholeTree,
};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Needs;
use crate::state::{State, StateWalk};

/// How many barriers and sums come before a stage in its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Barriers before the stage.
    pub at: usize,
    /// Sums before the stage's own.
    pub sum: usize,
}

impl Place {
    /// The place of what follows a stage of this shape.
    #[inline(always)]
    pub const fn after(self, shape: Shape) -> Place {
        Place { at: self.at + shape.barriers, sum: self.sum + shape.sums }
    }
}

/// What a step did. Each group of a partition has [its own](crate::wrapper::PartitionState::outcome).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) emitted: bool,
    /// Some gradients were thrown away, perhaps not all.
    pub(crate) skipped: bool,
    /// As [`Emission::Nothing`].
    pub(crate) held: bool,
}

impl Outcome {
    /// What there is before a transformation has done anything: gradients.
    pub(crate) const GRADIENTS: Outcome = Outcome { emitted: true, skipped: false, held: false };

    /// The outcome of a step that emitted nothing.
    pub(crate) const NOTHING: Outcome = Outcome { emitted: false, skipped: false, held: true };

    /// Whether an update was emitted, so that a parameter may have moved: false while a
    /// [`multi_steps`](crate::multi_steps) accumulates, and where it or an
    /// [`apply_if_finite`](crate::apply_if_finite) threw the gradients away, unless another group of a partition emits.
    pub fn emitted(self) -> bool {
        self.emitted
    }

    /// True if all gradients were thrown away, by a skip function or because they were not finite. Never true together
    /// with [`emitted`](Outcome::emitted): where one group of a partition skips and another emits, the
    /// [outcome of the group](crate::wrapper::PartitionState::outcome) says so.
    pub fn skipped(self) -> bool {
        self.skipped && !self.emitted
    }
}

/// What a stage emits in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// It depends on a barrier that the step has not reached.
    Undecided,
    /// Updates.
    Updates,
    /// Updates of some leaves, and nothing for those in [`Stage::resting`].
    Partly,
    /// Updates of zero; nothing is left to do after this many of the stage's barriers.
    Zeros(usize),
    /// Nothing: the gradients were accumulated or thrown away, so that stages after and around this one do not run.
    /// Nothing is left to do after this many of the stage's barriers.
    Nothing(usize),
}

impl Emission {
    /// Returns whether the next stage of the chain runs.
    #[inline(always)]
    pub(crate) const fn reaches_next(self) -> bool {
        matches!(self, Emission::Updates | Emission::Partly | Emission::Zeros(_))
    }

    /// Returns whether nothing is emitted on the whole tree.
    #[inline(always)]
    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self, Emission::Nothing(_))
    }

    /// Returns after how many barriers nothing is left to do, if the output is zero on the whole tree.
    pub(crate) const fn end(self) -> Option<usize> {
        match self {
            Emission::Zeros(end) | Emission::Nothing(end) => Some(end),
            _ => None,
        }
    }

    /// The emission of a chain in which this many barriers come before the stage.
    pub(crate) const fn after(self, barriers: usize) -> Emission {
        match self {
            Emission::Zeros(end) => Emission::Zeros(barriers + end),
            Emission::Nothing(end) => Emission::Nothing(barriers + end),
            other => other,
        }
    }
}

/// On which leaves a stage may emit nothing in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldsBack {
    /// On none.
    Never,
    /// On all leaves together.
    All,
    /// On some leaves, while others have updates.
    Some,
}

/// What the engine runs: a rule lifted, something that must look at more than one element, or a wrapper.
///
/// You need it only for wrappers of your own; arithmetic on elements is a [`Rule`](super::Rule), and what looks at
/// whole leaves or the whole tree is a [`WholeTree`](crate::part::WholeTreeTransformation). `docs/architecture.md`
/// describes the phases of a step: `check` (may fail, changes nothing), `begin`, then passes of `tile` (or of the fused
/// `apply`) with `barrier` between them, then `finish`.
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
    /// What a step must be given besides gradients, such as [`needs::Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// What is remembered between steps.
    type State: State;
    /// What is worked out for one step: scalars, decisions.
    type Run: Send + Sync;
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

    /// Returns the name of an argument, neither a number nor a schedule, whose value differs from that in `made`.
    fn changed(&self, made: &Self) -> Option<&'static str>;

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If a mask or label does not fit the parameters.
    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// The last chance to refuse a step: nothing has been changed yet.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let _ = (state, at);
        Ok(())
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

    /// Does a pass over all leaves, as a whole chain. What is only another name for a chain, or a box around one,
    /// leaves that to the chain, whose loops go from gradients to parameters.
    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, spare: &mut Spare) {
        by_own_loops(self, (state, run), walk, spare);
    }

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
    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize;

    /// Names the masks and groups inside that take no leaf, and says whether that is surely a mistake.
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        let _ = (state, report);
    }

    /// Shows what there is to read of the last step: single values of the state, what parts say besides, and arguments
    /// as they were in that step.
    ///
    /// # Errors
    ///
    /// If the state was made by another transformation.
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()>;
}
