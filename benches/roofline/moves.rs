//! The loops of the limit: stretches of arrays are read, or read and written, with the widest registers that there are.
#![allow(
    unsafe_code,
    reason = "a hint to the processor, and instruction sets that were detected; see `ahead` and `widest`"
)]

/// A line of a cache, and aligned as one: what straddles two takes longer where all lies in a cache. Elements of 4
/// bytes come in blocks of two, elements of 2 bytes in blocks of one.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u32; 16]);

/// The lines as numbers that can be a leaf.
pub fn words(lines: &[Line]) -> &[f32] {
    // SAFETY: a line is 16 words, of which every pattern of bits is a number.
    unsafe { core::slice::from_raw_parts(lines.as_ptr().cast(), 16 * lines.len()) }
}

/// Elements of a block.
pub const BLOCK: usize = 32;
/// Places at which memory is read in turns: one core has more lines on their way then.
const STREAMS: usize = 8;

/// A stretch of each array of a pass; those of 2 bytes an element apart.
#[derive(Default)]
pub struct Part<'a> {
    pub read: Vec<&'a [Line]>,
    pub read_half: Vec<&'a [Line]>,
    pub write: Vec<&'a mut [Line]>,
    pub write_half: Vec<&'a mut [Line]>,
    pub blocks: usize,
    pub backwards: bool,
    /// How many bytes ahead memory is asked for, if it is.
    pub asks: Option<usize>,
    /// Whether arrays that are only read are read at several places at once.
    pub streams: bool,
}

/// Cuts a part for idle threads to take, of which each has one of `shares`. Backwards, a thread begins with the end of
/// what it went through before, not with the end of another's share, which lies in another's cache: so shares are not
/// swapped, only what is in them.
#[cfg(feature = "rayon")]
fn split(part: Part<'_>, shares: usize) {
    if part.blocks <= 1 << 11 {
        return part.run();
    }
    let swap = part.backwards && shares < 2;
    let (left, right) = part.halves();
    let (first, second) = if swap { (right, left) } else { (left, right) };
    rayon::join(|| split(first, shares / 2), || split(second, shares / 2));
}

impl<'a> Part<'a> {
    /// Runs on all threads of the pool.
    pub fn share(self) {
        #[cfg(feature = "rayon")]
        if rayon::current_num_threads() > 1 {
            return split(self, rayon::current_num_threads());
        }
        self.run();
    }

    #[cfg(feature = "rayon")]
    fn halves(self) -> (Part<'a>, Part<'a>) {
        let mid = self.blocks / 2;
        let Part { backwards, asks, streams, .. } = self;
        let mut left = Part { blocks: mid, backwards, asks, streams, ..Part::default() };
        let mut right = Part { blocks: self.blocks - mid, backwards, asks, streams, ..Part::default() };
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

    pub fn run(mut self) {
        // As the engine goes: what is read last is still there when the next pass begins with it, and the processor
        // reads ahead until the order breaks. Several places must be far apart, or it takes them for one.
        let streams = self.streams && self.write.is_empty() && self.write_half.is_empty();
        let size = if streams { 2048 } else { 8192 };
        let chunks = self.blocks.div_ceil(size);
        for chunk in 0..chunks {
            let first = size * if self.backwards { chunks - 1 - chunk } else { chunk };
            let last = self.blocks.min(first + size);
            match streams {
                true => self.read_by_streams(first, last),
                false => by_arrays(&mut self, first, last),
            }
        }
    }

    /// Reads arrays at so many places in turns that there are eight of one type, or fewer where there are two types.
    fn read_by_streams(&self, first: usize, last: usize) {
        let cuts = STREAMS / (self.read.len() + self.read_half.len()).next_power_of_two();
        let len = (last - first) / cuts;
        let mut cut = Part { blocks: len, ..Part::default() };
        for i in 0..cuts {
            let (from, to) = (first + i * len, first + (i + 1) * len);
            cut.read.extend(self.read.iter().map(|all| &all[2 * from..2 * to]));
            cut.read_half.extend(self.read_half.iter().map(|all| &all[from..to]));
        }
        by_arrays(&mut cut, 0, len);
        let mut rest = Part { read: self.read.clone(), read_half: self.read_half.clone(), ..Part::default() };
        by_arrays(&mut rest, first + cuts * len, last);
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
    (1 0 0 0) (2 0 0 0) (3 0 0 0) (4 0 0 0) (6 0 0 0) (8 0 0 0) (0 8 0 0) (4 4 0 0) (2 4 0 0) (4 2 0 0) (0 0 1 0) (0 0 2 0) (0 0 3 0)
    (1 0 1 0) (1 0 2 0) (1 0 3 0) (1 0 4 0) (1 0 5 0) (1 0 6 0) (1 0 7 0) (1 0 8 0)
    (2 0 1 0) (2 0 2 0) (2 0 3 0) (2 0 4 0) (2 0 5 0) (2 0 6 0) (2 0 7 0) (3 0 1 0) (3 0 2 0) (3 0 3 0) (3 0 4 0)
    (0 1 0 0) (0 2 0 0) (1 1 0 0) (1 2 0 0) (2 1 0 0)
    (0 1 1 0) (0 1 2 0) (0 1 3 0) (0 1 4 0) (0 1 5 0) (0 2 1 0) (0 2 2 0) (0 2 3 0) (1 1 1 0) (1 1 2 0) (1 1 3 0)
    (1 2 1 0) (1 2 2 0) (1 2 3 0) (1 2 4 0) (1 1 4 0) (1 1 5 0) (0 2 4 0) (2 1 1 0) (2 1 2 0) (2 1 3 0) (1 1 4 1)
    (0 1 0 2) (0 1 2 2) (0 1 0 1) (0 1 1 1) (0 1 2 1) (0 1 3 1) (0 1 4 1) (0 1 5 1) (0 1 6 1) (1 0 0 1) (1 0 1 1)
    (1 0 2 1) (1 0 3 1) (1 0 4 1) (1 1 0 1) (1 1 1 1) (1 1 2 1) (1 1 3 1) (0 2 0 1) (0 2 1 1) (0 2 2 1) (2 0 1 1)
    (2 0 2 1)
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
        match gradchain::detected_simd_level() {
            // SAFETY: the processor was found to have these.
            gradchain::SimdLevel::Avx512 => return unsafe { avx512::<R, RH, W, WH>(part, from, to) },
            // SAFETY: as above.
            gradchain::SimdLevel::Avx2 => return unsafe { avx2::<R, RH, W, WH>(part, from, to) },
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
                add(sum, line);
            }
        }
        for (sum, read) in sums_half.iter_mut().zip(&read_half) {
            ahead(&read[b], part.asks);
            add(sum, &read[b]);
        }
        for write in &mut write {
            for line in &mut write[b] {
                ahead(line, part.asks);
                line.0.iter_mut().for_each(|x| *x = x.wrapping_add(1));
            }
        }
        for write in &mut write_half {
            ahead(&write[b], part.asks);
            write[b].0.iter_mut().for_each(|x| *x = x.wrapping_add(1));
        }
    }
    std::hint::black_box((sums, sums_half));
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "iterators make this loop an eighth slower where one array is read")]
fn add(sum: &mut [u32; 16], line: &Line) {
    for i in 0..16 {
        sum[i] = sum[i].wrapping_add(line.0[i]);
    }
}

#[inline(always)]
fn ahead(line: &Line, asks: Option<usize>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(bytes) = asks {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(line).cast::<i8>().wrapping_add(bytes)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, asks);
}
