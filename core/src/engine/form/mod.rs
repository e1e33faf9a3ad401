//! The forms of parts, as authors implement them.
//!
//! | form | trait | for |
//! |---|---|---|
//! | [`OneElement`] | [`Rule`] | arithmetic on one element |
//! | [`TwoPass`] | [`TwoPasses`] | parts that reduce over all gradients, decide, and emit updates |
//! | [`Around`] | [`Wrapper`], [`Arithmetic`], [`Reducing`] | wrappers |
//! | [`Whole`] | [`WholeTreeTransformation`] | whole leaves, or all of them |
//! | [`WithLeafStatistics`] | [`LeafStatistics`] | leaf statistics, then arithmetic on one element |
//! | [`Named`] | [`Optimizer`] | named chains |
//!
//! Two more are for the crate: [`OneElementWithMemory`] for element arithmetic that depends on more than a step count,
//! [`Observes`] for [`monitor`](crate::transform::monitor()).
//!
//! One file per form implements [`Stage`]. Elsewhere only stages made of other stages implement it: tuples, options,
//! boxes, partitions, `sam` and `sharded`.

mod around;
mod leaf_statistics;
mod loops;
mod memory;
mod named;
mod observer;
mod rule;
mod state;
mod two_passes;
mod whole;

pub use around::{
    Arithmetic, Around, AroundWithArithmetic, AroundWithReductions, Decision, Elements, Holds, NoArithmetic,
    OutsideMask, Reducing, ReducingPasses, Runs, WithArithmetic, WithReductions, Wrapper,
};
pub use leaf_statistics::{LeafStatistics, WithLeafStatistics};
pub use memory::{LeafSlice, OneElementWithMemory, RuleWithMemory};
pub(crate) use named::{ChainState, Exactly, OfChain};
pub use named::{Named, Optimizer};
pub use observer::{Observer, Observes};
pub use rule::{Clock, OneElement, Rule, SlotArray, Steps};
pub use state::{PartState, WrapperState};
pub use two_passes::{Passes, TwoPass, TwoPasses};
pub use whole::InnerRuns;
pub use whole::{Scope, Whole, WholeTreeTransformation};

use core::any::{Any, TypeId};

use super::stage_chunk::OnTile;
use super::{
    Absent, Contribution, Effect, Emission, HoldsBack, InitContext, OnView, Outcome, PassRange, PassStructure, Skips,
    SlotAccess, SlotAccesses, SlotList, Stage, StageChunk, StepContext, Summary, Sums, Then, Tile, TileScratch,
    Transform, Walk, WholeTree, allows_absent, run_own_loops,
};
use crate::arguments::{Visit, hyperparams_of, recipe_of};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::{Level, Needs};
use crate::recipe::Recipe;
use crate::schedule::{Hyperparam, Schedule};
use crate::state::{ArgumentValues, State, StateWalk};

/// A value with a name and arguments that transforms gradients.
///
/// [`Form`](Part::Form) selects the trait that the part implements as well; the table in the module's documentation
/// lists them. Every part is a [`GradientTransformation`](crate::GradientTransformation): it can be chained, masked,
/// wrapped, boxed, saved, resumed and averaged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a gradient transformation",
    note = "a transformation is the result of a constructor (`adam(0.1)`), a tuple of at most 12 transformations (nest \
            longer chains), a box, or your own type that implements `Part` and the trait of its form, such as `Rule`",
    note = "parameters, gradients and states are not transformations: write `optimizer.init(&params)`, `Save::new(&optimizer, &state)`",
    note = "in a generic function, require `T: GradientTransformation<Needs = Nothing>`, with \
            `gradchain::needs::Nothing`"
)]
pub trait Part: Clone + core::fmt::Debug + Send + Sync + 'static {
    /// The name in messages and configs.
    const NAME: &'static str;
    /// The form: `OneElement`, `TwoPass`, `Whole`, `WithLeafStatistics`, `Around`, `AroundWithArithmetic`,
    /// `AroundWithReductions` or `Named`.
    type Form: Form<Self>;

    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range; see [`Error::argument`](crate::Error::argument).
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Visits the part's own arguments by name, in a fixed order; configs set these. By default a part has none.
    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        let _ = visit;
    }

    /// Returns the name of an argument, neither a number nor a schedule, whose value differs from that in `original`.
    ///
    /// A state whose arrays, leaves or facts depend on an argument does not fit another value of it. A step compares
    /// the transformation with that of `init`. If an argument has changed, the step refuses a state that differs from a
    /// new one. The macro [`part!`](crate::part!) writes this method; [`differs`] compares one argument. Defaults to
    /// `None`.
    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let _ = original;
        None
    }

    /// Returns the effect on updates, from which [`plan`](crate::GradientTransformation::plan) finds mistakes. Unknown
    /// by default; wrappers and named optimizers have that of their inner transformation.
    fn effect(&self) -> Effect {
        Effect::UNKNOWN
    }

    /// Returns the construction of the part as data; [`Opaque`](Recipe::Opaque) by default.
    fn recipe(&self) -> Recipe {
        Recipe::Opaque(self.describe())
    }

    /// Describes the part in one line, for messages and [`Plan`](super::Plan). Defaults to its name.
    fn describe(&self) -> String {
        Self::NAME.into()
    }
}

