//! Selection of a loop's SIMD level at run time.
#![allow(unsafe_code, reason = "calls functions compiled for a SIMD level that the CPU has")]

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, Ordering};

/// A SIMD level that loops are compiled for.
///
/// The loops have bitwise identical results on all levels: only the number of elements in flight differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// The baseline of the target: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// x86-64 with AVX2, and with F16C, which all CPUs with AVX2 have.
    Avx2,
    /// x86-64 with AVX-512 (F, BW, DQ, VL).
    Avx512,
}

/// 0 if not forced, else the level plus one.
static FORCED_LEVEL: AtomicU8 = AtomicU8::new(0);

/// Returns the widest SIMD level of this CPU.
pub fn detected_simd_level() -> SimdLevel {
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("f16c");
        if avx512 {
            return SimdLevel::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            return SimdLevel::Avx2;
        }
    }
    SimdLevel::Baseline
}

/// Forces a SIMD level for all steps of this process, or with `None` the detected one again.
///
/// It is for tests and benchmarks; results do not depend on it. A level beyond the CPU's is lowered to the CPU's.
pub fn force_simd_level(simd: Option<SimdLevel>) {
    FORCED_LEVEL.store(simd.map_or(0, |simd| simd as u8 + 1), Ordering::Relaxed);
}

/// Returns the SIMD level of the loops.
pub fn current_simd_level() -> SimdLevel {
    let detected = detected_simd_level();
    match FORCED_LEVEL.load(Ordering::Relaxed) {
        1 => SimdLevel::Baseline,
        2 => SimdLevel::Avx2.min(detected),
        _ => detected,
    }
}

/// A loop to run. A struct with a method: a closure that is not strictly `FnOnce` is called through a shim that may not
/// be inlined, and its loop compiled for the baseline.
pub trait Job {
    /// The result.
    type Output;
    /// False on recorded numbers: the job never runs and needs no loop.
    const IS_RUN: bool = true;
    /// Must be `#[inline(always)]`, to be compiled for the caller's SIMD level.
    fn run(self) -> Self::Output;
    /// As `run`, for code that differs by SIMD level.
    #[inline(always)]
    fn run_on<S: SimdType>(self) -> Self::Output
    where
        Self: Sized,
    {
        self.run()
    }
}

/// A SIMD level, as a type.
pub trait SimdType {
    /// The level.
    const SIMD: SimdLevel;
}

pub(crate) enum Baseline {}
impl SimdType for Baseline {
    const SIMD: SimdLevel = SimdLevel::Baseline;
}

#[cfg(target_arch = "x86_64")]
pub(crate) enum Avx2 {}
#[cfg(target_arch = "x86_64")]
impl SimdType for Avx2 {
    const SIMD: SimdLevel = SimdLevel::Avx2;
}

#[cfg(target_arch = "x86_64")]
pub(crate) enum Avx512 {}
#[cfg(target_arch = "x86_64")]
impl SimdType for Avx512 {
    const SIMD: SimdLevel = SimdLevel::Avx512;
}

/// Runs a job compiled for a SIMD level, at most that of the CPU.
#[inline]
pub fn dispatch_on_cpu<J: Job>(simd: SimdLevel, job: J) -> J::Output {
    dispatch(simd.min(detected_simd_level()), job)
}

#[inline]
pub(crate) fn dispatch<J: Job>(simd: SimdLevel, job: J) -> J::Output {
    match simd {
        // SAFETY: `current_simd_level` returns this value only if the CPU has these features.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { avx512(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { avx2(job) },
        _ => baseline(job),
    }
}

/// True if chains' loops are compiled for the baseline only: in this crate's tests, as `.cargo/config.toml` requests.
/// Tests have thousands, which hardly differ between levels unoptimized. Other loops, some with code per level, exist
/// for all.
pub(super) const BASELINE_ONLY: bool = cfg!(debug_assertions) && option_env!("GRADCHAIN_ONE_INSTRUCTION_SET").is_some();

/// As [`dispatch`], for loops compiled per chain and number type.
#[inline]
pub(crate) fn dispatch_chain<J: Job>(simd: SimdLevel, job: J) -> J::Output {
    Dispatch::<J>::CHAIN(simd, job)
}

/// The selected function, a constant: rustc instantiates calls even under a false condition.
struct Dispatch<J>(PhantomData<J>);

impl<J: Job> Dispatch<J> {
    const CHAIN: fn(SimdLevel, J) -> J::Output = match (J::IS_RUN, BASELINE_ONLY) {
        (false, _) => Self::never,
        (true, false) => dispatch,
        (true, true) => Self::on_baseline,
    };

    fn on_baseline(_: SimdLevel, job: J) -> J::Output {
        baseline(job)
    }

    fn never(_: SimdLevel, _: J) -> J::Output {
        unreachable!("recorded numbers have no loops")
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
