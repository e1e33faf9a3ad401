//! Around another: wrappers.

use core::marker::PhantomData;

use super::super::isa::{Job, dispatch};
use super::super::{
    InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree, fits, fused_tile,
    sum_tile,
};
use super::loops::{OnElement, each, each_read};
use super::rule::checked_slots;
use super::state::{Arrays, Start};
use super::{Form, Part, SlotArray, WrapperState};
use crate::element::{DType, Element, Real};
use crate::error::Result;
use crate::needs::{Level, Needs};
use crate::state::State;

/// The form of a [`Wrapper`].
#[derive(Clone, Copy, Debug)]
pub enum Around {}

/// What a wrapper does in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision<R> {
    /// Its own arithmetic and what is inside; `R` is what it has worked out for the step.
    Run(R),
    /// What is inside alone: the wrapper's own arrays are not touched.
    Inside,
    /// Its own arithmetic before alone, to collect something. The update is zero, and nothing is emitted.
    Hold(R),
    /// Nothing: the gradients go through as they are.
    Pass,
    /// Nothing: the gradients are thrown away, and the update is zero.
    Skip,
}

/// What happens to the leaves that a wrapper does not act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Their gradients go through as they are.
    Pass,
    /// Their updates are zero: their parameters keep their bits.
    Zero,
}

