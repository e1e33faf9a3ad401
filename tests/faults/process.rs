//! This program as another process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Passes the folder to the other process.
const FOLDER: &str = "GRADCHAIN_FAULT_FOLDER";

/// Returns a command that runs one ignored test in its [`folder`].
pub(crate) fn command(test: &str, folder: &Path) -> Command {
    through(std::env::current_exe().unwrap().as_os_str(), &[], test, folder)
}

/// Returns a command like [`command`], started through another program.
pub(crate) fn through(program: &std::ffi::OsStr, first: &[&std::ffi::OsStr], test: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(first).args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Returns `None` unless started by [`command`].
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

pub(crate) fn say(text: impl std::fmt::Display) {
    // The test harness may have begun a line.
    println!("\nchild: {text}");
}

pub(crate) struct Listener {
    lines: BufReader<ChildStdout>,
}

impl Listener {
    pub(crate) fn to(child: &mut Child) -> Listener {
        Listener { lines: BufReader::new(child.stdout.take().unwrap()) }
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.trim_end().strip_prefix("child: ") {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }

    pub(crate) fn last(&mut self) -> Option<String> {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        rest.lines().filter_map(|line| line.strip_prefix("child: ")).next_back().map(str::to_owned)
    }
}

pub(crate) fn heard(command: &mut Command) -> (Vec<String>, std::process::ExitStatus) {
    let mut child = command.spawn().unwrap();
    let mut listener = Listener::to(&mut child);
    let said = std::iter::from_fn(|| listener.next()).collect();
    (said, child.wait().unwrap())
}
