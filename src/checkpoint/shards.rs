//! Checkpoints of several ranks, a file each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file::Checkpoint;
use super::manifest::{Crc, FORMAT, notes};
use super::save::{Save, folder_of, replace_file, target_of};
use super::source::Source;
use super::tensors::{damaged, header_of};
use crate::GradientTransformation;
use crate::collective::{Collective, gather};
use crate::tree::Tree;
use crate::{Error, Result};

/// All ranks' files, by rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShardList {
    #[serde(skip)]
    path: PathBuf,
    gradchain_shards: u32,
    files: Vec<(String, Crc)>,
}

const SHARD_SUFFIX: &str = ".shard";

/// The first bytes of a list. Read as the header length that begins a safetensors file, they exceed any header.
const LIST_PREFIX: &[u8] = br#"{"gradchain_shards":"#;

impl<T: GradientTransformation, P: Tree + ?Sized> Save<'_, T, P> {
    /// Writes a checkpoint of a [`sharded`](crate::wrapper::sharded()) optimizer, a file per rank.
    ///
    /// Each rank writes its shard of the state, the first rank the parameters too. Once all of these are on disk, the
    /// first rank writes a list of them to `path`. All ranks call it, with the same path, in a shared folder.
    ///
    /// [`Checkpoint::open`] opens the list, [`merge`] combines all into one file. Files of an older checkpoint of the
    /// same path are removed once the new list exists.
    ///
    /// # Errors
    ///
    /// See [`Save`]. If any rank cannot write, all return an error; if a rank is lost, the others return an error that
    /// [`is_collective`](Error::is_collective). At any time `path` holds a complete checkpoint, the old or the new one.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gradchain::checkpoint::{Checkpoint, Save};
    /// use gradchain::collective::threads;
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::sharded;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = &folder.path().join("step-1.safetensors");
    /// std::thread::scope(|scope| {
    ///     for ranks in threads(2, Duration::from_secs(10)) {
    ///         scope.spawn(move || {
    ///             let (optimizer, mut params) = (sharded(adamw(0.1), ranks), vec![1.0_f32; 40_000]);
    ///             let mut state = optimizer.init(&params)?;
    ///             optimizer.step(&mut params, &vec![0.5_f32; 40_000], &mut state)?;
    ///             Save::new(&optimizer, &state).params(&params).to_shards(path, &**optimizer.collective())
    ///         });
    ///     }
    /// });
    ///
    /// // On one machine: the same optimizer without the wrapper.
    /// let mut params = vec![0.0_f32; 40_000];
    /// let mut state = Checkpoint::open(path)?.load(&adamw(0.1), &mut params)?;
    /// assert!(params[39_999] < 1.0);
    /// adamw(0.1).step(&mut params, &vec![0.5_f32; 40_000], &mut state)?;
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn to_shards(&self, path: impl AsRef<Path>, collective: &dyn Collective) -> Result<()> {
        let shown = path.as_ref().display().to_string();
        // The files are stored beside the list. If `path` is a symbolic link, the list is its target. A loop of links
        // fails when the list is written, on all ranks.
        let path = &target_of(path.as_ref()).unwrap_or_else(|_| path.as_ref().into());
        let (rank, size) = (collective.rank(), collective.size());
        let Some(called) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::file(shown, "the path has no file name, or one that is not UTF-8"));
        };
        // Each attempt has its own names, so that listed files are never overwritten.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut attempt = (now ^ u64::from(std::process::id()).rotate_right(16)).to_le_bytes().to_vec();
        collective.broadcast(0, &mut attempt)?;
        let attempt: String = attempt.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = |rank: usize| format!("{called}.{attempt}.{rank}-of-{size}{SHARD_SUFFIX}");
        let mut check = Crc::default();
        let written = replace_file(&folder_of(path).join(file(rank)), |shown, file| {
            check = self.write(shown, file, Some((rank, size)))?;
            Ok(())
        });
        let checks = all_done(collective, written.map(|()| check))?;
        let listed = if rank == 0 {
            let files = checks.into_iter().enumerate().map(|(rank, check)| (file(rank), check)).collect();
            ShardList { path: path.into(), gradchain_shards: FORMAT, files }.write_checkpoint()
        } else {
            Ok(())
        };
        all_done(collective, listed.map(|()| Crc::default())).map(drop)
    }
}

/// Gathers all ranks' results; fails if any failed.
fn all_done(collective: &dyn Collective, own: Result<Crc>) -> Result<Vec<Crc>> {
    let said = match &own {
        Ok(check) => check.0.to_le_bytes().to_vec(),
        Err(error) => format!("error: {error}").into_bytes(),
    };
    let all = gather(collective, &said)?;
    own?;
    let one = |(rank, said): (usize, &Vec<u8>)| match said[..].try_into() {
        Ok(check) => Ok(Crc(u32::from_le_bytes(check))),
        Err(_) => {
            let problem = format!("rank {rank} could not write its shard: {}", String::from_utf8_lossy(said));
            Err(Error::collective(collective.rank(), problem))
        }
    };
    all.iter().enumerate().map(one).collect()
}

