//! Named chains.

use core::marker::PhantomData;

use super::super::{
    Absent, Contribution, Emission, HoldsBack, InitContext, OnView, Outcome, PassRange, PassStructure, Skips,
    SlotAccesses, SlotList, Stage, StageChunk, StepContext, Summary, Sums, Then, TileScratch, Transform, Walk,
    WarningKind, WholeTree, run_own_loops,
};
use super::{Form, Part, own_hyperparams};
use crate::element::Real;
use crate::error::Result;
use crate::needs::{Level, Needs};
use crate::state::{State, StateWalk};

/// The form of an [`Optimizer`]: a chain in one of its fields does the work.
pub struct Named<NeedsOf = OfChain, ChainState = SameState>(PhantomData<fn() -> (NeedsOf, ChainState)>);

/// In [`Named`]: a step needs the inputs of the chain.
pub enum OfChain {}

/// In [`Named`]: a step needs these inputs, which the part guarantees to suffice.
pub(crate) struct Exactly<N>(PhantomData<fn() -> N>);

/// In [`Named`]: the state is that of the chain.
pub enum SameState {}

/// The state of a part, made from that of its chain.
#[allow(missing_docs, reason = "there and back")]
pub trait ChainState<P: Optimizer> {
    type State: State;
    fn wrap(part: &P, state: StateOf<P>) -> Self::State;
    fn inner(state: &Self::State) -> &StateOf<P>;
    fn inner_mut(state: &mut Self::State) -> &mut StateOf<P>;
    fn names(state: &Self::State) -> &[String] {
        let _ = state;
        &[]
    }
    /// Returns the mistakes that are allowed.
    fn allowed(part: &P) -> &[WarningKind] {
        let _ = part;
        &[]
    }
    fn summary(part: &P, chain: Summary) -> Summary {
        if P::HIDDEN { chain } else { Summary::Optimizer { name: part.current_name(), chain: Box::new(chain) } }
    }
}

impl<P: Optimizer> ChainState<P> for SameState {
    type State = StateOf<P>;
    fn wrap(_: &P, state: StateOf<P>) -> StateOf<P> {
        state
    }
    fn inner(state: &StateOf<P>) -> &StateOf<P> {
        state
    }
    fn inner_mut(state: &mut StateOf<P>) -> &mut StateOf<P> {
        state
    }
}

/// The needs of a part with this chain.
pub trait NeedsOf<C> {
    /// One of [`needs`](crate::needs).
    type Needs: Needs;
}

impl<C: Stage> NeedsOf<C> for OfChain {
    type Needs = C::Needs;
}

impl<C, N: Needs> NeedsOf<C> for Exactly<N> {
    type Needs = N;
}

/// A transformation that consists of another, usually a [`chain`], under its own name and arguments.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::Sgd;
/// use gradchain::part::{Named, Optimizer, Part};
/// use gradchain::transform::ClipByGlobalNorm;
///
/// #[derive(Clone, Debug)]
/// struct ClippedSgd { chain: (ClipByGlobalNorm, Sgd) }
///
/// impl Part for ClippedSgd {
///     const NAME: &'static str = "clipped_sgd";
///     type Form = Named;
/// }
///
/// impl Optimizer for ClippedSgd {
///     type Chain = (ClipByGlobalNorm, Sgd);
///     fn chain(&self) -> &Self::Chain {
///         &self.chain
///     }
/// }
///
/// let optimizer = ClippedSgd { chain: (clip_by_global_norm(1.0), sgd(0.5)) };
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
/// assert_eq!(params, [-0.3, -0.4]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// None.
///
/// [`chain`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.chain.html
pub trait Optimizer: Part {
    /// True if messages describe the chain alone.
    const HIDDEN: bool = false;

    /// The type of the chain.
    type Chain: Stage;

    /// Returns the chain.
    fn chain(&self) -> &Self::Chain;

    /// Returns the name in plans and states. A part that holds any optimizer knows it only at run time.
    fn current_name(&self) -> &'static str {
        Self::NAME
    }
}

type Chain<P> = <P as Optimizer>::Chain;
type StateOf<P> = <Chain<P> as Stage>::State;
type Run<P> = <Chain<P> as Stage>::Run;

/// Returns true if profiles show its loops under its name: if the chain is one loop.
const fn shows<P: Optimizer>() -> bool {
    Chain::<P>::FUSES && !P::HIDDEN
}

impl<P: Optimizer, G: NeedsOf<Chain<P>>, K: ChainState<P>> Form<P> for Named<G, K> {
    type Needs = G::Needs;
    type State = K::State;
    type Run = Run<P>;
    type Kernel<C: Real> = <Chain<P> as Stage>::Kernel<C>;

    const SHAPE: PassStructure = Chain::<P>::SHAPE;
    const FUSES: bool = Chain::<P>::FUSES;
    const FUSES_ALWAYS: bool = Chain::<P>::FUSES_ALWAYS;
    const ALWAYS_EMITS: bool = Chain::<P>::ALWAYS_EMITS;
    const WHOLE: bool = P::HIDDEN;
    const ROWS: bool = true;
    const SLOTS: usize = Chain::<P>::SLOTS;
    const SLOT_ACCESSES: SlotAccesses = Chain::<P>::SLOT_ACCESSES;

