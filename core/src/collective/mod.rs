//! Communication between processes that train together.
//!
//! Guide: [Several processes](https://docs.rs/gradchain/latest/gradchain/_guide/many_machines/index.html).
//!
//! Needs the feature `collective`.
//!
//! A [`Collective`] is a group of processes or threads, its *ranks*, each of which calls the same methods in the same
//! order. [`threads`] makes a group of threads of one process; the crate `gradchain-mpi` makes a group of processes on
//! several hosts, by MPI. [`sharded`] uses a group in every step; [`average`] is for ranks
//! that train alone for a while.
//!
//! [`sharded`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html

mod agreement;
mod average;
pub(crate) mod pairwise;
mod pending;
mod threads;

use core::fmt;
use core::mem::take;

pub(crate) use agreement::{agree, is_same};
pub(crate) use average::leaf_mean;
pub use average::{average, average_with};
pub use pairwise::{PairwiseMean, parts};
pub use pending::Pending;
pub use threads::{Threads, threads};

use crate::error::{Error, Result};

/// A process group: ranks that call the same methods in the same order, and meet in each.
///
/// No call waits forever: if a rank does not arrive within the timeout of the group, all others return an error that
/// [`is_collective`](Error::is_collective), from this call and from every later one.
///
/// Bytes are in vectors, whose memory an implementation may own until the call ends, and longer if it fails: a late
/// message then goes to memory without another owner. After an error the contents are meaningless.
///
/// Bytes are delivered unchanged between hosts of the same byte order. The receiver does all reductions, in an order of
/// its own: that of a library depends on the number of ranks, and on the version.
///
/// # Implementing it
///
/// [`begin_all_to_all`](Self::begin_all_to_all) and [`begin_all_gather`](Self::begin_all_gather) are required; the
/// others call these. They return early, so that messages travel while the caller works; a blocking implementation ends
/// in `Pending::new(|| done)`.
///
/// A group of devices fits too: `ncclGroupStart`, one `ncclSend` and `ncclRecv` of `ncclUint8` for each rank,
/// `ncclGroupEnd` are an all-to-all; a broadcast of each rank's part in such a group is an all-gather. NCCL lacks a
/// time limit: poll `ncclCommGetAsyncError` while the stream is not done, and call `ncclCommAbort` at the deadline.
pub trait Collective: fmt::Debug + Send + Sync {
    /// Returns the number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks; at least 1.
    fn size(&self) -> usize;

    /// Begins an [`all_to_all`](Self::all_to_all), to be waited for later.
    ///
    /// The caller waits in the order in which its calls have begun. The message may travel meanwhile. Errors are
    /// returned by the wait.
    ///
    /// To other ranks it is the same call as `all_to_all`: each rank may begin it, or call `all_to_all` and wait at
    /// once.
    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], received: Vec<u8>, from: &[usize]) -> Pending<'_>;

    /// Begins an [`all_gather`](Self::all_gather); see [`begin_all_to_all`](Self::begin_all_to_all).
    fn begin_all_gather(&self, send: Vec<u8>, received: Vec<u8>, from: &[usize]) -> Pending<'_>;

    /// Sends each rank its part of `send`, and receives one from each into `received`.
    ///
    /// Parts are in the order of the ranks; `to` and `from` have their lengths in bytes. `received` is resized.
    ///
    /// # Errors
    ///
    /// Fails if a rank does not arrive in time, calls another method, or sends another number of bytes than `from`.
    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        [*send, *received] = self.begin_all_to_all(take(send), to, take(received), from).wait()?;
        Ok(())
    }

    /// Sends `send` to all ranks, and receives that of each, in the order of the ranks.
    ///
    /// `from` has the lengths in bytes.
    ///
    /// # Errors
    ///
    /// As [`all_to_all`](Self::all_to_all).
    fn all_gather(&self, send: &mut Vec<u8>, received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        [*send, *received] = self.begin_all_gather(take(send), take(received), from).wait()?;
        Ok(())
    }

    /// Copies `bytes` of the rank `root` to all ranks; the length is the same on all of them.
    ///
    /// # Errors
    ///
    /// As [`all_to_all`](Self::all_to_all). Also fails if the rank does not exist.
    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        if root >= self.size() {
            return Err(Error::argument("broadcast", "root", &format!("below {}", self.size()), root));
        }
        let mut from = vec![0; self.size()];
        from[root] = bytes.len();
        let mut send = if root == self.rank() { take(bytes) } else { Vec::new() };
        self.all_gather(&mut send, bytes, &from)
    }

    /// Waits until all ranks arrive.
    ///
    /// # Errors
    ///
    /// Fails if a rank does not arrive in time, or calls another method.
    fn barrier(&self) -> Result<()> {
        self.all_gather(&mut Vec::new(), &mut Vec::new(), &vec![0; self.size()])
    }
}

/// Returns rank and size of an untrusted implementation.
pub(crate) fn rank_and_size(collective: &dyn Collective) -> Result<(usize, usize)> {
    let (rank, size) = (collective.rank(), collective.size());
    if rank < size {
        return Ok((rank, size));
    }
    Err(Error::argument("Collective", "rank", &format!("below the group's size of {size}"), rank))
}

/// Waits for a call of an untrusted implementation, and checks the received length.
///
/// Returns the sent memory and the received bytes.
pub(crate) fn wait_checked(collective: &dyn Collective, pending: Pending<'_>, from: &[usize]) -> Result<[Vec<u8>; 2]> {
    let [sent, received] = pending.wait()?;
    let (found, expected) = (received.len(), from.iter().sum::<usize>());
    if found == expected {
        return Ok([sent, received]);
    }
    Err(Error::collective(collective.rank(), format!("a message has {found} bytes, expected {expected}")))
}

/// Gathers the bytes of every rank, of different lengths: a message of the lengths, and one of the bytes.
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{Collective, gather, threads};
///
/// std::thread::scope(|scope| {
///     for ranks in threads(3, Duration::from_secs(10)) {
///         scope.spawn(move || {
///             let all = gather(&ranks, &[7].repeat(ranks.rank())).unwrap();
///             assert_eq!(all, [vec![], vec![7], vec![7, 7]]);
///         });
///     }
/// });
/// ```
///
/// # Errors
///
/// As [`Collective::all_gather`].
pub fn gather(collective: &dyn Collective, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let lens = numbers(collective, bytes.len() as u64)?.into_iter().map(|len| len as usize).collect::<Vec<_>>();
    let [_, all] = wait_checked(collective, collective.begin_all_gather(bytes.to_vec(), Vec::new(), &lens), &lens)?;
    let mut rest = &all[..];
    let parts = lens.iter().map(|len| rest.split_off(..*len).unwrap_or_default().to_vec());
    Ok(parts.collect())
}

pub(crate) fn numbers(collective: &dyn Collective, own: u64) -> Result<Vec<u64>> {
    let from = vec![8; collective.size()];
    let [_, all] =
        wait_checked(collective, collective.begin_all_gather(own.to_le_bytes().into(), Vec::new(), &from), &from)?;
    Ok(all.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
}
