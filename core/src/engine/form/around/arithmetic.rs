//! The element arithmetic of wrappers.

use super::super::super::Access;
use super::super::super::{Contribution, InitContext, Slot, Sums, Tile};
use super::super::SlotArray;
use super::super::loops::OnElement;
use super::super::rule::checked_slots;
use super::super::state::{Arrays, of_part};
use super::{Around, Wrapper};
use crate::element::{DType, Real};
use crate::engine::limits::MAX_SLOTS;
use crate::error::Result;
use crate::needs::Nothing;
use crate::tree::LeafSpec;

/// The form of a [`Wrapper`] that has [`Arithmetic`].
pub type AroundWithArithmetic<Inputs = Nothing> = Around<Inputs, WithArithmetic>;

/// In [`Around`]: the wrapper has no element arithmetic.
pub enum NoArithmetic {}

/// In [`Around`]: the wrapper has [`Arithmetic`].
pub enum WithArithmetic {}

/// The element arithmetic of a wrapper with [`Arithmetic`].
///
/// ```
/// use gradchain::part::Elements;
///
/// // It changes the update after the inner transformation, and reads the parameter for that.
/// const ELEMENTS: Elements = Elements::NONE.after(true).reads_params();
/// # let _ = ELEMENTS;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    pub(super) before: bool,
    pub(super) after: bool,
    pub(super) rewrites: [bool; 2],
    pub(super) before_reads: bool,
    pub(super) keeps_zeros: bool,
    pub(super) completes: bool,
    pub(super) params: bool,
    pub(super) typed: bool,
    pub(super) rows: bool,
    pub(super) params_slot: Option<usize>,
    pub(super) some_leaves: bool,
}

impl Elements {
    /// No arithmetic.
    pub const NONE: Elements = Elements {
        before: false,
        after: false,
        rewrites: [false; 2],
        before_reads: false,
        keeps_zeros: false,
        completes: false,
        params: false,
        typed: false,
        rows: false,
        params_slot: None,
        some_leaves: false,
    };

    pub(super) const fn only_reads_before(&self) -> bool {
        self.before_reads && self.rewrites[0]
    }

    /// Adds arithmetic [`before`](Arithmetic::before) the inner transformation; `rewrites` if it changes the update,
    /// besides the state arrays.
    #[must_use]
    pub const fn before(self, rewrites: bool) -> Elements {
        Elements { before: true, rewrites: [rewrites, self.rewrites[1]], ..self }
    }

    /// Adds arithmetic [`after`](Arithmetic::after) the inner transformation; `rewrites` if it changes the update,
    /// besides the state arrays.
    #[must_use]
    pub const fn after(self, rewrites: bool) -> Elements {
        Elements { after: true, rewrites: [self.rewrites[0], rewrites], ..self }
    }

    /// Declares that `before` only reads its arrays in a step that makes an update: its writes are discarded.
    ///
    /// A later pass can then repeat it, so that the engine stores no updates for it. In a step that holds the updates
    /// back ([`Hold`](super::Decision::Hold)) it writes.
    #[must_use]
    pub const fn before_reads(self) -> Elements {
        Elements { before_reads: true, ..self }
    }

    /// Declares that zeros stay zeros, so that no arithmetic need run where the inner transformation emits nothing.
    #[must_use]
    pub const fn keeps_zeros(self) -> Elements {
        Elements { keeps_zeros: true, ..self }
    }

    /// Declares that `after` completes the array update that `before` began. It also runs where the inner
    /// transformation emits nothing, and must not rewrite the update.
    #[must_use]
    pub const fn completes(self) -> Elements {
        assert!(!self.rewrites[1], "a wrapper that completes arrays must not rewrite updates");
        Elements { completes: true, ..self }
    }

    /// Declares that the arithmetic reads the parameter. Otherwise `p` is unspecified.
    #[must_use]
    pub const fn reads_params(self) -> Elements {
        Elements { params: true, ..self }
    }

    /// Declares support for [row-sparse](crate::tree::SparseRows) gradients although it has state arrays: these need no
    /// update in rows without a gradient.
    #[must_use]
    pub const fn rows(self) -> Elements {
        Elements { rows: true, ..self }
    }

