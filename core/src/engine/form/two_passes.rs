//! Two passes: accumulate, decide, emit.

use core::marker::PhantomData;

use super::super::{
    Access, Contribution, InitContext, Outcome, PassRange, PassStructure, Slot, SlotAccess, SlotAccesses, SlotList,
    StageChunk, StepContext, Sums, Then, WholeTree, fused,
};
use super::loops::{MAX_PART_SUMS, add_sums, on_slots, reads_any, reducing_inputs};
use super::rule::{checked_slots, keeps_zeros};
use super::state::{Arrays, of_part};
use super::{Form, Part, PartState, SlotArray};
use crate::element::Real;
use crate::error::Result;
use crate::needs::{Needs, Nothing};
use crate::state::State;

/// The form of [`TwoPasses`]. `Inputs` are the inputs of a step besides gradients.
pub struct TwoPass<Inputs = Nothing>(PhantomData<fn() -> Inputs>);

/// The inputs and outputs of the passes of a [`TwoPasses`].
///
/// ```
/// use gradchain::part::{Access, Passes};
///
/// // The first pass moves a state array on and reads parameters, the second reads the array.
/// const PASSES: Passes = Passes::TWO.reads_params([true, false]).accesses(&[Access::Write], &[Access::Read]);
/// # let _ = PASSES;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    first: &'static [Access],
    second: &'static [Access],
    params: [bool; 2],
    updates: bool,
    transforms: bool,
    emits: bool,
}

impl Passes {
    /// Two passes: the first reads the update, the second changes it; neither reads parameters nor state arrays.
    pub const TWO: Passes =
        Passes { first: &[], second: &[], params: [false; 2], updates: true, transforms: false, emits: true };

    /// One pass, which changes the update. [`decide`](TwoPasses::decide) runs at the end of the step, and
    /// [`emit`](TwoPasses::emit) never.
    pub const ONE: Passes = Passes { transforms: true, emits: false, ..Passes::TWO };

    /// Sets the access of the first and the second pass to each state array; unlisted arrays have none.
    #[must_use]
    pub const fn accesses(self, first: &'static [Access], second: &'static [Access]) -> Passes {
        Passes { first, second, ..self }
    }

    /// Sets whether the first and the second pass read the parameter.
    #[must_use]
    pub const fn reads_params(self, params: [bool; 2]) -> Passes {
        Passes { params, ..self }
    }

    /// Sets whether the first pass reads the update. If it does not, and writes no arrays, the update is not computed
    /// for it: its `u` is then arbitrary.
    #[must_use]
    pub const fn reads_updates(self, updates: bool) -> Passes {
        Passes { updates, ..self }
    }

    /// Makes the first pass change the update, which is stored for the second.
    #[must_use]
    pub const fn transforms(self) -> Passes {
        Passes { transforms: true, ..self }
    }

    /// Returns true if it supports row-sparse gradients: its contributions depend on the update alone, and are zero
    /// without a gradient.
    const fn of_rows(self) -> bool {
        !self.params[0] && !reads_any(self.first)
    }
}

/// A part that reduces over all elements, decides, and then emits the updates: norms, trust ratios, estimates of
/// distances.
///
/// The first pass, [`accumulate`](TwoPasses::accumulate), sees each element once and returns its contributions to the
/// reductions, which are computed in `f64` in an order that depends neither on the number of threads nor on the SIMD
/// level. [`decide`](TwoPasses::decide) gets the reductions. The second pass, [`emit`](TwoPasses::emit), sees
/// each element again.
///
/// # Example
///
/// Divides all updates by the largest norm that they have had:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::Real;
/// use gradchain::needs::Nothing;
/// use gradchain::part::{InitContext, Part, StepContext, Sums, TwoPass, TwoPasses};
/// use gradchain::state::{Scalar, State};
///
/// #[derive(Clone, Debug)]
/// struct DivideByLargestNorm;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Largest { norm: Scalar }
///
/// impl Part for DivideByLargestNorm {
///     const NAME: &'static str = "divide_by_largest_norm";
///     type Form = TwoPass;
/// }
///
/// impl TwoPasses for DivideByLargestNorm {
///     type Memory = Largest;
///     type Run = ();
///     type Slots<C: Real> = [C; 0];
///     type Sums<W: Real> = [W; 1];
///     type Scalars<C: Real> = C;
///
///     fn start(&self, _: &InitContext<'_>) -> gradchain::Result<Largest> {
///         Ok(Largest::default())
///     }
///
///     fn begin(&self, _: &mut Largest, _: &StepContext<'_>) {}
///
///     #[inline(always)]
///     fn accumulate<C: Real>(_: C, _: &mut [C; 0], u: C, _: C) -> (C, [C::Wide; 1]) {
///         (u, [u.wide() * u.wide()])
///     }
///
///     fn decide(&self, memory: &mut Largest, (): &mut (), sums: Sums<'_>) {
///         let norm = sums.total(0).sqrt();
///         memory.norm.set(norm.max(memory.norm.get()));
///     }
///
///     fn scalars<C: Real>(&self, memory: &Largest, (): &(), _: usize) -> C {
///         C::of(memory.norm.get())
///     }
///
///     #[inline(always)]
///     fn emit<C: Real>(norm: C, _: &mut [C; 0], u: C, _: C) -> C {
///         u / norm
///     }
/// }
///
/// let optimizer = chain((DivideByLargestNorm, sgd(1.0)));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
/// assert_eq!(params, [-0.6, -0.8]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// One additional pass, with the accesses declared in [`PASSES`](TwoPasses::PASSES).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `TwoPass` but does not implement `TwoPasses`",
    note = "implement `TwoPasses` for `{Self}`; `docs/own-two-pass.md` has an example"
)]
pub trait TwoPasses: Part {
    /// The state arrays, by name, as many as [`Slots`](TwoPasses::Slots) has; at most 8.
    const SLOTS: &'static [Slot] = &[];
    /// The inputs and outputs of its passes.
    const PASSES: Passes = Passes::TWO;
    /// The values kept between steps besides the state arrays.
    type Memory: State;
    /// The values of one step.
    type Run: Send + Sync;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The reductions: `[W; N]`, at most 4.
    type Sums<W: Real>: SlotArray<W>;
    /// The scalars of a leaf that the passes use.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Adjusts a state array to the arguments of the part, if they set its initial value or dtype.
    fn slot(&self, slot: Slot) -> Slot {
        slot
    }

