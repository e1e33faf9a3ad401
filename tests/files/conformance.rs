//! Every recorded case of Optax agrees, or departs by a rule.

#[path = "../conformance/mod.rs"]
mod recorded;

use std::env;
use std::path::Path;

use gradchain::{config, needs};
use recorded::{Departures, Summary, folder, kept};
use serde_json::{Map, Value, json};

/// In the folder `GRADCHAIN_CONFORMANCE`, or the project's.
#[test]
fn every_case_agrees_or_departs_by_a_rule() {
    let departures = Departures::kept();
    let given = env::var_os("GRADCHAIN_CONFORMANCE");
    let cases = given.as_ref().map_or_else(kept, |path| folder(Path::new(path)).expect("a folder of cases"));
    let summary = Summary::of(&cases, &departures);
    println!("{}{summary}", summary.details(&departures));
    assert!(summary.failed.is_empty(), "{}\n{summary}", summary.failed.join("\n"));
    // Some rules need 16-bit types.
    if given.is_some() || cfg!(not(feature = "half")) {
        return;
    }
    assert!(cases.len() >= 1217, "only {} cases", cases.len());
    for (rule, reason) in departures.rules() {
        assert!(!reason.trim().is_empty(), "`{rule}` has a reason");
        assert!(summary.departed.contains_key(rule), "no case departs by `{rule}` any more");
    }
}

/// State has the type of the arithmetic.
const OTHER_DEFAULTS: &[(&str, &str)] = &[("adafactor", "dtype_momentum"), ("multi_steps", "accumulator_dtype")];

#[test]
fn leaving_an_argument_out_is_giving_optaxs_default() {
    let signatures: Value = serde_json::from_str(include_str!("../conformance/signatures.json")).unwrap();
    let mut seen = 0;
    for (name, arguments) in signatures["transforms"].as_object().unwrap() {
        if !config::transformations().contains(&&**name) {
            continue;
        }
        let (mut required, mut all) = (Map::new(), Map::new());
        for (argument, default) in arguments.as_object().unwrap() {
            if default == "required" {
                required.insert(argument.clone(), some(argument));
                all.insert(argument.clone(), some(argument));
            } else if !OTHER_DEFAULTS.contains(&(name, argument)) {
                all.insert(argument.clone(), default.clone());
            }
        }
        // Optax allows some rates to be omitted, and then climbs or does not scale.
        let build = |mut args: Map<String, Value>| {
            if name == "scale_by_learning_rate" {
                args.insert("learning_rate".into(), json!(0.5));
            }
            let built = config::build_with::<needs::ValueAndGradFn>(&json!({ name: args }));
            format!("{:?}", built.unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        assert_eq!(build(required), build(all), "{name}");
        seen += 1;
    }
    assert!(seen >= 35, "only {seen} of the names are known");
}

#[test]
fn every_argument_of_optax_can_be_static() {
    let signatures: Value = serde_json::from_str(include_str!("../conformance/signatures.json")).unwrap();
    let mut seen = 0;
    for (name, arguments) in signatures["transforms"].as_object().unwrap() {
        let arguments = arguments.as_object().unwrap();
        let mut required: Map<_, _> =
            arguments.iter().filter(|(_, default)| *default == "required").map(|(a, _)| (a.clone(), some(a))).collect();
        if name == "scale_by_learning_rate" {
            required.insert("learning_rate".into(), json!(0.5));
        }
        let injected = |names: Vec<&String>| {
            let args = json!({"inner": {name: required}, "static_args": names});
            config::build_with::<needs::ValueAndGradFn>(&json!({"inject_hyperparams": args}))
        };
        // Wrappers have none of their own.
        if arguments.contains_key("inner") || injected(Vec::new()).is_err() {
            continue;
        }
        if let Err(error) = injected(arguments.keys().collect()) {
            panic!("{name}: {error}");
        }
        assert!(injected(vec![&"no_such_argument".into()]).is_err(), "{name}");
        seen += 1;
    }
    assert!(seen >= 80, "only {seen} of the names can be injected");
}

fn some(argument: &str) -> Value {
    match argument {
        "inner" => json!({"scale": {"step_size": 0.5}}),
        "optimizer" | "fast_optimizer" | "base_optimizer" | "adv_optimizer" => json!({"identity": {}}),
        "transforms" => json!({"all": {"identity": {}}}),
        "labels" => json!({"": "all"}),
        "mask" | "freeze_mask" => json!(true),
        "should_transform_fn" => json!({"step_lt": 2}),
        "measures" => json!({"norm": {"measure": "global_norm"}}),
        "measure_name" => json!("norm"),
        "measure" => json!("global_norm"),
        "step_size_fn" => json!({"schedule": {"constant": {"value": 0.5}}}),
        "every_k_schedule" | "sync_period" | "max_consecutive_errors" => json!(2),
        _ => json!(0.5),
    }
}
