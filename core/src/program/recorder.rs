//! Recording of operations on numbers, along each path through a function that compares them.
//!
//! A comparison returns a bool, so a function runs once per path. The first run gets true wherever earlier results do
//! not decide; then results become false one by one, from the last. Selects on the conditions join paths.

use core::cell::RefCell;
use std::sync::Arc;

use super::Code;
use super::lines::{KnownValue, Lines, Map};
use super::op::{Comparison, Op, Type, Value};
use crate::element::{DType, RecordedArray};

/// The maximum number of paths through one part.
const MAX_PATHS: usize = 4096;
/// The maximum number of comparisons on one path, for loops that a comparison ends.
const MAX_DECISIONS: usize = 256;

/// Kinds of recordings, one for each of the first passes of a step: a recording is likely to repeat the last of its
/// kind.
const KINDS: usize = 4;

const DIFFERS: &str = "its operations differ between calls";

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    static LAST: RefCell<[Option<Lines>; KINDS]> = const { RefCell::new([const { None }; KINDS]) };
}

#[derive(Default)]
struct Path {
    /// The results up to the first difference from earlier runs.
    prefix: Vec<Decision>,
    decisions: Vec<Decision>,
    /// The relations of two lines that earlier results allow.
    possible: Vec<((u32, u32), Relations)>,
}

/// An undecided comparison, and its result.
#[derive(Clone, Copy, PartialEq)]
struct Decision {
    condition: u32,
    result: bool,
}

#[derive(Clone, Copy, PartialEq)]
struct Relations(u8);

impl Relations {
    const LESS: Relations = Relations(1);
    const EQUAL: Relations = Relations(2);
    const GREATER: Relations = Relations(4);
    /// One is NaN.
    const UNORDERED: Relations = Relations(8);
    const ALL: Relations = Relations(15);

    fn or(self, other: Relations) -> Relations {
        Relations(self.0 | other.0)
    }

    fn and(self, other: Relations) -> Relations {
        Relations(self.0 & other.0)
    }

    fn without(self, other: Relations) -> Relations {
        Relations(self.0 & !other.0)
    }

    /// Returns the relations of two lines, the earlier first, that satisfy a comparison.
    fn satisfying_relations(comparison: Comparison, exchanged: bool) -> Relations {
        let less = if exchanged { Relations::GREATER } else { Relations::LESS };
        match comparison {
            Comparison::Less => less,
            Comparison::LessOrEqual => less.or(Relations::EQUAL),
            Comparison::Equal => Relations::EQUAL,
        }
    }
}

/// Results of paths: of one, or a decision between two.
enum PathTree {
    End(Vec<u32>),
    Fork { condition: u32, yes: Box<PathTree>, no: Box<PathTree> },
}

struct Merge {
    /// The maximum number of differing operands at which equal operations of two paths are merged. The merged operation
    /// has selected operands.
    differing: usize,
    /// The line that selects between two others, by condition and the two.
    selects: Map<(u32, u32, u32), u32>,
}

pub(super) struct Recorder {
    ty: Type,
    lines: Lines,
    scalars: Vec<f64>,
    /// True if incoming numbers are scalars.
    in_scalars: bool,
    /// The current paths, each nested in the previous.
    open_paths: Vec<Path>,
    paths: usize,
    part: &'static str,
    /// The part and operation that cannot be recorded.
    problem: Option<(&'static str, &'static str)>,
    /// The requested arrays, with the element's lines.
    arrays: Vec<(RecordedArray, u32)>,
    /// The element's summands, by sum of the chain.
    sums: Vec<(usize, u32)>,
    random_state: u64,
}

pub(super) struct Recording {
    pub(super) code: Arc<Code>,
    pub(super) scalars: Vec<f64>,
    /// The state arrays of its slots.
    pub(super) arrays: Vec<RecordedArray>,
    /// Its sums, as indices in the chain.
    pub(super) sums: Vec<usize>,
}

/// A recording until finished or dropped; then the thread's outer recording resumes.
pub(super) struct Session {
    before: Option<Recorder>,
    kind: usize,
}

