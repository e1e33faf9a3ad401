//! Leaf statistics, then arithmetic on one element.

use core::any::Any;

use super::super::expansion::Expansion;
use super::super::limits::MAX_SLOTS;
use super::super::whole::NOT_REMOTE;
use super::super::{
    Contribution, InitContext, Outcome, PassRange, PassStructure, Slot, SlotAccess, SlotAccesses, SlotList, StageChunk,
    StepContext, Sums, Then, WholeTree, append, fused,
};
use super::rule::checked_slots;
use super::state::{Arrays, of_part};
use super::whole::local_leaves;
use super::{Form, Part, PartState, SlotArray};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;
use crate::tree::LeafSpec;

/// The form of a [`LeafStatistics`]: reads whole leaves, then transforms each element on its own.
#[derive(Clone, Copy, Debug)]
pub enum WithLeafStatistics {}

/// A part that computes leaf statistics and then transforms each element by them.
///
/// The second half is arithmetic on one element, as in a [`Rule`](super::Rule), and fuses with later parts into one
/// loop. Statistics such as the means of rows and columns differ between elements of a leaf:
/// [`expand`](LeafStatistics::expand) expands them to a few numbers per element, which never need an array of the
/// leaf's length.
///
/// # Example
///
/// Divide each element by the largest of its leaf:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::Real;
/// use gradchain::part::{WithLeafStatistics, InitContext, LeafObserver, LeafStatistics, Part, StepContext, WholeTree};
/// use gradchain::state::{PerLeaf, Scalar};
/// use gradchain::tree::LeafSpec;
///
/// #[derive(Clone, Debug)]
/// struct DivideByLargest;
///
/// impl Part for DivideByLargest {
///     const NAME: &'static str = "divide_by_largest";
///     type Form = WithLeafStatistics;
/// }
///
/// impl LeafStatistics for DivideByLargest {
///     const BY_LEAF: bool = true;
///     type State = PerLeaf<Scalar>;
///     type Slots<C: Real> = [C; 0];
///     type Expanded<C: Real> = [C; 0];
///     type Scalars<C: Real> = C;
///
///     fn start(&self, at: &InitContext<'_>) -> gradchain::Result<PerLeaf<Scalar>> {
///         Ok(PerLeaf::new(at.active(), Scalar::new(1.0)))
///     }
///
///     fn collect_statistics(&self, largest: &mut PerLeaf<Scalar>, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
///         tree.observe(&mut Largest(largest));
///     }
///
///     fn scalars<C: Real>(&self, largest: &PerLeaf<Scalar>, leaf: usize) -> C {
///         C::of(largest.get(leaf).map_or(1.0, |largest| 1.0 / largest.get()))
///     }
///
///     fn apply<C: Real>(by: C, _: &mut [C; 0], _: &[C; 0], u: C) -> C {
///         u * by
///     }
/// }
///
/// struct Largest<'a>(&'a mut PerLeaf<Scalar>);
///
/// impl LeafObserver for Largest<'_> {
///     fn observe<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
///         let largest = u.iter().fold(0.0_f64, |largest, u| largest.max(u.as_f64().abs()));
///         self.0.set(leaf, Scalar::new(largest));
///     }
/// }
///
/// let optimizer = chain((DivideByLargest, sgd(1.0)));
/// let mut params = vec![0.0_f32; 2];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![-4.0_f32, 2.0], &mut state)?;
/// assert_eq!(params, [1.0, -0.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Cost
///
/// One additional pass, which reads the updates in place: they are stored in memory only if an earlier part of the
/// chain has changed them. Gradients that are strided or not of the compute type (16-bit ones) are copied for it;
/// row-sparse gradients are refused. [`expand`](LeafStatistics::expand) fills buffers in L1, 512 elements at a time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `WithLeafStatistics` but does not implement `LeafStatistics`",
    note = "implement `LeafStatistics` for `{Self}`; `docs/own-whole-tree.md` has an example"
)]
pub trait LeafStatistics: Part<Form = WithLeafStatistics> {
    /// The state arrays that [`apply`](LeafStatistics::apply) rewrites, by name: one for each of
    /// [`Slots`](LeafStatistics::Slots).
    ///
    /// They start at zero, and the state has each under its name, beside the fields made by
    /// [`start`](LeafStatistics::start).
    const SLOTS: &'static [Slot] = &[];
    /// True if each leaf's update follows from that leaf and its own state alone.
    ///
    /// The part must then leave [inactive](WholeTree::is_active) leaves unmodified; see
    /// [`Scope::LEAF`](super::Scope::LEAF).
    const BY_LEAF: bool = false;
    /// The values kept between steps, and the statistics.
    type State: State;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The statistics of one element, besides those of its leaf: `[C; N]`. With the slots at most 8; more do not
    /// compile.
    type Expanded<C: Real>: SlotArray<C>;
    /// The values that all elements of a leaf share.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// As [`WholeTreeTransformation::cost`](super::WholeTreeTransformation::cost).
    fn cost(&self, leaf: &LeafSpec) -> f64 {
        leaf.len() as f64
    }