    /// Sets the index of the state array that the inner transformation sees in place of the parameters. The array has
    /// the compute type.
    #[must_use]
    pub const fn params_slot(self, slot: usize) -> Elements {
        Elements { params_slot: Some(slot), ..self }
    }

    /// Declares state arrays for some leaves only, those of [`has_slots`](Arithmetic::has_slots).
    #[must_use]
    pub const fn some_leaves(self) -> Elements {
        Elements { some_leaves: true, ..self }
    }

    /// Declares dependence on the dtype of the leaf besides the compute type, by [`typed`](Arithmetic::typed).
    #[must_use]
    pub const fn typed(self) -> Elements {
        Elements { typed: true, ..self }
    }
}

/// The element arithmetic of a [`Wrapper`], before and after the inner transformation, with its own state arrays.
///
/// # Example
///
/// Doubles gradients, and halves the updates made of them:
///
/// ```
/// use gradchain::Real;
/// use gradchain::part::{Arithmetic, AroundWithArithmetic, Elements, Wrapper};
/// use gradchain::prelude::*;
///
/// gradchain::wrapper! {
///     /// Shows larger gradients to the inner transformation.
///     pub Magnify<T> as "magnify" around inner: AroundWithArithmetic {}
/// }
///
/// impl<T: GradientTransformation> Wrapper for Magnify<T> {
///     type Memory = ();
/// }
///
/// impl<T: GradientTransformation> Arithmetic for Magnify<T> {
///     const ELEMENTS: Elements = Elements::NONE.before(true).after(true);
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
    /// The element arithmetic, and its inputs.
    const ELEMENTS: Elements;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The scalars of a leaf.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Returns true if a leaf has the state arrays. A leaf without them is left to the inner transformation.
    fn has_slots(&self, leaf: &LeafSpec) -> bool {
        let _ = leaf;
        true
    }

    /// Adjusts a state array to the arguments of the part, if they set its initial value or dtype.
    fn slot(&self, slot: Slot) -> Slot {
        slot
    }

    /// Computes the scalars of a leaf in `f64`, and rounds them once with [`Real::of`].
    fn scalars<C: Real>(&self, memory: &Self::Memory, leaf: usize) -> Self::Scalars<C>;

    /// Returns the scalars for a loop compiled for one dtype, if the arithmetic [depends](Elements::typed) on it.
    ///
    /// They equal the given ones, but are made of constants, so that the loop has no code for other dtypes. Write
    /// `#[inline(always)]` on it.
    fn typed<C: Real>(k: Self::Scalars<C>, dtype: DType) -> Self::Scalars<C> {
        let _ = dtype;
        k
    }

    /// Transforms one element before the inner transformation. Write `#[inline(always)]` on it.
    fn before<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C {
        let _ = (k, slots, p);
        u
    }

    /// Transforms `u`, one update of the inner transformation. Write `#[inline(always)]` on it.
    fn after<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C {
        let _ = (k, slots, p);
        u
    }
}

/// The loops of a wrapper: none, of [`Arithmetic`], or of [`Reducing`](super::Reducing).
#[allow(missing_docs, reason = "each item has the name of one in `Arithmetic` or `Reducing`")]
pub trait Loops<P: Wrapper> {
    const ELEMENTS: Elements = Elements::NONE;
    const REDUCES: Reduces = Reduces::NOTHING;
    type Slots<C: Real>: SlotArray<C>;
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Makes the state arrays.
    fn arrays(_: &P, at: &InitContext<'_>) -> Result<Arrays> {
        Arrays::new(&[], at, &|slot| slot)
    }
    /// Computes the scalars of a leaf for one pass.
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

    /// Returns the bytes per element of a leaf's arrays that move through memory: where the inner transformation
    /// begins, where it ends, and in the last pass.
    fn bytes(_: &P, _: &P::Memory, arrays: &Arrays, leaf: usize, [begins, ends, _]: [bool; 3]) -> usize {
        let of_before = if Self::ELEMENTS.only_reads_before() { 1 } else { 2 };
        arrays.bytes(leaf, &|_| match (Self::ELEMENTS.before && begins, Self::ELEMENTS.after && ends) {
            (_, true) => 2,
            (before, false) => of_before * before as usize,
        })
    }

