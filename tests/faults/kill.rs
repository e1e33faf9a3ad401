//! After kills at random moments, training resumes bitwise from the newest valid checkpoint.
//!
//! The operating system keeps a killed process's writes. `fsync` covers a loss of power, which is not tested here.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use gradchain::checkpoint::{Rotation, Save, latest_valid};
use gradchain::state::same_bits;

use super::process::{Listener, command, folder, say};
use super::*;

const STEPS: u64 = 200;
/// Every third step ends a window, so most files are within one.
const EVERY: u64 = 2;

/// Trains to the end, from the folder's newest checkpoint if any.
fn train(folder: Option<&Path>, saves: bool) -> (Model, OptState<Optimizer>) {
    let optimizer = optimizer();
    let mut params = model();
    let (done, mut state) = match folder.and_then(|folder| latest_valid(folder).unwrap().checkpoint) {
        Some((step, file)) => (step, file.load(&optimizer, &mut params).unwrap()),
        None => (0, optimizer.init(&params).unwrap()),
    };
    let rotation = folder.filter(|_| saves).map(|folder| Rotation::new(folder).unwrap().keep_last(2).keep_best(1));
    for step in done + 1..=STEPS {
        if saves {
            say(format_args!("training {step}"));
        }
        let gradient = gradient(&params, step);
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        if let Some(rotation) = &rotation
            && step.is_multiple_of(EVERY)
        {
            say(format_args!("writing {step}"));
            let score = params.bias.iter().map(|b| b * b).sum();
            rotation.save(step, Some(score), Save::new(&optimizer, &state).params(&params)).unwrap();
        }
    }
    (params, state)
}

#[test]
#[ignore = "it is the process that is killed"]
fn child() {
    if let Some(folder) = folder() {
        train(Some(&folder), true);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Start,
    Training(u64),
    Writing(u64),
}

impl At {
    fn step(self) -> u64 {
        match self {
            At::Start => 0,
            At::Training(step) | At::Writing(step) => step,
        }
    }
}

/// Kills the process soon after it has begun some steps, and perhaps a file; returns `None` if it had completed.
fn kill(folder: &Path, seed: u64) -> Option<At> {
    let mut child = command("kill::child", folder).spawn().unwrap();
    let mut listener = Listener::to(&mut child);
    // In debug builds files take less time than steps, so random moments would hit steps only.
    let (of, begins) = match bits(seed) % 8 {
        0 => ("training", 0),
        1..4 => ("training", 3 + bits(seed + 1) % 17),
        _ => ("writing", 2 + bits(seed + 1) % 10),
    };
    let mut begun = 0;
    let mut last = None;
    while begun < begins
        && let Some(said) = listener.next()
    {
        begun += u64::from(said.starts_with(of));
        last = Some(said);
    }
    std::thread::sleep(Duration::from_micros(bits(seed + 2) % 2500));
    // SIGKILL cannot be caught.
    child.kill().unwrap();
    let last = listener.last().or(last);
    if child.wait().unwrap().success() {
        return None;
    }
    let Some(last) = last else { return Some(At::Start) };
    let (what, step) = last.split_once(' ').unwrap();
    let step = step.parse().unwrap();
    Some(if what == "writing" { At::Writing(step) } else { At::Training(step) })
}

#[derive(Default)]
struct Tally {
    training: usize,
    /// Before the rename: the new file is incomplete or absent.
    writing: usize,
    /// After the rename, before older files are removed.
    renamed: usize,
    begun_left: usize,
    redone: u64,
    most_redone: u64,
    steps: BTreeSet<u64>,
    runs: usize,
}

impl Tally {
    fn kills(&self) -> usize {
        self.training + self.writing + self.renamed
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { training, writing, renamed, begun_left, redone, most_redone, steps, runs } = self;
        write!(f, "{} kills at {} different steps of {runs} runs: ", self.kills(), steps.len())?;
        write!(
            f,
            "{training} in training, {writing} while a file was written, {renamed} when it had just been renamed; "
        )?;
        write!(f, "{begun_left} left a file that had been begun; {redone} steps redone, at most {most_redone} at once")
    }
}

#[test]
fn a_run_killed_at_any_time_resumes_bitwise_identically() {
    let kills: usize = std::env::var("GRADCHAIN_KILLS").map_or(10, |kills| kills.parse().unwrap());
    let (straight, end) = train(None, false);
    let mut folder = tempfile::tempdir().unwrap();
    let mut tally = Tally::default();
    let mut newest = 0;
    for attempt in 0.. {
        if tally.kills() == kills {
            break;
        }
        assert!(attempt < 10 * kills as u64 + 10, "most processes were at the end before they were killed: {tally}");
        let hit = kill(folder.path(), 3 * attempt);

        let found = latest_valid(folder.path()).unwrap();
        assert!(found.skipped.is_empty(), "only whole files have a name: {:?}", found.skipped);
        let step = found.checkpoint.map_or(0, |(step, _)| step);
        assert!(step >= newest, "a checkpoint was there, of step {newest}, and now the newest is of {step}");
        newest = step;
        let (params, state) = train(Some(folder.path()), false);
        assert!(bits_of(&params) == bits_of(&straight), "attempt {attempt}: parameters differ, killed at {hit:?}");
        assert!(same_bits(&*state, &*end), "attempt {attempt}: states differ, killed at {hit:?}");

        let Some(at) = hit else {
            assert_eq!(newest, STEPS, "it came to the end");
            (folder, newest) = (tempfile::tempdir().unwrap(), 0);
            tally.runs += 1;
            continue;
        };
        match at {
            At::Writing(of) if of == newest => tally.renamed += 1,
            At::Writing(_) => tally.writing += 1,
            At::Training(_) | At::Start => tally.training += 1,
        }
        let mut names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let begun = names.any(|name| name.to_string_lossy().ends_with(".tmp"));
        tally.begun_left += usize::from(begun && matches!(at, At::Writing(_)));
        let redone = at.step().saturating_sub(newest);
        assert!(redone <= EVERY, "what has been saved is not done again: {at:?}, and {newest} is saved");
        (tally.redone, tally.most_redone) = (tally.redone + redone, tally.most_redone.max(redone));
        tally.steps.insert(at.step());
    }
    tally.runs += 1;
    println!("{tally}");
    assert!(2 * tally.steps.len() > kills.min(60), "kills hit different steps: {tally}");
}
