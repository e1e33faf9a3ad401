//! Element arithmetic as data: what a rule does to one element, written down while it is done to numbers that only
//! record.
//!
//! Guide: [A rule of your own](https://docs.rs/crate/gradchain/latest/source/docs/own-rule.md).
//!
//! A rule is a function of Rust, which a compiler reads and nobody else. Run once on numbers that
//! [record](Program::of_rule), it is a [`Program`]: lines of arithmetic that can be shown, compared, run, or written in
//! another language.

mod of_rule;
mod op;
mod recorder;
mod run;
mod show;
#[cfg(test)]
mod tests;
mod traced;

use core::hash::{Hash, Hasher};

pub use op::{Binary, Comparison, Op, Type, Unary, Value};
pub use run::Made;

use self::recorder::{Recording, Session};
use self::traced::{Kind, Traced, TracedTally};
use crate::element::{DType, Real};
use crate::error::{Error, Result};

/// What is done to one element in a step: arithmetic in one type, line by line, each line a value that later lines can
/// use.
///
/// It knows the update and the parameter that come in, the state of the element, and the numbers that are worked out
/// once a step: its *scalars*. Their values are no part of it, so the step that comes next, at another learning rate,
/// has an equal program. What is decided once a step, such as whether it is the first, is not in it either: a rule that
/// does something else then has another program.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::program::Program;
/// use gradchain::DType;
/// use gradchain::part::Clock;
///
/// let momentum = trace(cosine_decay(0.9, 100));
/// let (program, scalars) = Program::of_rule(&momentum, Clock::after(0), DType::F32)?;
/// let shown = program.to_string();
/// assert_eq!(
///     shown.lines().collect::<Vec<_>>(),
///     ["f32: u, trace; s0", "t1 = s0 * trace", "trace' = u + t1", "u' = trace'"]
/// );
///
/// let mut trace = [2.0_f32];
/// let made = program.run(&scalars, &mut trace, 1.0, 0.0)?;
/// assert_eq!((made.update, trace), (2.8, [2.8])); // 1 + 0.9·2
///
/// let (later, scalars) = Program::of_rule(&momentum, Clock::after(50), DType::F32)?;
/// assert_eq!(later, program);
/// assert!((scalars[0] - 0.45).abs() < 1e-12); // half of it by now
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// A program gives the very bits that the rule gives, except that a NaN may be another NaN. Comparisons in a rule
/// become lines too: the rule is run once for [each way](Program::paths) that they can go, and where the ways meet, the
/// values are chosen between.
///
/// Two are equal if they do the same in the same order to state of the same names.
#[derive(Clone, Debug)]
pub struct Program {
    dtype: DType,
    slots: Vec<String>,
    scalars: usize,
    lines: Vec<(Op, Type)>,
    update: u32,
    new_slots: Vec<u32>,
    tallies: Vec<u32>,
    sums: Vec<u32>,
    paths: usize,
}

/// What is to be recorded, and how it is called in messages.
pub(crate) struct Signature<'a> {
    pub(crate) name: &'a str,
    pub(crate) slots: &'a [&'a str],
    pub(crate) tallies: usize,
    pub(crate) sums: usize,
}

impl Program {
    /// The type that is computed in: `F32` or `F64`.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The names of what an element's state consists of.
    pub fn slots(&self) -> &[String] {
        &self.slots
    }

    /// How many numbers are worked out once a step.
    pub fn scalars(&self) -> usize {
        self.scalars
    }

    /// The lines: what each does, and what kind of value it has.
    pub fn lines(&self) -> &[(Op, Type)] {
        &self.lines
    }

    /// The line that is the update which goes out.
    pub fn update(&self) -> u32 {
        self.update
    }

    /// The lines that are the element's new state.
    pub fn new_slots(&self) -> &[u32] {
        &self.new_slots
    }

    /// The lines that are added to counts of elements.
    pub fn tallies(&self) -> &[u32] {
        &self.tallies
    }

    /// The lines that are added to sums over elements, which are kept in `f64`.
    pub fn sums(&self) -> &[u32] {
        &self.sums
    }

