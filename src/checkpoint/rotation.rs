//! A folder of checkpoints: the last few, the best few, and the last valid one.

#[cfg(feature = "collective")]
mod shards;

use core::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::file::Checkpoint;
use super::models::Saves;
use super::save::TEMPORARY;
use super::shards::{list_of, notes_of, remove_unlisted};
use crate::{Error, Result};

/// Writes checkpoints into a dedicated folder and removes obsolete ones.
///
/// Files are called `step-000000001000.safetensors`. One process at a time may write to a folder. The last files are
/// those written last: when a run returns to an earlier step and continues from there, the files of the abandoned steps
/// are removed first. Only checkpoints under exactly such names are counted and removed; every other file is left
/// alone.
///
/// # Cost
///
/// The first save reads the header of each file in the folder, one file at a time; later ones only those of new or
/// changed files.
///
/// # Example
///
/// ```
/// use gradchain::checkpoint::{Rotation, Save, latest_valid};
/// use gradchain::prelude::*;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("run");
/// let optimizer = sgd(0.5);
/// let mut params = 8.0_f64;
/// let mut state = optimizer.init(&params)?;
/// let rotation = Rotation::new(&folder)?.keep_last(2).keep_best(1);
/// for step in 1..=5 {
///     let loss = (params - 3.0).abs();
///     rotation.save(step, Some(loss), Save::new(&optimizer, &state).params(&params))?;
///     optimizer.step(&mut params, &1.0, &mut state)?;
/// }
/// let latest = latest_valid(&folder)?;
/// let (step, file) = latest.checkpoint.unwrap();
/// let mut state = file.load(&optimizer, &mut params)?;
/// assert_eq!((step, params), (5, 6.0));
/// assert_eq!(rotation.steps()?, [4, 5]); // the best is among the last
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rotation {
    folder: PathBuf,
    last: usize,
    best: usize,
    /// Files' contents by step, so that saving opens only new ones.
    cache: Arc<Mutex<BTreeMap<u64, CachedNotes>>>,
}

/// The names of notes: the score, and the number of files written so far.
const SCORE: &str = "score";
const ORDER: &str = "order";

