//! Whole leaves, or the whole tree.

use super::super::whole::NOT_REMOTE;
use super::super::{
    Emission, HoldsBack, InitContext, Outcome, PieceAt, Shape, Span, StepContext, Sums, Term, Then, WholeTree,
};
use super::{Form, Part, own_hyperparams};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::{Level, Needs};
use crate::state::{State, StateWalk};
use crate::tree::LeafSpec;

/// The form of a [`WholeTreeTransformation`]: the updates lie in memory, and it rewrites them.
#[derive(Clone, Copy, Debug)]
pub enum Whole {}

/// A transformation that must see whole leaves or the whole tree: matrix methods, histories, anything that is not
/// arithmetic on single elements.
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
///     type Needs = Nothing;
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
/// One more pass: the updates are stored in memory for it, once. What only looks at them, and then changes each element
/// by itself, is better a [`LooksFirst`](super::LooksFirst).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `Whole` and does not implement `WholeTreeTransformation`",
    note = "`impl WholeTreeTransformation for {Self}` says what the part does; `docs/own-whole-tree.md` has an example"
)]
pub trait WholeTreeTransformation: Part<Form = Whole> {
    /// What is remembered between steps.
    type State: State;
    /// What a step must be given besides gradients; usually [`Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// Whether it looks at parameters; for [`plan`](crate::GradientTransformation::plan).
    const READS_PARAMS: bool = false;
    /// Whether each leaf's update follows from that leaf and its own state alone, and those of leaves that are not
    /// [acted on](WholeTree::is_active) are left as they are. Then leaves may rest: inside
    /// [`freezable`](crate::wrapper::freezable) and [`skip_absent`](crate::wrapper::skip_absent), which refuse other
    /// parts of this form. What depends on how many updates there were goes by
    /// [`Clock::of_leaf`](crate::part::Clock::of_leaf).
    const BY_LEAF: bool = false;
    /// Whether it can work on some [rows](super::super::WholeLeaf::rows) of a leaf.
    const ROWS: bool = false;
    /// Whether its [`LeafVisitor`](super::super::LeafVisitor) says what to do to leaves that another machine has, by
    /// [`visit_remote`](super::super::LeafVisitor::visit_remote). A part that does not is refused by
    /// [`step_on`](crate::GradientTransformation::step_on), and so on devices.
    const REMOTE: bool = false;

    /// How much work a leaf is in a step, to that of an element of others: by this machines
    /// [share](crate::wrapper::sharded()) whole leaves evenly. Its elements, unless it says more.
    fn work(&self, leaf: &LeafSpec) -> f64 {
        leaf.len() as f64
    }

    /// The state before the first step.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the transformation can work on.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// The last chance to refuse a step: nothing has been changed yet, in this or any other transformation.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let _ = (state, at);
        Ok(())
    }

    /// What this value needs, which can be less than its type says where it holds a box.
    fn needs_now(&self) -> Level {
        <Self::Needs as Needs>::LEVEL
    }

    /// Rewrites the updates in `tree`.
    fn transform(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);

    /// What [`transform`](WholeTreeTransformation::transform) did: where it has held updates back.
    fn outcome(&self, state: &Self::State) -> Outcome {
        let _ = state;
        Outcome::GRADIENTS
    }

    /// Returns whether its [`outcome`](WholeTreeTransformation::outcome) may be that of a step that emitted nothing:
    /// stages after and around it do not run in such a step.
    fn holds_back(&self) -> bool {
        false
    }

    /// Names the masks and groups inside that take no leaf, where it holds another transformation, and says whether
    /// that is surely a mistake.
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        let _ = (state, report);
    }

    /// Shows the state, and what there is to read of a transformation inside, where it holds one.
    ///
    /// # Errors
    ///
    /// If the state was made by another transformation.
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        state.walk(walk);
        Ok(())
    }
}

/// On which leaves a part that sees whole ones acts, of several machines that have some of them each; nothing where one
/// has all. `work` says how much each is.
pub(super) fn whole_here(
    (name, by_leaf): (&'static str, bool),
    at: &InitContext<'_>,
    work: &dyn Fn(&LeafSpec) -> f64,
) -> Result<Option<Vec<bool>>> {
    let leaves = at.structure().leaves();
    if !leaves.iter().any(LeafSpec::is_shared) {
        return Ok(None);
    }
    if !by_leaf {
        let expected = "of parts that work on each leaf by itself, or element by element";
        return Err(Error::argument("sharded", "inner", expected, name));
    }
    at.must_be_whole(work);
    Ok(Some(at.restricted(&Vec::from_iter(leaves.iter().map(LeafSpec::is_whole)))))
}

impl<W: WholeTreeTransformation> Form<W> for Whole {
    type Needs = W::Needs;
    type State = W::State;
    /// Whether it has been done: what comes later in a step may never be.
    type Run = bool;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape {
        barriers: 1,
        reads_params: W::READS_PARAMS as u32,
        materializes: 1,
        untouched: 1,
        joins: !W::BY_LEAF,
        ..Shape::NOTHING
    };
    const FUSES: bool = false;
    const FUSES_ALWAYS: bool = false;
    const ROWS: bool = W::ROWS;
    const SLOTS: usize = 0;

    fn needs(part: &W) -> Level {
        part.needs_now()
    }

    fn validate(_: &W) -> Result<()> {
        Ok(())
    }

    fn init_state(part: &W, at: &InitContext<'_>) -> Result<Self::State> {
        match whole_here((W::NAME, W::BY_LEAF), at, &|leaf| part.work(leaf))? {
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
        if sums.again.is_some() {
            return;
        }
        tree.remote.iter_mut().for_each(|remote| remote.enter(W::NAME));
        part.transform(state, at, &mut tree.without(at.resting));
        *done = true;
    }

    fn finish(part: &W, state: &mut Self::State, done: bool, _: Sums<'_>, outcome: &mut Outcome) {
        if done {
            let did = part.outcome(state);
            *outcome = Outcome { skipped: outcome.skipped | did.skipped, ..did };
        }
    }

    fn emission(part: &W, state: &Self::State, done: &bool) -> Emission {
        match done {
            false if part.holds_back() => Emission::Undecided,
            true if part.holds_back() && part.outcome(state).held => Emission::Nothing(1),
            _ => Emission::Updates,
        }
    }

    fn holds_back(part: &W) -> HoldsBack {
        if part.holds_back() { HoldsBack::All } else { HoldsBack::Never }
    }

    fn in_piece<C: Real>(_: &W, _: &Self::State, _: &bool, _: PieceAt, then: &mut Then<'_, C>) {
        then(&mut |_| {
            if !W::REMOTE {
                C::refuse(NOT_REMOTE);
            }
        });
    }

    fn kernel<C: Real>(_: &W, _: &Self::State, _: &bool, _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), _: usize, _: Span, _: &mut [C], u: C, _: C, _: &mut [Term<C>]) -> C {
        u
    }

    fn state_bytes(_: &W, _: &Self::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn read<'a>(part: &W, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.of_part(W::NAME, own_hyperparams(part), &mut |walk| WholeTreeTransformation::read(part, state, walk))
    }

    fn unused(part: &W, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        part.unused(state, report);
    }
}
