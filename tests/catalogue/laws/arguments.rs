use gradchain::arguments::{Argument, Arguments};
use gradchain::prelude::*;
use gradchain::schedule::constant;

use super::{
    LeafPlan, Locality, Number, Order, Problem, Subject, all_selected, holds, noise, registry, same_state, tree,
};
use crate::common::subject::{Anonymous as _, Entry, Named as _};
use crate::common::{run, same_values};

#[test]
fn entries_with_named_arguments_are_told_from_the_others() {
    let locality = Locality::Element;
    let (optimizer, name) = (adam(0.1), String::from("adam"));
    assert!(Entry { name: name.clone(), locality, transformation: optimizer.clone() }.subject().named().is_some());
    assert!(Entry { name, locality, transformation: chain((optimizer,)) }.subject().named().is_none());
}

/// Injected hyperparameters equal the plain numbers.
fn injection(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let Some(named) = entry.named() else { return };
    let (plain, injected) = (entry.run(params, grads), run(&inject_hyperparams(named), params, grads));
    same_values(&plain.params, &injected.params).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    assert!(same_state(&plain.state, injected.state.inner()), "{}: the states differ", entry.name());
}

#[test]
fn inject_hyperparams_equals_the_unwrapped_optimizer() {
    holds(injection, 4);
}

/// A constant schedule equals its number, for every argument that takes either.
fn constant_schedules(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let Some(mut named) = entry.named() else { return };
    named.arguments(&mut |_, argument| {
        // Schedules must return finite numbers.
        if let Argument::Hyperparam(hyperparam) = argument
            && let Hyperparam::Number(number) = *hyperparam
            && number.is_finite()
        {
            *hyperparam = constant(number).into();
        }
    });
    let (plain, scheduled) = (entry.run(params, grads), run(&named, params, grads));
    same_values(&plain.params, &scheduled.params).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    assert!(same_state(&plain.state, &*scheduled.state), "{}: the states differ", entry.name());
}

#[test]
fn a_constant_schedule_equals_the_constant() {
    holds(constant_schedules, 4);
}

/// The ends of all ranges, and numbers around them.
const NUMBERS: [f64; 14] = [
    f64::NAN,
    f64::NEG_INFINITY,
    -1e300,
    -1.0,
    -0.0,
    0.0,
    f64::MIN_POSITIVE,
    0.5,
    1.0,
    1.5,
    4.0,
    1e9,
    1e300,
    f64::INFINITY,
];

/// Returns true for a negative rate or decay.
fn is_mistake(error: &str) -> bool {
    error.contains("[WarningKind::Negative")
}

/// A number can be set during training if and only if it can be built with, with the same message.
#[test]
fn set_accepts_exactly_the_numbers_that_init_accepts() {
    let plan = [vec![3, 4], vec![3]].map(|shape| LeafPlan { number: Number::F32, shape, order: Order::C });
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let (mut taken, mut refused) = (0, 0);
    for entry in registry() {
        let Some(mut named) = entry.named() else { continue };
        let mut numbers = Vec::new();
        named.arguments(&mut |name, argument| {
            if let Argument::Hyperparam(Hyperparam::Number(number)) = argument {
                numbers.push((name, *number));
            }
        });
        let mut state = inject_hyperparams(named.clone()).init(&params).unwrap();
        for (name, default) in numbers {
            for number in NUMBERS {
                let mut built = named.clone();
                built.arguments(&mut |of, argument| match argument {
                    Argument::Hyperparam(hyperparam) if of == name => *hyperparam = number.into(),
                    _ => {}
                });
                let what = format!("{}: `{name}` of {number}", entry.name());
                let begun = built.init(&params).map(drop).map_err(|error| error.to_string());
                let set = state.hyperparams_mut().set(name, number).map_err(|error| error.to_string());
                match (&set, &begun) {
                    (Err(set), Err(begun)) if is_mistake(begun) => assert!(is_mistake(set), "{what}: {set}"),
                    // Later stages may reverse it.
                    (Err(set), Ok(())) => {
                        let rated = chain((built.clone(), scale_by_learning_rate(0.1))).init(&params);
                        assert!(
                            is_mistake(set) && rated.is_err_and(|error| is_mistake(&error.to_string())),
                            "{what}: {set}"
                        );
                    }
                    _ => assert_eq!(set, begun, "{what}"),
                }
                let expected = if set.is_ok() { number } else { default };
                assert_eq!(state.hyperparams().get(name).map(f64::to_bits), Some(expected.to_bits()), "{what}");
                *if set.is_ok() { &mut taken } else { &mut refused } += 1;
                state.hyperparams_mut().set(name, default).unwrap();
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(!all_selected() || taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
}
