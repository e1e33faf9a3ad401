use gradchain::wrapper::sharded;
use std::fs;

use gradchain::checkpoint::{Rotation, latest_valid};

use super::*;

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(2).keep_best(2);
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    for (step, score) in [(10, 3.0), (20, 1.0), (30, f64::NAN), (40, 0.5), (50, 2.0), (60, 4.0), (70, 9.0)] {
        rotation.save(step, Some(score), Save::new(&optimizer, &state).params(&params)).unwrap();
    }
    assert_eq!(rotation.steps().unwrap(), [20, 40, 60, 70]);
    // A file without a score is never the best; foreign files stay.
    fs::write(folder.path().join("step-notes.txt"), "mine").unwrap();
    rotation.save(80, None, Save::new(&optimizer, &state).params(&params)).unwrap();
    assert_eq!(rotation.steps().unwrap(), [20, 40, 70, 80]);
    assert!(folder.path().join("step-notes.txt").exists());
}

#[test]
fn a_damaged_file_is_skipped_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap();
    let optimizer = optimizer();
    for step in 1..=4 {
        let (params, state) = trained(&optimizer, step);
        rotation.save(step as u64, None, Save::new(&optimizer, &state).params(&params)).unwrap();
    }
    let path = |step: usize| folder.path().join(format!("step-{step:012}.safetensors"));
    let mut bytes = fs::read(path(4)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path(4), &bytes).unwrap();
    fs::write(path(3), &bytes[..bytes.len() / 2]).unwrap();

    let latest = latest_valid(folder.path()).unwrap();
    let (step, file) = latest.checkpoint.unwrap();
    assert_eq!(step, 2);
    let mut params = model();
    file.load(&optimizer, &mut params).unwrap();
    assert_eq!(params, trained(&optimizer, 2).0);
    let reasons: Vec<_> = latest.skipped.iter().map(|skipped| skipped.reason.to_string()).collect();
    assert!(reasons[0].contains("checksum") && reasons[1].contains("truncated in a header of"), "{reasons:?}");

    assert!(latest_valid(folder.path().join("nowhere")).unwrap().checkpoint.is_none());
}

#[test]
fn a_rewound_run_supersedes_later_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(3);
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    let save = |step| drop(rotation.save(step, None, Save::new(&optimizer, &state).params(&params)).unwrap());
    let latest = || latest_valid(folder.path()).unwrap().checkpoint.map(|(step, _)| step);
    assert_eq!(latest(), None);
    (1..=10).for_each(save);
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![8, 9, 10], Some(10)));
    save(5);
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![5, 9, 10], Some(5)));
    save(6);
    save(7);
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![5, 6, 7], Some(7)));
    // Step 6 is the last one written.
    save(6);
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![5, 6, 7], Some(6)));
    save(8);
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![6, 7, 8], Some(8)));

    // The last one written is the one to resume from.
    let rotation = Rotation::new(folder.path()).unwrap();
    rotation.save(2, None, Save::new(&optimizer, &state).params(&params)).unwrap();
    assert_eq!((rotation.steps().unwrap(), latest()), (vec![2, 6, 7, 8], Some(2)));
}

#[test]
fn only_its_own_files_are_counted_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(1).keep_best(1);
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    let others = [
        "step-7",
        "step-+5",
        "step-0000000000007",
        "step-000000000003 (copy)",
        "step--00000000001",
        "best-000000000001",
    ];
    let path = |name: &str| folder.path().join(format!("{name}.safetensors"));
    for name in others {
        Save::new(&optimizer, &state).params(&params).to_file(path(name)).unwrap();
    }
    // The right name, other content.
    fs::write(path("step-000000000002"), "something else").unwrap();
    for step in [3, 4, 5] {
        rotation.save(step, Some(step as f64), Save::new(&optimizer, &state).params(&params)).unwrap();
    }
    assert_eq!(rotation.steps().unwrap(), [2, 3, 5]);
    for name in others.iter().chain(&["step-000000000002"]) {
        assert!(path(name).exists(), "{name}");
    }
    assert_eq!(latest_valid(folder.path()).unwrap().checkpoint.map(|(step, _)| step), Some(5));
}

