//! Checkpoints that several ranks write, a file each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file::Checkpoint;
use super::manifest::{Crc, FORMAT, Manifest};
use super::save::{Save, folder_of, replace_file, write};
use super::source::{Bytes, Source};
use super::tensors::leaf_dtype;
use crate::collective::{Collective, gather};
use crate::element::with_dtype;
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::layout::{dense_strides, elements};
use crate::memory::Buffer;
use crate::tree::{LeafMut, LeafParts, LeafRef, PartOf, Tree};

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
    /// Writes a checkpoint of a [`sharded`](crate::wrapper::sharded()) optimizer: each rank a file with its share of the state, the first
    /// rank the parameters too, and when all of these are on the disk the first writes a list of them to `path`. All ranks call it,
    /// with the same path, in a folder that they share.
    ///
    /// [`Checkpoint::open`] opens the list, [`merge`] makes one file of all. Files of an older checkpoint of the same path are removed when
    /// the new list is there.
    ///
    /// # Errors
    ///
    /// See [`Save`]. If any rank cannot write, all have an error; if one is lost, the others have one that
    /// [`is_collective`](Error::is_collective). Whatever happens at whatever time, what is at `path` is the old checkpoint, whole, or the
    /// new one.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gradchain::checkpoint::{Checkpoint, Save};
    /// use gradchain::collective::threads;
    /// use gradchain::prelude::*;
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
        let (path, shown) = (path.as_ref(), path.as_ref().display().to_string());
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

/// Makes one file of those that several ranks have written; `list` is the path that [`Save::to_shards`] was given. The file is as one that
/// is written without [`sharded`](crate::wrapper::sharded()).
///
/// # Errors
///
/// If the list or a file cannot be read, is damaged, missing, or another than the list says; if the files do not belong
/// together; if the file cannot be written: an older file of that name is then as it was.
///
/// # Cost
///
/// The state and the parameters are in memory once, and in the file.
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
    let bytes = shards.merged()?;
    replace_file(to.as_ref(), |shown, file| {
        file.write_all(&bytes).map_err(|error| Error::file(shown, error.to_string()))
    })
}

impl ShardList {
    /// Reads a list, if that is what is there.
    pub(super) fn of(path: &Path) -> Result<Option<ShardList>> {
        let shown = path.display().to_string();
        let failed = |error: &dyn core::fmt::Display| Error::file(&*shown, error.to_string());
        let mut file = File::open(path).map_err(|error| failed(&error))?;
        let mut first = Vec::new();
        (&file).take(BEGINS.len() as u64).read_to_end(&mut first).map_err(|error| failed(&error))?;
        if first != BEGINS {
            return Ok(None);
        }
        file.read_to_end(&mut first).map_err(|error| failed(&error))?;
        let list: ShardList =
            serde_json::from_slice(&first).map_err(|error| failed(&format_args!("damaged: {error}")))?;
        if list.gradchain_shards != FORMAT || list.files.is_empty() {
            let found = list.gradchain_shards;
            return Err(failed(&format_args!("it lists files of format {found}, and this version reads {FORMAT}")));
        }
        Ok(Some(ShardList { path: path.into(), ..list }))
    }

    /// Writes the list, and removes the files that it takes the place of.
    fn put(&self) -> Result<()> {
        replace_file(&self.path, |shown, file| {
            let failed = |error: &dyn core::fmt::Display| Error::file(shown, error.to_string());
            let text = serde_json::to_vec(self).map_err(|error| failed(&error))?;
            file.write_all(&text).map_err(|error| failed(&error))
        })?;
        let called = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_older = |name: &str| {
            let ours = name.strip_prefix(called).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(ENDING));
            ours && !self.files.iter().any(|(file, _)| file == name)
        };
        // The new checkpoint is there: that an old file stays is no error.
        let files = fs::read_dir(folder_of(&self.path)).into_iter().flatten().flatten();
        let older = files.filter(|file| file.file_name().to_str().is_some_and(is_older));
        older.for_each(|file| drop(fs::remove_file(file.path())));
        Ok(())
    }

    /// All files as one, in memory.
    pub(super) fn merge(&self) -> Result<Checkpoint> {
        let bytes = self.merged()?;
        Checkpoint::read(self.path.display().to_string(), Source::Bytes(Bytes::Owned(bytes)))
    }

    fn merged(&self) -> Result<Vec<u8>> {
        let shown = self.path.display().to_string();
        let shards = self.files.iter().enumerate().map(|(rank, (name, check))| {
            let file = Checkpoint::open_shard(&folder_of(&self.path).join(name))?;
            let expected = (Some((rank, self.files.len())), *check);
            if (file.manifest.shard, file.manifest.check) != expected {
                return Err(Error::file(name, format!("it is not the file that {shown} lists")));
            }
            Ok(file)
        });
        let shards = shards.collect::<Result<Vec<_>>>()?;
        let first = &shards[0].manifest;
        let mut whole = Manifest { shard: None, parts: BTreeMap::new(), arrays: Vec::new(), ..first.clone() };
        let (mut values, mut arrays) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in &first.values {
            values.insert(name, (*value, 0));
        }
        for (rank, shard) in shards.iter().enumerate() {
            let of_shard = &shard.manifest;
            if (&of_shard.optimizer, &of_shard.structure) != (&first.optimizer, &first.structure) {
                return Err(shard.damaged("it is of another optimizer or model than that of rank 0"));
            }
            for (name, value) in &of_shard.values {
                match values.entry(name) {
                    Entry::Vacant(place) => {
                        place.insert((*value, rank));
                        whole.values.push((name.clone(), *value));
                    }
                    Entry::Occupied(place) if place.get().0.same(value) => {}
                    Entry::Occupied(place) => {
                        let other = place.get().1;
                        return Err(shard.damaged(format_args!("`{name}` is not what it is on rank {other}")));
                    }
                }
            }
            for (name, tensor) in &of_shard.arrays {
                let is_new = !arrays.contains_key(tensor);
                let array = arrays.entry(tensor).or_insert_with(Vec::new);
                array.push(shard);
                if is_new {
                    whole.arrays.push((name.clone(), tensor.clone()));
                }
            }
        }
        let mut room: Vec<(String, Array)> = Vec::new();
        for (tensor, shards) in arrays {
            room.push((tensor.clone(), Array::of(tensor, &shards)?));
        }
        for tensor in first.crc32.keys().filter(|tensor| tensor.starts_with("params/")) {
            room.push((tensor.clone(), Array::of(tensor, &[&shards[0]])?));
        }
        let mut tensors: Vec<_> = room.iter().map(|(name, array)| (name.clone(), array.view())).collect();
        tensors.sort_by(|(a, x), (b, y)| y.dtype().size().cmp(&x.dtype().size()).then_with(|| a.cmp(b)));
        let mut bytes = Cursor::new(Vec::new());
        write(&shown, &mut bytes, &tensors, whole)?;
        Ok(bytes.into_inner())
    }
}

