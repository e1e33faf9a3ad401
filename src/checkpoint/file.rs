//! An open file: header read and checked, tensors still on disk.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::assembly::Assembly;
use super::buffers;
use super::load::Load;
use super::manifest::{Crc, KEY, Manifest, Quantized, check_of};
use super::save::param_name;
use super::shards::ShardList;
use super::source::{Bytes, Source};
use super::tensors::{Tensors, leaf_dtype, put_bytes, tensor_dtype};
use crate::internal::numeric::elements;
use crate::tree::{BufferSpec, LeafMut, LeafRef, Structure, Tree, TreeMut};
use crate::{DType, Error, GradientTransformation, OptState, Result};

/// A checkpoint to load from: see [the module](super).
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) tensors: Tensors,
    pub(super) manifest: Manifest,
    pub(super) structure: Structure,
    pub(super) buffers: Vec<BufferSpec>,
    verified: AtomicBool,
    /// Several ranks' files, if they hold the tensors.
    pub(super) assembly: Option<Assembly>,
}

impl Checkpoint {
    /// Opens a file and reads its header. Loading reads the tensors in chunks.
    ///
    /// One file stays open while the checkpoint exists. Files that [several ranks] have written are read leaf by leaf,
    /// and each is open only during a read, so that their number may exceed the process limit of open files.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is truncated or longer than it declares, or its header is damaged.
    ///
    /// [several ranks]: https://docs.rs/gradchain/latest/gradchain/checkpoint/struct.Save.html#method.to_shards
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        if let Some(shards) = ShardList::of(path.as_ref())? {
            return shards.open();
        }
        let file = Checkpoint::open_any(path.as_ref())?;
        match file.manifest.shard {
            Some((rank, size)) => {
                let problem = format!("it is the shard of rank {rank} of {size}: open the list of all shards");
                Err(Error::file(&*file.tensors.name, problem))
            }
            None => Ok(file),
        }
    }

    /// Opens a file, perhaps one rank's shard.
    fn open_any(path: &Path) -> Result<Checkpoint> {
        let (tensors, header) = Tensors::open(path)?;
        Checkpoint::of(tensors, &header)
    }

    /// Reads the header of a shard, which is open only during reads.
    pub(super) fn open_shard(path: &Path) -> Result<Checkpoint> {
        let (tensors, header) = Tensors::named(path)?;
        Checkpoint::of(tensors, &header)
    }

    /// Maps a file into memory instead of reading it. Shards are not mapped.
    ///
    /// # Errors
    ///
    /// As [`open`](Checkpoint::open).
    ///
    /// # Safety
    ///
    /// Nothing may change or truncate the file while it is open. [`Save`](super::Save) does not change a file that it
    /// replaces: the new one is another file of the same name.
    #[allow(unsafe_code, reason = "the caller guarantees that the mapped file does not change")]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Checkpoint> {
        if let Some(shards) = ShardList::of(path.as_ref())? {
            return shards.open();
        }
        let name = path.as_ref().display().to_string();
        // SAFETY: the caller promises that the file does not change.
        let map = File::open(path).and_then(|file| unsafe { memmap2::Mmap::map(&file) });
        let map = map.map_err(|error| Error::io(&*name, &error))?;
        Checkpoint::read(name, Source::Bytes(Bytes::Mapped(map)))
    }

    /// Opens a checkpoint in memory.
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
                "it is a safetensors file, but not a checkpoint of gradchain; `Import` reads those of PyTorch and \
                 Optax",
            ));
        };
        let manifest = Manifest::parse(&tensors.name, text)?;
        if check_of(header) != Some(manifest.check) {
            return Err(tensors.damaged("the header does not match its checksum"));
        }
        let structure = manifest.structure.structure();
        let structure = structure.ok_or_else(|| tensors.damaged("a leaf exceeds the address space"))?;
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
            return Err(checkpoint.damaged(format!("the models describe {described} tensors, the file has {there}")));
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

    /// Checks metadata against the header.
    fn consistent(&self) -> Result<()> {
        let params = if self.manifest.params { self.structure.len() } else { 0 };
        let expected = self.manifest.arrays.len() + params + self.buffers.len();
        let announced = self.tensors.len();
        if expected != announced || announced != self.manifest.crc32.len() {
            return Err(self.damaged(format!("expected {expected} tensors, found {announced}")));
        }
        if self.manifest.params {
            for leaf in self.structure.leaves() {
                let info = self.tensors.info(&param_name(leaf.path()))?;
                if info.dtype != tensor_dtype(leaf.dtype()) || info.shape != leaf.shape() {
                    return Err(self.damaged(format_args!("the tensor of parameter {leaf} has another dtype or shape")));
                }
            }
        }
        self.consistent_buffers()?;
        for (tensor, quantized) in &self.manifest.quantized {
            let info = self.tensors.info(tensor)?;
            let whole = self.manifest.parts.contains_key(tensor) || quantized.len() == elements(&info.shape);
            if info.dtype != tensor_dtype(quantized.dtype) || quantized.len().is_none() || !whole {
                return Err(
                    self.damaged(format_args!("`{tensor}` has the wrong length for an array of {}", quantized.dtype))
                );
            }
        }
        let arrays = self.manifest.arrays.iter().map(|(_, tensor)| tensor);
        match arrays.chain(self.manifest.crc32.keys()).find(|tensor| self.tensors.get(tensor).is_none()) {
            Some(tensor) => Err(self.damaged(format!("missing tensor `{tensor}`"))),
            None => Ok(()),
        }
    }

    pub(super) fn damaged(&self, problem: impl core::fmt::Display) -> Error {
        self.tensors.damaged(problem)
    }

    /// Reads every byte and compares the check sums. Loading does so once for each file, before any write.
    ///
    /// # Errors
    ///
    /// Fails if a tensor differs from its check sum.
    pub fn verify(&self) -> Result<()> {
        if self.is_verified() {
            return Ok(());
        }
        self.assembly.as_ref().map_or(Ok(()), Assembly::verify)?;
        for (tensor, expected) in &self.manifest.crc32 {
            let mut hasher = crc32fast::Hasher::new();
            self.tensors.chunks(tensor, |chunk| hasher.update(chunk))?;
            self.same(tensor, *expected, hasher.finalize())?;
        }
        self.set_verified(true);
        Ok(())
    }

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
        Err(self.damaged(format_args!("tensor `{tensor}` has checksum {found:08x}, not {:08x}", expected.0)))
    }

    pub(super) fn array(&self, tensor: &str) -> Result<(DType, Vec<usize>)> {
        if let Some(quantized) = self.manifest.quantized.get(tensor) {
            return Ok((quantized.dtype, quantized.shape.clone()));
        }
        let info = self.tensors.info(tensor)?;
        let dtype = leaf_dtype(info.dtype);
        let dtype =
            dtype.ok_or_else(|| self.damaged(format_args!("`{tensor}` has the unsupported dtype {:?}", info.dtype)))?;
        Ok((dtype, info.shape.clone()))
    }

    /// Fills a leaf of equal shape with verified bytes. Elements of another dtype, or in other quantization blocks, are
    /// rounded.
    pub(super) fn fill(&self, tensor: &str, leaf: &mut LeafMut<'_>) -> Result<()> {
        if let Some(Quantized { dtype, shape, strides }) = self.manifest.quantized.get(tensor) {
            let bytes = self.bytes(tensor)?;
            let from = LeafRef::quantized(&bytes, *dtype, shape, strides);
            leaf.copy_from(&from.ok_or_else(|| self.damaged(format_args!("`{tensor}` has invalid strides")))?);
            return Ok(());
        }
        if let Some(assembly) = &self.assembly {
            put_bytes(leaf, self.array(tensor)?.0, &assembly.bytes(tensor)?);
            return Ok(());
        }
        let expected = self.manifest.crc32.get(tensor).copied().unwrap_or_default();
        let mut hasher = crc32fast::Hasher::new();
        self.tensors.fill(tensor, leaf, |chunk| hasher.update(chunk))?;
        self.same(tensor, expected, hasher.finalize())
    }

    pub(super) fn bytes(&self, tensor: &str) -> Result<Vec<u8>> {
        if let Some(assembly) = &self.assembly {
            return assembly.bytes(tensor);
        }
        let mut bytes = Vec::new();
        self.tensors.chunks(tensor, |chunk| bytes.extend_from_slice(chunk))?;
        let expected = self.manifest.crc32.get(tensor).copied().unwrap_or_default();
        self.same(tensor, expected, crc32fast::hash(&bytes))?;
        Ok(bytes)
    }

    /// Returns the structure of the trained parameters.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Returns whether the parameters are in the file.
    pub fn has_params(&self) -> bool {
        self.manifest.params
    }

    /// Returns the optimizer as JSON; functions are strings in angle brackets.
    pub fn optimizer(&self) -> String {
        format!("{:#}", self.manifest.optimizer)
    }

    /// Returns the version of this crate that wrote the file.
    pub fn version(&self) -> &str {
        &self.manifest.version
    }

    /// Returns a note of the checkpoint.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.manifest.notes.get(name).map(String::as_str)
    }

    /// Iterates over all notes, by name.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.manifest.notes.iter().map(|(name, note)| (name.as_str(), note.as_str()))
    }

    /// Loads the parameters and buffers, and returns the saved state, for the same optimizer: see [`Load::load`].
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if anything differs.
    pub fn load<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        transformation: &T,
        params: &mut P,
    ) -> Result<OptState<T>> {
        Load::strict().load(self, transformation, params).map(|(state, _)| state)
    }

    /// Returns the saved state, for existing parameters.
    ///
    /// # Errors
    ///
    /// Fails if anything but the parameters' values differs.
    pub fn load_state<T: GradientTransformation, P: Tree + ?Sized>(
        &self,
        transformation: &T,
        params: &P,
    ) -> Result<OptState<T>> {
        Load::strict().load_state(self, transformation, params).map(|(state, _)| state)
    }

    /// Loads only the trained parameters and the buffers; needs no optimizer, and reads no state of it.
    ///
    /// They are also the parameters to evaluate with, unless a wrapper keeps others: then use
    /// [`load_eval_params`](Checkpoint::load_eval_params).
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if they are not in the file, or differ in structure.
    pub fn load_params<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        Load::strict().load_params(self, params).map(|_| ())
    }

    /// Loads the parameters to evaluate with, if a wrapper trains others.
    ///
    /// Such wrappers are [`params_ema`](crate::params_ema()), [`schedule_free`](crate::wrapper::schedule_free()),
    /// [`lookahead`](crate::lookahead()) and [`sam`](crate::wrapper::sam()). The parameters are those that
    /// [`eval_params`](OptState::eval_params) computes from the saved ones. The buffers are loaded as saved.
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
    /// As [`load`](Checkpoint::load) and [`eval_params`](OptState::eval_params): fails, with nothing changed, also if
    /// the optimizer keeps no parameters besides the trained ones.
    pub fn load_eval_params<T: GradientTransformation, P: TreeMut + ?Sized>(
        &self,
        transformation: &T,
        params: &mut P,
    ) -> Result<()> {
        Load::strict().load_eval_params(self, transformation, params).map(|_| ())
    }
}
