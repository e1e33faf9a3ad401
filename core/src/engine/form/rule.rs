//! Rules: arithmetic on one element.

use core::marker::PhantomData;

use super::super::limits::MAX_SLOTS;
use super::super::{
    Contribution, InitContext, Outcome, PassRange, PassStructure, Slot, SlotAccess, SlotAccesses, SlotList, StageChunk,
    StepContext, Sums, Then, fused,
};
use super::state::{Arrays, of_part};
use super::{Form, Part, PartState};
use crate::element::{BothTypes, Real, TypeFamily};
use crate::error::Result;
use crate::state::{Count, PerLeaf, state_fields};

/// The form of a [`Rule`]: arithmetic on one element, a step count, and state arrays.
#[derive(Clone, Copy, Debug)]
pub enum OneElement {}

/// Arithmetic on one element that reads like the paper: hyperparameters, scalars per step, and one function.
///
/// A rule is a [`GradientTransformation`](crate::GradientTransformation): it can be chained, masked, wrapped and boxed,
/// and fuses with its neighbours into one loop. It has no loop, no tree, no dtype and no threads of its own.
///
/// # Example
///
/// Sign descent with momentum, from nothing:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
/// use gradchain::part::{Clock, OneElement, Part, Rule, Slot};
/// use gradchain::Real;
/// use ndarray::array;
///
/// /// Replaces updates by the sign of their running mean.
/// #[derive(Clone, Debug)]
/// struct ScaleBySignOfMean { decay: f64 }
///
/// impl Part for ScaleBySignOfMean {
///     const NAME: &'static str = "scale_by_sign_of_mean";
///     type Form = OneElement;
/// }
///
/// impl Rule for ScaleBySignOfMean {
///     const SLOTS: &'static [Slot] = &[Slot::signed("mean")];
///     type Slots<C: Real> = [C; 1];
///     type Scalars<C: Real> = [C; 2];
///
///     fn scalars<C: Real>(&self, _: Clock) -> [C; 2] {
///         [C::of(self.decay), C::of(1.0 - self.decay)]
///     }
///
///     fn apply<C: Real>([keep, take]: [C; 2], [mean]: &mut [C; 1], u: C, _: C) -> C {
///         *mean = keep * *mean + take * u;
///         mean.signum()
///     }
/// }
///
/// let optimizer = chain((ScaleBySignOfMean { decay: 0.9 }, scale(-0.5)));
/// let mut params = array![1.0_f32, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &array![3.0_f32, -2.0], &mut state)?;
/// assert_eq!(params, array![0.5, 1.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has the form `OneElement` but does not implement `Rule`",
    note = "implement `Rule` for `{Self}`; `docs/own-rule.md` has an example"
)]
pub trait Rule: Part<Form = OneElement> {
    /// The state arrays, by name, as many as [`Slots`](Rule::Slots) has. A rule with more than 8, or with another
    /// number of names, does not compile.
    const SLOTS: &'static [Slot] = &[];
    /// True if `apply` reads the parameter.
    const READS_PARAMS: bool = false;
    /// The state of one element: `[C; N]`.
    type Slots<C: Real>: SlotArray<C>;
    /// The values computed once per step.
    type Scalars<C: Real>: Copy + Send + Sync;

    /// Adjusts a state array to the arguments of the part, if they set its initial value or dtype.
    fn slot(&self, slot: Slot) -> Slot {
        slot
    }

    /// Computes, in `f64`, the values that all elements share, and rounds them once with [`Real::of`].
    ///
    /// Called once for the leaves that were updated in every step, and once for each other leaf.
    fn scalars<C: Real>(&self, clock: Clock) -> Self::Scalars<C>;

    /// Transforms the update `u` of one element with parameter `p`. Write `#[inline(always)]` on it.
    ///
    /// A panic in it ends the step and [poisons](crate::Error::is_poisoned) the state.
    fn apply<C: Real>(k: Self::Scalars<C>, slots: &mut Self::Slots<C>, u: C, p: C) -> C;
}

