//! Whether there is so much to do that threads are worth it.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use super::split::threads;

/// So many elements are too few to share, also with a thread that is awake.
pub(crate) const FEW: usize = 1 << 17;

/// To wake a thread takes some ten microseconds of the one that wakes it. It is worth them if others do as many times
/// `few` elements.
const WAKING: usize = 2;

/// For so long threads without work look for some. Then they fall asleep.
const AWAKE: Duration = Duration::from_micros(20);

/// When tasks were shared or a step was done last, in nanoseconds after [`now`] was asked first.
static WORKED: AtomicU64 = AtomicU64::new(0);

/// Whether to share so many elements; never fewer than `few`.
pub(crate) fn worth_sharing(elements: usize, few: usize) -> bool {
    elements >= few && threads() > 1 && worth(elements, few, threads(), are_awake)
}

/// Tasks have been shared just now, so that threads are awake; or a step is done, so that they stay awake once they are
/// woken if the next one follows at once.
pub(crate) fn has_worked() {
    now().into_iter().for_each(|now| WORKED.store(now, Ordering::Relaxed));
}

fn worth(elements: usize, few: usize, threads: usize, are_awake: impl FnOnce() -> bool) -> bool {
    let by_others = elements - elements / threads;
    elements >= few && (by_others >= WAKING * few || are_awake())
}

/// Whether rayon's threads are awake, or to wake them is worth it for what follows, as far as is known here.
fn are_awake() -> bool {
    now().is_none_or(|now| is_moment(WORKED.load(Ordering::Relaxed), now))
}

fn is_moment(from: u64, to: u64) -> bool {
    Duration::from_nanos(to.saturating_sub(from)) < AWAKE
}

/// Where there are threads and a clock, and an element takes so little time that waking matters.
fn now() -> Option<u64> {
    static START: OnceLock<Instant> = OnceLock::new();
    let clock = cfg!(feature = "rayon") && !cfg!(any(debug_assertions, target_family = "wasm", miri));
    clock.then(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_sleep_are_woken_for_more() {
        let (awake, asleep) = (|| true, || false);
        for threads in [2, 3, 16] {
            assert!(!worth(FEW - 1, FEW, threads, awake));
            assert!(worth(FEW, FEW, threads, awake) && !worth(FEW, FEW, threads, asleep));
        }
        // Half of them are done by another thread, or almost all by others.
        assert!(!worth(4 * FEW - 2, FEW, 2, asleep) && worth(4 * FEW, FEW, 2, asleep));
        assert!(!worth(2 * FEW, FEW, 16, asleep) && worth(3 * FEW, FEW, 16, asleep));
    }

    #[test]
    fn a_moment_is_shorter_than_threads_stay_awake() {
        let awake = AWAKE.as_nanos() as u64;
        assert!(is_moment(5, 5) && is_moment(5, 4 + awake) && !is_moment(5, 5 + awake));
        // Another thread has shared tasks since.
        assert!(is_moment(7, 5));
    }
}
