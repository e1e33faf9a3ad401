//! Tasks that a thread does together with whoever of rayon's threads comes in time.
//!
//! `rayon::join` lets a thread that is not rayon's wait until theirs have woken up and done everything: on two cores a
//! step on 200 000 elements took three times as long as without threads. Here that thread begins at once, and waits for
//! no other that has not begun.
#![allow(unsafe_code, reason = "other threads are given a pointer to what this one is doing")]

use core::any::Any;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// The most threads that share tasks.
const MOST: usize = 64;

/// What another thread is given to do, whenever it likes.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Does each of some tasks once, on this thread and on up to so many in all; returns when all are done.
///
/// Each thread begins with tasks that lie side by side, this one with the first, in order or from the last on. When it
/// has none left, it takes from the far end of another's.
///
/// # Panics
///
/// If a task does.
pub(crate) fn together(tasks: usize, threads: usize, backwards: bool, each: &(dyn Fn(usize) + Sync), spawn: fn(Job)) {
    let threads = threads.clamp(1, MOST).min(tasks.max(1));
    let begin = |share: usize| (tasks * share / threads) as u64;
    let shares = core::array::from_fn(|share| {
        AtomicU64::new(if share < threads { begin(share) << 32 | begin(share + 1) } else { 0 })
    });
    let work = Work { shares, threads, backwards, each, panic: Mutex::new(None) };
    {
        let gate = Arc::new(Gate {
            inside: AtomicUsize::new(0),
            work: (&raw const work).cast(),
            helpers: threads - 1,
            caller: thread::current(),
            spawn,
        });
        let _until_nobody_is_inside = Closing(&gate);
        gate.call(1);
        work.run(0);
    }
    if let Some(panic) = work.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
}

struct Work<'a> {
    /// The tasks that are left of each thread's: the first, and in the lower half where they end.
    shares: [AtomicU64; MOST],
    threads: usize,
    backwards: bool,
    each: &'a (dyn Fn(usize) + Sync),
    /// The first panic of another thread.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Work<'_> {
    fn run(&self, own: usize) {
        while let Some(task) = self.next(own) {
            (self.each)(task);
        }
    }

    fn next(&self, own: usize) -> Option<usize> {
        let others = (1..self.threads).map(|k| (own + k) % self.threads);
        self.take(own, self.backwards).or_else(|| others.into_iter().find_map(|k| self.take(k, !self.backwards)))
    }

    fn take(&self, share: usize, last: bool) -> Option<usize> {
        let (start, end) = (|left: u64| left >> 32, |left: u64| left & u64::from(u32::MAX));
        let without = |left| (start(left) < end(left)).then(|| if last { left - 1 } else { left + (1 << 32) });
        // What tasks have written is seen by whoever closes the gate, so no order is needed here.
        let left = self.shares[share].fetch_update(Ordering::Relaxed, Ordering::Relaxed, without).ok()?;
        Some(if last { end(left) - 1 } else { start(left) } as usize)
    }
}

const CLOSED: usize = 1 << (usize::BITS - 1);

/// Where other threads come in, as long as it is open.
struct Gate {
    /// How many are inside, and whether it is closed.
    inside: AtomicUsize,
    work: *const Work<'static>,
    helpers: usize,
    caller: Thread,
    spawn: fn(Job),
}

// SAFETY: `work` is looked at by threads that are inside only, see `help`; it is `Sync`.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

impl Gate {
    /// Calls a thread, if there is one with this number: the first is 1.
    fn call(self: &Arc<Gate>, number: usize) {
        if number <= self.helpers
            && let Some(called) = Called::new()
        {
            let gate = self.clone();
            (self.spawn)(Box::new(move || {
                drop(called);
                gate.help(number);
            }));
        }
    }

