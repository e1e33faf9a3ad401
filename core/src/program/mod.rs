//! Element arithmetic as data: a rule's operations on one element, recorded by running it on recording numbers.
//!
//! Guide: [An element rule of your own](https://docs.rs/gradchain/latest/gradchain/_guide/own_rule/index.html).
//!
//! A rule is a Rust function, which only a compiler can read. Run once on numbers that [record](Program::record_rule),
//! it becomes a [`Program`]: lines of arithmetic that can be shown, compared, run, or translated to another language.

mod erased;
mod interpreter;
mod lines;
mod op;
mod pass;
mod record_rule;
mod recorder;
mod replay;
mod run;
mod show;
#[cfg(test)]
mod tests;
mod traced;
mod whole;

use core::hash::{Hash, Hasher};
use std::sync::Arc;

pub(crate) use erased::{ErasedTile, OnTile};
pub use interpreter::Interpreter;
pub use op::{Binary, Comparison, Op, Type, Unary, Value};
pub(crate) use pass::Passes;
pub use pass::{Array, Executor, LeafProgram, Pass, Programs, sum_by_chunk};
pub use replay::{Arrays, Replay, StateTensors, Tensors, Traffic, download, upload};
pub use run::Outputs;
pub(crate) use traced::Traced;

use self::recorder::{Recording, Session};
use self::traced::Kind;
use crate::element::DType;
use crate::error::{Error, Result};

/// The arithmetic on one element in a step, in one type: lines whose values later lines can use.
///
/// Its inputs are the update, the parameter, the state of the element, and the numbers computed once per step: its
/// *scalars*. Their values are not part of it, so the next step, at another learning rate, has an equal program.
/// Decisions made once per step, such as a special first step, are not in it either: the rule then has another program.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::trace;
/// use gradchain::program::Program;
/// use gradchain::DType;
/// use gradchain::part::Clock;
///
/// let momentum = trace(cosine_decay(0.9, 100));
/// let (program, scalars) = Program::record_rule(&momentum, Clock::after(0), DType::F32)?;
/// let shown = program.to_string();
/// assert_eq!(
///     shown.lines().collect::<Vec<_>>(),
///     ["f32: u, trace; s0", "t1 = s0 * trace", "trace' = u + t1", "u' = trace'"]
/// );
///
/// let mut trace = [2.0_f32];
/// let made = program.run(&scalars, &mut trace, 1.0, 0.0)?;
/// assert_eq!((made.update, trace), (Some(2.8), [2.8])); // 1 + 0.9·2
///
/// let (later, scalars) = Program::record_rule(&momentum, Clock::after(50), DType::F32)?;
/// assert_eq!(later, program);
/// assert!((scalars[0] - 0.45).abs() < 1e-12); // half of it by now
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// A program is bitwise identical to the rule, except that a NaN may be another NaN. Comparisons in a rule become lines
/// too: the rule runs once for [each path](Program::paths) through them, and selects join the paths.
///
/// Two programs are equal if they do the same in the same order to state of the same names.
#[derive(Clone, Debug)]
pub struct Program {
    code: Arc<Code>,
    slots: Arc<[String]>,
}

#[derive(Clone, Debug, PartialEq)]
struct Code {
    dtype: DType,
    scalars: usize,
    lines: Vec<(Op, Type)>,
    update: Option<u32>,
    param: Option<u32>,
    new_slots: Vec<u32>,
    sums: Vec<u32>,
    paths: usize,
}

impl Program {
    /// Returns the compute type: `F32` or `F64`.
    pub fn dtype(&self) -> DType {
        self.code.dtype
    }

    /// Returns the names of an element's state.
    pub fn slots(&self) -> &[String] {
        &self.slots
    }

    /// Returns the number of scalars, computed once per step.
    pub fn scalars(&self) -> usize {
        self.code.scalars
    }

    /// Returns the lines: their operations, and the types of their values.
    pub fn lines(&self) -> &[(Op, Type)] {
        &self.code.lines
    }

    /// Returns the line of the emitted update, if any.
    pub fn update(&self) -> Option<u32> {
        self.code.update
    }

    /// Returns the line of the new parameter, if any.
    pub fn param(&self) -> Option<u32> {
        self.code.param
    }

    /// Returns the lines of the element's new state.
    pub fn new_slots(&self) -> &[u32] {
        &self.code.new_slots
    }

    /// Returns whether it changes a value of the state, by index.
    pub fn writes(&self, slot: usize) -> bool {
        let new = self.code.new_slots.get(slot).map(|line| self.code.lines[*line as usize].0);
        new.is_some_and(|op| op != Op::Slot(slot as u32))
    }

