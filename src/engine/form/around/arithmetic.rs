//! What wrappers do to elements themselves.

use super::super::super::{Slot, Sums, Term, Tile};
use super::super::SlotArray;
use super::super::loops::{Access, OnElement};
use super::super::state::{Arrays, asked_dtype};
use super::{Around, Wrapper};
use crate::element::{DType, Real};
use crate::engine::kernel::MOST_SLOTS;
use crate::needs::Nothing;
use crate::tree::LeafSpec;

/// The form of a [`Wrapper`] that has [`Arithmetic`].
pub type AroundWithArithmetic<Asks = Nothing> = Around<Asks, WithArithmetic>;

/// In [`Around`]: the wrapper leaves elements to what is inside.
pub enum NoArithmetic {}

/// In [`Around`]: the wrapper has [`Arithmetic`].
pub enum WithArithmetic {}

/// What a [`Wrapper`] does to each element, before what is inside or after it, with state arrays of its own.
///
/// # Example
///
/// Doubles gradients, and takes what comes of them half as far:
///
/// ```
/// use gradchain::Real;
/// use gradchain::part::{Arithmetic, AroundWithArithmetic, Wrapper};
/// use gradchain::prelude::*;
///
/// gradchain::wrapper! {
///     /// Shows what is inside larger gradients.
///     pub Magnify<T> as "magnify" around inner: AroundWithArithmetic {}
/// }
///
/// impl<T: GradientTransformation> Wrapper for Magnify<T> {
///     type Memory = ();
/// }
///
/// impl<T: GradientTransformation> Arithmetic for Magnify<T> {
///     const BEFORE: bool = true;
///     const AFTER: bool = true;
///     type Slots<C: Real> = [C; 0];
///     type Scalars<C: Real> = C;
///
///     fn scalars<C: Real>(&self, (): &(), _: usize) -> C {
///         C::of(2.0)
///     }
///
///     #[inline(always)]
///     fn before<C: Real>(factor: C, _: &mut [C; 0], u: C, _: C) -> C {
///         u * factor
///     }
///
///     #[inline(always)]
///     fn after<C: Real>(factor: C, _: &mut [C; 0], u: C, _: C) -> C {
///         u / factor
///     }
/// }
///
/// let optimizer = Magnify::with(chain((clip(3.0), sgd(1.0))));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, 2.0], &mut state)?;
/// assert_eq!(params, [-1.0, -1.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// The arrays in [`SLOTS`](Arithmetic::SLOTS).
pub trait Arithmetic: Wrapper {
    /// The state arrays, by name, as many as [`Slots`](Arithmetic::Slots) has; at most 8.
    const SLOTS: &'static [Slot] = &[];
    /// Whether it does something to each element before what is inside.
    const BEFORE: bool = false;
    /// Whether it does something to each element after what is inside.
    const AFTER: bool = false;
    /// Whether what it does before what is inside, and after, changes the update, not only the state arrays.
    const REWRITES: [bool; 2] = [true; 2];
    /// Whether `before` only reads its arrays in a step in which it makes an update: what it writes there is lost. Then
    /// it can be done again in a later pass, where the updates would have to be stored for it. In a step that holds the
    /// updates back ([`Hold`](super::Decision::Hold)) it writes.
    const BEFORE_READS: bool = false;
    /// Whether it makes zeros of zeros, so that it need not run where what is inside holds its updates back.
    const KEEPS_ZEROS: bool = false;
    /// True if `after` completes what `before` has begun in the arrays, so that it also runs where the inner
    /// transformation emits nothing. It must not rewrite the update.
    const COMPLETES: bool = false;
    /// Whether it reads the parameter.
    const READS_PARAMS: bool = false;
    /// Whether the arithmetic depends on the type of the leaf, not only on the one that it calculates in; see
    /// [`typed`](Arithmetic::typed).
    const TYPED: bool = false;
    /// Whether it works on gradients of some [rows](crate::tree::SparseRows) of a leaf: if its arrays need not follow
    /// where there is no gradient.
    const ROWS: bool = Self::SLOTS.is_empty();
    /// The number of the state array that what is inside is shown in the place of the parameters, if it is. It has the
    /// type that arithmetic is done in.
    const POINT: Option<usize> = None;
    /// Whether only some leaves have the state arrays: whether [`has_slots`](Arithmetic::has_slots) says anything.
    const SOME_LEAVES: bool = false;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// What it needs to know of a leaf.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Whether a leaf has the state arrays. One that has none is left to what is inside.
    fn has_slots(&self, leaf: &LeafSpec) -> bool {
        let _ = leaf;
        true
    }

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