/// A part that holds another transformation: it says on which leaves that acts and whether it runs in a step, and may do something to
/// each element before and after.
///
/// What is inside keeps its own state, is checked, saved, averaged and planned by itself, and fuses with the wrapper's arithmetic
/// into one loop.
///
/// # Example
///
/// Runs what is inside in every second step only:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::needs::Nothing;
/// use gradchain::part::{Around, Decision, InitContext, Part, StepContext, Wrapper};
/// use gradchain::state::{Count, State};
///
/// #[derive(Clone, Debug)]
/// struct EverySecond<T> { inner: T }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Steps { steps: Count }
///
/// impl<T: GradientTransformation> Part for EverySecond<T> {
///     const NAME: &'static str = "every_second";
///     type Form = Around;
/// }
///
/// impl<T: GradientTransformation> Wrapper for EverySecond<T> {
///     type Inner = T;
///     type Memory = Steps;
///     type Asks = Nothing;
///     type Run = ();
///     gradchain::no_arithmetic!();
///
///     fn inner(&self) -> &T {
///         &self.inner
///     }
///
///     fn start(&self, _: &InitContext<'_>, _: &T::State) -> gradchain::Result<Steps> {
///         Ok(Steps::default())
///     }
///
///     fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision<()> {
///         memory.steps.increment();
///         if memory.steps.get() % 2 == 0 { Decision::Run(()) } else { Decision::Skip }
///     }
/// }
///
/// let optimizer = EverySecond { inner: sgd(1.0) };
/// let mut params = vec![0.0_f32];
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..3 {
///     optimizer.step(&mut params, &vec![1.0_f32], &mut state)?;
/// }
/// assert_eq!(params, [-1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// That of what is inside, the arrays in [`SLOTS`](Wrapper::SLOTS), and a pass over the gradients if it [`LOOKS`](Wrapper::LOOKS).
pub trait Wrapper: Part<Form = Around> {
    /// What is inside.
    type Inner: Stage;
    /// What a step must be given for the wrapper itself, besides what is inside needs; usually [`Nothing`](crate::needs::Nothing).
    type Asks: Needs;
    /// What is remembered besides the state arrays and the state of what is inside.
    type Memory: State;
    /// What is worked out for a step.
    type Run: Send + Sync;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// What the arithmetic needs to know of a leaf.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// The names of the state arrays, as many as [`Slots`](Wrapper::Slots) has; at most 8.
    const SLOTS: &'static [&'static str] = &[];
    /// Whether it must look at all gradients before it can decide.
    const LOOKS: bool = false;
    /// Whether it does something to each element before what is inside.
    const BEFORE: bool = false;
    /// Whether it does something to each element after what is inside.
    const AFTER: bool = false;
    /// Whether its own arithmetic reads the parameter.
    const READS_PARAMS: bool = false;
    /// Whether it acts on some leaves only: whether [`leaves`](Wrapper::leaves) or [`acts_on`](Wrapper::acts_on) say anything.
    const CHOOSES: bool = false;

    /// What is inside.
    fn inner(&self) -> &Self::Inner;

    /// What is inside, as it is in this step; usually the same.
    fn inner_now<'a>(&'a self, memory: &'a Self::Memory) -> &'a Self::Inner {
        let _ = memory;
        self.inner()
    }

    /// The leaves to act on, if not all; what is inside makes state for these only.
    ///
    /// # Errors
    ///
    /// If a mask does not fit the parameters.
    fn leaves(&self, at: &InitContext<'_>) -> Result<Option<Vec<bool>>> {
        let _ = at;
        Ok(None)
    }

    /// Whether it acts on a leaf in this step; what is inside has state for it whether or not.
    fn acts_on(&self, memory: &Self::Memory, leaf: usize) -> bool {
        let _ = (memory, leaf);
        true
    }

    /// What happens to the leaves that it does not act on.
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::Zero
    }

    /// The type of a state array, if it was asked for; by default the type that the leaf's arithmetic is done in.
    fn slot_dtype(&self, slot: usize) -> Option<DType> {
        let _ = slot;
        None
    }

    /// Whether a state array starts as a copy of the parameters instead of at zero.
    fn slot_starts_as_params(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// The memory before the first step.
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the wrapper can work on.
    fn start(&self, at: &InitContext<'_>, inner: &<Self::Inner as Stage>::State) -> Result<Self::Memory>;

    /// The last chance to refuse a step: nothing has been changed yet.
    ///
    /// # Errors
    ///
    /// If the step cannot be done.
    fn check(&self, memory: &Self::Memory, at: &StepContext<'_>) -> Result<()> {
        let _ = (memory, at);
        Ok(())
    }

    /// What is added up over all gradients, if the wrapper [`LOOKS`](Wrapper::LOOKS).
    fn look<C: Real>(u: C) -> C::Wide {
        let _ = u;
        <C::Wide as Real>::of(0.0)
    }

    /// Decides what happens in this step, and counts it. `seen` is the sum of what [`look`](Wrapper::look) gave; 0 if it does not look.
    fn decide(&self, memory: &mut Self::Memory, at: &StepContext<'_>, seen: f64) -> Decision<Self::Run>;

    /// What is inside is told of the step; usually what the wrapper was told.
    fn tell<'a>(&self, run: &Self::Run, at: &StepContext<'a>) -> StepContext<'a> {
        let _ = run;
        *at
    }

    /// Works out, in `f64`, what the arithmetic on a leaf needs, and rounds it once with [`Real::of`].
    fn scalars<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::Scalars<C>;

    /// One element before what is inside. Write `#[inline(always)]` on it.
    fn before<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C {
        let _ = (k, slots, p);
        u
    }

    /// One element after what is inside, of which `u` is the update. Write `#[inline(always)]` on it.
    fn after<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C {
        let _ = (k, slots, p);
        u
    }

    /// Ends a step. `inside` is what the step of what is inside did, if it ran.
    fn finish(
        &self,
        memory: &mut Self::Memory,
        decision: &Decision<Self::Run>,
        inside: Option<Outcome>,
        inner: &mut <Self::Inner as Stage>::State,
    ) {
        let _ = (memory, decision, inside, inner);
    }
}

/// In a [`Wrapper`] that does nothing to elements: the types and the function of arithmetic that there is not.
#[macro_export]
macro_rules! no_arithmetic {
    () => {
        type Slots<C: $crate::Real> = [C; 0];
        type Scalars<C: $crate::Real> = ();
        fn scalars<C: $crate::Real>(&self, _: &Self::Memory, _: &Self::Run, _: usize) {}
    };
}
pub use no_arithmetic;

/// What was decided for a step, and what is inside worked out for it.
pub struct AroundRun<P: Wrapper> {
    /// Not decided before the first barrier of a wrapper that looks.
    decision: Option<Decision<P::Run>>,
    inner: Option<<P::Inner as Stage>::Run>,
}

/// What the element loop of one leaf needs.
#[derive(Clone, Copy)]
pub struct AroundKernel<K, I> {
    own: K,
    inner: I,
    on: bool,
    zero: bool,
}