    fn help(self: &Arc<Gate>, number: usize) {
        let open = |inside| (inside & CLOSED == 0).then_some(inside + 1);
        if self.inside.fetch_update(Ordering::Acquire, Ordering::Relaxed, open).is_err() {
            return;
        }
        // To wake a thread takes as long as some tasks: each wakes two.
        self.call(2 * number);
        self.call(2 * number + 1);
        // SAFETY: whoever made the work does not leave it before the gate is closed and nobody is inside, and this
        // thread is inside until `leave`.
        let work = unsafe { &*self.work };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.run(number))) {
            work.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if self.inside.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
            self.caller.unpark();
        }
    }
}

/// Closes the gate, and waits until nobody is inside.
struct Closing<'a>(&'a Gate);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        let mut turns = 0;
        while inside != CLOSED {
            // What is left is usually less than a task each.
            if turns < 1000 {
                core::hint::spin_loop()
            } else {
                thread::park()
            }
            turns += 1;
            inside = self.0.inside.load(Ordering::Acquire);
        }
    }
}

/// Threads that were called and have not come yet, of all steps: if they have something else to do, there must not be
/// more and more of them.
static CALLED: AtomicUsize = AtomicUsize::new(0);

struct Called;

impl Called {
    fn new() -> Option<Called> {
        let called = Called;
        (CALLED.fetch_add(1, Ordering::Relaxed) < 4 * MOST).then_some(called)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at_once(job: Job) {
        thread::spawn(job);
    }
    fn late(job: Job) {
        thread::spawn(|| {
            thread::sleep(Duration::from_millis(1));
            job();
        });
    }
    fn here(job: Job) {
        job();
    }
    fn never(_: Job) {}

    const SPAWN: [fn(Job); 4] = [at_once, late, here, never];

    #[test]
    fn each_task_is_done_once() {
        for spawn in SPAWN {
            for (tasks, threads) in [(0, 3), (1, 1), (1, 8), (5, 2), (16, 16), (37, 5), (100, 70)] {
                for backwards in [false, true] {
                    let done: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    let one = |task: usize| {
                        done[task].fetch_add(1, Ordering::Relaxed);
                    };
                    together(tasks, threads, backwards, &one, spawn);
                    assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1), "{tasks} on {threads}");
                }
            }
        }
    }

    #[test]
    fn what_other_threads_write_is_seen() {
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            let mut numbers = vec![0_u64; 64];
            let address = core::sync::atomic::AtomicPtr::new(numbers.as_mut_ptr());
            // SAFETY: each task writes an element of its own.
            let one = |task| unsafe { *address.load(Ordering::Relaxed).add(task) = task as u64 };
            together(64, 4, false, &one, at_once);
            assert!(numbers.iter().enumerate().all(|(task, number)| task as u64 == *number));
        }
    }

    #[test]
    fn alone_tasks_are_done_in_order_or_from_the_last_on_and_then_the_far_ends_of_others() {
        for (backwards, order) in [(false, [0, 1, 2, 5, 4, 3]), (true, [2, 1, 0, 3, 4, 5])] {
            let done = Mutex::new(Vec::new());
            together(6, 2, backwards, &|task| done.lock().unwrap().push(task), never);
            assert_eq!(*done.lock().unwrap(), order);
        }
    }

    #[test]
    fn a_task_that_panics_is_heard_of_after_the_others_have_ended() {
        for spawn in SPAWN {
            for wrong in [0, 7] {
                let running = AtomicUsize::new(0);
                let one = |task| {
                    running.fetch_add(1, Ordering::SeqCst);
                    let answer = catch_unwind(|| assert_ne!(task, wrong, "this one"));
                    thread::sleep(Duration::from_micros(50));
                    running.fetch_sub(1, Ordering::SeqCst);
                    answer.unwrap_or_else(|panic| resume_unwind(panic));
                };
                let panic = catch_unwind(AssertUnwindSafe(|| together(8, 4, false, &one, spawn))).unwrap_err();
                assert!(panic.downcast_ref::<String>().unwrap().contains("this one"));
                assert_eq!(running.load(Ordering::SeqCst), 0);
            }
        }
    }
}
