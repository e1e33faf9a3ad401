//! Two passes: take in, decide, give out.

use super::super::fused::with_list;
use super::super::isa::{Job, dispatch};
use super::super::kernel::{MOST_SLOTS, Slots};
use super::super::sums::LANES;
use super::super::{
    InitContext, Outcome, Place, Shape, SlotList, Span, StepContext, Sums, Tile, WholeTree, fused_tile,
};
use super::loops::{OnElement, each};
use super::rule::checked_slots;
use super::state::{Arrays, Start};
use super::{Form, Part, PartState, SlotArray};
use crate::element::{DType, Element, Real};
use crate::error::Result;
use crate::needs::Needs;
use crate::state::State;

/// The form of [`TwoPasses`].
#[derive(Clone, Copy, Debug)]
pub enum TwoPass {}

/// What a pass does to a state array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It does not look at it.
    None,
    /// It reads it.
    Read,
    /// It reads and writes it.
    Write,
}

/// A part that takes in all elements, decides, and then gives out the updates: norms, trust ratios, estimates of distances.
///
/// The first pass, [`take_in`](TwoPasses::take_in), sees each element once and returns what is to be added up over them; the sums are
/// kept in `f64`, in an order that depends neither on the number of threads nor on the instruction set.
/// [`decide`](TwoPasses::decide) is told the sums. The second pass, [`give_out`](TwoPasses::give_out), sees each element again.
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
pub trait TwoPasses: Part<Form = TwoPass> {
    /// The names of the state arrays, as many as [`Slots`](TwoPasses::Slots) has; at most 8.
    const SLOTS: &'static [&'static str] = &[];
    /// What the first pass does to each of them; to those not listed nothing.
    const FIRST: &'static [Access] = &[];
    /// What the second pass does to each of them; to those not listed nothing.
    const SECOND: &'static [Access] = &[];
    /// Whether the first pass and the second read the parameter.
    const READS_PARAMS: [bool; 2] = [false; 2];
    /// Whether the first pass changes the update too, so that it is stored for the second.
    const TRANSFORMS: bool = false;
    /// Whether there is a second pass. Without one the updates are those of the first, and `decide` comes at the end of the step.
    const GIVES_OUT: bool = true;
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
    /// If the parameters are not of a kind that the part can work on.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::Memory>;

    /// Starts a step: counts it, works out scalars.
    fn begin(&self, memory: &mut Self::Memory, at: &StepContext<'_>) -> Self::Run;

    /// Works out, in `f64`, what the first pass over a leaf needs, and rounds it once with [`Real::of`].
    fn first<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::First<C>;

    /// The first pass: the update for the second (which is `u` unless the part [`TRANSFORMS`](TwoPasses::TRANSFORMS)), and what this
    /// element adds to the sums. Write `#[inline(always)]` on it.
    fn take_in<C: Real>(k: Self::First<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> (C, Self::Sums<C::Wide>);

    /// Between the passes: the sums are complete, over the tree and by leaf.
    fn decide(&self, memory: &mut Self::Memory, run: &mut Self::Run, sums: Sums<'_>);

    /// Works out what the second pass over a leaf needs. Also called before [`decide`](TwoPasses::decide), for nothing.
    fn second<C: Real>(&self, memory: &Self::Memory, run: &Self::Run, leaf: usize) -> Self::Second<C>;

    /// The second pass: the update that comes of `u`. Write `#[inline(always)]` on it.
    fn give_out<C: Real>(k: Self::Second<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C;
}

/// The most sums of one part.
const MOST_SUMS: usize = 4;

const fn arrays<P: TwoPasses>() -> usize {
    <P::Slots<f32> as SlotArray<f32>>::LEN
}

const fn sums_of<P: TwoPasses>() -> usize {
    let sums = <P::Sums<f64> as SlotArray<f64>>::LEN;
    assert!(sums <= MOST_SUMS, "a part of two passes has at most 4 sums");
    sums
}

/// Whether a pass does so to any array.
const fn any(accesses: &[Access], what: Access) -> bool {
    let mut i = 0;
    while i < accesses.len() {
        if accesses[i] as u8 == what as u8 {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether the first pass needs no arrays and changes nothing, so that it can be done to what a fused loop has left.
const fn only_measures<P: TwoPasses>() -> bool {
    P::GIVES_OUT && !P::TRANSFORMS && !any(P::FIRST, Access::Read) && !any(P::FIRST, Access::Write)
}

fn times(accesses: &[Access], slot: usize) -> usize {
    match accesses.get(slot) {
        None | Some(Access::None) => 0,
        Some(Access::Read) => 1,
        Some(Access::Write) => 2,
    }
}

impl<P: TwoPasses> Form<P> for TwoPass {
    type Needs = P::Needs;
    type State = PartState<P::Memory>;
    type Run = P::Run;
    type Kernel<C: Real> = (P::First<C>, P::Second<C>);

    // What the first pass writes into arrays does not make it stateful: it is run in the one pass that ends at the barrier,
    // whatever is run again later, so that the engine need not store the updates for that.
    const SHAPE: Shape = Shape {
        barriers: P::GIVES_OUT as usize,
        stateful: (P::TRANSFORMS || !P::GIVES_OUT) as u32 | (any(P::SECOND, Access::Write) as u32) << 1,
        reads_params: P::READS_PARAMS[0] as u32 | (P::READS_PARAMS[1] as u32) << 1,
        materializes: 0,
        sums: sums_of::<P>(),
    };
    const FUSES: bool = only_measures::<P>();
    const SLOTS: usize = checked_slots(P::SLOTS, arrays::<P>());

    fn validate(_: &P) -> Result<()> {
        const { checked_slots(P::SLOTS, arrays::<P>()) };
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State> {
        let start =
            |slot| Start { dtype: part.slot_dtype(slot), value: 0.0, as_params: part.slot_starts_as_params(slot) };
        Ok(PartState { memory: part.start(at)?, arrays: Arrays::new(P::SLOTS, at, start)? })
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
        _: &mut WholeTree<'_>,
    ) {
        part.decide(&mut state.memory, run, sums);
    }

    fn finish(part: &P, state: &mut Self::State, mut run: P::Run, sums: Sums<'_>, _: &mut Outcome) {
        if !P::GIVES_OUT {
            part.decide(&mut state.memory, &mut run, sums);
        }
    }

    fn tile<C: Real>(part: &P, state: &Self::State, run: &P::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if only_measures::<P>() {
            return fused_tile(part, state, run, place, span, tile);
        }
        // The one pass that ends here takes in, whatever is run again later; a part that transforms is stored there.
        if span.to == place.at || !P::GIVES_OUT && span.has(place.at) {
            let k = part.first(&state.memory, run, tile.leaf);
            take_in_tile::<P, C>(k, &state.arrays, place.sum, tile);
        } else if P::GIVES_OUT && span.has(place.at + 1) {
            let k = part.second(&state.memory, run, tile.leaf);
            each(Give::<P, C>(k), &state.arrays, tile);
        }
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &Self::State, run: &P::Run, leaf: usize) -> Self::Kernel<C> {
        (part.first(&state.memory, run, leaf), part.second(&state.memory, run, leaf))
    }

    fn slots(_: &P, state: &Self::State, leaf: usize, list: &mut SlotList) {
        state.arrays.list(leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, _: &mut [u32]) -> C {
        if span.has(at + 1) { P::give_out(k.1, P::Slots::of(slots), u, p) } else { u }
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        // The one pass that ends here counts, whatever is run again later.
        if place.at == span.to {
            measure::<P, C>(k.0, u, p, &mut sums[place.sum..]);
        }
    }

    fn state_bytes(_: &P, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let first = span.to == at || !P::GIVES_OUT && span.has(at);
        let second = P::GIVES_OUT && span.has(at + 1);
        let each = |slot| first as usize * times(P::FIRST, slot) + second as usize * times(P::SECOND, slot);
        state.arrays.bytes(leaf, each)
    }
}

/// The sums of a stretch: side by side in lanes, so that adding up can be vectorised; see [`LANES`].
type Lanes = [[f64; LANES]; MOST_SUMS];

#[inline(always)]
fn add_to<P: TwoPasses, C: Real>(lanes: &mut Lanes, lane: usize, add: P::Sums<C::Wide>) {
    for (lanes, x) in lanes.iter_mut().zip(add.as_slice()) {
        lanes[lane] += x.as_f64();
    }
}

#[inline(always)]
fn settle<P: TwoPasses>(lanes: &Lanes, sums: &mut [f64]) {
    for (sum, lanes) in sums[..sums_of::<P>()].iter_mut().zip(lanes) {
        *sum += lanes.iter().sum::<f64>();
    }
}

/// The first pass over a stretch where it looks at no state array.
#[inline(always)]
fn measure<P: TwoPasses, C: Real>(k: P::First<C>, u: &[C], p: &[C], sums: &mut [f64]) {
    let one = |u: C, p: C| {
        let mut slots = [C::zero(); MOST_SLOTS];
        P::take_in::<C>(k, P::Slots::of(&mut slots[..arrays::<P>()]), u, p).1
    };
    let mut lanes: Lanes = [[0.0; LANES]; MOST_SUMS];
    let ((u, u_end), (p, p_end)) = (u.as_chunks::<LANES>(), p.as_chunks::<LANES>());
    for (u, p) in u.iter().zip(p) {
        for i in 0..LANES {
            add_to::<P, C>(&mut lanes, i, one(u[i], p[i]));
        }
    }
    for (i, (u, p)) in u_end.iter().zip(p_end).enumerate() {
        add_to::<P, C>(&mut lanes, i, one(*u, *p));
    }
    settle::<P>(&lanes, sums);
}

/// The loops, once for each number of state arrays: arguments are known not to overlap, and fields of a struct are not (see
/// `kernel`). `take` reads the updates, `turn` rewrites them too.
macro_rules! loops {
    ($($take:ident $turn:ident ($($s:ident $i:tt),*);)*) => {$(
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "arguments do not overlap; see above")]
        fn $take<P: TwoPasses, C: Real>(k: P::First<C>, u: &[C], p: &[C], $($s: &mut [C],)* sums: &mut [f64]) {
            let mut lanes: Lanes = [[0.0; LANES]; MOST_SUMS];
            let ((u, u_end), (p, p_end)) = (u.as_chunks::<LANES>(), p.as_chunks::<LANES>());
            let n = u.len();
            let p = &p[..n];
            $(let $s = $s.as_chunks_mut::<LANES>(); let $s = (&mut $s.0[..n], $s.1);)*
            for b in 0..n {
                for i in 0..LANES {
                    let mut slots = [$($s.0[b][i]),*];
                    let (_, add) = P::take_in::<C>(k, P::Slots::of(&mut slots), u[b][i], p[b][i]);
                    [$($s.0[b][i]),*] = slots;
                    add_to::<P, C>(&mut lanes, i, add);
                }
            }
            for i in 0..u_end.len() {
                let mut slots = [$($s.1[i]),*];
                let (_, add) = P::take_in::<C>(k, P::Slots::of(&mut slots), u_end[i], p_end[i]);
                [$($s.1[i]),*] = slots;
                add_to::<P, C>(&mut lanes, i, add);
            }
            settle::<P>(&lanes, sums);
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn $turn<P: TwoPasses, C: Real>(k: P::First<C>, u: &mut [C], p: &[C], $($s: &mut [C],)* sums: &mut [f64]) {
            let mut lanes: Lanes = [[0.0; LANES]; MOST_SUMS];
            let ((u, u_end), (p, p_end)) = (u.as_chunks_mut::<LANES>(), p.as_chunks::<LANES>());
            let n = u.len();
            let p = &p[..n];
            $(let $s = $s.as_chunks_mut::<LANES>(); let $s = (&mut $s.0[..n], $s.1);)*
            for b in 0..n {
                for i in 0..LANES {
                    let mut slots = [$($s.0[b][i]),*];
                    let (next, add) = P::take_in::<C>(k, P::Slots::of(&mut slots), u[b][i], p[b][i]);
                    u[b][i] = next;
                    [$($s.0[b][i]),*] = slots;
                    add_to::<P, C>(&mut lanes, i, add);
                }
            }
            for i in 0..u_end.len() {
                let mut slots = [$($s.1[i]),*];
                let (next, add) = P::take_in::<C>(k, P::Slots::of(&mut slots), u_end[i], p_end[i]);
                u_end[i] = next;
                [$($s.1[i]),*] = slots;
                add_to::<P, C>(&mut lanes, i, add);
            }
            settle::<P>(&lanes, sums);
        }
    )*};
}
loops! {
    take_0 turn_0 ();
    take_1 turn_1 (a 0);
    take_2 turn_2 (a 0, b_ 1);
    take_3 turn_3 (a 0, b_ 1, c 2);
    take_4 turn_4 (a 0, b_ 1, c 2, d 3);
    take_5 turn_5 (a 0, b_ 1, c 2, d 3, e 4);
    take_6 turn_6 (a 0, b_ 1, c 2, d 3, e 4, f 5);
    take_7 turn_7 (a 0, b_ 1, c 2, d 3, e 4, f 5, g 6);
    take_8 turn_8 (a 0, b_ 1, c 2, d 3, e 4, f 5, g 6, h 7);
}

/// Calls one of the loops with as many arrays as a part has.
macro_rules! by_arrays {
    ($($n:pat => $f:ident($($s:ident)*),)*; $k:expr, $u:expr, $p:expr, $sums:expr) => {{
        match arrays::<P>() {
            $($n => $f::<P, C>($k, $u, $p, $($s,)* $sums),)*
        }
    }};
}

struct Take<'a, P: TwoPasses, C: Real>(P::First<C>, &'a [C], &'a [C], Slots<'a, C>, &'a mut [f64]);

impl<P: TwoPasses, C: Real> Job for Take<'_, P, C> {
    type Output = ();
    #[inline(always)]
    #[allow(unused_variables, reason = "a part with fewer arrays does not use the others")]
    fn run(self) {
        let Take(k, u, p, slots, sums) = self;
        let [a, b, c, d, e, f, g, h] = slots;
        by_arrays!(
            0 => take_0(), 1 => take_1(a), 2 => take_2(a b), 3 => take_3(a b c), 4 => take_4(a b c d),
            5 => take_5(a b c d e), 6 => take_6(a b c d e f), 7 => take_7(a b c d e f g), _ => take_8(a b c d e f g h),;
            k, u, p, sums);
    }
}

struct Turn<'a, P: TwoPasses, C: Real>(P::First<C>, &'a mut [C], &'a [C], Slots<'a, C>, &'a mut [f64]);

impl<P: TwoPasses, C: Real> Job for Turn<'_, P, C> {
    type Output = ();
    #[inline(always)]
    #[allow(unused_variables, reason = "as above")]
    fn run(self) {
        let Turn(k, u, p, slots, sums) = self;
        let [a, b, c, d, e, f, g, h] = slots;
        by_arrays!(
            0 => turn_0(), 1 => turn_1(a), 2 => turn_2(a b), 3 => turn_3(a b c), 4 => turn_4(a b c d),
            5 => turn_5(a b c d e), 6 => turn_6(a b c d e f), 7 => turn_7(a b c d e f g), _ => turn_8(a b c d e f g h),;
            k, u, p, sums);
    }
}

/// The second pass.
struct Give<P: TwoPasses, C: Real>(P::Second<C>);

impl<P: TwoPasses, C: Real> Clone for Give<P, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: TwoPasses, C: Real> Copy for Give<P, C> {}

impl<P: TwoPasses, C: Real> OnElement<C> for Give<P, C> {
    type Slots = P::Slots<C>;
    #[inline(always)]
    fn apply(self, slots: &mut P::Slots<C>, u: C, p: C) -> C {
        P::give_out(self.0, slots, u, p)
    }
}

fn take_in_tile<P: TwoPasses, C: Real>(k: P::First<C>, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>) {
    let Some(list) = arrays.of_leaf(tile.leaf) else { return };
    if tile.zero || P::TRANSFORMS {
        tile.settle();
    }
    let (start, n, isa) = (tile.start, tile.u.len(), tile.isa);
    let spare = core::mem::take(&mut tile.spare);
    let sums = &mut tile.sums[sum..];
    if P::TRANSFORMS {
        let (u, p) = (&mut *tile.u, tile.p);
        with_list(&list, start, n, isa, spare, |slots| dispatch(isa, Turn::<P, C>(k, u, p, slots, sums)));
    } else {
        let (u, p) = (tile.source.unwrap_or(tile.u), tile.p);
        with_list(&list, start, n, isa, spare, |slots| dispatch(isa, Take::<P, C>(k, u, p, slots, sums)));
    }
    tile.spare = spare;
}
