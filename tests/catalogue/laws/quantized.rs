//! Every transformation with 8-bit state keeps the laws of states.

use std::io::Cursor;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;
use gradchain::state::{AverageOptions, Entry, KeyPolicy, Schema, State, StateWalk, average, same_bits};
use gradchain::tree::Structure;
use gradchain::wrapper::Quantized;
use gradchain::{DType, SimdLevel};

use super::{Problem, Subject, all_selected, holds, large_problem, registry};
use crate::common::extra_inputs::{Member, Registered};
use crate::common::trees::map;
use crate::common::{run, same_values};

fn coded(entry: &dyn Subject) -> [Quantized<Member>; 2] {
    [false, true].map(|logarithmic| quantized(entry.boxed()).min_elements(0).logarithmic(logarithmic))
}

/// Compares threads and SIMD levels bitwise with one thread at the widest.
pub(super) fn same_on(
    name: &str,
    transformation: &impl Registered,
    (threads, simd): (usize, SimdLevel),
    Problem { params, grads, .. }: &Problem,
) {
    let on = |threads, simd| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        gradchain::force_simd_level(simd);
        let after = pool.install(|| run(transformation, params, grads));
        gradchain::force_simd_level(None);
        after
    };
    let (one, other) = (on(1, None), on(threads, Some(simd)));
    same_values(&one.params, &other.params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&*one.state, &*other.state), "{name}: the states differ");
}

#[test]
fn quantized_state_does_not_depend_on_threads_and_simd_levels() {
    let problem = large_problem();
    for (i, entry) in registry().iter().enumerate() {
        let [roots, logarithms] = coded(&**entry);
        let machines = [(3, SimdLevel::Avx2), (2, SimdLevel::Baseline)];
        let ways = [&roots, &logarithms].into_iter().flat_map(|code| machines.map(|machine| (code, machine)));
        // With many entries, each takes one way in turn.
        for (_, (code, machine)) in ways.enumerate().filter(|(way, _)| !all_selected() || i % 4 == *way) {
            same_on(entry.name(), code, machine, &problem);
        }
    }
}

pub(super) fn resumes(name: &str, transformation: &impl Registered, Problem { plan, params, grads }: &Problem) {
    let mut straight = run(transformation, params, &grads[..1]);
    let mut bytes = Cursor::new(Vec::new());
    Save::new(transformation, &straight.state).params(&straight.params).to_writer(&mut bytes).unwrap();
    let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
    let mut params = map(plan, params, |_, _| 0.5);
    let mut state = file.load(transformation, &mut params).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(same_bits(&*state, &*straight.state), "{name}: the state that was loaded");
    for grads in &grads[1..] {
        transformation.step_with_inputs(&mut straight.params, grads, &mut straight.state).unwrap();
        transformation.step_with_inputs(&mut params, grads, &mut state).unwrap();
    }
    same_values(&straight.params, &params).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&*straight.state, &*state), "{name}: the states differ");
}

#[test]
fn quantized_state_is_resumed_to_the_bit() {
    holds(|entry, problem| coded(entry).iter().for_each(|coded| resumes(entry.name(), coded, problem)), 3);
}

/// Returns the unsigned fields.
fn not_negative(schema: &Schema) -> Vec<String> {
    let of_type = |entry: &&gradchain::state::SchemaEntry| entry.dtype == Some(DType::FourthRoot8);
    let field = |field: &str| field.strip_prefix("inner.").unwrap_or(field).to_owned();
    schema.entries.iter().filter(of_type).map(|entry| field(&entry.field)).collect()
}

/// Checks that steps and means keep a state's schema.
pub(super) fn keeps_schema(name: &str, transformation: &impl Registered, Problem { params, grads, .. }: &Problem) {
    let options = AverageOptions::default().keys(KeyPolicy::First);
    let schema = transformation.init(params).unwrap().schema();
    let after = run(transformation, params, grads);
    assert_eq!(after.state.schema(), schema, "{name}: a step keeps the schema");
    let mean = average(&[(&*after.state, 1.0), (&*after.state, 3.0)], options).unwrap();
    assert!(same_bits(&mean, &*after.state), "{name}: a mean of what is equal is that");
    let other = transformation.init(&after.params).unwrap();
    let mean = average(&[(&*after.state, 1.0), (&*other, 3.0)], options).unwrap();
    assert_eq!(Schema::of(&mean, &Structure::of(params).unwrap()), schema, "{name}: a mean keeps the schema");
}

