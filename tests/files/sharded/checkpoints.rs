//! Checkpoints of several ranks: resumed on any number, atomic, verified.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use gradchain::checkpoint::{Checkpoint, Rotation, Save, latest_valid, merge};
use gradchain::collective::{Collective, Pending, threads};
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::wrapper::sharded;
use ndarray::{Array2, ShapeBuilder};

use super::{LARGE, LONG, Model, together};
use crate::chunk::CHUNK;

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    chain((clip_by_global_norm(20.0), zero_nans(), params_ema(adamw(0.02), 0.9)))
}

/// Resumes, trains and saves.
fn train(ranks: usize, path: &Path, from: u64, to: u64) -> Vec<Vec<u64>> {
    together(ranks, |rank| {
        let (optimizer, mut params) = (sharded(optimizer(), rank), Model::of(0));
        let mut state = match from {
            0 => optimizer.init(&params).unwrap(),
            _ => {
                params = Model::of(99);
                Checkpoint::open(path).unwrap().load(&optimizer, &mut params).unwrap()
            }
        };
        for step in from..to {
            optimizer.step(&mut params, &Model::of(step + 1), &mut state).unwrap();
        }
        let save = Save::new(&optimizer, &state).params(&params).note("step", to);
        save.to_shards(path, &**optimizer.collective()).unwrap();
        params.bits()
    })
}

fn plain(to: u64) -> (Model, impl GradientTransformation<Needs = Nothing>, Vec<u8>) {
    let (optimizer, mut params) = (optimizer(), Model::of(0));
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..to {
        optimizer.step(&mut params, &Model::of(step + 1), &mut state).unwrap();
    }
    let mut file = std::io::Cursor::new(Vec::new());
    Save::new(&optimizer, &state).params(&params).note("step", to).to_writer(&mut file).unwrap();
    (params, optimizer, file.into_inner())
}

fn shard(path: &Path, rank: usize) -> PathBuf {
    let called = format!(".{rank}-of-");
    let files = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut files =
        files.filter(|file| file.to_str().is_some_and(|name| name.ends_with(".shard") && name.contains(&called)));
    files.next().expect("the rank has written a file")
}

#[test]
fn a_run_resumes_on_any_number_of_ranks_and_in_one_process() {
    let (whole, plain_optimizer, _) = plain(6);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-000000000002.safetensors");
    for (before, after) in [(1, 4), (2, 1), (4, 2), (8, 4), (2, 8)] {
        train(before, &path, 0, 2);
        assert_eq!(Checkpoint::open(&path).unwrap().note("step"), Some("2"));
        // Without the ranks.
        let mut params = Model::of(99);
        let (_, file) = latest_valid(folder.path()).unwrap().checkpoint.unwrap();
        let mut state = file.load(&plain_optimizer, &mut params).unwrap();
        for step in 2..6 {
            plain_optimizer.step(&mut params, &Model::of(step + 1), &mut state).unwrap();
        }
        assert_eq!(params.bits(), whole.bits(), "{before} ranks, then one machine");
        let all = train(after, &path, 2, 6);
        assert!(all.iter().all(|bits| *bits == whole.bits()), "{before} ranks, then {after}");
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, after + 1, "the files of the last checkpoint, and their list");
    }
}

#[test]
fn merged_shards_are_the_file_of_one_process_and_resume_on_several_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let [list, merged, single] = ["list", "merged", "single"].map(|name| folder.path().join(name));
    train(4, &list, 0, 2);
    merge(&list, &merged).unwrap();
    let (_, _, bytes) = plain(2);
    // Notes and numbers are equal, so all bytes are.
    assert!(fs::read(&merged).unwrap() == bytes);
    fs::write(&single, bytes).unwrap();
    let (whole, ..) = plain(4);
    for bits in train(2, &single, 2, 4) {
        assert_eq!(bits, whole.bits());
    }
    let error = merge(&merged, &single).unwrap_err();
    assert!(error.to_string().ends_with("it is not a list of shards"), "{error}");
}

#[test]
fn leaves_by_columns_and_whole_ones_come_back() {
    let tree = || {
        let columns = Array2::from_shape_fn((130, 300).f(), |(i, j)| (i * 300 + j) as f32 / 1e3);
        (columns, Array2::from_shape_fn((6, 8), |(i, j)| (i + j) as f32), vec![1.0_f64; 4])
    };
    let gradient = || (tree().0.mapv(f32::cos), tree().1.mapv(f32::sin), vec![0.5_f64; 4]);
    let labels = || Labels::paths([("1", "muon")]).otherwise("adam");
    let optimizer = || partition((("muon", muon(0.1)), ("adam", adam(0.1))), labels());
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("list");
    let (mut whole, plain) = (tree(), optimizer());
    let mut state = plain.init(&whole).unwrap();
    plain.step(&mut whole, &gradient(), &mut state).unwrap();
    together(4, |rank| {
        let (optimizer, mut params) = (sharded(optimizer(), rank), tree());
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &gradient(), &mut state).unwrap();
        Save::new(&optimizer, &state).params(&params).to_shards(path, &**optimizer.collective()).unwrap();
    });
    let mut params = tree();
    let loaded = Checkpoint::open(path).unwrap().load(&plain, &mut params).unwrap();
    assert_eq!(params, whole);
    assert!(same_bits(&*loaded, &*state));
    plain.step(&mut whole, &gradient(), &mut state).unwrap();
    let all = together(2, |rank| {
        let (optimizer, mut params) = (sharded(optimizer(), rank), tree());
        let mut state = Checkpoint::open(path).unwrap().load(&optimizer, &mut params).unwrap();
        optimizer.step(&mut params, &gradient(), &mut state).unwrap();
        params
    });
    assert!(all.iter().all(|params| *params == whole));
}

