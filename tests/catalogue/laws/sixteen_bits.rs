//! Every transformation with 16-bit state, by an argument, keeps the laws of states.

use gradchain::config::Config;
use gradchain::needs::ValueAndGradFn;
use gradchain::prelude::*;
use gradchain::{DType, SimdLevel};
use serde_json::Value;

use super::quantized::{keeps_schema, resumes, same_on};
use super::{Problem, Subject, all_selected, holds, large_problem, registry};
use crate::common::extra_inputs::Member;

const OF_STATE: [&str; 4] = ["mu_dtype", "nu_dtype", "accumulator_dtype", "state_dtype"];

/// Sets all unset ones; returns their number.
fn ask(config: &mut Value, dtype: DType) -> usize {
    match config {
        Value::Object(fields) => fields
            .iter_mut()
            .map(|(name, value)| match value {
                Value::Null if OF_STATE.contains(&&**name) => {
                    *value = dtype.name().into();
                    1
                }
                value => ask(value, dtype),
            })
            .sum(),
        Value::Array(values) => values.iter_mut().map(|value| ask(value, dtype)).sum(),
        _ => 0,
    }
}

/// Returns both formats, if an argument allows 16-bit state.
fn halved(entry: &dyn Subject) -> Vec<(DType, Member)> {
    let Ok(config) = Config::of(&entry.boxed()) else { return Vec::new() };
    let in_format = |dtype: DType| {
        let mut config: Value = serde_json::from_str(&config.to_json()).unwrap();
        let config = (ask(&mut config, dtype) > 0).then_some(config)?;
        let built = gradchain::config::build_with::<ValueAndGradFn>(&config);
        Some((dtype, built.unwrap_or_else(|error| panic!("{}: {error}", entry.name()))))
    };
    [DType::Bf16, DType::F16].into_iter().filter_map(in_format).collect()
}

#[test]
fn half_precision_state_does_not_depend_on_threads_and_simd_levels() {
    let problem = large_problem();
    let mut held = 0;
    for (i, entry) in registry().iter().enumerate() {
        let machines = [(3, SimdLevel::Avx2), (2, SimdLevel::Baseline)];
        let halved = halved(&**entry);
        let ways = halved.iter().flat_map(|(_, halved)| machines.map(|machine| (halved, machine)));
        // With many entries, each takes one way in turn.
        for (_, (halved, machine)) in ways.enumerate().filter(|(way, _)| !all_selected() || i % 4 == *way) {
            same_on(entry.name(), halved, machine, &problem);
            held += 1;
        }
    }
    assert!(held >= 40 || !all_selected(), "{held} entries have state whose type can be asked for");
}

fn has_the_type(entry: &dyn Subject, problem: &Problem) {
    for (dtype, halved) in halved(entry) {
        let name = entry.name();
        let schema = halved.init(&problem.params).unwrap().schema();
        let of_type = schema.entries.iter().filter(|entry| entry.dtype == Some(dtype)).count();
        let plain = entry.boxed().init(&problem.params).unwrap().schema();
        let before = plain.entries.iter().filter(|entry| entry.dtype == Some(dtype)).count();
        // Some have no state for such leaves.
        let has_arrays = plain.entries.iter().any(|entry| entry.dtype.is_some());
        assert!(of_type > before || !has_arrays, "{name}: {schema}");
        keeps_schema(name, &halved, problem);
    }
}

#[test]
fn half_precision_state_keeps_its_schema_and_has_means() {
    holds(has_the_type, 3);
}

#[test]
fn half_precision_state_is_resumed_to_the_bit() {
    holds(|entry, problem| halved(entry).iter().for_each(|(_, halved)| resumes(entry.name(), halved, problem)), 3);
}
