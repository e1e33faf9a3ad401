//! L-BFGS on NIST's nonlinear Statistical Reference Datasets reaches the recorded digits.
//!
//! It runs from both starts, in the parameters and in multiples of the start.
//!
//! `BLESS=1 cargo test --all-features --test files nist` writes `tests/data/nist_lbfgs.json` and
//! `benches/record/nist.md`.

mod models;

use std::fs;
use std::path::{Path, PathBuf};

use gradchain::minimize::{Report, Stop};
use gradchain::prelude::*;
use models::{Problem, problems};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize, Clone, Copy, Debug)]
struct Reached {
    /// Digits, of 11, shared with the certified parameters.
    digits: f64,
    evaluations: usize,
}

#[derive(Deserialize, Serialize)]
struct Run {
    problem: String,
    start: usize,
    lbfgs: Reached,
    scaled: Reached,
    /// Levenberg-Marquardt's, if it was run.
    #[serde(default, skip_serializing)]
    lm: Option<Reached>,
}

#[derive(Deserialize)]
struct Record {
    runs: Vec<Run>,
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn record(file: &str) -> Vec<Run> {
    let file = fs::read_to_string(path(file)).unwrap();
    serde_json::from_str::<Record>(&file).unwrap().runs
}

/// Fits multiples of `unit` until rounding errors dominate.
fn fit(problem: &Problem, start: &[f64], unit: &[f64]) -> (Reached, Report) {
    let times = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<_>>();
    let mut params: Vec<_> = start.iter().zip(unit).map(|(b, unit)| b / unit).collect();
    let loss = |params: &Vec<f64>| {
        let (value, gradient) = problem.loss(&times(params, unit));
        (value, times(&gradient, unit))
    };
    let optimizer = lbfgs();
    let mut state = optimizer.init(&params).unwrap();
    let minimization = optimizer.minimize(&mut params, loss, &mut state).gradient_atol(0.0).patience(20);
    let report = minimization.max_evaluations(10_000).run().unwrap();
    let digits = (10.0 * problem.digits(&times(&params, unit))).round() / 10.0;
    (Reached { digits, evaluations: report.evaluations }, report)
}

/// The least digits at the certified minimum; other runs have none, except for one with 0.9.
const AT_THE_MINIMUM: f64 = 4.0;

/// Gradients of 1e200 allow only the shortest steps.
const STILL_DESCENDING: &[&str] = &["Nelson from start 1"];

#[test]
fn as_many_digits_as_are_recorded() {
    let (mut runs, mut descending) = (Vec::new(), Vec::new());
    for problem in problems() {
        for (i, start) in problem.starts.iter().enumerate() {
            let name = format!("{} from start {}", problem.name, i + 1);
            let size: Vec<_> = start.iter().map(|b| b.abs()).collect();
            let [lbfgs, scaled] = [vec![1.0; start.len()], size].map(|unit| {
                let (reached, report) = fit(&problem, start, &unit);
                // A report claims convergence only at the minimum, or at a zero gradient: on the plateau of Eckerle4
                // the peak is too narrow for any observation.
                let claims = report.converged() && report.gradient_norm > 0.0;
                assert!(reached.digits >= AT_THE_MINIMUM || !claims, "{name}: {report}");
                assert!(report.stop != Stop::MaxSteps, "{name}: {report}");
                if report.stop == Stop::MaxEvaluations {
                    descending.push(name.clone());
                }
                reached
            });
            runs.push(Run { problem: problem.name.clone(), start: i + 1, lbfgs, scaled, lm: None });
        }
    }
    assert_eq!(runs.len(), 2 * 27);
    assert_eq!(descending, STILL_DESCENDING);
    if std::env::var_os("BLESS").is_some() {
        let lines: Vec<_> = runs.iter().map(|run| serde_json::to_string(run).unwrap()).collect();
        let text = format!("{{\"runs\": [\n  {}\n]}}\n", lines.join(",\n  "));
        fs::write(path("tests/data/nist_lbfgs.json"), text).unwrap();
    }
    for (run, expected) in runs.iter().zip(record("tests/data/nist_lbfgs.json")) {
        assert_eq!((&run.problem, run.start), (&expected.problem, expected.start));
        for (reached, expected) in [(run.lbfgs, expected.lbfgs), (run.scaled, expected.scaled)] {
            let name = format!("{} from start {}", run.problem, run.start);
            // The last bits of `exp` depend on the system, and affect steps near rounding errors.
            assert!(reached.digits >= expected.digits - 0.5, "{name}: {reached:?}, {expected:?} before");
            assert!(2 * reached.evaluations <= 3 * expected.evaluations, "{name}: {reached:?}, {expected:?} before");
        }
    }
    the_tables_match_the_records();
}

/// It converges, or stalls soon if the tolerance is out of reach.
#[test]
fn thurber_ends_soon_and_says_why() {
    let thurber = problems().into_iter().find(|problem| problem.name == "Thurber").unwrap();
    for (start, tolerance, stop, most) in thurber
        .starts
        .iter()
        .flat_map(|start| [(start, 1e-8, Stop::Gradient, 1_000), (start, 0.0, Stop::Stalled, 3_000)])
    {
        let (optimizer, mut params) = (lbfgs(), start.clone());
        let mut state = optimizer.init(&params).unwrap();
        let minimization = optimizer.minimize(&mut params, |b| thurber.loss(b), &mut state);
        let report =
            if tolerance > 0.0 { minimization.run() } else { minimization.gradient_atol(tolerance).run() }.unwrap();
        println!("{tolerance}: {report}");
        assert_eq!(report.stop, stop, "{report}");
        assert!(report.evaluations < most && thurber.digits(&params) > 9.0, "{report}");
    }
}

fn table() -> String {
    let mut good = [0; 5];
    let (ours, theirs) = (record("tests/data/nist_lbfgs.json"), record("tests/data/nist_scipy.json"));
    assert_eq!(ours.len(), theirs.len());
    let mut rows = String::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((&ours.problem, ours.start), (&theirs.problem, theirs.start));
        let all = [ours.scaled, theirs.scaled, ours.lbfgs, theirs.lbfgs, theirs.lm.unwrap()];
        good.iter_mut().zip(all).for_each(|(good, reached)| *good += usize::from(reached.digits >= 8.0));
        let cells = all.map(|reached| format!("{:.1} / {}", reached.digits, reached.evaluations));
        rows += &format!("| {}, {} | {} |\n", ours.problem, ours.start, cells.join(" | "));
    }
    rows + &format!("| 8 digits or more | {} |\n", good.map(|good| format!("{good} of {}", ours.len())).join(" | "))
}

fn the_tables_match_the_records() {
    let page = path("benches/record/nist.md");
    let text = fs::read_to_string(&page).unwrap();
    let begins = text.find("| Bennett5, 1 |").expect("the table");
    let len: usize = text[begins..].split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    if std::env::var_os("BLESS").is_some() {
        let text = format!("{}{}{}", &text[..begins], table(), &text[begins + len..]);
        return fs::write(&page, text).unwrap();
    }
    assert_eq!(text[begins..][..len], table());
    let guide = fs::read_to_string(path("docs/least-squares.md")).unwrap();
    let summary = table().lines().last().map(String::from).expect("a last row");
    assert!(guide.lines().any(|line| line == summary), "docs/least-squares.md should have: {summary}");
}
