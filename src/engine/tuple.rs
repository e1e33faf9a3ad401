//! A chain is a tuple of its members.

use super::context::is_among;
use super::in_piece::{Members, PieceAt, Then, as_one_loop, in_members};
use super::kernel::{MOST_BARRIERS, MOST_SLOTS};
use super::sums::{MOST_SUMS, cut_off};
use super::{
    Absent, AllUses, Emission, HoldsBack, InitContext, Outcome, Outline, Shape, Skips, SlotList, Span, Stage,
    StepContext, Sums, Term, Uses, WholeTree, followed_by, goes_around,
};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::needs::Level;
use crate::recipe::Recipe;
use crate::state::StateWalk;

/// Whether an element loop can have so many state arrays, sums and barriers, and numbers that one part has found.
pub(crate) const fn fits(shape: Shape, slots: usize) -> bool {
    slots <= MOST_SLOTS
        && shape.sums <= MOST_SUMS
        && shape.barriers <= MOST_BARRIERS
        && shape.materializes == 0
        && shape.looks.count_ones() <= 1
}

/// What several stages need together.
macro_rules! needs_of {
    () => { crate::needs::Nothing };
    ($T:ident $($U:ident)*) => { <$T::Needs as crate::needs::Needs>::Or<crate::engine::needs_of!($($U)*)> };
}
pub(crate) use needs_of;

/// Whether a chain with members of these numbers has none.
const fn is_empty(members: &[usize]) -> bool {
    members.is_empty()
}

/// What the members of a chain have worked out for a step. `R` is a tuple with an option for each member: none for one
/// that has not begun, since it is not decided whether it is reached, or since nothing reaches it.
pub struct ChainRun<R> {
    members: R,
    /// True if a member emitted updates of some leaves only, so that the others rest in those after it.
    partly: bool,
}

/// A chain in a step.
struct InStep<'a, T: Stage> {
    chain: &'a T,
    state: &'a T::State,
    run: &'a T::Run,
    /// How many members run on the leaf.
    len: usize,
}

/// Why a chain's loop finds that all members have begun.
const BEGUN: &str = "a chain is one loop if all its members have begun";

/// The leaves that rest from a member of a chain on: those of the member, which has those before it among them, or
/// those before it.
pub(crate) fn resting_from<'a>(before: &'a [bool], member: &'a [bool]) -> &'a [bool] {
    if member.is_empty() { before } else { member }
}

/// Returns whether leaves may rest in some steps after this member of a chain, and not in others.
pub(crate) fn rests_by_leaf<T: Stage, M: Stage>(chain: &T, member: &M) -> bool {
    member.holds_back() == HoldsBack::Some && !chain.shape().joins
}

/// What a chain asks of its members in their order.
trait OfMembers: Stage {
    /// Begins the members that updates reach and that have not begun: those after one that is decided to emit.
    fn begin_reached(&self, state: &mut Self::State, run: &mut Self::Run, at: &StepContext<'_>);
    /// Returns how many members run on a leaf.
    fn reached(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> usize;
}

/// One macro, since tuples of different lengths have nothing in common that a generic `impl` could name. Each method
/// does the same for every member in order, with the place after the members before it.
macro_rules! chains {
    ($($T:ident $i:tt),*) => {
        #[allow(unused_variables, reason = "the empty chain has no members")]
        impl<$($T: Stage,)* Cx: Real> Members<Cx> for InStep<'_, ($($T,)*)> {
            fn len(&self) -> usize {
                self.len
            }

            fn is_whole(&self) -> bool {
                self.len == <[usize]>::len(&[$($i),*])
            }

            fn shape(&self, member: usize) -> Shape {
                match member {
                    $($i => self.chain.$i.shape(),)*
                    _ => Shape::NOTHING,
                }
            }

            fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, Cx>) {
                match member {
                    $($i => {
                        if let Some(run) = &self.run.members.$i {
                            self.chain.$i.in_piece(&self.state.$i, run, at, then);
                        }
                    })*
                    _ => {}
                }
            }
        }

        #[allow(unused_variables, unused_mut, unused_assignments, reason = "after the last member nothing comes")]
        impl<$($T: Stage,)*> OfMembers for ($($T,)*) {
            fn begin_reached(&self, state: &mut Self::State, run: &mut Self::Run, at: &StepContext<'_>) {
                let mut at = *at;
                $(
                    let member = run.members.$i.get_or_insert_with(|| self.$i.begin(&mut state.$i, &at));
                    let emission = self.$i.emission(&state.$i, member);
                    if !emission.reaches_next() {
                        return;
                    }
                    at.by_leaf |= rests_by_leaf(self, &self.$i);
                    // What works on several leaves together works on all of them.
                    if emission == Emission::Partly && !self.shape().joins {
                        run.partly = true;
                        at.resting = resting_from(at.resting, self.$i.resting(&state.$i));
                    }
                )*
            }

            fn reached(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> usize {
                let mut reached = 0;
                $(
                    if run.members.$i.is_none() {
                        return reached;
                    }
                    reached += 1;
                    if run.partly && is_among(self.$i.resting(&state.$i), leaf) {
                        return reached;
                    }
                )*
                reached
            }
        }

        #[allow(
            unused_variables,
            unused_mut,
            unused_assignments,
            clippy::unused_unit,
            reason = "the empty chain has nothing to do"
        )]
        impl<$($T: Stage),*> Stage for ($($T,)*) {
            type Needs = needs_of!($($T)*);
            type State = ($($T::State,)*);
            type Run = ChainRun<($(Option<$T::Run>,)*)>;
            type Kernel<Cx: Real> = ($($T::Kernel<Cx>,)*);