    /// Returns the memory before the first step.
    ///
    /// # Errors
    ///
    /// If the part cannot work on these parameters.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// Starts a step: counts it, computes scalars.
    fn begin(&self, memory: &mut Self::Memory, at: &StepContext<'_>) -> Self::Run;

    /// Computes, in `f64`, the scalars of a pass over a leaf, and rounds them once with [`Real::of`]. Called for each
    /// pass; in the first, the reductions are not known.
    fn scalars<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::Scalars<C>;

    /// The first pass. Returns the update for the second, which counts only if the first pass
    /// [transforms](Passes::transforms) it, and the element's contributions to the reductions. Write
    /// `#[inline(always)]` on it.
    ///
    /// It may run twice for an element, with the same inputs: once for its writes, and once for the reductions, if a
    /// loop of their own computes these.
    fn accumulate<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> (C, Self::Sums<C::Wide>);

    /// Requests that reductions are repeated before [`decide`](TwoPasses::decide).
    ///
    /// An implementation does so for leaves whose squares have overflowed or vanished in `f64`.
    ///
    /// It stores the scale of a leaf's elements, which [`scalars`](TwoPasses::scalars) then applies, and passes each
    /// such leaf to `repeat_reductions`. Called once a step, in steps on trees with `f64` leaves. Only a part without
    /// state arrays may request any.
    fn repeat_reductions(&self, memory: &mut Self::Memory, sums: Sums<'_>, repeat_reductions: &mut dyn FnMut(usize)) {
        let _ = (memory, sums, repeat_reductions);
    }

    /// Runs between the passes. The reductions are complete, over the tree and by leaf.
    fn decide(&self, memory: &mut Self::Memory, run: &mut Self::Run, sums: Sums<'_>);

    /// The second pass: returns the new update. Write `#[inline(always)]` on it.
    fn emit<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C;
}

const fn arrays<P: TwoPasses>() -> usize {
    <P::Slots<f32> as SlotArray<f32>>::LEN
}

const fn sums_of<P: TwoPasses>() -> usize {
    let sums = <P::Sums<f64> as SlotArray<f64>>::LEN;
    assert!(sums <= MAX_PART_SUMS, "a two-pass part has at most 4 sums");
    sums
}

const fn writes(accesses: &[Access]) -> bool {
    let mut slot = 0;
    while slot < accesses.len() && !accesses[slot].writes() {
        slot += 1;
    }
    slot < accesses.len()
}

const fn shape<P: TwoPasses>() -> PassStructure {
    // Writes to arrays do not make the first pass stateful: it runs only in the pass that ends at the barrier, even if
    // later passes repeat other stages, so the engine stores no updates.
    let shape = PassStructure {
        barriers: P::PASSES.emits as usize,
        stateful: (P::PASSES.transforms || !P::PASSES.emits) as u32 | (writes(P::PASSES.second) as u32) << 1,
        reads_params: P::PASSES.params[0] as u32 | (P::PASSES.params[1] as u32) << 1,
        ..PassStructure::NONE
    }
    .adding(sums_of::<P>())
    .deferrable();
    if P::PASSES.updates || P::PASSES.transforms || writes(P::PASSES.first) { shape } else { shape.of_params() }
}

const fn slot_accesses<P: TwoPasses>() -> SlotAccesses {
    let (mut slot_accesses, mut slot) = (SlotAccess::ALWAYS.of_all(), 0);
    while slot < slot_accesses.len() {
        let [first, second] = [Access::of(P::PASSES.first, slot), Access::of(P::PASSES.second, slot)];
        slot_accesses[slot] = SlotAccess::of(
            first.reads() as u32 | (second.reads() as u32) << 1,
            first.writes() as u32 | (second.writes() as u32) << 1,
        );
        slot += 1;
    }
    slot_accesses
}

fn add_stored<P: TwoPasses>(
    part: &P,
    memory: &P::Memory,
    run: &P::Run,
    leaf: usize,
    tree: &mut WholeTree<'_>,
    store: &mut dyn FnMut(usize, f64),
) {
    assert!(arrays::<P>() == 0, "{}: a part with state arrays is not reduced again", P::NAME);
    let Some(whole) = tree.leaf::<f64>(leaf) else { return };
    let (kernel, mut totals) = (part.scalars::<f64>(memory, run, leaf), [0.0; MAX_PART_SUMS]);
    for (i, u) in whole.u.iter().enumerate() {
        let p = whole.p.get(i).copied().unwrap_or_default();
        let (_, terms) = P::accumulate(kernel, P::Slots::of(&mut []), *u, p);
        totals.iter_mut().zip(terms.as_slice()).for_each(|(total, term)| *total += *term);
    }
    totals[..sums_of::<P>()].iter().enumerate().for_each(|(i, total)| store(i, *total));
}

impl<P: TwoPasses + Part<Form = TwoPass<A>>, A: Needs> Form<P> for TwoPass<A> {
    type Needs = A;
    type State = PartState<P::Memory>;
    type Run = P::Run;
    type Kernel<C: Real> = P::Scalars<C>;

    const SHAPE: PassStructure = shape::<P>();
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = true;
    const ALWAYS_EMITS: bool = true;
    const SLOTS: usize = checked_slots(P::SLOTS, arrays::<P>());
    const SLOT_ACCESSES: SlotAccesses = slot_accesses::<P>();
    const ROWS: bool = P::PASSES.of_rows();

    fn validate(_: &P) -> Result<()> {
        const { checked_slots(P::SLOTS, arrays::<P>()) };
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State> {
        Ok(PartState {
            memory: part.start(at)?,
            arrays: Arrays::new(P::SLOTS, at, &|slot| of_part(part, part.slot(slot)))?,
        })
    }

    fn begin(part: &P, state: &mut Self::State, at: &StepContext<'_>) -> P::Run {
        part.begin(&mut state.memory, at)
    }

    fn barrier(
        part: &P,
        state: &mut Self::State,
        run: &mut P::Run,
        _: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if let Some(repeats) = sums.repeats {
            let mut leaves = Vec::new();
            part.repeat_reductions(&mut state.memory, sums, &mut |leaf| leaves.push(leaf));
            for leaf in leaves {
                match repeats.stored {
                    true => add_stored(part, &state.memory, run, leaf, tree, &mut |i, sum| {
                        repeats.store(sums.first + i, leaf, sum);
                    }),
                    false => repeats.request(leaf),
                }
            }
            return;
        }
        part.decide(&mut state.memory, run, sums);
    }

    fn finish(part: &P, state: &mut Self::State, mut run: P::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let memory = &state.memory;
        let mut keeps = (0..sums.structure.len()).map(|leaf| {
            let of_zero = |slots: &mut _| P::emit(part.scalars::<f64>(memory, &run, leaf), slots, 0.0, 0.0);
            P::PASSES.emits && !P::PASSES.transforms && keeps_zeros::<P::Slots<f64>>(P::PASSES.params[1], of_zero)
        });
        outcome.emitted = outcome.emitted || !keeps.all(|keeps| keeps);
        if const { !P::PASSES.emits } {
            part.decide(&mut state.memory, &mut run, sums);
        }
    }

    fn prepare_chunk<C: Real>(part: &P, state: &Self::State, run: &P::Run, at: StageChunk, then: &mut Then<'_, C>) {
        fused(part, (state, run), at, then);
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &Self::State, run: &P::Run, leaf: usize) -> Self::Kernel<C> {
        part.scalars(&state.memory, run, leaf)
    }

    fn slots<'a>(_: &P, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
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
        // Only the pass that ends here reduces; without a second pass, the part runs once.
        if range.to == at || const { !P::PASSES.emits } && range.has(at) {
            let (u, p) = reducing_inputs(terms, range, (u, p));
            let (next, sums) = on_slots(const { P::PASSES.first }, slots, |slots| P::accumulate(*k, slots, u, p));
            add_sums(terms, &sums);
            if const { P::PASSES.transforms } { next } else { u }
        } else if const { P::PASSES.emits } && range.has(at + 1) {
            on_slots(const { P::PASSES.second }, slots, |slots| P::emit(*k, slots, u, p))
        } else {
            u
        }
    }

    fn state_bytes(_: &P, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        let first = range.to == at || !P::PASSES.emits && range.has(at);
        let second = P::PASSES.emits && range.has(at + 1);
        let times = |pass: bool, accesses, slot| if pass { Access::of(accesses, slot).times() } else { 0 };
        state.arrays.bytes(leaf, &|slot| times(first, P::PASSES.first, slot) + times(second, P::PASSES.second, slot))
    }
}
