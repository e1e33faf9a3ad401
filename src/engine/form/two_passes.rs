//! Two passes: take in, decide, give out.

use super::super::{
    AllUses, InitContext, Outcome, PieceAt, Shape, Slot, SlotList, Span, StepContext, Sums, Term, Then, Uses,
    WholeTree, fused,
};
use super::loops::{Access, MOST_SUMS, add_sums, goes_in, on_slots, reads_any};
use super::rule::{checked_slots, keeps_zeros};
use super::state::{Arrays, Start, asked_dtype};
use super::{Form, Part, PartState, SlotArray};
use crate::element::{DType, Real};
use crate::error::Result;
use crate::needs::Needs;
use crate::state::State;

/// The form of [`TwoPasses`].
#[derive(Clone, Copy, Debug)]
pub enum TwoPass {}

/// A part that takes in all elements, decides, and then gives out the updates: norms, trust ratios, estimates of
/// distances.
///
/// The first pass, [`take_in`](TwoPasses::take_in), sees each element once and returns what is to be added up over
/// them; the sums are kept in `f64`, in an order that depends neither on the number of threads nor on the instruction
/// set. [`decide`](TwoPasses::decide) is told the sums. The second pass, [`give_out`](TwoPasses::give_out), sees each
/// element again.
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
///     type Needs = Nothing;
///     type Memory = Largest;
///     type Run = ();
///     type Slots<C: Real> = [C; 0];
///     type Sums<W: Real> = [W; 1];
///     type First<C: Real> = ();
///     type Second<C: Real> = C;
///
///     fn start(&self, _: &InitContext<'_>) -> gradchain::Result<Largest> {
///         Ok(Largest::default())
///     }
///
///     fn begin(&self, _: &mut Largest, _: &StepContext<'_>) {}
///
///     fn first<C: Real>(&self, _: &Largest, (): &(), _: usize) {}
///
///     #[inline(always)]
///     fn take_in<C: Real>((): (), _: &mut [C; 0], u: C, _: C) -> (C, [C::Wide; 1]) {
///         (u, [u.wide() * u.wide()])
///     }
///
///     fn decide(&self, memory: &mut Largest, (): &mut (), sums: Sums<'_>) {
///         let norm = sums.total(0).sqrt();
///         memory.norm.set(norm.max(memory.norm.get()));
///     }
///
///     fn second<C: Real>(&self, memory: &Largest, (): &(), _: usize) -> C {
///         C::of(memory.norm.get())
///     }
///
///     #[inline(always)]
///     fn give_out<C: Real>(norm: C, _: &mut [C; 0], u: C, _: C) -> C {
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
/// One more pass, which reads what it says in [`FIRST`](TwoPasses::FIRST) and the updates.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `TwoPass` and does not implement `TwoPasses`",
    note = "`impl TwoPasses for {Self}` says what the part does; `docs/own-two-pass.md` has an example"
)]
pub trait TwoPasses: Part<Form = TwoPass> {
    /// The state arrays, by name, as many as [`Slots`](TwoPasses::Slots) has; at most 8.
    const SLOTS: &'static [Slot] = &[];
    /// What the first pass does to each of them; to those not listed nothing.
    const FIRST: &'static [Access] = &[];
    /// What the second pass does to each of them; to those not listed nothing.
    const SECOND: &'static [Access] = &[];
    /// Whether the first pass and the second read the parameter.
    const READS_PARAMS: [bool; 2] = [false; 2];
    /// Whether the first pass reads the update. If it does not, and writes no arrays, none is worked out for it: its
    /// `u` is any number then.
    const READS_UPDATES: bool = true;
    /// Whether the first pass changes the update too, so that it is stored for the second.
    const TRANSFORMS: bool = false;
    /// Whether there is a second pass. Without one the updates are those of the first, and `decide` comes at the end of
    /// the step.
    const GIVES_OUT: bool = true;
    /// Whether it may run on some [rows](crate::tree::SparseRows) of a leaf. Unless it says otherwise: if what it adds
    /// up depends on neither parameters nor state arrays, and so is zero where there is no gradient.
    const ROWS: bool = !Self::READS_PARAMS[0] && !reads_any(Self::FIRST);
    /// What a step must be given besides gradients; usually [`Nothing`](crate::needs::Nothing).
    type Needs: Needs;
    /// What is remembered besides the state arrays.
    type Memory: State;
    /// What is worked out for one step.
    type Run: Send + Sync;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// What is added up: `[W; N]`, at most 4.
    type Sums<W: Real>: SlotArray<W>;
    /// What the first pass needs to know of a leaf.
    type First<C: Real>: Copy + Send + Sync;
    /// What the second pass needs to know of a leaf.
    type Second<C: Real>: Copy + Send + Sync;