    /// Whether it reads the parameter.
    pub fn reads_param(&self) -> bool {
        self.lines.iter().any(|(op, _)| *op == Op::Param)
    }

    /// How many ways there are through the comparisons: how often the rule was run to be recorded.
    pub fn paths(&self) -> usize {
        self.paths
    }
}

impl Program {
    /// All but how it was recorded.
    #[allow(clippy::type_complexity, reason = "what equality and hashes go by")]
    fn code(&self) -> (DType, &[String], usize, &[(Op, Type)], [&[u32]; 4]) {
        let results = [core::slice::from_ref(&self.update), &self.new_slots, &self.tallies, &self.sums];
        (self.dtype, &self.slots, self.scalars, &self.lines, results)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.code() == other.code()
    }
}

impl Eq for Program {}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code().hash(state);
    }
}

/// Records what is done to an element: `scalars` is called once, `apply` at least once.
///
/// # Errors
///
/// If that cannot be recorded.
pub(crate) fn record<F: Kind, K>(
    signature: Signature<'_>,
    scalars: impl FnOnce() -> K,
    apply: impl Fn(
        &K,
        &mut [Traced<F>],
        Traced<F>,
        Traced<F>,
        &mut [TracedTally],
        &mut [<Traced<F> as Real>::Wide],
    ) -> Traced<F>,
) -> Result<(Program, Vec<f64>)> {
    let session = Session::new(F::TYPE);
    let scalars = scalars();
    session.begin_elements();
    let mut slots: Vec<Traced<F>> = (0..).map(Op::Slot).map(Traced::put).take(signature.slots.len()).collect();
    let (u, p) = (Traced::put(Op::Update), Traced::put(Op::Param));
    let mut tallies = vec![TracedTally::default(); signature.tallies];
    let mut sums = vec![Traced::default(); signature.sums];
    let update = Traced::joined(&mut slots, &mut tallies, &mut sums, |slots, tallies, sums| {
        apply(&scalars, slots, u, p, tallies, sums)
    });
    let mut program = Program {
        dtype: F::DTYPE,
        slots: signature.slots.iter().map(|name| (*name).into()).collect(),
        scalars: 0,
        lines: Vec::new(),
        update: update.line(),
        new_slots: slots.into_iter().map(Traced::line).collect(),
        tallies: tallies.into_iter().map(TracedTally::line).collect(),
        sums: sums.into_iter().map(Traced::line).collect(),
        paths: 0,
    };
    let Recording { lines, scalars, paths, problem } = session.finish();
    if let Some(problem) = problem {
        return Err(Error::unrecordable(signature.name, problem));
    }
    program.scalars = scalars.len();
    program.paths = paths;
    program.keep_what_is_needed(&lines);
    Ok((program, scalars))
}

impl Program {
    /// Takes over those lines that a result needs, and renumbers the results. Each line comes just before the first that
    /// needs it: so programs that do the same are equal, whatever else was recorded, and read like a rule.
    fn keep_what_is_needed(&mut self, lines: &[(Op, Type)]) {
        const UNPLACED: u32 = u32::MAX;
        let mut places = vec![UNPLACED; lines.len()];
        let mut waiting: Vec<u32> = self.results().map(|line| *line).collect();
        waiting.reverse();
        while let Some(&line) = waiting.last() {
            let ((op, ty), first) = (lines[line as usize], waiting.len());
            if places[line as usize] == UNPLACED {
                waiting.extend(op.operands().filter(|operand| places[*operand as usize] == UNPLACED));
                waiting[first..].reverse();
            }
            if waiting.len() > first {
                continue;
            }
            waiting.pop();
            if places[line as usize] == UNPLACED {
                places[line as usize] = self.lines.len() as u32;
                self.lines.push((op.with_operands(|operand| places[operand as usize]), ty));
            }
        }
        self.results().for_each(|line| *line = places[*line as usize]);
    }

    fn results(&mut self) -> impl Iterator<Item = &mut u32> {
        let new = self.new_slots.iter_mut().chain(&mut self.tallies).chain(&mut self.sums);
        new.chain(core::iter::once(&mut self.update))
    }
}