type StateOf<P> = WrapperState<<P as Wrapper>::Memory, <<P as Wrapper>::Inner as Stage>::State>;

const fn arrays<P: Wrapper>() -> usize {
    <P::Slots<f32> as SlotArray<f32>>::LEN
}

/// What is before what is inside: a look at all gradients, and arithmetic.
const fn look<P: Wrapper>() -> Shape {
    Shape { barriers: P::LOOKS as usize, stateful: 0, reads_params: 0, materializes: 0, sums: P::LOOKS as usize }
}

const fn own<P: Wrapper>(is_there: bool) -> Shape {
    Shape::elementwise(is_there && !P::SLOTS.is_empty(), is_there && P::READS_PARAMS)
}

const fn around<P: Wrapper>(inner: Shape) -> Shape {
    look::<P>().then(own::<P>(P::BEFORE)).then(inner).then(own::<P>(P::AFTER))
}

impl Around {
    fn decide<P: Wrapper>(part: &P, state: &mut StateOf<P>, run: &mut AroundRun<P>, at: &StepContext<'_>, seen: f64) {
        let decision = part.decide(&mut state.memory, at, seen);
        let begin = |state: &mut StateOf<P>, at: &StepContext<'_>| {
            Some(part.inner_now(&state.memory).begin(&mut state.inner, at))
        };
        run.inner = match &decision {
            Decision::Run(run) => begin(state, &part.tell(run, at)),
            Decision::Inside => begin(state, at),
            Decision::Hold(_) | Decision::Pass | Decision::Skip => None,
        };
        run.decision = Some(decision);
    }

    fn is_on<P: Wrapper>(part: &P, state: &StateOf<P>, leaf: usize) -> bool {
        !P::CHOOSES || state.active.as_ref().is_none_or(|active| active[leaf]) && part.acts_on(&state.memory, leaf)
    }
}

impl<P: Wrapper> Form<P> for Around {
    type Needs = <<P::Inner as Stage>::Needs as Needs>::Or<P::Asks>;
    type State = StateOf<P>;
    type Run = AroundRun<P>;
    type Kernel<C: Real> = AroundKernel<P::Scalars<C>, <P::Inner as Stage>::Kernel<C>>;

    const SHAPE: Shape = around::<P>(P::Inner::SHAPE);
    const SLOTS: usize = checked_slots(P::SLOTS, arrays::<P>()) + P::Inner::SLOTS;
    const FUSES: bool = P::Inner::FUSES && fits(<P as Stage>::SHAPE, <P as Stage>::SLOTS);

    fn shape(part: &P) -> Shape {
        around::<P>(part.inner().shape())
    }

    fn needs(part: &P) -> Level {
        part.inner().needs().max(P::Asks::LEVEL)
    }

