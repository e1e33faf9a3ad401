//! Operations on whole leaves, between two passes.

use std::collections::HashMap;

use super::op::{Binary, Op, Type, Unary};
use super::pass::Passes;
use super::recorder::with;
use super::{LeafProgram, Pass, record_lines};
use crate::element::DType;
use crate::engine::recorded::{Line, RemoteLeaf, RemoteTree};
use crate::error::{Error, Result};
use crate::state::Moments;
use crate::tree::LeafSpec;

/// A leaf on this thread's recorder.
struct RecordedLeaf {
    dtype: Type,
    /// Elements of the leaf, and of each line.
    len: usize,
    lens: HashMap<u32, usize>,
}

const FOREIGN_LINE: &str = "it uses a line of another leaf";
const SIZE_MISMATCH: &str = "it combines arrays of incompatible sizes";
const TOO_LARGE: &str = "it has an array of more than 2³² elements";

impl RecordedLeaf {
    fn line(&mut self, line: u32, len: usize) -> Line {
        self.lens.insert(line, len);
        Line(line)
    }

    /// Records an operation on lines of these lengths, with `len` elements as its result.
    fn intern<const N: usize>(
        &mut self,
        lines: [(Line, usize); N],
        op: impl FnOnce() -> Option<Op>,
        len: usize,
    ) -> Line {
        let wrong = lines.iter().find_map(|(line, expected)| match self.lens.get(&line.0) {
            None => Some(FOREIGN_LINE),
            Some(len) => (len != expected).then_some(SIZE_MISMATCH),
        });
        match (wrong, op()) {
            (None, Some(op)) => self.line(with(|recorder| recorder.intern(op)), len),
            (why, _) => {
                self.refuse(why.unwrap_or(TOO_LARGE));
                self.update()
            }
        }
    }

    /// Returns a line's number of elements; zero if it is of another leaf.
    fn len(&self, Line(line): Line) -> usize {
        self.lens.get(&line).copied().unwrap_or_default()
    }

    /// Expands a line to all elements.
    fn broadcast(&mut self, line: Line) -> Line {
        match self.lens.get(&line.0) {
            Some(len) if *len == self.len => return line,
            Some(_) => self.refuse(SIZE_MISMATCH),
            None => self.refuse(FOREIGN_LINE),
        }
        self.update()
    }

    fn unary(&mut self, op: Unary, x: Line) -> Line {
        let len = self.len(x);
        self.intern([(x, len)], || Some(Op::Unary(op, x.0)), len)
    }

    /// Broadcasts single numbers.
    fn binary(&mut self, op: Binary, x: Line, y: Line) -> Line {
        let (len_x, len_y) = (self.len(x), self.len(y));
        let len = if len_x == 1 { len_y } else { len_x };
        let expected = if len_y == 1 { 1 } else { len };
        self.intern([(x, len_x), (y, expected)], || Some(Op::Binary(op, x.0, y.0)), len)
    }
}

fn sizes<const N: usize>(sizes: [usize; N]) -> Option<[u32; N]> {
    let mut all = [0; N];
    for (to, size) in all.iter_mut().zip(sizes) {
        *to = u32::try_from(size).ok()?;
    }
    Some(all)
}

fn len_of(moments: &Moments, leaf: usize) -> usize {
    moments.raw(leaf).map_or(0, |raw| raw.len())
}

/// Returns the number of elements of a shape, saturating.
fn product(shape: &[usize]) -> usize {
    shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size)).unwrap_or(usize::MAX)
}

