//! Ranks that are threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::Collective;
use crate::error::{Error, Result};

/// A group of `size` threads: for tests, and to try what is to run on many machines. A rank that does not come within
/// `timeout` is an error on all others; one that is dropped, as by a panic, is one at once.
///
/// # Panics
///
/// If `size` is 0.
///
/// # Cost
///
/// Each message is copied twice, one rank after another.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use gradchain::collective::{Collective, threads};
///
/// let mut ranks = threads(2, Duration::from_millis(100));
/// let late = ranks.pop();
/// let error = ranks[0].barrier().unwrap_err();
/// assert_eq!(error.to_string(), "rank 0: rank 1 has not come within 100ms");
/// // It comes when the others have given up.
/// assert!(late.unwrap().barrier().unwrap_err().is_collective());
/// ```
pub fn threads(size: usize, timeout: Duration) -> Vec<Threads> {
    assert!(size > 0, "a group has at least one rank");
    let posts = (0..size).map(|_| None).collect();
    let meeting = Meeting { posts, taken: 0, round: 0, back: Vec::new(), broken: None };
    let shared = Arc::new((Mutex::new(meeting), Condvar::new()));
    (0..size).map(|rank| Threads { rank, size, timeout, shared: shared.clone() }).collect()
}

/// One rank of a group of [`threads`].
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    size: usize,
    timeout: Duration,
    shared: Arc<(Mutex<Meeting>, Condvar)>,
}

/// What a rank brings.
#[derive(Debug)]
struct Post {
    call: &'static str,
    bytes: Vec<u8>,
    /// How many bytes are for each rank.
    to: Vec<usize>,
}

#[derive(Debug)]
struct Meeting {
    posts: Vec<Option<Post>>,
    /// How many ranks have what they came for.
    taken: usize,
    round: u64,
    /// The memory of the messages of the last round.
    back: Vec<Option<Vec<u8>>>,
    /// Why no rank will come together with the others any more.
    broken: Option<String>,
}

impl Threads {
    /// Brings `post`, and takes what `take` finds in those of all when they are here.
    fn meet(&self, post: Post, take: impl FnOnce(&[Option<Post>]) -> Result<()>) -> Result<Vec<u8>> {
        let until = Instant::now() + self.timeout;
        let (meeting, changed) = &*self.shared;
        let mut meeting = meeting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(problem) = &meeting.broken {
            return Err(Error::collective(self.rank, problem));
        }
        meeting.posts[self.rank] = Some(post);
        changed.notify_all();
        let round = meeting.round;
        meeting = self.wait(meeting, until, |meeting| meeting.posts.iter().all(Option::is_some))?;
        let done = take(&meeting.posts);
        if let Err(error) = &done {
            meeting.broken.get_or_insert_with(|| error.to_string());
        }
        meeting.taken += 1;
        if meeting.taken == self.size {
            (meeting.taken, meeting.round) = (0, round + 1);
            meeting.back = meeting.posts.iter_mut().map(|post| post.take().map(|post| post.bytes)).collect();
        }
        changed.notify_all();
        done?;
        // Each takes the memory of its own message back, when all have read it.
        meeting = self.wait(meeting, until, |meeting| meeting.round > round)?;
        Ok(meeting.back[self.rank].take().unwrap_or_default())
    }

    fn wait<'a>(
        &self,
        mut meeting: MutexGuard<'a, Meeting>,
        until: Instant,
        done: impl Fn(&Meeting) -> bool,
    ) -> Result<MutexGuard<'a, Meeting>> {
        let changed = &self.shared.1;
        loop {
            // What is complete is no matter of those that have gone since.
            if done(&meeting) {
                return Ok(meeting);
            }
            if let Some(problem) = &meeting.broken {
                return Err(Error::collective(self.rank, problem));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let absent = (0..self.size).find(|rank| meeting.posts[*rank].is_none()).unwrap_or(self.rank);
                let problem = format!("rank {absent} has not come within {:?}", self.timeout);
                meeting.broken = Some(problem.clone());
                changed.notify_all();
                return Err(Error::collective(self.rank, problem));
            }
            meeting = changed.wait_timeout(meeting, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Whether a rank has called the same and brought as much as was expected of it.
    fn expect(&self, rank: usize, post: &Post, call: &str, found: usize, expected: usize) -> Result<()> {
        if post.call != call {
            let problem = format!("rank {rank} called `{}`, and rank {} `{call}`", post.call, self.rank);
            return Err(Error::collective(self.rank, problem));
        }
        if found != expected {
            let problem = format!("rank {rank} brought {found} bytes for rank {}, not {expected}", self.rank);
            return Err(Error::collective(self.rank, problem));
        }
        Ok(())
    }
}

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        const CALL: &str = "all_to_all";
        lengths(self, CALL, send, to, from)?;
        received.clear();
        let post = Post { call: CALL, bytes: core::mem::take(send), to: to.into() };
        *send = self.meet(post, |posts| {
            for (rank, post) in posts.iter().flatten().enumerate() {
                let (at, len) = (post.to.iter().take(self.rank).sum::<usize>(), post.to.get(self.rank));
                self.expect(rank, post, CALL, len.copied().unwrap_or(0), from[rank])?;
                received.extend_from_slice(&post.bytes[at..at + from[rank]]);
            }
            Ok(())
        })?;
        Ok(())
    }

    fn all_gather(&self, send: &mut Vec<u8>, received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        const CALL: &str = "all_gather";
        lengths(self, CALL, send, &[send.len()], from)?;
        received.clear();
        let post = Post { call: CALL, bytes: core::mem::take(send), to: Vec::new() };
        *send = self.meet(post, |posts| {
            for (rank, post) in posts.iter().flatten().enumerate() {
                self.expect(rank, post, CALL, post.bytes.len(), from[rank])?;
                received.extend_from_slice(&post.bytes);
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Whether there is a length for each rank, and as many bytes as these say.
fn lengths(ranks: &Threads, call: &str, send: &[u8], to: &[usize], from: &[usize]) -> Result<()> {
    let sum: usize = to.iter().sum();
    if from.len() != ranks.size || to.len() != ranks.size && call == "all_to_all" || sum != send.len() {
        let found = format!("{} and {} lengths, {sum} of {} bytes", to.len(), from.len(), send.len());
        return Err(Error::argument(call, "to, from", &format!("{} lengths of all bytes", ranks.size), found));
    }
    Ok(())
}

impl Drop for Threads {
    fn drop(&mut self) {
        let (meeting, changed) = &*self.shared;
        let mut meeting = meeting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        meeting.broken.get_or_insert_with(|| format!("rank {} has gone", self.rank));
        changed.notify_all();
    }
}