    fn accumulate<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: usize, _: &mut Tile<'_, C>) {}
    fn combine<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: &[C], _: &mut Tile<'_, C>) {}
    fn measure<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: usize, _: &mut Tile<'_, C>) {}
    fn emit<C: Real>(_: &P, _: &P::Memory, _: &Arrays, _: &mut Tile<'_, C>) {}
    #[inline(always)]
    fn add<C: Real>(_: Self::Scalars<C>, _: C, _: &mut [Contribution<C>]) {}
    #[inline(always)]
    fn last<C: Real>(_: Self::Scalars<C>, _: &mut Self::Slots<C>, u: C, _: C) -> C {
        u
    }
    fn reduced(_: &P, _: &mut P::Memory, _: Sums<'_>) {}
}

/// A wrapper's reductions and their effects.
#[derive(Clone, Copy)]
pub struct Reduces {
    /// The numbers of reductions before and after the inner transformation.
    pub(super) sums: [usize; 2],
    /// True if updates are rewritten given the gradients.
    pub(super) combines: bool,
    /// True if updates are rewritten after the reductions.
    pub(super) waits: bool,
    /// True if that reads parameters.
    pub(super) last_reads_params: bool,
    /// False if it has no loop with the inner transformation.
    pub(super) fuses: bool,
}

impl Reduces {
    pub(super) const NOTHING: Reduces =
        Reduces { sums: [0; 2], combines: false, waits: false, last_reads_params: false, fuses: true };

    pub(super) const fn count(&self) -> usize {
        self.sums[0] + self.sums[1]
    }
}

impl<P: Wrapper> Loops<P> for NoArithmetic {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    #[inline(always)]
    fn scalars<C: Real>(_: &P, _: &P::Memory, _: usize) {}
}

impl<P: Arithmetic> Loops<P> for WithArithmetic {
    const ELEMENTS: Elements = {
        checked_slots(P::SLOTS, <P::Slots<f32> as SlotArray<f32>>::LEN);
        P::ELEMENTS
    };
    type Slots<C: Real> = P::Slots<C>;
    type Scalars<C: Real> = P::Scalars<C>;

    fn arrays(part: &P, at: &InitContext<'_>) -> Result<Arrays> {
        let own = at.active_where(&|leaf| part.has_slots(leaf));
        Arrays::new(P::SLOTS, &at.with_active(&own), &|slot| of_part(part, part.slot(slot)))
    }
    #[inline(always)]
    fn scalars<C: Real>(part: &P, memory: &P::Memory, leaf: usize) -> P::Scalars<C> {
        part.scalars(memory, leaf)
    }
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

/// The arithmetic before or after the inner transformation; `REWRITES` if it changes the update.
pub(super) struct SideLoop<P: Wrapper, O: Loops<P>, C: Real, const BEFORE: bool, const REWRITES: bool>(
    pub(super) O::Scalars<C>,
);

impl<P: Wrapper, O: Loops<P>, C: Real, const BEFORE: bool, const REWRITES: bool> Clone
    for SideLoop<P, O, C, BEFORE, REWRITES>
{
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Wrapper, O: Loops<P>, C: Real, const BEFORE: bool, const REWRITES: bool> Copy
    for SideLoop<P, O, C, BEFORE, REWRITES>
{
}

impl<P: Wrapper, O: Loops<P>, C: Real, const BEFORE: bool, const REWRITES: bool> OnElement<C>
    for SideLoop<P, O, C, BEFORE, REWRITES>
{
    type Slots = O::Slots<C>;
    type Sums = [C::Wide; 0];
    // A step that holds updates back does not rewrite the update.
    const ACCESS: &'static [Access] = match BEFORE && REWRITES && O::ELEMENTS.only_reads_before() {
        true => &[Access::Read; MAX_SLOTS],
        false => &[Access::Write; MAX_SLOTS],
    };
    const REWRITES: bool = REWRITES;
    const READS_PARAMS: bool = O::ELEMENTS.params;
    #[inline(always)]
    fn apply(self, slots: &mut O::Slots<C>, u: C, p: C) -> (C, [C::Wide; 0]) {
        (if BEFORE { O::before(self.0, slots, u, p) } else { O::after(self.0, slots, u, p) }, [])
    }
}
