//! A file that has been opened: its header is known and consistent, its tensors are still on the disk.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::assembly::Assembly;
use super::buffers;
use super::load::Load;
use super::manifest::{Coded, Crc, KEY, Manifest, check_of};
use super::save::param_name;
use super::shards::ShardList;
use super::source::{Bytes, Source};
use super::tensors::{Tensors, leaf_dtype, put_bytes, tensor_dtype};
use crate::element::DType;
use crate::engine::Stage;
use crate::error::{Error, Result};
use crate::layout::elements;
use crate::transformation::OptState;
use crate::tree::{BufferSpec, LeafMut, LeafRef, Structure, Tree, TreeMut};

/// A checkpoint to load from: see [the module](super).
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) tensors: Tensors,
    pub(super) manifest: Manifest,
    pub(super) structure: Structure,
    pub(super) buffers: Vec<BufferSpec>,
    verified: AtomicBool,
    /// The files of several ranks, if the tensors are in these.
    pub(super) assembly: Option<Assembly>,
}

impl Checkpoint {
    /// Opens a file and reads its header. Tensors are read when they are loaded, piece by piece.
    ///
    /// One file stays open while the checkpoint exists. Files that [several ranks](super::Save::to_shards) have written
    /// are read leaf by leaf, and each is open only while it is read, so that there may be more of them than a process
    /// may open.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is cut off or longer than it says, or its header is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        if let Some(shards) = ShardList::of(path.as_ref())? {
            return shards.open();
        }
        let file = Checkpoint::open_any(path.as_ref())?;
        match file.manifest.shard {
            Some((rank, size)) => {
                let problem = format!("it is what rank {rank} of {size} has written: open the list of all of them");
                Err(Error::file(&*file.tensors.name, problem))
            }
            None => Ok(file),
        }
    }

    /// Opens a file that may be one rank's share.
    fn open_any(path: &Path) -> Result<Checkpoint> {
        let (tensors, header) = Tensors::open(path)?;
        Checkpoint::of(tensors, &header)
    }

    /// Reads the header of one rank's share, which is open only while it is read.
    pub(super) fn open_shard(path: &Path) -> Result<Checkpoint> {
        let (tensors, header) = Tensors::named(path)?;
        Checkpoint::of(tensors, &header)
    }

    /// Opens a file that is mapped into memory instead of read. Those of several ranks are not mapped.
    ///
    /// # Errors
    ///
    /// As [`open`](Checkpoint::open).
    ///
    /// # Safety
    ///
    /// Nobody may change or shorten the file while it is open. A file that [`Save`](super::Save) replaces is not
    /// changed: the new one is another file of the same name.
    #[allow(unsafe_code, reason = "what a map needs is promised by the caller")]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Checkpoint> {
        if let Some(shards) = ShardList::of(path.as_ref())? {
            return shards.open();
        }
        let name = path.as_ref().display().to_string();
        // SAFETY: the file does not change, by the caller's promise.
        let map = File::open(path).and_then(|file| unsafe { memmap2::Mmap::map(&file) });
        let map = map.map_err(|error| Error::io(&*name, &error))?;
        Checkpoint::read(name, Source::Bytes(Bytes::Mapped(map)))
    }

    /// A checkpoint in memory.
    ///
    /// # Errors
    ///
    /// As [`open`](Checkpoint::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Checkpoint> {
        Checkpoint::read("the checkpoint".into(), Source::Bytes(Bytes::Owned(bytes)))
    }

    pub(super) fn read(name: String, source: Source) -> Result<Checkpoint> {
        let (tensors, header) = Tensors::read(name, source)?;
        Checkpoint::of(tensors, &header)
    }

    fn of(tensors: Tensors, header: &str) -> Result<Checkpoint> {
        let text = tensors.metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let Some(text) = text else {
            return Err(Error::file(
                &*tensors.name,
                "it is a safetensors file, and not a checkpoint of this crate; `Import` reads those of PyTorch and Optax",
            ));
        };
        let manifest = Manifest::parse(&tensors.name, text)?;
        if check_of(header) != Some(manifest.check) {
            return Err(tensors.damaged("the check sum of the header is not that of the header"));
        }
        let structure = manifest.structure.structure();
        let structure = structure.ok_or_else(|| tensors.damaged("a leaf is larger than any memory"))?;
        let checkpoint = Checkpoint::new(tensors, manifest, structure, None);
        if checkpoint.manifest.models.is_empty() {
            checkpoint.consistent()?;
            return Ok(checkpoint);
        }
        let mut described = 0;
        for name in checkpoint.manifest.models.keys() {
            if let Some(model) = checkpoint.view(name)? {
                model.consistent()?;
                described += model.tensors.len();
            }
        }
        let there = checkpoint.tensors.len();
        if described != there {
            return Err(checkpoint.damaged(format!("the models have {described} tensors, {there} are there")));
        }
        Ok(checkpoint)
    }

    pub(super) fn new(
        tensors: Tensors,
        manifest: Manifest,
        structure: Structure,
        assembly: Option<Assembly>,
    ) -> Checkpoint {
        let buffers = buffers::specs(&manifest.buffers);
        Checkpoint { tensors, manifest, structure, buffers, verified: false.into(), assembly }
    }

    /// The metadata and the header are of the same tensors.
    fn consistent(&self) -> Result<()> {
        let params = if self.manifest.params { self.structure.len() } else { 0 };
        let expected = self.manifest.arrays.len() + params + self.buffers.len();
        let announced = self.tensors.len();
        if expected != announced || announced != self.manifest.crc32.len() {
            return Err(self.damaged(format!("{expected} tensors are described, {announced} are there")));
        }
        if self.manifest.params {
            for leaf in self.structure.leaves() {
                let info = self.tensors.info(&param_name(leaf.path()))?;
                if info.dtype != tensor_dtype(leaf.dtype()) || info.shape != leaf.shape() {
                    return Err(self.damaged(format_args!("the parameter {leaf} is not of the type and shape it has")));
                }
            }
        }
        self.consistent_buffers()?;
        for (tensor, coded) in &self.manifest.coded {
            let info = self.tensors.info(tensor)?;
            let whole = self.manifest.parts.contains_key(tensor) || coded.len() == elements(&info.shape);
            if info.dtype != tensor_dtype(coded.dtype) || coded.len().is_none() || !whole {
                return Err(self.damaged(format_args!("`{tensor}` is not as long as an array of {}", coded.dtype)));
            }
        }
        let arrays = self.manifest.arrays.iter().map(|(_, tensor)| tensor);
        match arrays.chain(self.manifest.crc32.keys()).find(|tensor| self.tensors.get(tensor).is_none()) {
            Some(tensor) => Err(self.damaged(format!("there is no tensor `{tensor}`"))),
            None => Ok(()),
        }
    }

    pub(super) fn damaged(&self, problem: impl core::fmt::Display) -> Error {
        self.tensors.damaged(problem)
    }

    /// Reads every byte and compares the check sums. Done before anything that exists is written to, once for each
    /// file.
    ///
    /// # Errors
    ///
    /// If a tensor is not as it was written.
    pub fn verify(&self) -> Result<()> {
        if self.is_verified() {
            return Ok(());
        }
        self.assembly.as_ref().map_or(Ok(()), Assembly::verify)?;
        for (tensor, expected) in &self.manifest.crc32 {
            let mut hasher = crc32fast::Hasher::new();
            self.tensors.pieces(tensor, |piece| hasher.update(piece))?;
            self.same(tensor, *expected, hasher.finalize())?;
        }
        self.set_verified(true);
        Ok(())
    }

    /// True if every byte is known to be as it was written.
    pub(super) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    pub(super) fn set_verified(&self, is_verified: bool) {
        self.verified.store(is_verified, Ordering::Relaxed);
    }

    fn same(&self, tensor: &str, expected: Crc, found: u32) -> Result<()> {
        if expected == Crc(found) {
            return Ok(());
        }
        Err(self.damaged(format_args!("tensor `{tensor}` has check sum {found:08x}, not {:08x}", expected.0)))
    }

    /// The type and shape of an array of the state.
    pub(super) fn array(&self, tensor: &str) -> Result<(DType, Vec<usize>)> {
        if let Some(coded) = self.manifest.coded.get(tensor) {
            return Ok((coded.dtype, coded.shape.clone()));
        }
        let info = self.tensors.info(tensor)?;
        let dtype = leaf_dtype(info.dtype);
        let dtype = dtype.ok_or_else(|| self.damaged(format_args!("`{tensor}` is of type {:?}", info.dtype)))?;
        Ok((dtype, info.shape.clone()))
    }

    /// Fills a leaf, whose shape has been compared, and checks what has been read. Of another type, or in other blocks,
    /// it is rounded.
    pub(super) fn fill(&self, tensor: &str, leaf: &mut LeafMut<'_>) -> Result<()> {
        if let Some(Coded { dtype, shape, strides }) = self.manifest.coded.get(tensor) {
            let bytes = self.bytes(tensor)?;
            let from = LeafRef::coded(&bytes, *dtype, shape, strides);
            leaf.copy_from(&from.ok_or_else(|| self.damaged(format_args!("`{tensor}` lies in no order")))?);
            return Ok(());
        }
        if let Some(assembly) = &self.assembly {
            put_bytes(leaf, self.array(tensor)?.0, &assembly.bytes(tensor)?);
            return Ok(());
        }
        let expected = self.manifest.crc32.get(tensor).copied().unwrap_or_default();
        let mut hasher = crc32fast::Hasher::new();
        self.tensors.fill(tensor, leaf, |piece| hasher.update(piece))?;
        self.same(tensor, expected, hasher.finalize())
    }

    /// The bytes of a tensor, checked.
    pub(super) fn bytes(&self, tensor: &str) -> Result<Vec<u8>> {
        if let Some(assembly) = &self.assembly {
            return assembly.bytes(tensor);
        }
        let mut bytes = Vec::new();
        self.tensors.pieces(tensor, |piece| bytes.extend_from_slice(piece))?;
        let expected = self.manifest.crc32.get(tensor).copied().unwrap_or_default();
        self.same(tensor, expected, crc32fast::hash(&bytes))?;
        Ok(bytes)
    }

    /// The structure of the parameters that were trained.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Whether the parameters are in the file.
    pub fn has_params(&self) -> bool {
        self.manifest.params
    }

    /// The optimizer as data, in JSON; functions are texts in angle brackets.
    pub fn optimizer(&self) -> String {
        format!("{:#}", self.manifest.optimizer)
    }

    /// The version of this crate that wrote the file.
    pub fn version(&self) -> &str {
        &self.manifest.version
    }

    /// A note that was written with the checkpoint.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.manifest.notes.get(name).map(String::as_str)
    }

    /// All notes, by name.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.manifest.notes.iter().map(|(name, note)| (name.as_str(), note.as_str()))
    }

    /// Loads the parameters and buffers, and makes the state that was saved, for the same optimizer: see
    /// [`Load::load`].
    ///
    /// # Errors
    ///
    /// If anything at all differs; nothing is changed then.
    pub fn load<T: Stage, P: TreeMut + ?Sized>(&self, transformation: &T, params: &mut P) -> Result<OptState<T>> {
        Load::strict().load(self, transformation, params).map(|(state, _)| state)
    }

    /// Makes the state that was saved, for parameters that are here already.
    ///
    /// # Errors
    ///
    /// If anything at all differs, but for the parameters' values.
    pub fn load_state<T: Stage, P: Tree + ?Sized>(&self, transformation: &T, params: &P) -> Result<OptState<T>> {
        Load::strict().load_state(self, transformation, params).map(|(state, _)| state)
    }

    /// Loads the parameters that are trained, and the buffers, alone: no optimizer is needed, and none of its state is
    /// read.
    ///
    /// They are the ones to evaluate with too, unless a wrapper keeps others:
    /// [`load_eval_params`](Checkpoint::load_eval_params).
    ///
    /// # Errors
    ///
    /// If they are not in the file, or differ in structure; nothing is changed then.
    pub fn load_params<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        Load::strict().load_params(self, params).map(|_| ())
    }

    /// Loads the parameters to evaluate with, where a wrapper such as [`params_ema`](crate::params_ema()),
    /// [`schedule_free`](crate::wrapper::schedule_free()), [`lookahead`](crate::lookahead()) or
    /// [`sam`](crate::wrapper::sam()) trains others: as [`eval_params`](OptState::eval_params) makes them of what was
    /// saved. The buffers are loaded as they were saved.
    ///
    /// ```
    /// use gradchain::checkpoint::{Checkpoint, Save};
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = params_ema(sgd(0.5), 0.5);
    /// let mut params = vec![1.0_f32];
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &vec![1.0_f32], &mut state)?;
    /// let mut file = std::io::Cursor::new(Vec::new());
    /// Save::new(&optimizer, &state).params(&params).to_writer(&mut file)?;
    ///
    /// let (file, mut model) = (Checkpoint::from_bytes(file.into_inner())?, vec![0.0_f32]);
    /// file.load_eval_params(&optimizer, &mut model)?;
    /// assert_eq!(model, *state.eval_params(&params)?);
    /// file.load_params(&mut model)?;
    /// assert_eq!(model, params);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`load`](Checkpoint::load) and [`eval_params`](OptState::eval_params): also if nothing in the optimizer keeps
    /// other parameters than those that are trained. Nothing is changed then.
    pub fn load_eval_params<T: Stage, P: TreeMut + ?Sized>(&self, transformation: &T, params: &mut P) -> Result<()> {
        Load::strict().load_eval_params(self, transformation, params).map(|_| ())
    }
}
