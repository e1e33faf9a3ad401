//! Loops that only move bytes: what no chain with the same plan can beat.
#![allow(
    unsafe_code,
    reason = "a hint to the processor, and instruction sets that were detected; see `ahead` and `widest`"
)]

use std::time::Instant;

use gradchain::{PassPlan, Plan};

use crate::trees::Shapes;

/// A line of a cache. Elements of 4 bytes come in blocks of two, elements of 2 bytes in blocks of one.
type Line = [u32; 16];
/// Elements of a block.
const BLOCK: usize = 32;

/// An array that is read, or read and written.
struct Stream {
    lines: Vec<Line>,
    start: usize,
    half: bool,
}

impl Stream {
    /// Filled with ones, so that each page exists. Each of a pass's arrays (`number`) begins elsewhere in a page, as
    /// the crate's own do: the limit is that of the better way.
    fn new(size: usize, elements: usize, number: usize) -> Stream {
        let start = number * 17 % 64;
        let lines = elements.next_multiple_of(BLOCK) * size / size_of::<Line>();
        Stream { lines: vec![[1; 16]; start + lines], start, half: size == 2 }
    }

    fn lines(&self) -> usize {
        self.lines.len() - self.start
    }

    fn bytes(&self) -> usize {
        self.lines() * size_of::<Line>()
    }
}

/// The arrays that one pass goes through.
struct Pass {
    read: Vec<Stream>,
    write: Vec<Stream>,
    backwards: bool,
    /// How many bytes ahead memory is asked for, if it is: what was found to be fastest.
    asks: Option<usize>,
}

/// Moves what a plan says must move, with one addition for each word.
pub struct Limit {
    passes: Vec<Pass>,
    elements: usize,
}

/// By how much a pass may be slower than its bytes take, read and written by one array, before it is no limit.
const SLOWER: f64 = 1.15;

impl Limit {
    /// For leaves whose elements have `size` bytes, and chains with state of few bits or without.
    pub fn of(plan: &Plan, shapes: &Shapes, size: usize, few_bits: bool) -> Limit {
        let elements = shapes.elements();
        let passes = plan.passes.iter().enumerate();
        let passes = passes.map(|(i, plan)| Pass::of(plan, elements, size, few_bits, i % 2 == 1)).collect();
        Limit { passes, elements }
    }

    /// A mini-step that only accumulates: gradients read, an accumulator read and written.
    pub fn of_accumulating(shapes: &Shapes, size: usize) -> Limit {
        let elements = shapes.elements();
        let (read, write) = (vec![Stream::new(size, elements, 0)], vec![Stream::new(4, elements, 1)]);
        Limit { passes: vec![Pass { read, write, backwards: false, asks: None }], elements }
    }

    pub fn run(&mut self) {
        self.passes.iter_mut().for_each(|pass| pass.run(self.elements));
    }

    /// Finds out whether asking ahead is faster, in the pool that the passes are run in; then how many GB/s each pass
    /// moves, and whether all are as fast as one array that is read and one that is written.
    pub fn calibrate(&mut self) -> (Vec<f64>, bool) {
        let (mut rates, mut honest) = (Vec::new(), true);
        for pass in &mut self.passes {
            let time = pass.calibrate(self.elements);
            let sum = |all: &[Stream]| all.iter().map(Stream::bytes).sum::<usize>();
            let (read, written) = (sum(&pass.read), 2 * sum(&pass.write));
            rates.push((read + written) as f64 / time / 1e9);
            // As much memory as the pass goes through, so that as much of it stays in a cache.
            let words = (read + written / 2) / 4;
            let plain = |writes: bool| {
                let stream = vec![Stream::new(4, words, 0)];
                let (read, write) = if writes { (Vec::new(), stream) } else { (stream, Vec::new()) };
                let bytes = 4 * words * (1 + usize::from(writes));
                let mut pass = Pass { read, write, backwards: false, asks: None };
                pass.calibrate(words) / bytes as f64
            };
            let expected = read as f64 * plain(false) + written as f64 * plain(true);
            honest &= time <= SLOWER * expected;
        }
        (rates, honest)
    }
}

/// The least time of a few runs; the first touches pages for the first time.
fn least(mut run: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    time();
    (0..5).map(|_| time()).fold(f64::INFINITY, f64::min)
}

impl Pass {
    fn of(plan: &PassPlan, n: usize, size: usize, few_bits: bool, backwards: bool) -> Pass {
        let source = (plan.source > 0).then(|| Stream::new(plan.source / n, n, 0));
        let (mut read, mut write) = (Vec::from_iter(source), Vec::new());
        match plan.params / n / size {
            0 => {}
            1 => read.push(Stream::new(size, n, 1)),
            _ => write.push(Stream::new(size, n, 1)),
        }
        // States and stored updates have 4 bytes. What is only stored counts once in the plan, but a line of memory
        // that is written is read first all the same. A state that is only read is what is left, or one of 16 bits, or
        // two of 8, whose scales are left out.
        let others = plan.state / n / 8 + plan.stored / n / 4;
        write.extend((0..others).map(|i| Stream::new(4, n, 2 + i)));
        match (plan.state / n % 8 >= 4, few_bits) {
            (true, true) => write.push(Stream::new(2, n, 2 + others)),
            (true, false) => read.push(Stream::new(4, n, 2 + others)),
            _ => {}
        }
        Pass { read, write, backwards, asks: None }
    }

