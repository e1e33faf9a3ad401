//! Whole leaves, or the whole tree.

use core::marker::PhantomData;

use super::super::whole::NOT_REMOTE;
use super::super::{
    Contribution, Emission, HoldsBack, InitContext, Outcome, PassRange, PassStructure, StageChunk, StepContext, Sums,
    Then, WholeTree,
};
use super::{Form, Part, own_hyperparams};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::{Level, Needs, Nothing};
use crate::state::{State, StateWalk};
use crate::tree::LeafSpec;

/// The form of a [`WholeTreeTransformation`], which rewrites the updates in memory.
///
/// `Inputs` are the inputs of a step besides gradients; `Inner` describes the inner transformations that the part runs
/// itself.
pub struct Whole<Inputs = Nothing, Inner = NoInner>(PhantomData<fn() -> (Inputs, Inner)>);

/// In [`Whole`]: the part has no inner transformation.
pub enum NoInner {}

/// The inner transformations of a part that sees whole leaves.
pub trait InnerRuns<P: WholeTreeTransformation> {
    /// Returns the needs of this value, which a box can make less than its type's.
    fn needs(_: &P, of_type: Level) -> Level {
        of_type
    }

    /// Returns the outcome of the last step.
    fn outcome(_: &P, _: &P::State) -> Outcome {
        Outcome::GRADIENTS
    }

    /// Returns true if [`outcome`](InnerRuns::outcome) may be a step that emitted nothing, in which later stages and
    /// wrappers do not run.
    fn holds_back(_: &P) -> bool {
        false
    }

    /// Reports inner masks and groups that match no leaf. The flag marks certain mistakes.
    fn unused(_: &P, _: &P::State, _: &mut dyn FnMut(&str, bool)) {}

    /// Shows the state and the inner readings.
    fn read<'a>(_: &P, state: &'a P::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        state.walk(walk);
        Ok(())
    }
}

impl<P: WholeTreeTransformation> InnerRuns<P> for NoInner {}

/// The inputs of a [`WholeTreeTransformation`].
///
/// ```
/// use gradchain::part::Scope;
///
/// const SCOPE: Scope = Scope::LEAF.reads_params();
/// # let _ = SCOPE;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    by_leaf: bool,
    params: bool,
    rows: bool,
    remote: bool,
}

impl Scope {
    /// The updates of the whole tree: the update of a leaf may follow from any other.
    pub const TREE: Scope = Scope { by_leaf: false, params: false, rows: false, remote: false };

    /// Each leaf on its own: its update follows from that leaf and its own state alone, and
    /// [inactive](WholeTree::is_active) leaves are left unmodified.
    ///
    /// Leaves may then rest: inside [`freezable`] and
    /// [`skip_absent`], which refuse other parts of this form. Values that depend on the
    /// number of updates use [`Clock::of_leaf`](crate::part::Clock::of_leaf).
    ///
    /// [`freezable`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    /// [`skip_absent`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
    pub const LEAF: Scope = Scope { by_leaf: true, ..Scope::TREE };

    /// Also reads the parameters, which [`plan`](crate::GradientTransformation::plan) then counts.
    #[must_use]
    pub const fn reads_params(self) -> Scope {
        Scope { params: true, ..self }
    }

    /// Also works on leaves with [row-sparse](super::super::WholeLeaf::rows) gradients.
    #[must_use]
    pub const fn rows(self) -> Scope {
        Scope { rows: true, ..self }
    }

    /// Also works on a device: [`visit_remote`] of its [`LeafVisitor`](super::super::LeafVisitor) records the work.
    /// [`step_on`] refuses other parts. Both need the feature `program`.
    ///
    /// [`visit_remote`]: https://docs.rs/gradchain/latest/gradchain/part/trait.LeafVisitor.html#method.visit_remote
    /// [`step_on`]: https://docs.rs/gradchain/latest/gradchain/trait.GradientTransformation.html#method.step_on
    #[must_use]
    pub const fn remote(self) -> Scope {
        Scope { remote: true, ..self }
    }
}

/// A transformation of whole leaves or the whole tree: matrix methods, histories, all that is not arithmetic on
/// elements.
///
/// # Example
///
/// Subtract each leaf's mean from its updates:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::Real;
/// use gradchain::part::{
///     InitContext, LeafVisitor, Part, StepContext, Whole, WholeLeaf, WholeTree, WholeTreeTransformation,
/// };
///
/// #[derive(Clone, Debug)]
/// struct SubtractMean;
///
/// impl Part for SubtractMean {
///     const NAME: &'static str = "subtract_mean";
///     type Form = Whole;
/// }
///
/// impl WholeTreeTransformation for SubtractMean {
///     type State = ();
///
///     fn start(&self, _: &InitContext<'_>) -> gradchain::Result<()> {
///         Ok(())
///     }
///
///     fn transform(&self, _: &mut (), _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
///         tree.visit(&mut Subtract);
///     }
/// }
///
/// struct Subtract;
///
/// impl LeafVisitor for Subtract {
///     fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
///         let mean = leaf.u.iter().map(|u| u.as_f64()).sum::<f64>() / leaf.u.len() as f64;
///         leaf.u.iter_mut().for_each(|u| *u -= C::of(mean));
///     }
/// }
///
/// let optimizer = chain((SubtractMean, sgd(1.0)));
/// let mut params = vec![0.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, 2.0, 3.0], &mut state)?;
/// assert_eq!(params, [1.0, 0.0, -1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// One additional pass: the updates are stored in memory once. A part that only reads them and then changes each
/// element on its own is better a [`LeafStatistics`](super::LeafStatistics).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `Whole` but does not implement `WholeTreeTransformation`",
    note = "implement `WholeTreeTransformation` for `{Self}`; `docs/own-whole-tree.md` has an example"
)]
pub trait WholeTreeTransformation: Part {
    /// The values kept between steps.
    type State: State;
    /// The inputs of the transformation.
    const SCOPE: Scope = Scope::TREE;

