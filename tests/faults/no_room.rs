//! With read-only folders and full disks a save fails or the process ends, and the older checkpoint survives.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;

use gradchain::checkpoint::{Checkpoint, Rotation, Save, latest_valid};

use super::process::{folder, heard, say, through};
use super::*;

fn trained(steps: u64) -> (Model, OptState<Optimizer>) {
    let optimizer = optimizer();
    let mut params = model();
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..steps {
        let gradient = gradient(&params, step);
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
    }
    (params, state)
}

fn save(path: &Path, steps: u64) -> gradchain::Result<()> {
    let (params, state) = trained(steps);
    Save::new(&optimizer(), &state).params(&params).to_file(path)
}

const OLD: &str = "step-000000000001.safetensors";
const NEW: &str = "step-000000000002.safetensors";

#[test]
#[ignore = "it is the process that has no room"]
fn child() {
    if let Some(folder) = folder() {
        for name in [OLD, NEW] {
            match save(&folder.join(name), 2) {
                Ok(()) => say(format_args!("saved {name}")),
                Err(error) => say(format_args!("error {} {error}", error.is_file())),
            }
        }
    }
}

fn folder_with_a_checkpoint() -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join(OLD), 1).unwrap();
    let bytes = fs::read(folder.path().join(OLD)).unwrap();
    (folder, bytes)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn intact(folder: &Path, bytes: &[u8]) {
    assert!(fs::read(folder.join(OLD)).unwrap() == bytes, "the older checkpoint has other bytes");
    let (step, file) = latest_valid(folder).unwrap().checkpoint.unwrap();
    assert_eq!(step, 1);
    let mut params = Model { weight: Array2::zeros((60, 100)), bias: Array1::zeros(50) };
    file.load(&optimizer(), &mut params).unwrap();
    assert_eq!(params, trained(1).0);
}

/// The superuser may write anywhere, so then the process runs as another user.
#[test]
fn a_read_only_folder_is_an_error() {
    let (folder, bytes) = folder_with_a_checkpoint();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let superuser = fs::metadata("/proc/self").unwrap().uid() == 0;
    // The link needs no permission on the folders of the program.
    let mut child = through(OsStr::new("/proc/self/exe"), &[], "no_room::child", folder.path());
    if superuser {
        const NOBODY: u32 = 65534;
        child.uid(NOBODY).gid(NOBODY);
    }
    let (said, status) = heard(&mut child);
    assert!(status.success(), "{status}: {said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    for (said, name) in said.iter().zip([OLD, NEW]) {
        assert!(said.starts_with("error true") && said.contains(name) && said.contains("denied"), "{said}");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(names(folder.path()), [OLD]);
    intact(folder.path(), &bytes);
}

/// A file size limit stops a write after some bytes, like a full disk.
#[test]
fn a_write_stopped_at_any_byte_is_an_error() {
    let (folder, bytes) = folder_with_a_checkpoint();
    for blocks in limits(bytes.len()) {
        let script = format!("ulimit -f {blocks}; trap '' XFSZ; exec \"$0\" \"$@\"");
        let (said, status) = heard(&mut limited(&script, folder.path()));
        assert!(status.success(), "{blocks} blocks: {status}, {said:?}");
        assert_eq!(said.len(), 2, "{blocks} blocks: {said:?}");
        for (said, name) in said.iter().zip([OLD, NEW]) {
            assert!(said.starts_with("error true") && said.contains(name), "{blocks} blocks: {said}");
            assert!(said.contains("too large"), "{blocks} blocks: {said}");
        }
        assert_eq!(names(folder.path()), [OLD], "{blocks} blocks: what was begun is removed");
        intact(folder.path(), &bytes);
    }
}

/// The same limit kills a process that does not ignore its signal.
#[test]
fn a_process_that_ends_at_any_byte_of_a_file_leaves_the_older_one() {
    const SIGXFSZ: i32 = 25;
    let (folder, bytes) = folder_with_a_checkpoint();
    for blocks in limits(bytes.len()) {
        let script = format!("ulimit -c 0; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let (said, status) = heard(&mut limited(&script, folder.path()));
        assert_eq!((status.signal(), said.len()), (Some(SIGXFSZ), 0), "{blocks} blocks: {status}, {said:?}");
        let left = names(folder.path());
        assert_eq!(left.len(), 2, "{blocks} blocks: what was begun is left: {left:?}");
        intact(folder.path(), &bytes);
        Rotation::new(folder.path()).unwrap();
        assert_eq!(names(folder.path()), [OLD], "{blocks} blocks: the next process removes it");
    }
}

/// Returns limits within the file's header, middle and end, in blocks of 512 bytes (1024 in some shells).
fn limits(len: usize) -> Vec<usize> {
    let blocks = len / 1024;
    let mut limits = vec![0, 1, 2, 3, blocks / 2, blocks - 1];
    limits.extend((1..10).map(|i| bits(i) as usize % blocks));
    limits
}

fn limited(script: &str, folder: &Path) -> std::process::Command {
    let exe = std::env::current_exe().unwrap();
    through(OsStr::new("sh"), &[OsStr::new("-c"), OsStr::new(script), exe.as_os_str()], "no_room::child", folder)
}

#[test]
fn invalid_paths_are_errors() {
    let (folder, bytes) = folder_with_a_checkpoint();
    let (params, state) = trained(2);
    let optimizer = optimizer();
    let save = Save::new(&optimizer, &state).params(&params);
    let inside_a_file = folder.path().join(OLD).join(NEW);
    for path in [inside_a_file.as_path(), Path::new("/proc/new.safetensors"), Path::new("/dev/full/new.safetensors")] {
        let error = save.to_file(path).unwrap_err();
        assert!(error.is_file() && error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
    assert!(Rotation::new(folder.path().join(OLD)).unwrap_err().is_file());
    assert!(latest_valid(folder.path().join(OLD)).unwrap_err().is_file());
    assert!(Checkpoint::open(folder.path()).unwrap_err().is_file(), "a folder is no file");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(save.to_writer(full).unwrap_err().is_file());
    assert_eq!(names(folder.path()), [OLD]);
    intact(folder.path(), &bytes);
}
