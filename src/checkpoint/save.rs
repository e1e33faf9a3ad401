//! Writing of checkpoints.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::buffers::{self, Buffers};
use super::manifest::{Crc, KEY, Manifest, Quantized, check_of};
use super::tensors::tensor_dtype;
use crate::internal::numeric::elements;
use crate::internal::restore::{as_data, is_shared};
use crate::internal::state::{Item, ItemName, Leaves, Owner, buffers_of, items};
use crate::tree::{LeafRef, Structure, Tree, Walk};
use crate::{DType, Error, GradientTransformation, OptState, Result};

/// The contents of a checkpoint to write: see [the module](super).
///
/// # Errors
///
/// Writing fails, with an older file of that name unchanged, if a panic left the state half written, the parameters do
/// not have the structure that it was made for, the optimizer as data has more than 256 levels of lists and objects
/// (127 nested wrappers), or the file cannot be written.
///
/// # Cost
///
/// One pass over the state, at the speed of the slower of check sum and disk. The state is not copied.
#[must_use = "nothing is written until `to_file` or `to_writer` is called"]
#[derive(Debug)]
pub struct Save<'a, T: GradientTransformation, P: ?Sized = ()> {
    transformation: &'a T,
    state: &'a OptState<T>,
    params: Option<&'a P>,
    notes: BTreeMap<String, String>,
}

impl<'a, T: GradientTransformation> Save<'a, T> {
    /// Returns the contents for a state and its transformation, which is saved too.
    pub fn new(transformation: &'a T, state: &'a OptState<T>) -> Save<'a, T> {
        Save { transformation, state, params: None, notes: BTreeMap::new() }
    }

    /// Adds the trained parameters, and the [buffers](crate::tree::Buffer) that the tree shows.
    ///
    /// [`load`](super::Checkpoint::load) restores both.
    ///
    /// Writing refuses parameters from the last call of [`eval_params`](OptState::eval_params):
    /// [`load_eval_params`](super::Checkpoint::load_eval_params) computes them from the file.
    pub fn params<P: Tree + ?Sized>(self, params: &'a P) -> Save<'a, T, P> {
        let Save { transformation, state, notes, .. } = self;
        Save { transformation, state, params: Some(params), notes }
    }
}

impl<'a, T: GradientTransformation, P: Tree + ?Sized> Save<'a, T, P> {
    /// Adds a note as text: the position in the data, a loss.
    pub fn note(mut self, name: impl Into<String>, value: impl core::fmt::Display) -> Self {
        self.notes.insert(name.into(), value.to_string());
        self
    }

    /// Writes a file, or replaces one atomically.
    ///
    /// A symbolic link stays a link: its target is written or replaced, in the target's folder.
    ///
    /// # Errors
    ///
    /// See [`Save`].
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<()> {
        replace_file(path.as_ref(), |shown, file| self.write(shown, file, None).map(drop))
    }

    /// Writes to any writer with `Seek`, such as a `Cursor` over a vector; flushes nothing.
    ///
    /// # Errors
    ///
    /// See [`Save`].
    pub fn to_writer(&self, mut to: impl Write + Seek) -> Result<()> {
        self.write("the writer", &mut to, None).map(drop)
    }

    /// Writes everything, or one rank's shard; returns the header's check sum, which covers the tensors'.
    pub(super) fn write(
        &self,
        shown: &str,
        to: &mut (impl Write + Seek),
        shard: Option<(usize, usize)>,
    ) -> Result<Crc> {
        let ModelOf { tensors, manifest } = self.model(shard)?;
        write_checkpoint(shown, to, tensors.iter().map(|(spec, sources)| (spec.clone(), sources)).collect(), manifest)
    }