impl Rotation {
    /// Returns a rotation in this folder, which is created if missing; by default it keeps all files.
    ///
    /// Unfinished files of an earlier process are removed, as are ranks' files of checkpoints that were never listed.
    ///
    /// Ranks that write together call it before [`init`](crate::GradientTransformation::init) or loading: both
    /// synchronize, so that no rank writes while another removes.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created or read.
    pub fn new(folder: impl Into<PathBuf>) -> Result<Rotation> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        let mut lists = BTreeSet::new();
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
                remove(&path)?;
            }
            lists.extend(list_of(&path).filter(|list| step_of(list).is_some()));
        }
        lists.iter().for_each(|list| remove_unlisted(list));
        Ok(Rotation { folder, last: usize::MAX, best: 0, cache: Arc::default() })
    }

    /// Sets the number of last-written files to keep, at least one.
    pub fn keep_last(mut self, n: usize) -> Rotation {
        self.last = n.max(1);
        self
    }

    /// Also keeps the `n` files of the lowest score. Files without a score, or with NaN, are never the best.
    pub fn keep_best(mut self, n: usize) -> Rotation {
        self.best = n;
        self
    }

    /// Writes a file, and once it is on disk removes obsolete ones.
    ///
    /// It holds one model or [several](super::SaveModels).
    ///
    /// # Errors
    ///
    /// As [`Save::to_file`](super::Save::to_file); also if the system refuses to read a file of the folder. If a file
    /// cannot be removed, the new one exists.
    pub fn save(&self, step: u64, score: Option<f64>, save: impl Saves) -> Result<PathBuf> {
        let (path, save) = self.noted(step, score, save)?;
        save.write_checkpoint(&path)?;
        self.remove_others()?;
        Ok(path)
    }

    /// Returns a step's path, with notes for later saves.
    fn noted<S: Saves>(&self, step: u64, score: Option<f64>, save: S) -> Result<(PathBuf, S)> {
        let last = self.noted_checkpoints()?.last().map_or(0, |noted_checkpoints| noted_checkpoints.notes.order);
        let save = save.noted(ORDER, &last.saturating_add(1));
        let save = match score {
            Some(score) => save.noted(SCORE, &format_args!("{score:?}")),
            None => save,
        };
        // The new file may have the length and time of the replaced one.
        self.cache().remove(&step);
        Ok((self.folder.join(name(step)), save))
    }

    /// Returns the checkpoint of the lowest score in the folder: see [`best_valid`].
    ///
    /// # Errors
    ///
    /// As [`best_valid`].
    pub fn best(&self) -> Result<SearchResult> {
        best_valid(&self.folder)
    }

    /// Returns the steps of the existing files, in order.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>> {
        Ok(files(&self.folder)?.into_iter().map(|(step, _)| step).collect())
    }

    fn cache(&self) -> MutexGuard<'_, BTreeMap<u64, CachedNotes>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the checkpoints in the order of writing. Opens only files that are new or changed since the last call.
    fn noted_checkpoints(&self) -> Result<Vec<NotedFile>> {
        let mut cache = self.cache();
        let (mut all, mut found) = (Vec::new(), BTreeMap::new());
        for (step, path) in files(&self.folder)? {
            let stamp = match fs::metadata(&path).and_then(|file| Ok((file.len(), file.modified()?))) {
                Ok(stamp) => stamp,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, &error)),
            };
            let before = cache.remove(&step).filter(|before| before.stamp == stamp);
            let now = match before {
                Some(before) => before,
                None => CachedNotes { stamp, notes: unless_damaged(RotationNotes::read(&path))?.ok() },
            };
            all.extend(now.notes.map(|notes| NotedFile { notes, step, path }));
            found.insert(step, now);
        }
        *cache = found;
        all.sort_by_key(NotedFile::write_order);
        Ok(all)
    }

    fn remove_others(&self) -> Result<()> {
        let files = self.noted_checkpoints()?;
        let surplus = files.len().saturating_sub(self.last);
        let best = if surplus > 0 { self.best_of(&files) } else { Vec::new() };
        for NotedFile { step, path, .. } in &files[..surplus] {
            if !best.contains(step) {
                remove(path)?;
                remove_unlisted(path);
            }
        }
        Ok(())
    }

    /// Returns the steps of the lowest scores, the latest of equal ones.
    fn best_of(&self, files: &[NotedFile]) -> Vec<u64> {
        let mut scored: Vec<&NotedFile> =
            files.iter().filter(|file| file.notes.score.is_some_and(|score| !score.is_nan())).collect();
        scored.sort_by(|a, b| a.better(b));
        scored.into_iter().take(self.best).map(|file| file.step).collect()
    }
}

#[derive(Debug)]
struct CachedNotes {
    /// Length and modification time; a file whose stamp has changed is opened again.
    stamp: (u64, SystemTime),
    /// `None` if damaged.
    notes: Option<RotationNotes>,
}

/// A rotation's notes in a file.
#[derive(Clone, Copy, Debug)]
struct RotationNotes {
    /// Files written so far, this one included; 0 if unknown.
    order: u64,
    score: Option<f64>,
}

impl RotationNotes {
    /// Reads them; the file is open only meanwhile.
    fn read(path: &Path) -> Result<RotationNotes> {
        let notes = notes_of(path)?;
        let order = notes.get(ORDER).and_then(|order| order.parse().ok()).unwrap_or(0);
        Ok(RotationNotes { order, score: notes.get(SCORE).and_then(|score| score.parse().ok()) })
    }
}

struct NotedFile {
    notes: RotationNotes,
    step: u64,
    path: PathBuf,
}

impl NotedFile {
    fn write_order(&self) -> (u64, u64) {
        (self.notes.order, self.step)
    }

    /// Compares scores, the lower first, then steps, the later first.
    fn better(&self, other: &NotedFile) -> Ordering {
        let [a, b] = [self, other].map(|file| file.notes.score.unwrap_or(f64::INFINITY));
        a.total_cmp(&b).then(other.step.cmp(&self.step))
    }
}

/// Moves errors about damage into the inner result; returns the others.
///
/// # Errors
///
/// If the system refused to read the file, which may be valid.
fn unless_damaged<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if error.is_refused() => Err(error),
        result => Ok(result),
    }
}

/// The result of [`latest_valid`] and [`best_valid`].
#[derive(Debug)]
#[non_exhaustive]
pub struct SearchResult {
    /// The checkpoint, and its step.
    pub checkpoint: Option<(u64, Checkpoint)>,
    /// Damaged candidates, the latest first.
    pub skipped: Vec<Skipped>,
}

/// A damaged file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// The defect.
    pub reason: Error,
}

