//! A look at whole leaves, and then one element.

use core::any::Any;

use super::super::found::Found;
use super::super::limits::MOST_SLOTS;
use super::super::whole::NOT_REMOTE;
use super::super::{
    AllUses, InitContext, Outcome, PieceAt, Shape, Slot, SlotList, Span, StepContext, Sums, Term, Then, Uses,
    WholeTree, followed_by, fused,
};
use super::rule::checked_slots;
use super::state::{Arrays, of_part};
use super::whole::whole_here;
use super::{Form, Part, PartState, SlotArray};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Nothing;
use crate::state::State;
use crate::tree::LeafSpec;

/// The form of a [`LooksFirst`]: it looks at whole leaves, and then changes each element by itself.
#[derive(Clone, Copy, Debug)]
pub enum AfterALook {}

/// A part that finds something out of whole leaves before it changes anything, and then changes each element by itself
/// and by what was found: the means of rows and columns, say.
///
/// The second half is arithmetic on one element, as that of a [`Rule`](super::Rule), and fuses with what comes after it
/// into one loop. What is found out need not be one number for a leaf: [`found`](LooksFirst::found) brings as many to
/// each element as it says, and they are nowhere as long as the leaf.
///
/// # Example
///
/// Divide each element by the largest of its leaf:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::Real;
/// use gradchain::part::{AfterALook, InitContext, LeafLooker, LooksFirst, Part, StepContext, WholeTree};
/// use gradchain::state::{PerLeaf, Scalar};
/// use gradchain::tree::LeafSpec;
///
/// #[derive(Clone, Debug)]
/// struct DivideByLargest;
///
/// impl Part for DivideByLargest {
///     const NAME: &'static str = "divide_by_largest";
///     type Form = AfterALook;
/// }
///
/// impl LooksFirst for DivideByLargest {
///     const BY_LEAF: bool = true;
///     type State = PerLeaf<Scalar>;
///     type Slots<C: Real> = [C; 0];
///     type Found<C: Real> = [C; 0];
///     type Scalars<C: Real> = C;
///
///     fn start(&self, at: &InitContext<'_>) -> gradchain::Result<PerLeaf<Scalar>> {
///         Ok(PerLeaf::new(at.active(), Scalar::new(1.0)))
///     }
///
///     fn look(&self, largest: &mut PerLeaf<Scalar>, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
///         tree.look(&mut Largest(largest));
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
/// impl LeafLooker for Largest<'_> {
///     fn look<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
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
/// One more pass, which reads the updates where they are: they are stored in memory only if something before it in the
/// chain has changed them. Gradients that are not dense, or not of the compute type (those of 16 bits), are copied for
/// it, and those of rows are refused. The numbers of [`found`](LooksFirst::found) are brought into the first-level
/// cache for half a thousand elements at a time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `AfterALook` and does not implement `LooksFirst`",
    note = "`impl LooksFirst for {Self}` says what the part does; `docs/own-whole-tree.md` has an example"
)]
pub trait LooksFirst: Part<Form = AfterALook> {
    /// The state arrays that [`apply`](LooksFirst::apply) rewrites, by name, as many as [`Slots`](LooksFirst::Slots)
    /// has. Their numbers start at zero, and the state has each under its name, beside what
    /// [`start`](LooksFirst::start) makes.
    const SLOTS: &'static [Slot] = &[];
    /// Whether each leaf's update follows from that leaf and its own state alone, and those of leaves that are not
    /// [acted on](WholeTree::is_active) are left as they are; see
    /// [`Scope::LEAF`](super::Scope::LEAF).
    const BY_LEAF: bool = false;
    /// What is remembered between steps, and what has been found.
    type State: State;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// What was found for one element, besides what is the same for a leaf: `[C; N]`. With the slots at most 8: more do
    /// not compile.
    type Found<C: Real>: SlotArray<C>;
    /// What is the same for a leaf.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// As [`WholeTreeTransformation::work`](super::WholeTreeTransformation::work).
    fn work(&self, leaf: &LeafSpec) -> f64 {
        leaf.len() as f64
    }

    /// The state before the first step, without the [arrays](LooksFirst::SLOTS).
    ///
    /// # Errors
    ///
    /// If the parameters are not of a kind that the part can work on.
    fn start(&self, at: &InitContext<'_>) -> Result<Self::State>;

    /// [Looks](WholeTree::look) at the updates, and writes down what it finds. There are no
    /// [leaves](WholeTree::leaf) to rewrite.
    fn look(&self, state: &mut Self::State, at: &StepContext<'_>, tree: &mut WholeTree<'_>);

    /// Works out, in `f64`, what is the same for a leaf, and rounds it once with [`Real::of`].
    fn scalars<C: Real>(&self, state: &Self::State, leaf: usize) -> Self::Scalars<C>;

    /// Brings what was found to a stretch of a leaf's elements, in memory order, from number `start` on: `to` has a
    /// stretch for each number of [`Found`](LooksFirst::Found), all of one length.
    fn found<C: Real>(state: &Self::State, leaf: usize, start: usize, to: &mut [&mut [C]]) {
        let _ = (state, leaf, start, to);
    }

    /// Transforms the update `u` of one element. Write `#[inline(always)]` on it. Without
    /// [arrays](LooksFirst::SLOTS) it may be done more than once in a step.
    fn apply<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, found: &Self::Found<C>, u: C) -> C;
}

/// How many numbers of one element come out of what was found.
const fn found<P: LooksFirst>() -> usize {
    <P::Found<f32> as SlotArray<f32>>::LEN
}

