//! `Migration::cast` moves a run from `f32` to `f64` and back.

use gradchain::Migration;
use gradchain::prelude::*;
use gradchain::state::same_bits;

use super::{LeafPlan, Number, Order, Subject, noise, registry, tree};
use crate::common::run;
use crate::common::trees::map;

fn plan(number: Number) -> Vec<LeafPlan> {
    let leaf = |shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    vec![leaf(&[40]), leaf(&[3, 4]), leaf(&[])]
}

fn moved(entry: &dyn Subject) -> Result<bool, String> {
    let transformation = entry.boxed();
    let params = tree(&plan(Number::F32), |leaf, i| noise(1, leaf, i));
    let grads: Vec<_> = (0..3).map(|t| tree(&plan(Number::F32), |leaf, i| noise(2 + t, leaf, i))).collect();
    let after = run(&transformation, &params, &grads);
    let wide = map(&plan(Number::F64), &after.params, |_, x| x);
    let cast = Migration::new().cast(Mask::all());
    let of_wide = after.state.migrate(&transformation, &wide, &cast).map_err(|error| error.to_string())?;
    let back = of_wide.migrate(&transformation, &after.params, &cast).map_err(|error| error.to_string())?;
    Ok(same_bits(&*after.state, &*back))
}

#[test]
fn a_run_moved_to_f64_and_back_is_unchanged() {
    let mut wrong = Vec::new();
    for entry in registry() {
        let name = entry.name();
        match moved(&*entry) {
            Ok(true) => {}
            found => wrong.push(format!("{name}: {found:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
