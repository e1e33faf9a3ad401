//! The lines of a recording, drafted from the last one.
//!
//! The leaves of a chain have one program, which the next step repeats. So most recordings write the lines of the last
//! one of their thread: nothing is stored, and the program is shared.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;
use std::sync::Arc;

use super::Code;
use super::op::{Op, Type, Value};

/// A map with short, trusted keys: the standard hasher would take half of the time.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixing>>;

#[derive(Default)]
pub(super) struct Mixing(u64);

impl Mixing {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixing {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }
    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }
    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The knowledge about a line's value during recording.
#[derive(Clone, Copy)]
pub(super) enum KnownValue {
    /// Differs between elements.
    Unknown,
    /// Follows from this step's scalars.
    ThisStep(Value),
    /// The same in each step.
    Always(Value),
}

#[derive(Default)]
pub(super) struct Lines {
    /// The written lines, then the rest of the draft.
    all: Vec<(Op, Type, KnownValue)>,
    numbers: Map<Op, u32>,
    written: usize,
    differs: bool,
    /// The draft: the numbers of a recording's lines, and its program.
    draft: Option<(Code, Arc<Code>)>,
}

impl Lines {
    pub(super) fn begin(&mut self) {
        (self.written, self.differs) = (0, false);
    }

    pub(super) fn len(&self) -> usize {
        self.written
    }

    pub(super) fn op(&self, line: u32) -> Op {
        self.all[line as usize].0
    }

    pub(super) fn ty(&self, line: u32) -> Type {
        self.all[line as usize].1
    }

    pub(super) fn known(&self, line: u32) -> KnownValue {
        self.all[line as usize].2
    }

    /// Returns the written line of an operation. Lines are unique: the draft's next line is unwritten.
    pub(super) fn find(&self, op: Op) -> Option<u32> {
        if self.all.get(self.written).is_some_and(|draft| draft.0 == op) {
            return None;
        }
        self.numbers.get(&op).copied().filter(|line| (*line as usize) < self.written)
    }

    pub(super) fn push(&mut self, op: Op, ty: Type, known: KnownValue) -> u32 {
        let line = u32::try_from(self.written).expect("fewer lines than memory holds");
        match self.all.get_mut(self.written) {
            Some(draft) if (draft.0, draft.1) == (op, ty) => draft.2 = known,
            _ => {
                self.truncate();
                self.all.push((op, ty, known));
                self.numbers.insert(op, line);
            }
        }
        self.written += 1;
        line
    }

    fn truncate(&mut self) {
        for (op, ..) in self.all.drain(self.written..) {
            self.numbers.remove(&op);
        }
        self.differs = true;
    }

    /// Returns the program of a recording given by line numbers, and keeps it as the next draft.
    pub(super) fn finish(&mut self, recorded: Code) -> Arc<Code> {
        match &self.draft {
            Some((draft, code)) if !self.differs && *draft == recorded => code.clone(),
            _ => {
                let lines: Vec<_> = self.all.iter().map(|(op, ty, _)| (*op, *ty)).collect();
                let code = Arc::new(recorded.clone().with_lines(&lines));
                self.draft = Some((recorded, code.clone()));
                code
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{Session, with};
    use super::*;
    use crate::program::op::{Binary, Unary};

    /// Records a sum of the update and scalar `n` of `of_scalars`, perhaps negated.
    fn recorded(ty: Type, of_scalars: Type, [scalars, n]: [usize; 2], negated: bool) -> Arc<Code> {
        let session = Session::new(ty, 1);
        let u = with(|r| r.intern(Op::Update));
        let numbers: Vec<u32> = (0..scalars).map(|i| with(|r| r.number(of_scalars, i as f64))).collect();
        let sum = with(|r| r.intern(Op::Binary(Binary::Add, numbers[n], u)));
        let (end, other) = (with(|r| r.intern(Op::Unary(Unary::Neg, sum))), sum);
        session.finish([Some(if negated { end } else { other }), None]).unwrap_or_else(|_| unreachable!()).code
    }

    #[test]
    fn equal_recordings_are_shared_and_different_ones_are_not() {
        let all: Vec<_> = [(Type::F32, Type::F32), (Type::F32, Type::F64), (Type::F64, Type::F64)]
            .into_iter()
            .flat_map(|types| [[1, 0], [2, 0], [2, 1], [3, 1]].map(|scalars| (types, scalars)))
            .flat_map(|(types, scalars)| [true, false].map(|negated| (types, scalars, negated)))
            .collect();
        let one = |((ty, of_scalars), scalars, negated)| recorded(ty, of_scalars, scalars, negated);
        let alone = |what| std::thread::scope(|scope| scope.spawn(|| one(what)).join().unwrap());
        for first in &all {
            for second in &all {
                let [a, b, again] = [*first, *second, *second].map(one);
                assert_eq!((&*a, &*b), (&*alone(*first), &*alone(*second)));
                assert!(Arc::ptr_eq(&b, &again) && Arc::ptr_eq(&a, &b) == (first == second), "{first:?}, {second:?}");
            }
        }
    }

    #[test]
    fn scalars_have_the_values_of_their_own_recording() {
        for value in [2.0, -0.5, 2.0] {
            let session = Session::new(Type::F64, 1);
            let scalar = with(|r| r.number(Type::F64, value));
            let twice = with(|r| r.intern(Op::Binary(Binary::Add, scalar, scalar)));
            assert_eq!(with(|r| r.value(twice)), Some(Value::number(Type::F64, 2.0 * value)));
            assert_eq!(session.finish([Some(twice), None]).unwrap_or_else(|_| unreachable!()).scalars, [value]);
        }
    }
}
