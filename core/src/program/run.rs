//! Running a program on elements.

use super::{Op, Program, Type, Value};
use crate::element::Real;
use crate::error::{Error, Result};

/// The results of a [`Program`] on an element, besides its new state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outputs<C> {
    /// The emitted update, if any.
    pub update: Option<C>,
    /// The new parameter, if any.
    pub param: Option<C>,
    /// The summands of sums over elements.
    pub sums: Vec<f64>,
}

impl Program {
    /// Runs the program on one element: its state, which is rewritten, the incoming update `u`, and the parameter `p`.
    ///
    /// For inspection and tests: it interprets line by line, about a hundred times as slowly as a compiled rule.
    ///
    /// # Errors
    ///
    /// Fails if `C` is not the compute type of the program, the numbers of scalars or state values differ from its own,
    /// or it is not [of elements](Program::is_elementwise).
    pub fn run<C: Real>(&self, scalars: &[f64], slots: &mut [C], u: C, p: C) -> Result<Outputs<C>> {
        const NAME: &str = "Program::run";
        if C::DTYPE != self.dtype() {
            return Err(Error::argument(NAME, "u", &format!("in {}", self.dtype()), C::DTYPE));
        }
        for (argument, expected, found) in
            [("scalars", self.scalars(), scalars.len()), ("slots", self.slots().len(), slots.len())]
        {
            if expected != found {
                return Err(Error::argument(NAME, argument, &format!("{expected} numbers"), found));
            }
        }
        if !self.is_elementwise() {
            return Err(Error::argument(NAME, "self", "an element-wise program", "a whole-leaf program"));
        }
        let given = |ty: Type, number: C| Value::number(ty, number.as_f64());
        let mut values: Vec<Value> = Vec::with_capacity(self.lines().len());
        for (op, ty) in self.lines() {
            let value = match *op {
                Op::Scalar(i) => Value::number(*ty, scalars[i as usize]),
                Op::Update => given(*ty, u),
                Op::Param => given(*ty, p),
                Op::Slot(i) => given(*ty, slots[i as usize]),
                op => op.evaluate(|line| values[line as usize]).expect("inputs are matched above"),
            };
            values.push(value);
        }
        let number = |line: &u32| values[*line as usize].as_f64();
        slots.iter_mut().zip(self.new_slots()).for_each(|(slot, line)| *slot = C::of(number(line)));
        Ok(Outputs {
            update: self.update().map(|line| C::of(number(&line))),
            param: self.param().map(|line| C::of(number(&line))),
            sums: self.sums().iter().map(number).collect(),
        })
    }
}
