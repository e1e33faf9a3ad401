//! How wrappers run.

use core::marker::PhantomData;

use super::super::super::isa::{Job, dispatch};
use super::super::super::{
    InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Term, Tile, WholeTree, fits,
    fused_tile, sum_tile,
};
use super::super::loops::each;
use super::super::rule::checked_slots;
use super::super::state::{Arrays, Start};
use super::super::{Form, Part, SlotArray, WrapperState};
use super::arithmetic::{Half, Own};
use super::{Around, Decision, Elsewhere, Holds, Wrapper};
use crate::element::{Element, Real};
use crate::error::Result;
use crate::needs::{Level, Needs};

type Inner<P> = <P as Holds>::Inner;
type StateOf<P> = WrapperState<<P as Wrapper>::Memory, <Inner<P> as Stage>::State>;

/// What was decided for a step, and what is inside worked out for it.
pub struct AroundRun<R> {
    /// Not decided before the first barrier of a wrapper that looks.
    decision: Option<Decision>,
    inner: Option<R>,
}

/// What the element loop of one leaf needs.
#[derive(Clone, Copy)]
pub struct AroundKernel<K, I> {
    own: K,
    inner: I,
    on: bool,
    zero: bool,
}

/// A look at all gradients.
const fn look<P: Wrapper>() -> Shape {
    Shape { barriers: P::LOOKS as usize, stateful: 0, reads_params: 0, materializes: 0, sums: P::LOOKS as usize }
}

const fn around<P: Wrapper, O: Own<P>>(inner: Shape) -> Shape {
    const fn own<P: Wrapper, O: Own<P>>(is_there: bool) -> Shape {
        Shape::elementwise(is_there && !O::SLOTS.is_empty(), is_there && O::READS_PARAMS)
    }
    look::<P>().then(own::<P, O>(O::BEFORE)).then(inner).then(own::<P, O>(O::AFTER))
}

const fn arrays<P: Wrapper, O: Own<P>>() -> usize {
    checked_slots(O::SLOTS, <O::Slots<f32> as SlotArray<f32>>::LEN)
}

fn decide<P: Wrapper>(
    part: &P,
    state: &mut StateOf<P>,
    run: &mut AroundRun<<Inner<P> as Stage>::Run>,
    at: &StepContext<'_>,
    seen: f64,
) {
    let decision = part.decide(&mut state.memory, at, seen);
    run.decision = Some(decision);
    if matches!(decision, Decision::Run | Decision::Inside) {
        let at = told(part, state, decision, at);
        run.inner = Some(part.inner_now(&state.memory).begin(&mut state.inner, &at));
    }
}

/// What is inside is told of a step.
fn told<'a, P: Wrapper>(part: &P, state: &StateOf<P>, decision: Decision, at: &StepContext<'a>) -> StepContext<'a> {
    if decision == Decision::Run { part.tell(&state.memory, at) } else { *at }
}

fn is_on<P: Wrapper>(part: &P, state: &StateOf<P>, leaf: usize) -> bool {
    !P::CHOOSES || state.active.as_ref().is_none_or(|active| active[leaf]) && part.acts_on(&state.memory, leaf)
}

impl<P: Wrapper + Part<Form = Around<A, O>>, A: Needs, O: Own<P>> Form<P> for Around<A, O> {
    type Needs = <<Inner<P> as Stage>::Needs as Needs>::Or<A>;
    type State = StateOf<P>;
    type Run = AroundRun<<Inner<P> as Stage>::Run>;
    type Kernel<C: Real> = AroundKernel<O::Scalars<C>, <Inner<P> as Stage>::Kernel<C>>;

    const SHAPE: Shape = around::<P, O>(Inner::<P>::SHAPE);
    const SLOTS: usize = arrays::<P, O>() + Inner::<P>::SLOTS;
    const FUSES: bool = Inner::<P>::FUSES && fits(<P as Stage>::SHAPE, <P as Stage>::SLOTS);

