//! Machines that train together with [gradchain](https://docs.rs/gradchain), by MPI.
//!
//! [`world`] is a [`Collective`] of all processes that `mpirun` has started. With it [`sharded`](gradchain::sharded)
//! shares the state of an optimizer out among them, and [`Save::to_shards`] writes what each has.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use gradchain::collective::Collective;
//! use gradchain::prelude::*;
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

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gradchain::collective::Collective;
use gradchain::{Error, Result};
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::traits::{Communicator, CommunicatorCollectives};

/// All processes that were started together.
///
/// All of MPI is done on one thread of its own, from its beginning to its end, so that a library is enough that one
/// thread may call. A message that takes longer than `timeout` is an error, and every call after it. MPI itself waits
/// for ever: its thread is left behind then with the memory of the message, and ends with the process, which should
/// end.
///
/// A call that [begins](Collective::begin_all_to_all) does everything at once: MPI waits by asking again and again,
/// which takes the core from the caller's work where a rank has one core.
///
/// `mpirun` ends all processes when one dies, unless it is told not to: by `--enable-recovery` of Open MPI. Then the
/// others have their error, and can say which checkpoint to go on from.
///
/// # Errors
///
/// If MPI has been begun in this process already, or does not begin within `timeout`.
pub fn world(timeout: Duration) -> Result<Mpi> {
    let ((requests, to_do), (begun, begins)) = (channel(), channel());
    thread::spawn(move || serve(&to_do, &begun));
    match begins.recv_timeout(timeout) {
        Ok((rank, size)) => {
            Ok(Mpi { rank, size, timeout, requests: Mutex::new(Ok(requests)), end: Mutex::new(begins) })
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
    /// To the thread of MPI, or why it does not answer any more.
    requests: Mutex<Result<Sender<Request>, String>>,
    /// Where nothing comes but the end of that thread.
    end: Mutex<Receiver<(usize, usize)>>,
}

/// What the thread of MPI is to do, with the memory for it.
#[derive(Debug)]
struct Request {
    send: Vec<u8>,
    /// How many bytes for each rank; none if all get the same.
    to: Option<Vec<i32>>,
    received: Vec<u8>,
    from: Vec<i32>,
    /// Where the memory goes to when that has been done.
    done: Sender<[Vec<u8>; 2]>,
}

/// The thread of MPI, until nobody asks any more.
fn serve(requests: &Receiver<Request>, begun: &Sender<(usize, usize)>) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = universe.world();
    if begun.send((world.rank() as usize, world.size() as usize)).is_err() {
        return;
    }
    for Request { send, to, mut received, from, done } in requests {
        let displacements = |counts: &[i32]| -> Vec<i32> {
            counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
        };
        // The address of a vector without elements is 1, which means something else to Open MPI: that the buffer is the
        // other one.
        let (mut nothing, nothing_sent) = ([0], [0]);
        let sent = if send.is_empty() { &nothing_sent[..0] } else { &send[..] };
        let room = if received.is_empty() { &mut nothing[..0] } else { &mut received[..] };
        let mut room = PartitionMut::new(room, &from[..], displacements(&from));
        match to {
            Some(to) => {
                let places = displacements(&to);
                world.all_to_all_varcount_into(&Partition::new(sent, to, places), &mut room);
            }
            None => world.all_gather_varcount_into(sent, &mut room),
        }
        // That nobody waits for it is no matter of the others.
        drop(done.send([send, received]));
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
        let request = Request { send, to: to.map(counts), received, from: counts(from), done };
        let requests = self.requests();
        let problem = match &*requests {
            Ok(requests) => requests.send(request).err().map(|_| ENDED.into()),
            Err(problem) => Some(problem.clone()),
        };
        problem.map_or(Ok(answer), |problem| Err(Error::collective(self.rank, problem)))
    }

    fn wait(&self, answer: &Receiver<[Vec<u8>; 2]>) -> Result<[Vec<u8>; 2]> {
        // What came before this one and did not arrive is said at once.
        let left = if self.requests().is_ok() { self.timeout } else { Duration::ZERO };
        answer.recv_timeout(left).map_err(|error| {
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

    fn requests(&self) -> MutexGuard<'_, Result<Sender<Request>, String>> {
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

    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        let answer = self.ask(std::mem::take(send), Some(to), std::mem::take(received), from)?;
        [*send, *received] = self.wait(&answer)?;
        Ok(())
    }

    fn all_gather(&self, send: &mut Vec<u8>, received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        let answer = self.ask(std::mem::take(send), None, std::mem::take(received), from)?;
        [*send, *received] = self.wait(&answer)?;
        Ok(())
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