    /// Collects the contents, of all ranks or one.
    pub(super) fn model(&self, shard: Option<(usize, usize)>) -> Result<ModelOf<'a>> {
        self.state.usable()?;
        if shard.is_none() && is_shared(&**self.state) {
            let problem = "the state is one rank's shard: `to_shards` writes those of all ranks";
            return Err(Error::state("checkpoint", problem));
        }
        let state: &'a OptState<T> = self.state;
        let structure = state.structure();
        let (mut tensors, mut kept, mut described) = (Vec::new(), Vec::new(), Buffers::new());
        // All ranks have all parameters; the first writes them.
        let has_params = self.params.is_some() && shard.is_none_or(|(rank, _)| rank == 0);
        if let Some(params) = self.params {
            let differences = structure.differences(params);
            if !differences.is_empty() {
                return Err(Error::structure("the parameters are not those that the state was made for", differences));
            }
            if self.state.is_evaluated(params) {
                let problem = "these parameters are for evaluation, made by `eval_params`: save the trained ones; \
                               `Checkpoint::load_eval_params` computes the others from the file";
                return Err(Error::state("checkpoint", problem));
            }
            if has_params {
                params
                    .walk(&mut Walk::new(&mut String::new(), &mut |path, leaf| tensors.push((param_name(path), leaf))));
                for (spec, buffer) in buffers_of(params) {
                    kept.push(buffers::Saved::new(buffer, &spec)?);
                    described.insert(spec.path().into(), (spec.dtype().into(), spec.shape().into()));
                }
            }
        }
        let (mut arrays, mut values) = (Vec::new(), Vec::new());
        let (mut parts, mut quantized) = (BTreeMap::new(), BTreeMap::new());
        for (name, item) in items(&**state, structure) {
            match item {
                Item::Single(value) => values.push((name, value)),
                Item::Array(leaf) => {
                    let tensor = state_name(&name);
                    if leaf.dtype().is_quantized() {
                        let (shape, strides) = match &leaf.part {
                            Some(part) => (part.shape.clone(), part.strides.clone()),
                            None => (leaf.shape().into(), leaf.strides().to_vec()),
                        };
                        quantized.insert(tensor.clone(), Quantized { dtype: leaf.dtype(), shape, strides });
                    }
                    parts.extend(leaf.part.clone().map(|part| (tensor.clone(), *part)));
                    tensors.push((tensor.clone(), leaf));
                    arrays.push((name, tensor));
                }
            }
        }
        let leaves = tensors
            .into_iter()
            .map(|(name, leaf)| (Spec::new(name, leaf.dtype(), leaf.shape()), TensorSource::Leaf(leaf)));
        let kept = kept.into_iter().map(|(spec, buffer)| (spec, TensorSource::Buffer(buffer)));
        let tensors: Vec<(Spec, TensorSource<'_>)> = leaves.chain(kept).collect();
        let manifest = self.manifest(structure, values, arrays)?;
        let manifest = Manifest { params: has_params, buffers: described, shard, parts, quantized, ..manifest };
        Ok(ModelOf { tensors, manifest })
    }

    fn manifest(
        &self,
        structure: &Structure,
        values: Vec<(ItemName, crate::internal::state::Single)>,
        arrays: Vec<(ItemName, String)>,
    ) -> Result<Manifest> {
        Ok(Manifest {
            optimizer: as_data(self.transformation)?,
            structure: Leaves::of(structure),
            params: self.params.is_some(),
            values,
            arrays,
            notes: self.notes.clone(),
            ..Manifest::default()
        })
    }
}

/// A model's tensors and description.
#[derive(Debug)]
pub(super) struct ModelOf<'a> {
    pub(super) tensors: Vec<(Spec, TensorSource<'a>)>,
    pub(super) manifest: Manifest,
}

/// Writes tensors and description; returns the header's check sum.
pub(super) fn write_checkpoint(
    shown: &str,
    to: &mut (impl Write + Seek),
    mut tensors: Vec<(Spec, &TensorSource<'_>)>,
    manifest: Manifest,
) -> Result<Crc> {
    in_order(&mut tensors, |(spec, _)| spec);
    if let Some(twice) = tensors.windows(2).find(|pair| pair[0].0.name == pair[1].0.name) {
        return Err(Error::state("checkpoint", format!("two arrays have the name `{}`", twice[0].0.name)));
    }
    let (specs, sources): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
    let read = |number: usize, take: Take<'_>| match sources[number] {
        TensorSource::Leaf(leaf) => leaf.read_bytes(take),
        TensorSource::Buffer(buffer) => buffer.read_bytes(take),
    };
    write(shown, to, &specs, read, manifest)
}

#[derive(Debug)]
pub(super) enum TensorSource<'a> {
    Leaf(LeafRef<'a>),
    Buffer(buffers::Saved<'a>),
}

/// Prefix and suffix of unfinished files.
pub(super) const TEMPORARY: (&str, &str) = (".gradchain-", ".tmp");

pub(super) fn param_name(path: &str) -> String {
    format!("params/{path}")
}

fn state_name(name: &ItemName) -> String {
    match &name.of {
        Owner::State => format!("state/{}", name.field),
        Owner::Leaf(path) => format!("state/{}/{path}", name.field),
        Owner::OtherTree(number) => format!("state/{}/#{number}", name.field),
    }
}

/// Writes a file, or replaces one atomically.
pub(super) fn replace_file(path: &Path, write: impl FnOnce(&str, &mut File) -> Result<()>) -> Result<()> {
    let shown = path.display().to_string();
    let failed = |error: io::Error| Error::io(&*shown, &error);
    let path = &target_of(path).map_err(failed)?;
    let folder = folder_of(path);
    let mut temporary = tempfile::Builder::new();
    temporary.prefix(TEMPORARY.0).suffix(TEMPORARY.1);
    #[cfg(unix)]
    {
        // The default permissions of new files, which the umask restricts.
        use std::os::unix::fs::PermissionsExt;
        temporary.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = temporary.tempfile_in(folder);
    let mut temporary = temporary.map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound || folder.is_dir() {
            return failed(error);
        }
        Error::file(&*shown, format!("the folder {} does not exist", folder.display()))
    })?;
    write(&shown, temporary.as_file_mut())?;
    temporary.as_file().sync_all().map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    sync_folder(folder).map_err(failed)
}