impl Session {
    /// Begins with scalars. `kind` affects only speed.
    pub(super) fn new(ty: Type, kind: usize) -> Session {
        let kind = kind % KINDS;
        let mut lines = LAST.with_borrow_mut(|last| last[kind].take()).unwrap_or_default();
        lines.begin();
        let mut recorder = Recorder {
            ty,
            lines,
            scalars: Vec::new(),
            in_scalars: true,
            open_paths: Vec::new(),
            paths: 0,
            part: "",
            problem: None,
            arrays: Vec::new(),
            sums: Vec::new(),
            random_state: 0x9e37_79b9_7f4a_7c15,
        };
        // Line 0 must always exist; see `Traced`.
        recorder.intern(Op::Constant(Value::number(ty, 0.0)));
        Session { before: RECORDER.replace(Some(recorder)), kind }
    }

    /// Ends with update and parameter, or the part and operation that cannot be recorded.
    pub(super) fn finish(self, [update, param]: [Option<u32>; 2]) -> Result<Recording, (&'static str, &'static str)> {
        let Recorder { ty, mut lines, scalars, paths, problem, arrays, sums, .. } =
            RECORDER.take().expect("a session is the only one that ends its recorder");
        if let Some(problem) = problem {
            return Err(problem);
        }
        let (arrays, new_slots) = arrays.into_iter().unzip();
        let (sums, ends) = sums.into_iter().unzip();
        let dtype = if ty == Type::F64 { DType::F64 } else { DType::F32 };
        let code = lines.finish(Code {
            dtype,
            scalars: scalars.len(),
            lines: Vec::new(),
            update,
            param,
            new_slots,
            sums: ends,
            paths,
        });
        LAST.with_borrow_mut(|last| last[self.kind] = Some(lines));
        Ok(Recording { code, scalars, arrays, sums })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        RECORDER.set(self.before.take());
    }
}

/// # Panics
///
/// Panics without a recording: a recording number has outlived the rule's call.
pub(super) fn with<T>(f: impl FnOnce(&mut Recorder) -> T) -> T {
    RECORDER
        .with_borrow_mut(|recorder| f(recorder.as_mut().expect("a recorded number is used only during its recording")))
}

impl Recorder {
    /// Returns the line of an operation, an existing one if possible.
    pub(super) fn intern(&mut self, op: Op) -> u32 {
        if let Some(line) = self.lines.find(op) {
            return line;
        }
        let known = self.known(op);
        if let (KnownValue::Always(value), false) = (known, op.is_input()) {
            return self.intern(Op::Constant(value));
        }
        let ty = match op {
            // Scalars, some perhaps of the type of sums.
            Op::Scalar(_) => unreachable!("scalars come in through `number`"),
            _ => op.ty(self.ty, |line| self.lines.ty(line)),
        };
        self.lines.push(op, ty, known)
    }

    fn known(&self, op: Op) -> KnownValue {
        let mut always = true;
        for line in op.operands() {
            match self.lines.known(line) {
                KnownValue::Unknown => return KnownValue::Unknown,
                KnownValue::ThisStep(_) => always = false,
                KnownValue::Always(_) => {}
            }
        }
        let value = op.evaluate(|line| match self.lines.known(line) {
            KnownValue::Unknown => unreachable!("an unknown line has returned earlier"),
            KnownValue::ThisStep(value) | KnownValue::Always(value) => value,
        });
        match value {
            None => KnownValue::Unknown,
            Some(value) if always => KnownValue::Always(value),
            Some(value) => KnownValue::ThisStep(value),
        }
    }

    /// Returns the line of an incoming number: a scalar while scalars are computed, else a constant.
    pub(super) fn number(&mut self, ty: Type, value: f64) -> u32 {
        let rounded = Value::number(ty, value);
        if !self.in_scalars {
            return self.intern(Op::Constant(rounded));
        }
        let scalar = Op::Scalar(self.scalars.len() as u32);
        self.scalars.push(value);
        self.lines.push(scalar, ty, KnownValue::ThisStep(rounded))
    }