/// The numbers of past steps of a transformation and of past updates of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clock {
    /// Steps before this one, at which schedules are evaluated.
    pub count: u64,
    /// Updates of the leaf before this one, which its state arrays have seen. Less than `count` if the leaf was
    /// [frozen] or had [no gradient] in some steps.
    ///
    /// [frozen]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    /// [no gradient]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
    pub updates: u64,
}

impl Clock {
    /// Returns the clock after `count` steps that all updated the leaf.
    pub fn after(count: u64) -> Clock {
        Clock { count, updates: count }
    }

    /// Counts a step, and an update of each leaf that does not [rest](StepContext::rests) in it. Returns the clock
    /// before it. If updates are not counted by leaf, `updates` is [empty](InitContext::updates).
    pub fn begin(count: &mut Count, updates: &mut PerLeaf<Count>, at: &StepContext<'_>) -> Clock {
        let clock = Clock::after(count.get());
        count.increment();
        updates.iter_mut().filter(|(leaf, _)| !at.rests(*leaf)).for_each(|(_, updates)| updates.increment());
        clock
    }

    /// Returns the clock of a leaf that was updated in the step that [began](Clock::begin) with `self`.
    pub fn of_leaf(self, updates: &PerLeaf<Count>, leaf: usize) -> Clock {
        let updates = updates.get(leaf).map_or(self.updates, |updates| updates.get().saturating_sub(1));
        Clock { updates, ..self }
    }

    /// Returns the number of this update of the leaf, from 1: the `t` of bias corrections.
    pub fn t(self) -> f64 {
        self.updates.saturating_add(1) as f64
    }

    /// Returns `1 − decayᵗ`, the divisor of a running mean that started at zero; 1 for large `t`.
    pub fn bias_correction(self, decay: f64) -> f64 {
        1.0 - decay.powf(self.t())
    }
}

/// A fixed number of values: the state of one element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold the state of one element",
    label = "an array is expected, such as `[{C}; 2]`",
    note = "`Slots` is an array of one value for each state array: `[C; 2]` for two, `[C; 0]` for none"
)]
pub trait SlotArray<C>: SlotSlices<C> + Copy {
    /// The number of values.
    const LEN: usize;
    /// Borrows the first `LEN` values of a slice.
    fn of(slots: &mut [C]) -> &mut Self;
    /// Returns the values.
    fn as_slice(&self) -> &[C];
}

/// The number of a loop's arrays, as a type. Users cannot name this trait.
pub trait SlotSlices<C> {
    /// The slices, one for each array.
    type Slices<'a>
    where
        C: 'a;
    /// Takes the first of the slices.
    fn slices<'a>(slots: [&'a mut [C]; MAX_SLOTS]) -> Self::Slices<'a>;
}

impl<C: Real, const N: usize> SlotArray<C> for [C; N] {
    const LEN: usize = N;
    #[inline(always)]
    fn of(slots: &mut [C]) -> &mut [C; N] {
        slots.try_into().expect("the engine passes as many slots as the rule has")
    }
    #[inline(always)]
    fn as_slice(&self) -> &[C] {
        self
    }
}

impl<C: Real, const N: usize> SlotSlices<C> for [C; N] {
    type Slices<'a> = [&'a mut [C]; N];
    fn slices(slots: [&mut [C]; MAX_SLOTS]) -> [&mut [C]; N] {
        let mut slots = slots.into_iter();
        core::array::from_fn(|_| slots.next().unwrap_or_default())
    }
}

/// The step counts of a rule.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Steps {
    /// The number of steps.
    pub count: Count,
    /// The number of updates of each leaf. Empty if all leaves are updated in every step, which is so outside of
    /// [`freezable`] and [`skip_absent`].
    ///
    /// [`freezable`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.freezable.html
    /// [`skip_absent`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.skip_absent.html
    pub updates: PerLeaf<Count>,
}

state_fields!(Steps { count, updates });