/// Runs the parts of one form. Only the forms implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the form of a part",
    label = "not a form of `gradchain::part`",
    note = "the forms, each with the trait that a part implements: `OneElement` (`Rule`), `TwoPass` (`TwoPasses`), \
            `Whole` (`WholeTreeTransformation`), `WithLeafStatistics` (`LeafStatistics`), `Around` (`Wrapper`)"
)]
#[allow(missing_docs, reason = "each is the item of the same name in `Stage`")]
pub trait Form<P: ?Sized> {
    type Needs: Needs;
    type State: State;
    type Run: Send + Sync;
    type Kernel<C: Real>: Copy + Send + Sync;

    const SHAPE: PassStructure;
    const FUSES: bool;
    const FUSES_ALWAYS: bool;
    const ALWAYS_EMITS: bool = false;
    const WHOLE: bool = false;
    const SLOTS: usize;
    const SLOT_ACCESSES: SlotAccesses = SlotAccess::ALWAYS.of_all();
    /// True if parts can support row-sparse gradients.
    const ROWS: bool;

    fn members(part: &P, visit: &mut dyn FnMut(&dyn Transform)) {
        let _ = (part, visit);
    }
    fn shape(part: &P) -> PassStructure {
        let _ = part;
        Self::SHAPE
    }
    fn needs(part: &P) -> Level {
        let _ = part;
        <Self::Needs as Needs>::LEVEL
    }
    fn absent(part: &P) -> Absent {
        let _ = part;
        Absent::Refused
    }
    fn has_windows(part: &P) -> bool {
        let _ = part;
        false
    }
    /// As [`Transform::skips`], for the inner transformation.
    fn skips_inner(part: &P, skips: &mut Skips, place: &str) -> bool {
        let _ = (part, skips, place);
        false
    }
    fn validate(part: &P) -> Result<()>;
    fn changed(part: &P, original: &P) -> Option<&'static str>
    where
        P: Part,
    {
        part.changed_argument(original)
    }
    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State>;
    fn views<'a>(part: &P, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let _ = (part, state, run, visit);
    }
    fn check(part: &P, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        let _ = (part, state, at);
        Ok(())
    }
    fn begin(part: &P, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run;
    #[allow(clippy::too_many_arguments, reason = "those of `Stage::barrier`, and the part")]
    fn barrier(
        part: &P,
        state: &mut Self::State,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let _ = (part, state, run, at, index, sums, tree);
    }
    fn finish(part: &P, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let _ = (part, state, run, sums, outcome);
    }
    #[inline(always)]
    fn emission(part: &P, state: &Self::State, run: &Self::Run) -> Emission {
        let _ = (part, state, run);
        Emission::Updates
    }
    fn resting<'a>(part: &P, state: &'a Self::State) -> &'a [bool] {
        let _ = (part, state);
        &[]
    }
    fn holds_back(part: &P) -> HoldsBack {
        let _ = part;
        HoldsBack::Never
    }
    fn pass(part: &P, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch)
    where
        P: Part<Form = Self>,
    {
        run_own_loops(part, (state, run), walk, scratch);
    }
    fn prepare_chunk<C: Real>(part: &P, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>)
    where
        P: Part<Form = Self>;
    fn fuses_now(part: &P, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        let _ = (part, state, run, leaf);
        Self::FUSES
    }
    fn kernel<C: Real>(part: &P, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C>;
    fn slots<'a>(part: &P, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        let _ = (part, state, leaf, list);
    }
    fn apply<C: Real>(
        kernel: &Self::Kernel<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>],
    ) -> C;
    fn state_bytes(part: &P, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize;
    fn unused(part: &P, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        let _ = (part, state, report);
    }
    fn read<'a>(part: &P, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()>
    where
        P: Part,
    {
        walk.of_part(P::NAME, own_hyperparams(part), &mut |walk| {
            state.walk(walk);
            Ok(())
        })
    }
    /// Returns the outline of the inner transformation, if any.
    fn inner_summary(part: &P) -> Option<Summary> {
        let _ = part;
        None
    }
}

/// Returns true if an argument differs. Numbers and schedules, on which no state depends, never do; an optional number
/// does if one of the two is absent.
///
/// ```
/// use gradchain::part::differs;
/// use gradchain::schedule::Hyperparam;
///
/// assert!(differs(&3_usize, &10));
/// assert!(!differs(&Hyperparam::from(0.1), &Hyperparam::from(0.2)));
/// assert!(differs(&Some(Hyperparam::from(0.1)), &None));
/// ```
pub fn differs<A: PartialEq + 'static>(argument: &A, original: &A) -> bool {
    let kind = TypeId::of::<A>();
    if kind == TypeId::of::<Hyperparam>() || kind == TypeId::of::<Schedule>() {
        return false;
    }
    let optional = |argument: &A| (argument as &dyn Any).downcast_ref::<Option<Hyperparam>>().map(Option::is_some);
    match (optional(argument), optional(original)) {
        (Some(present), Some(was)) => present != was,
        _ => argument != original,
    }
}

