//! Loops that only move bytes: a lower bound for any chain with the same plan.
//!
//! Each pass of the plan reads one array and rewrites another, of as many bytes, in huge pages. A chain's pass uses
//! more arrays, which is never faster.
#![allow(unsafe_code, reason = "a prefetch, and SIMD levels that were detected")]

use std::time::Instant;

use gradchain::tree::huge_pages;
use gradchain::{PassPlan, Plan};

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u32; 16]);

/// Lines of an array before the next array's, as in the engine's chunks.
const CHUNK: usize = 2048;
/// Prefetch distance in bytes, and true to use all threads of the pool.
///
/// Each is the fastest for some size and CPU.
const PATTERNS: [(usize, bool); 5] = [(0, true), (1024, true), (2048, true), (8192, true), (0, false)];

/// A plan's passes: lines to read and rewrite, the fastest way, and common arrays.
pub struct Limit {
    passes: Vec<(usize, usize, usize)>,
    read: Vec<Line>,
    write: Vec<Line>,
}

impl Limit {
    /// Returns a chain's limit; `few_bits` is for 16-bit or 8-bit state.
    pub fn of(plan: &Plan, n: usize, size: usize, few_bits: bool) -> Limit {
        // The plan counts reads and writes. Half an array of state is a read-only or a 16-bit one. Stored updates count
        // once, but the CPU reads a written line first.
        let bytes = |pass: &PassPlan| {
            let (reads, params) = if pass.params == n * size { (pass.params, 0) } else { (0, pass.params / 2) };
            let odd = if few_bits { 0 } else { pass.state / n % 8 / 4 * 4 * n };
            (pass.source + reads + odd, params + (pass.state - odd) / 2 + pass.stored)
        };
        Limit::new(plan.passes.iter().map(bytes))
    }

    /// Passes that read and rewrite these bytes.
    pub fn new(bytes: impl IntoIterator<Item = (usize, usize)>) -> Limit {
        let passes: Vec<_> =
            bytes.into_iter().map(|(read, write)| (read.div_ceil(64), write.div_ceil(64), 0)).collect();
        let lines = |lines: Option<usize>| {
            let lines = vec![Line([1; 16]); lines.unwrap_or(0)];
            // SAFETY: a line is 16 words, and every bit pattern is an `f32`.
            huge_pages(unsafe { core::slice::from_raw_parts(lines.as_ptr().cast::<f32>(), 16 * lines.len()) });
            lines
        };
        let read = lines(passes.iter().map(|pass| pass.0).max());
        Limit { read, write: lines(passes.iter().map(|pass| pass.1).max()), passes }
    }

    /// Times all ways in turn with `step`; returns median seconds of step and limit, and the GB/s of each pass.
    ///
    /// Both find the caches as the other left them, and share a drift of the machine's speed.
    pub fn measure(&mut self, mut step: impl FnMut()) -> (f64, f64, Vec<f64>) {
        let bytes = |(read, write, _): &(usize, usize, usize)| 64 * (read + 2 * write);
        let rounds = (1_000_000_000 / self.passes.iter().map(bytes).sum::<usize>().max(1)).clamp(2, 40);
        let (mut steps, mut times) = (Vec::new(), vec![[const { Vec::new() }; PATTERNS.len()]; self.passes.len()]);
        for (way, turn) in
            (0..rounds).flat_map(|_| (0..PATTERNS.len()).flat_map(|way| (0..4).map(move |turn| (way, turn))))
        {
            // The caches hold another way's data.
            for (pass, times) in times.iter_mut().enumerate() {
                let time = seconds(|| self.run_pass(pass, way));
                times[way].extend((turn > 0).then_some(time));
            }
            let time = seconds(&mut step);
            steps.extend((turn > 0).then_some(time));
        }
        let mut fastest = Vec::new();
        for (pass, times) in self.passes.iter_mut().zip(times) {
            let medians = times.map(|mut times| median(&mut times)).into_iter().enumerate();
            let (way, time) = medians.min_by(|a, b| a.1.total_cmp(&b.1)).expect("several ways");
            pass.2 = way;
            fastest.push(time);
        }
        let rates = self.passes.iter().zip(&fastest).map(|(pass, time)| bytes(pass) as f64 / time / 1e9).collect();
        (median(&mut steps), fastest.iter().sum(), rates)
    }

    /// Runs each pass in its fastest way by `measure`.
    #[allow(dead_code, reason = "for the bench `peers`")]
    pub fn run(&mut self) {
        (0..self.passes.len()).for_each(|pass| self.run_pass(pass, self.passes[pass].2));
    }

    fn run_pass(&mut self, pass: usize, way: usize) {
        let (read, write, _) = self.passes[pass];
        let (ahead, _on_all) = PATTERNS[way];
        let chunks = read.max(write).div_ceil(CHUNK);
        let cut = |lines: usize, chunk: usize| lines * chunk / chunks..lines * (chunk + 1) / chunks;
        let mut rest = &mut self.write[..write];
        let write = |chunk| rest.split_off_mut(..cut(write, chunk).len()).expect("lines");
        let mut parts: Vec<_> =
            (0..chunks).map(|chunk| &self.read[cut(read, chunk)]).zip((0..chunks).map(write)).collect();
        // As in the engine, odd passes run backward, and begin with the most recent data.
        if pass % 2 == 1 {
            parts.reverse();
        }
        let run = |(read, write): (&[Line], &mut [Line])| widest(|| read_and_write(read, write, ahead));
        #[cfg(feature = "rayon")]
        if _on_all {
            use rayon::prelude::*;
            return parts.into_par_iter().for_each(run);
        }
        parts.into_iter().for_each(run);
    }
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Inlines the loop at the CPU's widest SIMD level.
fn widest(run: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512(run: impl FnOnce()) {
            run();
        }
        #[target_feature(enable = "avx2")]
        fn avx2(run: impl FnOnce()) {
            run();
        }
        match gradchain::detected_simd_level() {
            // SAFETY: the CPU has this level.
            gradchain::SimdLevel::Avx512 => return unsafe { avx512(run) },
            // SAFETY: as above.
            gradchain::SimdLevel::Avx2 => return unsafe { avx2(run) },
            _ => {}
        }
    }
    run();
}

#[inline(always)]
fn read_and_write(read: &[Line], write: &mut [Line], ahead: usize) {
    let mut sum = [0_u32; 16];
    for line in read {
        prefetch(line, ahead);
        sum.iter_mut().zip(line.0).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
    }
    for line in write {
        prefetch(line, ahead);
        line.0.iter_mut().for_each(|x| *x = x.wrapping_add(1));
    }
    std::hint::black_box(sum);
}

#[inline(always)]
fn prefetch(_line: &Line, _ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    if _ahead > 0 {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither reads nor faults, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(_line).cast::<i8>().wrapping_add(_ahead)) }
    }
}