/// Combines the files of several ranks into one; `list` is the path passed to [`Save::to_shards`].
///
/// The file equals one written without [`sharded`](crate::wrapper::sharded()).
///
/// # Errors
///
/// Fails if the list or a file cannot be read, is damaged, missing, or different from the list; if the files do not
/// belong together; if `to` cannot be written, which leaves an older file of that name unchanged.
///
/// # Cost
///
/// All data is read twice, and the largest leaf is held in memory.
///
/// # Example
///
/// ```no_run
/// gradchain::checkpoint::merge("run/step-000000001000.safetensors", "last.safetensors")?;
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn merge(list: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (list, shown) = (list.as_ref(), list.as_ref().display().to_string());
    let Some(shards) = ShardList::of(list)? else { return Err(Error::file(shown, "it is not a list of shards")) };
    let whole = shards.open()?;
    whole.verify()?;
    replace_file(to.as_ref(), |shown, file| whole.write_as_one(shown, file))
}

impl ShardList {
    /// Reads a list; returns `None` if the file is not one.
    pub(super) fn of(path: &Path) -> Result<Option<ShardList>> {
        let shown = path.display().to_string();
        let failed = |error: &dyn core::fmt::Display| Error::file(&*shown, error.to_string());
        let refused = |error: io::Error| Error::io(&*shown, &error);
        let mut file = File::open(path).map_err(refused)?;
        let mut first = Vec::new();
        (&file).take(LIST_PREFIX.len() as u64).read_to_end(&mut first).map_err(refused)?;
        if first != LIST_PREFIX {
            return Ok(None);
        }
        file.read_to_end(&mut first).map_err(refused)?;
        let list: ShardList =
            serde_json::from_slice(&first).map_err(|error| failed(&format_args!("damaged: {error}")))?;
        if list.gradchain_shards != FORMAT || list.files.is_empty() {
            let found = list.gradchain_shards;
            return Err(failed(&format_args!(
                "it lists shards of format {found}, and this version of gradchain reads {FORMAT}"
            )));
        }
        Ok(Some(ShardList { path: target_of(path).map_err(refused)?, ..list }))
    }

    /// Writes the list, and removes the files that it replaces.
    fn write_checkpoint(&self) -> Result<()> {
        replace_file(&self.path, |shown, file| {
            let text = serde_json::to_vec(self).map_err(|error| Error::file(shown, error.to_string()))?;
            file.write_all(&text).map_err(|error| Error::io(shown, &error))
        })?;
        remove_unlisted(&self.path);
        Ok(())
    }

    /// Returns the first rank's file, which has the notes.
    fn first(&self) -> Option<PathBuf> {
        self.files.first().map(|(name, _)| folder_of(&self.path).join(name))
    }

    pub(super) fn open(&self) -> Result<Checkpoint> {
        let shown = self.path.display().to_string();
        let files = self.files.iter().enumerate().map(|(rank, (name, check))| {
            let file = Checkpoint::open_shard(&folder_of(&self.path).join(name))?;
            let expected = (Some((rank, self.files.len())), *check);
            if (file.manifest.shard, file.manifest.check) != expected {
                return Err(Error::file(name, format!("it is not the shard that {shown} lists")));
            }
            Ok(file)
        });
        Checkpoint::assemble(self.path.display().to_string(), files.collect::<Result<_>>()?)
    }
}

/// Reads the notes of a checkpoint of one or several ranks. Reads one header and leaves no file open.
pub(super) fn notes_of(path: &Path) -> Result<BTreeMap<String, String>> {
    let first = ShardList::of(path)?.and_then(|list| list.first());
    let path = first.as_deref().unwrap_or(path);
    let name = path.display().to_string();
    let source = Source::named(path.into()).map_err(|error| Error::io(&*name, &error))?;
    notes(&header_of(&name, &source)?).map_err(|problem| damaged(&name, problem))
}

/// Returns the path of the list that a rank's file belongs to, from the file's name; `None` for other files.
pub(super) fn list_of(file: &Path) -> Option<PathBuf> {
    let mut parts = file.file_name()?.to_str()?.strip_suffix(SHARD_SUFFIX)?.rsplitn(3, '.');
    let (ranks, attempt, called) = (parts.next()?, parts.next()?, parts.next()?);
    let (rank, size) = ranks.split_once("-of-")?;
    let ours = rank.parse::<usize>().ok()? < size.parse().ok()? && u64::from_str_radix(attempt, 16).is_ok();
    ours.then(|| file.with_file_name(called))
}

/// Removes files that are named as shards of this checkpoint but are not in its list. Ignores failures, and files that
/// another rank has removed.
pub(super) fn remove_unlisted(path: &Path) {
    let listed = match ShardList::of(path) {
        Ok(list) => list.map_or(Vec::new(), |list| list.files),
        Err(_) if !path.exists() => Vec::new(),
        // A damaged list's contents are unknown.
        Err(_) => return,
    };
    let is_listed = |file: &Path| listed.iter().any(|(name, _)| file.file_name().is_some_and(|found| found == &**name));
    let files = fs::read_dir(folder_of(path)).into_iter().flatten().flatten().map(|file| file.path());
    let unlisted = files.filter(|file| list_of(file).is_some_and(|list| list.file_name() == path.file_name()));
    unlisted.filter(|file| !is_listed(file)).for_each(|file| drop(fs::remove_file(file)));
}
