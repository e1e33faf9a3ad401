//! Work on arrays that is halved until there is little of it, for rayon's threads.

use core::ops::Range;
#[cfg(feature = "rayon")]
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::isa::{Isa, Job, current_isa, dispatch};

/// The fewest elements of one array that threads share.
pub(crate) const FEW: usize = 1 << 18;

/// True if so many elements are shared among threads: at least `few`, and there are threads.
pub(crate) fn worth_sharing(elements: usize, few: usize) -> bool {
    elements >= few && threads() > 1
}

/// Work of which the halves have nothing to do with each other.
pub(crate) trait Split: Job<Output = ()> + Send + Sized {
    /// Its halves, or itself if there is too little of it. Where it is cut must not depend on the number of threads.
    fn split(self) -> Result<[Self; 2], Self>;
}

/// Where to cut `len` rows, of which `per` belong together; nowhere if there are no more.
pub(crate) fn half(len: usize, per: usize) -> Option<usize> {
    (len > per).then(|| (len / 2).next_multiple_of(per))
}

/// Does all of it, to so many elements, on rayon's threads if there are several.
pub(crate) fn in_parts<J: Split>(elements: usize, job: J) {
    let isa = current_isa();
    if !worth_sharing(elements, FEW) {
        return alone(isa, job);
    }
    let mut parts = Vec::new();
    cut(job, &mut parts);
    each_of(&mut parts, &|job| job.take().into_iter().for_each(|job| dispatch(isa, job)));
}

fn alone<J: Split>(isa: Isa, job: J) {
    match job.split() {
        Ok(halves) => halves.into_iter().for_each(|half| alone(isa, half)),
        Err(job) => dispatch(isa, job),
    }
}

fn cut<J: Split>(job: J, parts: &mut Vec<Option<J>>) {
    match job.split() {
        Ok(halves) => halves.into_iter().for_each(|half| cut(half, parts)),
        Err(job) => parts.push(Some(job)),
    }
}

/// Does something to each of some parts, as [`shared`].
pub(crate) fn each_of<P: Send>(parts: &mut [P], one: &(dyn Fn(&mut P) + Sync)) {
    let parts: Vec<_> = parts.iter_mut().map(Mutex::new).collect();
    // Each is one task's, so nobody waits here.
    shared(0..parts.len(), false, &|part| one(&mut parts[part].lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Runs each of some tasks once, on rayon's threads if there are several, in order or from the last on. Each thread
/// takes the next task when it has done one. Takes a `dyn Fn`, so that it is compiled once.
pub(crate) fn shared(tasks: Range<usize>, backwards: bool, one: &(dyn Fn(usize) + Sync)) {
    let in_order = |i: usize| one(if backwards { tasks.end - 1 - i } else { tasks.start + i });
    #[cfg(feature = "rayon")]
    if threads().min(tasks.len()) > 1 {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                // A scope ends after all that its threads have written.
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

/// How many threads rayon has, if it is used.
pub(crate) fn threads() -> usize {
    #[cfg(feature = "rayon")]
    let threads = rayon::current_num_threads();
    #[cfg(not(feature = "rayon"))]
    let threads = 1;
    threads
}

/// Does both, at the same time if a thread has nothing else to do.
pub(crate) fn join(one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    let (mut one, mut other) = (Some(one), Some(other));
    both(&mut || one.take().into_iter().for_each(|one| one()), &mut || {
        other.take().into_iter().for_each(|other| other())
    });
}

type Half<'a> = &'a mut (dyn FnMut() + Send);

/// Not of the types of what is to be done: what rayon does for two halves is compiled once.
fn both(one: Half<'_>, other: Half<'_>) {
    #[cfg(feature = "rayon")]
    if threads() > 1 {
        rayon::join(one, other);
        return;
    }
    one();
    other();
}