    fn shape(part: &P) -> Shape {
        around::<P, O>(part.inner().shape())
    }

    fn needs(part: &P) -> Level {
        part.inner().needs().max(A::LEVEL)
    }

    fn validate(part: &P) -> Result<()> {
        const { arrays::<P, O>() };
        part.inner().validate()
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<StateOf<P>> {
        let active = part.leaves(at)?.map(|on| at.restricted(&on));
        let at = &at.with_active(active.as_deref().unwrap_or(at.active));
        let inner = part.inner().init_state(at)?;
        let mut memory = P::Memory::default();
        part.start(&mut memory, at, &inner)?;
        let start = |slot| Start {
            dtype: O::slot_dtype(part, slot),
            value: 0.0,
            as_params: O::slot_starts_as_params(part, slot),
        };
        let arrays = Arrays::new(O::SLOTS, at, start)?;
        Ok(WrapperState { memory, arrays, inner, active })
    }

    fn check(part: &P, state: &StateOf<P>, at: &StepContext<'_>) -> Result<()> {
        part.check(&state.memory, at)?;
        part.inner_now(&state.memory).check(&state.inner, at)
    }

    fn begin(part: &P, state: &mut StateOf<P>, at: &StepContext<'_>) -> Self::Run {
        let mut run = AroundRun { decision: None, inner: None };
        if !P::LOOKS {
            decide(part, state, &mut run, at, 0.0);
        }
        run
    }

    fn barrier(
        part: &P,
        state: &mut StateOf<P>,
        run: &mut Self::Run,
        at: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if P::LOOKS && index == 0 {
            return decide(part, state, run, at, sums.total(0));
        }
        let (Some(decision), Some(inner)) = (run.decision, &mut run.inner) else { return };
        let at = told(part, state, decision, at);
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

    fn finish(part: &P, state: &mut StateOf<P>, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        // What is inside is asked alone: elsewhere in a chain or partition something may hold back its own updates.
        let inside = run.inner.map(|inner| {
            let mut inside = Outcome { emitted: true, skipped: false };
            let sums = sums.skip(P::LOOKS as usize);
            part.inner_now(&state.memory).finish(&mut state.inner, inner, sums, &mut inside);
            inside
        });
        let Some(decision) = run.decision else { return };
        part.finish(&mut state.memory, decision, inside, &mut state.inner);
        let did = match decision {
            Decision::Skip => Outcome { emitted: false, skipped: true },
            Decision::Hold => Outcome { emitted: false, skipped: false },
            _ => inside.unwrap_or(Outcome { emitted: true, skipped: false }),
        };
        outcome.emitted &= did.emitted;
        outcome.skipped |= did.skipped;
    }

    fn ends_at(part: &P, state: &StateOf<P>, run: &Self::Run) -> Option<usize> {
        // Leaves that are not acted on have an update of their own, if their gradients go through.
        let all = || state.active.as_ref().is_none_or(|active| active.iter().all(|on| *on));
        if P::CHOOSES && part.elsewhere() == Elsewhere::Pass && !all() {
            return None;
        }
        match run.decision? {
            // What is done after what is inside is done in the last pass.
            Decision::Run if O::AFTER => None,
            Decision::Run | Decision::Inside => {
                let end = part.inner_now(&state.memory).ends_at(&state.inner, run.inner.as_ref()?)?;
                Some(P::LOOKS as usize + end)
            }
            Decision::Hold | Decision::Skip => Some(P::LOOKS as usize),
            Decision::Pass => None,
        }
    }

    fn tile<C: Real>(part: &P, state: &StateOf<P>, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        // A wrapper without arithmetic has no loop of its own: what is inside fuses by itself.
        if (O::BEFORE || O::AFTER) && part.fuses_now(state, run, tile.leaf) {
            return fused_tile(part, state, run, place, span, tile);
        }
        if P::LOOKS && place.at == span.to {
            let (isa, u) = (tile.isa, tile.input());
            let seen = dispatch(isa, Look::<P, C>(u, PhantomData));
            tile.sums[place.sum] += seen;
            return;
        }
        let inside = place.after(look::<P>());
        if !is_on(part, state, tile.leaf) {
            if part.elsewhere() == Elsewhere::Zero && span.has(inside.at) {
                tile.set_zero();
            }
            return;
        }
        let runs = run.decision == Some(Decision::Run);
        let own = || O::scalars::<C>(part, &state.memory, tile.leaf);
        let Some(inner) = &run.inner else {
            if matches!(run.decision, Some(Decision::Hold | Decision::Skip)) && span.has(inside.at) {
                if O::BEFORE && run.decision == Some(Decision::Hold) {
                    each(Half::<P, O, C, true, false>(own()), &state.arrays, 0, tile);
                }
                tile.set_zero();
            }
            return;
        };
        if O::BEFORE && runs && span.has(inside.at) {
            each(Half::<P, O, C, true, true>(own()), &state.arrays, 0, tile);
        }
        let transformation = part.inner_now(&state.memory);
        transformation.tile(&state.inner, inner, inside, span, tile);
        if O::AFTER && runs && span.has(inside.after(transformation.shape()).at) {
            let own = O::scalars::<C>(part, &state.memory, tile.leaf);
            match O::REWRITES {
                true => each(Half::<P, O, C, false, true>(own), &state.arrays, 0, tile),
                false => each(Half::<P, O, C, false, false>(own), &state.arrays, 0, tile),
            }
        }
    }

    fn fuses_now(part: &P, state: &StateOf<P>, run: &Self::Run, leaf: usize) -> bool {
        let Some(inner) = &run.inner else { return false };
        // In a step in which the wrapper does nothing of its own, its arrays are not to be touched, not even read; nor are those of
        // a leaf that is not acted on.
        <P as Stage>::FUSES
            && (run.decision == Some(Decision::Run) || !O::BEFORE && !O::AFTER)
            && (<P as Stage>::SLOTS == 0 || is_on(part, state, leaf))
            && part.inner_now(&state.memory).fuses_now(&state.inner, inner, leaf)
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &StateOf<P>, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = run.inner.as_ref().expect("the fused loop is run in steps in which what is inside runs");
        AroundKernel {
            own: O::scalars(part, &state.memory, leaf),
            inner: part.inner_now(&state.memory).kernel(&state.inner, inner, leaf),
            on: is_on(part, state, leaf),
            zero: part.elsewhere() == Elsewhere::Zero,
        }
    }

    fn slots(part: &P, state: &StateOf<P>, leaf: usize, list: &mut SlotList) {
        state.arrays.list(leaf, list);
        part.inner_now(&state.memory).slots(&state.inner, leaf, list);
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
        let at = at + P::LOOKS as usize;
        if P::CHOOSES && !k.on {
            return if k.zero && span.has(at) { C::zero() } else { u };
        }
        let (own, slots) = slots.split_at_mut(const { arrays::<P, O>() });
        let u = if O::BEFORE && span.has(at) { O::before(k.own, O::Slots::of(own), u, p) } else { u };
        let u = Inner::<P>::apply::<C>(&k.inner, at, span, slots, u, p, &mut terms[P::LOOKS as usize..]);
        let after = O::AFTER && span.has(at + Inner::<P>::SHAPE.barriers);
        if after { O::after(k.own, O::Slots::of(own), u, p) } else { u }
    }

    fn state_bytes(part: &P, state: &StateOf<P>, leaf: usize, at: usize, span: Span) -> usize {
        if !is_on(part, state, leaf) {
            return 0;
        }
        let (at, inner) = (at + P::LOOKS as usize, part.inner_now(&state.memory));
        let own = O::BEFORE && span.has(at) || O::AFTER && span.has(at + inner.shape().barriers);
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
