//! Configs from transformations and back, in JSON and TOML, with the schema.

use std::io::{BufRead, BufReader};

use gradchain::config::{self, Config};
use gradchain::prelude::*;
use gradchain::transform::{add_noise, scale_by_muon};
use serde_json::{Value, json};

fn recorded() -> Vec<Value> {
    let files = [&include_bytes!("../conformance/cases.jsonl.gz")[..], include_bytes!("../conformance/own.jsonl.gz")];
    let lines = files.into_iter().flat_map(|file| BufReader::new(flate2::read::GzDecoder::new(file)).lines());
    let configs = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    configs.filter(|case| case["kind"] == "transform").map(|case| case["config"].clone()).collect()
}

#[test]
fn configs_of_built_optimizers_round_trip() {
    let (mut seen, schema) = (0, serde_json::from_str(&config::json_schema()).unwrap());
    for given in recorded() {
        // Names of Optax alone.
        let Ok(config) = Config::new(&given) else { continue };
        seen += 1;
        let written = Config::of(&config.build_with::<gradchain::needs::ValueAndGradFn>().unwrap());
        let written = written.unwrap_or_else(|error| panic!("{given}: {error}"));
        let again = Config::of(&written.build_with::<gradchain::needs::ValueAndGradFn>().unwrap()).unwrap();
        assert_eq!(written, again, "{given}");
        assert_eq!(Config::from_json(&written.to_json()).unwrap(), written, "{given}");
        let toml = Config::from_toml(&written.to_toml()).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(toml.to_toml(), written.to_toml(), "{given}");
        let through_serde: Config = serde_json::from_value(serde_json::to_value(&written).unwrap()).unwrap();
        assert_eq!(through_serde, written, "{given}");
        covered(&schema, &given);
        covered(&schema, &serde_json::to_value(&written).unwrap());
    }
    assert!(seen > 400, "{seen} configs");
}

fn covered(schema: &Value, config: &Value) {
    let Value::Object(map) = config else { return };
    for (name, arguments) in map {
        let known = &schema["$defs"]["arguments"][name];
        assert!(!known.is_null(), "`{name}` is not in the schema");
        match arguments {
            Value::Array(members) => {
                let members = members.iter().map(|m| if let Value::Array(pair) = m { &pair[1] } else { m });
                members.for_each(|member| covered(schema, member));
            }
            Value::Object(arguments) => {
                for key in arguments.keys() {
                    assert!(!known["properties"][key].is_null(), "`{name}.{key}` is not in the schema: {known}");
                }
                for required in known["required"].as_array().into_iter().flatten() {
                    assert!(arguments.contains_key(required.as_str().unwrap()), "`{name}` does without {required}");
                }
                let inside = ["inner", "fast_optimizer", "base_optimizer", "optimizer"];
                inside.iter().filter_map(|key| arguments.get(*key)).for_each(|inner| covered(schema, inner));
            }
            other => panic!("{name}: {other}"),
        }
    }
}

#[test]
fn a_built_optimizer_and_its_config_do_the_same() {
    let optimizer = multi_steps(
        chain((
            clip_by_global_norm(1.0),
            adamw(warmup_cosine_decay(0.0, 3e-3, 10, 100).end_value(1e-5)).weight_decay(0.1).mask(!Mask::path("b")),
        )),
        2,
    );
    let json = Config::of(&optimizer).unwrap().to_json();
    let again = Config::from_json(&json).unwrap().build().unwrap();
    let mut params = gradchain::tree::DynTree::new();
    params.insert("a", ndarray::arr1(&[1.0_f32, -2.0]));
    params.insert("b", ndarray::arr1(&[0.5_f64]));
    let grads = params.clone();
    assert_eq!(again.programs(&params).unwrap(), optimizer.programs(&params).unwrap());
    let (mut left, mut right) = (params.clone(), params);
    let (mut of_left, mut of_right) = (optimizer.init(&left).unwrap(), again.init(&right).unwrap());
    for _ in 0..7 {
        optimizer.step(&mut left, &grads, &mut of_left).unwrap();
        again.step(&mut right, &grads, &mut of_right).unwrap();
        assert_eq!(left, right);
    }
}

#[test]
fn non_data_arguments_are_listed_with_their_paths() {
    let optimizer = chain((
        masked(clip(1.0), Mask::by(|leaf| leaf.ndim() > 1)),
        sgd(gradchain::schedule::from_fn("mine", |count| count as f64)),
    ));
    let error = Config::of(&optimizer).unwrap_err().to_string();
    let expected = "$.chain[0].masked.mask: expected data, found Mask::by(..); at $.chain[1].sgd.learning_rate.schedule \
                    from_fn(\"mine\", ..)";
    assert_eq!(error, expected);
}

