//! What one of many ranks does in a step of AdamW that is shared out, against AdamW on one machine, and against copying
//! the bytes that it sends and receives.
//!
//! `cargo bench --bench ranks [-- ELEMENTS]` prints a line for each number of ranks, up to 4096. The rank is a real
//! one, all others are its mirror: they send what it sends. So its messages take no time but that of copying what
//! arrives, as from a network without latency, and what is left is the work of the rank itself. It goes through the
//! messages of a group of that size: they are counted, and their bytes. All that is timed takes turns; ratios are
//! medians of ratios.
#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gradchain::collective::Collective;
use gradchain::prelude::*;

/// Steps that are timed, and before these.
const STEPS: usize = 7;
const BEFORE: usize = 2;

fn main() {
    let given = std::env::args().skip(1).find(|a| !a.starts_with("--")).and_then(|n| n.parse().ok());
    let elements = given.unwrap_or(1 << 25);
    println!("{elements} elements of f32, AdamW");
    println!("ranks  messages  MB sent  MB received  MB of state  step, ms  to one machine  to copying");
    for ranks in [1, 2, 4, 8, 64, 256, 1024, 4096] {
        run(ranks, elements);
    }
}

/// What a rank has sent and received since it was last asked.
#[derive(Debug, Default)]
struct Counts {
    messages: AtomicUsize,
    sent: AtomicUsize,
    received: AtomicUsize,
}

/// One rank of many that all do the same.
#[derive(Debug)]
struct Mirror {
    size: usize,
    counts: Arc<Counts>,
}

impl Mirror {
    /// Receives `own` from all, as much of it as each is to send.
    fn answer(&self, own: &[u8], sent: usize, received: &mut Vec<u8>, from: &[usize]) {
        received.clear();
        for len in from {
            let copied = own.len().min(*len);
            received.extend_from_slice(&own[..copied]);
            received.resize(received.len() + len - copied, 0);
        }
        let others = received.len() - from[0];
        self.counts.messages.fetch_add(1, Ordering::Relaxed);
        self.counts.sent.fetch_add(sent, Ordering::Relaxed);
        self.counts.received.fetch_add(others, Ordering::Relaxed);
    }
}

impl Collective for Mirror {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        self.size
    }
    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], got: &mut Vec<u8>, from: &[usize]) -> gradchain::Result<()> {
        self.answer(&send[..to[0]], send.len() - to[0], got, from);
        Ok(())
    }
    fn all_gather(&self, send: &mut Vec<u8>, got: &mut Vec<u8>, from: &[usize]) -> gradchain::Result<()> {
        self.answer(send, send.len() * (self.size - 1), got, from);
        Ok(())
    }
}

fn run(size: usize, elements: usize) {
    let counts = Arc::new(Counts::default());
    let shared = sharded(adamw(1e-3), Mirror { size, counts: counts.clone() });
    let plain = adamw(1e-3);
    let (mut params, gradient) = (vec![1.0_f32; elements], vec![0.5_f32; elements]);
    let mut state = shared.init(&params).expect("a state");
    let bytes = state.schema().size().total_bytes();
    let mut of_one = plain.init(&params).expect("a state");
    let [mut ours, mut to_one, mut to_copies] = [const { Vec::new() }; 3];
    let (mut messages, mut sent, mut received) = (0, 0, 0);
    for step in 0..BEFORE + STEPS {
        let took = timed(|| shared.step(&mut params, &gradient, &mut state).expect("a step"));
        [messages, sent, received] =
            [&counts.messages, &counts.sent, &counts.received].map(|count| count.swap(0, Ordering::Relaxed));
        let one = timed(|| plain.step(&mut params, &gradient, &mut of_one).expect("a step"));
        let copied = copy(sent) + copy(received);
        if step >= BEFORE {
            ours.push(took);
            to_one.push(took / one);
            to_copies.push(if sent == 0 { f64::NAN } else { took / copied });
        }
    }
    let mb = |bytes: usize| bytes as f64 / 1e6;
    println!(
        "{size:5}  {messages:8}  {:7.1}  {:11.1}  {:11.2}  {:8.2}  {:14.2}  {:10.2}",
        mb(sent),
        mb(received),
        mb(bytes),
        ours.into_iter().fold(f64::INFINITY, f64::min) * 1e3,
        median(to_one),
        median(to_copies),
    );
}

/// How long it takes to copy so many bytes, 16 MiB at a time.
fn copy(bytes: usize) -> f64 {
    // Both written to before, so that the system has given the pages.
    let (from, mut to) = (vec![1_u8; 1 << 24], vec![2_u8; 1 << 24]);
    timed(|| {
        for start in (0..bytes).step_by(1 << 24) {
            let len = (bytes - start).min(1 << 24);
            to[..len].copy_from_slice(&from[..len]);
            std::hint::black_box(&mut to);
        }
    })
}

fn timed<R>(work: impl FnOnce() -> R) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