trait PartArguments {
    fn show(&self, visit: &mut Visit<'_>);
}

impl<P: Part> PartArguments for P {
    fn show(&self, visit: &mut Visit<'_>) {
        Part::own_arguments(&mut self.clone(), visit);
    }
}

fn own_hyperparams(part: &dyn PartArguments) -> ArgumentValues {
    hyperparams_of(&mut |visit| part.show(visit))
}

/// Returns a part's name and visible arguments as data: the [`recipe`](Part::recipe) of a part that shows all of them.
pub fn own_recipe<P: Part>(part: &P) -> Recipe {
    recipe_named(P::NAME, part)
}

fn recipe_named(name: &str, part: &dyn PartArguments) -> Recipe {
    recipe_of(name, &mut |visit| part.show(visit))
}

impl<P: Part> Transform for P {
    #[inline(never)]
    fn as_dyn(&self) -> &dyn Transform {
        self
    }
    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        P::Form::members(self, visit);
    }
    fn shape(&self) -> PassStructure {
        P::Form::shape(self)
    }
    fn needs(&self) -> Level {
        P::Form::needs(self)
    }
    fn absent(&self) -> Absent {
        P::Form::absent(self)
    }
    fn has_windows(&self) -> bool {
        P::Form::has_windows(self)
    }
    fn holds_back(&self) -> HoldsBack {
        P::Form::holds_back(self)
    }
    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        allows_absent(self, skips, place) || P::Form::skips_inner(self, skips, place)
    }
    fn validate(&self) -> Result<()> {
        Error::all([Part::validate(self), P::Form::validate(self)])
    }
    fn own_arguments(&mut self, visit: &mut Visit<'_>) {
        Part::own_arguments(self, visit);
    }
    fn summary(&self) -> Summary {
        P::Form::inner_summary(self).unwrap_or_else(|| Summary::part(P::NAME, Part::effect(self)))
    }
    fn recipe(&self) -> Recipe {
        Part::recipe(self)
    }
    fn describe(&self) -> String {
        Part::describe(self)
    }
}

impl<P: Part> Stage for P {
    type Needs = <P::Form as Form<P>>::Needs;
    type State = <P::Form as Form<P>>::State;
    type Run = <P::Form as Form<P>>::Run;
    type Kernel<C: Real> = <P::Form as Form<P>>::Kernel<C>;

    const SHAPE: PassStructure = <P::Form as Form<P>>::SHAPE;
    const FUSES: bool = <P::Form as Form<P>>::FUSES;
    const FUSES_ALWAYS: bool = <P::Form as Form<P>>::FUSES_ALWAYS;
    const ALWAYS_EMITS: bool = <P::Form as Form<P>>::ALWAYS_EMITS;
    const WHOLE: bool = <P::Form as Form<P>>::WHOLE;
    const SLOTS: usize = <P::Form as Form<P>>::SLOTS;
    const SLOT_ACCESSES: SlotAccesses = <P::Form as Form<P>>::SLOT_ACCESSES;

    fn changed(&self, original: &Self) -> Option<&'static str> {
        P::Form::changed(self, original)
    }
    #[inline(never)]
    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        P::Form::init_state(self, at)
    }
    fn views<'a>(&self, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        P::Form::views(self, state, run, visit);
    }
    #[inline(never)]
    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if !P::Form::ROWS {
            at.whole_leaves(P::NAME)?;
        }
        P::Form::check(self, state, at)
    }
    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        P::Form::begin(self, state, at)
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
        P::Form::barrier(self, state, run, at, index, sums, tree);
    }
    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        P::Form::finish(self, state, run, sums, outcome);
    }
    #[inline(always)]
    fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
        P::Form::emission(self, state, run)
    }
    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        P::Form::resting(self, state)
    }
    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch) {
        P::Form::pass(self, state, run, walk, scratch);
    }
    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        if const { !C::RECORDS } {
            return P::Form::prepare_chunk(self, state, run, at, then);
        }
        P::Form::prepare_chunk(self, state, run, at, &mut recorded_as(P::NAME, then));
    }
    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        P::Form::fuses_now(self, state, run, leaf)
    }
    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        P::Form::kernel(self, state, run, leaf)
    }
    fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        P::Form::slots(self, state, leaf, list);
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
        P::Form::apply::<C>(k, at, range, slots, u, p, terms)
    }
    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        P::Form::state_bytes(self, state, leaf, at, range)
    }
    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        P::Form::unused(self, state, report);
    }
    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        P::Form::read(self, state, walk)
    }
}

/// Records what a part does under its name. Not generic over the part: one closure serves all.
fn recorded_as<C: Real>(name: &'static str, then: &mut Then<'_, C>) -> impl FnMut(&mut OnTile<'_, C>) {
    move |part| {
        then(&mut |tile: &mut Tile<'_, C>| {
            let around = C::enter(name);
            part(tile);
            C::enter(around);
        });
    }
}
