//! Machines that train together with [gradchain](https://docs.rs/gradchain), by MPI.
//!
//! [`world`] is a [`Collective`] of all processes that `mpirun` has started. With it
//! [`sharded`](gradchain::wrapper::sharded) shares the state of an optimizer out among them, and [`Save::to_shards`]
//! writes what each has.
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

/// All processes that were started together.
///
/// All of MPI is done on one thread of its own, from its beginning to its end, so that a library is enough that one
/// thread may call. A message that takes longer than `timeout` is an error, and every call after it. MPI itself waits
/// for ever: its thread is left behind then with the memory of the message, and ends with the process, which should
/// end.
///
/// Messages of a call that [begins](Collective::begin_all_to_all) travel while the caller works. Meanwhile the thread
/// asks MPI now and then how far they are, and sleeps in between, so that it takes little of the caller's time where a
/// rank has one core; while the caller waits it asks all the time.
///
/// `mpirun` ends all processes when one dies, unless it is told not to: by `--enable-recovery` of Open MPI. Then the
/// others have their error, and can say which checkpoint to go on from.
///
/// # Errors
///
/// If MPI has been begun in this process already, or does not begin within `timeout`.
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
        Err(RecvTimeoutError::Timeout) => Err(Error::collective(0, format!("MPI has not begun within {timeout:?}"))),
        Err(_) => Err(Error::collective(0, "MPI has been begun already in this process")),
    }
}

/// All processes that were started together: see [`world`].
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    timeout: Duration,
    thread: Thread,
    /// Whether the caller waits for what it has asked for.
    waits: Arc<AtomicBool>,
    /// To the thread of MPI, or why it does not answer any more.
    requests: Mutex<Result<Sender<Call>, String>>,
    /// Where nothing comes but the end of that thread.
    end: Mutex<Receiver<(usize, usize)>>,
}

/// What the thread of MPI is to do, with the memory for it.
#[derive(Debug)]
struct Call {
    send: Vec<u8>,
    /// How many bytes for each rank; none if all get the same.
    to: Option<Vec<i32>>,
    received: Vec<u8>,
    from: Vec<i32>,
    /// Where the memory goes to when that has been done.
    done: Sender<[Vec<u8>; 2]>,
}

/// The thread of MPI, until nobody asks any more.
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
        // The address of a vector without elements is 1, which means something else to Open MPI: that the buffer is the
        // other one.
        let (mut nothing, nothing_sent) = ([0], [0]);
        let sent = if send.is_empty() { &nothing_sent[..0] } else { &send[..] };
        let room = if received.is_empty() { &mut nothing[..0] } else { &mut received[..] };
        let room = &mut PartitionMut::new(room, &from[..], displacements(&from));
        let parts = to.as_ref().map(|to| Partition::new(sent, &to[..], displacements(to)));
        request::scope(|scope| match &parts {
            Some(parts) => end(world.immediate_all_to_all_varcount_into(scope, parts, room), waits),
            None => end(world.immediate_all_gather_varcount_into(scope, sent, room), waits),
        });
        // That nobody waits for it is no matter of the others.
        drop(done.send([send, received]));
    }
}

/// Asks until all has arrived: all the time while the caller waits; else with pauses, the longer the longer it takes.
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
    /// Asks for something, which is answered to the receiver.
    fn ask(
        &self,
        send: Vec<u8>,
        to: Option<&[usize]>,
        mut received: Vec<u8>,
        from: &[usize],
    ) -> Result<Receiver<[Vec<u8>; 2]>> {
        let sent: usize = to.map_or(send.len(), |to| to.iter().sum());
        if from.len() != self.size || to.is_some_and(|to| to.len() != self.size) || sent != send.len() {
            let found = format!("{} lengths, {sent} of {} bytes", from.len(), send.len());
            return Err(Error::argument("Mpi", "to, from", &format!("{} lengths of all bytes", self.size), found));
        }
        let total = from.iter().sum();
        if i32::try_from(usize::max(total, sent)).is_err() {
            return Err(Error::argument("Mpi", "send", "of no more than 2 GiB, nor what is received", total.max(sent)));
        }
        // They fit, since their sum does.
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
        // What came before this one and did not arrive is said at once.
        let left = if self.requests().is_ok() { self.timeout } else { Duration::ZERO };
        self.waits.store(true, Ordering::Relaxed);
        self.thread.unpark();
        let answer = answer.recv_timeout(left);
        self.waits.store(false, Ordering::Relaxed);
        answer.map_err(|error| {
            let problem = match error {
                RecvTimeoutError::Timeout => format!("not all ranks have come within {:?}", self.timeout),
                RecvTimeoutError::Disconnected => ENDED.into(),
            };
            let mut requests = self.requests();
            if let Ok(requests) = std::mem::replace(&mut *requests, Err(problem.clone())) {
                // MPI cannot be ended in order, and is not: its thread goes on to wait.
                std::mem::forget(requests);
            }
            Error::collective(self.rank, problem)
        })
    }

    fn requests(&self) -> MutexGuard<'_, Result<Sender<Call>, String>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ENDED: &str = "the thread of MPI has ended";

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let answer = self.ask(send, Some(to), received, from);
        Pending::new(move || self.wait(&answer?))
    }

    fn begin_all_gather(&self, send: Vec<u8>, received: Vec<u8>, from: &[usize]) -> Pending<'_> {
        let answer = self.ask(send, None, received, from);
        Pending::new(move || self.wait(&answer?))
    }
}

impl Drop for Mpi {
    /// Ends MPI, if all messages have arrived. That too waits for the others.
    fn drop(&mut self) {
        let requests = self.requests.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Ok(requests) = std::mem::replace(requests, Err("MPI has ended".into())) {
            drop(requests);
            let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ended_or_late = end.recv_timeout(self.timeout);
        }
    }
}
