//! Loops that only move bytes: what no chain with the same plan can beat.

use std::time::Instant;

use gradchain::tree::huge_pages;
use gradchain::{PassPlan, Plan};

use crate::trees::Shapes;
use moves::{BLOCK, Line, Part};

// `peers` has this file by its path too, so a folder for this would be looked for in two places.
#[path = "moves.rs"]
mod moves;

/// An array that is read, or read and written.
#[derive(Clone)]
struct Stream {
    lines: Vec<Line>,
    start: usize,
    half: bool,
    huge: bool,
}

impl Stream {
    /// Filled with ones, so that each page exists; in huge pages, if the system has some, or in usual ones.
    fn new(size: usize, elements: usize, start: usize, huge: bool) -> Stream {
        let lines = elements.next_multiple_of(BLOCK) * size / size_of::<Line>();
        let lines = vec![Line([1; 16]); start + lines];
        if huge {
            huge_pages(moves::words(&lines));
        }
        Stream { lines, start, half: size == 2, huge }
    }

    fn bytes(&self) -> usize {
        (self.lines.len() - self.start) * size_of::<Line>()
    }
}

/// A pass over some arrays, by their places among all.
#[derive(Clone, Default)]
struct Pass {
    read: Vec<usize>,
    write: Vec<usize>,
    elements: usize,
    backwards: bool,
    /// What was found to be fastest.
    way: Way,
}

/// How a pass goes through its arrays.
#[derive(Clone, Copy, Default)]
struct Way {
    /// How many bytes ahead memory is asked for, if it is.
    asks: Option<usize>,
    /// Whether what is only read is read at several places at once.
    streams: bool,
    /// Whether one thread does it all, even if there are more.
    alone: bool,
}

/// Each distance is the fastest for some arrays on some processor; for small ones, to wake another thread takes longer
/// than it saves.
const WAYS: [Way; 7] = {
    const PLAIN: Way = Way { asks: None, streams: false, alone: false };
    const fn asks(bytes: usize) -> Way {
        Way { asks: Some(bytes), ..PLAIN }
    }
    let (streams, alone) = (Way { streams: true, ..PLAIN }, Way { alone: true, ..PLAIN });
    [PLAIN, asks(384), asks(1024), asks(2048), asks(8192), streams, alone]
};

/// Moves what a plan says must move, with one addition for each word.
#[derive(Clone, Default)]
pub struct Limit {
    arrays: Vec<Stream>,
    passes: Vec<Pass>,
    /// Whether gradients and parameters are in huge pages, as state is.
    huge: bool,
    /// Where the pass before stores updates, if it does.
    stored: Option<usize>,
}

/// What was found in turns with a step: medians of seconds.
pub struct Measured {
    pub step: f64,
    pub limit: f64,
    /// GB/s of each pass of the limit.
    pub rates: Vec<f64>,
    /// Whether each pass is about as fast as one array that is read and one that is written.
    pub honest: bool,
}

/// Arrays that a pass is compared with: read, read and written, and the same in huge pages.
const PLAIN: usize = 4;
/// By how much a pass may be slower than its bytes take, read and written by one array, before it is no limit.
const SLOWER: f64 = 1.15;

impl Limit {
    /// For leaves whose elements have `size` bytes, and chains with state of few bits or without.
    pub fn of(plan: &Plan, shapes: &Shapes, size: usize, few_bits: bool) -> Limit {
        let mut limit = Limit { huge: are_huge(), ..Limit::default() };
        plan.passes.iter().for_each(|pass| limit.add(pass, shapes.elements(), size, few_bits));
        limit
    }

    /// A mini-step that only accumulates: gradients read, an accumulator read and written.
    pub fn of_accumulating(shapes: &Shapes, size: usize) -> Limit {
        let (mut limit, elements) = (Limit { huge: are_huge(), ..Limit::default() }, shapes.elements());
        let (read, write) = (vec![limit.array(size, elements, 0)], vec![limit.array(4, elements, 1)]);
        limit.passes.push(Pass { read, write, elements, ..Pass::default() });
        limit
    }

    /// Times itself in turns with `step`, and then plain passes, in the pool that this is called in. So either finds in
    /// the caches what a step left there, be that all of its arrays or none, and a drift of the machine's speed hits
    /// both sides. Plain passes have turns of their own, so that there are never more than two sets of arrays that push
    /// each other out.
    pub fn measure(&mut self, mut step: impl FnMut()) -> Measured {
        // A round takes seconds for large trees, and for small ones less than what a busy machine disturbs.
        let elements = self.passes.iter().map(|pass| pass.elements).max().unwrap_or(0);
        let rounds = (40_000_000 / elements.max(1)).clamp(2, 40);
        let (stepped, times) = self.turns(&mut step, rounds);
        let (_, plain) = self.plain().turns(&mut step, rounds / 2);
        let expected = plain.chunks(PLAIN).map(|both| both.iter().sum::<f64>());
        let rate =
            |(pass, time): (&Pass, &f64)| (self.bytes(&pass.read) + 2 * self.bytes(&pass.write)) as f64 / time / 1e9;
        Measured {
            step: stepped,
            limit: times.iter().sum(),
            rates: self.passes.iter().zip(&times).map(rate).collect(),
            honest: times.iter().zip(expected).all(|(time, expected)| *time <= SLOWER * expected),
        }
    }