    /// Finds out which way of asking is the fastest, and its time in seconds.
    fn calibrate(&mut self, elements: usize) -> f64 {
        let times = WAYS.map(|asks| {
            self.asks = asks;
            least(|| self.run(elements))
        });
        let fastest = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        self.asks = WAYS[fastest];
        times[fastest]
    }

    fn run(&mut self, elements: usize) {
        let mut part =
            Part { blocks: elements.div_ceil(BLOCK), backwards: self.backwards, asks: self.asks, ..Part::default() };
        for stream in &self.read {
            let to = if stream.half { &mut part.read_half } else { &mut part.read };
            to.push(&stream.lines[stream.start..]);
        }
        for stream in &mut self.write {
            let to = if stream.half { &mut part.write_half } else { &mut part.write };
            to.push(&mut stream.lines[stream.start..]);
        }
        split(part);
    }
}

/// A stretch of each array of a pass; those of 2 bytes an element apart.
#[derive(Default)]
struct Part<'a> {
    read: Vec<&'a [Line]>,
    read_half: Vec<&'a [Line]>,
    write: Vec<&'a mut [Line]>,
    write_half: Vec<&'a mut [Line]>,
    blocks: usize,
    backwards: bool,
    asks: Option<usize>,
}

/// Gives each thread of the pool its share.
fn split(part: Part<'_>) {
    #[cfg(feature = "rayon")]
    if rayon::current_num_threads() > 1 && part.blocks > 1 << 11 {
        let backwards = part.backwards;
        let (left, right) = part.halves();
        let (first, second) = if backwards { (right, left) } else { (left, right) };
        rayon::join(|| split(first), || split(second));
        return;
    }
    part.run();
}

impl<'a> Part<'a> {
    #[cfg(feature = "rayon")]
    fn halves(self) -> (Part<'a>, Part<'a>) {
        let mid = self.blocks / 2;
        let Part { backwards, asks, .. } = self;
        let mut left = Part { blocks: mid, backwards, asks, ..Part::default() };
        let mut right = Part { blocks: self.blocks - mid, backwards, asks, ..Part::default() };
        let reads = [(self.read, 2, &mut left.read, &mut right.read)];
        let halves = [(self.read_half, 1, &mut left.read_half, &mut right.read_half)];
        for (all, lines, left, right) in reads.into_iter().chain(halves) {
            all.into_iter().map(|x| x.split_at(lines * mid)).for_each(|(a, b)| {
                left.push(a);
                right.push(b);
            });
        }
        let writes = [(self.write, 2, &mut left.write, &mut right.write)];
        let halves = [(self.write_half, 1, &mut left.write_half, &mut right.write_half)];
        for (all, lines, left, right) in writes.into_iter().chain(halves) {
            all.into_iter().map(|x| x.split_at_mut(lines * mid)).for_each(|(a, b)| {
                left.push(a);
                right.push(b);
            });
        }
        (left, right)
    }

    fn run(mut self) {
        // As the engine cuts it: what is read last is still there when the next pass begins with it.
        const PIECE: usize = 512;
        let pieces = self.blocks.div_ceil(PIECE);
        for piece in 0..pieces {
            let first = PIECE * if self.backwards { pieces - 1 - piece } else { piece };
            let last = self.blocks.min(first + PIECE);
            by_arrays(&mut self, first, last);
        }
    }
}

