//! A folder of checkpoints: the last few, the best few, and the newest that can be used.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::Checkpoint;
use super::save::{Save, TEMPORARY};
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::tree::Tree;

/// Writes checkpoints into a folder of their own and removes those that are not to be kept.
///
/// Files are called `step-000000001000.safetensors`. One process at a time may write to a folder.
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
/// let (step, file) = latest.found.unwrap();
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
}

/// The note that a score is kept in.
const SCORE: &str = "score";

impl Rotation {
    /// Writes to this folder, which is made if it is not there. Files that an earlier process began and did not end are
    /// removed. Without more, everything is kept.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made or read.
    pub fn new(folder: impl Into<PathBuf>) -> Result<Rotation> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
            let path = entry.map_err(|error| failed(&folder, &error))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
                fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        Ok(Rotation { folder, last: usize::MAX, best: 0 })
    }

    /// Keeps the newest `n` files, at least one.
    pub fn keep_last(mut self, n: usize) -> Rotation {
        self.last = n.max(1);
        self
    }

    /// Keeps the `n` files of the lowest score too. Files without a score, or of one that is NaN, are never the best.
    pub fn keep_best(mut self, n: usize) -> Rotation {
        self.best = n;
        self
    }

    /// Writes a file, and when it is on the disk removes those that are not to be kept.
    ///
    /// # Errors
    ///
    /// As [`Save::to_file`], and if a file cannot be removed; the new one is there then.
    pub fn save<T: Stage, P: Tree + ?Sized>(
        &self,
        step: u64,
        score: Option<f64>,
        save: Save<'_, T, P>,
    ) -> Result<PathBuf> {
        let path = self.folder.join(format!("step-{step:012}.safetensors"));
        let save = match score {
            Some(score) => save.note(SCORE, format_args!("{score:?}")),
            None => save,
        };
        save.to_file(&path)?;
        self.remove_others(step)?;
        Ok(path)
    }

    /// The steps of the files that are there, in order.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>> {
        Ok(files(&self.folder)?.into_iter().map(|(step, _)| step).collect())
    }

    fn remove_others(&self, newest: u64) -> Result<()> {
        let files = files(&self.folder)?;
        let surplus = files.len().saturating_sub(self.last);
        if surplus == 0 {
            return Ok(());
        }
        let best = if self.best > 0 { self.best_of(&files) } else { Vec::new() };
        for (step, path) in &files[..surplus] {
            // The one that has just been written stays, also where a later step is left from before.
            if *step != newest && !best.contains(step) {
                fs::remove_file(path).map_err(|error| failed(path, &error))?;
            }
        }
        Ok(())
    }

    /// The steps of the lowest scores; of equal ones the newest.
    fn best_of(&self, files: &[(u64, PathBuf)]) -> Vec<u64> {
        let score = |path: &PathBuf| Checkpoint::open(path).ok()?.note(SCORE)?.parse::<f64>().ok();
        let scored = files.iter().filter_map(|(step, path)| Some((score(path).filter(|s| !s.is_nan())?, *step)));
        let mut scored: Vec<(f64, u64)> = scored.collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        scored.into_iter().take(self.best).map(|(_, step)| step).collect()
    }
}

/// What [`latest_valid`] found.
#[derive(Debug)]
pub struct Latest {
    /// The newest checkpoint that is whole, and its step.
    pub found: Option<(u64, Checkpoint)>,
    /// Newer files that are not, newest first.
    pub skipped: Vec<Skipped>,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Error,
}

/// The newest checkpoint in a folder whose every byte is as it was written.
///
/// # Errors
///
/// If the folder cannot be read; one that does not exist is empty.
pub fn latest_valid(folder: impl AsRef<Path>) -> Result<Latest> {
    let mut skipped = Vec::new();
    for (step, path) in files(folder.as_ref())?.into_iter().rev() {
        match Checkpoint::open(&path).and_then(|file| file.verify().map(|()| file)) {
            Ok(file) => return Ok(Latest { found: Some((step, file)), skipped }),
            Err(reason) => skipped.push(Skipped { path, reason }),
        }
    }
    Ok(Latest { found: None, skipped })
}

/// The checkpoints of a folder by step.
fn files(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed(folder, &error))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let step = name.and_then(|name| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok());
        files.extend(step.map(|step| (step, path)));
    }
    files.sort();
    Ok(files)
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::file(path.display().to_string(), error.to_string())
}
