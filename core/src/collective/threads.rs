//! Ranks as threads of one process.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Collective, Pending};
use crate::error::{Error, Result};

/// Returns a group of `size` threads, for tests and for trials of distributed training.
///
/// A rank that does not arrive within `timeout` is an error on all others; a rank that is dropped, as by a panic, is an
/// error at once. [`Duration::MAX`] disables the timeout.
///
/// # Panics
///
/// If `size` is 0.
///
/// # Cost
///
/// Each rank copies its messages once, out of those that the others have posted. A call that was begun posts its own
/// message at once.
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
/// assert_eq!(error.to_string(), "rank 0: rank 1 did not arrive within 100ms");
/// // It comes when the others have given up.
/// assert!(late.unwrap().barrier().unwrap_err().is_collective());
/// ```
pub fn threads(size: usize, timeout: Duration) -> Vec<Threads> {
    assert!(size > 0, "a group has at least one rank");
    let rendezvous = Rendezvous { calls: VecDeque::new(), first: 0, calls_begun: vec![0; size], failure: None };
    let shared = Arc::new((Mutex::new(rendezvous), Condvar::new()));
    (0..size).map(|rank| Threads { rank, size, timeout, shared: shared.clone() }).collect()
}

/// One rank of a group of [`threads`].
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    size: usize,
    timeout: Duration,
    shared: Arc<(Mutex<Rendezvous>, Condvar)>,
}

#[derive(Debug)]
struct Message {
    call: &'static str,
    bytes: Vec<u8>,
    /// Bytes for each rank; `None` if all get the same.
    to: Option<Vec<usize>>,
}

#[derive(Debug)]
struct Call {
    messages: Vec<Option<Arc<Message>>>,
    /// Ranks that have taken their messages.
    receivers: usize,
    /// Ranks that have left.
    departed: usize,
}

#[derive(Debug)]
struct Rendezvous {
    /// The calls in flight, in order.
    calls: VecDeque<Call>,
    first: u64,
    calls_begun: Vec<u64>,
    /// The error after which no call succeeds.
    failure: Option<String>,
}

impl Rendezvous {
    fn call(&mut self, number: u64) -> &mut Call {
        &mut self.calls[(number - self.first) as usize]
    }

    fn leave(&mut self, number: u64) {
        self.call(number).departed += 1;
        while self.calls.front().is_some_and(|call| call.departed == self.calls_begun.len()) {
            self.calls.pop_front();
            self.first += 1;
        }
    }
}

struct CallHandle<'a> {
    ranks: &'a Threads,
    number: u64,
    call: &'static str,
    received: Vec<u8>,
    from: Vec<usize>,
    has_received: bool,
}

impl CallHandle<'_> {
    /// Takes all messages once posted, and its own memory back once all have read it.
    fn wait(mut self) -> Result<[Vec<u8>; 2]> {
        // A timeout beyond the clock's range, such as `Duration::MAX`, never ends.
        let (ranks, number, until) = (self.ranks, self.number, Instant::now().checked_add(self.ranks.timeout));
        let is_here = |call: &Call| call.messages.iter().all(Option::is_some);
        let messages: Vec<_> =
            ranks.until(until, number, is_here)?.call(number).messages.iter().flatten().cloned().collect();
        let done = self.receive(&messages);
        drop(messages);
        if let Err(error) = &done {
            ranks.lock().failure.get_or_insert_with(|| error.to_string());
        }
        self.mark_received();
        done?;
        let own =
            ranks.until(until, number, |call| call.receivers == ranks.size)?.call(number).messages[ranks.rank].take();
        let sent = own.and_then(Arc::into_inner).map_or(Vec::new(), |message| message.bytes);
        Ok([sent, core::mem::take(&mut self.received)])
    }

    fn receive(&mut self, messages: &[Arc<Message>]) -> Result<()> {
        let CallHandle { ranks, call, received, from, .. } = self;
        received.clear();
        received.reserve(from.iter().sum());
        for ((rank, message), expected) in messages.iter().enumerate().zip(from) {
            if message.call != *call {
                let problem = format!("rank {rank} called `{}`, and rank {} `{call}`", message.call, ranks.rank);
                return Err(Error::collective(ranks.rank, problem));
            }
            let (at, len) = match &message.to {
                Some(to) => (to[..ranks.rank].iter().sum(), to[ranks.rank]),
                None => (0, message.bytes.len()),
            };
            if len != *expected {
                let problem = format!("rank {rank} sent {len} bytes to rank {}, not {expected}", ranks.rank);
                return Err(Error::collective(ranks.rank, problem));
            }
            received.extend_from_slice(&message.bytes[at..at + len]);
        }
        Ok(())
    }

    fn mark_received(&mut self) {
        self.has_received = true;
        self.ranks.lock().call(self.number).receivers += 1;
        self.ranks.shared.1.notify_all();
    }
}