    /// Works out, in `f64`, what the arithmetic on a leaf needs, and rounds it once with [`Real::of`].
    fn scalars<C: Real>(&self, memory: &Self::Memory, leaf: usize) -> Self::Scalars<C>;

    /// The scalars in a loop that is compiled for leaves of one type, if the arithmetic [depends](Arithmetic::TYPED) on
    /// it: equal to the given ones, but made of what is known then, so that the loop is spared what other types need.
    /// Write `#[inline(always)]` on it.
    fn typed<C: Real>(k: Self::Scalars<C>, dtype: DType) -> Self::Scalars<C> {
        let _ = dtype;
        k
    }

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
}

/// What a form says of the arithmetic of its wrappers: nothing, or what they say.
#[allow(missing_docs, reason = "each is what has the same name in `Arithmetic`")]
pub trait Own<P: Wrapper> {
    const SLOTS: &'static [Slot] = &[];
    const BEFORE: bool = false;
    const AFTER: bool = false;
    const REWRITES: [bool; 2] = [true, false];
    const BEFORE_READS: bool = false;
    const COMPLETES: bool = false;
    const READS_PARAMS: bool = false;
    const TYPED: bool = false;
    const ROWS: bool = Self::SLOTS.is_empty();
    const POINT: Option<usize> = None;
    const SOME_LEAVES: bool = false;
    type Slots<C: Real>: SlotArray<C>;
    type Scalars<C: Real>: Copy + Send + Sync;

    fn has_slots(_: &P, _: &LeafSpec) -> bool {
        true
    }
    fn slot_dtype(_: &P, _: usize) -> Option<DType> {
        None
    }
    fn slot_starts_as_params(_: &P, _: usize) -> bool {
        false
    }
    fn scalars<C: Real>(part: &P, memory: &P::Memory, leaf: usize) -> Self::Scalars<C>;
    #[inline(always)]
    fn typed<C: Real>(k: Self::Scalars<C>, _: DType) -> Self::Scalars<C> {
        k
    }
    #[inline(always)]
    fn before<C: Real>(_: Self::Scalars<C>, _: &mut Self::Slots<C>, u: C, _: C) -> C {
        u
    }
    #[inline(always)]
    fn after<C: Real>(_: Self::Scalars<C>, _: &mut Self::Slots<C>, u: C, _: C) -> C {
        u
    }

    /// How many bytes of a leaf's arrays go through memory, for each element: where what is inside begins, where it
    /// ends, and in the last pass.
    fn bytes(_: &P, _: &P::Memory, arrays: &Arrays, leaf: usize, [begins, ends, _]: [bool; 3]) -> usize {
        let of_before = if Self::BEFORE_READS { 1 } else { 2 };
        arrays.bytes(leaf, &|_| match (Self::BEFORE && begins, Self::AFTER && ends) {
            (_, true) => 2,
            (before, false) => of_before * before as usize,
        })
    }

    const KEEPS_ZEROS: bool = false;

    // What only those have that are `Weighing`.
    const TAKES_IN: bool = false;
    const MEETS: bool = false;
    const WAITS: bool = false;
    const SUMS: usize = 0;
    const FUSES: bool = true;
    const READS_PARAMS_LAST: bool = false;
    type Last<C: Real>: Copy + Send + Sync;

    fn last_scalars<C: Real>(part: &P, memory: &P::Memory, leaf: usize) -> Self::Last<C>;
    #[inline(always)]
    fn last<C: Real>(_: Self::Last<C>, _: &mut Self::Slots<C>, u: C, _: C) -> C {
        u
    }
    fn take_in<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: usize, _: &mut Tile<'_, C>) {}
    fn meet<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: &[C], _: &mut Tile<'_, C>) {}
    fn measure<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: usize, _: &mut Tile<'_, C>) {}
    fn give_out<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: &mut Tile<'_, C>) {}
    #[inline(always)]
    fn add<C: Real>(_: Self::Scalars<C>, _: C, _: &mut [Term<C>]) {}
    fn weigh(_: &P, _: &mut P::Memory, _: Sums<'_>) {}
}

impl<P: Wrapper> Own<P> for NoArithmetic {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();
    type Last<C: Real> = ();