/// An array that is put together.
struct Array {
    data: Buffer,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl Array {
    /// From the files that have some of it, or all.
    fn of(tensor: &str, shards: &[&Checkpoint]) -> Result<Array> {
        let part_of = |shard: &Checkpoint| shard.manifest.parts.get(tensor).cloned();
        // Where one rank has a leaf whole, the others have a part without elements.
        let is_empty = |shard: &&Checkpoint| {
            part_of(shard).is_some() && shard.tensors.info(tensor).is_ok_and(|info| elements(&info.shape) == Some(0))
        };
        let some: Vec<&Checkpoint> = shards.iter().copied().filter(|shard| !is_empty(shard)).collect();
        let shards = if some.is_empty() { shards } else { &some[..] };
        let first = shards[0];
        let info = first.tensors.info(tensor)?;
        let dtype = leaf_dtype(info.dtype);
        let dtype = dtype.ok_or_else(|| first.damaged(format_args!("`{tensor}` is of type {:?}", info.dtype)))?;
        let whole = PartOf { begins: 0, shape: info.shape.clone(), strides: dense_strides(&info.shape).to_vec() };
        let whole = part_of(first).unwrap_or(whole);
        let len = elements(&whole.shape).filter(|len| len.checked_mul(dtype.size()).is_some());
        let len = len.ok_or_else(|| first.damaged(format_args!("`{tensor}` is larger than any memory")))?;
        let mut array = Array { data: Buffer::zeros(dtype, len), shape: whole.shape, strides: whole.strides };
        let (mut filled, mut check) = (0, None);
        for shard in shards {
            let info = shard.tensors.info(tensor)?;
            let found = elements(&info.shape).unwrap_or(usize::MAX);
            let Some(part) = part_of(shard) else {
                // What is not shared out is the same everywhere.
                let own = shard.manifest.crc32.get(tensor);
                if info.shape != array.shape || *check.get_or_insert(own) != own {
                    return Err(shard.damaged(format_args!("`{tensor}` is not what it is on other ranks")));
                }
                array.fill(shard, tensor, 0, found)?;
                filled = len;
                continue;
            };
            let fits = part.begins.checked_add(found).is_some_and(|end| end <= len)
                && (&part.shape, &part.strides) == (&array.shape, &array.strides)
                && leaf_dtype(info.dtype) == Some(dtype);
            if !fits {
                return Err(shard.damaged(format_args!("`{tensor}` is no part of that of other ranks")));
            }
            array.fill(shard, tensor, part.begins, found)?;
            filled += found;
        }
        if filled != len {
            return Err(first.damaged(format_args!("`{tensor}` has {filled} of {len} elements on all ranks together")));
        }
        Ok(array)
    }

    fn fill(&mut self, shard: &Checkpoint, tensor: &str, begins: usize, len: usize) -> Result<()> {
        with_dtype!(self.data.dtype(), T => {
            let data = self.data.get_mut::<T>().unwrap_or_default();
            shard.fill(tensor, &mut LeafMut::from_slice(&mut data[begins..begins + len], &[len])?)
        })
    }

    fn parts(&self) -> LeafParts {
        LeafParts { data: self.data.raw(), shape: self.shape[..].into(), strides: self.strides[..].into() }
    }

    fn view(&self) -> LeafRef<'_> {
        LeafRef::lend(self.parts())
    }
}

impl Checkpoint {
    /// Fills a stretch of an array, of which the file has all.
    pub(super) fn fill_part(&self, tensor: &str, leaf: &mut LeafMut<'_>, part: &PartOf) -> Result<()> {
        let data = Buffer::zeros(leaf.dtype(), elements(&part.shape).unwrap_or(0));
        let mut whole = Array { data, shape: part.shape.clone(), strides: part.strides.clone() };
        self.fill(tensor, &mut LeafMut::lend(whole.parts()))?;
        let len = elements(leaf.shape()).unwrap_or(0);
        with_dtype!(leaf.dtype(), T => {
            let data = whole.data.get_mut::<T>().unwrap_or_default();
            let here = LeafRef::from_slice(&data[part.begins..part.begins + len], &[len])?;
            leaf.copy_from(&here);
        });
        Ok(())
    }
}
