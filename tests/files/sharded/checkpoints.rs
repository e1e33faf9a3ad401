//! Checkpoints that ranks write together: gone on from on any number of them, whole or not there at all, and checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use gradchain::checkpoint::{Checkpoint, Save, latest_valid, merge};
use gradchain::collective::{Collective, threads};
use gradchain::prelude::*;
use gradchain::state::same_bits;
use ndarray::{Array2, ShapeBuilder};

use super::{LONG, Model, together};

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    chain((clip_by_global_norm(20.0), zero_nans(), params_ema(adamw(0.02), 0.9)))
}

/// Trains to a step, from the checkpoint that is there, and saves.
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

/// The same on one machine.
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

/// A file of the shards of a checkpoint.
fn shard(path: &Path, rank: usize) -> PathBuf {
    let called = format!(".{rank}-of-");
    let files = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut files =
        files.filter(|file| file.to_str().is_some_and(|name| name.ends_with(".shard") && name.contains(&called)));
    files.next().expect("the rank has written a file")
}

#[test]
fn a_run_goes_on_on_any_number_of_ranks_and_on_one_machine() {
    let (whole, plain_optimizer, _) = plain(6);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-000000000002.safetensors");
    for (before, after) in [(1, 4), (2, 1), (4, 2), (8, 4), (2, 8)] {
        train(before, &path, 0, 2);
        assert_eq!(Checkpoint::open(&path).unwrap().note("step"), Some("2"));
        // Without the ranks.
        let mut params = Model::of(99);
        let (_, file) = latest_valid(folder.path()).unwrap().found.unwrap();
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
fn merged_shards_are_the_file_of_one_machine_and_are_gone_on_from_on_several() {
    let folder = tempfile::tempdir().unwrap();
    let [list, merged, single] = ["list", "merged", "single"].map(|name| folder.path().join(name));
    train(4, &list, 0, 2);
    merge(&list, &merged).unwrap();
    let (_, _, bytes) = plain(2);
    // Notes and numbers are the same, so all bytes are.
    assert!(fs::read(&merged).unwrap() == bytes);
    fs::write(&single, bytes).unwrap();
    let (whole, ..) = plain(4);
    for bits in train(2, &single, 2, 4) {
        assert_eq!(bits, whole.bits());
    }
    let error = merge(&merged, &single).unwrap_err();
    assert!(error.to_string().ends_with("it is no list of shards"), "{error}");
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
fn a_shard_that_is_damaged_missing_foreign_or_alone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    train(2, &path, 0, 1);
    let file = shard(&path, 1);
    let (list, bytes) = (fs::read(&path).unwrap(), fs::read(&file).unwrap());
    let refused = || Checkpoint::open(&path).unwrap_err().to_string();

    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&file, &damaged).unwrap();
    assert!(refused().contains("has check sum"), "{}", refused());
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refused().contains("bytes of tensors are announced"), "{}", refused());
    fs::remove_file(&file).unwrap();
    assert!(refused().contains(file.file_name().unwrap().to_str().unwrap()), "{}", refused());
    fs::write(&file, fs::read(shard(&path, 0)).unwrap()).unwrap();
    assert!(refused().contains("it is not the file that"), "{}", refused());
    fs::write(&file, &bytes).unwrap();
    Checkpoint::open(&path).unwrap();

    fs::write(&path, &list[..list.len() / 2]).unwrap();
    assert!(refused().contains("damaged"), "{}", refused());
    let alone = Checkpoint::open(&file).unwrap_err().to_string();
    assert!(alone.ends_with("it is what rank 1 of 2 has written: open the list of all of them"), "{alone}");
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
        assert!(error.ends_with("the state is one rank's share: `to_shards` writes down that of all"), "{error}");
        assert!(data.contains("share"), "{data}");
    }
}

/// A rank that is lost after so many calls.
#[derive(Debug)]
struct Gone<'a>(&'a dyn Collective, AtomicUsize);

impl Gone<'_> {
    fn called(&self) -> gradchain::Result<()> {
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(gradchain::Error::collective(self.rank(), "lost")),
            _ => Ok(()),
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
    fn all_to_all(&self, send: &mut Vec<u8>, to: &[usize], got: &mut Vec<u8>, from: &[usize]) -> gradchain::Result<()> {
        self.called()?;
        self.0.all_to_all(send, to, got, from)
    }
    fn all_gather(&self, send: &mut Vec<u8>, got: &mut Vec<u8>, from: &[usize]) -> gradchain::Result<()> {
        self.called()?;
        self.0.all_gather(send, got, from)
    }
}

#[test]
fn whenever_a_rank_is_lost_the_old_checkpoint_or_the_new_one_is_there() {
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
                            // Only the writing is cut short.
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