pub(crate) struct ScalarsOf<R>(PhantomData<R>);

impl<R: Rule> TypeFamily for ScalarsOf<R> {
    type Of<C: Real> = R::Scalars<C>;
}

/// A rule's scalars of a step in both compute types, and the clock for those of other types.
pub struct RuleRun<R: Rule>(BothTypes<ScalarsOf<R>>, Clock);

/// Returns the number of a part's state arrays; does not compile unless all have names and fit.
///
/// ```
/// # use gradchain::{Real, part::{Clock, OneElement, Part, Rule, Slot}, prelude::*};
/// # macro_rules! rule {
/// #     ($n:literal, $slots:expr) => {
/// #         #[derive(Clone, Debug)]
/// #         struct Mine;
/// #         impl Part for Mine {
/// #             const NAME: &'static str = "mine";
/// #             type Form = OneElement;
/// #         }
/// #         impl Rule for Mine {
/// #             const SLOTS: &'static [Slot] = &$slots;
/// #             type Slots<C: Real> = [C; $n];
/// #             type Scalars<C: Real> = ();
/// #             fn scalars<C: Real>(&self, _: Clock) {}
/// #             fn apply<C: Real>((): (), _: &mut [C; $n], u: C, _: C) -> C { u }
/// #         }
/// #     };
/// # }
/// rule!(8, [Slot::exact("a"); 8]);
/// Mine.init(&1.0_f32).unwrap();
/// ```
///
/// ```compile_fail
/// # use gradchain::{Real, part::{Clock, OneElement, Part, Rule, Slot}, prelude::*};
/// # macro_rules! rule {
/// #     ($n:literal, $slots:expr) => {
/// #         #[derive(Clone, Debug)]
/// #         struct Mine;
/// #         impl Part for Mine {
/// #             const NAME: &'static str = "mine";
/// #             type Form = OneElement;
/// #         }
/// #         impl Rule for Mine {
/// #             const SLOTS: &'static [Slot] = &$slots;
/// #             type Slots<C: Real> = [C; $n];
/// #             type Scalars<C: Real> = ();
/// #             fn scalars<C: Real>(&self, _: Clock) {}
/// #             fn apply<C: Real>((): (), _: &mut [C; $n], u: C, _: C) -> C { u }
/// #         }
/// #     };
/// # }
/// rule!(9, [Slot::exact("a"); 9]);
/// Mine.init(&1.0_f32).unwrap();
/// ```
///
/// ```compile_fail
/// # use gradchain::{Real, part::{Clock, OneElement, Part, Rule, Slot}, prelude::*};
/// # macro_rules! rule {
/// #     ($n:literal, $slots:expr) => {
/// #         #[derive(Clone, Debug)]
/// #         struct Mine;
/// #         impl Part for Mine {
/// #             const NAME: &'static str = "mine";
/// #             type Form = OneElement;
/// #         }
/// #         impl Rule for Mine {
/// #             const SLOTS: &'static [Slot] = &$slots;
/// #             type Slots<C: Real> = [C; $n];
/// #             type Scalars<C: Real> = ();
/// #             fn scalars<C: Real>(&self, _: Clock) {}
/// #             fn apply<C: Real>((): (), _: &mut [C; $n], u: C, _: C) -> C { u }
/// #         }
/// #     };
/// # }
/// rule!(8, [Slot::exact("a"); 7]);
/// Mine.init(&1.0_f32).unwrap();
/// ```
pub(super) const fn checked_slots(names: &[Slot], slots: usize) -> usize {
    assert!(names.len() == slots, "`SLOTS` of a rule must have one name for each array of its `Slots`");
    assert!(slots <= MAX_SLOTS, "a rule has at most 8 slots");
    slots
}

/// Returns true if an array also changes where a gradient is absent.
const fn need_all_rows(slots: &[Slot]) -> bool {
    let mut slot = 0;
    while slot < slots.len() && !slots[slot].needs_all_rows() {
        slot += 1;
    }
    slot < slots.len()
}

