use gradchain::arguments::{Argument, Arguments};
use gradchain::prelude::*;

use super::{Problem, Subject, holds, same_state};
use crate::common::registry::About;
use crate::common::subject::{Anonymous as _, Entry, Named as _};
use crate::common::{run, same_values};

#[test]
fn entries_with_named_arguments_are_told_from_the_others() {
    let about = About { elementwise: true, per_step: true };
    let (optimizer, name) = (adam(0.1), String::from("adam"));
    assert!(Entry { name: name.clone(), about, transformation: optimizer.clone() }.subject().named().is_some());
    assert!(Entry { name, about, transformation: chain((optimizer,)) }.subject().named().is_none());
}

/// Numbers that are part of the state are the same numbers.
fn injection(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let Some(named) = entry.named() else { return };
    let (plain, injected) = (entry.run(params, grads), run(&inject_hyperparams(named), params, grads));
    same_values(&plain.params, &injected.params).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    assert!(same_state(&plain.state, injected.state.inner()), "{}: the states differ", entry.name());
}

#[test]
fn what_is_wrapped_in_inject_hyperparams_equals_what_is_not() {
    holds(injection, 4);
}

/// A schedule that never changes is a number, for every argument that takes either.
fn constant_schedules(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let Some(mut named) = entry.named() else { return };
    named.arguments(&mut |_, argument| match argument {
        Argument::Hyperparam(hyperparam) => match *hyperparam {
            // No schedule gives a number that is not finite.
            Hyperparam::Number(number) if number.is_finite() => *hyperparam = constant(number).into(),
            _ => {}
        },
        Argument::Static(_) => {}
    });
    let (plain, scheduled) = (entry.run(params, grads), run(&named, params, grads));
    same_values(&plain.params, &scheduled.params).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    assert!(same_state(&plain.state, &*scheduled.state), "{}: the states differ", entry.name());
}

#[test]
fn a_constant_schedule_equals_the_constant() {
    holds(constant_schedules, 4);
}
