//! Configs that cannot be built.

use gradchain::config::{self, ConfigError};
use gradchain::prelude::*;
use gradchain::state::StateData;
use serde_json::{Value, json};

fn error(config: Value) -> ConfigError {
    config::build(&config).unwrap_err()
}

#[test]
fn a_misspelt_name_is_said_where_it_stands_with_the_nearest_one() {
    let transformation = error(json!({"chain": [{"clip": {"max_delta": 1}}, {"adamww": {"learning_rate": 0.1}}]}));
    assert!(transformation.is_unknown_name());
    let expected = "$.chain[1]: unknown transformation `adamww`; did you mean `adamw`?";
    assert!(transformation.to_string().starts_with(expected), "{transformation}");

    let argument =
        error(json!({"masked": {"inner": {"adam": {"learning_rat": 0.1, "learning_rate": 1}}, "mask": null}}));
    let expected = "$.masked.inner.adam: unknown argument `learning_rat`; did you mean `learning_rate`?";
    assert!(argument.to_string().starts_with(expected), "{argument}");

    let schedule = error(json!({"sgd": {"learning_rate": {"schedule": {"linaer": {}}}}}));
    let expected = "$.sgd.learning_rate.schedule: unknown schedule `linaer`; did you mean `linear`?";
    assert!(schedule.to_string().starts_with(expected), "{schedule}");

    let choice = error(json!({"scale_by_lion": {"mode": "soft"}}));
    let expected = "$.scale_by_lion.mode: unknown choice `soft` (known: hard, smooth, refined)";
    assert_eq!(choice.to_string(), expected);
}

#[test]
fn every_name_of_optax_is_known() {
    let signatures: Value = serde_json::from_str(include_str!("../conformance/signatures.json")).unwrap();
    for name in signatures["transforms"].as_object().unwrap().keys() {
        // Most lack an argument, which is another error.
        let Err(error) = config::build(&json!({ name: {} })) else { continue };
        assert!(!error.is_unknown_name(), "{error}");
    }
    let misplaced = error(json!({"chain": [{"measure_with_ema": {"measure": "global_norm", "decay": 0.9}}]}));
    let expected = "found `measure_with_ema`, which is one of the `measures` of a `monitor`";
    assert!(misplaced.to_string().ends_with(expected), "{misplaced}");
}

#[test]
fn malformed_values_are_reported_with_the_expected_form() {
    for (config, expected) in [
        (json!([]), "$: expected a transformation: {name: arguments}, or {\"chain\": [..]} for several, found []"),
        (
            json!({"adam": {}, "sgd": {}}),
            "$: expected a transformation: {name: arguments}, or {\"chain\": [..]} for several, found 2 in one object: \
             adam, sgd",
        ),
        (
            json!({"name": "adam", "learning_rate": 0.1}),
            "$: expected a transformation: {\"adam\": {..}}, found 2 in one object: learning_rate, name",
        ),
        (json!({"chain": ["zero_nans"]}), "$.chain[0]: expected a transformation: {\"zero_nans\": {}}, found "),
        (json!({"clip_by_global_norm": 1.0}), "$.clip_by_global_norm: expected {\"max_norm\": ..}, found 1.0"),
        (json!({"zero_nans": true}), "$.zero_nans: expected {}, found true"),
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

#[test]
fn all_mistakes_are_said_at_once_each_with_its_place() {
    let config = json!({"adamw": {"lerning_rate": "fast", "b1": true, "mask": {"min_dim": 2}}});
    let expected = [
        "$.adamw: unknown argument `lerning_rate`; did you mean `learning_rate`? (the nearest of 11: learning_rate, \
         eps_root, nu_dtype, nesterov, eps)",
        "$.adamw.lerning_rate: expected a number or a schedule, found \"fast\"",
        "$.adamw.b1: expected a number or a schedule, found true",
        "$.adamw.mask: unknown kind of mask `min_dim`; did you mean `min_ndim`? (the nearest of 8: min_ndim, and, not, \
         by_path, path)",
    ];
    assert_eq!(error(config).to_string(), expected.join("\n"));
}

#[test]
fn mistakes_of_all_members_and_ranges_are_said_at_once() {
    let config = json!({"chain": [
        {"clip_by_global_norm": {"max_nrm": -1.0}},
        {"partition": {
            "transforms": {"a": {"adam": {"learning_rate": 0.1, "b1": 1.5, "b3": 0.5, "eps": -1.0}}, "b": {"sdg": {}}},
            "labels": 7,
        }},
        {"multi_steps": {"inner": {"adamw": {"b2": 2.0}}, "every_k_schedule": 0, "evry_k": 1}},
    ]});
    let places: Vec<String> = error(config.clone()).to_string().lines().map(String::from).collect();
    let expected = [
        "$.chain[0].clip_by_global_norm: unknown argument `max_nrm`; did you mean `max_norm`?",
        "$.chain[0].clip_by_global_norm: argument `max_norm` must be not negative, found -1",
        "$.chain[1].partition.transforms.a.adam: unknown argument `b3`; did you mean `b1`?",
        "$.chain[1].partition.transforms.a.adam: scale_by_adam: argument `b1` must be in [0, 1), found 1.5",
        "$.chain[1].partition.transforms.a.adam: scale_by_adam: argument `eps` must be finite and not negative, found -1",
        "$.chain[1].partition.transforms.b: unknown transformation `sdg`; did you mean `sgd`?",
        "$.chain[1].partition.labels: expected ",
        "$.chain[2].multi_steps: unknown argument `evry_k`",
        "$.chain[2].multi_steps.inner.adamw: expected an argument `learning_rate`, found none",
        "$.chain[2].multi_steps.inner.adamw: scale_by_adam: argument `b2` must be in [0, 1), found 2",
        "$.chain[2].multi_steps: argument `every_k_schedule` must be ",
    ];
    assert_eq!(places.len(), expected.len(), "{places:#?}");
    for (said, expected) in places.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said}\n{expected}");
    }
    assert!(error(config).refusal().is_some_and(gradchain::Error::is_argument));
    // In code too, and for an argument that only a config may omit.
    let said = chain((adam(0.1).b1(1.5).b2(-0.5), sgd(f64::NAN))).init(&1.0_f32).unwrap_err();
    assert!(said.is_argument() && said.to_string().lines().count() == 3, "{said}");
    let said = sgd(gradchain::arguments::required()).init(&1.0_f32).unwrap_err().to_string();
    assert!(said.ends_with("argument `learning_rate` must be given, found nothing"), "{said}");
}

