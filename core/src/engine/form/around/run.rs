use super::super::super::Access;
use super::super::super::leaf::is_among;
use super::super::super::limits::MAX_SLOTS;
use super::super::super::sums::split_sums;
use super::super::super::tile_driver::fused_loop;
use super::super::super::{
    Absent, Contribution, Effect, Emission, HoldsBack, InitContext, OnView, Outcome, PassRange, PassStructure, Skips,
    Slot, SlotAccess, SlotAccesses, SlotList, Stage, StageChunk, StepContext, Summary, Sums, Then, TileScratch,
    Transform, Walk, WholeTree, append, fits, run_own_loops,
};
use super::super::loops::{on_slots, reducing_inputs};
use super::super::state::Arrays;
use super::super::{Form, Part, SlotArray, WrapperState, own_hyperparams};
use super::arithmetic::Loops;
use super::emission::{emission, inner_step_context, record_resting};
use super::tile::{is_loop, tile_of, weighs};
use super::{Around, Decision, Holds, OutsideMask, Wrapper};
use crate::element::Real;
use crate::error::Result;
use crate::needs::{Level, Needs};
use crate::select::Mask;
use crate::state::{State, StateWalk};

pub(super) type Inner<P> = <P as Holds>::Inner;
pub(super) type StateOf<P> = WrapperState<<P as Wrapper>::Memory, <Inner<P> as Stage>::State>;

/// The decision of a step, and the inner values.
pub struct AroundRun<R> {
    /// `None` before the first barrier, if the wrapper reduces the gradients first.
    pub(super) decision: Option<Decision>,
    pub(super) inner: Option<R>,
    /// True if the inner transformation emits nothing, so that no later arithmetic of the wrapper runs.
    pub(super) no_inner_update: bool,
}

/// The scalars of a leaf's element loop.
#[derive(Clone, Copy)]
pub struct AroundKernel<K, I> {
    own: K,
    inner: I,
    on: bool,
    zero: bool,
}

pub(super) const fn gradient_term<P: Wrapper>() -> PassStructure {
    PassStructure { barriers: P::RUNS.reduces_gradients as usize, ..PassStructure::NONE }
        .adding(P::RUNS.reduces_gradients as usize)
}

const fn around<P: Wrapper, O: Loops<P>>(inner: PassStructure) -> PassStructure {
    const fn own<P: Wrapper, O: Loops<P>>(is_there: bool, writes: bool) -> PassStructure {
        PassStructure::elementwise(is_there && writes && arrays::<P, O>() > 0, is_there && O::ELEMENTS.params)
    }
    // The last pass writes updates only. The first may write state arrays, in the one pass that ends there: the engine
    // stores no updates for it.
    let last = PassStructure {
        barriers: O::REDUCES.waits as usize,
        reads_params: (O::REDUCES.last_reads_params as u32) << 1,
        ..PassStructure::NONE
    }
    .adding(O::REDUCES.count())
    .deferrable();
    let begins = match O::REDUCES.sums[0] > 0 || reduces_before::<P, O>() {
        true => PassStructure {
            reduces: (O::REDUCES.sums[0] > 0) as u32,
            of_updates: 1,
            ..PassStructure::elementwise(false, O::ELEMENTS.params)
        },
        // Steps that write the arrays need the gradients in the wrapper's first pass.
        false => PassStructure {
            of_updates: O::ELEMENTS.only_reads_before() as u32,
            ..own::<P, O>(O::ELEMENTS.before, !O::ELEMENTS.only_reads_before())
        },
    };
    let all =
        gradient_term::<P>().then(begins).then(inner.sometimes()).then(own::<P, O>(O::ELEMENTS.after, true)).then(last);
    PassStructure { typed: all.typed || O::ELEMENTS.typed, ..all }
}

