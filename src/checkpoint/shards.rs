//! Checkpoints of several ranks, a file each.

#[cfg(feature = "collective")]
mod write;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::Checkpoint;
use super::manifest::{Crc, FORMAT, notes};
use super::save::{folder_of, replace_file, target_of};
use super::source::Source;
use super::tensors::{damaged, header_of};
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

/// Combines the files of several ranks into one; `list` is the path passed to [`Save::to_shards`].
///
/// The file equals one written without [`sharded`].
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
///
/// [`Save::to_shards`]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Save.html#method.to_shards
/// [`sharded`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.sharded.html
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