#[test]
fn names_of_other_libraries_get_suggestions() {
    for (config, meant) in [
        (json!({"adam": {"lr": 0.1}}), "unknown argument `lr`; did you mean `learning_rate`?"),
        (json!({"AdamW": {}}), "unknown transformation `AdamW`; did you mean `adamw`?"),
        (
            json!({"adamw": {"learning_rate": 0.1, "betas": [0.9, 0.99]}}),
            "unknown argument `betas`; did you mean `b1`, `b2`?",
        ),
        (json!({"adamw": {"learning_rate": 0.1, "wd": 0.1}}), "unknown argument `wd`; did you mean `weight_decay`?"),
        (json!({"lion": {"learning_rate": 0.1, "momentum": 0.9}}), "unknown argument `momentum`; did you mean `b1`?"),
        (json!({"trace": {"momentum": 0.9}}), "unknown argument `momentum`; did you mean `decay`?"),
        (
            json!({"sgd": {"learning_rate": {"schedule": {"CosineAnnealingLR": {}}}}}),
            "unknown schedule `CosineAnnealingLR`; did you mean `cosine_decay`?",
        ),
    ] {
        let said = error(config).to_string();
        assert!(said.contains(meant), "{said}");
    }
}

#[test]
fn similar_argument_names_are_suggested() {
    let config = json!({"multi_steps": {"inner": {"sgd": {"learning_rate": 0.1}}, "every_k": 2}});
    let said = error(config).to_string();
    assert!(said.contains("unknown argument `every_k`; did you mean `every_k_schedule`?"), "{said}");
    let config =
        json!({"sgd": {"learning_rate": {"schedule": {"cosine_decay": {"init_value": 1.0, "total_steps": 9}}}}});
    let said = error(config).to_string();
    assert!(said.contains("unknown argument `total_steps`; did you mean `decay_steps`?"), "{said}");
    let said = error(json!({"clip_by_global_norm": {"maxnorm": 1.0}})).to_string();
    assert!(said.contains("did you mean `max_norm`?"), "{said}");
}

#[test]
fn duplicate_keys_are_refused() {
    let twice = r#"{"sgd": {"learning_rate": 0.1, "learning_rate": 0.2}}"#;
    let error = config::Config::from_json(twice).unwrap_err().to_string();
    assert!(error.contains("duplicate key `learning_rate`"), "{error}");
    assert!(serde_json::from_str::<config::Config>(twice).is_err());
    assert!(config::Config::from_toml("[sgd]\nlearning_rate = 0.1\nlearning_rate = 0.2").is_err());
}

mod own {
    use gradchain::Real;
    use gradchain::arguments::required;
    use gradchain::config::{Config, Registry};
    use gradchain::part::{Clock, Decision, OneElement, Rule, StepContext, Wrapper};
    use gradchain::prelude::*;
    use gradchain::state::{Count, State};

    gradchain::part! {
        /// Multiplies by a number, on some leaves.
        pub(super) Stretch as "stretch": OneElement, SAME_DIRECTION;
        required {
            by: POSITIVE;
        }
        integers {
            times: u64 = 1, AT_LEAST_1;
        }
    }