#[test]
fn masks_and_labels_of_every_form_are_written_out() {
    for mask in [
        json!(false),
        json!({"paths": ["a/*", "b"]}),
        json!({"and": [{"min_ndim": 2}, {"not": {"paths": ["embed"]}}]}),
        json!({"or": [{"by_path": {"a": true, "b": false}}, false]}),
    ] {
        let config = json!({"masked": {"inner": {"clip": {"max_delta": 1.0}}, "mask": mask}});
        let written = Config::of(&config::build(&config).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(written).unwrap(), config);
    }
    for labels in [
        json!({"by_path": {"a": "x"}, "otherwise": "x"}),
        json!({"paths": [["a/*", "x"], ["b", "x"]]}),
        json!({"by_path": {"a": "x"}}),
    ] {
        let config = json!({"partition": {"transforms": {"x": {"clip": {"max_delta": 1.0}}}, "labels": labels}});
        let written = Config::of(&config::build(&config).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(written).unwrap(), config);
    }
}

#[test]
fn seeds_beyond_the_integers_of_toml_are_kept() {
    let config = Config::of(&add_noise(0.1, 0.5, u64::MAX)).unwrap();
    assert_eq!(Config::of(&Config::from_toml(&config.to_toml()).unwrap().build().unwrap()).unwrap(), config);
}

/// At the ends of their range they are refused, or kept exactly.
#[test]
fn integers_at_the_ends_of_their_ranges_are_kept() {
    const EXTREMES: [u64; 5] = [u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64, (1 << 53) + 1, u32::MAX as u64 + 1];

    /// Collects JSON pointers of whole numbers.
    fn places(place: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Number(n) if n.is_u64() => found.push(place.to_owned()),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, item)| places(&format!("{place}/{i}"), item, found));
            }
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(&format!("{place}/{key}"), item, found);
            }),
            _ => {}
        }
    }

    let built = |config: &Config| config.build_with::<gradchain::needs::ValueAndGradFn>().unwrap();
    let (mut kept, mut refused, mut seen) = (0, 0, std::collections::BTreeSet::new());
    for given in recorded().into_iter().filter(|given| Config::new(&given).is_ok()) {
        let mut found = Vec::new();
        places("", &given, &mut found);
        for (place, extreme) in found.iter().flat_map(|place| EXTREMES.map(|extreme| (place, extreme))) {
            // Once for each argument.
            let argument: String = place.split('/').filter(|level| level.parse::<u64>().is_err()).collect();
            if !seen.insert((argument, extreme)) {
                continue;
            }
            let mut given = given.clone();
            *given.pointer_mut(place).unwrap() = extreme.into();
            let Ok(config) = Config::new(&given) else {
                refused += 1;
                continue;
            };
            kept += 1;
            let written = Config::of(&built(&config)).unwrap();
            // Hyperparameters are floats.
            let digits = [Value::from(extreme), Value::from(extreme as f64)].map(|number| number.to_string());
            let is_kept = digits.iter().any(|digits| written.to_string().contains(digits));
            assert!(is_kept, "{place}: {extreme} is gone: {written}");
            assert_eq!(Config::from_json(&written.to_json()).unwrap(), written, "{place}: {extreme}");
            for config in [&config, &written] {
                let toml = Config::from_toml(&config.to_toml());
                let toml = toml.unwrap_or_else(|error| panic!("{place}, {extreme}: {error}"));
                assert_eq!(Config::of(&built(&toml)).unwrap(), written, "{place}: {extreme}");
            }
        }
    }
    println!("{kept} kept, {refused} refused");
    assert!(kept > 100, "{kept} kept, {refused} refused");
}

#[test]
fn a_window_of_mini_steps_may_be_of_any_length() {
    for k in [1, u32::MAX as u64 + 1, (1 << 53) + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        let config =
            Config::new(&json!({"multi_steps": {"inner": {"sgd": {"learning_rate": 0.5}}, "every_k_schedule": k}}));
        let config = config.unwrap();
        let written = Config::of(&config.build().unwrap()).unwrap();
        assert_eq!(serde_json::to_value(&written).unwrap()["multi_steps"]["every_k_schedule"], k);
        let toml = Config::from_toml(&config.to_toml()).unwrap();
        assert_eq!(Config::of(&toml.build().unwrap()).unwrap(), written);
        let mut params = 1.0_f64;
        let mut state = toml.build().unwrap().init(&params).unwrap();
        assert_eq!(toml.build().unwrap().step(&mut params, &1.0, &mut state).unwrap().emitted(), k == 1);
    }
    for k in [json!("two"), json!("2.5"), json!(2.5), json!(0), json!(-1), json!("-1"), json!("0")] {
        assert!(
            Config::new(&json!({"multi_steps": {"inner": {"sgd": {"learning_rate": 0.5}}, "every_k_schedule": k}}))
                .is_err(),
            "{k}"
        );
    }
}

/// The largest numbers would never finish.
#[test]
fn iterations_have_an_end() {
    let of = |name: &str, steps: u64| Config::new(&json!({name: {"learning_rate": 0.1, "ns_steps": steps}}));
    for steps in [1001, 1 << 31, u64::MAX] {
        let error = of("muon", steps).unwrap_err().to_string();
        assert!(error.contains("`ns_steps` must be at most 1000"), "{error}");
        let error = scale_by_muon().ns_steps(steps as usize).init(&ndarray::arr2(&[[1.0_f32]])).unwrap_err();
        assert!(error.to_string().contains("`ns_steps` must be at most 1000"), "{error}");
    }
    of("muon", 1000).unwrap();
}
