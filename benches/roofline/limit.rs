//! A loop that only moves bytes: what no chain with the same plan can beat.
#![allow(unsafe_code, reason = "a hint to the processor; see `ahead`")]

use gradchain::{PassPlan, Plan};

use crate::trees::Shapes;

/// An array that is read, or read and written: a word of 2 or 4 bytes for each element, from `start` on.
enum Stream {
    Half { words: Vec<u16>, start: usize },
    Single { words: Vec<u32>, start: usize },
}

/// A stretch of each array of a pass.
struct Part<'a> {
    read: Vec<Read<'a>>,
    write: Vec<Write<'a>>,
    len: usize,
}

enum Read<'a> {
    Half(&'a [u16]),
    Single(&'a [u32]),
}

enum Write<'a> {
    Half(&'a mut [u16]),
    Single(&'a mut [u32]),
}

impl Stream {
    /// Filled with ones, so that each page exists. Each of a pass's arrays (`number`) begins elsewhere in a page, as the crate's
    /// own do: the limit is that of the better way.
    fn new(size: usize, n: usize, number: usize) -> Stream {
        let start = number * (17 * 64) % 4096 / size;
        if size == 2 {
            Stream::Half { words: vec![1; start + n], start }
        } else {
            Stream::Single { words: vec![1; start + n], start }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Stream::Half { words, start } => 2 * (words.len() - start),
            Stream::Single { words, start } => 4 * (words.len() - start),
        }
    }
}

/// The arrays that one pass goes through.
struct Pass {
    read: Vec<Stream>,
    write: Vec<Stream>,
}

/// Moves what a plan says must move, with one addition for each word that is written.
pub struct Limit {
    passes: Vec<Pass>,
    elements: usize,
}

impl Limit {
    /// For leaves whose elements have `size` bytes.
    pub fn of(plan: &Plan, shapes: &Shapes, size: usize) -> Limit {
        let elements = shapes.elements();
        Limit { passes: plan.passes.iter().map(|p| Pass::of(p, elements, size)).collect(), elements }
    }

    /// A mini-step that only accumulates: gradients read, an accumulator read and written.
    pub fn of_accumulating(shapes: &Shapes, size: usize) -> Limit {
        let elements = shapes.elements();
        let pass = Pass { read: vec![Stream::new(size, elements, 0)], write: vec![Stream::new(4, elements, 1)] };
        Limit { passes: vec![pass], elements }
    }

    pub fn bytes(&self) -> usize {
        let read = |pass: &Pass| pass.read.iter().map(Stream::bytes).sum::<usize>();
        let written = |pass: &Pass| pass.write.iter().map(Stream::bytes).sum::<usize>();
        self.passes.iter().map(|pass| read(pass) + 2 * written(pass)).sum()
    }

    pub fn run(&mut self) {
        for pass in &mut self.passes {
            let read = pass.read.iter().map(|s| match s {
                Stream::Half { words, start } => Read::Half(&words[*start..]),
                Stream::Single { words, start } => Read::Single(&words[*start..]),
            });
            let write = pass.write.iter_mut().map(|s| match s {
                Stream::Half { words, start } => Write::Half(&mut words[*start..]),
                Stream::Single { words, start } => Write::Single(&mut words[*start..]),
            });
            split(Part { read: read.collect(), write: write.collect(), len: self.elements });
        }
    }
}

impl Pass {
    fn of(plan: &PassPlan, n: usize, size: usize) -> Pass {
        let mut pass = Pass { read: vec![Stream::new(plan.source / n, n, 0)], write: Vec::new() };
        match plan.params / n / size {
            0 => {}
            1 => pass.read.push(Stream::new(size, n, 1)),
            _ => pass.write.push(Stream::new(size, n, 1)),
        }
        // States and stored updates have 4 bytes. What is only stored counts once in the plan, but a line of memory that
        // is written is read first all the same.
        let others = plan.state / n / 8 + plan.stored / n / 4;
        pass.write.extend((0..others).map(|i| Stream::new(4, n, 2 + i)));
        pass
    }
}

/// Gives each thread of the pool its share.
fn split(part: Part<'_>) {
    #[cfg(feature = "rayon")]
    if rayon::current_num_threads() > 1 && part.len > 1 << 16 {
        let (left, right) = part.halves();
        rayon::join(|| split(left), || split(right));
        return;
    }
    part.run();
}

impl<'a> Part<'a> {
    #[cfg(feature = "rayon")]
    fn halves(self) -> (Part<'a>, Part<'a>) {
        let mid = self.len / 2;
        let mut left = Part { read: Vec::new(), write: Vec::new(), len: mid };
        let mut right = Part { read: Vec::new(), write: Vec::new(), len: self.len - mid };
        for read in self.read {
            let (a, b) = match read {
                Read::Half(x) => (Read::Half(&x[..mid]), Read::Half(&x[mid..])),
                Read::Single(x) => (Read::Single(&x[..mid]), Read::Single(&x[mid..])),
            };
            left.read.push(a);
            right.read.push(b);
        }
        for write in self.write {
            let (a, b) = match write {
                Write::Half(x) => {
                    let (a, b) = x.split_at_mut(mid);
                    (Write::Half(a), Write::Half(b))
                }
                Write::Single(x) => {
                    let (a, b) = x.split_at_mut(mid);
                    (Write::Single(a), Write::Single(b))
                }
            };
            left.write.push(a);
            right.write.push(b);
        }
        (left, right)
    }

    /// The common passes in one flat loop each; others array by array, in blocks of a few lines.
    fn run(mut self) {
        let sum = match (&self.read[..], &mut self.write[..]) {
            ([Read::Single(g)], [Write::Single(a)]) => one(g, a),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b)]) => two(g, a, b),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b), Write::Single(c)]) => three(g, a, b, c),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b), Write::Single(c), Write::Single(d)]) => {
                four(g, a, b, c, d)
            }
            (
                [Read::Single(g)],
                [Write::Single(a), Write::Single(b), Write::Single(c), Write::Single(d), Write::Single(e)],
            ) => five(g, a, b, c, d, e),
            ([Read::Half(g)], [Write::Half(a), Write::Single(b)]) => half_two(g, a, b),
            ([Read::Half(g)], [Write::Half(a), Write::Single(b), Write::Single(c)]) => half_three(g, a, b, c),
            (read, write) => (0..self.len)
                .step_by(BLOCK)
                .fold(0, |sum, start| blockwise(read, write, start, self.len.min(start + BLOCK)).wrapping_add(sum)),
        };
        std::hint::black_box(sum);
    }
}

