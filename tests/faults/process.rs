//! This program once more, as another process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What the other process is told its folder in.
const FOLDER: &str = "GRADCHAIN_FAULT_FOLDER";

/// A process that runs one ignored test, which looks for its [`folder`].
pub(crate) fn command(test: &str, folder: &Path) -> Command {
    through(std::env::current_exe().unwrap().as_os_str(), &[], test, folder)
}

/// The same, started by another program that is given these arguments before its own.
pub(crate) fn through(program: &std::ffi::OsStr, first: &[&std::ffi::OsStr], test: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(first).args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Where the other process is to work; `None` if the test was not started by [`command`], and has nothing to do.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Says something to the process that started this one.
pub(crate) fn say(text: impl std::fmt::Display) {
    // The test harness may have begun a line.
    println!("\nchild: {text}");
}

/// What a process says, line by line.
pub(crate) struct Listener {
    lines: BufReader<ChildStdout>,
}

impl Listener {
    pub(crate) fn to(child: &mut Child) -> Listener {
        Listener { lines: BufReader::new(child.stdout.take().unwrap()) }
    }

    /// What it says next; `None` if it has ended.
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

    /// The last that it says before it ends.
    pub(crate) fn last(&mut self) -> Option<String> {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        rest.lines().filter_map(|line| line.strip_prefix("child: ")).next_back().map(str::to_owned)
    }
}

/// All that a process says, and its standing at the end.
pub(crate) fn heard(command: &mut Command) -> (Vec<String>, std::process::ExitStatus) {
    let mut child = command.spawn().unwrap();
    let mut listener = Listener::to(&mut child);
    let said = std::iter::from_fn(|| listener.next()).collect();
    (said, child.wait().unwrap())
}
