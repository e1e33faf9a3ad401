//! Checkpoints that several ranks write, a file each.

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
use crate::collective::{Collective, gather};
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::tree::Tree;

/// The files of all ranks, by rank: what the list of them says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShardList {
    /// Where the list is.
    #[serde(skip)]
    path: PathBuf,
    gradchain_shards: u32,
    files: Vec<(String, Crc)>,
}

/// How the names of these files end.
const ENDING: &str = ".shard";

/// How such a list begins. A file of tensors begins with a length, which this would make larger than any.
const BEGINS: &[u8] = br#"{"gradchain_shards":"#;

impl<T: Stage, P: Tree + ?Sized> Save<'_, T, P> {
    /// Writes a checkpoint of a [`sharded`](crate::wrapper::sharded()) optimizer: each rank a file with its share of
    /// the state, the first rank the parameters too, and when all of these are on the disk the first writes a list of
    /// them to `path`. All ranks call it, with the same path, in a folder that they share.
    ///
    /// [`Checkpoint::open`] opens the list, [`merge`] makes one file of all. Files of an older checkpoint of the same
    /// path are removed when the new list is there.
    ///
    /// # Errors
    ///
    /// See [`Save`]. If any rank cannot write, all have an error; if one is lost, the others have one that
    /// [`is_collective`](Error::is_collective). Whatever happens at whatever time, what is at `path` is the old
    /// checkpoint, whole, or the new one.
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
        // The ranks' files lie beside their list, which a symbolic link may lead to. A loop of links is an error when
        // the list is written, on all ranks.
        let path = &target_of(path.as_ref()).unwrap_or_else(|_| path.as_ref().into());
        let (rank, size) = (collective.rank(), collective.size());
        let Some(called) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::file(shown, "it is not the name of a file"));
        };
        // Files of another attempt are others, so that those which a list names are never written to.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut attempt = (now ^ u64::from(std::process::id()).rotate_right(16)).to_le_bytes().to_vec();
        collective.broadcast(0, &mut attempt)?;
        let attempt: String = attempt.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = |rank: usize| format!("{called}.{attempt}.{rank}-of-{size}{ENDING}");
        let mut check = Crc::default();
        let written = replace_file(&folder_of(path).join(file(rank)), |shown, file| {
            check = self.write(shown, file, Some((rank, size)))?;
            Ok(())
        });
        let checks = all_done(collective, written.map(|()| check))?;
        let listed = if rank == 0 {
            let files = checks.into_iter().enumerate().map(|(rank, check)| (file(rank), check)).collect();
            ShardList { path: path.into(), gradchain_shards: FORMAT, files }.put()
        } else {
            Ok(())
        };
        all_done(collective, listed.map(|()| Crc::default())).map(drop)
    }
}

/// What all ranks have come to, if they have.
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
            let problem = format!("rank {rank} could not write its part: {}", String::from_utf8_lossy(said));
            Err(Error::collective(collective.rank(), problem))
        }
    };
    all.iter().enumerate().map(one).collect()
}

/// Makes one file of those that several ranks have written; `list` is the path that [`Save::to_shards`] was given. The
/// file is as one that is written without [`sharded`](crate::wrapper::sharded()).
///
/// # Errors
///
/// If the list or a file cannot be read, is damaged, missing, or another than the list says; if the files do not belong
/// together; if the file cannot be written: an older file of that name is then as it was.
///
/// # Cost
///
/// Everything is read twice, and the largest leaf is in memory.
///
/// # Example
///
/// ```no_run
/// gradchain::checkpoint::merge("run/step-000000001000.safetensors", "last.safetensors")?;
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn merge(list: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (list, shown) = (list.as_ref(), list.as_ref().display().to_string());
    let Some(shards) = ShardList::of(list)? else { return Err(Error::file(shown, "it is no list of shards")) };
    let whole = shards.open()?;
    whole.verify()?;
    replace_file(to.as_ref(), |shown, file| whole.write_as_one(shown, file))
}