    /// Returns whether it reads a value of the state other than to keep it.
    pub fn reads(&self, slot: usize) -> bool {
        let line = self.code.lines.iter().position(|(op, _)| *op == Op::Slot(slot as u32));
        line.is_some_and(|line| self.writes(slot) || self.uses(line as u32, slot))
    }

    /// Returns whether a line is an operand or a result other than the state of `slot`.
    fn uses(&self, line: u32, slot: usize) -> bool {
        let others = self.code.new_slots.iter().enumerate().filter(|(other, _)| *other != slot).map(|(_, line)| line);
        let mut results = others.chain(&self.code.sums).chain(&self.code.update).chain(&self.code.param);
        results.any(|result| *result == line)
            || self.code.lines.iter().any(|(op, _)| op.operands().any(|operand| operand == line))
    }

    /// Returns the lines added to sums over elements, which are kept in `f64`: numbers of that type, or of elements.
    pub fn sums(&self) -> &[u32] {
        &self.code.sums
    }

    /// Returns whether it reads the parameter.
    pub fn reads_param(&self) -> bool {
        self.code.lines.iter().any(|(op, _)| *op == Op::Param)
    }

    /// Returns whether it is arithmetic on one element.
    ///
    /// Otherwise it operates on [whole leaves](Op::is_array_op), between two passes.
    pub fn is_elementwise(&self) -> bool {
        !self.code.lines.iter().any(|(op, _)| op.is_array_op())
    }

    /// Returns the number of paths through the comparisons, which is the number of recorded runs.
    pub fn paths(&self) -> usize {
        self.code.paths
    }
}

impl Code {
    /// Returns all but the recording statistics.
    #[allow(clippy::type_complexity, reason = "the key of equality and hashes")]
    fn content(&self) -> (DType, usize, &[(Op, Type)], [Option<u32>; 2], [&[u32]; 2]) {
        let results = ([self.update, self.param], [&self.new_slots[..], &self.sums]);
        (self.dtype, self.scalars, &self.lines, results.0, results.1)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        let one = Arc::ptr_eq(&self.code, &other.code) || self.code.content() == other.code.content();
        one && (Arc::ptr_eq(&self.slots, &other.slots) || self.slots == other.slots)
    }
}

impl Eq for Program {}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.content().hash(state);
        self.slots.hash(state);
    }
}

/// Records an element's operations, from update and parameter to emitted update and new parameter.
///
/// # Errors
///
/// Fails if an operation cannot be recorded; names the function if no part is to blame.
fn record<F: Kind>(
    name: &str,
    kind: usize,
    content: impl FnOnce(Traced<F>, Traced<F>) -> [Option<Traced<F>>; 2],
) -> Result<Recording> {
    record_lines(name, kind, F::DTYPE, || {
        content(Traced::intern(Op::Update), Traced::intern(Op::Param)).map(|result| result.map(Traced::line))
    })
}

/// As [`record`], by line numbers.
fn record_lines(
    name: &str,
    kind: usize,
    dtype: DType,
    content: impl FnOnce() -> [Option<u32>; 2],
) -> Result<Recording> {
    let session = Session::new(if dtype == DType::F64 { Type::F64 } else { Type::F32 }, kind);
    let ends = content();
    let named =
        |(part, problem): (&'static str, _)| Error::unrecordable(if part.is_empty() { name } else { part }, problem);
    session.finish(ends).map_err(named)
}

impl Code {
    /// Takes the lines that the results need.
    ///
    /// Each line comes just before its first use, so that equivalent programs are equal, whatever else was recorded,
    /// and read like a rule.
    fn with_lines(mut self, lines: &[(Op, Type)]) -> Code {
        const UNVISITED: u32 = u32::MAX;
        let mut places = vec![UNVISITED; lines.len()];
        let mut waiting: Vec<u32> = self.results().map(|line| *line).collect();
        waiting.reverse();
        while let Some(&line) = waiting.last() {
            let ((op, ty), first) = (lines[line as usize], waiting.len());
            if places[line as usize] == UNVISITED {
                waiting.extend(op.operands().filter(|operand| places[*operand as usize] == UNVISITED));
                waiting[first..].reverse();
            }
            if waiting.len() > first {
                continue;
            }
            waiting.pop();
            if places[line as usize] == UNVISITED {
                places[line as usize] = self.lines.len() as u32;
                self.lines.push((op.with_operands(|operand| places[operand as usize]), ty));
            }
        }
        self.results().for_each(|line| *line = places[*line as usize]);
        self
    }

    fn results(&mut self) -> impl Iterator<Item = &mut u32> {
        self.new_slots.iter_mut().chain(&mut self.sums).chain(&mut self.update).chain(&mut self.param)
    }
}