            const SHAPE: Shape = { let s = Shape::EMPTY; $(let s = s.then($T::SHAPE);)* s };
            const SLOTS: usize = 0 $(+ $T::SLOTS)*;
            const USES: AllUses = {
                let (mut uses, mut arrays, mut before) = (Uses::ALWAYS.of_all(), 0, 0);
                $(
                    uses = followed_by(uses, arrays, $T::USES, before);
                    (arrays, before) = (arrays + $T::SLOTS, before + $T::SHAPE.barriers);
                )*
                uses
            };
            const FUSES: bool = true $(&& $T::FUSES)* && fits(Self::SHAPE, Self::SLOTS);
            const FUSES_ALWAYS: bool = Self::FUSES $(&& $T::FUSES_ALWAYS)*;
            const WHOLE: bool = !is_empty(&[$($i),*]);

            fn shape(&self) -> Shape {
                let s = Shape::EMPTY;
                $(let s = s.then(self.$i.shape());)*
                s
            }

            fn needs(&self) -> Level {
                Level::Nothing$(.max(self.$i.needs()))*
            }

            fn absent(&self) -> Absent {
                Absent::Rests$(.max(self.$i.absent()))*
            }

            fn has_windows(&self) -> bool {
                false $(|| self.$i.has_windows())*
            }

            fn skips(&self, skips: &mut Skips, place: &str) -> bool {
                goes_around(self, skips, place) || {
                    let mut all = true;
                    $(all &= self.$i.skips(skips, &format!("{place}.chain[{}]", $i));)*
                    all
                }
            }

            fn validate(&self) -> Result<()> {
                Error::all([$(self.$i.validate()),*])
            }

            fn changed(&self, made: &Self) -> Option<&'static str> {
                None$(.or_else(|| self.$i.changed(&made.$i)))*
            }

            fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
                let mut at = *at;
                Ok(($({
                    let state = self.$i.init_state(&at)?;
                    at.by_leaf |= rests_by_leaf(self, &self.$i);
                    state
                },)*))
            }

            fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
                $(self.$i.check(&state.$i, at)?;)*
                Ok(())
            }

            fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
                let mut run = ChainRun { members: ($(None::<$T::Run>,)*), partly: false };
                self.begin_reached(state, &mut run, at);
                run
            }

            fn barrier(&self, state: &mut Self::State, run: &mut Self::Run, at: &StepContext<'_>, index: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>) {
                let (mut index, mut sums, around) = (index, sums, at);
                let mut at = *at;
                $(
                    let shape = self.$i.shape();
                    if index < shape.barriers {
                        if let Some(run) = &mut run.members.$i {
                            self.$i.barrier(&mut state.$i, run, &at, index, sums, tree);
                        }
                        return self.begin_reached(state, run, around);
                    }
                    index -= shape.barriers;
                    sums = sums.skip(shape.sums);
                    at.by_leaf |= rests_by_leaf(self, &self.$i);
                    if run.partly {
                        at.resting = resting_from(at.resting, self.$i.resting(&state.$i));
                        sums.resting = at.resting;
                    }
                )*
            }

            fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
                let mut sums = sums;
                $(
                    let Some(member) = run.members.$i else { return };
                    self.$i.finish(&mut state.$i, member, sums, outcome);
                    sums = sums.skip(self.$i.shape().sums);
                    if run.partly {
                        sums.resting = resting_from(sums.resting, self.$i.resting(&state.$i));
                    }
                )*
            }

            #[inline(always)]
            fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
                let (mut before, mut emission) = (0, Emission::Updates);
                $(
                    let Some(member) = &run.members.$i else { return Emission::Undecided };
                    emission = self.$i.emission(&state.$i, member).after(before);
                    if !emission.reaches_next() {
                        return emission;
                    }
                    before += self.$i.shape().barriers;
                )*
                if run.partly { Emission::Partly } else { emission }
            }

            fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
                let resting: &[bool] = &[];
                $(let resting = resting_from(resting, self.$i.resting(&state.$i));)*
                resting
            }

            fn holds_back(&self) -> HoldsBack {
                HoldsBack::Never $(.max(self.$i.holds_back()))*
            }

            fn in_piece<Cx: Real>(&self, state: &Self::State, run: &Self::Run, at: PieceAt, then: &mut Then<'_, Cx>) {
                match as_one_loop(self, (state, run), at.leaf) {
                    Some(one_loop) => one_loop(self, (state, run), at, then),
                    None => in_members(&InStep { chain: self, state, run, len: self.reached(state, run, at.leaf) }, at, then),
                }
            }

            fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
                Self::FUSES_ALWAYS
                    || Self::FUSES
                        && !run.partly
                        $(&& run.members.$i.as_ref().is_some_and(|run| self.$i.fuses_now(&state.$i, run, leaf)))*
            }

            #[inline]
            fn kernel<Cx: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<Cx> {
                ($(self.$i.kernel::<Cx>(&state.$i, run.members.$i.as_ref().expect(BEGUN), leaf),)*)
            }

            fn slots<'a>(&self, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
                $(self.$i.slots(&state.$i, leaf, list);)*
            }

            #[inline(always)]
            fn apply<Cx: Real>(kernel: &Self::Kernel<Cx>, at: usize, span: Span, slots: &mut [Cx], u: Cx, p: Cx, terms: &mut [Term<Cx>]) -> Cx {
                let (mut at, mut u, mut slots, mut terms) = (at, u, slots, terms);
                $(
                    let (own, slots) = cut_off(slots, $T::SLOTS);
                    let (sums, terms) = cut_off(terms, $T::SHAPE.sums);
                    // Else it leaves the update as it is: a build that is not optimized saves the call.
                    if span.from <= at + $T::SHAPE.barriers && at <= span.to {
                        u = $T::apply::<Cx>(&kernel.$i, at, span, own, u, p, sums);
                    }
                    at += $T::SHAPE.barriers;
                )*
                u
            }

            fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
                let (mut at, mut bytes) = (at, 0);
                $(
                    bytes += self.$i.state_bytes(&state.$i, leaf, at, span);
                    at += self.$i.shape().barriers;
                )*
                bytes
            }

            fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
                $(self.$i.unused(&state.$i, report);)*
            }

            fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
                $(walk.member($i, &mut |walk| self.$i.read(&state.$i, walk))?;)*
                Ok(())
            }

            fn outline(&self) -> Outline {
                Outline::Chain(vec![$(self.$i.outline()),*])
            }

            fn recipe(&self) -> Recipe {
                Recipe::Map(vec![("chain".into(), Recipe::List(vec![$(self.$i.recipe()),*]))])
            }

            fn describe(&self) -> String {
                let parts: &[String] = &[$(self.$i.describe()),*];
                let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| *part != EMPTY).collect();
                format!("chain({})", parts.join(", "))
            }
        }
    };
}
crate::tuples::up_to_twelve!(chains);

/// The description of a chain without members, which a chain around it leaves out: `sgd` without momentum has one.
const EMPTY: &str = "chain()";
