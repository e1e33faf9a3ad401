//! Recorded cases of Optax; `README.md` beside the archive describes the format.

mod departures;
mod kinds;
mod naive;
mod projection;
mod reference;
mod transform;
mod tree;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::bufread::GzDecoder;
use serde_json::Value;

pub(crate) use departures::Departures;
use transform::{Stop, Transform};

pub(crate) enum Verdict {
    Passed,
    /// Disagrees with Optax, as these rules require.
    Departed(Vec<String>),
    /// The first difference.
    Failed(String),
    /// The feature that this build lacks.
    Skipped(String),
}

/// Returns the public cases, and a few of `record.py`'s for the gaps.
pub(crate) fn kept() -> Vec<(String, Value)> {
    ["cases.jsonl.gz", "own.jsonl.gz"].into_iter().flat_map(archive).collect()
}

fn archive(name: &str) -> Vec<(String, Value)> {
    // Part of a test, and of a program in another package.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|root| root.join("tests/conformance").exists()).expect("the crate's folder");
    let path = root.join("tests/conformance").join(name);
    let file = BufReader::new(File::open(path).expect("the archive of cases"));
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    let read = |line: String| serde_json::from_str::<Value>(&line).expect("a case a line");
    lines.map(|line| read(line.expect("text"))).map(|case| (self::name(&case), case)).collect()
}

fn name(case: &Value) -> String {
    case["name"].as_str().unwrap_or_default().into()
}

/// Returns the cases in a folder and below; skips other files.
pub(crate) fn folder(path: &Path) -> std::io::Result<Vec<(String, Value)>> {
    let mut entries = fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    let mut cases = Vec::new();
    for path in entries {
        if path.is_dir() {
            cases.extend(folder(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            match serde_json::from_str::<Value>(&fs::read_to_string(&path)?) {
                Ok(case) if case.get("kind").is_none() => {}
                Ok(case) => cases.push((name(&case), case)),
                Err(error) => cases.push((path.display().to_string(), Value::String(error.to_string()))),
            }
        }
    }
    Ok(cases)
}

pub(crate) fn run(case: &Value, departures: &Departures) -> Verdict {
    let done = match case["kind"].as_str() {
        Some("transform") => return transform(case, departures),
        Some("schedule") => kinds::schedule(case),
        Some("function") => kinds::function(case),
        Some("projection") => return projection::run(case, departures),
        Some("invalid") => kinds::invalid(case),
        _ => Err(Stop::Error(format!("no case: {}", case.as_str().unwrap_or("it has no known `kind`")))),
    };
    done.map_or_else(verdict, |()| Verdict::Passed)
}

fn verdict(stop: Stop) -> Verdict {
    match stop {
        Stop::Skipped(what) => Verdict::Skipped(what),
        Stop::Error(error) => Verdict::Failed(error),
    }
}

fn transform(case: &Value, departures: &Departures) -> Verdict {
    let case = match Transform::read(case) {
        Ok(case) => case,
        Err(error) => return Verdict::Failed(error),
    };
    if !transform::types_are_supported(case.leaves()) {
        return Verdict::Skipped("the feature `half`".into());
    }
    let found = match transform::observe(&case) {
        Ok(found) => found,
        Err(stop) => return verdict(stop),
    };
    match case.compare(&case.expected(), &found) {
        Ok(()) => Verdict::Passed,
        Err(difference) => departures.judge(&case, &found, difference),
    }
}

#[derive(Default)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) departed: BTreeMap<String, usize>,
    pub(crate) departures: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: BTreeMap<String, usize>,
}

impl Summary {
    pub(crate) fn of(cases: &[(String, Value)], departures: &Departures) -> Summary {
        let mut summary = Summary::default();
        for (name, case) in cases {
            match run(case, departures) {
                Verdict::Passed => summary.passed += 1,
                Verdict::Departed(rules) => {
                    summary.departures += 1;
                    rules.into_iter().for_each(|rule| *summary.departed.entry(rule).or_default() += 1);
                }
                Verdict::Failed(why) => summary.failed.push(format!("{name}: {why}")),
                Verdict::Skipped(name) => *summary.skipped.entry(name).or_default() += 1,
            }
        }
        summary
    }

    /// Lists skipped cases by missing feature, departures by rule and reason.
    pub(crate) fn details(&self, departures: &Departures) -> String {
        let skipped = self.skipped.iter().map(|(name, n)| format!("skipped  {n:4}  {name}\n"));
        let departed = departures.rules().filter_map(|(rule, reason)| {
            let (n, reason) = (self.departed.get(rule)?, reason.replace('\n', " "));
            Some(format!("departed {n:4}  {rule}: {reason}\n"))
        });
        skipped.chain(departed).collect()
    }
}

impl core::fmt::Display for Summary {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let skipped: usize = self.skipped.values().sum();
        write!(
            f,
            "{} passed, {} departed, {} failed, {skipped} skipped",
            self.passed,
            self.departures,
            self.failed.len()
        )
    }
}
