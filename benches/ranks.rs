//! Times a rank of many in a sharded step of AdamW, against one process, and against copying its messages.
//!
//! `cargo bench --bench ranks --features collective [-- ELEMENTS]` prints a line for each number of ranks, up to 4096.
//! One rank is real; all others mirror it and send the same messages, which it handles as in a group of that size; they
//! and their bytes are counted. Messages take only the time to copy the arriving bytes, as from a network without
//! latency. Work is the step without these copies, which a network or a library would make. All ways take turns; ratios
//! are medians of ratios.
//! The last ratio excludes the rank's share of AdamW: it covers messages, and adding updates to parameters.
#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use gradchain::collective::{Collective, Pending};
use gradchain::prelude::*;
use gradchain::wrapper::sharded;

/// Timed, and warmup.
const STEPS: usize = 7;
const BEFORE: usize = 2;

fn main() {
    let given = std::env::args().skip(1).find(|a| !a.starts_with("--")).and_then(|n| n.parse().ok());
    let elements = given.unwrap_or(1 << 25);
    println!("{elements} elements of f32, AdamW");
    println!(
        "ranks  messages  MB sent  MB received  MB of state  step, ms  work, ms  to one machine  to copying  but AdamW"
    );
    for ranks in [1, 2, 4, 8, 64, 256, 1024, 4096] {
        run(ranks, elements);
    }
}

/// A rank's traffic since the last read.
#[derive(Debug, Default)]
struct Counts {
    messages: AtomicUsize,
    sent: AtomicUsize,
    received: AtomicUsize,
    nanoseconds: AtomicU64,
}

/// One rank of many identical ones.
#[derive(Debug)]
struct Mirror {
    size: usize,
    counts: Arc<Counts>,
}

impl Mirror {
    /// Receives `own` from all ranks, up to what each would send.
    fn answer(&self, own: &[u8], sent: usize, received: &mut Vec<u8>, from: &[usize]) {
        let start = Instant::now();
        received.clear();
        for len in from {
            let copied = own.len().min(*len);
            received.extend_from_slice(&own[..copied]);
            received.resize(received.len() + len - copied, 0);
        }
        self.counts.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
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
    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], mut got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.answer(&send[..to[0]], send.len() - to[0], &mut got, from);
        Pending::new(|| Ok([send, got]))
    }
    fn begin_all_gather(&self, send: Vec<u8>, mut got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.answer(&send, send.len() * (self.size - 1), &mut got, from);
        Pending::new(|| Ok([send, got]))
    }
}

fn run(size: usize, elements: usize) {
    let counts = Arc::new(Counts::default());
    let shared = sharded(adamw(1e-3), Mirror { size, counts: counts.clone() });
    let plain = adamw(1e-3);
    let (mut params, gradient) = (vec![1.0_f32; elements], vec![0.5_f32; elements]);
    let mut state = shared.init(&params).expect("a state");
    // Touches the pages.
    let mut room = [1, 2].map(|byte| vec![byte; 4 * elements]);
    let bytes = state.schema().size().total_bytes();
    let mut of_one = plain.init(&params).expect("a state");
    let share = bytes as f64 / of_one.schema().size().total_bytes() as f64;
    let [mut ours, mut work, mut to_one, mut to_copies, mut rest_to_copies] = [const { Vec::new() }; 5];
    let (mut messages, mut sent, mut received) = (0, 0, 0);
    for step in 0..BEFORE + STEPS {
        let took = timed(|| shared.step(&mut params, &gradient, &mut state).expect("a step"));
        [messages, sent, received] =
            [&counts.messages, &counts.sent, &counts.received].map(|count| count.swap(0, Ordering::Relaxed));
        let arriving = counts.nanoseconds.swap(0, Ordering::Relaxed) as f64 / 1e9;
        let one = timed(|| plain.step(&mut params, &gradient, &mut of_one).expect("a step"));
        let copied = copy(sent, &mut room) + copy(received, &mut room);
        if step >= BEFORE {
            ours.push(took);
            work.push(took - arriving);
            to_one.push(took / one);
            let copied = if sent == 0 { f64::NAN } else { copied };
            to_copies.push(took / copied);
            rest_to_copies.push((took - share * one) / copied);
        }
    }
    let mb = |bytes: usize| bytes as f64 / 1e6;
    let fastest = |times: Vec<f64>| times.into_iter().fold(f64::INFINITY, f64::min) * 1e3;
    println!(
        "{size:5}  {messages:8}  {:7.1}  {:11.1}  {:11.2}  {:8.2}  {:8.2}  {:14.2}  {:10.2}  {:9.2}",
        mb(sent),
        mb(received),
        mb(bytes),
        fastest(ours),
        fastest(work),
        median(to_one),
        median(to_copies),
        median(rest_to_copies),
    );
}

/// Times copying in chunks, from a buffer as large as the gradients to one as large as the messages.
fn copy(bytes: usize, [from, to]: &mut [Vec<u8>; 2]) -> f64 {
    timed(|| {
        for start in (0..bytes).step_by(from.len()) {
            let len = (bytes - start).min(from.len());
            to[..len].copy_from_slice(&from[..len]);
            std::hint::black_box(&mut *to);
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
