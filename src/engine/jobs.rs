//! The loops of [`kernel`](super::kernel) as jobs for an instruction set, with what they go through.

use core::marker::PhantomData;
use core::ops::Range;

use super::Stage;
#[cfg(feature = "half")]
use super::blocks::{ReadBlocks, SlotBlocks, WriteBlocks};
#[cfg(feature = "half")]
use super::halves::{Format, Source, with_format};
use super::isa::{Baseline, Job, Set};
#[cfg(feature = "half")]
use super::kernel;
use super::kernel::{Loops, ReadAhead, Slots, no_slots};
use super::sums::{Added, AddsUp, Lanes, adding_up};
use super::uses::{arrays, is_given};
#[cfg(feature = "half")]
use crate::element::DType;
use crate::element::Real;
#[cfg(feature = "half")]
use crate::numeric::half_floats::are_converted;

/// If it drops the updates, because it only adds up or writes state arrays, `u` is nothing. Of the state arrays it is
/// for as many elements as there are updates, from the one with the number `first` on: these are cut off in the loop's
/// function, where it is known how many arrays there are.
pub(crate) struct Map<'a, 's, S: Stage, C: Real, const DROPS: bool, const FROM: usize, const TO: usize> {
    pub(crate) kernel: &'a S::Kernel<C>,
    pub(crate) from: &'a [C],
    pub(crate) u: &'a mut [C],
    pub(crate) p: &'a [C],
    pub(crate) slots: &'a mut Slots<'s, C>,
    pub(crate) first: usize,
    /// True if the reductions are needed; a loop over state arrays reduces in any case.
    pub(crate) adds: bool,
}

/// As `Apply`, on leaves of 16 bits: a block is brought into `f32` in registers, and back.
#[cfg(feature = "half")]
pub(crate) struct ApplyHalves<'a, 's, S: Stage, const FROM: usize, const TO: usize> {
    pub(crate) kernel: &'a S::Kernel<f32>,
    pub(crate) format: Format,
    /// Stored updates if the pass comes after a barrier before which they were stored, else gradients.
    pub(crate) g: Source<'a>,
    pub(crate) p: &'a mut [u16],
    pub(crate) slots: &'a mut Slots<'s, f32>,
}

/// As a `Map` that drops the updates, on leaves of 16 bits. Parameters that the pass does not look at may be missing.
#[cfg(feature = "half")]
pub(crate) struct DropHalves<'a, 's, S: Stage, const FROM: usize, const TO: usize> {
    pub(crate) kernel: &'a S::Kernel<f32>,
    pub(crate) format: Format,
    pub(crate) g: &'a [u16],
    pub(crate) p: &'a [u16],
    pub(crate) slots: &'a mut Slots<'s, f32>,
}

/// As `Apply`, where arrays have 16 bits or 32.
#[cfg(feature = "half")]
pub(crate) struct ApplyMixed<'a, S: Stage, const FROM: usize, const TO: usize> {
    pub(crate) kernel: S::Kernel<f32>,
    pub(crate) g: ReadBlocks<'a>,
    pub(crate) p: WriteBlocks<'a>,
    pub(crate) slots: SlotBlocks<'a>,
}

#[cfg(feature = "half")]
impl<S: Stage, const FROM: usize, const TO: usize> Job for ApplyMixed<'_, S, FROM, TO> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        self.run_on::<Baseline>();
    }
    #[inline(always)]
    fn run_on<I: Set>(self) {
        let ApplyMixed { kernel, g, p, slots } = self;
        let run = Loops::<S, kernel::On<I>, FROM, TO, 0>::MIXED;
        if const { !S::SHAPE.typed } {
            return run((kernel, None), g, p, slots);
        }
        match p.dtype() {
            DType::Bf16 => run((kernel, Some(DType::Bf16)), g, p, slots),
            DType::F16 if const { are_converted(I::ISA) } => run((kernel, Some(DType::F16)), g, p, slots),
            _ => run((kernel, Some(DType::F32)), g, p, slots),
        }
    }
}

pub(crate) struct Apply<'a, 's, S: Stage, C: Real, const FROM: usize, const TO: usize> {
    pub(crate) kernel: &'a S::Kernel<C>,
    pub(crate) g: ReadAhead<'a, C>,
    pub(crate) p: &'a mut [C],
    pub(crate) slots: &'a mut Slots<'s, C>,
}

impl<S: Stage, C: Real, const DROPS: bool, const FROM: usize, const TO: usize> Job
    for Map<'_, '_, S, C, DROPS, FROM, TO>
{
    type Output = Added;
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) -> Added {
        self.run_on::<Baseline>()
    }
    #[inline(always)]
    fn run_on<I: Set>(self) -> Added {
        adding_up::<S, _, TO>(By::<_, I>(self, PhantomData))
    }
}

