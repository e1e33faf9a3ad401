//! The advice of errors about missing gradients works.

use gradchain::config::Config;
use gradchain::needs::ValueAndGradFn;
use gradchain::prelude::*;
use gradchain::transform::scale;
use gradchain::tree::DynTree;
use gradchain::wrapper::{flatten, freezable, sam, sharded, skip_absent, skip_not_finite};
use serde_json::{Value, json};

use super::{LeafPlan, Number, Order, all_selected, noise, registry, tree};
use crate::common::extra_inputs::{Member, Registered, member};

#[derive(Debug, PartialEq)]
enum Advice {
    Around,
    At(Vec<String>),
    Zeros,
}

fn advice(error: &str) -> Advice {
    let first = error.lines().next().unwrap();
    if first.contains("; if leaves may lack a gradient in a step, wrap the optimizer in `skip_absent`: ") {
        return Advice::Around;
    }
    if first.contains("; this optimizer cannot skip leaves: pass zeros for a missing gradient: ") {
        return Advice::Zeros;
    }
    let places = first
        .split("; if leaves may lack a gradient in a step, wrap ")
        .nth(1)
        .unwrap_or_else(|| panic!("no advice: {error}"));
    let in_brackets = places.split("(`").skip(1).map(|place| place.split("`)").next().unwrap().to_owned());
    Advice::At(in_brackets.collect())
}

fn at<'v>(config: &'v mut Value, place: &str) -> &'v mut Value {
    let mut value = config;
    for step in place.trim_start_matches('$').split('.').filter(|step| !step.is_empty()) {
        let (key, number) = step.split_once('[').map_or((step, None), |(key, rest)| (key, Some(rest)));
        value = &mut value[key];
        if let Some(number) = number {
            value = &mut value[number.trim_end_matches(']').parse::<usize>().unwrap()];
            if key == "named_chain" {
                value = &mut value[1];
            }
        }
    }
    value
}

fn with_skips(optimizer: &Member, places: &[String]) -> Option<Member> {
    let mut config: Value = serde_json::from_str(&Config::of(optimizer).ok()?.to_json()).unwrap();
    for place in places {
        let call = at(&mut config, place);
        assert!(call.is_object(), "no call at {place}: {call}");
        *call = json!({"skip_absent": {"inner": call.take()}});
    }
    Some(Config::from_json(&config.to_string()).unwrap().build_with::<ValueAndGradFn>().unwrap())
}

fn trees() -> (DynTree, DynTree, DynTree) {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = [leaf(Number::F32, &[3, 4]), leaf(Number::F64, &[5])];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = tree(&plan, |leaf, i| noise(2, leaf, i));
    let mut some = grads.clone();
    assert!(some.remove("layer1/p1"));
    (params, grads, some)
}

