//! Readings do not depend on how a transformation was built, and are the step's values.

use gradchain::arguments::{Argument, Arguments};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::watch::Readings;

use super::{Problem, Subject, all_selected, holds, registry};
use crate::common::extra_inputs::Registered;
use crate::common::run;

/// Returns readings as text, sorted, since configs lose the order; NaNs are equal.
fn written(readings: &Readings) -> Vec<String> {
    let mut lines: Vec<String> = readings.to_string().lines().map(String::from).collect();
    lines.sort();
    lines
}

fn read<T: Registered>(transformation: &T, Problem { params, grads, .. }: &Problem) -> Readings {
    let after = run(transformation, params, grads);
    transformation.readings(&after.state).expect("the state is of this transformation")
}

/// A box has its contents' readings, from the start.
fn boxes(entry: &dyn Subject, problem: &Problem) {
    let member = entry.boxed();
    let mut session = entry.init(&problem.params).unwrap();
    let begun = member.readings(&member.init(&problem.params).unwrap()).unwrap();
    assert_eq!(written(&session.readings().unwrap()), written(&begun), "{}", entry.name());
    let mut params = problem.params.clone();
    for grads in &problem.grads {
        session.step(&mut params, grads).unwrap();
    }
    assert_eq!(written(&session.readings().unwrap()), written(&read(&member, problem)), "{}", entry.name());
}

#[test]
fn a_box_has_the_readings_of_its_entry() {
    holds(boxes, 3);
}

/// As built from a config.
#[cfg(feature = "config")]
fn configs(entry: &dyn Subject, problem: &Problem) {
    use gradchain::config::Config;
    use gradchain::needs::ValueAndGradFn;
    let member = entry.boxed();
    let Ok(config) = Config::of(&member) else { return };
    let built = config.build_with::<ValueAndGradFn>().unwrap();
    assert_eq!(written(&read(&member, problem)), written(&read(&built, problem)), "{}", entry.name());
}

#[cfg(feature = "config")]
#[test]
fn a_rebuilt_config_has_the_readings_of_its_optimizer() {
    holds(configs, 3);
}

/// Returns true if a rate warms up.
fn warms_up(named: &mut gradchain::wrapper::Named<gradchain::needs::ValueAndGradFn>) -> bool {
    let mut warms_up = false;
    named.arguments(&mut |name, argument| {
        warms_up |= name == "warmup_steps" && argument.setting().to_recipe() != gradchain::recipe::Recipe::Null;
    });
    warms_up
}

/// Changes in every step, within every range that contains its start.
fn changing(number: f64) -> Schedule {
    linear(number, number * (1.0 - 1e-9), 100).into()
}

/// A scheduled argument is read with the last step's value.
///
/// Transformations with separate clocks report that of some step.
fn schedules(entry: &dyn Subject, problem: &Problem) {
    let Some(mut named) = entry.named() else { return };
    let mut given: Vec<(&'static str, Schedule)> = Vec::new();
    named.arguments(&mut |name, argument| {
        if let Argument::Hyperparam(hyperparam) = argument
            && let Hyperparam::Number(number) = *hyperparam
            && number.is_finite()
            && number.abs() < 1e100
        {
            let schedule = changing(number);
            *hyperparam = schedule.clone().into();
            given.push((name, schedule));
        }
    });
    // A set's numbers can be trees, so they are no arguments.
    given.retain(|(name, _)| {
        !(entry.name().starts_with("project_") || *name == "learning_rate" && warms_up(&mut named))
    });
    let Ok(mut state) = named.init(&problem.params) else { return };
    // Their schedules count windows, averages, or synchronizations.
    let own_clock = ["multi_steps", "params_", "lookahead"].iter().any(|name| entry.name().starts_with(name));
    let mut params = problem.params.clone();
    for (step, grads) in problem.grads.iter().enumerate() {
        named.step_with_inputs(&mut params, grads, &mut state).unwrap();
        let readings = named.readings(&state).unwrap();
        for (name, schedule) in &given {
            let values: Vec<f64> = readings.iter().filter(|r| r.name() == *name).map(|r| r.value()).collect();
            let wanted = schedule.at(step as u64);
            let earlier = || values.iter().any(|value| (0..=step as u64).any(|step| schedule.at(step) == *value));
            let found = if own_clock { earlier() } else { values.contains(&wanted) };
            assert!(found, "{}: `{name}` in step {step} is {wanted}, read as {values:?}\n{readings}", entry.name());
        }
    }
}

#[test]
fn arguments_are_read_as_the_last_step_took_them() {
    holds(schedules, 4);
}

#[test]
fn every_learning_rate_is_read_by_its_name() {
    let mut found = 0;
    for entry in registry() {
        let Some(mut named) = entry.named() else { continue };
        let mut rates = Vec::new();
        named.arguments(&mut |name, argument| {
            if let (true, Argument::Hyperparam(Hyperparam::Number(rate))) = (name == "learning_rate", argument) {
                rates.push(*rate);
            }
        });
        let Some(rate) = rates.first() else { continue };
        let state = named.init(&(vec![1.0_f32, 2.0], 3.0_f64)).unwrap();
        let readings = named.readings(&state).unwrap();
        let rate = if warms_up(&mut named) { 0.0 } else { *rate };
        assert_eq!(readings.get("learning_rate"), Ok(rate), "{}:\n{readings}", entry.name());
        found += 1;
    }
    assert!(found > 40 || !all_selected(), "{found} have a rate");
}