/// Returns each pass's accesses to the wrapper's own arrays, around `inside` barriers.
const fn slot_accesses<P: Wrapper, O: Loops<P>>(inside: usize) -> SlotAccess {
    let (begins, ends) = (P::RUNS.reduces_gradients as usize, P::RUNS.reduces_gradients as usize + inside);
    if O::ELEMENTS.params_slot.is_some() || ends + 1 >= u32::BITS as usize {
        return SlotAccess::ALWAYS;
    }
    let after = (O::ELEMENTS.after as u32) << ends | (O::REDUCES.waits as u32) << (ends + 1);
    let before = (O::ELEMENTS.before as u32) << begins;
    SlotAccess::of(before | after, if O::ELEMENTS.only_reads_before() { after } else { before | after })
}

/// Returns true if `before` changes arrays only; it then runs in the one pass that ends at its interval.
const fn reduces_before<P: Wrapper, O: Loops<P>>() -> bool {
    O::ELEMENTS.before && !O::ELEMENTS.rewrites[0]
}

/// Returns true if a pass runs `before`, where the inner transformation begins.
#[inline(always)]
pub(super) const fn does_before<P: Wrapper, O: Loops<P>>(at: usize, range: PassRange) -> bool {
    let begins = if const { reduces_before::<P, O>() } { at == range.to } else { range.has(at) };
    begins && const { O::ELEMENTS.before }
}

/// Returns true if the wrapper does nothing while only the inner transformation runs: it selects no leaves and passes
/// the parameters on unchanged.
const fn inner_only<P: Wrapper, O: Loops<P>>() -> bool {
    P::RUNS.inner_only && !P::RUNS.masked && O::ELEMENTS.params_slot.is_none() && !weighs::<P, O>()
}

/// True if all arithmetic follows the inner transformation, and none runs where that emits nothing.
const fn only_after<P: Wrapper, O: Loops<P>>() -> bool {
    !(O::ELEMENTS.before || O::ELEMENTS.completes) && O::ELEMENTS.params_slot.is_none()
}

/// True if inner transformation and wrapper treat leaves without a gradient alike. A reduction takes them for zeros,
/// which contribute nothing.
const fn treats_absent_alike<P: Wrapper, O: Loops<P>>() -> bool {
    !(O::ELEMENTS.before || O::ELEMENTS.after || O::REDUCES.waits || O::REDUCES.count() > 0)
}

/// Returns true if the gradients are kept during the inner passes.
fn keeps<P: Wrapper, O: Loops<P>>(part: &P) -> bool {
    (const { O::REDUCES.combines }) && part.inner().shape().barriers > 0
}

const fn arrays<P: Wrapper, O: Loops<P>>() -> usize {
    <O::Slots<f32> as SlotArray<f32>>::LEN
}

fn decide<P: Wrapper, O: Loops<P>>(
    part: &P,
    state: &mut StateOf<P>,
    run: &mut AroundRun<<Inner<P> as Stage>::Run>,
    at: &StepContext<'_>,
    gradient_sum: f64,
) {
    let before = at.resting;
    let decision = part.decide(&mut state.memory, at, gradient_sum);
    let decision = if P::RUNS.always { Decision::Run } else { decision };
    run.decision = Some(decision);
    if matches!(decision, Decision::Run | Decision::InnerOnly) {
        let at = inner_step_context::<P, O>(part, &state.memory, decision, at);
        run.inner = Some(part.current_inner(&state.memory).begin(&mut state.inner, &at));
    }
    record_resting::<P, O>(part, state, run, before);
}

fn summed<'a, P: Wrapper>(part: &P, memory: &'a P::Memory, sums: Sums<'a>) -> Sums<'a> {
    if P::RUNS.rests { Sums { resting: part.resting(memory), ..sums } } else { sums }
}

pub(super) fn is_on<P: Wrapper>(part: &P, state: &StateOf<P>, leaf: usize) -> bool {
    !P::RUNS.masked
        || state.active.as_ref().is_none_or(|active| active[leaf]) && !is_among(part.resting(&state.memory), leaf)
}

impl<P: Wrapper + Part<Form = Around<A, O>>, A: Needs, O: Loops<P>> Form<P> for Around<A, O> {
    type Needs = <<Inner<P> as Stage>::Needs as Needs>::Or<A>;
    type State = StateOf<P>;
    type Run = AroundRun<<Inner<P> as Stage>::Run>;
    type Kernel<C: Real> = AroundKernel<O::Scalars<C>, <Inner<P> as Stage>::Kernel<C>>;