/// Follows the advice; returns it if it could be tried.
fn follow(name: &str, optimizer: &Member) -> Option<Advice> {
    let (params, grads, some) = trees();
    let steps = |optimizer: &Member, grads: &DynTree| -> Result<(), gradchain::Error> {
        let (mut after, mut state) = (params.clone(), optimizer.init(&params)?);
        // Completes a window.
        (0..5).try_for_each(|_| optimizer.step_with_inputs(&mut after, grads, &mut state).map(drop))
    };
    let Err(error) = steps(optimizer, &some) else { return None };
    let (error, outer) = (error.to_string(), steps(&member(skip_absent(optimizer.clone())), &some));
    let advice = advice(&error);
    match &advice {
        Advice::Around => outer.unwrap_or_else(|error| panic!("{name}: {error}")),
        Advice::At(places) => {
            // A transformation without a config cannot be rebuilt.
            let mended = with_skips(optimizer, places)?;
            steps(&mended, &some).unwrap_or_else(|error| panic!("{name}, {places:?}: {error}"));
        }
        Advice::Zeros => {
            assert!(outer.is_err(), "{name}: it could skip a leaf");
            let mut zeros = grads.clone();
            gradchain::tree::tree_fill(&mut zeros, 0.0);
            steps(optimizer, &zeros).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    Some(advice)
}

#[test]
fn advice_in_errors_works() {
    let (mut around, mut inside, mut zeros) = (0, 0, 0);
    for entry in registry() {
        match follow(entry.name(), &entry.boxed()) {
            Some(Advice::Around) => around += 1,
            Some(Advice::At(_)) => inside += 1,
            Some(Advice::Zeros) => zeros += 1,
            None => {}
        }
    }
    assert!(
        !all_selected() || around > 200 && inside >= 8 && zeros > 20,
        "{around} around, {inside} inside, {zeros} zeros"
    );
}

/// Compositions of wrappers that can and cannot hold a `skip_absent`.
#[test]
fn advice_in_errors_of_compositions_works() {
    let labels = || Labels::tree([("layer0/p0", "a"), ("layer1/p1", "b")]);
    let at = |places: &[&str]| Advice::At(places.iter().map(|place| (*place).to_owned()).collect());
    let inner = "$.multi_steps.inner";
    let cases: Vec<(&str, Member, Advice)> = vec![
        ("plain", member(adam(0.1)), Advice::Around),
        ("windows", member(multi_steps(adam(0.1), 2)), at(&[inner])),
        ("windows of a chain", member(multi_steps(chain((clip(1.0), adam(0.1))), 2)), at(&[inner])),
        (
            "windows of windows",
            member(multi_steps(multi_steps(adam(0.1), 2), 2)),
            at(&["$.multi_steps.inner.multi_steps.inner"]),
        ),
        ("skipped windows", member(multi_steps(adam(0.1), 2).should_skip_update_fn(skip_not_finite())), at(&[inner])),
        (
            "in a chain",
            member(chain((clip_by_global_norm(1.0), multi_steps(adam(0.1), 2)))),
            at(&["$.chain[0]", "$.chain[1].multi_steps.inner"]),
        ),
        (
            "in a chain with names",
            member(named_chain(["a", "b"], (multi_steps(adam(0.1), 2), scale(0.5)))),
            at(&["$.named_chain[0].multi_steps.inner", "$.named_chain[1]"]),
        ),
        (
            "in a partition",
            member(partition((("a", multi_steps(adam(0.1), 2)), ("b", sgd(0.1))), labels())),
            at(&["$.partition.transforms.a.multi_steps.inner", "$.partition.transforms.b"]),
        ),
        (
            "below finite",
            member(apply_if_finite(multi_steps(adam(0.1), 2), 3)),
            at(&["$.apply_if_finite.inner.multi_steps.inner"]),
        ),
        ("above finite", member(multi_steps(apply_if_finite(adam(0.1), 3), 2)), at(&[inner])),
        ("finite", member(apply_if_finite(adam(0.1), 3)), Advice::Around),
        ("lookahead", member(lookahead(adam(0.1), 2, 0.5)), Advice::Around),
        ("above lookahead", member(multi_steps(lookahead(adam(0.1), 2, 0.5), 2)), at(&[inner])),
        ("below lookahead", member(lookahead(multi_steps(adam(0.1), 2), 2, 0.5)), Advice::Zeros),
        ("sam", member(sam(sgd(0.1), sgd(0.05))), Advice::Around),
        ("above sam", member(multi_steps(sam(sgd(0.1), sgd(0.05)), 2)), at(&[inner])),
        ("flat", member(flatten(adam(0.1))), Advice::Zeros),
        ("above flat", member(multi_steps(flatten(adam(0.1)), 2)), Advice::Zeros),
        ("beside flat", member(chain((clip(1.0), flatten(adam(0.1))))), Advice::Zeros),
        ("of all leaves", member(lbfgs()), Advice::Zeros),
        ("freezable", member(freezable(adam(0.1))), Advice::Around),
        ("above freezable", member(multi_steps(freezable(adam(0.1)), 2)), at(&[inner])),
        (
            "injected",
            member(inject_hyperparams(multi_steps(adam(0.1), 2))),
            at(&["$.inject_hyperparams.inner.multi_steps.inner"]),
        ),
        (
            "masked",
            member(masked(multi_steps(adam(0.1), 2), Mask::path("layer1/*"))),
            at(&["$.masked.inner.multi_steps.inner"]),
        ),
        ("quantized", member(multi_steps(quantized(adam(0.1)), 2)), at(&[inner])),
        (
            "half mended",
            member(chain((skip_absent(clip(1.0)), multi_steps(adam(0.1), 2)))),
            at(&["$.chain[1].multi_steps.inner"]),
        ),
    ];
    for (name, optimizer, expected) in &cases {
        assert_eq!(follow(name, optimizer).as_ref(), Some(expected), "{name}");
    }
    let ranks = gradchain::collective::threads(1, std::time::Duration::from_secs(9)).pop().unwrap();
    assert_eq!(follow("sharded", &member(sharded(adam(0.1), ranks))), Some(Advice::Zeros));
}