    /// The type of a state array, if one is asked for: by an argument called `mu_dtype`, say, of the array `mu`, by one
    /// called `accumulator_dtype` of any. Else the type that the leaf's arithmetic is done in.
    fn slot_dtype(&self, slot: usize) -> Option<DType> {
        asked_dtype(self, Self::SLOTS[slot])
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
    /// If the parameters are not of a kind that the part can work on.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// Starts a step: counts it, works out scalars.
    fn begin(&self, memory: &mut Self::Memory, at: &StepContext<'_>) -> Self::Run;

    /// Works out, in `f64`, what the first pass over a leaf needs, and rounds it once with [`Real::of`].
    fn first<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::First<C>;

    /// The first pass: the update for the second (which is `u` unless the part [`TRANSFORMS`](TwoPasses::TRANSFORMS)),
    /// and what this element adds to the sums. Write `#[inline(always)]` on it.
    ///
    /// It may be run twice for an element, from the same numbers: for what it changes, and for the sums, where these
    /// are worked out by a loop of their own.
    fn take_in<C: Real>(k: Self::First<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> (C, Self::Sums<C::Wide>);

    /// Sums that are to be added up once more before [`decide`](TwoPasses::decide), because squares of `f64` elements
    /// have overflowed or vanished: takes note of how to scale the elements of a leaf, by which
    /// [`first`](TwoPasses::first) goes then, and names each such leaf to `again`. Asked once a step, in steps on trees
    /// with `f64` leaves. Only a part without state arrays may name any.
    fn again(&self, memory: &mut Self::Memory, sums: Sums<'_>, again: &mut dyn FnMut(usize)) {
        let _ = (memory, sums, again);
    }

    /// Between the passes: the sums are complete, over the tree and by leaf.
    fn decide(&self, memory: &mut Self::Memory, run: &mut Self::Run, sums: Sums<'_>);

    /// Works out what the second pass over a leaf needs. Also called before [`decide`](TwoPasses::decide), for nothing.
    fn second<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::Second<C>;

    /// The second pass: the update that comes of `u`. Write `#[inline(always)]` on it.
    fn give_out<C: Real>(k: Self::Second<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C;
}

const fn arrays<P: TwoPasses>() -> usize {
    <P::Slots<f32> as SlotArray<f32>>::LEN
}

const fn sums_of<P: TwoPasses>() -> usize {
    let sums = <P::Sums<f64> as SlotArray<f64>>::LEN;
    assert!(sums <= MOST_SUMS, "a part of two passes has at most 4 sums");
    sums
}

/// Whether a pass writes to any array.
const fn writes(accesses: &[Access]) -> bool {
    let mut slot = 0;
    while slot < accesses.len() && !accesses[slot].writes() {
        slot += 1;
    }
    slot < accesses.len()
}

const fn shape<P: TwoPasses>() -> Shape {
    // What the first pass writes into arrays does not make it stateful: it is run in the one pass that ends at the
    // barrier, whatever is run again later, so that the engine need not store the updates for that.
    let shape = Shape {
        barriers: P::GIVES_OUT as usize,
        stateful: (P::TRANSFORMS || !P::GIVES_OUT) as u32 | (writes(P::SECOND) as u32) << 1,
        reads_params: P::READS_PARAMS[0] as u32 | (P::READS_PARAMS[1] as u32) << 1,
        ..Shape::NOTHING
    }
    .adding(sums_of::<P>())
    .later();
    if P::READS_UPDATES || P::TRANSFORMS || writes(P::FIRST) { shape } else { shape.of_params() }
}

const fn uses<P: TwoPasses>() -> AllUses {
    let (mut uses, mut slot) = (Uses::ALWAYS.of_all(), 0);
    while slot < uses.len() {
        let [first, second] = [Access::of(P::FIRST, slot), Access::of(P::SECOND, slot)];
        uses[slot] = Uses::of(
            first.reads() as u32 | (second.reads() as u32) << 1,
            first.writes() as u32 | (second.writes() as u32) << 1,
        );
        slot += 1;
    }
    uses
}

/// Adds up the stored updates of an `f64` leaf.
fn add_stored<P: TwoPasses>(
    part: &P,
    memory: &P::Memory,
    run: &P::Run,
    leaf: usize,
    tree: &mut WholeTree<'_>,
    put: &mut dyn FnMut(usize, f64),
) {
    assert!(arrays::<P>() == 0, "{}: with state arrays there is no second sum", P::NAME);
    let Some(whole) = tree.leaf::<f64>(leaf) else { return };
    let (kernel, mut totals) = (part.first::<f64>(memory, run, leaf), [0.0; MOST_SUMS]);
    for (i, u) in whole.u.iter().enumerate() {
        let p = whole.p.get(i).copied().unwrap_or_default();
        let (_, terms) = P::take_in(kernel, P::Slots::of(&mut []), *u, p);
        totals.iter_mut().zip(terms.as_slice()).for_each(|(total, term)| *total += *term);
    }
    totals[..sums_of::<P>()].iter().enumerate().for_each(|(i, total)| put(i, *total));
}

impl<P: TwoPasses> Form<P> for TwoPass {
    type Needs = P::Needs;
    type State = PartState<P::Memory>;
    type Run = P::Run;
    type Kernel<C: Real> = (P::First<C>, P::Second<C>);

    const SHAPE: Shape = shape::<P>();
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = true;
    const SLOTS: usize = checked_slots(P::SLOTS, arrays::<P>());
    const USES: AllUses = uses::<P>();
    const ROWS: bool = P::ROWS;

    fn validate(_: &P) -> Result<()> {
        const { checked_slots(P::SLOTS, arrays::<P>()) };
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State> {
        let start = |slot| Start {
            dtype: part.slot_dtype(slot),
            as_params: part.slot_starts_as_params(slot),
            ..Start::default()
        };
        Ok(PartState { memory: part.start(at)?, arrays: Arrays::new(P::SLOTS, at, &start)? })
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
        if let Some(again) = sums.again {
            let mut leaves = Vec::new();
            part.again(&mut state.memory, sums, &mut |leaf| leaves.push(leaf));
            for leaf in leaves {
                match again.stored {
                    true => add_stored(part, &state.memory, run, leaf, tree, &mut |i, sum| {
                        again.put(sums.first + i, leaf, sum);
                    }),
                    false => again.ask(leaf),
                }
            }
            return;
        }
        part.decide(&mut state.memory, run, sums);
    }

    fn finish(part: &P, state: &mut Self::State, mut run: P::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        let memory = &state.memory;
        let mut keeps = (0..sums.structure.len()).map(|leaf| {
            let of_zero = |slots: &mut _| P::give_out(part.second::<f64>(memory, &run, leaf), slots, 0.0, 0.0);
            P::GIVES_OUT && !P::TRANSFORMS && keeps_zeros::<P::Slots<f64>>(P::READS_PARAMS[1], of_zero)
        });
        outcome.emitted = outcome.emitted || !keeps.all(|keeps| keeps);
        if !P::GIVES_OUT {
            part.decide(&mut state.memory, &mut run, sums);
        }
    }

    fn in_piece<C: Real>(part: &P, state: &Self::State, run: &P::Run, at: PieceAt, then: &mut Then<'_, C>) {
        fused(part, (state, run), at, then);
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &Self::State, run: &P::Run, leaf: usize) -> Self::Kernel<C> {
        (part.first(&state.memory, run, leaf), part.second(&state.memory, run, leaf))
    }

    fn slots<'a>(_: &P, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &Self::Kernel<C>,
        at: usize,
        span: Span,
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term<C>],
    ) -> C {
        // The one pass that ends here takes in, whatever is run again later. A part without a second pass is run once.
        if span.to == at || !P::GIVES_OUT && span.has(at) {
            let (u, p) = goes_in(terms, span, (u, p));
            let (next, sums) = on_slots(P::FIRST, slots, |slots| P::take_in(k.0, slots, u, p));
            add_sums(terms, &sums);
            if P::TRANSFORMS { next } else { u }
        } else if P::GIVES_OUT && span.has(at + 1) {
            on_slots(P::SECOND, slots, |slots| P::give_out(k.1, slots, u, p))
        } else {
            u
        }
    }

    fn state_bytes(_: &P, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let first = span.to == at || !P::GIVES_OUT && span.has(at);
        let second = P::GIVES_OUT && span.has(at + 1);
        let times = |pass: bool, accesses, slot| if pass { Access::of(accesses, slot).times() } else { 0 };
        state.arrays.bytes(leaf, &|slot| times(first, P::FIRST, slot) + times(second, P::SECOND, slot))
    }
}
