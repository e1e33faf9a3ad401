//! With more checkpoints or shards than a process may open, the newest is found and rotation counts correctly.
//!
//! A file that cannot be opened now is an error.

use gradchain::wrapper::sharded;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use gradchain::checkpoint::{Checkpoint, Rotation, Save, latest_valid};
use gradchain::collective::threads;

use super::process::{folder, heard, say, through};
use super::*;

const LIMIT: usize = 64;
const FILES: u64 = 100;
const RANKS: usize = 80;

fn small() -> (impl GradientTransformation<Needs = Nothing, State: Clone> + Clone, Vec<Array1<f32>>) {
    (adam(0.1), vec![Array1::from_elem(3, 1.0), Array1::from_elem(5, -2.0)])
}

fn save(rotation: &Rotation, step: u64) -> gradchain::Result<()> {
    let (optimizer, mut params) = small();
    params[0][0] = step as f32;
    let state = optimizer.init(&params)?;
    rotation.save(step, None, Save::new(&optimizer, &state).params(&params)).map(drop)
}

fn save_shards(folder: &Path, ranks: usize, steps: impl Iterator<Item = u64> + Clone + Send) {
    thread::scope(|scope| {
        for rank in threads(ranks, Duration::MAX) {
            let steps = steps.clone();
            scope.spawn(move || {
                let rotation = Rotation::new(folder).unwrap().keep_last(30);
                let (optimizer, mut params) = small();
                let optimizer = sharded(optimizer, rank);
                let state = optimizer.init(&params).unwrap();
                for step in steps {
                    params[0][0] = step as f32;
                    let save = Save::new(&optimizer, &state).params(&params);
                    rotation.save_shards(step, None, save, &**optimizer.collective()).unwrap();
                }
            });
        }
    });
}

/// Returns the step found, its parameters' step, and the number of skipped files.
fn latest(folder: &Path) -> String {
    match latest_valid(folder) {
        Ok(latest) => {
            let (step, file) = latest.checkpoint.expect("a checkpoint");
            let (optimizer, mut params) = small();
            file.load(&optimizer, &mut params).unwrap();
            format!("{step} {} {}", params[0][0], latest.skipped.len())
        }
        Err(error) => format!("error {} {error}", error.is_file()),
    }
}

#[test]
#[ignore = "it is the process that may open few files"]
fn child() {
    let Some(folder) = folder() else { return };
    let (single, ranks) = (&folder.join("single"), &folder.join("ranks"));
    let rotation = Rotation::new(single).unwrap();
    (1..=FILES).for_each(|step| save(&rotation, step).unwrap());
    say(latest(single));
    // Another process continues, and keeps fewer.
    let rotation = Rotation::new(single).unwrap().keep_last(3);
    save(&rotation, FILES + 1).unwrap();
    say(format_args!("{:?}", rotation.steps().unwrap()));
    save(&rotation, 50).unwrap();
    say(format_args!("{:?} {}", rotation.steps().unwrap(), latest(single)));

    save_shards(ranks, 3, 1..=40);
    say(format_args!("{:?} {}", Rotation::new(ranks).unwrap().steps().unwrap(), latest(ranks)));
    say(latest(&folder.join("wide")));

    // Without free descriptors valid files cannot be read, so no older one must be chosen.
    let rotation = Rotation::new(single).unwrap().keep_last(3);
    let held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let refused = [latest(single), latest(ranks), format!("{:?}", save(&rotation, 51))];
    drop(held);
    refused.iter().for_each(say);
    say(latest(single));
    save(&rotation, 51).unwrap();
    say(format_args!("{:?}", rotation.steps().unwrap()));
}

#[test]
fn the_newest_is_found_beyond_the_open_file_limit() {
    let folder = tempfile::tempdir().unwrap();
    save_shards(&folder.path().join("wide"), RANKS, 7..=7);
    let exe = std::env::current_exe().unwrap();
    let script = format!("ulimit -n {LIMIT}; exec \"$0\" \"$@\"");
    let first = [OsStr::new("-c"), OsStr::new(&script), exe.as_os_str()];
    let (said, status) = heard(&mut through(OsStr::new("sh"), &first, "open_files::child", folder.path()));
    assert!(status.success(), "{status}: {said:?}");
    let kept: Vec<u64> = (11..=40).collect();
    let expected = ["100 100 0", "[99, 100, 101]", "[50, 100, 101] 50 50 0", &format!("{kept:?} 40 40 0"), "7 7 0"];
    assert_eq!(said[..5], expected, "{said:?}");
    for refused in &said[5..8] {
        assert!(refused.contains("open files"), "{said:?}");
    }
    assert_eq!(said[8..], ["50 50 0", "[50, 51, 101]"], "{said:?}");
}

/// A loop of links cannot be opened, so its content is unknown.
#[test]
fn io_errors_are_not_taken_for_damage() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap();
    save(&rotation, 1).unwrap();
    let link = folder.path().join("step-000000000002.safetensors");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let error = latest_valid(folder.path()).unwrap_err();
    assert!(error.is_file() && error.to_string().contains("step-000000000002"), "{error}");
    assert!(save(&rotation, 3).unwrap_err().is_file());
    fs::remove_file(&link).unwrap();
    // A dangling link and a folder are damaged.
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    fs::create_dir(folder.path().join("step-000000000003.safetensors")).unwrap();
    let latest = latest_valid(folder.path()).unwrap();
    let steps: Vec<_> = latest.skipped.iter().map(|skipped| skipped.reason.to_string()).collect();
    assert_eq!((latest.checkpoint.map(|(step, _)| step), steps.len()), (Some(1), 2), "{steps:?}");
}

/// A missing shard is damage.
#[test]
fn a_checkpoint_without_one_of_its_files_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    save_shards(folder.path(), 2, 1..=2);
    let is_last =
        |path: &Path| path.to_str().is_some_and(|path| path.contains("02.safetensors.") && path.contains(".1-of-2"));
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    fs::remove_file(files.filter(|path| is_last(path)).last().unwrap()).unwrap();
    assert_eq!(latest(folder.path()), "1 1 1");
    assert!(Checkpoint::open(folder.path().join("step-000000000002.safetensors")).unwrap_err().is_file());
}