impl ShardList {
    /// Reads a list, if that is what is there.
    pub(super) fn of(path: &Path) -> Result<Option<ShardList>> {
        let shown = path.display().to_string();
        let failed = |error: &dyn core::fmt::Display| Error::file(&*shown, error.to_string());
        let refused = |error: io::Error| Error::io(&*shown, &error);
        let mut file = File::open(path).map_err(refused)?;
        let mut first = Vec::new();
        (&file).take(BEGINS.len() as u64).read_to_end(&mut first).map_err(refused)?;
        if first != BEGINS {
            return Ok(None);
        }
        file.read_to_end(&mut first).map_err(refused)?;
        let list: ShardList =
            serde_json::from_slice(&first).map_err(|error| failed(&format_args!("damaged: {error}")))?;
        if list.gradchain_shards != FORMAT || list.files.is_empty() {
            let found = list.gradchain_shards;
            return Err(failed(&format_args!("it lists files of format {found}, and this version reads {FORMAT}")));
        }
        Ok(Some(ShardList { path: target_of(path).map_err(refused)?, ..list }))
    }

    /// Writes the list, and removes the files that it takes the place of.
    fn put(&self) -> Result<()> {
        replace_file(&self.path, |shown, file| {
            let text = serde_json::to_vec(self).map_err(|error| Error::file(shown, error.to_string()))?;
            file.write_all(&text).map_err(|error| Error::io(shown, &error))
        })?;
        remove_unlisted(&self.path);
        Ok(())
    }

    /// Returns the file of the first rank, which has the notes.
    fn first(&self) -> Option<PathBuf> {
        self.files.first().map(|(name, _)| folder_of(&self.path).join(name))
    }

    /// All files as one.
    pub(super) fn open(&self) -> Result<Checkpoint> {
        let shown = self.path.display().to_string();
        let files = self.files.iter().enumerate().map(|(rank, (name, check))| {
            let file = Checkpoint::open_shard(&folder_of(&self.path).join(name))?;
            let expected = (Some((rank, self.files.len())), *check);
            if (file.manifest.shard, file.manifest.check) != expected {
                return Err(Error::file(name, format!("it is not the file that {shown} lists")));
            }
            Ok(file)
        });
        Checkpoint::assemble(self.path.display().to_string(), files.collect::<Result<_>>()?)
    }
}

/// Reads the notes of a checkpoint, of one file or of several ranks: one header is read, and no file stays open.
pub(super) fn notes_of(path: &Path) -> Result<BTreeMap<String, String>> {
    let first = ShardList::of(path)?.and_then(|list| list.first());
    let path = first.as_deref().unwrap_or(path);
    let name = path.display().to_string();
    let source = Source::named(path.into()).map_err(|error| Error::io(&*name, &error))?;
    notes(&header_of(&name, &source)?).map_err(|problem| damaged(&name, problem))
}

/// The list that a file of a rank would be in, by its name.
pub(super) fn list_of(file: &Path) -> Option<PathBuf> {
    let mut parts = file.file_name()?.to_str()?.strip_suffix(ENDING)?.rsplitn(3, '.');
    let (ranks, attempt, called) = (parts.next()?, parts.next()?, parts.next()?);
    let (rank, size) = ranks.split_once("-of-")?;
    let ours = rank.parse::<usize>().ok()? < size.parse().ok()? && u64::from_str_radix(attempt, 16).is_ok();
    ours.then(|| file.with_file_name(called))
}

/// Removes the files of ranks that are of the checkpoint at this path by their names, and not in its list. That one
/// stays is no error, nor that another rank has removed it.
pub(super) fn remove_unlisted(path: &Path) {
    let listed = match ShardList::of(path) {
        Ok(list) => list.map_or(Vec::new(), |list| list.files),
        Err(_) if !path.exists() => Vec::new(),
        // What a damaged list says is not known.
        Err(_) => return,
    };
    let is_listed = |file: &Path| listed.iter().any(|(name, _)| file.file_name().is_some_and(|found| found == &**name));
    let files = fs::read_dir(folder_of(path)).into_iter().flatten().flatten().map(|file| file.path());
    let unlisted = files.filter(|file| list_of(file).is_some_and(|list| list.file_name() == path.file_name()));
    unlisted.filter(|file| !is_listed(file)).for_each(|file| drop(fs::remove_file(file)));
}
