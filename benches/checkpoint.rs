//! Times saving and loading AdamW's state of 124 million parameters, against plain writes and reads.
//!
//! `cargo bench --bench checkpoint --features checkpoint [-- FOLDER]` prints a line for each way. The folder is
//! temporary by default: pass `/dev/shm` to measure against memory. All ways take turns. Ratios are of medians for
//! writes, and medians of ratios for reads.
#![allow(missing_docs, unreachable_pub, reason = "a program")]
#![allow(unsafe_code, reason = "mapping a file is a promise that nobody writes to it")]

#[allow(dead_code, reason = "shared with the other benchmark")]
#[path = "roofline/trees.rs"]
mod trees;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::prelude::*;

use trees::{Shapes, flat};

const ROUNDS: usize = 8;
const BLOCK: usize = 1 << 20;

fn main() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let given = std::env::args().skip(1).find(|a| !a.starts_with("--")).map(PathBuf::from);
    let folder = match &given {
        Some(folder) => tempfile::tempdir_in(folder).expect("a folder to write to"),
        None => temporary,
    };
    let shapes = Shapes::all().into_iter().find(|shapes| shapes.name == "gpt2").expect("the model");
    let mut params = flat::<f32>(&shapes, |i| (i % 1000) as f64 * 1e-3);
    let grads = flat::<f32>(&shapes, |i| (i % 777) as f64 * 1e-3 - 0.3);
    let optimizer = adamw(1e-3);
    let mut state = optimizer.init(&params).expect("a state");
    optimizer.step(&mut params, &grads, &mut state).expect("a step");
    drop(grads);

    let (ours, plain) = (folder.path().join("ours.safetensors"), folder.path().join("plain"));
    Save::new(&optimizer, &state).params(&params).to_file(&ours).expect("it is saved");
    let bytes = std::fs::metadata(&ours).expect("the file").len();
    let mut buffer = vec![1_u8; bytes as usize];
    let mut times: [Vec<f64>; 7] = Default::default();
    // The first round touches the pages.
    for round in 0..=ROUNDS {
        let mut took = [0.0; 7];
        // The first writer pays for the allocation of space.
        for turn in [round % 2, 1 - round % 2] {
            took[turn] = match turn {
                0 => timed(|| write(&plain, &buffer)),
                _ => timed(|| Save::new(&optimizer, &state).params(&params).to_file(&ours).expect("it is saved")),
            };
        }
        took[2] = timed(|| read(&plain, &mut buffer));
        took[3] = timed(|| {
            Checkpoint::open(&ours).and_then(|file| file.load(&optimizer, &mut params)).expect("it is loaded");
        });
        took[4] = timed(|| {
            // SAFETY: nothing writes to the file while it is mapped.
            unsafe { Checkpoint::map(&ours) }
                .and_then(|file| file.load(&optimizer, &mut params))
                .expect("it is loaded");
        });
        took[5] = timed(|| Checkpoint::open(&ours).and_then(|file| file.verify()).expect("it is whole"));
        took[6] = timed(|| Checkpoint::open(&ours).and_then(|f| f.load_params(&mut params)).expect("it is loaded"));
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let names = [
        "plain write, fsync and rename",
        "Save::to_file",
        "plain read",
        "open and load",
        "map and load",
        "verify",
        "load_params",
    ];
    let limits = [0, 0, 2, 2, 2, 2, 2];
    for (i, name) in names.into_iter().enumerate() {
        let ratios = times[i].iter().zip(&times[limits[i]]).map(|(a, b)| a / b).collect();
        println!(
            "checkpoint {name}: {:.2} GB in {:.3} s, {:.2} GB/s, ratio to {} {:.2}",
            bytes as f64 / 1e9,
            median(times[i].clone()),
            bytes as f64 / 1e9 / median(times[i].clone()),
            names[limits[i]],
            if i < 2 { median(times[i].clone()) / median(times[0].clone()) } else { median(ratios) },
        );
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Writes a new file, which replaces the old one once it is on disk, as a checkpoint does.
fn write(path: &Path, bytes: &[u8]) {
    let begun = path.with_extension("begun");
    let mut file = File::create(&begun).expect("a file");
    bytes.chunks(BLOCK).for_each(|block| file.write_all(block).expect("it is written"));
    file.sync_all().expect("it is on the disk");
    std::fs::rename(&begun, path).expect("it is renamed");
}

fn read(path: &Path, into: &mut [u8]) {
    let mut file = File::open(path).expect("the file");
    into.chunks_mut(BLOCK).for_each(|block| file.read_exact(block).expect("it is read"));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