impl<R: Rule> Form<R> for OneElement {
    type Needs = crate::needs::Nothing;
    type State = PartState<Steps>;
    type Run = RuleRun<R>;
    type Kernel<C: Real> = R::Scalars<C>;

    const SHAPE: PassStructure = PassStructure::elementwise(!R::SLOTS.is_empty(), R::READS_PARAMS);
    const FUSES: bool = true;
    const FUSES_ALWAYS: bool = true;
    const ALWAYS_EMITS: bool = true;
    const ROWS: bool = !need_all_rows(R::SLOTS);
    const SLOTS: usize = checked_slots(R::SLOTS, <R::Slots<f32> as SlotArray<f32>>::LEN);
    const SLOT_ACCESSES: SlotAccesses = SlotAccess::of(1, 1).of_all();

    fn validate(_: &R) -> Result<()> {
        const { checked_slots(R::SLOTS, <R::Slots<f32> as SlotArray<f32>>::LEN) };
        Ok(())
    }

    fn init_state(rule: &R, at: &InitContext<'_>) -> Result<PartState<Steps>> {
        let memory = Steps { count: Count::default(), updates: at.updates() };
        Ok(PartState { memory, arrays: Arrays::new(R::SLOTS, at, &|slot| of_part(rule, rule.slot(slot)))? })
    }

    fn begin(rule: &R, state: &mut PartState<Steps>, at: &StepContext<'_>) -> RuleRun<R> {
        let Steps { count, updates } = &mut state.memory;
        let clock = Clock::begin(count, updates, at);
        RuleRun(BothTypes { single: rule.scalars(clock), double: rule.scalars(clock) }, clock)
    }

    fn prepare_chunk<C: Real>(rule: &R, state: &Self::State, run: &RuleRun<R>, at: StageChunk, then: &mut Then<'_, C>) {
        fused(rule, (state, run), at, then);
    }

    #[inline]
    fn kernel<C: Real>(rule: &R, state: &Self::State, run: &RuleRun<R>, leaf: usize) -> R::Scalars<C> {
        let clock = run.1.of_leaf(&state.memory.updates, leaf);
        let of_all = if clock == run.1 { C::member(&run.0).copied() } else { None };
        of_all.unwrap_or_else(|| rule.scalars(clock))
    }

    fn slots<'a>(_: &R, state: &'a Self::State, leaf: usize, list: &mut SlotList<'a>) {
        state.arrays.list(leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(
        k: &R::Scalars<C>,
        at: usize,
        range: PassRange,
        slots: &mut [C],
        u: C,
        p: C,
        _: &mut [Contribution<C>],
    ) -> C {
        if range.has(at) { R::apply(*k, R::Slots::of(slots), u, p) } else { u }
    }

    fn finish(_: &R, _: &mut Self::State, run: RuleRun<R>, _: Sums<'_>, outcome: &mut Outcome) {
        let of_zero = |slots: &mut _| R::apply(run.0.double, slots, 0.0, 0.0);
        outcome.emitted = outcome.emitted || !keeps_zeros::<R::Slots<f64>>(R::READS_PARAMS, of_zero);
    }

    fn state_bytes(_: &R, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
        if range.has(at) { state.arrays.bytes(leaf, &|_| 2) } else { 0 }
    }
}

/// Returns true if a rule maps zero updates to zero; evaluates only rules that depend on the update alone.
pub(super) fn keeps_zeros<S: SlotArray<f64>>(reads_params: bool, of_zero: impl FnOnce(&mut S) -> f64) -> bool {
    S::LEN == 0 && !reads_params && of_zero(S::of(&mut [])) == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "`SLOTS` of a rule must have one name for each array of its `Slots`")]
    fn a_slot_without_a_name() {
        checked_slots(&[Slot::exact("a"); 7], 8);
    }

    #[test]
    #[should_panic(expected = "a rule has at most 8 slots")]
    fn nine_slots() {
        checked_slots(&[Slot::exact("a"); 9], 9);
    }
}