/// Defines a loop that adds the gradient to so many other words.
macro_rules! flat {
    ($($name:ident($G:ty: $($a:ident $A:ty),*);)*) => {$(
        fn $name(g: &[$G], $($a: &mut [$A]),*) -> u32 {
            let n = g.len();
            $(let $a = &mut $a[..n];)*
            for i in 0..n {
                $($a[i] = $a[i].wrapping_add(g[i] as $A);)*
            }
            0
        }
    )*};
}
flat! {
    one(u32: a u32);
    two(u32: a u32, b u32);
    three(u32: a u32, b u32, c u32);
    four(u32: a u32, b u32, c u32, d u32);
    five(u32: a u32, b u32, c u32, d u32, e u32);
    half_two(u16: a u16, b u32);
    half_three(u16: a u16, b u32, c u32);
}

/// Words of a block, and how many bytes ahead of it memory is asked for: what is fastest with six arrays.
const BLOCK: usize = 64;
const AHEAD: usize = 384;

#[inline(always)]
fn ahead<W>(block: &[W]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(block)).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = block.as_ptr().cast::<i8>().wrapping_add(AHEAD + line);
        // SAFETY: a prefetch is a hint: it neither reads nor faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

fn blockwise(read: &[Read<'_>], write: &mut [Write<'_>], from: usize, to: usize) -> u32 {
    let mut sum = 0_u32;
    for read in read {
        sum = sum.wrapping_add(match read {
            Read::Half(x) => {
                ahead(&x[from..to]);
                u32::from(x[from..to].iter().fold(0_u16, |sum, x| sum.wrapping_add(*x)))
            }
            Read::Single(x) => {
                ahead(&x[from..to]);
                x[from..to].iter().fold(0, |sum: u32, x| sum.wrapping_add(*x))
            }
        });
    }
    for write in write {
        match write {
            Write::Half(x) => {
                ahead(&x[from..to]);
                x[from..to].iter_mut().for_each(|x| *x = x.wrapping_add(1));
            }
            Write::Single(x) => {
                ahead(&x[from..to]);
                x[from..to].iter_mut().for_each(|x| *x = x.wrapping_add(1));
            }
        }
    }
    sum
}