    const SHAPE: PassStructure = around::<P, O>(Inner::<P>::SHAPE);
    const SLOTS: usize = arrays::<P, O>() + Inner::<P>::SLOTS;
    const SLOT_ACCESSES: SlotAccesses = {
        let (own, barriers) = (slot_accesses::<P, O>(Inner::<P>::SHAPE.barriers), P::RUNS.reduces_gradients as usize);
        append(own.of_all(), arrays::<P, O>(), Inner::<P>::SLOT_ACCESSES, barriers)
    };
    const FUSES: bool = Inner::<P>::FUSES
        && O::REDUCES.fuses
        && !(O::REDUCES.combines && Inner::<P>::SHAPE.barriers > 0)
        && fits(<P as Stage>::SHAPE, <P as Stage>::SLOTS);
    const FUSES_ALWAYS: bool = Self::FUSES
        && P::RUNS.always
        && !P::RUNS.reduces_gradients
        && (!(P::RUNS.masked || O::ELEMENTS.some_leaves) || <P as Stage>::SLOTS == 0)
        && Inner::<P>::FUSES_ALWAYS;
    const ALWAYS_EMITS: bool =
        P::RUNS.always && !P::RUNS.holds_back && !P::RUNS.reduces_gradients && Inner::<P>::ALWAYS_EMITS;
    const ROWS: bool = (O::ELEMENTS.rows || arrays::<P, O>() == 0) && O::REDUCES.count() == 0;

    fn members(part: &P, visit: &mut dyn FnMut(&dyn Transform)) {
        visit(part.inner().as_dyn());
    }

    fn shape(part: &P) -> PassStructure {
        around::<P, O>(part.inner().shape())
    }

    fn needs(part: &P) -> Level {
        part.inner().needs().max(A::LEVEL)
    }

    fn absent(part: &P) -> Absent {
        match part.inner().absent() {
            _ if P::RUNS.skips_absent => Absent::Rests,
            Absent::Refused => Absent::Refused,
            _ if P::RUNS.windows => Absent::Counts,
            inside if treats_absent_alike::<P, O>() => inside,
            _ => Absent::Refused,
        }
    }

    fn has_windows(part: &P) -> bool {
        P::RUNS.windows || part.inner().has_windows()
    }

    fn skips_inner(part: &P, skips: &mut Skips, place: &str) -> bool {
        let inside = format!("{place}.{}.{}", P::NAME, P::KEY);
        (P::RUNS.windows || treats_absent_alike::<P, O>()) && part.inner().skips(skips, &inside)
    }

    fn validate(part: &P) -> Result<()> {
        part.inner().validate()
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<StateOf<P>> {
        let what = || format!("mask of {}", part.inner().describe());
        let chosen = part.mask().map(|mask| mask.resolve(at.structure(), &what())).transpose()?;
        let active = chosen.map(|on| at.restricted(&on));
        let mut memory = P::Memory::default();
        let by_leaf = at.by_leaf || P::RUNS.rests;
        let others = active.as_ref().is_some_and(|active| at.active.iter().zip(active).any(|(all, on)| *all && !on));
        let outside = &InitContext { by_leaf, ..at.with_active(active.as_deref().unwrap_or(at.active)) };
        part.start(&mut memory, outside)?;
        let (quantization, in_full) =
            (part.quantization(&memory).or(at.quantization), at.in_full || O::ELEMENTS.params_slot.is_some());
        let inner = part.inner().init_state(&InitContext { quantization, in_full, ..*outside })?;
        let at = outside;
        let arrays = O::arrays(part, at)?;
        let kept: &[_] = if keeps::<P, O>(part) { const { &[Slot::exact("gradient")] } } else { &[] };
        let gradients = Arrays::new(kept, at, &|slot| slot)?;
        let rests = if Self::holds_back(part) == HoldsBack::Some { at.structure().len() } else { 0 };
        let (leaves, resting) = (at.structure().len(), Vec::with_capacity(rests));
        Ok(WrapperState { memory, arrays, inner, active, others, name: P::STATE, gradients, leaves, resting })
    }

    fn views<'a>(part: &P, state: &'a StateOf<P>, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
        let run = run.and_then(|run| run.inner.as_ref());
        let _ = part.current_inner(&state.memory).visit_view(0, &state.inner, run, visit);
    }

