//! A program as text.

use core::fmt;
use std::collections::HashSet;

use super::{Op, Program, Type};

/// Writes one assignment a line; results are named like the values that they replace, with a prime.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slot_names();
        let mut names: Vec<String> = Vec::with_capacity(self.lines().len());
        let given = |op| self.lines().iter().any(|(line, _)| *line == op);
        let mut inputs = vec!["u".to_string()];
        inputs.extend(given(Op::Param).then(|| "p".into()));
        inputs.extend(slots.iter().cloned());
        write!(f, "{}: {}", self.dtype(), inputs.join(", "))?;
        let scalars: Vec<String> = (0..self.scalars()).map(|i| format!("s{i}")).collect();
        writeln!(f, "{}{}", if scalars.is_empty() { "" } else { "; " }, scalars.join(", "))?;

        let mut results: Vec<(u32, String)> =
            self.new_slots().iter().zip(&slots).map(|(line, name)| (*line, format!("{name}'"))).collect();
        results.extend(self.sums().iter().enumerate().map(|(i, line)| (*line, format!("sum{i}'"))));
        results.extend(self.update().map(|line| (line, "u'".into())));
        results.extend(self.param().map(|line| (line, "p'".into())));
        let (mut shown, mut intermediate) = (HashSet::new(), 0);
        for (line, (op, _)) in self.lines().iter().enumerate() {
            if op.is_input() {
                names.push(match *op {
                    Op::Constant(value) => value.to_string(),
                    Op::Scalar(i) => format!("s{i}"),
                    Op::Slot(i) => slots[i as usize].clone(),
                    Op::Param => "p".into(),
                    _ => "u".into(),
                });
                continue;
            }
            let result = results.iter().find(|(result, _)| *result as usize == line);
            let name = result.map(|(_, name)| name.clone()).unwrap_or_else(|| {
                intermediate += 1;
                format!("t{intermediate}")
            });
            writeln!(f, "{name} = {}", self.expression(*op, &names))?;
            shown.insert(name.clone());
            names.push(name);
        }
        for (line, name) in results.iter().filter(|(_, name)| !shown.contains(name)) {
            writeln!(f, "{name} = {}", names[*line as usize])?;
        }
        Ok(())
    }
}

impl Program {
    /// Returns unique names of the state that no other value has.
    fn slot_names(&self) -> Vec<String> {
        let numbered = |name: &str, letter| name.strip_prefix(letter).is_some_and(|n| n.parse::<u32>().is_ok());
        let mut names: Vec<String> = Vec::new();
        for slot in self.slots() {
            let mut name: String = slot.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            while name == "u" || name == "p" || numbered(&name, 's') || numbered(&name, 't') || names.contains(&name) {
                name.push('_');
            }
            names.push(name);
        }
        names
    }

    fn expression(&self, op: Op, names: &[String]) -> String {
        let name = |line: u32| &names[line as usize];
        match op {
            Op::Widen(a) => format!("{}({})", Type::F64.name(), name(a)),
            Op::Round(a, dtype) => format!("{dtype}({})", name(a)),
            Op::Unary(op, a) if op.is_operator() => format!("{}{}", op.name(), name(a)),
            Op::Unary(op, a) => format!("{}({})", op.name(), name(a)),
            Op::Powi(a, n) => format!("powi({}, {n})", name(a)),
            Op::Binary(op, a, b) if op.is_operator() => format!("{} {} {}", name(a), op.name(), name(b)),
            Op::Binary(op, a, b) => format!("{}({}, {})", op.name(), name(a), name(b)),
            Op::MulAdd(a, b, c) => format!("mul_add({}, {}, {})", name(a), name(b), name(c)),
            Op::Compare(op, a, b) => format!("{} {} {}", name(a), op.name(), name(b)),
            Op::Select(c, a, b) => format!("if {} then {} else {}", name(c), name(a), name(b)),
            Op::Transpose(a, [a0, b, c, d]) => format!("transpose({}, [{a0}, {b}, {c}, {d}])", name(a)),
            Op::Product(a, b, [batch, n, k, m], transposed) => {
                let other = if transposed { format!("transposed {}", name(b)) } else { name(b).clone() };
                format!("product({}, {other}, {batch}·[{n}, {k}]·[{k}, {m}])", name(a))
            }
            Op::Dots(a, b, [_, stretch]) => format!("dots({}, {}, {stretch})", name(a), name(b)),
            Op::Repeat(a, [_, times]) => format!("repeat({}, {times})", name(a)),
            Op::Constant(_) | Op::Scalar(_) | Op::Update | Op::Param | Op::Slot(_) => String::new(),
        }
    }
}