/// Calls the loop for as many arrays as there are: read, read of 2 bytes, written, written of 2 bytes.
macro_rules! by_arrays {
    ($(($r:literal $rh:literal $w:literal $wh:literal))*) => {
        fn by_arrays(part: &mut Part<'_>, first: usize, last: usize) {
            match (part.read.len(), part.read_half.len(), part.write.len(), part.write_half.len()) {
                $(($r, $rh, $w, $wh) => widest::<$r, $rh, $w, $wh>(part, first, last),)*
                other => panic!("there is no loop for so many arrays: {other:?}"),
            }
        }
    };
}
by_arrays! {
    (1 0 0 0) (2 0 0 0) (3 0 0 0) (4 0 0 0) (0 0 1 0) (0 0 2 0) (0 0 3 0)
    (1 0 1 0) (1 0 2 0) (1 0 3 0) (1 0 4 0) (1 0 5 0) (1 0 6 0) (1 0 7 0) (1 0 8 0)
    (2 0 1 0) (2 0 2 0) (2 0 3 0) (2 0 4 0) (2 0 5 0) (2 0 6 0) (2 0 7 0) (3 0 1 0) (3 0 2 0) (3 0 3 0) (3 0 4 0)
    (0 1 0 0) (0 2 0 0) (1 1 0 0) (1 2 0 0) (2 1 0 0)
    (0 1 1 0) (0 1 2 0) (0 1 3 0) (0 1 4 0) (0 1 5 0) (0 2 1 0) (0 2 2 0) (0 2 3 0) (1 1 1 0) (1 1 2 0) (1 1 3 0) (1 2 1 0)
    (1 2 2 0) (1 2 3 0) (1 2 4 0) (1 1 4 0) (1 1 5 0) (0 2 4 0) (2 1 1 0) (2 1 2 0) (2 1 3 0) (1 1 4 1)
    (0 1 0 2) (0 1 2 2) (0 1 0 1) (0 1 1 1) (0 1 2 1) (0 1 3 1) (0 1 4 1) (0 1 5 1) (0 1 6 1) (1 0 0 1) (1 0 1 1) (1 0 2 1) (1 0 3 1) (1 0 4 1)
    (1 1 0 1) (1 1 1 1) (1 1 2 1) (1 1 3 1) (0 2 0 1) (0 2 1 1) (0 2 2 1) (2 0 1 1) (2 0 2 1)
}

/// The loop with the widest registers that there are.
fn widest<const R: usize, const RH: usize, const W: usize, const WH: usize>(
    part: &mut Part<'_>,
    from: usize,
    to: usize,
) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<const R: usize, const RH: usize, const W: usize, const WH: usize>(
            part: &mut Part<'_>,
            from: usize,
            to: usize,
        ) {
            flat::<R, RH, W, WH>(part, from, to);
        }
        #[target_feature(enable = "avx2")]
        fn avx2<const R: usize, const RH: usize, const W: usize, const WH: usize>(
            part: &mut Part<'_>,
            from: usize,
            to: usize,
        ) {
            flat::<R, RH, W, WH>(part, from, to);
        }
        match gradchain::detected_isa() {
            // SAFETY: the processor was found to have these.
            gradchain::Isa::Avx512 => return unsafe { avx512::<R, RH, W, WH>(part, from, to) },
            // SAFETY: as above.
            gradchain::Isa::Avx2 => return unsafe { avx2::<R, RH, W, WH>(part, from, to) },
            _ => {}
        }
    }
    flat::<R, RH, W, WH>(part, from, to);
}

/// One loop over the blocks of all arrays: a sum in registers for each line that is read, an addition to each that is
/// written.
#[inline(always)]
fn flat<const R: usize, const RH: usize, const W: usize, const WH: usize>(part: &mut Part<'_>, from: usize, to: usize) {
    let read: [&[[Line; 2]]; R] = core::array::from_fn(|i| &part.read[i].as_chunks().0[from..to]);
    let read_half: [&[Line]; RH] = core::array::from_fn(|i| &part.read_half[i][from..to]);
    let (mut write, mut write_half) = (part.write.iter_mut(), part.write_half.iter_mut());
    let mut write: [&mut [[Line; 2]]; W] =
        core::array::from_fn(|_| &mut write.next().expect("there are so many").as_chunks_mut().0[from..to]);
    let mut write_half: [&mut [Line]; WH] =
        core::array::from_fn(|_| &mut write_half.next().expect("there are so many")[from..to]);
    let (mut sums, mut sums_half) = ([[[0_u32; 16]; 2]; R], [[0_u32; 16]; RH]);
    for b in 0..to - from {
        for (sums, read) in sums.iter_mut().zip(&read) {
            for (sum, line) in sums.iter_mut().zip(&read[b]) {
                ahead(line, part.asks);
                for i in 0..16 {
                    sum[i] = sum[i].wrapping_add(line[i]);
                }
            }
        }
        for (sum, read) in sums_half.iter_mut().zip(&read_half) {
            ahead(&read[b], part.asks);
            for i in 0..16 {
                sum[i] = sum[i].wrapping_add(read[b][i]);
            }
        }
        for write in &mut write {
            for line in &mut write[b] {
                ahead(line, part.asks);
                line.iter_mut().for_each(|x| *x = x.wrapping_add(1));
            }
        }
        for write in &mut write_half {
            ahead(&write[b], part.asks);
            write[b].iter_mut().for_each(|x| *x = x.wrapping_add(1));
        }
    }
    std::hint::black_box((sums, sums_half));
}

/// How many bytes ahead memory is asked for, if it is: each is the fastest for some arrays on some processor.
const WAYS: [Option<usize>; 4] = [None, Some(384), Some(1024), Some(2048)];

#[inline(always)]
fn ahead(line: &Line, asks: Option<usize>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(bytes) = asks {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast::<i8>().wrapping_add(bytes)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, asks);
}