/// Returns the last written valid checkpoint in a folder; valid means that every byte is verified.
///
/// It reads the notes of each file first, which hold the order of writing, then verifies the files, the newest first.
/// One file is open at a time, so that a folder may have more files than the process may open.
///
/// # Errors
///
/// Fails if the folder cannot be read; a missing folder is empty. Fails also if the system refuses to read a file, for
/// want of permission or file descriptors or because the disk fails: such a file may be valid, so it is not skipped.
pub fn latest_valid(folder: impl AsRef<Path>) -> Result<SearchResult> {
    let (mut all, mut skipped) = noted_files(folder.as_ref())?;
    all.sort_by_key(NotedFile::write_order);
    let found = last_valid(all, &mut skipped)?;
    skipped.retain(|(step, _)| found.as_ref().is_none_or(|(found, _)| step > found));
    Ok(sorted(found, skipped))
}

/// Returns the valid checkpoint of the lowest score in a folder; valid means that every byte is verified.
///
/// Of equal scores the latest step counts. Files without a score, or with NaN, are never chosen. Damaged files of lower
/// scores are skipped, as are those whose score cannot be read.
///
/// ```
/// use gradchain::checkpoint::{Rotation, Save, best_valid};
/// use gradchain::prelude::*;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("run");
/// let (optimizer, mut params) = (sgd(0.5), 8.0_f64);
/// let mut state = optimizer.init(&params)?;
/// let rotation = Rotation::new(&folder)?.keep_last(1).keep_best(1);
/// for (step, loss) in [(1, 0.5), (2, 0.25), (3, 0.75)] {
///     optimizer.step(&mut params, &1.0, &mut state)?;
///     rotation.save(step, Some(loss), Save::new(&optimizer, &state).params(&params))?;
/// }
/// let (step, file) = best_valid(&folder)?.checkpoint.expect("there is one");
/// file.load_params(&mut params)?;
/// assert_eq!((step, params), (2, 7.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # Errors
///
/// As [`latest_valid`].
pub fn best_valid(folder: impl AsRef<Path>) -> Result<SearchResult> {
    let (all, mut skipped) = noted_files(folder.as_ref())?;
    let mut scored: Vec<NotedFile> =
        all.into_iter().filter(|file| file.notes.score.is_some_and(|score| !score.is_nan())).collect();
    scored.sort_by(NotedFile::better);
    scored.reverse();
    let found = last_valid(scored, &mut skipped)?;
    Ok(sorted(found, skipped))
}

type Damaged = Vec<(u64, Skipped)>;

/// Returns a folder's files, and those with unreadable notes.
fn noted_files(folder: &Path) -> Result<(Vec<NotedFile>, Damaged)> {
    let (mut all, mut skipped) = (Vec::new(), Vec::new());
    for (step, path) in files(folder)? {
        match unless_damaged(RotationNotes::read(&path))? {
            Ok(notes) => all.push(NotedFile { notes, step, path }),
            Err(reason) => skipped.push((step, Skipped { path, reason })),
        }
    }
    Ok((all, skipped))
}

fn last_valid(mut all: Vec<NotedFile>, skipped: &mut Damaged) -> Result<Option<(u64, Checkpoint)>> {
    while let Some(NotedFile { step, path, .. }) = all.pop() {
        match unless_damaged(Checkpoint::open(&path).and_then(|file| file.verify().map(|()| file)))? {
            Ok(file) => return Ok(Some((step, file))),
            Err(reason) => skipped.push((step, Skipped { path, reason })),
        }
    }
    Ok(None)
}

fn sorted(checkpoint: Option<(u64, Checkpoint)>, mut skipped: Damaged) -> SearchResult {
    skipped.sort_by_key(|(step, _)| Reverse(*step));
    SearchResult { checkpoint, skipped: skipped.into_iter().map(|(_, skipped)| skipped).collect() }
}

fn name(step: u64) -> String {
    format!("step-{step:012}.safetensors")
}

/// Returns files with a checkpoint's name, by step.
fn files(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed(folder, &error))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        files.extend(step_of(&path).map(|step| (step, path)));
    }
    files.sort();
    Ok(files)
}

fn step_of(path: &Path) -> Option<u64> {
    let called = path.file_name()?.to_str()?;
    let step = called.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()?;
    // `step-7` and `step-+5` are foreign files.
    (name(step) == called).then_some(step)
}

/// Removes a file, unless another rank has.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}