fn keeps_schema_and_means(entry: &dyn Subject, problem: &Problem) {
    let (name, Problem { params, grads, .. }) = (entry.name(), problem);
    coded(entry).iter().for_each(|coded| keeps_schema(name, coded, problem));
    // A part declares its arrays correctly.
    let fields = not_negative(&coded(entry)[0].init(params).unwrap().schema());
    let plain = run(&entry.boxed(), params, grads);
    plain.state.walk(&mut StateWalk::new(&mut |path, entry| {
        let Entry::Moments(moments) = entry else { return };
        if fields.iter().any(|field| field == path) {
            let arrays = moments.leaves().filter_map(|leaf| moments.to_array(leaf));
            let negative = arrays.into_iter().flatten().find(|x| *x < 0.0);
            assert_eq!(negative, None, "{name}: `{path}` is negative");
        }
    }));
}

/// Arrays that stay as large as their leaf: entry, field, reason.
const KEPT: &[(&str, &str, &str)] = &[
    ("", "master", "parameters"),
    ("", "slow", "parameters"),
    ("", "z", "parameters"),
    ("schedule_free", "x", "parameters"),
    ("", "average", "parameters"),
    ("", "cache", "parameters"),
    ("", "x0", "parameters"),
    ("", "params0", "parameters"),
    ("", "init_params", "parameters"),
    ("cocob", "init_particles", "parameters"),
    ("cocob", "cumulative_gradients", "parameters follow from it"),
    ("cocob", "reward", "parameters follow from it"),
    ("madgrad", "s", "parameters follow from it"),
    ("", "accumulator", "a sum that is emitted later"),
    ("apply_every", "sum", "a sum that is emitted later"),
    ("kahan_summation", "compensation", "the bits that rounding has lost"),
    ("zoom", "grad", "the gradient of the next step"),
    ("lbfgs", "params", "a difference is taken from it"),
    ("lbfgs", "updates", "a difference is taken from it"),
    ("soap", "mu", "turned as a whole matrix; the guide says so"),
    ("soap", "nu", "reordered as a whole matrix; the guide says so"),
    ("shampoo", "v", "of leaves that are no matrices; the guide says so"),
    ("matrices", "v", "of leaves that are no matrices; the guide says so"),
    ("factored_rms", "v", "of leaves that are not factored; the guide says so"),
    ("adafactor", "v", "of leaves that are not factored; the guide says so"),
    ("sm3", "mu", "a bound for each axis, of a leaf without axes"),
    ("rowwise", "sum_of_squares", "a number for each row, of a leaf without axes"),
    ("scale_by_adam_mixed", "nu", "its type was asked for"),
    ("quantized_some", "mu", "small, or excepted"),
    ("quantized_some", "nu", "small, or excepted"),
];

/// Returns such arrays, except the listed ones.
fn kept(entry: &dyn Subject, problem: &Problem) -> Vec<String> {
    let schema = coded(entry)[0].init(&problem.params).unwrap().schema();
    let leaves = Structure::of(&problem.params).unwrap();
    let whole = |entry: &&gradchain::state::SchemaEntry| {
        let leaf = entry.leaf.as_deref().and_then(|leaf| leaves.leaves().iter().find(|spec| spec.path() == leaf));
        let single = |dtype: DType| dtype.size() == 4 || dtype.size() == 2;
        leaf.is_some_and(|leaf| {
            leaf.dtype() != DType::F64 && entry.dtype.is_some_and(single) && entry.shape == leaf.shape()
        })
    };
    let fields = schema.entries.iter().filter(whole).map(|entry| entry.field.clone());
    let is = |field: &String, kept: &str| field.rsplit('.').next() == Some(kept);
    let known = |field: &String| KEPT.iter().any(|(of, kept, _)| entry.name().contains(of) && is(field, kept));
    fields.filter(|field| !known(field)).collect()
}

/// Every array that may be rounded is quantized; `KEPT` lists the others.
#[test]
fn unquantized_state_is_listed() {
    let problem = large_problem();
    let found: Vec<_> = registry()
        .iter()
        .map(|entry| (entry.name().to_owned(), kept(&**entry, &problem)))
        .filter(|(_, kept)| !kept.is_empty())
        .collect();
    assert!(found.is_empty(), "arrays that neither are in 8 bits nor in `KEPT`: {found:#?}");
}

#[test]
fn quantized_state_keeps_its_schema_and_has_means() {
    holds(keeps_schema_and_means, 3);
}
