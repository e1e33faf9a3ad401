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

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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
/// `mpirun` ends all processes when one dies, unless it is told not to: by `--enable-recovery` of Open MPI. Then the
/// others have their error, and can say which checkpoint to go on from.
///
/// # Errors
///
/// If MPI has been begun in this process already, or does not begin within `timeout`.
pub fn world(timeout: Duration) -> Result<Mpi> {
    let ((to, requests), (answers, from)) = (channel(), channel());
    thread::spawn(move || serve(&requests, &answers));
    match from.recv_timeout(timeout) {
        Ok(Answer::Begun { rank, size }) => Ok(Mpi { rank, size, timeout, channels: Mutex::new(Ok((to, from))) }),
        Err(RecvTimeoutError::Timeout) => Err(Error::collective(0, format!("MPI has not begun within {timeout:?}"))),
        _ => Err(Error::collective(0, "MPI has been begun already in this process")),
    }
}

/// All processes that were started together: see [`world`].
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    timeout: Duration,
    /// Or why the thread of MPI does not answer any more.
    channels: Mutex<Result<Channels, String>>,
}

/// To the thread of MPI, and from it.
type Channels = (Sender<Request>, Receiver<Answer>);

/// What the thread of MPI is to do, with the memory for it.
#[derive(Debug)]
struct Request {
    send: Vec<u8>,
    /// How many bytes for each rank; none if all get the same.
    to: Option<Vec<i32>>,
    received: Vec<u8>,
    from: Vec<i32>,
}

#[derive(Debug)]
enum Answer {
    Begun { rank: usize, size: usize },
    Done(Request),
}

/// The thread of MPI, until nobody asks any more.
fn serve(requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = universe.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    if answers.send(Answer::Begun { rank, size }).is_err() {
        return;
    }
    for mut request in requests {
        let Request { send, to, received, from } = &mut request;
        let displacements = |counts: &[i32]| -> Vec<i32> {
            counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
        };
        // The address of a vector without elements is 1, which means something else to Open MPI: that the buffer is the
        // other one.
        let (mut nothing, nothing_sent) = ([0], [0]);
        let send = if send.is_empty() { &nothing_sent[..0] } else { &send[..] };
        let received = if received.is_empty() { &mut nothing[..0] } else { &mut received[..] };
        let mut received = PartitionMut::new(received, &from[..], displacements(from));
        match to {
            Some(to) => {
                let places = displacements(to);
                world.all_to_all_varcount_into(&Partition::new(send, &to[..], places), &mut received);
            }
            None => world.all_gather_varcount_into(send, &mut received),
        }
        if answers.send(Answer::Done(request)).is_err() {
            // Who asked has given up: MPI cannot be ended in order, and is not.
            std::mem::forget(universe);
            return;
        }
    }
}

impl Mpi {
    fn ask(&self, send: &mut Vec<u8>, to: Option<&[usize]>, received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
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
        let (to, from) = (to.map(counts), counts(from));
        let request = Request { send: std::mem::take(send), to, received: std::mem::take(received), from };
        let mut channels = self.channels.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (requests, answers) = match &*channels {
            Ok(channels) => channels,
            Err(problem) => return Err(Error::collective(self.rank, problem)),
        };
        let answer = match requests.send(request) {
            Ok(()) => answers.recv_timeout(self.timeout),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        let problem = match answer {
            Ok(Answer::Done(request)) => {
                (*send, *received) = (request.send, request.received);
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => format!("not all ranks have come within {:?}", self.timeout),
            _ => "the thread of MPI has ended".into(),
        };
        *channels = Err(problem.clone());
        Err(Error::collective(self.rank, problem))
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        self.ask(send, Some(to), received, from)
    }

    fn all_gather(&self, send: &mut Vec<u8>, received: &mut Vec<u8>, from: &[usize]) -> Result<()> {
        self.ask(send, None, received, from)
    }
}

impl Drop for Mpi {
    /// Ends MPI, if all messages have arrived. That too waits for the others.
    fn drop(&mut self) {
        let channels = self.channels.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Ok((requests, answers)) = std::mem::replace(channels, Err("MPI has ended".into())) {
            drop(requests);
            // Nothing comes but the end of the thread.
            drop(answers.recv_timeout(self.timeout));
        }
    }
}