impl Drop for CallHandle<'_> {
    /// Marks the message as taken, so that no rank waits for this one.
    fn drop(&mut self) {
        if !self.has_received {
            self.mark_received();
        }
        self.ranks.lock().leave(self.number);
    }
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, Rendezvous> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a message; the wait comes later.
    fn begin(
        &self,
        call: &'static str,
        bytes: Vec<u8>,
        to: Option<&[usize]>,
        received: Vec<u8>,
        from: &[usize],
    ) -> Result<CallHandle<'_>> {
        let sum = to.map_or(bytes.len(), |to| to.iter().sum());
        if from.len() != self.size || to.is_some_and(|to| to.len() != self.size) || sum != bytes.len() {
            let (to, from) = (to.map_or(0, <[usize]>::len), from.len());
            let found = format!("{to} and {from} lengths, {sum} of {} bytes", bytes.len());
            return Err(Error::argument(
                call,
                "to, from",
                &format!("{} lengths each, with a sum of all bytes", self.size),
                found,
            ));
        }
        let mut rendezvous = self.lock();
        if let Some(problem) = &rendezvous.failure {
            return Err(Error::collective(self.rank, problem));
        }
        let number = rendezvous.calls_begun[self.rank];
        rendezvous.calls_begun[self.rank] += 1;
        if number == rendezvous.first + rendezvous.calls.len() as u64 {
            rendezvous.calls.push_back(Call {
                messages: (0..self.size).map(|_| None).collect(),
                receivers: 0,
                departed: 0,
            });
        }
        rendezvous.call(number).messages[self.rank] = Some(Arc::new(Message { call, bytes, to: to.map(Into::into) }));
        self.shared.1.notify_all();
        Ok(CallHandle { ranks: self, number, call, received, from: from.into(), has_received: false })
    }

    /// Waits for a call's state, or a deadline, if any.
    fn until(
        &self,
        until: Option<Instant>,
        number: u64,
        done: impl Fn(&Call) -> bool,
    ) -> Result<MutexGuard<'_, Rendezvous>> {
        let mut rendezvous = self.lock();
        loop {
            // Ranks that leave do not affect a complete call.
            if done(rendezvous.call(number)) {
                return Ok(rendezvous);
            }
            if let Some(problem) = &rendezvous.failure {
                return Err(Error::collective(self.rank, problem));
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let absent = rendezvous.call(number).messages.iter().position(Option::is_none).unwrap_or(self.rank);
                let problem = format!("rank {absent} did not arrive within {:?}", self.timeout);
                rendezvous.failure = Some(problem.clone());
                self.shared.1.notify_all();
                return Err(Error::collective(self.rank, problem));
            }
            rendezvous = self.shared.1.wait_timeout(rendezvous, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

const ALL_TO_ALL: &str = "all_to_all";
const ALL_GATHER: &str = "all_gather";

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let handle = self.begin(ALL_TO_ALL, send, Some(to), received, from);
        Pending::new(|| handle?.wait())
    }

    fn begin_all_gather(&self, send: Vec<u8>, received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let handle = self.begin(ALL_GATHER, send, None, received, from);
        Pending::new(|| handle?.wait())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.lock().failure.get_or_insert_with(|| format!("rank {} has left the group", self.rank));
        self.shared.1.notify_all();
    }
}
