use std::cell::Cell;
#[cfg(feature = "config")]
use std::collections::BTreeSet;

use gradchain::WarningKind;
use gradchain::prelude::*;
use gradchain::transform::scale;
use gradchain::wrapper::{allow, schedule_free, skip_on_spike};
use proptest::strategy::Strategy as _;
use proptest::test_runner::TestRunner;

use super::{
    Law, LeafPlan, Locality, Number, Order, Problem, all_cases, cases, config, errors, fusing, masks, noise, problem,
    registry, schemas, step_and_update, tree,
};
use crate::common::extra_inputs::{Member, describe, member};
use crate::common::subject::{Anonymous as _, Entry, Subject};
use crate::common::wrapped::WRAPPERS;

fn subject(transformation: Member) -> Box<dyn Subject> {
    Entry { name: describe(&transformation), locality: Locality::Whole, transformation }.subject()
}

/// Returns three to five wrappers around a chain of entries, one with another beside it.
fn random_nesting(entries: &[Member], draws: &[usize]) -> Member {
    let entry = |draw: usize| entries[draw % entries.len()].clone();
    let (depth, members) = (3 + draws[0] % 3, 1 + draws[1] % 2);
    let inside = member(chain(draws[2..][..members].iter().map(|draw| entry(*draw)).collect::<Vec<_>>()));
    let (wraps, beside) = (&draws[4..][..depth], draws[9] % depth);
    let nesting = wraps.iter().enumerate().fold(inside, |inner, (level, draw)| {
        let wrapped = WRAPPERS[draw % WRAPPERS.len()].1(inner);
        if level == beside { member(chain(vec![entry(draws[10]), wrapped])) } else { wrapped }
    });
    member(allow(nesting, [WarningKind::Climbs, WarningKind::NegativeDecay]))
}