#[test]
fn damaged_missing_foreign_or_single_shards_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    train(2, &path, 0, 1);
    let file = shard(&path, 1);
    let (list, bytes) = (fs::read(&path).unwrap(), fs::read(&file).unwrap());
    let refused = || {
        let found = Checkpoint::open(&path).and_then(|file| file.verify());
        found.unwrap_err().to_string()
    };

    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&file, &damaged).unwrap();
    assert!(refused().contains("has checksum"), "{}", refused());
    assert!(refused().contains(file.file_name().unwrap().to_str().unwrap()), "{}", refused());
    // Tensors are read lazily.
    let (mut params, opened) = (Model::of(99), Checkpoint::open(&path).unwrap());
    assert!(opened.load(&optimizer(), &mut params).unwrap_err().to_string().contains("has checksum"));
    assert!(latest_valid(folder.path()).unwrap().checkpoint.is_none());
    assert_eq!(params, Model::of(99));
    assert!(merge(&path, folder.path().join("merged")).is_err() && !folder.path().join("merged").exists());
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refused().contains("truncated: it has"), "{}", refused());
    fs::remove_file(&file).unwrap();
    assert!(refused().contains(file.file_name().unwrap().to_str().unwrap()), "{}", refused());
    fs::write(&file, fs::read(shard(&path, 0)).unwrap()).unwrap();
    assert!(refused().contains("it is not the shard that"), "{}", refused());
    fs::write(&file, &bytes).unwrap();
    Checkpoint::open(&path).unwrap();

    fs::write(&path, &list[..list.len() / 2]).unwrap();
    assert!(refused().contains("damaged"), "{}", refused());
    let alone = Checkpoint::open(&file).unwrap_err().to_string();
    assert!(alone.ends_with("it is the shard of rank 1 of 2: open the list of all shards"), "{alone}");
}

/// Returns a shard with another number in its header.
fn forged(bytes: &[u8], from: &str, to: &str) -> (Vec<u8>, String) {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + len]).unwrap();
    assert!(from.len() == to.len() && header.contains(from), "{from} is not in {header}");
    let header = header.replacen(from, to, 1);
    let mark = r#"{\"check\":\""#;
    let at = header.find(mark).unwrap() + mark.len();
    let zeros = [&header[..at], "00000000", &header[at + 8..]].concat();
    let check = format!("{:08x}", crc32fast::hash(zeros.as_bytes()));
    let header = [&header[..at], &check, &header[at + 8..]].concat();
    ([&bytes[..8], header.as_bytes(), &bytes[8 + len..]].concat(), check)
}

#[test]
fn a_stretch_that_would_lie_outside_of_its_array_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    train(4, &path, 0, 1);
    let files = [0, 1, 2, 3].map(|rank| shard(&path, rank));
    let (list, bytes) = (fs::read_to_string(&path).unwrap(), files.each_ref().map(|file| fs::read(file).unwrap()));
    // A slice's beginning, shape and strides.
    let stretch = |rank: usize| {
        let header = String::from_utf8_lossy(&bytes[rank]);
        let parts = &header[header.find(r#"\"parts\""#).unwrap()..];
        let stretch = &parts[parts.find("large").unwrap()..];
        stretch[..stretch.find('}').unwrap()].to_owned()
    };
    let [chunk, large] = [CHUNK, LARGE].map(|n| n.to_string());
    for (rank, from, to) in [
        // Neighbours far apart, or all elements in one place.
        (0, "[1]", "[9]".into()),
        (0, "[1]", "[0]".into()),
        // Slices that overlap, have a gap, or belong to another array.
        (1, &*chunk, (CHUNK - 1).to_string()),
        (1, &chunk, (CHUNK + 1).to_string()),
        (0, &large, "99000".into()),
    ] {
        let (stretch, mut listed) = (stretch(rank), list.clone());
        for (other, file) in files.iter().enumerate() {
            let (as_it_was, check) = forged(&bytes[other], "", "");
            fs::write(file, as_it_was).unwrap();
            if other == rank {
                let (text, another) = forged(&bytes[rank], &stretch, &stretch.replace(from, &to));
                listed = listed.replace(&check, &another);
                assert_ne!(listed, list);
                fs::write(file, text).unwrap();
            }
        }
        fs::write(&path, &listed).unwrap();
        let error = Checkpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("large"), "{from} {to}: {error}");
    }
}

