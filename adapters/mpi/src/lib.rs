//! Distributed training with [gradchain](https://docs.rs/gradchain), by MPI.
//!
//! [`world`] is a [`Collective`] of all processes that `mpirun` has started. With it
//! [`sharded`](gradchain::wrapper::sharded) distributes the state of an optimizer among them, and [`Save::to_shards`]
//! writes each rank's share.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use gradchain::collective::Collective;
//! use gradchain::prelude::*;
//! use gradchain::wrapper::sharded;
//!
//! let world = gradchain_mpi::world(Duration::from_secs(60))?;
//! let mut params = vec![0.0_f32; 1_000_000];
//! let gradient = vec![world.rank() as f32; 1_000_000];
//! let optimizer = sharded(chain((clip_by_global_norm(1.0), adamw(1e-3))), world);
//! let mut state = optimizer.init(&params)?;
//! optimizer.step(&mut params, &gradient, &mut state)?;
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! [`Save::to_shards`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Save.html

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use gradchain::collective::{Collective, Pending};
use gradchain::{Error, Result};
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::request::{self, Request, Scope};
use mpi::traits::{Communicator, CommunicatorCollectives};

/// Returns the group of all processes that were started together.
///
/// One dedicated thread makes all calls of MPI, from its initialization to its end, so an MPI library without thread
/// support is enough. A message that takes longer than `timeout` is an error, and so is every call after it. MPI itself
/// waits for ever: its thread then stays behind with the memory of the message, and ends with the process, which should
/// exit.
///
/// Messages of a call that [begins](Collective::begin_all_to_all) travel while the caller works. Meanwhile the thread
/// polls MPI with pauses, so that it takes little of the caller's time on a rank with one core. While the caller waits
/// it polls without pauses.
///
/// `mpirun` ends all processes when one dies, unless it is started with `--enable-recovery` (Open MPI). Then the others
/// get an error, and can name the checkpoint to resume from.
///
/// # Errors
///
/// If this process has initialized MPI already, or if initialization takes longer than `timeout`.
pub fn world(timeout: Duration) -> Result<Mpi> {
    let ((requests, to_do), (begun, begins)) = (channel(), channel());
    let waits = Arc::new(AtomicBool::new(false));
    let asked = waits.clone();
    let thread = thread::spawn(move || serve(&to_do, &begun, &asked)).thread().clone();
    match begins.recv_timeout(timeout) {
        Ok((rank, size)) => {
            let (requests, end) = (Mutex::new(Ok(requests)), Mutex::new(begins));
            Ok(Mpi { rank, size, timeout, thread, waits, requests, end })
        }
        Err(RecvTimeoutError::Timeout) => {
            Err(Error::collective(0, format!("MPI has not initialized within {timeout:?}")))
        }
        Err(_) => Err(Error::collective(0, "MPI is already initialized in this process")),
    }
}

/// The group of all processes that were started together: see [`world`].
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    timeout: Duration,
    thread: Thread,
    /// True while the caller waits.
    waits: Arc<AtomicBool>,
    /// `Err` with the reason once the MPI thread has ended.
    requests: Mutex<Result<Sender<Call>, String>>,
    /// Disconnects when the MPI thread ends.
    end: Mutex<Receiver<(usize, usize)>>,
}

/// A request, with its memory.
#[derive(Debug)]
struct Call {
    send: Vec<u8>,
    /// Bytes per rank; `None` if all get the same.
    to: Option<Vec<i32>>,
    received: Vec<u8>,
    from: Vec<i32>,
    /// Returns the memory when the request is done.
    done: Sender<[Vec<u8>; 2]>,
}

/// Serves requests until all senders are dropped.
fn serve(requests: &Receiver<Call>, begun: &Sender<(usize, usize)>, waits: &AtomicBool) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = universe.world();
    if begun.send((world.rank() as usize, world.size() as usize)).is_err() {
        return;
    }
    for Call { send, to, mut received, from, done } in requests {
        let displacements = |counts: &[i32]| -> Vec<i32> {
            counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
        };
        // An empty vector's address is 1, which Open MPI interprets as `MPI_IN_PLACE`.
        let (mut nothing, nothing_sent) = ([0], [0]);
        let sent = if send.is_empty() { &nothing_sent[..0] } else { &send[..] };
        let room = if received.is_empty() { &mut nothing[..0] } else { &mut received[..] };
        let room = &mut PartitionMut::new(room, &from[..], displacements(&from));
        let parts = to.as_ref().map(|to| Partition::new(sent, &to[..], displacements(to)));
        request::scope(|scope| match &parts {
            Some(parts) => end(world.immediate_all_to_all_varcount_into(scope, parts, room), waits),
            None => end(world.immediate_all_gather_varcount_into(scope, sent, room), waits),
        });
        // Sending fails if the caller has stopped waiting; the other ranks have their messages.
        drop(done.send([send, received]));
    }
}

