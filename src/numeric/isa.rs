//! Which vector instructions to run a loop with, decided at run time.
#![allow(unsafe_code, reason = "calling a function that was compiled for an instruction set the CPU was found to have")]

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that loops are compiled for.
///
/// The arithmetic is the same in each, to the last bit: only how many elements are in flight differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// What every CPU of the target has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// x86-64 with AVX2, and F16C, which all that have AVX2 have.
    Avx2,
    /// x86-64 with AVX-512 (F, BW, DQ, VL).
    Avx512,
}

/// 0: not asked for; else one more than the number of the set.
static FORCED: AtomicU8 = AtomicU8::new(0);

/// The widest instruction set of this CPU.
pub fn detected_isa() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("f16c");
        if avx512 {
            return Isa::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            return Isa::Avx2;
        }
    }
    Isa::Baseline
}

/// Makes all steps of this process use one instruction set, or with `None` the detected one again. For tests and
/// benchmarks; the results do not depend on it.
///
/// Asking for more than the CPU has gives what it has.
pub fn force_isa(isa: Option<Isa>) {
    FORCED.store(isa.map_or(0, |isa| isa as u8 + 1), Ordering::Relaxed);
}

pub(crate) fn current_isa() -> Isa {
    let detected = detected_isa();
    match FORCED.load(Ordering::Relaxed) {
        1 => Isa::Baseline,
        2 => Isa::Avx2.min(detected),
        _ => detected,
    }
}

/// A loop to run. A struct with a method, not a closure: a closure that is not strictly `FnOnce` is called through a
/// shim that may not be inlined, and then the loop is compiled for the baseline.
pub(crate) trait Job {
    type Output;
    /// Whether it is ever run. One on numbers of a type that only records is not, and has no loop.
    const IS_RUN: bool = true;
    /// Must be `#[inline(always)]`, so that it takes on the instruction set of its caller.
    fn run(self) -> Self::Output;
    /// As `run`, for what is written differently for each instruction set.
    #[inline(always)]
    fn run_on<S: Set>(self) -> Self::Output
    where
        Self: Sized,
    {
        self.run()
    }
}

/// The instruction set that a loop is compiled for, as a type.
pub(crate) trait Set {
    const ISA: Isa;
}

pub(crate) enum Baseline {}
impl Set for Baseline {
    const ISA: Isa = Isa::Baseline;
}

#[cfg(target_arch = "x86_64")]
pub(crate) enum Avx2 {}
#[cfg(target_arch = "x86_64")]
impl Set for Avx2 {
    const ISA: Isa = Isa::Avx2;
}

#[cfg(target_arch = "x86_64")]
pub(crate) enum Avx512 {}
#[cfg(target_arch = "x86_64")]
impl Set for Avx512 {
    const ISA: Isa = Isa::Avx512;
}

#[inline]
pub(crate) fn dispatch<J: Job>(isa: Isa, job: J) -> J::Output {
    match isa {
        // SAFETY: `current_isa` gives this value only where the CPU was found to have these features.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(job) },
        _ => baseline(job),
    }
}

/// Whether the loops of chains are compiled for one instruction set only, the baseline: in the tests of this crate, for
/// which `.cargo/config.toml` asks. There are thousands of them, and not optimized they are much the same for all sets.
/// Other loops, some of which are written differently for each set, are there for all.
pub(super) const ONE_SET: bool = cfg!(debug_assertions) && option_env!("GRADCHAIN_ONE_INSTRUCTION_SET").is_some();

/// The same for a loop of a chain, which is compiled for each chain and type of numbers.
#[inline]
pub(crate) fn dispatch_chain<J: Job>(isa: Isa, job: J) -> J::Output {
    Chosen::<J>::CHAIN(isa, job)
}

/// How a job is run. A constant says it, since of what a condition rules out the compiler goes through all that is
/// called in it.
struct Chosen<J>(PhantomData<J>);

impl<J: Job> Chosen<J> {
    const CHAIN: fn(Isa, J) -> J::Output = match (J::IS_RUN, ONE_SET) {
        (false, _) => Self::never,
        (true, false) => dispatch,
        (true, true) => Self::by_baseline,
    };

    fn by_baseline(_: Isa, job: J) -> J::Output {
        baseline(job)
    }

    fn never(_: Isa, _: J) -> J::Output {
        unreachable!("numbers that are recorded go through no loop")
    }
}

#[inline(never)]
fn baseline<J: Job>(job: J) -> J::Output {
    job.run_on::<Baseline>()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,f16c")]
fn avx2<J: Job>(job: J) -> J::Output {
    job.run_on::<Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<J: Job>(job: J) -> J::Output {
    job.run_on::<Avx512>()
}