    /// Returns a line's known value: of constants always, of scalars while they are computed.
    pub(super) fn value(&self, line: u32) -> Option<Value> {
        match self.lines.known(line) {
            KnownValue::Always(value) => Some(value),
            KnownValue::ThisStep(value) if self.in_scalars => Some(value),
            _ => None,
        }
    }

    /// Notes an operation that cannot be recorded: recording goes on with arbitrary values and ends in an error.
    pub(super) fn refuse(&mut self, problem: &'static str) {
        self.problem.get_or_insert((self.part, problem));
    }

    pub(super) fn enter(&mut self, part: &'static str) -> &'static str {
        core::mem::replace(&mut self.part, part)
    }

    pub(super) fn slot(&mut self, array: RecordedArray) -> u32 {
        if let Some((_, line)) = self.arrays.iter().find(|(known, _)| *known == array) {
            return *line;
        }
        let line = self.intern(Op::Slot(self.arrays.len() as u32));
        self.arrays.push((array, line));
        line
    }

    pub(super) fn write(&mut self, array: RecordedArray, line: u32) {
        if self.slot(array) != line {
            let held = self.rounded(line, array.dtype);
            self.arrays.iter_mut().filter(|(known, _)| *known == array).for_each(|(_, line)| *line = held);
        }
    }

    pub(super) fn rounded(&mut self, line: u32, dtype: DType) -> u32 {
        let size = if self.ty == Type::F64 { 8 } else { 4 };
        if dtype.size() < size { self.intern(Op::Round(line, dtype)) } else { line }
    }

    /// Adds to a sum of the chain, unless a count of zero.
    pub(super) fn add(&mut self, sum: usize, line: u32) {
        if self.lines.op(line) != Op::Constant(Value::Count(0)) {
            self.sums.push((sum, line));
        }
    }

    pub(super) fn decide(&mut self, comparison: Comparison, a: u32, b: u32) -> bool {
        let condition = self.intern(Op::Compare(comparison, a, b));
        if let Some(Value::Bool(result)) = self.value(condition) {
            return result;
        }
        let Some(path) = self.open_paths.last_mut() else {
            self.refuse("it compares elements before it reads any");
            return false;
        };
        let pair = (a.min(b), a.max(b));
        let satisfying = Relations::satisfying_relations(comparison, a > b);
        let at = path.possible.iter().position(|(p, _)| *p == pair).unwrap_or_else(|| {
            let own = Relations::EQUAL.or(Relations::UNORDERED);
            path.possible.push((pair, if a == b { own } else { Relations::ALL }));
            path.possible.len() - 1
        });
        let possible = path.possible[at].1;
        let (yes, no) = (possible.and(satisfying), possible.without(satisfying));
        if yes.0 == 0 || no.0 == 0 {
            return no.0 == 0;
        }
        let place = path.decisions.len();
        let result = match path.prefix.get(place) {
            Some(prefix) => {
                if prefix.condition != condition {
                    self.problem.get_or_insert((self.part, DIFFERS));
                }
                prefix.result
            }
            None if place < MAX_DECISIONS => true,
            None => {
                self.problem.get_or_insert((self.part, "it never stops comparing"));
                // Pseudo-random, so that a loop ends that waits for either result.
                self.random_state = self.random_state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                self.random_state >> 63 == 1
            }
        };
        path.possible[at].1 = if result { yes } else { no };
        path.decisions.push(Decision { condition, result });
        result
    }

    fn begin_path(&mut self, prefix: Vec<Decision>) {
        let possible = self.open_paths.last().map(|path| path.possible.clone()).unwrap_or_default();
        self.open_paths.push(Path { prefix, decisions: Vec::new(), possible });
        self.paths += 1;
    }

    fn end_path(&mut self) -> Vec<Decision> {
        let Some(path) = self.open_paths.pop() else { return Vec::new() };
        if path.decisions.len() < path.prefix.len() {
            self.refuse(DIFFERS);
        }
        path.decisions
    }

    fn select(&mut self, merging: &mut Merge, condition: u32, yes: u32, no: u32) -> u32 {
        if yes == no {
            return yes;
        }
        if let Some(&line) = merging.selects.get(&(condition, yes, no)) {
            return line;
        }
        let (a, b) = (self.lines.op(yes), self.lines.op(no));
        let types = |op: Op| op.operands().map(|line| self.lines.ty(line));
        let differing = a.operands().zip(b.operands()).filter(|(a, b)| a != b).count();
        let alike = !a.is_input() && a.with_operands(|_| 0) == b.with_operands(|_| 0) && types(a).eq(types(b));
        let line = if alike && differing <= merging.differing {
            let mut others = b.operands();
            let shared = a.with_operands(|a| {
                let b = others.next().expect("equal operations have equally many operands");
                self.select(merging, condition, a, b)
            });
            self.intern(shared)
        } else {
            self.intern(Op::Select(condition, yes, no))
        };
        merging.selects.insert((condition, yes, no), line);
        line
    }

    fn merge(&mut self, merging: &mut Merge, open_paths: &PathTree) -> Vec<u32> {
        match open_paths {
            PathTree::End(results) => results.clone(),
            PathTree::Fork { condition, yes, no } => {
                let (yes, no) = (self.merge(merging, yes), self.merge(merging, no));
                yes.into_iter().zip(no).map(|(yes, no)| self.select(merging, *condition, yes, no)).collect()
            }
        }
    }

    fn cost(&self, results: &[u32]) -> usize {
        let mut needed = vec![false; self.lines.len()];
        results.iter().for_each(|line| needed[*line as usize] = true);
        // Operands precede their operations.
        for line in (0..needed.len()).rev() {
            if needed[line] {
                self.lines.op(line as u32).operands().for_each(|operand| needed[operand as usize] = true);
            }
        }
        needed.into_iter().filter(|needed| *needed).count()
    }
}

/// Runs operations along each path; returns its result lines, equally many on each.
///
/// Incoming numbers are constants during the run, scalars before and after.
pub(super) fn all_paths(run: &mut dyn FnMut() -> Vec<u32>) -> Vec<u32> {
    let outside = with(|r| core::mem::replace(&mut r.in_scalars, false));
    let results = explore_and_merge(run);
    with(|r| r.in_scalars = outside);
    results
}

fn explore_and_merge(run: &mut dyn FnMut() -> Vec<u32>) -> Vec<u32> {
    let mut open_paths = explore(run, Vec::new(), &mut 0);
    with(|r| {
        // After a refusal any path will do.
        while r.problem.is_some()
            && let PathTree::Fork { yes, .. } = open_paths
        {
            open_paths = *yes;
        }
        if let PathTree::End(results) = open_paths {
            return results;
        }
        // Keeps the result with the fewest lines, usually as the part was written.
        [1, 3]
            .map(|differing| r.merge(&mut Merge { differing, selects: Map::default() }, &open_paths))
            .into_iter()
            .min_by_key(|results| r.cost(results))
            .expect("there are two results")
    })
}

fn explore(run: &mut dyn FnMut() -> Vec<u32>, prefix: Vec<Decision>, paths: &mut usize) -> PathTree {
    let from = prefix.len();
    with(|r| r.begin_path(prefix));
    let results = run();
    let decisions = with(Recorder::end_path);
    *paths += 1;
    let mut open_paths = PathTree::End(results);
    for at in (from..decisions.len()).rev() {
        if *paths >= MAX_PATHS {
            with(|r| r.refuse("it has too many control-flow paths"));
        }
        if with(|r| r.problem.is_some()) {
            break;
        }
        let mut prefix = decisions[..=at].to_vec();
        prefix[at].result = false;
        let no = Box::new(explore(run, prefix, paths));
        open_paths = PathTree::Fork { condition: decisions[at].condition, yes: Box::new(open_paths), no };
    }
    open_paths
}
