//! A loop that only moves bytes: what no chain with the same plan can beat.

use gradchain::{PassPlan, Plan};

use crate::trees::Shapes;

/// An array that is read, or read and written: a word of 2 or 4 bytes for each element.
enum Stream {
    Half(Vec<u16>),
    Single(Vec<u32>),
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
    /// Filled with ones, so that each page exists.
    fn new(size: usize, n: usize) -> Stream {
        if size == 2 { Stream::Half(vec![1; n]) } else { Stream::Single(vec![1; n]) }
    }

    fn bytes(&self) -> usize {
        match self {
            Stream::Half(x) => 2 * x.len(),
            Stream::Single(x) => 4 * x.len(),
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
        let pass = Pass { read: vec![Stream::new(size, elements)], write: vec![Stream::new(4, elements)] };
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
                Stream::Half(x) => Read::Half(x),
                Stream::Single(x) => Read::Single(x),
            });
            let write = pass.write.iter_mut().map(|s| match s {
                Stream::Half(x) => Write::Half(x),
                Stream::Single(x) => Write::Single(x),
            });
            split(Part { read: read.collect(), write: write.collect(), len: self.elements });
        }
    }
}

impl Pass {
    fn of(plan: &PassPlan, n: usize, size: usize) -> Pass {
        let mut pass = Pass { read: vec![Stream::new(plan.source / n, n)], write: Vec::new() };
        match plan.params / n / size {
            0 => {}
            1 => pass.read.push(Stream::new(size, n)),
            _ => pass.write.push(Stream::new(size, n)),
        }
        // States and stored updates have 4 bytes. What is only stored counts once in the plan, but a line of memory that
        // is written is read first all the same.
        let others = plan.state / n / 8 + plan.stored / n / 4;
        pass.write.extend((0..others).map(|_| Stream::new(4, n)));
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

    /// The common passes in one flat loop each; others array by array, in blocks that stay in the first-level cache.
    fn run(mut self) {
        let sum = match (&self.read[..], &mut self.write[..]) {
            ([Read::Single(g)], [Write::Single(a)]) => one(g, a),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b)]) => two(g, a, b),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b), Write::Single(c)]) => three(g, a, b, c),
            ([Read::Single(g)], [Write::Single(a), Write::Single(b), Write::Single(c), Write::Single(d)]) => {
                four(g, a, b, c, d)
            }
            ([Read::Half(g)], [Write::Half(a), Write::Single(b)]) => half_two(g, a, b),
            ([Read::Half(g)], [Write::Half(a), Write::Single(b), Write::Single(c)]) => half_three(g, a, b, c),
            (read, write) => (0..self.len)
                .step_by(1024)
                .fold(0, |sum, start| blockwise(read, write, start, self.len.min(start + 1024)).wrapping_add(sum)),
        };
        std::hint::black_box(sum);
    }
}

fn one(g: &[u32], a: &mut [u32]) -> u32 {
    a.iter_mut().zip(g).for_each(|(a, g)| *a = a.wrapping_add(*g));
    0
}

fn two(g: &[u32], a: &mut [u32], b: &mut [u32]) -> u32 {
    for ((a, b), g) in a.iter_mut().zip(b).zip(g) {
        *a = a.wrapping_add(*g);
        *b = b.wrapping_add(*g);
    }
    0
}

fn three(g: &[u32], a: &mut [u32], b: &mut [u32], c: &mut [u32]) -> u32 {
    for (((a, b), c), g) in a.iter_mut().zip(b).zip(c).zip(g) {
        *a = a.wrapping_add(*g);
        *b = b.wrapping_add(*g);
        *c = c.wrapping_add(*g);
    }
    0
}

fn four(g: &[u32], a: &mut [u32], b: &mut [u32], c: &mut [u32], d: &mut [u32]) -> u32 {
    for ((((a, b), c), d), g) in a.iter_mut().zip(b).zip(c).zip(d).zip(g) {
        *a = a.wrapping_add(*g);
        *b = b.wrapping_add(*g);
        *c = c.wrapping_add(*g);
        *d = d.wrapping_add(*g);
    }
    0
}

fn half_two(g: &[u16], a: &mut [u16], b: &mut [u32]) -> u32 {
    for ((a, b), g) in a.iter_mut().zip(b).zip(g) {
        *a = a.wrapping_add(*g);
        *b = b.wrapping_add(u32::from(*g));
    }
    0
}

fn half_three(g: &[u16], a: &mut [u16], b: &mut [u32], c: &mut [u32]) -> u32 {
    for (((a, b), c), g) in a.iter_mut().zip(b).zip(c).zip(g) {
        *a = a.wrapping_add(*g);
        *b = b.wrapping_add(u32::from(*g));
        *c = c.wrapping_add(u32::from(*g));
    }
    0
}

fn blockwise(read: &[Read<'_>], write: &mut [Write<'_>], from: usize, to: usize) -> u32 {
    let mut sum = 0_u32;
    for read in read {
        sum = sum.wrapping_add(match read {
            Read::Half(x) => u32::from(x[from..to].iter().fold(0_u16, |sum, x| sum.wrapping_add(*x))),
            Read::Single(x) => x[from..to].iter().fold(0, |sum: u32, x| sum.wrapping_add(*x)),
        });
    }
    for write in write {
        match write {
            Write::Half(x) => x[from..to].iter_mut().for_each(|x| *x = x.wrapping_add(1)),
            Write::Single(x) => x[from..to].iter_mut().for_each(|x| *x = x.wrapping_add(1)),
        }
    }
    sum
}
