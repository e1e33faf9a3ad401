//! A chain under a name of its own.

use core::marker::PhantomData;

use super::super::{
    InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Term, Tile, WholeTree,
};
use super::{Form, Part};
use crate::element::Real;
use crate::error::Result;
use crate::needs::{Level, Needs};

/// The form of an [`Optimizer`]: what it does is done by a chain in one of its fields.
pub struct Named<Given = OfChain>(PhantomData<fn() -> Given>);

/// In [`Named`]: a step must be given what the chain needs.
pub enum OfChain {}

/// In [`Named`]: a step is given this, which the part has made sure is enough.
pub(crate) struct Exactly<N>(PhantomData<fn() -> N>);

/// What a step of a part with this chain must be given.
pub trait Given<C> {
    /// One of [`needs`](crate::needs).
    type Needs: Needs;
}

impl<C: Stage> Given<C> for OfChain {
    type Needs = C::Needs;
}

impl<C, N: Needs> Given<C> for Exactly<N> {
    type Needs = N;
}

/// A transformation that is another one, usually a [`chain`](crate::chain), under a name and with arguments of its own.
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
pub trait Optimizer: Part {
    /// What it is.
    type Chain: Stage;

    /// What it is.
    fn chain(&self) -> &Self::Chain;
}

type Chain<P> = <P as Optimizer>::Chain;
type State<P> = <Chain<P> as Stage>::State;
type Run<P> = <Chain<P> as Stage>::Run;

impl<P: Optimizer, G: Given<Chain<P>>> Form<P> for Named<G> {
    type Needs = G::Needs;
    type State = State<P>;
    type Run = Run<P>;
    type Kernel<C: Real> = <Chain<P> as Stage>::Kernel<C>;

    const SHAPE: Shape = Chain::<P>::SHAPE;
    const FUSES: bool = Chain::<P>::FUSES;
    const SLOTS: usize = Chain::<P>::SLOTS;

    fn shape(part: &P) -> Shape {
        part.chain().shape()
    }
    fn needs(part: &P) -> Level {
        part.chain().needs()
    }
    fn validate(part: &P) -> Result<()> {
        part.chain().validate()
    }
    fn init_state(part: &P, at: &InitContext<'_>) -> Result<State<P>> {
        part.chain().init_state(at)
    }
    fn check(part: &P, state: &State<P>, at: &StepContext<'_>) -> Result<()> {
        part.chain().check(state, at)
    }
    fn begin(part: &P, state: &mut State<P>, at: &StepContext<'_>) -> Run<P> {
        part.chain().begin(state, at)
    }
    fn barrier(
        part: &P,
        state: &mut State<P>,
        run: &mut Run<P>,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        part.chain().barrier(state, run, at, index, sums, tree);
    }
    fn finish(part: &P, state: &mut State<P>, run: Run<P>, sums: Sums<'_>, outcome: &mut Outcome) {
        part.chain().finish(state, run, sums, outcome);
    }
    fn ends_at(part: &P, state: &State<P>, run: &Run<P>) -> Option<usize> {
        part.chain().ends_at(state, run)
    }
    fn tile<C: Real>(part: &P, state: &State<P>, run: &Run<P>, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        part.chain().tile(state, run, place, span, tile);
    }
    fn fuses_now(part: &P, state: &State<P>, run: &Run<P>, leaf: usize) -> bool {
        part.chain().fuses_now(state, run, leaf)
    }
    #[inline]
    fn kernel<C: Real>(part: &P, state: &State<P>, run: &Run<P>, leaf: usize) -> Self::Kernel<C> {
        part.chain().kernel::<C>(state, run, leaf)
    }
    fn slots(part: &P, state: &State<P>, leaf: usize, list: &mut SlotList) {
        part.chain().slots(state, leaf, list);
    }
    #[inline(always)]
    fn apply<C: Real>(
        k: &Self::Kernel<C>,
        at: usize,
        span: Span,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term],
    ) -> C {
        Chain::<P>::apply::<C>(k, at, span, slots, u, p, terms)
    }
    fn state_bytes(part: &P, state: &State<P>, leaf: usize, at: usize, span: Span) -> usize {
        part.chain().state_bytes(state, leaf, at, span)
    }
    fn unused(part: &P, state: &State<P>, report: &mut dyn FnMut(&str)) {
        part.chain().unused(state, report);
    }
}
