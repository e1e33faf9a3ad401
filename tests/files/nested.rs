//! Every writable depth is readable, and a deeper one is refused, whatever the stack's size.

use std::io::Cursor;

use gradchain::checkpoint::{Checkpoint, Load, Save};
use gradchain::config::{self, Config};
use gradchain::prelude::*;
use gradchain::state::{StateData, same_bits};
use serde_json::{Value, json};

/// Nests wrappers; each is two levels of data, as is the innermost optimizer.
fn wrapped(wrappers: usize) -> Boxed {
    (0..wrappers).fold(boxed(sgd(0.5)), |inner, _| boxed(multi_steps(inner, 1)))
}

/// Within 256 levels.
const MOST: usize = 127;

#[test]
fn saved_nestings_can_be_loaded() {
    for wrappers in [0, 1, 31, 62, 63, 64, 100, MOST] {
        let optimizer = wrapped(wrappers);
        let mut params = vec![1.0_f32, 2.0];
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &vec![0.5_f32, 0.25], &mut state).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        Save::new(&optimizer, &state).params(&params).to_writer(&mut bytes).unwrap();
        let file = Checkpoint::from_bytes(bytes.into_inner()).unwrap_or_else(|error| panic!("{wrappers}: {error}"));
        let mut again = vec![0.0_f32; 2];
        let loaded = file.load(&optimizer, &mut again).unwrap();
        assert!(same_bits(&*loaded, &*state) && again == params, "{wrappers}");
        let data = StateData::of(&optimizer, &state).unwrap();
        assert!(same_bits(&*data.load(&optimizer, &params).unwrap(), &*state), "{wrappers}");
        // Innermost.
        let other = (0..wrappers).fold(boxed(sgd(0.25)), |inner, _| boxed(multi_steps(inner, 1)));
        let error = file.load(&other, &mut again).unwrap_err().to_string();
        assert!(error.contains("sgd.learning_rate: expected 0.25, found 0.5"), "{wrappers}: {error}");
        Load::strict().may_differ("learning_rate").load(&file, &other, &mut again).unwrap();

        let config = Config::of(&optimizer).unwrap();
        assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        assert_eq!(serde_json::from_value::<Config>(serde_json::to_value(&config).unwrap()).unwrap(), config);
        config.build().unwrap();
        // TOML has at most 80 levels.
        let read = Config::from_toml(&config.to_toml());
        match wrappers {
            ..39 => assert_eq!(Config::of(&read.unwrap().build().unwrap()).unwrap(), config),
            _ => assert!(read.unwrap_err().to_string().contains("recursion limit"), "{wrappers}"),
        }
    }
}

#[test]
fn too_deep_nestings_are_refused_when_written() {
    for wrappers in [MOST + 1, 200] {
        let optimizer = wrapped(wrappers);
        let state = optimizer.init(&0.0_f32).unwrap();
        let saved = Save::new(&optimizer, &state).to_writer(Cursor::new(Vec::new())).unwrap_err().to_string();
        let data = StateData::of(&optimizer, &state).unwrap_err().to_string();
        let config = Config::of(&optimizer).unwrap_err().to_string();
        for error in [saved, data, config] {
            assert!(error.contains("more than 256 levels"), "{wrappers}: {error}");
        }
    }
}

/// Built and dropped without recursion.
struct Deep(Value);

impl Deep {
    fn of(levels: usize, mut around: impl FnMut(Value) -> Value) -> Deep {
        Deep((0..levels).fold(Value::Null, |inside, _| around(inside)))
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let mut left = vec![self.0.take()];
        while let Some(value) = left.pop() {
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(entries) => left.extend(entries.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    }
}

fn list(inside: Value) -> Value {
    Value::Array(vec![inside])
}

fn object(key: &str, inside: Value) -> Value {
    Value::Object([(key.to_owned(), inside)].into_iter().collect())
}

#[test]
fn configs_of_any_depth_are_an_error() {
    type Around = fn(Value) -> Value;
    let shapes: [Around; 5] = [
        list,
        |inside| object("inner", inside),
        |inside| object("chain", list(inside)),
        |inside| object("multi_steps", object("inner", inside)),
        |inside| object("masked", Value::Object([("mask".to_owned(), object("not", inside))].into_iter().collect())),
    ];
    for around in shapes {
        for levels in [300, 100_000] {
            let deep = Deep::of(levels, around);
            let errors = [
                config::build(&deep.0).unwrap_err(),
                config::build_per_example::<Nothing>(&deep.0).unwrap_err(),
                config::schedule(&deep.0).unwrap_err(),
                Config::new(&deep.0).unwrap_err(),
            ];
            for error in errors {
                assert!(error.to_string().contains("more than 256 levels"), "{error}");
            }
            assert!(!config::is_per_example(&deep.0));
        }
    }
    for (open, close) in [("[", "]"), ("{\"chain\":[", "]}"), ("{\"multi_steps\":{\"inner\":", "}}")] {
        for closed in [close, ""] {
            let text = format!("{}0{}", open.repeat(100_000), closed.repeat(100_000));
            let error = Config::from_json(&text).unwrap_err().to_string();
            assert!(error.contains("more than 256 levels"), "{error}");
            assert!(serde_json::from_str::<Config>(&text).is_err());
        }
    }
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
    ] {
        assert!(Config::from_toml(&text).unwrap_err().to_string().contains("TOML"));
    }
}

/// Deeper than any writable one.
#[test]
fn files_of_any_depth_are_an_error() {
    let optimizer = sgd(0.5);
    let state = optimizer.init(&0.0_f32).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    Save::new(&optimizer, &state).to_writer(&mut bytes).unwrap();
    for levels in [256, 257, 100_000] {
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let changed = crate::checkpoint::damage::with_header_of(bytes.get_ref().clone(), |header| {
            header.replace(r#"{\"sgd\":{\"learning_rate\":0.5}}"#, &deep)
        });
        let error = Checkpoint::from_bytes(changed).and_then(|file| file.load_state(&optimizer, &0.0_f32).map(drop));
        let error = error.unwrap_err().to_string();
        let expected = if levels > 256 { "more than 256 levels" } else { "optimizer: $" };
        assert!(error.contains(expected), "{levels}: {error}");
        let mut data = serde_json::to_value(StateData::of(&optimizer, &state).unwrap()).unwrap();
        data["optimizer"] = json!(deep);
        let data: StateData = serde_json::from_value(data).unwrap();
        let error = data.load(&optimizer, &0.0_f32).unwrap_err().to_string();
        assert!(error.contains(expected), "{levels}: {error}");
    }
}