    /// Returns the state before the first step, without the [arrays](LeafStatistics::SLOTS).
    ///
    /// # Errors
    ///
    /// If the part cannot work on these parameters.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// [Reads](WholeTree::observe) the updates and stores its statistics in the state. No [leaves](WholeTree::leaf) can
    /// be rewritten.
    fn collect_statistics(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);

    /// Computes, in `f64`, the values that all elements of a leaf share, and rounds them once with [`Real::of`].
    fn scalars<C: Real>(&self, state: &Self::State, leaf: usize) -> Self::Scalars<C>;

    /// Expands the statistics of a leaf to its elements, in memory order, from element `start` on.
    ///
    /// `to` has a slice for each number of [`Expanded`](LeafStatistics::Expanded), all of one length.
    fn expand<C: Real>(state: &Self::State, leaf: usize, start: usize, to: &mut [&mut [C]]) {
        let _ = (state, leaf, start, to);
    }

    /// Transforms the update `u` of one element. Write `#[inline(always)]` on it.
    ///
    /// Without [arrays](LeafStatistics::SLOTS) it may run more than once per element in a step.
    fn apply<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, found: &Self::Expanded<C>, u: C) -> C;
}

const fn expanded<P: LeafStatistics>() -> usize {
    <P::Expanded<f32> as SlotArray<f32>>::LEN
}

/// At most eight fit, nine do not compile:
///
/// ```
/// # use gradchain::part::{WithLeafStatistics, InitContext, LeafStatistics, Part, Slot, StepContext, WholeTree};
/// # use gradchain::{Real, Result, prelude::*};
/// # #[derive(Clone, Debug)]
/// # struct Mine;
/// # impl Part for Mine {
/// #     const NAME: &'static str = "mine";
/// #     type Form = WithLeafStatistics;
/// # }
/// # impl LeafStatistics for Mine {
/// #     const SLOTS: &'static [Slot] = &[Slot::exact("a"); 4];
/// #     type State = ();
/// #     type Slots<C: Real> = [C; 4];
/// #     type Expanded<C: Real> = [C; 4];
/// #     type Scalars<C: Real> = ();
/// #     fn start(&self, _: &InitContext<'_>) -> Result<()> { Ok(()) }
/// #     fn collect_statistics(&self, _: &mut (), _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
/// #     fn scalars<C: Real>(&self, _: &(), _: usize) {}
/// #     fn apply<C: Real>((): (), _: &mut [C; 4], _: &[C; 4], u: C) -> C { u }
/// # }
/// Mine.init(&1.0_f32).unwrap();
/// ```
///
/// ```compile_fail
/// # use gradchain::part::{WithLeafStatistics, InitContext, LeafStatistics, Part, Slot, StepContext, WholeTree};
/// # use gradchain::{Real, Result, prelude::*};
/// # #[derive(Clone, Debug)]
/// # struct Mine;
/// # impl Part for Mine {
/// #     const NAME: &'static str = "mine";
/// #     type Form = WithLeafStatistics;
/// # }
/// # impl LeafStatistics for Mine {
/// #     const SLOTS: &'static [Slot] = &[Slot::exact("a"); 4];
/// #     type State = ();
/// #     type Slots<C: Real> = [C; 4];
/// #     type Expanded<C: Real> = [C; 5];
/// #     type Scalars<C: Real> = ();
/// #     fn start(&self, _: &InitContext<'_>) -> Result<()> { Ok(()) }
/// #     fn collect_statistics(&self, _: &mut (), _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
/// #     fn scalars<C: Real>(&self, _: &(), _: usize) {}
/// #     fn apply<C: Real>((): (), _: &mut [C; 4], _: &[C; 5], u: C) -> C { u }
/// # }
/// Mine.init(&1.0_f32).unwrap();
/// ```
const fn slots<P: LeafStatistics>() -> usize {
    let slots = checked_slots(P::SLOTS, <P::Slots<f32> as SlotArray<f32>>::LEN) + expanded::<P>();
    assert!(
        slots <= MAX_SLOTS,
        "a part with leaf statistics has at most 8 values per element: state arrays and expanded statistics"
    );
    slots
}