    /// Returns the cost of a leaf in a step, relative to an element of other leaves. Processes
    /// [divide] whole leaves evenly by cost. Defaults to the number of elements.
    ///
    /// [divide]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html
    fn cost(&self, leaf: &LeafSpec) -> f64 {
        leaf.len() as f64
    }

    /// Returns the state before the first step.
    ///
    /// # Errors
    ///
    /// If the transformation cannot work on these parameters.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// Checks that the step can run. No transformation of the step has changed anything yet.
    ///
    /// # Errors
    ///
    /// If the step cannot run.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let _ = (state, at);
        Ok(())
    }

    /// Rewrites the updates in `tree`.
    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);
}

/// Returns the leaves of this process, for a part of whole leaves; `None` if leaves are not divided. `cost` is the cost
/// of a leaf.
pub(super) fn local_leaves(
    (name, by_leaf): (&'static str, bool),
    at: &InitContext<'_>,
    cost: &dyn Fn(&LeafSpec) -> f64,
) -> Result<Option<Vec<bool>>> {
    let leaves = at.structure().leaves();
    if !leaves.iter().any(LeafSpec::is_shared) {
        return Ok(None);
    }
    if !by_leaf {
        let expected = "made of parts that treat each leaf or element separately";
        return Err(Error::argument("sharded", "inner", expected, name));
    }
    at.declare_whole(cost);
    Ok(Some(at.restricted(&Vec::from_iter(leaves.iter().map(LeafSpec::is_whole)))))
}

impl<W: WholeTreeTransformation + Part<Form = Whole<A, I>>, A: Needs, I: InnerRuns<W>> Form<W> for Whole<A, I> {
    type Needs = A;
    type State = W::State;
    /// True once it has run; a step may end before.
    type Run = bool;
    type Kernel<C: Real> = ();

    const SHAPE: PassStructure = PassStructure {
        barriers: 1,
        reads_params: W::SCOPE.params as u32,
        materializes: 1,
        unmodified: 1,
        joins: !W::SCOPE.by_leaf,
        ..PassStructure::NONE
    };
    const FUSES: bool = false;
    const FUSES_ALWAYS: bool = false;
    const ROWS: bool = W::SCOPE.rows;
    const SLOTS: usize = 0;

    fn needs(part: &W) -> Level {
        I::needs(part, A::LEVEL)
    }

    fn validate(_: &W) -> Result<()> {
        Ok(())
    }

    fn init_state(part: &W, at: &InitContext<'_>) -> Result<Self::State> {
        match local_leaves((W::NAME, W::SCOPE.by_leaf), at, &|leaf| part.cost(leaf))? {
            None => part.start(at),
            Some(here) => part.start(&at.with_active(&here)),
        }
    }

    fn check(part: &W, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        part.check(state, at)
    }

    fn begin(_: &W, _: &mut Self::State, _: &StepContext<'_>) -> bool {
        false
    }

    fn barrier(
        part: &W,
        state: &mut Self::State,
        done: &mut bool,
        at: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if sums.repeats.is_some() {
            return;
        }
        tree.device.enter(W::NAME);
        part.transform(state, at, &mut tree.without(at.resting));
        *done = true;
    }

    fn finish(part: &W, state: &mut Self::State, done: bool, _: Sums<'_>, outcome: &mut Outcome) {
        if done {
            let did = I::outcome(part, state);
            *outcome = Outcome { skipped: outcome.skipped | did.skipped, ..did };
        }
    }

    fn emission(part: &W, state: &Self::State, done: &bool) -> Emission {
        match done {
            false if I::holds_back(part) => Emission::Undecided,
            true if I::holds_back(part) && I::outcome(part, state).held => Emission::Nothing(1),
            _ => Emission::Updates,
        }
    }

    fn holds_back(part: &W) -> HoldsBack {
        if I::holds_back(part) { HoldsBack::All } else { HoldsBack::Never }
    }

    fn prepare_chunk<C: Real>(_: &W, _: &Self::State, _: &bool, _: StageChunk, then: &mut Then<'_, C>) {
        at_barrier_only(W::SCOPE.remote, then);
    }

    fn kernel<C: Real>(_: &W, _: &Self::State, _: &bool, _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), _: usize, _: PassRange, _: &mut [C], u: C, _: C, _: &mut [Contribution<C>]) -> C {
        u
    }

    fn state_bytes(_: &W, _: &Self::State, _: usize, _: usize, _: PassRange) -> usize {
        0
    }

    fn read<'a>(part: &W, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.of_part(W::NAME, own_hyperparams(part), &mut |walk| I::read(part, state, walk))
    }

    fn unused(part: &W, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        I::unused(part, state, report);
    }
}

/// Leaves tiles unchanged: the part runs at its barrier. Refuses recording if it is not `remote`.
fn at_barrier_only<C: Real>(remote: bool, then: &mut Then<'_, C>) {
    then(&mut |_| {
        if !remote {
            C::refuse(NOT_REMOTE);
        }
    });
}