    fn members(part: &P, visit: &mut dyn FnMut(&dyn Transform)) {
        visit(part.chain().as_dyn());
    }
    fn shape(part: &P) -> PassStructure {
        part.chain().shape()
    }
    fn needs(part: &P) -> Level {
        part.chain().needs()
    }
    fn absent(part: &P) -> Absent {
        part.chain().absent()
    }
    fn has_windows(part: &P) -> bool {
        part.chain().has_windows()
    }
    fn skips_inner(part: &P, skips: &mut Skips, place: &str) -> bool {
        let named_chain = P::NAME == "named_chain";
        let allow = P::NAME == "allow";
        let inside = if allow { format!("{place}.allow.inner") } else { place.into() };
        let all = (P::HIDDEN || named_chain) && part.chain().skips(skips, &inside);
        if named_chain {
            skips.rename(&format!("{place}.chain["), &format!("{place}.{}[", P::NAME));
        }
        all
    }
    fn validate(part: &P) -> Result<()> {
        part.chain().validate()
    }
    fn changed(part: &P, original: &P) -> Option<&'static str> {
        part.changed_argument(original).or_else(|| part.chain().changed(original.chain()))
    }
    fn init_state(part: &P, at: &InitContext<'_>) -> Result<K::State> {
        Ok(K::wrap(part, part.chain().init_state(at)?))
    }
    fn views<'a>(part: &P, state: &'a K::State, run: Option<&Run<P>>, visit: &mut OnView<'_, 'a>) {
        let _ = part.chain().visit_view(0, K::inner(state), run, visit);
    }
    fn check(part: &P, state: &K::State, at: &StepContext<'_>) -> Result<()> {
        part.chain().check(K::inner(state), at)
    }
    fn begin(part: &P, state: &mut K::State, at: &StepContext<'_>) -> Run<P> {
        part.chain().begin(K::inner_mut(state), at)
    }
    fn barrier(
        part: &P,
        state: &mut K::State,
        run: &mut Run<P>,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        part.chain().barrier(K::inner_mut(state), run, at, index, sums, tree);
    }
    fn finish(part: &P, state: &mut K::State, run: Run<P>, sums: Sums<'_>, outcome: &mut Outcome) {
        part.chain().finish(K::inner_mut(state), run, sums, outcome);
    }
    fn emission(part: &P, state: &K::State, run: &Run<P>) -> Emission {
        part.chain().emission(K::inner(state), run)
    }
    fn resting<'a>(part: &P, state: &'a K::State) -> &'a [bool] {
        part.chain().resting(K::inner(state))
    }
    fn holds_back(part: &P) -> HoldsBack {
        part.chain().holds_back()
    }
    fn pass(part: &P, state: &K::State, run: &Run<P>, walk: &Walk<'_>, scratch: &mut TileScratch)
    where
        P: Part<Form = Self>,
    {
        match const { shows::<P>() } {
            true => run_own_loops(part, (state, run), walk, scratch),
            false => part.chain().pass(K::inner(state), run, walk, scratch),
        }
    }
    fn prepare_chunk<C: Real>(part: &P, state: &K::State, run: &Run<P>, at: StageChunk, then: &mut Then<'_, C>)
    where
        P: Part<Form = Self>,
    {
        part.chain().prepare_chunk(K::inner(state), run, at, then);
    }
    fn fuses_now(part: &P, state: &K::State, run: &Run<P>, leaf: usize) -> bool {
        part.chain().fuses_now(K::inner(state), run, leaf)
    }
    #[inline]
    fn kernel<C: Real>(part: &P, state: &K::State, run: &Run<P>, leaf: usize) -> Self::Kernel<C> {
        part.chain().kernel::<C>(K::inner(state), run, leaf)
    }
    fn slots<'a>(part: &P, state: &'a K::State, leaf: usize, list: &mut SlotList<'a>) {
        part.chain().slots(K::inner(state), leaf, list);
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
        Chain::<P>::apply::<C>(k, at, range, slots, u, p, terms)
    }
    fn state_bytes(part: &P, state: &K::State, leaf: usize, at: usize, range: PassRange) -> usize {
        part.chain().state_bytes(K::inner(state), leaf, at, range)
    }
    fn unused(part: &P, state: &K::State, report: &mut dyn FnMut(&str, bool)) {
        let allowed = K::allowed(part).contains(&WarningKind::EmptyGroup);
        part.chain().unused(K::inner(state), &mut |what, sure| {
            if !allowed {
                report(what, sure);
            }
        });
    }
    fn read<'a>(part: &P, state: &'a K::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.of_optimizer(part.current_name(), own_hyperparams(part), &mut |walk| match K::names(state) {
            [] => part.chain().read(K::inner(state), walk),
            names => walk.renamed(names, &mut |walk| part.chain().read(K::inner(state), walk)),
        })
    }
    fn inner_summary(part: &P) -> Option<Summary> {
        Some(K::summary(part, part.chain().summary()))
    }
}
