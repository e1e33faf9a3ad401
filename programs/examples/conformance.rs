//! Runs recorded cases of Optax: `conformance DIR`, or the project's.
//!
//! Prints failures, then how many passed, departed by a rule, failed and were skipped. The exit status is 1 if any
//! failed.

use std::env;
use std::path::Path;
use std::process::ExitCode;

#[path = "../../tests/conformance/mod.rs"]
mod conformance;

use conformance::{Departures, Summary, folder, kept};

fn main() -> ExitCode {
    let cases = match env::args_os().nth(1) {
        None => kept(),
        Some(path) => match folder(Path::new(&path)) {
            Ok(cases) => cases,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        },
    };
    let departures = Departures::kept();
    let summary = Summary::of(&cases, &departures);
    print!("{}", summary.details(&departures));
    summary.failed.iter().for_each(|failure| println!("FAILED {failure}"));
    println!("{summary}");
    if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