fn fill<P: LeafStatistics, C: Real>(state: &dyn Any, leaf: usize, start: usize, to: &mut [&mut [C]]) {
    if let Some(state) = state.downcast_ref() {
        P::expand(state, leaf, start, to);
    }
}

impl<P: LeafStatistics> Form<P> for WithLeafStatistics {
    type Needs = Nothing;
    type State = PartState<P::State>;
    /// True once the barrier has read the updates; a step may end before.
    type Run = bool;
    type Kernel<C: Real> = P::Scalars<C>;

    const SHAPE: PassStructure = PassStructure {
        barriers: 1,
        stateful: (!P::SLOTS.is_empty() as u32) << 1,
        reads_updates: 1,
        unmodified: 1,
        joins: !P::BY_LEAF,
        ..PassStructure::NONE
    };
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = false;
    const ALWAYS_EMITS: bool = true;
    const ROWS: bool = false;
    const SLOTS: usize = slots::<P>();
    const SLOT_ACCESSES: SlotAccesses =
        append(SlotAccess::of(2, 2).of_all(), P::SLOTS.len(), SlotAccess::of(2, 0).of_all(), 0);

    fn validate(_: &P) -> Result<()> {
        const { slots::<P>() };
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State> {
        let here = local_leaves((P::NAME, P::BY_LEAF), at, &|leaf| part.cost(leaf))?;
        let at = &here.as_ref().map_or(*at, |here| at.with_active(here));
        Ok(PartState { memory: part.start(at)?, arrays: Arrays::new(P::SLOTS, at, &|slot| of_part(part, slot))? })
    }

    fn begin(_: &P, _: &mut Self::State, _: &StepContext<'_>) -> bool {
        false
    }

    fn barrier(
        part: &P,
        state: &mut Self::State,
        done: &mut bool,
        at: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        if sums.repeats.is_some() {
            return;
        }
        tree.device.enter(P::NAME);
        part.collect_statistics(&mut state.memory, at, &mut tree.without(at.resting));
        *done = true;
    }

    fn prepare_chunk<C: Real>(part: &P, state: &Self::State, done: &bool, at: StageChunk, then: &mut Then<'_, C>) {
        if const { C::RECORDS } {
            return then(&mut |_| C::refuse(NOT_REMOTE));
        }
        match Self::fuses_now(part, state, done, at.leaf) {
            true => fused(part, (state, done), at, then),
            false => then(&mut |_| {}),
        }
    }

    fn fuses_now(_: &P, state: &Self::State, done: &bool, leaf: usize) -> bool {
        *done && state.arrays.has(leaf)
    }

    #[inline]
    fn kernel<C: Real>(part: &P, state: &Self::State, _: &bool, leaf: usize) -> P::Scalars<C> {
        part.scalars(&state.memory, leaf)
    }

    fn slots<'a>(_: &P, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
        if const { expanded::<P>() > 0 } {
            let (single, double) = (fill::<P, f32>, fill::<P, f64>);
            list.push_statistics(Expansion { state: &state.memory, leaf, single, double }, expanded::<P>());
        }
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &P::Scalars<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        _: C,
        _: &mut [Contribution<C>],
    ) -> C {
        if !range.has(at + 1) {
            return u;
        }
        let (own, found) = slots.split_at_mut(const { P::SLOTS.len() });
        P::apply(*k, P::Slots::of(own), P::Expanded::of(found), u)
    }

    fn finish(_: &P, _: &mut Self::State, done: bool, _: Sums<'_>, outcome: &mut Outcome) {
        if done {
            *outcome = Outcome { emitted: true, ..*outcome };
        }
    }

    fn state_bytes(_: &P, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        if range.has(at + 1) { state.arrays.bytes(leaf, &|_| 2) } else { 0 }
    }
}
