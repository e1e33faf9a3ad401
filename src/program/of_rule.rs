//! The program of a rule: the one place of this folder that knows of the engine.

use super::traced::{Kind, Traced};
use super::{Program, Signature, record};
use crate::element::DType;
use crate::engine::{Clock, Part, Rule, SlotArray};
use crate::error::Result;

impl Program {
    /// What a rule does to an element in a step, in the type that arithmetic on elements of this type is done in; and
    /// the values of that step's scalars.
    ///
    /// # Errors
    ///
    /// If an argument of the rule is out of its range; or if the rule cannot be recorded, because it looks at numbers
    /// otherwise than by arithmetic and comparisons (their bits, as `f64`), or compares without end.
    pub fn of_rule<R: Rule>(rule: &R, clock: Clock, dtype: DType) -> Result<(Program, Vec<f64>)> {
        fn of<F: Kind, R: Rule>(rule: &R, clock: Clock) -> Result<(Program, Vec<f64>)> {
            record::<F, _>(
                Signature { name: R::NAME, slots: R::SLOTS, tallies: 0, sums: 0 },
                || rule.scalars::<Traced<F>>(clock),
                |k, slots, u, p, _, _| R::apply(*k, R::Slots::of(slots), u, p),
            )
        }
        Part::validate(rule)?;
        if dtype.compute() == DType::F64 { of::<f64, R>(rule, clock) } else { of::<f32, R>(rule, clock) }
    }
}
