//! What is done to leaves as a whole, between two passes.

use super::op::{Binary, Op, Type, Unary};
use super::pass::Passes;
use super::recorder::with;
use super::{LeafProgram, Pass, record_lines};
use crate::element::DType;
use crate::engine::{Line, RemoteLeaf, RemoteTree};
use crate::error::{Error, Result};
use crate::state::Moments;
use crate::tree::LeafSpec;

/// A leaf of which all is written down by this thread's recorder.
struct Recorded(Type);

fn put(op: Op) -> Line {
    Line(with(|recorder| recorder.put(op)))
}

fn sizes<const N: usize>(sizes: [usize; N]) -> [u32; N] {
    sizes.map(|size| u32::try_from(size).unwrap_or_else(|_| refused("it has an array of more than 2³² elements")))
}

fn refused(why: &'static str) -> u32 {
    with(|recorder| recorder.refuse(why));
    0
}

impl RemoteLeaf for Recorded {
    fn update(&mut self) -> Line {
        put(Op::Update)
    }
    fn array(&mut self, of: &Moments, leaf: usize) -> Option<Line> {
        of.in_record(leaf).map(|array| Line(with(|recorder| recorder.slot(array))))
    }
    fn write(&mut self, of: &Moments, leaf: usize, Line(line): Line) {
        if let Some(array) = of.in_record(leaf) {
            with(|recorder| recorder.write(array, line));
        }
    }
    fn number(&mut self, value: f64) -> Line {
        Line(with(|recorder| recorder.number(self.0, value)))
    }
    fn add(&mut self, x: Line, y: Line) -> Line {
        put(Op::Binary(Binary::Add, x.0, y.0))
    }
    fn mul(&mut self, x: Line, y: Line) -> Line {
        put(Op::Binary(Binary::Mul, x.0, y.0))
    }
    fn div(&mut self, x: Line, y: Line) -> Line {
        put(Op::Binary(Binary::Div, x.0, y.0))
    }
    fn max(&mut self, x: Line, y: Line) -> Line {
        put(Op::Binary(Binary::Max, x.0, y.0))
    }
    fn abs(&mut self, x: Line) -> Line {
        put(Op::Unary(Unary::Abs, x.0))
    }
    fn sqrt(&mut self, x: Line) -> Line {
        put(Op::Unary(Unary::Sqrt, x.0))
    }
    fn turn(&mut self, x: Line, shape: [usize; 4]) -> Line {
        put(Op::Turn(x.0, sizes(shape)))
    }
    fn product(&mut self, x: Line, y: Line, shape: [usize; 4], transposed: bool) -> Line {
        put(Op::Product(x.0, y.0, sizes(shape), transposed))
    }
    fn dots(&mut self, x: Line, y: Line, len: usize, stretch: usize) -> Line {
        put(Op::Dots(x.0, y.0, sizes([len, stretch])))
    }
    fn spread(&mut self, x: Line, len: usize, times: usize) -> Line {
        put(Op::Spread(x.0, sizes([len, times])))
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
        let mut on = Recorded(if dtype == DType::F64 { Type::F64 } else { Type::F32 });
        let recorded = record_lines(self.part, 0, dtype, || [Some(does(&mut on).0), None])?;
        let mut named = self.named(leaf, spec, recorded);
        named.part = self.part;
        Ok(named)
    }

    /// Does what was written down of whole leaves at a barrier.
    pub(super) fn run_whole(&mut self, barrier: usize) -> Result<()> {
        let leaves = core::mem::take(&mut self.whole).into_iter().collect::<Result<Vec<_>>>()?;
        if leaves.is_empty() {
            return Ok(());
        }
        let added = self.machine.pass(&Pass { number: barrier, from_stored: true, leaves })?;
        match added.iter().all(Vec::is_empty) {
            true => Ok(()),
            false => Err(Error::argument("Machine::pass", "sums", "none of whole leaves", "some")),
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