/// Returns the end of a chain of symbolic links, existing or not; other paths unchanged.
pub(super) fn target_of(path: &Path) -> io::Result<PathBuf> {
    /// The limit of Linux.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            return Ok(path);
        }
        path = folder_of(&path).join(fs::read_link(&path)?);
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Flushes a folder, so that a rename survives a loss of power; not every system allows it.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[derive(Clone, Debug)]
pub(super) struct Spec {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Spec {
    /// Describes a leaf's tensor; an 8-bit array's is its bytes.
    pub(super) fn new(name: String, dtype: DType, shape: &[usize]) -> Spec {
        let bytes = || vec![dtype.bytes(elements(shape).unwrap_or(0))];
        Spec::of(name, tensor_dtype(dtype), if dtype.is_quantized() { bytes() } else { shape.into() })
    }

    pub(super) fn of(name: String, dtype: Dtype, shape: Vec<usize>) -> Spec {
        Spec { name, dtype, shape }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Prefixes the name.
    pub(super) fn within(&self, prefix: &str) -> Spec {
        Spec { name: format!("{prefix}{}", self.name), ..self.clone() }
    }
}

/// Sorts tensors as the format requires: by decreasing alignment, then name.
pub(super) fn in_order<T>(tensors: &mut [T], spec: impl Fn(&T) -> &Spec) {
    tensors.sort_by(|x, y| {
        let (x, y) = (spec(x), spec(y));
        y.dtype.bitsize().cmp(&x.dtype.bitsize()).then_with(|| x.name.cmp(&y.name))
    });
}

pub(super) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Writes a file, tensors' bytes by `read`; returns the header's check sum.
///
/// The header is written twice, at one length: check sums are known only after the tensors.
pub(super) fn write(
    shown: &str,
    to: &mut (impl Write + Seek),
    tensors: &[Spec],
    read: impl Fn(usize, Take<'_>) -> Result<()>,
    mut manifest: Manifest,
) -> Result<Crc> {
    let failed = |error: io::Error| Error::io(shown, &error);
    manifest.crc32 = tensors.iter().map(|tensor| (tensor.name.clone(), Crc(0))).collect();
    let start = to.stream_position().map_err(failed)?;
    let first = header(shown, tensors, &manifest)?;
    to.write_all(&(first.len() as u64).to_le_bytes()).and_then(|()| to.write_all(first.as_bytes())).map_err(failed)?;
    for (number, tensor) in tensors.iter().enumerate() {
        let mut hasher = crc32fast::Hasher::new();
        read(number, &mut |bytes| {
            hasher.update(bytes);
            to.write_all(bytes).map_err(failed)
        })?;
        manifest.crc32.insert(tensor.name.clone(), Crc(hasher.finalize()));
    }
    let end = to.stream_position().map_err(failed)?;
    let unchecked = header(shown, tensors, &manifest)?;
    manifest.check = check_of(&unchecked).unwrap_or_default();
    let last = header(shown, tensors, &manifest)?;
    debug_assert_eq!((first.len(), check_of(&last)), (last.len(), Some(manifest.check)), "only digits have changed");
    to.seek(SeekFrom::Start(start + 8)).map_err(failed)?;
    to.write_all(last.as_bytes()).map_err(failed)?;
    to.seek(SeekFrom::Start(end)).map_err(failed)?;
    to.flush().map_err(failed)?;
    Ok(manifest.check)
}

fn header(shown: &str, tensors: &[Spec], manifest: &Manifest) -> Result<String> {
    let failed =
        |error: &dyn core::fmt::Display| Error::file(shown, format!("its header cannot be serialized: {error}"));
    let text = serde_json::to_string(manifest).map_err(|error| failed(&error))?;
    let metadata = metadata(Some(HashMap::from([(KEY.into(), text)])), tensors).map_err(|error| failed(&error))?;
    let mut header = serde_json::to_string(&metadata).map_err(|error| failed(&error))?;
    // The tensors begin at a multiple of eight.
    header.extend(core::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    Ok(header)
}

pub(super) fn metadata(
    entries: Option<HashMap<String, String>>,
    tensors: &[Spec],
) -> Result<Metadata, safetensors::SafeTensorError> {
    let mut offset = 0;
    let infos = tensors.iter().map(|Spec { name, dtype, shape }| {
        let begin = offset;
        offset += elements(shape).unwrap_or(0) * (dtype.bitsize() / 8);
        (name.clone(), TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (begin, offset) })
    });
    Metadata::new(entries, infos.collect())
}
