//! The program of a rule.

use super::traced::{Kind, Traced};
use super::{Program, record};
use crate::element::{DType, EngineReal, RecordedArray};
use crate::engine::{Clock, Part, Rule, SlotArray};
use crate::error::Result;

impl Program {
    /// Records a rule's step on an element, in the compute type of `dtype`; also returns that step's scalars.
    ///
    /// # Errors
    ///
    /// Fails if an argument of the rule is out of its range; or if the rule cannot be recorded, because it inspects
    /// numbers other than by arithmetic and comparisons (by their bits, or as `f64`), or compares without end.
    pub fn record_rule<R: Rule>(rule: &R, clock: Clock, dtype: DType) -> Result<(Program, Vec<f64>)> {
        fn of<F: Kind, R: Rule>(rule: &R, clock: Clock) -> Result<(Program, Vec<f64>)> {
            let arrays: Vec<_> =
                (0..R::SLOTS.len()).map(|address| Some(RecordedArray { address, dtype: F::DTYPE })).collect();
            let recorded = record::<F>(R::NAME, 0, |u, p| {
                let k = rule.scalars::<Traced<F>>(clock);
                [Some(Traced::record(&arrays, 0..0, &|slots, _| R::apply(k, R::Slots::of(slots), u, p))), None]
            })?;
            let slots = R::SLOTS.iter().map(|slot| slot.name().into()).collect();
            Ok((Program { code: recorded.code, slots }, recorded.scalars))
        }
        Part::validate(rule)?;
        if dtype.compute() == DType::F64 { of::<f64, R>(rule, clock) } else { of::<f32, R>(rule, clock) }
    }
}