    impl Rule for Stretch {
        type Slots<C: Real> = [C; 0];
        type Scalars<C: Real> = C;

        fn scalars<C: Real>(&self, clock: Clock) -> C {
            C::of(self.by.at(clock.count).powi(self.times as i32))
        }
        fn apply<C: Real>(by: C, _: &mut [C; 0], u: C, _: C) -> C {
            by * u
        }
    }

    #[derive(State, Clone, Debug, Default)]
    pub(super) struct Steps {
        steps: Count,
    }

    gradchain::wrapper! {
        /// Runs the inner transformation once in several steps.
        pub(super) Seldom<T> as "seldom" around inner: gradchain::part::Around {
            every: u64 in AT_LEAST_1 = 2;
        }
    }

    impl<T: gradchain::GradientTransformation> Wrapper for Seldom<T> {
        type Memory = Steps;

        fn decide(&self, memory: &mut Steps, _: &StepContext<'_>, _: f64) -> Decision {
            memory.steps.increment();
            if memory.steps.get().is_multiple_of(self.every) { Decision::Run } else { Decision::Skip }
        }
    }

    #[test]
    fn parts_of_users_are_read_checked_and_shown_in_the_schema() {
        let mut registry = Registry::new();
        registry.part(|| Stretch::with(required())).wrapper(Seldom::with);
        let config = serde_json::json!({"seldom": {"inner": {"chain": [
            {"stretch": {"by": 2.0, "times": 2}},
            {"sgd": {"learning_rate": {"schedule": {"constant": {"value": 0.5}}}}},
        ]}, "every": 3}});
        let optimizer = registry.build(&config).unwrap();
        let mut params = 1.0_f64;
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..6 {
            optimizer.step(&mut params, &0.25, &mut state).unwrap();
        }
        assert_eq!(params, 1.0 - 2.0 * 4.0 * 0.25 * 0.5);
        for (config, expected) in [
            (serde_json::json!({"stretch": {}}), "$.stretch: expected an argument `by`, found none"),
            (serde_json::json!({"stretch": {"by": -1.0}}), "$.stretch: argument `by` must be positive and finite"),
            (
                serde_json::json!({"stretch": {"by": 1.0, "time": 1}}),
                "$.stretch: unknown argument `time`; did you mean `times`?",
            ),
            (serde_json::json!({"seldom": {"every": 2}}), "$.seldom: expected an argument `inner`, found none"),
        ] {
            let error = registry.build(&config).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let schema: serde_json::Value = serde_json::from_str(&registry.json_schema()).unwrap();
        let arguments = &schema["$defs"]["arguments"]["stretch"];
        assert_eq!(arguments["required"], serde_json::json!(["by"]));
        assert_eq!(arguments["properties"]["times"]["default"], 1);
        // A recipe like the crate's own; only that registry has its name.
        let inside = registry.build(&serde_json::json!({"stretch": {"by": 2.0}})).unwrap();
        let error = Config::of(&inside).unwrap_err().to_string();
        assert!(error.starts_with("$: unknown transformation `stretch`"), "{error}");
    }
}

/// Configs build it as one type.
#[test]
fn a_common_chain_is_the_chain_of_its_members() {
    let clip = json!({"clip_by_global_norm": {"max_norm": 0.5}});
    for optimizer in [
        json!({"adamw": {"learning_rate": 0.1, "weight_decay": 0.2}}),
        json!({"adam": {"learning_rate": {"schedule": {"linear": {"init_value": 1, "end_value": 0, "transition_steps": 9}}}}}),
        json!({"sgd": {"learning_rate": 0.1, "momentum": 0.9}}),
        json!({"lion": {"learning_rate": 0.1}}),
    ] {
        let together = config::build(&json!({"chain": [clip, optimizer]})).unwrap();
        let apart = chain(vec![config::build(&clip).unwrap(), config::build(&optimizer).unwrap()]);
        assert_eq!(config::Config::of(&together).unwrap(), config::Config::of(&apart).unwrap());
        let start: Vec<f32> = (0..3000).map(|i| (i % 7) as f32 - 3.0).collect();
        let grads: Vec<f32> = (0..3000).map(|i| (i % 11) as f32 - 5.0).collect();
        let (mut here, mut there) = (start.clone(), start.clone());
        let (mut state, mut other) = (together.init(&start).unwrap(), apart.init(&start).unwrap());
        assert_eq!(state.schema(), other.schema());
        for _ in 0..3 {
            together.step(&mut here, &grads, &mut state).unwrap();
            apart.step(&mut there, &grads, &mut other).unwrap();
            assert_eq!(here, there);
        }
        assert_ne!(here, start);
        let data = StateData::of(&apart, &other).unwrap();
        assert_eq!(StateData::of(&together, &state).unwrap(), data);
    }
}
