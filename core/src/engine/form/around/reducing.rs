//! Wrappers with reductions over all elements.

use super::super::super::Access;
use super::super::super::{Contribution, InitContext, Slot, Sums, Tile};
use super::super::SlotArray;
use super::super::loops::{MAX_PART_SUMS, OnElement, add_sums, each_with_params};
use super::super::rule::checked_slots;
use super::super::state::{Arrays, of_part};
use super::arithmetic::{Elements, Loops, Reduces};
use super::{Around, Wrapper};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;

/// The form of a [`Wrapper`] that is [`Reducing`].
pub type AroundWithReductions<Inputs = Nothing> = Around<Inputs, WithReductions>;

/// In [`Around`]: the wrapper is [`Reducing`].
pub enum WithReductions {}

/// The passes of a wrapper that is [`Reducing`], and the inputs of each.
///
/// ```
/// use gradchain::part::ReducingPasses;
///
/// // It rewrites each update given the gradient, and again given the sums.
/// const PASSES: ReducingPasses = ReducingPasses::TWO.combines();
/// # let _ = PASSES;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReducingPasses {
    combines: bool,
    emits: bool,
    keeps_zeros: bool,
    params: [bool; 2],
    accesses: [&'static [Access]; 3],
    rare_accesses: [&'static [Access]; 3],
}

impl ReducingPasses {
    /// It rewrites the updates in a second pass, after the reductions: see [`emit`](Reducing::emit).
    pub const TWO: ReducingPasses = ReducingPasses {
        combines: false,
        emits: true,
        keeps_zeros: false,
        params: [false; 2],
        accesses: [&[]; 3],
        rare_accesses: [&[]; 3],
    };

    /// It emits the inner updates, or those that it [met](ReducingPasses::combines). [`reduced`](Reducing::reduced)
    /// runs at the end of the step.
    pub const ONE: ReducingPasses = ReducingPasses { emits: false, ..ReducingPasses::TWO };

    /// Declares that the wrapper rewrites the inner updates [given the gradient](Reducing::combine).
    #[must_use]
    pub const fn combines(self) -> ReducingPasses {
        ReducingPasses { combines: true, ..self }
    }

    /// Declares that zeros stay zeros, so that the wrapper need not run where the inner transformation emits nothing.
    #[must_use]
    pub const fn keeps_zeros(self) -> ReducingPasses {
        ReducingPasses { keeps_zeros: true, ..self }
    }

    /// Sets whether `accumulate` and `emit` read the parameter. Otherwise `p` is unspecified.
    #[must_use]
    pub const fn reads_params(self, params: [bool; 2]) -> ReducingPasses {
        ReducingPasses { params, ..self }
    }

    /// Sets the accesses of `accumulate`, `combine` and `emit` to each state array. They do not access arrays past the
    /// end of a list, and `emit` only reads.
    #[must_use]
    pub const fn accesses(self, accesses: [&'static [Access]; 3]) -> ReducingPasses {
        ReducingPasses { accesses, rare_accesses: accesses, ..self }
    }

    /// Sets other accesses for a step that [`is_rare`](Reducing::is_rare). Call it after
    /// [`accesses`](ReducingPasses::accesses).
    #[must_use]
    pub const fn rare_accesses(self, rare_accesses: [&'static [Access]; 3]) -> ReducingPasses {
        ReducingPasses { rare_accesses, ..self }
    }
}

/// A [`Wrapper`] with reductions over the gradients, or over the updates of the inner transformation.
///
/// It rewrites each update given the sums, and may rewrite it given the gradient. In the order of a step:
/// [`accumulate`](Reducing::accumulate), the inner transformation, [`combine`](Reducing::combine),
/// [`measure`](Reducing::measure), [`reduced`](Reducing::reduced), which receives the sums, and
/// [`emit`](Reducing::emit).
///
/// # Example
///
/// Takes the direction of the inner updates, and the norm of the gradients:
///
/// ```
/// use gradchain::Real;
/// use gradchain::part::{AroundWithReductions, Sums, Reducing, Wrapper};
/// use gradchain::prelude::*;
/// use gradchain::optimizer::sign_sgd;
/// use gradchain::state::{Scalar, State};
///
/// gradchain::wrapper! {
///     /// Gives updates the norm of the gradients.
///     pub Graft<T> as "graft" around inner: AroundWithReductions {}
/// }
///
/// #[derive(State, Clone, Debug, Default)]
/// pub struct Ratio { ratio: Scalar }
///
/// impl<T: GradientTransformation> Wrapper for Graft<T> {
///     type Memory = Ratio;
/// }
///
/// impl<T: GradientTransformation> Reducing for Graft<T> {
///     type Slots<C: Real> = [C; 0];
///     type Accumulated<W: Real> = [W; 1];
///     type Measured<W: Real> = [W; 1];
///     type Scalars<C: Real> = C;
///
///     #[inline(always)]
///     fn accumulate<C: Real>(_: C, _: &mut [C; 0], u: C, _: C) -> [C::Wide; 1] {
///         [u.wide() * u.wide()]
///     }
///
///     #[inline(always)]
///     fn measure<C: Real>(_: C, u: C) -> [C::Wide; 1] {
///         [u.wide() * u.wide()]
///     }
///
///     fn reduced(&self, memory: &mut Ratio, sums: Sums<'_>) {
///         memory.ratio.set((sums.total(0) / sums.total(1)).sqrt());
///     }
///
///     fn scalars<C: Real>(&self, memory: &Ratio, _: usize) -> C {
///         C::of(memory.ratio.get())
///     }
///
///     #[inline(always)]
///     fn emit<C: Real>(ratio: C, _: &mut [C; 0], u: C, _: C) -> C {
///         u * ratio
///     }
/// }
///
/// let optimizer = Graft::with(sign_sgd(0.1));
/// let mut params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0, 4.0], &mut state)?;
/// approx::assert_relative_eq!(params[0].hypot(params[1]), 5.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// One more pass with [`ReducingPasses::TWO`]. If it [combines](ReducingPasses::combines) the gradients and the inner
/// transformation has passes of its own, it keeps a copy of the gradients during the step, outside of the state. It
/// fuses with the inner transformation and its neighbours if it has no state arrays and no `accumulate`, and emits.
pub trait Reducing: Wrapper {
    /// The state arrays, by name, as many as [`Slots`](Reducing::Slots) has; at most 8.
    const SLOTS: &'static [Slot] = &[];
    /// Its passes, and the inputs of each.
    const PASSES: ReducingPasses = ReducingPasses::TWO;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The contributions of an input element, the first of the sums: `[W; N]`, at most 4.
    type Accumulated<W: Real>: SlotArray<W>;
    /// The contributions of an inner update, the other sums: `[W; N]`, at most 4.
    type Measured<W: Real>: SlotArray<W>;
    /// The scalars of a leaf.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Returns true if this step has the accesses of [`rare_accesses`](ReducingPasses::rare_accesses), to initialize
    /// arrays for instance.
    fn is_rare(&self, memory: &Self::Memory) -> bool {
        let _ = memory;
        false
    }

    /// Computes the scalars of a leaf in `f64`, and rounds them once with [`Real::of`]. Called in each pass: scalars
    /// that follow from the sums exist only after [`reduced`](Reducing::reduced).
    fn scalars<C: Real>(&self, memory: &Self::Memory, leaf: usize) -> Self::Scalars<C>;

    /// Returns the contribution of an input element to the first sums. Write `#[inline(always)]` on it.
    fn accumulate<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> Self::Accumulated<C::Wide>;

    /// Rewrites the update `u` given the gradient. If the inner transformation has not run, `u` is the gradient. Write
    /// `#[inline(always)]` on it.
    fn combine<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, gradient: C) -> C {
        let _ = (k, slots, gradient);
        u
    }

    /// Returns the contribution of an update after [`combine`](Reducing::combine). Write `#[inline(always)]` on it.
    fn measure<C: Real>(k: Self::Scalars<C>, u: C) -> Self::Measured<C::Wide>;

    /// Receives the complete sums, over the tree and by leaf.
    fn reduced(&self, memory: &mut Self::Memory, sums: Sums<'_>);

    /// Rewrites the update `u` after the reductions. Write `#[inline(always)]` on it.
    fn emit<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C {
        let _ = (k, slots, p);
        u
    }
}

const fn accumulated<P: Reducing>() -> usize {
    <P::Accumulated<f64> as SlotArray<f64>>::LEN
}

const fn measured<P: Reducing>() -> usize {
    <P::Measured<f64> as SlotArray<f64>>::LEN
}

impl<P: Reducing> Loops<P> for WithReductions {
    const ELEMENTS: Elements = Elements {
        after: P::PASSES.combines,
        rewrites: [true, false],
        keeps_zeros: P::PASSES.keeps_zeros,
        params: P::PASSES.params[0],
        ..Elements::NONE
    };
    const REDUCES: Reduces = {
        checked_slots(P::SLOTS, <P::Slots<f32> as SlotArray<f32>>::LEN);
        let sums = [accumulated::<P>(), measured::<P>()];
        assert!(sums[0] <= MAX_PART_SUMS && sums[1] <= MAX_PART_SUMS, "a wrapper has at most 4 sums of a kind");
        Reduces {
            sums,
            combines: P::PASSES.combines,
            waits: P::PASSES.emits,
            last_reads_params: P::PASSES.params[1],
            fuses: P::SLOTS.is_empty() && sums[0] == 0 && P::PASSES.emits,
        }
    };
    type Slots<C: Real> = P::Slots<C>;
    type Scalars<C: Real> = P::Scalars<C>;

    fn arrays(part: &P, at: &InitContext<'_>) -> Result<Arrays> {
        Arrays::new(P::SLOTS, at, &|slot| of_part(part, slot))
    }
    #[inline(always)]
    fn scalars<C: Real>(part: &P, memory: &P::Memory, leaf: usize) -> P::Scalars<C> {
        part.scalars(memory, leaf)
    }
    #[inline(always)]
    fn after<C: Real>(k: P::Scalars<C>, slots: &mut P::Slots<C>, u: C, gradient: C) -> C {
        P::combine(k, slots, u, gradient)
    }
    #[inline(always)]
    fn last<C: Real>(k: P::Scalars<C>, slots: &mut P::Slots<C>, u: C, p: C) -> C {
        P::emit(k, slots, u, p)
    }

    fn accumulate<C: Real>(part: &P, memory: &P::Memory, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>) {
        let (k, p) = (part.scalars(memory, tile.leaf), tile.p);
        match part.is_rare(memory) {
            true => each_with_params(Accumulate::<P, C, true>(k), arrays, sum, tile, p),
            false => each_with_params(Accumulate::<P, C, false>(k), arrays, sum, tile, p),
        }
    }
    fn combine<C: Real>(part: &P, memory: &P::Memory, arrays: &Arrays, gradient: &[C], tile: &mut Tile<'_, C>) {
        let k = part.scalars(memory, tile.leaf);
        match part.is_rare(memory) {
            true => each_with_params(Meet::<P, C, true>(k), arrays, 0, tile, gradient),
            false => each_with_params(Meet::<P, C, false>(k), arrays, 0, tile, gradient),
        }
    }
    fn measure<C: Real>(part: &P, memory: &P::Memory, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>) {
        if measured::<P>() > 0 {
            let (k, p) = (part.scalars(memory, tile.leaf), tile.p);
            each_with_params(Out::<P, C>(k), arrays, sum + accumulated::<P>(), tile, p);
        }
    }
    fn emit<C: Real>(part: &P, memory: &P::Memory, arrays: &Arrays, tile: &mut Tile<'_, C>) {
        let (k, p) = (part.scalars(memory, tile.leaf), tile.p);
        each_with_params(Emit::<P, C>(k), arrays, 0, tile, p);
    }

    #[inline(always)]
    fn add<C: Real>(k: P::Scalars<C>, u: C, terms: &mut [Contribution<C>]) {
        add_sums(terms, &P::measure(k, u));
    }

    fn reduced(part: &P, memory: &mut P::Memory, sums: Sums<'_>) {
        part.reduced(memory, sums);
    }

    fn bytes(part: &P, memory: &P::Memory, arrays: &Arrays, leaf: usize, passes: [bool; 3]) -> usize {
        let accesses = if part.is_rare(memory) { P::PASSES.rare_accesses } else { P::PASSES.accesses };
        let times = |slot, pass: usize| if passes[pass] { Access::of(accesses[pass], slot).times() } else { 0 };
        arrays.bytes(leaf, &|slot| (0..3).map(|pass| times(slot, pass)).sum())
    }
}

struct Accumulate<P: Reducing, C: Real, const RARE: bool>(P::Scalars<C>);
/// The loop over updates, with gradients as parameters.
struct Meet<P: Reducing, C: Real, const RARE: bool>(P::Scalars<C>);
struct Out<P: Reducing, C: Real>(P::Scalars<C>);
struct Emit<P: Reducing, C: Real>(P::Scalars<C>);

macro_rules! passes {
    ($($Pass:ident $(<$RARE:ident>)?),*) => {$(
        impl<P: Reducing, C: Real $(, const $RARE: bool)?> Clone for $Pass<P, C $(, $RARE)?> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Reducing, C: Real $(, const $RARE: bool)?> Copy for $Pass<P, C $(, $RARE)?> {}
    )*};
}
passes!(Accumulate<RARE>, Meet<RARE>, Out, Emit);

const fn access<P: Reducing>(rare: bool, pass: usize) -> &'static [Access] {
    if rare { P::PASSES.rare_accesses[pass] } else { P::PASSES.accesses[pass] }
}

impl<P: Reducing, C: Real, const RARE: bool> OnElement<C> for Accumulate<P, C, RARE> {
    type Slots = P::Slots<C>;
    type Sums = P::Accumulated<C::Wide>;
    const ACCESS: &'static [Access] = access::<P>(RARE, 0);
    const REWRITES: bool = false;
    const READS_PARAMS: bool = P::PASSES.params[0];
    #[inline(always)]
    fn apply(self, slots: &mut P::Slots<C>, u: C, p: C) -> (C, P::Accumulated<C::Wide>) {
        (u, P::accumulate(self.0, slots, u, p))
    }
}

impl<P: Reducing, C: Real, const RARE: bool> OnElement<C> for Meet<P, C, RARE> {
    type Slots = P::Slots<C>;
    type Sums = [C::Wide; 0];
    const ACCESS: &'static [Access] = access::<P>(RARE, 1);
    const REWRITES: bool = true;
    const READS_PARAMS: bool = true;
    #[inline(always)]
    fn apply(self, slots: &mut P::Slots<C>, u: C, gradient: C) -> (C, [C::Wide; 0]) {
        (P::combine(self.0, slots, u, gradient), [])
    }
}

impl<P: Reducing, C: Real> OnElement<C> for Out<P, C> {
    type Slots = [C; 0];
    type Sums = P::Measured<C::Wide>;
    const ACCESS: &'static [Access] = &[];
    const REWRITES: bool = false;
    const READS_PARAMS: bool = false;
    #[inline(always)]
    fn apply(self, _: &mut [C; 0], u: C, _: C) -> (C, P::Measured<C::Wide>) {
        (u, P::measure(self.0, u))
    }
}

impl<P: Reducing, C: Real> OnElement<C> for Emit<P, C> {
    type Slots = P::Slots<C>;
    type Sums = [C::Wide; 0];
    const ACCESS: &'static [Access] = access::<P>(false, 2);
    const REWRITES: bool = true;
    const READS_PARAMS: bool = P::PASSES.params[1];
    #[inline(always)]
    fn apply(self, slots: &mut P::Slots<C>, u: C, p: C) -> (C, [C::Wide; 0]) {
        (P::emit(self.0, slots, u, p), [])
    }
}