    #[inline(always)]
    fn scalars<C: Real>(_: &P, _: &P::Memory, _: usize) {}
    #[inline(always)]
    fn last_scalars<C: Real>(_: &P, _: &P::Memory, _: usize) {}
}

impl<P: Arithmetic> Own<P> for WithArithmetic {
    const SLOTS: &'static [Slot] = P::SLOTS;
    const BEFORE: bool = P::BEFORE;
    const AFTER: bool = P::AFTER;
    const REWRITES: [bool; 2] = P::REWRITES;
    const BEFORE_READS: bool = P::BEFORE_READS && P::REWRITES[0];
    const COMPLETES: bool = {
        assert!(!(P::COMPLETES && P::REWRITES[1]), "what completes arrays does not rewrite updates");
        P::COMPLETES
    };
    const KEEPS_ZEROS: bool = P::KEEPS_ZEROS;
    const READS_PARAMS: bool = P::READS_PARAMS;
    const TYPED: bool = P::TYPED;
    const ROWS: bool = P::ROWS;
    const POINT: Option<usize> = P::POINT;
    const SOME_LEAVES: bool = P::SOME_LEAVES;
    type Slots<C: Real> = P::Slots<C>;
    type Scalars<C: Real> = P::Scalars<C>;
    type Last<C: Real> = ();

    fn has_slots(part: &P, leaf: &LeafSpec) -> bool {
        part.has_slots(leaf)
    }
    fn slot_dtype(part: &P, slot: usize) -> Option<DType> {
        part.slot_dtype(slot)
    }
    fn slot_starts_as_params(part: &P, slot: usize) -> bool {
        part.slot_starts_as_params(slot)
    }
    #[inline(always)]
    fn scalars<C: Real>(part: &P, memory: &P::Memory, leaf: usize) -> P::Scalars<C> {
        part.scalars(memory, leaf)
    }
    #[inline(always)]
    fn last_scalars<C: Real>(_: &P, _: &P::Memory, _: usize) {}
    #[inline(always)]
    fn typed<C: Real>(k: P::Scalars<C>, dtype: DType) -> P::Scalars<C> {
        P::typed(k, dtype)
    }
    #[inline(always)]
    fn before<C: Real>(k: P::Scalars<C>, slots: &mut P::Slots<C>, u: C, p: C) -> C {
        P::before(k, slots, u, p)
    }
    #[inline(always)]
    fn after<C: Real>(k: P::Scalars<C>, slots: &mut P::Slots<C>, u: C, p: C) -> C {
        P::after(k, slots, u, p)
    }
}

/// What a wrapper does to one element before what is inside, or after; whether the update is another one afterwards.
pub(super) struct Half<P: Wrapper, O: Own<P>, C: Real, const BEFORE: bool, const REWRITES: bool>(
    pub(super) O::Scalars<C>,
);

impl<P: Wrapper, O: Own<P>, C: Real, const BEFORE: bool, const REWRITES: bool> Clone
    for Half<P, O, C, BEFORE, REWRITES>
{
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Wrapper, O: Own<P>, C: Real, const BEFORE: bool, const REWRITES: bool> Copy
    for Half<P, O, C, BEFORE, REWRITES>
{
}

impl<P: Wrapper, O: Own<P>, C: Real, const BEFORE: bool, const REWRITES: bool> OnElement<C>
    for Half<P, O, C, BEFORE, REWRITES>
{
    type Slots = O::Slots<C>;
    type Sums = [C::Wide; 0];
    // Without a new update it is done in a step that holds.
    const ACCESS: &'static [Access] = match BEFORE && REWRITES && O::BEFORE_READS {
        true => &[Access::Read; MOST_SLOTS],
        false => &[Access::Write; MOST_SLOTS],
    };
    const REWRITES: bool = REWRITES;
    #[inline(always)]
    fn apply(self, slots: &mut O::Slots<C>, u: C, p: C) -> (C, [C::Wide; 0]) {
        (if BEFORE { O::before(self.0, slots, u, p) } else { O::after(self.0, slots, u, p) }, [])
    }
}