    /// The median of a step, and the least median of the ways of each pass, which then is its way.
    fn turns(&mut self, step: &mut impl FnMut(), rounds: usize) -> (f64, Vec<f64>) {
        let mut steps = Vec::new();
        let mut times = vec![[const { Vec::new() }; WAYS.len()]; self.passes.len()];
        for _ in 0..rounds {
            for (number, way) in WAYS.into_iter().enumerate() {
                // The first turn of a way is not counted: threads find in their caches what another way left there, and
                // the first of all touches pages for the first time.
                for turn in 0..4 {
                    for (pass, times) in self.passes.iter().zip(&mut times) {
                        let time = seconds(|| pass.run(&mut self.arrays, way));
                        times[number].extend((turn > 0).then_some(time));
                    }
                    let time = seconds(&mut *step);
                    steps.extend((turn > 0).then_some(time));
                }
            }
        }
        let fastest = |(pass, times): (&mut Pass, [Vec<f64>; WAYS.len()])| {
            let medians = times.map(|mut times| median(&mut times)).into_iter().zip(WAYS);
            let (time, way) = medians.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are several ways");
            pass.way = way;
            time
        };
        (median(&mut steps), self.passes.iter_mut().zip(times).map(fastest).collect())
    }

    /// For each pass, one over an array that is read and one over an array that is read and written, of as many bytes,
    /// and the same for those in huge pages: as much memory as this goes through, so that as much stays in a cache.
    fn plain(&self) -> Limit {
        let (mut passes, mut most) = (Vec::new(), [0; PLAIN]);
        for pass in &self.passes {
            for (number, most) in most.iter_mut().enumerate() {
                let (places, huge) = ([&pass.read, &pass.write][number % 2], number >= 2);
                let places: Vec<usize> = places.iter().copied().filter(|at| self.arrays[*at].huge == huge).collect();
                let words = self.bytes(&places) / 4;
                *most = words.max(*most);
                let (read, write) = if number % 2 == 0 { (vec![number], vec![]) } else { (vec![], vec![number]) };
                passes.push(Pass { read, write, elements: words, backwards: pass.backwards, ..Pass::default() });
            }
        }
        let arrays = most.into_iter().enumerate().map(|(number, words)| Stream::new(4, words, 0, number >= 2));
        Limit { arrays: arrays.collect(), passes, ..Limit::default() }
    }

    fn add(&mut self, plan: &PassPlan, n: usize, size: usize, few_bits: bool) {
        let backwards = self.passes.len() % 2 == 1;
        let stored = self.stored.take();
        let mut array = |size, number| self.array(size, n, number);
        let source = (plan.source > 0).then(|| stored.unwrap_or_else(|| array(plan.source / n, 0)));
        let (mut read, mut write) = (Vec::from_iter(source), Vec::new());
        match plan.params / n / size {
            0 => {}
            1 => read.push(array(size, 1)),
            _ => write.push(array(size, 1)),
        }
        // States and stored updates have 4 bytes. What is only stored counts once in the plan, but a line of memory
        // that is written is read first all the same. A state that is only read is what is left, or one of 16 bits, or
        // two of 8, whose scales are left out.
        let others = plan.state / n / 8 + plan.stored / n / 4;
        write.extend((0..others).map(|i| array(4, 2 + i)));
        self.stored = (plan.stored > 0).then(|| write.last().copied()).flatten();
        let mut array = |size, number| self.array(size, n, number);
        match (plan.state / n % 8 >= 4, few_bits) {
            (true, true) => write.push(array(2, 2 + others)),
            (true, false) => read.push(array(4, 2 + others)),
            _ => {}
        }
        self.passes.push(Pass { read, write, elements: n, backwards, way: Way::default() });
    }

    /// The place of an array. Each `number` begins elsewhere in a page, as the crate's own arrays do: the limit is that
    /// of the better way. Passes have arrays in common, since what one leaves in a cache the next finds there.
    fn array(&mut self, size: usize, elements: usize, number: usize) -> usize {
        let (start, half) = (number * 17 % 64, size == 2);
        let found = self.arrays.iter().position(|array| (array.start, array.half) == (start, half));
        found.unwrap_or_else(|| {
            self.arrays.push(Stream::new(size, elements, start, self.huge || number > 1));
            self.arrays.len() - 1
        })
    }

    fn bytes(&self, places: &[usize]) -> usize {
        places.iter().map(|place| self.arrays[*place].bytes()).sum()
    }
}

/// For a program that is told from outside when to step and when to move.
#[allow(dead_code, reason = "the benchmark beside other libraries has this file too")]
impl Limit {
    /// The fastest way that `calibrate` found.
    pub fn run(&mut self) {
        self.passes.iter().for_each(|pass| pass.run(&mut self.arrays, pass.way));
    }

    /// GB/s of each pass and whether they are honest, in turns with other arrays of the same sizes, which leave in the
    /// caches what a step would.
    pub fn calibrate(&mut self) -> (Vec<f64>, bool) {
        let mut others = self.clone();
        let measured = self.measure(|| others.run());
        (measured.rates, measured.honest)
    }
}

/// Whether parameters and gradients are to be in huge pages: with `PAGES=huge` before the command.
pub fn are_huge() -> bool {
    std::env::var("PAGES").is_ok_and(|pages| pages == "huge")
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

impl Pass {
    fn run(&self, arrays: &mut [Stream], way: Way) {
        let blocks = self.elements.div_ceil(BLOCK);
        let mut part =
            Part { blocks, backwards: self.backwards, asks: way.asks, streams: way.streams, ..Part::default() };
        for (place, Stream { lines, start, half, .. }) in arrays.iter_mut().enumerate() {
            let lines = &mut lines[*start..];
            match (self.read.contains(&place), self.write.contains(&place), half) {
                (true, _, false) => part.read.push(lines),
                (true, _, true) => part.read_half.push(lines),
                (_, true, false) => part.write.push(lines),
                (_, true, true) => part.write_half.push(lines),
                _ => {}
            }
        }
        if way.alone { part.run() } else { part.share() }
    }
}