#[test]
fn random_chains_and_nestings_keep_the_laws() {
    const LAWS: [Law; 5] = [schemas::law, step_and_update::law, fusing::law, errors::law, masks::law];
    let entries: Vec<Member> = registry().iter().map(|entry| entry.boxed()).collect();
    let nesting =
        proptest::collection::vec(0..100_000_usize, 11).prop_map(move |draws| random_nesting(&entries, &draws));
    let (ran, refused) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(config(cases() * 5));
    runner
        .run(&(problem(2), nesting), |(problem, nesting)| {
            let entry = subject(nesting);
            match entry.init(&problem.params) {
                Ok(_) => LAWS.iter().for_each(|law| law(&*entry, &problem)),
                Err(error) => {
                    assert!(is_refusal(&error), "{}: {error}", entry.name());
                    refused.set(refused.get() + 1);
                }
            }
            ran.set(ran.get() + 1);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} nestings, {} of them refused", ran.get(), refused.get());
    assert!(2 * refused.get() <= ran.get(), "{} of {} nestings are refused", refused.get(), ran.get());
}

/// Returns true if the error refuses an inner transformation.
///
/// Leaves cannot rest, for example, in a transformation of several leaves together, or around a window.
fn is_refusal(error: &gradchain::Error) -> bool {
    let says = ["argument `inner` must be", "must be a transformation that emits updates in every step"];
    error.is_argument() && says.iter().any(|what| error.to_string().contains(what))
}

/// Returns column-major, strided, reversed, axis-free and empty leaves, with gradients in other orders.
fn odd_layouts() -> Problem {
    let half = if cfg!(feature = "half") { Number::Bf16 } else { Number::F32 };
    let leaves: [(Number, &[usize], Order); 6] = [
        (Number::F64, &[7], Order::C),
        (Number::F32, &[3, 5], Order::Fortran),
        (Number::F64, &[4], Order::Negative),
        (Number::F32, &[], Order::C),
        (Number::F32, &[2, 0], Order::C),
        (half, &[2, 2, 3], Order::Strided),
    ];
    let plan = |turn: usize| -> Vec<LeafPlan> {
        let orders = [Order::C, Order::Fortran, Order::Strided, Order::Negative];
        let order = |order| orders[(orders.iter().position(|o| *o == order).unwrap() + turn) % orders.len()];
        leaves
            .iter()
            .map(|(number, shape, o)| LeafPlan { number: *number, shape: shape.to_vec(), order: order(*o) })
            .collect()
    };
    let params = tree(&plan(0), |leaf, i| noise(1, leaf, i));
    let grads = (1..5).map(|step| tree(&plan(step), |leaf, i| noise(1 + step as u64, leaf, i))).collect();
    Problem { plan: plan(0), params, grads }
}

/// Every wrapper inside every other sees only the leaves or their replacement, also after a reset.
///
/// Each is around itself, around a third of the others, and inside a third, or all with `all_cases`.
#[test]
fn every_wrapper_works_around_every_other() {
    let problem = odd_layouts();
    // It copies the parameters at its start.
    let inside =
        || member(chain((clip_by_global_norm(0.5), schedule_free(chain((scale_by_adam(), scale(-0.1))), 0.1))));
    let (mut ran, mut refused) = (0, 0);
    let pairs = (0..WRAPPERS.len()).flat_map(|i| (0..WRAPPERS.len()).map(move |j| (i, j)));
    for (i, j) in pairs.filter(|(i, j)| i.abs_diff(*j) % 3 == 0 || all_cases()) {
        let ((outer, around), (inner, wrap)) = (&WRAPPERS[i], &WRAPPERS[j]);
        let entry = subject(around(wrap(inside())));
        match entry.init(&problem.params) {
            Ok(_) => step_and_update::law(&*entry, &problem),
            Err(error) => {
                assert!(is_refusal(&error), "{outer} around {inner}: {error}");
                refused += 1;
            }
        }
        ran += 1;
    }
    println!("{ran} pairs, {refused} of them refused");
    assert!(10 * refused <= ran, "{refused} of {ran}");
}

/// In configs they have an inner transformation, but in no wrapper's recipe.
#[cfg(feature = "config")]
const HELD_OTHERWISE: &[(&str, &str)] =
    &[("scale_by_galore", "it holds only what reads no parameters"), ("selective_transform", "it is a `masked`")];

#[cfg(feature = "config")]
#[test]
fn every_wrapper_of_the_configs_is_nested() {
    let schema: serde_json::Value = serde_json::from_str(&gradchain::config::json_schema()).unwrap();
    let arguments = schema["$defs"]["arguments"].as_object().expect("the arguments by name");
    let holds = |schema: &serde_json::Value| schema.to_string().contains("#/$defs/transformation");
    let holding = arguments.iter().filter(|(_, schema)| holds(schema)).map(|(name, _)| name.clone());
    let mut nested = BTreeSet::new();
    for (_, wrap) in WRAPPERS {
        crate::coverage::names(&crate::common::extra_inputs::recipe(&wrap(member(()))), &mut nested);
    }
    let missing: Vec<String> = holding.filter(|name| !nested.contains(name)).collect();
    crate::common::registry::assert_exceptions(&missing, HELD_OTHERWISE, "are around nothing in the laws of nestings");
}

/// A step held behind a mask emits nothing if other leaves are frozen, so `lookahead` does not count it.
#[test]
fn lookahead_over_masked_holds_keeps_the_mask_law() {
    let plan: Vec<_> = [vec![1], vec![]].map(|shape| LeafPlan { number: Number::F32, shape, order: Order::C }).into();
    let of = |seed| tree(&plan, |leaf, i| noise(seed, leaf, i));
    let problem = Problem { params: of(1), grads: (2..7).map(of).collect(), plan: plan.clone() };
    for hold in
        [|inner| member(skip_on_spike(inner, 6.0).warmup_steps(1)), |inner: Member| member(multi_steps(inner, 2))]
    {
        let held = hold(member(sgd(0.1)));
        masks::law(&*subject(member(lookahead(masked(held, Mask::min_ndim(1)), 2, 0.5))), &problem);
    }
}