#[test]
fn a_folder_of_checkpoints_keeps_the_last_with_their_files_and_leaves_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let foreign =
        ["step-000000000001.safetensors.backup.shard", "step-1.safetensors.0123456789abcdef.0-of-2.shard", "a"];
    foreign.iter().for_each(|name| fs::write(folder.path().join(name), "mine").unwrap());
    // A shard that was never listed.
    fs::write(folder.path().join("step-000000000009.safetensors.0123456789abcdef.1-of-2.shard"), "lost").unwrap();
    let kept = |ranks: usize, steps: std::ops::Range<u64>, last, best| {
        together(ranks, |rank| {
            let rotation = Rotation::new(folder.path()).unwrap().keep_last(last).keep_best(best);
            let (optimizer, mut params) = (sharded(optimizer(), rank), Model::of(0));
            let mut state = optimizer.init(&params).unwrap();
            for step in steps.clone() {
                optimizer.step(&mut params, &Model::of(step + 1), &mut state).unwrap();
                let save = Save::new(&optimizer, &state).params(&params);
                let score = (step as f64 - 2.0).abs();
                rotation.save_shards(step, Some(score), save, &**optimizer.collective()).unwrap();
            }
        });
        let steps = Rotation::new(folder.path()).unwrap().steps().unwrap();
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert!(foreign.iter().all(|name| folder.path().join(name).exists()));
        (steps, files - foreign.len())
    };
    assert_eq!(kept(3, 1..6, 2, 0), (vec![4, 5], 2 * (1 + 3)));
    // On other ranks, with the best.
    assert_eq!(kept(2, 1..6, 1, 1), (vec![2, 5], 2 * (1 + 2)));
    let (step, file) = latest_valid(folder.path()).unwrap().checkpoint.unwrap();
    file.load(&optimizer(), &mut Model::of(99)).unwrap();
    assert_eq!(step, 5);
}

#[test]
fn a_share_is_not_saved_as_if_it_were_all() {
    let errors = together(2, |rank| {
        let (optimizer, params) = (sharded(adamw(0.1), rank), Model::of(0));
        let state = optimizer.init(&params).unwrap();
        let mut file = std::io::Cursor::new(Vec::new());
        let error = Save::new(&optimizer, &state).params(&params).to_writer(&mut file).unwrap_err();
        assert!(file.into_inner().is_empty());
        let data = gradchain::state::StateData::of(&optimizer, &state).unwrap_err();
        (error.to_string(), data.to_string())
    });
    for (error, data) in errors {
        assert!(error.ends_with("the state is one rank's shard: `to_shards` writes those of all ranks"), "{error}");
        assert!(data.contains("this rank's shard only"), "{data}");
    }
}

/// Lost after some calls.
#[derive(Debug)]
struct Gone<'a>(&'a dyn Collective, AtomicUsize);

impl<'a> Gone<'a> {
    fn called(&self, begin: impl FnOnce(&'a dyn Collective) -> Pending<'a>) -> Pending<'a> {
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            0 => {
                let rank = self.0.rank();
                Pending::new(move || Err(gradchain::Error::collective(rank, "lost")))
            }
            _ => begin(self.0),
        }
    }
}

impl Collective for Gone<'_> {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn begin_all_to_all(&self, send: Vec<u8>, to: &[usize], got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.called(|ranks| ranks.begin_all_to_all(send, to, got, from))
    }
    fn begin_all_gather(&self, send: Vec<u8>, got: Vec<u8>, from: &[usize]) -> Pending<'_> {
        self.called(|ranks| ranks.begin_all_gather(send, got, from))
    }
}

#[test]
fn a_lost_rank_leaves_the_old_or_the_new_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("list");
    train(2, path, 0, 1);
    let (mut old, mut new) = (0, 0);
    for lost in 0..2 {
        for calls in 0..9 {
            let all: Vec<gradchain::Result<()>> = std::thread::scope(|scope| {
                let ranks = threads(2, LONG).into_iter();
                let running: Vec<_> = ranks
                    .map(|ranks| {
                        let calls = if ranks.rank() == lost { calls } else { usize::MAX };
                        scope.spawn(move || {
                            let (optimizer, params) = (sharded(sgd(0.1), ranks), Model::of(0));
                            let state = optimizer.init(&params)?;
                            // Only the write is interrupted.
                            let ranks = Gone(&**optimizer.collective(), calls.into());
                            Save::new(&optimizer, &state).params(&params).note("step", "new").to_shards(path, &ranks)
                        })
                    })
                    .collect();
                running.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            match Checkpoint::open(path).unwrap().note("step") {
                Some("new") => new += 1,
                _ => old += 1,
            }
            if all.iter().all(Result::is_ok) {
                assert_eq!(Checkpoint::open(path).unwrap().note("step"), Some("new"));
            }
            train(2, path, 0, 1);
        }
    }
    assert!(old > 4 && new > 4, "{old} {new}");
}
