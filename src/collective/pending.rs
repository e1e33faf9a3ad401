//! A call that has begun.

use core::fmt;

use crate::error::Result;

/// A call of a [`Collective`](super::Collective) that has begun, with the memory of its messages, which nobody else has
/// until it has ended.
///
/// Dropped without waiting it ends as it would, and what it has brought is lost.
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
/// the messages, and must not be lost before the call has ended.
#[must_use = "what has been sent for arrives when it is waited for"]
pub struct Pending<'a>(Box<dyn FnOnce() -> Result<[Vec<u8>; 2]> + Send + 'a>);

impl<'a> Pending<'a> {
    /// A call that ends by this function: it gives back the memory of what was sent, and what was received.
    pub fn new(wait: impl FnOnce() -> Result<[Vec<u8>; 2]> + Send + 'a) -> Pending<'a> {
        Pending(Box::new(wait))
    }

    /// Waits until the message is here: the memory of what was sent, and what was received.
    ///
    /// # Errors
    ///
    /// Those of the call, which are not said before.
    pub fn wait(self) -> Result<[Vec<u8>; 2]> {
        (self.0)()
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
