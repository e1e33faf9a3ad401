//! Parallel work on arrays by recursive halving, on rayon's threads.

use core::ops::Range;
#[cfg(feature = "rayon")]
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::simd::{Job, SimdLevel, current_simd_level, dispatch};

/// Parallelism threshold: least elements of one array that threads share.
pub const PARALLEL_THRESHOLD: usize = 1 << 18;

/// Returns whether several threads share this work: at least `threshold` elements.
pub fn is_parallel(elements: usize, threshold: usize) -> bool {
    elements >= threshold && threads() > 1
}

/// A job that splits into two.
pub trait Split: Job<Output = ()> + Send + Sized {
    /// Returns halves, or itself if too small, independently of the number of threads.
    fn split(self) -> Result<[Self; 2], Self>;
}

/// Returns where to split `len` rows, in groups of `per`; `None` for one group.
pub fn half(len: usize, per: usize) -> Option<usize> {
    (len > per).then(|| (len / 2).next_multiple_of(per))
}

/// Runs a job on `elements` elements, on rayon's threads if available.
pub fn run_parallel<J: Split>(elements: usize, job: J) {
    let simd = current_simd_level();
    if !is_parallel(elements, PARALLEL_THRESHOLD) {
        return run_sequential(simd, job);
    }
    let mut parts = Vec::new();
    collect_parts(job, &mut parts);
    parallel_for_each(&mut parts, &|job| job.take().into_iter().for_each(|job| dispatch(simd, job)));
}

fn run_sequential<J: Split>(simd: SimdLevel, job: J) {
    match job.split() {
        Ok(halves) => halves.into_iter().for_each(|half| run_sequential(simd, half)),
        Err(job) => dispatch(simd, job),
    }
}

fn collect_parts<J: Split>(job: J, parts: &mut Vec<Option<J>>) {
    match job.split() {
        Ok(halves) => halves.into_iter().for_each(|half| collect_parts(half, parts)),
        Err(job) => parts.push(Some(job)),
    }
}

/// Calls `one` with each part, as `parallel_for`.
pub fn parallel_for_each<P: Send>(parts: &mut [P], one: &(dyn Fn(&mut P) + Sync)) {
    let parts: Vec<_> = parts.iter_mut().map(Mutex::new).collect();
    // Each mutex belongs to one task: no thread waits.
    parallel_for(0..parts.len(), false, &|part| one(&mut parts[part].lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Runs each task once, on rayon's threads if available, forwards or backwards.
///
/// A thread that has finished takes the next task. A `dyn Fn`, to compile once.
pub(crate) fn parallel_for(tasks: Range<usize>, backwards: bool, one: &(dyn Fn(usize) + Sync)) {
    let in_order = |i: usize| one(if backwards { tasks.end - 1 - i } else { tasks.start + i });
    #[cfg(feature = "rayon")]
    if threads().min(tasks.len()) > 1 {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                // `Relaxed` suffices: the end of the scope orders the threads' writes.
                match next.fetch_add(1, Ordering::Relaxed) {
                    i if i < tasks.len() => in_order(i),
                    _ => break,
                }
            }
        };
        return rayon::in_place_scope(|scope| {
            (1..threads().min(tasks.len())).for_each(|_| scope.spawn(|_| work()));
            work();
        });
    }
    (0..tasks.len()).for_each(in_order);
}

/// Returns the number of rayon's threads; 1 without rayon.
pub(crate) fn threads() -> usize {
    #[cfg(feature = "rayon")]
    let threads = rayon::current_num_threads();
    #[cfg(not(feature = "rayon"))]
    let threads = 1;
    threads
}

/// Runs both, concurrently if a thread is idle.
pub(crate) fn join(one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    let (mut one, mut other) = (Some(one), Some(other));
    join_tasks(&mut || one.take().into_iter().for_each(|one| one()), &mut || {
        other.take().into_iter().for_each(|other| other())
    });
}

type Task<'a> = &'a mut (dyn FnMut() + Send);

/// Not generic, so that rayon's join compiles once.
fn join_tasks(one: Task<'_>, other: Task<'_>) {
    #[cfg(feature = "rayon")]
    if threads() > 1 {
        rayon::join(one, other);
        return;
    }
    one();
    other();
}