#[test]
fn unfinished_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(".gradchain-a1b2.tmp");
    fs::write(&left, "half a file").unwrap();
    Rotation::new(folder.path()).unwrap();
    assert!(!left.exists());
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    Save::new(&optimizer, &state).params(&params).to_file(&path).unwrap();
    let before = fs::read(&path).unwrap();

    // Refused before any write.
    let error = Save::new(&optimizer, &state).params(&vec![1.0_f32]).to_file(&path).unwrap_err();
    assert!(error.is_structure(), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");

    let nowhere = folder.path().join("nowhere").join("a.safetensors");
    let error = Save::new(&optimizer, &state).to_file(&nowhere).unwrap_err();
    assert!(error.is_file() && error.to_string().contains("nowhere"), "{error}");
    // A folder in place of the file.
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    assert!(Save::new(&optimizer, &state).to_file(&taken).unwrap_err().is_file());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

/// This device is always full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    let error = Save::new(&optimizer, &state).params(&params).to_writer(full).unwrap_err();
    assert!(error.is_file(), "{error}");
}

/// The target is replaced.
#[cfg(unix)]
#[test]
fn a_link_stays_and_its_file_is_replaced() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("store")).unwrap();
    symlink("store/real.safetensors", at("one")).unwrap();
    symlink("one", at("two")).unwrap();
    let optimizer = optimizer();
    // With and without an existing file.
    for steps in [1, 2] {
        let (params, state) = trained(&optimizer, steps);
        Save::new(&optimizer, &state).params(&params).to_file(at("two")).unwrap();
        for path in [at("two"), at("one"), at("store").join("real.safetensors")] {
            let mut loaded = model();
            Checkpoint::open(&path).unwrap().load(&optimizer, &mut loaded).unwrap();
            assert_eq!(loaded, params, "{path:?}");
        }
        for link in ["one", "two"] {
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside the link");
    }
    symlink("round", at("round")).unwrap();
    let (params, state) = trained(&optimizer, 1);
    assert!(Save::new(&optimizer, &state).params(&params).to_file(at("round")).unwrap_err().is_file());
    assert!(fs::symlink_metadata(at("round")).unwrap().is_symlink());

    // A list is in its shards' folder.
    symlink("store/shards.safetensors", at("shards")).unwrap();
    let ranks = gradchain::collective::threads(1, std::time::Duration::MAX);
    let optimizer = sharded(optimizer, ranks.into_iter().next().unwrap());
    let state = optimizer.init(&params).unwrap();
    Save::new(&optimizer, &state).params(&params).to_shards(at("shards"), &**optimizer.collective()).unwrap();
    assert!(fs::symlink_metadata(at("shards")).unwrap().is_symlink());
    for path in [at("shards"), at("store").join("shards.safetensors")] {
        Checkpoint::open(path).unwrap().load_params(&mut model()).unwrap();
    }
}

/// It is opened again.
#[test]
fn files_written_by_another_rotation_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(2).keep_best(1);
    let optimizer = optimizer();
    let (params, state) = trained(&optimizer, 1);
    let save = |rotation: &Rotation, step, score| {
        rotation.save(step, Some(score), Save::new(&optimizer, &state).params(&params)).unwrap();
    };
    (1..=3).for_each(|step| save(&rotation, step, 5.0 + step as f64));
    assert_eq!(rotation.steps().unwrap(), [1, 2, 3]);
    // Step 2 is now the last, with a better score.
    save(&Rotation::new(folder.path()).unwrap(), 2, 1.0);
    save(&rotation, 4, 7.0);
    assert_eq!(rotation.steps().unwrap(), [2, 4]);
    assert_eq!(latest_valid(folder.path()).unwrap().checkpoint.map(|(step, _)| step), Some(4));
    // Damaged and removed files do not count.
    fs::write(folder.path().join("step-000000000004.safetensors"), "short").unwrap();
    fs::remove_file(folder.path().join("step-000000000002.safetensors")).unwrap();
    save(&rotation, 5, 9.0);
    save(&rotation, 6, 9.0);
    save(&rotation, 7, 9.0);
    assert_eq!(rotation.steps().unwrap(), [4, 6, 7]);
}

#[test]
fn of_equal_scores_the_latest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation::new(folder.path()).unwrap().keep_last(1).keep_best(1);
    let optimizer = sgd(0.5);
    let params = 8.0_f64;
    let state = optimizer.init(&params).unwrap();
    for (step, score) in [(1, 0.5), (2, 0.25), (3, 0.25), (4, 0.25), (5, 1.0), (6, 1.0)] {
        rotation.save(step, Some(score), Save::new(&optimizer, &state).params(&params)).unwrap();
    }
    assert_eq!(rotation.steps().unwrap(), [4, 6]);
}
