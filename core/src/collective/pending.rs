//! A call in flight.

use core::fmt;

use crate::error::Result;

/// A call of a [`Collective`](super::Collective) in flight, which owns the memory of its messages until it ends.
///
/// Dropped without waiting, the call still completes, and its result is lost.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{Collective, threads};
///
/// std::thread::scope(|scope| {
///     for ranks in threads(2, Duration::from_secs(10)) {
///         scope.spawn(move || {
///             let one = ranks.begin_all_gather(vec![1], Vec::new(), &[1, 1]);
///             let two = ranks.begin_all_gather(vec![2], Vec::new(), &[1, 1]);
///             // Work that needs neither.
///             let [sent, received] = one.wait()?;
///             assert_eq!((sent, received), (vec![1], vec![1, 1]));
///             assert_eq!(two.wait()?[1], [2, 2]);
///             Ok::<(), gradchain::Error>(())
///         });
///     }
/// });
/// ```
///
/// # References
///
/// MPI's request of a call such as `MPI_Ialltoallv`; PyTorch's `Work`, of `async_op=True`. Those borrow the memory of
/// the messages, and must not be dropped before the call has ended.
#[must_use = "the messages arrive only when `wait` is called"]
pub struct Pending<'a>(Box<dyn FnOnce() -> Result<[Vec<u8>; 2]> + Send + 'a>);

impl<'a> Pending<'a> {
    /// Returns a call that `wait` completes: it returns the memory of the sent bytes, and the received ones.
    pub fn new(wait: impl FnOnce() -> Result<[Vec<u8>; 2]> + Send + 'a) -> Pending<'a> {
        Pending(Box::new(wait))
    }

    /// Waits for the message; returns the memory of the sent bytes, and the received ones.
    ///
    /// # Errors
    ///
    /// Fails with the errors of the call, which surface only here.
    pub fn wait(self) -> Result<[Vec<u8>; 2]> {
        (self.0)()
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
