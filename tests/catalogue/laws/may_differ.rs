//! `inject_hyperparams` with a state saved with other values.

use std::collections::BTreeMap;
use std::io::Cursor;

use gradchain::arguments::{Argument, Arguments};
use gradchain::checkpoint::{Checkpoint, Load, Save};
use gradchain::needs::ValueAndGradFn;
use gradchain::prelude::*;
use gradchain::schedule::{constant, linear};
use gradchain::transform::scale;
use gradchain::tree::DynTree;
use gradchain::wrapper::{Named, injected_hyperparams};

use super::{LeafPlan, Number, Order, all_selected, noise, registry, tree};
use crate::common::extra_inputs::{Member, Registered, member};

/// Returns numeric arguments that accept another value, with both.
fn others(named: &Named<ValueAndGradFn>, params: &DynTree) -> BTreeMap<&'static str, [f64; 2]> {
    let mut all = BTreeMap::new();
    named.clone().arguments(&mut |name, argument| {
        if let Argument::Hyperparam(Hyperparam::Number(number)) = argument {
            all.insert(name, *number);
        }
    });
    let other = |name: &'static str, now: f64| {
        let fits = |to: &f64| *to != now && with(named, &[(name, *to)]).init(params).is_ok();
        [now * 0.5, now + 0.25, 0.5, 2.0 * now, 1.5].into_iter().find(fits).map(|to| (name, [now, to]))
    };
    all.into_iter().filter_map(|(name, now)| other(name, now)).collect()
}

fn with(named: &Named<ValueAndGradFn>, numbers: &[(&str, f64)]) -> Named<ValueAndGradFn> {
    let mut with = named.clone();
    with.arguments(&mut |name, argument| {
        let to = numbers.iter().find(|(of, _)| *of == name);
        if let (Argument::Hyperparam(hyperparam), Some((_, to))) = (argument, to) {
            *hyperparam = (*to).into();
        }
    });
    with
}

/// Returns the places of an `inject_hyperparams`.
fn around(inner: Member) -> Vec<Member> {
    let other = || member(inject_hyperparams(scale(3.0)));
    vec![
        member(chain((zero_nans(), other(), inner.clone()))),
        member(named_chain(["a", "b"], (chain((other(), inner.clone())), other()))),
        member(masked(inner.clone(), Mask::by(|_| true))),
        member(partition((("x", other()), ("y", inner.clone())), Labels::by(|_| "y"))),
        inner,
    ]
}

