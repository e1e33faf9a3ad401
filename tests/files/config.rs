//! What is said about configs that cannot be built.

use gradchain::config::{self, ConfigError};
use serde_json::{Value, json};

fn error(config: Value) -> ConfigError {
    config::build(&config).unwrap_err()
}

#[test]
fn a_misspelt_name_is_said_where_it_stands_with_the_nearest_one() {
    let transformation = error(json!({"chain": [{"clip": {"max_delta": 1}}, {"adamww": {"learning_rate": 0.1}}]}));
    assert!(transformation.is_unknown_name());
    let expected = "$.chain[1]: there is no transformation `adamww`; did you mean `adamw`?";
    assert!(transformation.to_string().starts_with(expected), "{transformation}");

    let argument =
        error(json!({"masked": {"inner": {"adam": {"learning_rat": 0.1, "learning_rate": 1}}, "mask": null}}));
    let expected = "$.masked.inner.adam: there is no argument `learning_rat`; did you mean `learning_rate`?";
    assert!(argument.to_string().starts_with(expected), "{argument}");

    let schedule = error(json!({"sgd": {"learning_rate": {"schedule": {"linaer": {}}}}}));
    let expected = "$.sgd.learning_rate.schedule: there is no schedule `linaer`; did you mean `linear`?";
    assert!(schedule.to_string().starts_with(expected), "{schedule}");

    let choice = error(json!({"scale_by_lion": {"mode": "soft"}}));
    let expected = "$.scale_by_lion.mode: there is no choice `soft` (known: hard, smooth, refined)";
    assert_eq!(choice.to_string(), expected);
}

#[test]
fn every_name_of_optax_is_known() {
    let signatures: Value = serde_json::from_str(include_str!("../conformance/signatures.json")).unwrap();
    for name in signatures["transforms"].as_object().unwrap().keys() {
        // Most lack an argument here, which is another error.
        let Err(error) = config::build(&json!({ name: {} })) else { continue };
        assert!(!error.is_unknown_name(), "{error}");
    }
    let misplaced = error(json!({"chain": [{"measure_with_ema": {"measure": "global_norm", "decay": 0.9}}]}));
    let expected = "found `measure_with_ema`, which is one of the `measures` of a `monitor`";
    assert!(misplaced.to_string().ends_with(expected), "{misplaced}");
}

#[test]
fn a_value_of_the_wrong_form_is_said_with_what_it_should_be() {
    for (config, expected) in [
        (json!([]), "$: expected a transformation: {name: arguments}, found []"),
        (json!({"adam": {}, "sgd": {}}), "$: expected a transformation: {name: arguments}, found "),
        (json!({"adam": {}}), "$.adam: expected an argument `learning_rate`, found none"),
        (json!({"adam": {"learning_rate": "0.1"}}), "$.adam.learning_rate: expected a number or a schedule, found "),
        (json!({"adam": {"learning_rate": 1, "mu_dtype": 16}}), "$.adam.mu_dtype: expected a type: "),
        (
            json!({"freeze": {"mask": {"by_path": {"a": 1}}}}),
            "$.freeze.mask.by_path.a: expected true or false, found 1",
        ),
        (json!({"chain": {"adam": {}}}), "$.chain: expected a list, found "),
        (
            json!({"inject_hyperparams": {"inner": {"chain": []}}}),
            "$.inject_hyperparams.inner: expected a transformation with hyperparameters, found `chain`",
        ),
    ] {
        let error = error(config);
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(error.refusal().is_none());
    }
}

#[test]
fn an_argument_out_of_range_is_refused_where_it_is_built() {
    let error =
        error(json!({"multi_steps": {"inner": {"adam": {"learning_rate": 0.1, "b1": 1.5}}, "every_k_schedule": 2}}));
    assert!(error.refusal().is_some_and(gradchain::Error::is_argument));
    let expected = "$.multi_steps.inner.adam: scale_by_adam: argument `b1` must be in [0, 1), found 1.5";
    assert_eq!(error.to_string(), expected);
}