/// These, and those of its arrays.
///
/// Eight are room enough, nine are not:
///
/// ```
/// # use gradchain::part::{AfterALook, InitContext, LooksFirst, Part, Slot, StepContext, WholeTree};
/// # use gradchain::{Real, Result, prelude::*};
/// # #[derive(Clone, Debug)]
/// # struct Mine;
/// # impl Part for Mine {
/// #     const NAME: &'static str = "mine";
/// #     type Form = AfterALook;
/// # }
/// # impl LooksFirst for Mine {
/// #     const SLOTS: &'static [Slot] = &[Slot::exact("a"); 4];
/// #     type State = ();
/// #     type Slots<C: Real> = [C; 4];
/// #     type Found<C: Real> = [C; 4];
/// #     type Scalars<C: Real> = ();
/// #     fn start(&self, _: &InitContext<'_>) -> Result<()> { Ok(()) }
/// #     fn look(&self, _: &mut (), _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
/// #     fn scalars<C: Real>(&self, _: &(), _: usize) {}
/// #     fn apply<C: Real>((): (), _: &mut [C; 4], _: &[C; 4], u: C) -> C { u }
/// # }
/// Mine.init(&1.0_f32).unwrap();
/// ```
///
/// ```compile_fail
/// # use gradchain::part::{AfterALook, InitContext, LooksFirst, Part, Slot, StepContext, WholeTree};
/// # use gradchain::{Real, Result, prelude::*};
/// # #[derive(Clone, Debug)]
/// # struct Mine;
/// # impl Part for Mine {
/// #     const NAME: &'static str = "mine";
/// #     type Form = AfterALook;
/// # }
/// # impl LooksFirst for Mine {
/// #     const SLOTS: &'static [Slot] = &[Slot::exact("a"); 4];
/// #     type State = ();
/// #     type Slots<C: Real> = [C; 4];
/// #     type Found<C: Real> = [C; 5];
/// #     type Scalars<C: Real> = ();
/// #     fn start(&self, _: &InitContext<'_>) -> Result<()> { Ok(()) }
/// #     fn look(&self, _: &mut (), _: &StepContext<'_>, _: &mut WholeTree<'_>) {}
/// #     fn scalars<C: Real>(&self, _: &(), _: usize) {}
/// #     fn apply<C: Real>((): (), _: &mut [C; 4], _: &[C; 5], u: C) -> C { u }
/// # }
/// Mine.init(&1.0_f32).unwrap();
/// ```
const fn slots<P: LooksFirst>() -> usize {
    let slots = checked_slots(P::SLOTS, <P::Slots<f32> as SlotArray<f32>>::LEN) + found::<P>();
    assert!(slots <= MOST_SLOTS, "what looks first has at most 8 numbers of an element, in arrays and found");
    slots
}

fn fill<P: LooksFirst, C: Real>(state: &dyn Any, leaf: usize, start: usize, to: &mut [&mut [C]]) {
    if let Some(state) = state.downcast_ref() {
        P::found(state, leaf, start, to);
    }
}

impl<P: LooksFirst> Form<P> for AfterALook {
    type Needs = Nothing;
    type State = PartState<P::State>;
    /// Whether it has looked: what comes later in a step may never be.
    type Run = bool;
    type Kernel<C: Real> = P::Scalars<C>;

    const SHAPE: Shape = Shape {
        barriers: 1,
        stateful: (!P::SLOTS.is_empty() as u32) << 1,
        looks: 1,
        untouched: 1,
        joins: !P::BY_LEAF,
        ..Shape::NOTHING
    };
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = false;
    const ROWS: bool = false;
    const SLOTS: usize = slots::<P>();
    const USES: AllUses = followed_by(Uses::of(2, 2).of_all(), P::SLOTS.len(), Uses::of(2, 0).of_all(), 0);

    fn validate(_: &P) -> Result<()> {
        const { slots::<P>() };
        Ok(())
    }

    fn init_state(part: &P, at: &InitContext<'_>) -> Result<Self::State> {
        let here = whole_here((P::NAME, P::BY_LEAF), at, &|leaf| part.work(leaf))?;
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
        if sums.again.is_some() {
            return;
        }
        tree.remote.iter_mut().for_each(|remote| remote.enter(P::NAME));
        part.look(&mut state.memory, at, &mut tree.without(at.resting));
        *done = true;
    }

    fn in_piece<C: Real>(part: &P, state: &Self::State, done: &bool, at: PieceAt, then: &mut Then<'_, C>) {
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
        // With nothing to bring, arrays that are converted are gone through as those of other parts.
        if const { found::<P>() > 0 } {
            let (single, double) = (fill::<P, f32>, fill::<P, f64>);
            list.push_found(Found { state: &state.memory, leaf, single, double }, found::<P>());
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: &P::Scalars<C>, at: usize, span: Span, slots: &mut [C], u: C, _: C, _: &mut [Term<C>]) -> C {
        if !span.has(at + 1) {
            return u;
        }
        let (own, found) = slots.split_at_mut(const { P::SLOTS.len() });
        P::apply(*k, P::Slots::of(own), P::Found::of(found), u)
    }

    fn finish(_: &P, _: &mut Self::State, done: bool, _: Sums<'_>, outcome: &mut Outcome) {
        if done {
            *outcome = Outcome { emitted: true, ..*outcome };
        }
    }

    fn state_bytes(_: &P, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        if span.has(at + 1) { state.arrays.bytes(leaf, &|_| 2) } else { 0 }
    }
}