    fn check(part: &P, state: &StateOf<P>, at: &StepContext<'_>) -> Result<()> {
        part.check(&state.memory, at)?;
        let inside =
            at.on(state.active.as_deref().unwrap_or(at.active)).with_quantization(part.quantization(&state.memory));
        let inside = StepContext { in_full: at.in_full || O::ELEMENTS.params_slot.is_some(), ..inside };
        part.current_inner(&state.memory).check(&state.inner, &inside)
    }

    fn begin(part: &P, state: &mut StateOf<P>, at: &StepContext<'_>) -> Self::Run {
        let mut run = AroundRun { decision: None, inner: None, no_inner_update: false };
        state.resting.clear();
        if const { !P::RUNS.reduces_gradients } {
            decide::<P, O>(part, state, &mut run, at, 0.0);
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
        let waits =
            const { O::REDUCES.waits } && index == P::RUNS.reduces_gradients as usize + part.inner().shape().barriers;
        if sums.repeats.is_some() && (waits || P::RUNS.reduces_gradients && index == 0) {
            return;
        }
        if const { P::RUNS.reduces_gradients } && index == 0 {
            return decide::<P, O>(part, state, run, at, sums.total(0));
        }
        if waits {
            if !run.no_inner_update {
                O::reduced(
                    part,
                    &mut state.memory,
                    sums.skip(P::RUNS.reduces_gradients as usize + part.inner().shape().sums),
                );
            }
            return;
        }
        let (Some(decision), Some(inner)) = (run.decision, &mut run.inner) else { return };
        let (at, before) = (inner_step_context::<P, O>(part, &state.memory, decision, at), at.resting);
        let (index, sums) = (
            index - P::RUNS.reduces_gradients as usize,
            summed(part, &state.memory, sums).skip(P::RUNS.reduces_gradients as usize),
        );
        let transformation = part.current_inner(&state.memory);
        let StateOf::<P> { arrays, inner: of_inner, active, .. } = state;
        let active = active.as_deref().unwrap_or(tree.active);
        let tree = &mut tree.with_active(active);
        let mut inside = |tree: &mut WholeTree<'_>| transformation.barrier(of_inner, inner, &at, index, sums, tree);
        match const { O::ELEMENTS.params_slot } {
            Some(params_slot) => tree.at_point(&arrays.all[params_slot], &mut inside),
            None => inside(tree),
        }
        record_resting::<P, O>(part, state, run, before);
    }

    fn finish(part: &P, state: &mut StateOf<P>, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        // Asks the inner transformation alone: another stage may hold back its own updates.
        let runs = run.decision == Some(Decision::Run) && !run.no_inner_update;
        let changes = const { O::ELEMENTS.before && O::ELEMENTS.rewrites[0] };
        let inside = run.inner.map(|inner| {
            let mut inside = Outcome { emitted: outcome.emitted || changes && runs, ..Outcome::GRADIENTS };
            let sums = summed(part, &state.memory, sums).skip(P::RUNS.reduces_gradients as usize);
            part.current_inner(&state.memory).finish(&mut state.inner, inner, sums, &mut inside);
            inside
        });
        let Some(decision) = run.decision else { return };
        if const { !O::REDUCES.waits && O::REDUCES.count() > 0 } && !run.no_inner_update {
            O::reduced(
                part,
                &mut state.memory,
                sums.skip(P::RUNS.reduces_gradients as usize + part.inner().shape().sums),
            );
        }
        let acts = !P::RUNS.masked || (0..sums.structure.len()).any(|leaf| is_on(part, state, leaf));
        let passes = P::RUNS.masked && state.others && part.outside_mask() == OutsideMask::Pass;
        part.finish(&mut state.memory, decision, inside.filter(|_| !run.no_inner_update), &mut state.inner);
        let did = match decision {
            Decision::Skip | Decision::Hold => Outcome { skipped: decision == Decision::Skip, ..Outcome::NOTHING },
            _ => inside.unwrap_or(*outcome),
        };
        // The last pass may emit updates where the inner transformation emits none.
        let weighs = matches!(decision, Decision::Run | Decision::ArithmeticOnly) && !run.no_inner_update;
        let gives = O::REDUCES.count() > 0 && !O::ELEMENTS.keeps_zeros && weighs;
        let rewrites = O::ELEMENTS.after && O::ELEMENTS.rewrites[1] && !O::ELEMENTS.keeps_zeros && runs || gives;
        outcome.skipped |= did.skipped;
        outcome.emitted = acts && (did.emitted || rewrites) || passes && outcome.emitted;
    }

    #[inline]
    fn emission(part: &P, state: &StateOf<P>, run: &Self::Run) -> Emission {
        emission::<P, O>(part, state, run)
    }

    fn resting<'a>(_: &P, state: &'a StateOf<P>) -> &'a [bool] {
        &state.resting
    }

    fn holds_back(part: &P) -> HoldsBack {
        let own = if P::RUNS.holds_back { HoldsBack::All } else { HoldsBack::Never };
        let inside = if P::RUNS.estimates { HoldsBack::Never } else { part.inner().holds_back() };
        match own.max(inside) {
            HoldsBack::All if P::RUNS.masked && part.outside_mask() == OutsideMask::Pass => HoldsBack::Some,
            holds => holds,
        }
    }

    fn pass(part: &P, state: &StateOf<P>, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch) {
        // With equal passes the inner transformation runs as a whole chain, from gradients to parameters.
        let is_aside =
            run.decision == Some(Decision::InnerOnly) || run.no_inner_update && const { only_after::<P, O>() };
        if const { inner_only::<P, O>() } && is_aside {
            let inside = part.current_inner(&state.memory);
            if let Some(inner) = run.inner.as_ref().filter(|_| walk.is_of(inside.shape())) {
                return inside.pass(&state.inner, inner, walk, scratch);
            }
        }
        run_own_loops(part, (state, run), walk, scratch);
    }

    fn prepare_chunk<C: Real>(part: &P, state: &StateOf<P>, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        if const { is_loop::<P, A, O>() }
            && let Some(one_loop) = fused_loop(part, (state, run), at.leaf)
        {
            return one_loop(part, (state, run), at, then);
        }
        let Some(inner) = &run.inner else {
            return then(&mut |tile| tile_of::<P, A, O, C>(part, state, run, at, None, tile));
        };
        let inside = match const { (weighs::<P, O>(), O::ELEMENTS.after || O::ELEMENTS.params_slot.is_some()) } {
            (true, _) => at.read(),
            (false, true) => at.followed(),
            (false, false) => at,
        };
        part.current_inner(&state.memory).prepare_chunk(
            &state.inner,
            inner,
            inside.after(gradient_term::<P>()),
            &mut |inside| {
                then(&mut |tile| tile_of::<P, A, O, C>(part, state, run, at, Some(&mut *inside), tile));
            },
        );
    }

    fn fuses_now(part: &P, state: &StateOf<P>, run: &Self::Run, leaf: usize) -> bool {
        let Some(inner) = &run.inner else { return false };
        // Without arithmetic of its own in the step, or outside the mask, the wrapper must not access its arrays.
        <P as Stage>::FUSES
            && !run.no_inner_update
            && (run.decision == Some(Decision::Run)
                || const { !O::ELEMENTS.before && !O::ELEMENTS.after && !O::REDUCES.waits })
            && (<P as Stage>::SLOTS == 0 || is_on(part, state, leaf) && state.arrays.has(leaf))
            && part.current_inner(&state.memory).fuses_now(&state.inner, inner, leaf)
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &StateOf<P>, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = run.inner.as_ref().expect("the fused loop runs only with the inner transformation");
        AroundKernel {
            own: O::scalars(part, &state.memory, leaf),
            inner: part.current_inner(&state.memory).kernel(&state.inner, inner, leaf),
            on: is_on(part, state, leaf),
            zero: part.outside_mask() == OutsideMask::Zero,
        }
    }

    fn slots<'a>(part: &P, state: &'a StateOf<P>, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
        part.current_inner(&state.memory).slots(&state.inner, leaf, list);
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
        let at = at + const { P::RUNS.reduces_gradients as usize };
        if const { P::RUNS.masked } && !k.on {
            return if k.zero && range.has(at) { C::zero() } else { u };
        }
        let (own, slots) = split_sums(slots, const { arrays::<P, O>() });
        let scalars = match range.dtype {
            Some(dtype) if const { O::ELEMENTS.typed } => O::typed(k.own, dtype),
            _ => k.own,
        };
        let u = match does_before::<P, O>(at, range) {
            // Its writes are discarded, since several passes may run it.
            true if const { O::ELEMENTS.only_reads_before() } => {
                on_slots(&[Access::Read; MAX_SLOTS], own, |own| O::before(scalars, own, u, p))
            }
            true => O::before(scalars, O::Slots::of(own), u, p),
            false => u,
        };
        let beside = if const { O::REDUCES.combines } { u } else { p };
        let (inside, own_terms) =
            split_sums(split_sums(terms, const { P::RUNS.reduces_gradients as usize }).1, Inner::<P>::SHAPE.sums);
        let there = if let Some(params_slot) = const { O::ELEMENTS.params_slot } { own[params_slot] } else { p };
        let u = Inner::<P>::apply::<C>(&k.inner, at, range, slots, u, there, inside);
        let end = at + Inner::<P>::SHAPE.barriers;
        let u = if const { O::ELEMENTS.after } && range.has(end) {
            O::after(scalars, O::Slots::of(own), u, beside)
        } else {
            u
        };
        // Only the pass that ends here contributes; later ones may repeat the arithmetic.
        if const { O::REDUCES.count() > 0 } && end == range.to {
            let (u, _) = reducing_inputs(own_terms, range, (u, p));
            O::add(k.own, u, own_terms);
        }
        if const { O::REDUCES.waits } && range.has(end + 1) { O::last(k.own, O::Slots::of(own), u, p) } else { u }
    }

    fn state_bytes(part: &P, state: &StateOf<P>, leaf: usize, at: usize, range: PassRange) -> usize {
        if !is_on(part, state, leaf) {
            return 0;
        }
        let (at, inner) = (at + P::RUNS.reduces_gradients as usize, part.current_inner(&state.memory));
        let end = at + inner.shape().barriers;
        let begins = if O::REDUCES.sums[0] > 0 { at == range.to } else { does_before::<P, O>(at, range) };
        let passes = [begins, range.has(end), O::REDUCES.waits && range.has(end + 1)];
        let kept = (at == range.to) as usize + range.has(end) as usize;
        inner.state_bytes(&state.inner, leaf, at, range)
            + O::bytes(part, &state.memory, &state.arrays, leaf, passes)
            + state.gradients.bytes(leaf, &|_| kept)
    }

    fn read<'a>(part: &P, state: &'a StateOf<P>, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        walk.of_part(P::NAME, own_hyperparams(part), &mut |walk| {
            state.memory.walk(walk);
            walk.nested(P::STATE, &mut |walk| part.current_inner(&state.memory).read(&state.inner, walk))
        })
    }

    fn unused(part: &P, state: &StateOf<P>, report: &mut dyn FnMut(&str, bool)) {
        if state.active.as_ref().is_some_and(|active| !active.contains(&true)) {
            let sure = part.mask().is_some_and(Mask::must_match);
            return report(&format!("the mask of {}", part.inner().describe()), sure);
        }
        part.inner().unused(&state.inner, report);
    }
    fn inner_summary(part: &P) -> Option<Summary> {
        if part.effect() != Effect::UNKNOWN {
            return None;
        }
        let (mask, zero) = (part.mask().cloned(), matches!(part.outside_mask(), OutsideMask::Zero));
        Some(Summary::Around { name: P::NAME, key: P::KEY, inner: Box::new(part.inner().summary()), mask, zero })
    }
}