impl RemoteLeaf for RecordedLeaf {
    fn update(&mut self) -> Line {
        self.line(with(|recorder| recorder.intern(Op::Update)), self.len)
    }
    fn array(&mut self, of: &Moments, leaf: usize) -> Option<Line> {
        let array = of.recorded_array(leaf)?;
        Some(self.line(with(|recorder| recorder.slot(array)), len_of(of, leaf)))
    }
    fn write(&mut self, of: &Moments, leaf: usize, line: Line) {
        let Some(array) = of.recorded_array(leaf) else { return };
        match self.len(line) == len_of(of, leaf) {
            true => with(|recorder| recorder.write(array, line.0)),
            false => self.refuse(SIZE_MISMATCH),
        }
    }
    fn number(&mut self, value: f64) -> Line {
        self.line(with(|recorder| recorder.number(self.dtype, value)), 1)
    }
    fn add(&mut self, x: Line, y: Line) -> Line {
        self.binary(Binary::Add, x, y)
    }
    fn mul(&mut self, x: Line, y: Line) -> Line {
        self.binary(Binary::Mul, x, y)
    }
    fn div(&mut self, x: Line, y: Line) -> Line {
        self.binary(Binary::Div, x, y)
    }
    fn max(&mut self, x: Line, y: Line) -> Line {
        self.binary(Binary::Max, x, y)
    }
    fn abs(&mut self, x: Line) -> Line {
        self.unary(Unary::Abs, x)
    }
    fn sqrt(&mut self, x: Line) -> Line {
        self.unary(Unary::Sqrt, x)
    }
    fn transpose(&mut self, x: Line, shape: [usize; 4]) -> Line {
        let len = product(&shape);
        self.intern([(x, len)], || Some(Op::Transpose(x.0, sizes(shape)?)), len)
    }
    fn product(&mut self, x: Line, y: Line, shape: [usize; 4], transposed: bool) -> Line {
        let [batch, n, k, m] = shape;
        let lines = [(x, product(&[batch, n, k])), (y, product(&[batch, k, m]))];
        self.intern(lines, || Some(Op::Product(x.0, y.0, sizes(shape)?, transposed)), product(&[batch, n, m]))
    }
    fn dots(&mut self, x: Line, y: Line, len: usize, stretch: usize) -> Line {
        let expected = if self.len(y) == 1 { 1 } else { len };
        let fits = stretch > 0 && len.is_multiple_of(stretch);
        let lines = [(x, if fits { len } else { usize::MAX }), (y, expected)];
        self.intern(lines, || Some(Op::Dots(x.0, y.0, sizes([len, stretch])?)), len.checked_div(stretch).unwrap_or(0))
    }
    fn repeat(&mut self, x: Line, len: usize, times: usize) -> Line {
        self.intern([(x, len)], || Some(Op::Repeat(x.0, sizes([len, times])?)), product(&[len, times]))
    }
    fn refuse(&mut self, why: &'static str) {
        with(|recorder| recorder.refuse(why));
    }
}

impl Passes<'_> {
    fn whole(
        &mut self,
        leaf: usize,
        spec: &LeafSpec,
        does: &mut dyn FnMut(&mut dyn RemoteLeaf) -> Line,
    ) -> Result<LeafProgram> {
        let dtype = spec.dtype().compute();
        let of = if dtype == DType::F64 { Type::F64 } else { Type::F32 };
        let mut on = RecordedLeaf { dtype: of, len: spec.len(), lens: HashMap::new() };
        let made = || {
            let line = does(&mut on);
            [Some(on.broadcast(line).0), None]
        };
        let recorded = record_lines(self.part, 0, dtype, made)?;
        let mut named = self.named(leaf, spec, recorded);
        named.part = self.part;
        Ok(named)
    }

    pub(super) fn run_whole(&mut self, barrier: usize) -> Result<()> {
        let leaves = core::mem::take(&mut self.whole).into_iter().collect::<Result<Vec<_>>>()?;
        if leaves.is_empty() {
            return Ok(());
        }
        let added = self.executor.pass(&Pass { number: barrier, from_stored: true, leaves })?;
        match added.iter().all(Vec::is_empty) {
            true => Ok(()),
            false => Err(Error::argument("Executor::pass", "sums", "empty for whole-leaf programs", "some")),
        }
    }
}

impl RemoteTree for Passes<'_> {
    fn enter(&mut self, part: &'static str) {
        self.part = part;
    }

    fn leaf(&mut self, leaf: usize, spec: &LeafSpec, does: &mut dyn FnMut(&mut dyn RemoteLeaf) -> Line) {
        let whole = self.whole(leaf, spec, does);
        self.whole.push(whole);
    }
}