/// Polls until all has arrived: without pauses while the caller waits, else with growing ones.
fn end<'a, R: ?Sized, S: Scope<'a>>(mut request: Request<'a, R, S>, waits: &AtomicBool) {
    let begun = Instant::now();
    while let Err(not_yet) = request.test() {
        request = not_yet;
        if waits.load(Ordering::Relaxed) {
            thread::yield_now();
        } else {
            thread::park_timeout((begun.elapsed() / 4).clamp(Duration::from_micros(20), Duration::from_millis(1)));
        }
    }
}

impl Mpi {
    fn send_request(
        &self,
        send: Vec<u8>,
        to: Option<&[usize]>,
        mut received: Vec<u8>,
        from: &[usize],
    ) -> Result<Receiver<[Vec<u8>; 2]>> {
        let sent: usize = to.map_or(send.len(), |to| to.iter().sum());
        if from.len() != self.size || to.is_some_and(|to| to.len() != self.size) || sent != send.len() {
            let found = format!("{} lengths, {sent} of {} bytes", from.len(), send.len());
            return Err(Error::argument(
                "Mpi",
                "to, from",
                &format!("{} lengths each, with a sum of all bytes", self.size),
                found,
            ));
        }
        let total = from.iter().sum();
        if i32::try_from(usize::max(total, sent)).is_err() {
            return Err(Error::argument("Mpi", "send", "of at most 2 GiB, like the received bytes", total.max(sent)));
        }
        // Each length fits, since their sum does.
        let counts = |lens: &[usize]| lens.iter().map(|len| *len as i32).collect::<Vec<_>>();
        received.resize(total, 0);
        let (done, answer) = channel();
        let call = Call { send, to: to.map(counts), received, from: counts(from), done };
        let requests = self.requests();
        let problem = match &*requests {
            Ok(requests) => requests.send(call).err().map(|_| ENDED.into()),
            Err(problem) => Some(problem.clone()),
        };
        problem.map_or(Ok(answer), |problem| Err(Error::collective(self.rank, problem)))
    }

    fn wait(&self, answer: &Receiver<[Vec<u8>; 2]>) -> Result<[Vec<u8>; 2]> {
        // After an earlier message has failed, this fails at once.
        let left = if self.requests().is_ok() { self.timeout } else { Duration::ZERO };
        self.waits.store(true, Ordering::Relaxed);
        self.thread.unpark();
        let answer = answer.recv_timeout(left);
        self.waits.store(false, Ordering::Relaxed);
        answer.map_err(|error| {
            let problem = match error {
                RecvTimeoutError::Timeout => format!("not all ranks arrived within {:?}", self.timeout),
                RecvTimeoutError::Disconnected => ENDED.into(),
            };
            let mut requests = self.requests();
            if let Ok(requests) = std::mem::replace(&mut *requests, Err(problem.clone())) {
                // MPI cannot be finalized here: its thread waits on.
                std::mem::forget(requests);
            }
            Error::collective(self.rank, problem)
        })
    }

    fn requests(&self) -> MutexGuard<'_, Result<Sender<Call>, String>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ENDED: &str = "the MPI thread has ended";

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let answer = self.send_request(send, Some(to), received, from);
        Pending::new(move || self.wait(&answer?))
    }

    fn begin_all_gather(&self, send: Vec<u8>, received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let answer = self.send_request(send, None, received, from);
        Pending::new(move || self.wait(&answer?))
    }
}

impl Drop for Mpi {
    /// Finalizes MPI, which waits for the other ranks, if all messages have arrived.
    fn drop(&mut self) {
        let requests = self.requests.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Ok(requests) = std::mem::replace(requests, Err("MPI is finalized".into())) {
            drop(requests);
            let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ended_or_late = end.recv_timeout(self.timeout);
        }
    }
}