/// Returns these numbers of a state, as bits.
fn numbers(state: &mut OptState<Member>, names: &BTreeMap<&'static str, [f64; 2]>) -> BTreeMap<&'static str, u64> {
    let all = injected_hyperparams(&mut **state).into_iter();
    let all = all.flat_map(|(_, hyperparams)| hyperparams.iter().collect::<Vec<_>>());
    all.filter(|(name, _)| names.contains_key(name)).map(|(name, number)| (name, number.to_bits())).collect()
}

#[test]
fn may_differ_takes_injected_numbers_from_the_current_optimizer() {
    let plan = [LeafPlan { number: Number::F32, shape: vec![3, 4], order: Order::C }];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = tree(&plan, |leaf, i| noise(2, leaf, i));
    let (mut loads, mut changed) = (0, 0);
    for entry in registry() {
        let Some(named) = entry.named() else { continue };
        let others = others(&named, &params);
        let here: Vec<_> = others.iter().map(|(name, [_, to])| (*name, *to)).collect();
        if others.is_empty() || others.contains_key("step_size") {
            continue;
        }
        let member_of = |named: Named<ValueAndGradFn>| member(inject_hyperparams(named));
        let pairs = around(member_of(named.clone())).into_iter().zip(around(member_of(with(&named, &here))));
        for (number, (before, after)) in pairs.enumerate() {
            let what = format!("{}, {number}", entry.name());
            let Ok(mut state) = before.init(&params) else { continue };
            let mut trained = params.clone();
            before.step_with_inputs(&mut trained, &grads, &mut state).unwrap();
            let mut bytes = Cursor::new(Vec::new());
            Save::new(&before, &state).params(&trained).to_writer(&mut bytes).unwrap();
            let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
            let error = file.load(&after, &mut params.clone()).expect_err(&what).to_string();
            assert!(error.contains("may_differ("), "{what}: {error}");
            let all = || here.iter().map(|(name, _)| *name);
            let load = all().fold(Load::strict(), |load, name| load.may_differ(name));
            let (mut loaded, _) = load.load(&file, &after, &mut params.clone()).expect(&what);
            let expected: BTreeMap<_, _> = others.iter().map(|(name, [_, to])| (*name, to.to_bits())).collect();
            assert_eq!(numbers(&mut loaded, &others), expected, "{what}");
            after.step_with_inputs(&mut trained.clone(), &grads, &mut loaded).expect(&what);
            assert_eq!(numbers(&mut loaded, &others), expected, "{what}");
            loads += 1;
            changed += here.len();

            // A number that may not differ is loaded as saved, and can be set.
            let (kept, [_, set]) = others.first_key_value().unwrap();
            let rest: Vec<_> = here.iter().copied().filter(|(name, _)| name != kept).collect();
            let after = around(member_of(with(&named, &rest))).swap_remove(number);
            if rest.is_empty() || state.set_hyperparam(kept, *set).is_err() || after.init(&params).is_err() {
                continue;
            }
            let mut bytes = Cursor::new(Vec::new());
            Save::new(&before, &state).params(&trained).to_writer(&mut bytes).unwrap();
            let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
            let load = rest.iter().fold(Load::strict(), |load, (name, _)| load.may_differ(*name));
            let (mut loaded, _) = load.load(&file, &after, &mut params.clone()).expect(&what);
            assert_eq!(numbers(&mut loaded, &others), expected, "{what}");
            loads += 1;
        }
    }
    println!("{loads} loads, {changed} numbers");
    assert!(!all_selected() || loads > 300 && changed > 500, "{loads} loads, {changed} numbers");
}

/// A path selects one of two equal names.
#[test]
fn a_path_selects_one_of_two_equal_names() {
    let params =
        tree(&[LeafPlan { number: Number::F32, shape: vec![2], order: Order::C }], |leaf, i| noise(1, leaf, i));
    let of = |rates: [f64; 3]| chain(rates.map(|rate| boxed(inject_hyperparams(sgd(rate)))).to_vec());
    let (before, after) = (of([0.5, 0.5, 0.5]), of([0.25, 0.5, 0.25]));
    let mut state = before.init(&params).unwrap();
    state.set_hyperparam("1.learning_rate", 0.125).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    Save::new(&before, &state).to_writer(&mut bytes).unwrap();
    let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
    let load = Load::strict().may_differ("$.chain[0]").may_differ("$.chain[2]");
    let (mut state, _) = load.load_state(&file, &after, &params).unwrap();
    let rates: Vec<_> = injected_hyperparams(&mut *state).iter().map(|(_, of)| of.get("learning_rate")).collect();
    assert_eq!(rates, [Some(0.25), Some(0.125), Some(0.25)]);
    // A schedule for a number, and the reverse.
    let of = |rate: Hyperparam| inject_hyperparams(sgd(rate));
    for (before, after, expected) in
        [(0.5.into(), constant(0.25).into(), 0.25), (linear(1.0, 0.0, 4).into(), 0.25.into(), 0.25)]
    {
        let (before, after) = (of(before), of(after));
        let state = before.init(&params).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        Save::new(&before, &state).to_writer(&mut bytes).unwrap();
        let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap();
        let (mut state, _) = Load::strict().may_differ("learning_rate").load_state(&file, &after, &params).unwrap();
        let rate = state.hyperparams_mut().get("learning_rate");
        assert_eq!(rate, Some(expected));
    }
}
