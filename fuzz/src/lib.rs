//! The fuzz targets: none may panic, whatever the bytes.
//!
//! `tests/files/corpus.rs` runs them over the files of `corpus`.

use gradchain::checkpoint::{Checkpoint, Import, Load, Origin};
#[cfg(feature = "config")]
use gradchain::config::{self, Config};
use gradchain::prelude::*;
use gradchain::state::StateData;
use gradchain::tree::{DynTree, Structure};
use gradchain::{Migration, Tree};
use ndarray::{Array1, Array2, array};
use serde_json::{Map, Value};

/// A target and its folder in `corpus`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("checkpoint", checkpoint),
    ("header", header),
    ("import", import),
    ("data", data),
    ("paths", paths),
    #[cfg(feature = "config")]
    ("config", config),
];

/// The parameters that every target loads into.
#[derive(Clone, PartialEq, Debug, Tree)]
pub struct Model {
    weight: Array2<f32>,
    bias: Array1<f64>,
}

/// Returns the model before a load.
pub fn model() -> Model {
    Model { weight: array![[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]], bias: array![0.1, 0.2] }
}

/// Returns the optimizer of every loaded state.
pub fn optimizer() -> gradchain::optimizer::Adamw {
    adamw(0.1).weight_decay(0.01).mask(Mask::path("weight"))
}

/// Loads unchanged bytes; most mutations fail at the check sums.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(file) = Checkpoint::from_bytes(bytes.to_vec()) {
        load_all(&file);
    }
}

/// Loads a checkpoint in every way; a refused load changes nothing.
fn load_all(file: &Checkpoint) {
    let _ = (file.optimizer(), file.version().len(), file.notes().count(), file.verify());
    let optimizer = optimizer();
    let whole = |done: bool, params: &Model| assert!(done || *params == model(), "what was refused changed something");
    let mut params = model();
    let done = file.load(&optimizer, &mut params);
    whole(done.is_ok(), &params);
    if let Ok(mut state) = done {
        let gradient = model();
        let _ = optimizer.step(&mut params, &gradient, &mut state);
    }
    let mut params = model();
    whole(file.load_params(&mut params).is_ok(), &params);
    let _ = file.load_state(&optimizer, &model());
    let migration = Migration::new().fresh(Mask::path("bias")).rename("weight", "weight").drop(Mask::path("b*"));
    let load = Load::strict().may_differ("learning_rate").may_differ("$.adamw.b1").migrating(migration);
    let mut params = model();
    whole(load.load(file, &optimizer, &mut params).is_ok(), &params);
}

/// Loads a checkpoint with valid check sums, to reach later code.
///
/// The input is two JSON objects, the tensors' and the metadata's, with a line `---` between them.
pub fn header(bytes: &[u8]) {
    checkpoint(&checkpoint_of(bytes));
}

/// Returns the file that [`header`] loads.
pub fn checkpoint_of(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let (tensors, manifest) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let mut tensors: Map<String, Value> = serde_json::from_str(tensors).unwrap_or_default();
    let data: Vec<u8> = (0..data_len(&tensors)).map(|i| i as u8).collect();
    let manifest = match serde_json::from_str::<Map<String, Value>>(manifest) {
        Ok(mut manifest) => {
            let sums = tensors.iter().filter_map(|(name, info)| {
                let place = |i: usize| info["data_offsets"][i].as_u64().map(|place| place as usize);
                let tensor = data.get(place(0)?..place(1)?)?;
                Some((name.clone(), Value::from(format!("{:08x}", crc32fast::hash(tensor)))))
            });
            if manifest.get("crc32") == Some(&Value::Null) {
                manifest.insert("crc32".into(), Value::Object(sums.collect()));
            }
            Value::Object(manifest).to_string()
        }
        Err(_) => manifest.to_owned(),
    };
    // The crate writes this key first.
    let manifest = match manifest.strip_prefix('{') {
        Some(rest) => format!("{{\"check\":\"00000000\",{rest}"),
        None => manifest,
    };
    tensors.insert("__metadata__".into(), Value::Object(Map::from_iter([("gradchain".into(), manifest.into())])));
    let mut header = Value::Object(tensors).to_string();
    if let Some(at) = header.find(r#"{\"check\":\""#) {
        let sum = format!("{:08x}", crc32fast::hash(header.as_bytes()));
        header.replace_range(at + 13..at + 21, &sum);
    }
    file(&header, &data)
}