/// A stretch of the first so many arrays.
#[inline(always)]
fn stretch_of<'a, C>(slots: &'a mut Slots<'_, C>, count: usize, stretch: Range<usize>) -> Slots<'a, C> {
    let mut cut = no_slots();
    for (i, slot) in slots.iter_mut().enumerate() {
        if i < count {
            cut[i] = &mut slot[stretch.clone()];
        }
    }
    cut
}

/// The first so many arrays. Jobs have them, and the kernel, by reference: a copy would be loaded in larger pieces than
/// those that were just written, for which the processor waits as long as a short leaf takes.
#[inline(always)]
fn lent<'a, C>(slots: &'a mut Slots<'_, C>, count: usize) -> Slots<'a, C> {
    let mut lent = no_slots();
    for (i, slot) in slots.iter_mut().enumerate() {
        if i < count {
            lent[i] = slot;
        }
    }
    lent
}

impl<S: Stage, I: Set, C: Real, const DROPS: bool, const FROM: usize, const TO: usize> AddsUp
    for By<Map<'_, '_, S, C, DROPS, FROM, TO>, I>
{
    #[inline(always)]
    fn run_with<const N: usize>(self, lanes: &mut Lanes<N>) {
        let By(job, _) = self;
        let (k, from, u) = (*job.kernel, job.from, job.u);
        let p = &job.p[..from.len()];
        let given = const { if is_given::<S>(DROPS, FROM, TO) { S::SLOTS } else { 0 } };
        let slots = stretch_of(job.slots, given, job.first..job.first + from.len());
        if const { DROPS } {
            return Loops::<S, (I, C), FROM, TO, N>::DROP(k, from, u, p, slots, lanes);
        }
        // Two loops, which fill whole registers: of one that adds up and writes, without state, the compiler makes one
        // of parts of them. A tile is still in the cache then.
        if const { arrays::<S>() == 0 && S::SHAPE.adds_in(TO) } && job.adds {
            Loops::<S, (I, C), FROM, TO, N>::DROP(k, from, &mut [], p, no_slots(), lanes);
        }
        Loops::<S, (I, C), FROM, TO, N>::MAP(k, from, u, p, slots, lanes);
    }
}

impl<S: Stage, C: Real, const FROM: usize, const TO: usize> Job for Apply<'_, '_, S, C, FROM, TO> {
    type Output = Added;
    #[inline(always)]
    fn run(self) -> Added {
        self.run_on::<Baseline>()
    }
    #[inline(always)]
    fn run_on<I: Set>(self) -> Added {
        adding_up::<S, _, TO>(By::<_, I>(self, PhantomData))
    }
}

impl<S: Stage, I: Set, C: Real, const FROM: usize, const TO: usize> AddsUp for By<Apply<'_, '_, S, C, FROM, TO>, I> {
    #[inline(always)]
    fn run_with<const N: usize>(self, t: &mut Lanes<N>) {
        let By(job, _) = self;
        Loops::<S, (I, C), FROM, TO, N>::APPLY(*job.kernel, job.g, job.p, lent(job.slots, S::SLOTS), t);
    }
}

/// Both kinds of jobs on leaves of 16 bits must know the instruction set, for their conversions.
#[cfg(feature = "half")]
macro_rules! by_set {
    ($($Halves:ident),*) => {$(
        impl<S: Stage, const FROM: usize, const TO: usize> Job for $Halves<'_, '_, S, FROM, TO> {
            type Output = Added;
            #[inline(always)]
            fn run(self) -> Added {
                self.run_on::<Baseline>()
            }
            #[inline(always)]
            fn run_on<I: Set>(self) -> Added {
                adding_up::<S, _, TO>(By::<_, I>(self, PhantomData))
            }
        }
    )*};
}
#[cfg(feature = "half")]
by_set!(ApplyHalves, DropHalves);

/// A job by an instruction set.
struct By<J, I>(J, PhantomData<I>);

#[cfg(feature = "half")]
impl<S: Stage, I: Set, const FROM: usize, const TO: usize> AddsUp for By<ApplyHalves<'_, '_, S, FROM, TO>, I> {
    #[inline(always)]
    fn run_with<const N: usize>(self, t: &mut Lanes<N>) {
        let By(job, _) = self;
        with_format!(in I, job.format, H => {
            Loops::<S, (I, H), FROM, TO, N>::HALVES(*job.kernel, job.g, job.p, lent(job.slots, S::SLOTS), t);
        });
    }
}

#[cfg(feature = "half")]
impl<S: Stage, I: Set, const FROM: usize, const TO: usize> AddsUp for By<DropHalves<'_, '_, S, FROM, TO>, I> {
    #[inline(always)]
    fn run_with<const N: usize>(self, t: &mut Lanes<N>) {
        let By(job, _) = self;
        with_format!(in I, job.format, H => {
            Loops::<S, (I, H), FROM, TO, N>::DROP_HALVES(*job.kernel, job.g, job.p, lent(job.slots, S::SLOTS), t);
        });
    }
}
