//! Every file of the fuzzing corpus gives a result, and no panic.
//!
//! Needs neither a nightly compiler nor cargo-fuzz; see fuzz/README.md.
#![allow(unreachable_pub, reason = "the library of another program")]

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use targets::{TARGETS, model, optimizer};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn every_file_of_the_corpus_gives_a_result() {
    let mut files = 0;
    for &(name, target) in TARGETS {
        let before = files;
        for entry in fs::read_dir(folder(name)).unwrap() {
            let path = entry.unwrap().path();
            // In case the target panics.
            println!("{}", path.display());
            target(&fs::read(&path).unwrap());
            files += 1;
        }
        assert!(files > before, "{name} has a corpus");
    }
    assert!(files <= 200, "{files} files; see fuzz/README.md for how to keep fewer");
}

#[test]
fn inputs_of_no_bytes_and_of_all_bytes_give_a_result() {
    for (_, target) in TARGETS {
        target(&[]);
        target(&(0..=255).collect::<Vec<u8>>());
        target("/\n\n/\n./..\n**\n".as_bytes());
    }
}

/// Otherwise `header` and `data` would only fuzz the first refusal.
#[test]
fn the_seeds_of_whole_states_load() {
    use gradchain::checkpoint::{Checkpoint, Save};
    use gradchain::prelude::*;

    let bytes = fs::read(folder("checkpoint").join("seed-whole")).unwrap();
    let file = Checkpoint::from_bytes(bytes).unwrap();
    file.load(&optimizer(), &mut model()).unwrap();

    let seed = fs::read(folder("header").join("seed-whole")).unwrap();
    let file = Checkpoint::from_bytes(targets::checkpoint_of(&seed)).unwrap();
    file.load(&optimizer(), &mut model()).unwrap();

    let bytes = fs::read(folder("data").join("seed-json")).unwrap();
    let data: gradchain::state::StateData = serde_json::from_slice(&bytes).unwrap();
    data.load(&optimizer(), &model()).unwrap();
    let bytes = fs::read(folder("data").join("seed-postcard")).unwrap();
    assert_eq!(postcard::from_bytes::<gradchain::state::StateData>(&bytes[1..]).unwrap(), data);

    let state = optimizer().init(&model()).unwrap();
    let mut now = std::io::Cursor::new(Vec::new());
    Save::new(&optimizer(), &state).params(&model()).note("epoch", 3).to_writer(&mut now).unwrap();
    assert!(Checkpoint::from_bytes(now.into_inner()).is_ok());
}

/// Returns every name of a config, and some arguments.
fn dictionary() -> String {
    let mut words = gradchain::config::transformations().to_vec();
    words.extend([
        "learning_rate",
        "schedule",
        "inner",
        "mask",
        "path",
        "min_ndim",
        "labels",
        "every_k",
        "key",
        "null",
    ]);
    words.sort_unstable();
    words.dedup();
    words.iter().map(|word| format!("\"{word}\"\n")).collect()
}

/// To the file `FUZZ_DICTIONARY`, for `ci/fuzz`.
#[test]
#[ignore = "it writes a file"]
fn write_the_dictionary() {
    let path = std::env::var_os("FUZZ_DICTIONARY").expect("`FUZZ_DICTIONARY` names a file");
    fs::write(path, dictionary()).unwrap();
}

/// `cargo test --all-features --test files -- --ignored write_the_seeds` runs it.
#[test]
#[ignore = "it writes files"]
fn write_the_seeds() {
    use gradchain::checkpoint::Save;
    use gradchain::prelude::*;

    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder(target)).unwrap();
        fs::write(folder(target).join(format!("seed-{name}")), bytes).unwrap();
    };
    let (mut params, gradient) = (model(), model());
    let mut state = optimizer().init(&params).unwrap();
    optimizer().step(&mut params, &gradient, &mut state).unwrap();
    let mut to = std::io::Cursor::new(Vec::new());
    Save::new(&optimizer(), &state).params(&params).note("epoch", 3).to_writer(&mut to).unwrap();
    let bytes = to.into_inner();
    write("checkpoint", "whole", &bytes);
    write("checkpoint", "half", &bytes[..bytes.len() / 2]);

    let data = gradchain::state::StateData::of(&optimizer(), &state).unwrap();
    write("data", "json", serde_json::to_string(&data).unwrap().as_bytes());
    write("data", "postcard", &[&b"p"[..], &postcard::to_allocvec(&data).unwrap()].concat());

    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut tensors: serde_json::Map<_, _> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let manifest = tensors.remove("__metadata__").unwrap()["gradchain"].take();
    let mut manifest: serde_json::Map<_, _> = serde_json::from_str(manifest.as_str().unwrap()).unwrap();
    manifest.remove("check");
    manifest.insert("crc32".into(), serde_json::Value::Null);
    let text = format!("{}\n---\n{}", serde_json::json!(tensors), serde_json::json!(manifest));
    write("header", "whole", text.as_bytes());

    for (name, origin) in [("torch_adamw", 't'), ("torch_momentum", 't'), ("optax_adamw", 'o'), ("optax_momentum", 'o')]
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/import/{name}.safetensors"));
        let bytes = fs::read(path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
        let header = header.replace("fc.", "").replace("fc/", "");
        let mut seed = format!("{origin}{header}\0").into_bytes();
        seed.extend(&bytes[8 + length..]);
        write("import", name, &seed);
    }

    for (i, text) in [
        r#"{"chain": [{"clip_by_global_norm": {"max_norm": 1.0}}, {"adamw": {"learning_rate": {"schedule":
            {"warmup_cosine_decay": {"init_value": 0.0, "peak_value": 3e-4, "warmup_steps": 100, "decay_steps": 1000}}},
            "weight_decay": 0.1, "mask": {"min_ndim": 2}}}]}"#,
        r#"{"multi_steps": {"inner": {"sgd": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": true}}, "every_k": 3}}"#,
        r#"{"partition": {"transforms": {"a": {"lion": {"learning_rate": 0.1}}, "b": {"set_to_zero": {}}},
            "labels": {"by_path": {"w": "a", "b": "b"}}}}"#,
        r#"{"masked": {"inner": {"adam": {"learning_rate": 1e-3, "mu_dtype": "bf16"}}, "mask": {"path": "**/w"}}}"#,
        r#"{"inject_hyperparams": {"inner": {"lbfgs": {"memory_size": 5}}}}"#,
        "[[chain]]\nclip_by_global_norm = { max_norm = 1.0 }\n[[chain]]\nadamw = { learning_rate = 0.1, mask = \"none\" }\n",
        r#"{"join": {"schedules": [{"linear": {"init_value": 0.0, "end_value": 1.0, "transition_steps": 10}},
            {"constant": {"value": 1.0}}], "boundaries": [10]}}"#,
        r#"{"chain": [{"dpsgd": {"learning_rate": 0.1, "l2_norm_clip": 1.0, "noise_multiplier": 0.0, "key": 42}}]}"#,
    ]
    .iter()
    .enumerate()
    {
        write("config", &i.to_string(), text.as_bytes());
    }
    for (i, text) in [
        "**/w\nlayers\nbackbone\nlayers/0/w\nlayers/1/w\nhead/b\n",
        "{a,b}*[!c-d]?\na\n\na\nb/\n/c\n",
        "\\*\n\n*\n\n",
        "!a\na/b\na\na/b/c\n",
    ]
    .iter()
    .enumerate()
    {
        write("paths", &i.to_string(), text.as_bytes());
    }
}
