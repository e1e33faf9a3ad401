//! Whether there is so much to do that threads are worth it.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use super::split::threads;

/// So many elements are too few to share, also with a thread that is awake.
pub(crate) const FEW: usize = 1 << 17;

/// If others do as many times `few` elements, it is worth it to wake them, whatever is done to an element.
const MANY: usize = 2;

/// What others must take off a step to be worth it: waking one takes some ten microseconds of the thread that does it,
/// and what is shared comes into other caches.
const WAKING: Duration = Duration::from_micros(60);

/// For so long threads without work look for some. Then they fall asleep.
const AWAKE: Duration = Duration::from_micros(20);

/// How many steps are timed. The first ones bring memory.
const TIMED: u32 = 8;

/// When tasks were shared or a step was done last, in nanoseconds after [`now`] was asked first.
static WORKED: AtomicU64 = AtomicU64::new(0);

/// Whether to share so many elements; never fewer than `few`.
pub(crate) fn worth_sharing(elements: usize, few: usize) -> bool {
    elements >= few && threads() > 1 && (by_others(elements, threads()) >= MANY * few || are_awake())
}

/// Tasks have been shared just now, so that threads are awake; or a step is done, so that they stay awake once they are
/// woken if the next one follows at once.
pub(crate) fn has_worked() {
    now().into_iter().for_each(|now| WORKED.store(now, Ordering::Relaxed));
}

/// What a step takes, where it depends on that whether sleeping threads are woken for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// On one thread, the shortest.
    least: Option<Duration>,
    steps: u32,
}

/// A step that has begun.
pub(crate) enum Step {
    /// It is one thread's.
    Small,
    Large,
    /// It is one thread's, to find out what it takes.
    Timed(Instant),
}

impl Pace {
    /// Begins a step on so many elements. Takes threads for awake if it is worth it to wake them.
    pub(crate) fn begin(&self, elements: usize, few: usize) -> Step {
        if elements < few || threads() == 1 {
            return Step::Small;
        }
        if !worth_sharing(elements, few) {
            if self.steps < TIMED {
                return Step::Timed(Instant::now());
            }
            if self.is_worth_waking(threads()) {
                has_worked();
            }
        }
        Step::Large
    }

    pub(crate) fn end(&mut self, step: Step) {
        if let Step::Timed(began) = step {
            self.took(began.elapsed());
        }
        if !matches!(step, Step::Small) {
            has_worked();
        }
    }

    fn took(&mut self, took: Duration) {
        self.steps += 1;
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
    }

    fn is_worth_waking(&self, threads: usize) -> bool {
        self.least.is_some_and(|least| least - least / threads as u32 >= WAKING)
    }
}

/// How many of so many elements other threads do.
fn by_others(elements: usize, threads: usize) -> usize {
    elements - elements / threads
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
    fn half_is_done_by_another_thread_or_almost_all_by_others() {
        assert_eq!([1, 2, 16].map(|threads| by_others(1600, threads)), [0, 800, 1500]);
        assert_eq!(by_others(3, 2), 2);
    }

    #[test]
    fn threads_that_sleep_are_woken_for_steps_that_take_long() {
        let after = |steps: &[u64]| {
            let mut pace = Pace::default();
            steps.iter().for_each(|micros| pace.took(Duration::from_micros(*micros)));
            pace
        };
        assert!(!Pace::default().is_worth_waking(16));
        // The first one may take longer; the shortest counts.
        for (micros, threads, worth) in [(119, 2, false), (121, 2, true), (63, 16, false), (64, 16, true)] {
            let pace = after(&[1000, micros, micros + 20]);
            assert_eq!((pace.is_worth_waking(threads), pace.steps), (worth, 3), "{micros} on {threads}");
        }
    }

    #[test]
    fn a_small_step_is_not_looked_at() {
        let mut pace = Pace::default();
        assert!(matches!(pace.begin(FEW - 1, FEW), Step::Small));
        pace.end(Step::Small);
        assert_eq!(pace.steps, 0);
        pace.end(Step::Timed(Instant::now()));
        assert_eq!(pace.steps, 1);
    }

    #[test]
    fn a_moment_is_shorter_than_threads_stay_awake() {
        let awake = AWAKE.as_nanos() as u64;
        assert!(is_moment(5, 5) && is_moment(5, 4 + awake) && !is_moment(5, 5 + awake));
        // Another thread has shared tasks since.
        assert!(is_moment(7, 5));
    }
}