/// Imports a file of PyTorch's or Optax's.
///
/// The input is the file's header; a first byte `o` selects Optax. The data follows a zero byte, padded with zeros to
/// the announced length.
pub fn import(bytes: &[u8]) {
    let (origin, bytes) = match bytes.split_first() {
        Some((b'o', rest)) => (Origin::Optax, rest),
        Some((_, rest)) => (Origin::Torch, rest),
        None => return,
    };
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let header = String::from_utf8_lossy(&bytes[..end]);
    let mut data = bytes.get(end + 1..).unwrap_or_default().to_vec();
    data.resize(serde_json::from_str(&header).map_or(data.len(), |tensors| data_len(&tensors)), 0);
    let open = || Import::from_bytes(origin, file(&header, &data));
    let Ok(import) = open() else { return };
    let whole = |done: bool, params: &Model| assert!(done || *params == model(), "what was refused changed something");
    let mut params = model();
    let state = import.load(&optimizer(), &mut params);
    whole(state.is_ok(), &params);
    let _ = import.load_state(&sgd(0.1).momentum(0.9), &model());
    let migration = Migration::new().rename("w", "weight").fresh(Mask::path("bias"));
    let Ok(import) = open() else { return };
    let import = import.at_step(3).migrating(migration);
    let mut params = model();
    whole(import.load(&sgd(0.1), &mut params).is_ok(), &params);
    whole(import.load(&sgd(0.1).momentum(0.9), &mut params).is_ok(), &params);
}

/// Loads a state as a value, writes it and loads it again, bitwise.
///
/// The input is JSON, or postcard after a first byte `p`.
pub fn data(bytes: &[u8]) {
    let data: Option<StateData> = match bytes.split_first() {
        Some((b'p', rest)) => postcard::from_bytes(rest).ok(),
        _ => serde_json::from_slice(bytes).ok(),
    };
    let Some(data) = data else { return };
    let _ = (data.optimizer().len(), data.load(&sgd(0.1).momentum(0.9), &model()).is_ok());
    let Ok(mut state) = data.load(&optimizer(), &model()) else { return };
    let written = StateData::of(&optimizer(), &state).expect("a state that was loaded is written");
    let again = written.load(&optimizer(), &model()).expect("and loaded again");
    assert!(StateData::of(&optimizer(), &again).is_ok_and(|again| again == written), "its bits are the same");
    let (mut params, gradient) = (model(), model());
    let _ = optimizer().step(&mut params, &gradient, &mut state);
}

/// Returns the announced bytes of tensors, at most 4096.
fn data_len(tensors: &Map<String, Value>) -> usize {
    let ends = tensors.values().filter_map(|info| info["data_offsets"][1].as_u64());
    ends.max().unwrap_or(0).min(4096) as usize
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Builds an optimizer from a config in JSON or TOML, writes its config and builds it again.
#[cfg(feature = "config")]
pub fn config(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    for config in [Config::from_json(text), Config::from_toml(text)].into_iter().flatten() {
        let again = Config::from_json(&config.to_json()).expect("a config that was built is built again");
        assert!(again == config, "a config is the same after JSON");
        let again = Config::from_toml(&config.to_toml()).expect("a config that was built is built again");
        let _ = again.to_json();
        let _ = config.build().map(|built| Config::of(&built));
    }
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        let _ = config::is_per_example(&value);
        let _ = config::schedule(&value).map(|schedule| [0, 1, 7, u64::MAX].map(|count| schedule.at(count)));
    }
}

/// Matches paths and patterns.
///
/// The first line is a pattern, the second and third are names; all lines are leaves.
pub fn paths(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let mut lines = text.lines();
    let [pattern, from, to] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let mut tree = DynTree::new();
    for (i, path) in text.lines().take(16).enumerate() {
        tree.insert(path, Array1::from_elem(i % 3, 1.0_f32));
    }
    let Ok(structure) = Structure::of(&tree) else { return };
    assert_eq!(structure.len(), tree.len());
    let masks = [
        Mask::path(pattern),
        Mask::paths([pattern, from]),
        Mask::tree([(from, true), (to, false)]),
        Mask::path(pattern).and(Mask::path(from)).or(Mask::min_ndim(2)),
    ];
    for mask in masks {
        if let Ok(taken) = mask.resolve(&structure, "fuzz") {
            assert_eq!(taken.len(), structure.len());
            let optimizer = masked(sgd(0.1).momentum(0.9), mask);
            assert!(optimizer.init(&tree).is_ok(), "a mask that was resolved is resolved again");
        }
    }
    let labels = [Labels::paths([(pattern, "a"), (from, "b")]).otherwise("b"), Labels::tree([(from, "a"), (to, "b")])];
    for labels in labels {
        let _ = labels.resolve(&structure, &["a", "b"], "fuzz");
    }
    let optimizer = sgd(0.1).momentum(0.9);
    let Ok(state) = optimizer.init(&tree) else { return };
    let migration = Migration::new().rename(from, to).fresh(Mask::path(to)).drop(Mask::path(pattern));
    let _ = state.migrate(&optimizer, &tree, &migration);
    let _ = state.migrate(&optimizer, &tree, &Migration::new().rename(from, to));
}