    fn validate(part: &P) -> Result<()> {
        const { checked_slots(P::SLOTS, arrays::<P>()) };
        part.inner().validate()
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<StateOf<P>> {
        let active = part.leaves(at)?.map(|on| at.restricted(&on));
        let at = &at.with_active(active.as_deref().unwrap_or(at.active));
        let inner = part.inner().init_state(at)?;
        let start =
            |slot| Start { dtype: part.slot_dtype(slot), value: 0.0, as_params: part.slot_starts_as_params(slot) };
        let (memory, arrays) = (part.start(at, &inner)?, Arrays::new(P::SLOTS, at, start)?);
        Ok(WrapperState { memory, arrays, inner, active })
    }

    fn check(part: &P, state: &StateOf<P>, at: &StepContext<'_>) -> Result<()> {
        part.check(&state.memory, at)?;
        part.inner_now(&state.memory).check(&state.inner, at)
    }

    fn begin(part: &P, state: &mut StateOf<P>, at: &StepContext<'_>) -> AroundRun<P> {
        let mut run = AroundRun { decision: None, inner: None };
        if !P::LOOKS {
            Around::decide(part, state, &mut run, at, 0.0);
        }
        run
    }

    fn barrier(
        part: &P,
        state: &mut StateOf<P>,
        run: &mut AroundRun<P>,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if P::LOOKS && index == 0 {
            return Around::decide(part, state, run, at, sums.total(0));
        }
        let Some(inner) = &mut run.inner else { return };
        let at = match &run.decision {
            Some(Decision::Run(run)) => part.tell(run, at),
            _ => *at,
        };
        let (index, sums) = (index - P::LOOKS as usize, sums.skip(P::LOOKS as usize));
        let transformation = part.inner_now(&state.memory);
        match &state.active {
            Some(active) => {
                let tree = &mut tree.with_active(active);
                transformation.barrier(&mut state.inner, inner, &at, index, sums, tree);
            }
            None => transformation.barrier(&mut state.inner, inner, &at, index, sums, tree),
        }
    }

    fn finish(part: &P, state: &mut StateOf<P>, run: AroundRun<P>, sums: Sums<'_>, outcome: &mut Outcome) {
        // What is inside is asked alone: elsewhere in a chain or partition something may hold back its own updates.
        let inside = run.inner.map(|inner| {
            let mut inside = Outcome { emitted: true, skipped: false };
            let sums = sums.skip(P::LOOKS as usize);
            part.inner_now(&state.memory).finish(&mut state.inner, inner, sums, &mut inside);
            inside
        });
        let Some(decision) = run.decision else { return };
        part.finish(&mut state.memory, &decision, inside, &mut state.inner);
        let did = match decision {
            Decision::Skip => Outcome { emitted: false, skipped: true },
            Decision::Hold(_) => Outcome { emitted: false, skipped: false },
            _ => inside.unwrap_or(Outcome { emitted: true, skipped: false }),
        };
        outcome.emitted &= did.emitted;
        outcome.skipped |= did.skipped;
    }

    fn ends_at(part: &P, state: &StateOf<P>, run: &AroundRun<P>) -> Option<usize> {
        // Leaves that are not acted on have an update of their own, if their gradients go through.
        let elsewhere = || {
            let all = state.active.as_ref().is_none_or(|active| active.iter().all(|on| *on));
            part.elsewhere() == Elsewhere::Zero || all
        };
        if P::CHOOSES && !elsewhere() {
            return None;
        }
        match run.decision.as_ref()? {
            // What is done after what is inside is done in the last pass.
            Decision::Run(_) if P::AFTER => None,
            Decision::Run(_) | Decision::Inside => {
                let end = part.inner_now(&state.memory).ends_at(&state.inner, run.inner.as_ref()?)?;
                Some(P::LOOKS as usize + end)
            }
            Decision::Hold(_) | Decision::Skip => Some(P::LOOKS as usize),
            Decision::Pass => None,
        }
    }

    fn tile<C: Real>(
        part: &P,
        state: &StateOf<P>,
        run: &AroundRun<P>,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        if part.fuses_now(state, run, tile.leaf) {
            return fused_tile(part, state, run, place, span, tile);
        }
        if P::LOOKS && place.at == span.to {
            let (isa, u) = (tile.isa, tile.input());
            let seen = dispatch(isa, Look::<P, C>(u, PhantomData));
            tile.sums[place.sum] += seen;
            return;
        }
        let inside = place.after(look::<P>());
        if !Around::is_on(part, state, tile.leaf) {
            if part.elsewhere() == Elsewhere::Zero && span.has(inside.at) {
                tile.set_zero();
            }
            return;
        }
        let (run, inner) = match (&run.decision, &run.inner) {
            (Some(Decision::Run(run)), Some(inner)) => (Some(run), inner),
            (Some(Decision::Inside), Some(inner)) => (None, inner),
            (Some(Decision::Hold(run)), _) if span.has(inside.at) => {
                if P::BEFORE {
                    let k = part.scalars(&state.memory, run, tile.leaf);
                    each_read(Own::<P, C, true>(k), &state.arrays, tile);
                }
                return tile.set_zero();
            }
            (Some(Decision::Skip), _) if span.has(inside.at) => return tile.set_zero(),
            _ => return,
        };
        if P::BEFORE
            && let Some(run) = run
            && span.has(inside.at)
        {
            let k = part.scalars(&state.memory, run, tile.leaf);
            each(Own::<P, C, true>(k), &state.arrays, tile);
        }
        let transformation = part.inner_now(&state.memory);
        transformation.tile(&state.inner, inner, inside, span, tile);
        if P::AFTER
            && let Some(run) = run
            && span.has(inside.after(transformation.shape()).at)
        {
            let k = part.scalars(&state.memory, run, tile.leaf);
            each(Own::<P, C, false>(k), &state.arrays, tile);
        }
    }

    fn fuses_now(part: &P, state: &StateOf<P>, run: &AroundRun<P>, leaf: usize) -> bool {
        let Some(inner) = &run.inner else { return false };
        // In a step in which the wrapper does nothing of its own, its arrays are not to be touched, not even read; nor are those of
        // a leaf that is not acted on.
        let own = match &run.decision {
            Some(Decision::Run(_)) => true,
            _ => !P::BEFORE && !P::AFTER,
        };
        <P as Stage>::FUSES
            && own
            && (<P as Stage>::SLOTS == 0 || Around::is_on(part, state, leaf))
            && part.inner_now(&state.memory).fuses_now(&state.inner, inner, leaf)
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &StateOf<P>, run: &AroundRun<P>, leaf: usize) -> Self::Kernel<C> {
        let (Some(Decision::Run(own)), Some(inner)) = (&run.decision, &run.inner) else {
            unreachable!("the fused loop is run in steps in which the wrapper and what is inside run")
        };
        AroundKernel {
            own: part.scalars(&state.memory, own, leaf),
            inner: part.inner_now(&state.memory).kernel(&state.inner, inner, leaf),
            on: Around::is_on(part, state, leaf),
            zero: part.elsewhere() == Elsewhere::Zero,
        }
    }

    fn slots(part: &P, state: &StateOf<P>, leaf: usize, list: &mut SlotList) {
        state.arrays.list(leaf, list);
        part.inner_now(&state.memory).slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        let at = at + P::LOOKS as usize;
        if P::CHOOSES && !k.on {
            return if k.zero && span.has(at) { C::zero() } else { u };
        }
        let (own, slots) = slots.split_at_mut(arrays::<P>());
        let u = if P::BEFORE && span.has(at) { P::before(k.own, P::Slots::of(own), u, p) } else { u };
        let u = P::Inner::apply::<C>(&k.inner, at, span, slots, u, p, &mut tally[P::LOOKS as usize..]);
        if P::AFTER && span.has(at + P::Inner::SHAPE.barriers) { P::after(k.own, P::Slots::of(own), u, p) } else { u }
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        if !P::CHOOSES || k.on {
            P::Inner::reduce::<C>(&k.inner, place.after(look::<P>()), span, u, p, sums);
        }
    }

    fn state_bytes(part: &P, state: &StateOf<P>, leaf: usize, at: usize, span: Span) -> usize {
        if !Around::is_on(part, state, leaf) {
            return 0;
        }
        let (at, inner) = (at + P::LOOKS as usize, part.inner_now(&state.memory));
        let own = P::BEFORE && span.has(at) || P::AFTER && span.has(at + inner.shape().barriers);
        inner.state_bytes(&state.inner, leaf, at, span) + state.arrays.bytes(leaf, |_| 2 * own as usize)
    }

    fn unused(part: &P, state: &StateOf<P>, report: &mut dyn FnMut(&str)) {
        if state.active.as_ref().is_some_and(|active| !active.contains(&true)) {
            report(&format!("the mask of {}", part.inner().describe()));
        }
        part.inner().unused(&state.inner, report);
    }
}

struct Look<'a, P, C>(&'a [C], PhantomData<P>);

impl<P: Wrapper, C: Real> Job for Look<'_, P, C> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, |u| P::look(u).as_f64())
    }
}

/// What the wrapper does to one element before what is inside, or after.
struct Own<P: Wrapper, C: Real, const BEFORE: bool>(P::Scalars<C>);

impl<P: Wrapper, C: Real, const BEFORE: bool> Clone for Own<P, C, BEFORE> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Wrapper, C: Real, const BEFORE: bool> Copy for Own<P, C, BEFORE> {}

impl<P: Wrapper, C: Real, const BEFORE: bool> OnElement<C> for Own<P, C, BEFORE> {
    type Slots = P::Slots<C>;
    #[inline(always)]
    fn apply(self, slots: &mut P::Slots<C>, u: C, p: C) -> C {
        if BEFORE { P::before(self.0, slots, u, p) } else { P::after(self.0, slots, u, p) }
    }
}
