//! A safetensors file: header read, tensors not loaded.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::source::{Bytes, Reader, Source};
use crate::internal::numeric::{Buffer, dense_strides, elements};
use crate::tree::{LeafMut, LeafRef};
use crate::{DType, Error, Result};

#[derive(Debug)]
pub(super) struct Tensors {
    /// The file's name in messages.
    pub(super) name: String,
    source: Arc<Source>,
    start: u64,
    pub(super) metadata: Arc<Metadata>,
    /// Prefix of the selected tensors, named without it.
    prefix: String,
}

/// Beginnings of files mistaken for checkpoints, and their formats.
const OTHERS: [(&[u8], &str); 6] = [
    (b"PK\x03\x04", "a zip archive, as `torch.save` and `numpy.savez` write"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file, as Keras writes"),
    (b"GGUF", "a GGUF file"),
];

/// The maximum length of a header in bytes, as in the format's own readers.
const MAX_HEADER_BYTES: u64 = 100_000_000;

impl Tensors {
    /// Opens a file, which stays open, and returns its header too.
    pub(super) fn open(path: &Path) -> Result<(Tensors, String)> {
        let name = path.display().to_string();
        let file = File::open(path).and_then(Source::file).map_err(|error| Error::io(&*name, &error))?;
        Tensors::read(name, file)
    }

    /// As [`open`](Self::open), for a file open only during reads.
    pub(super) fn named(path: &Path) -> Result<(Tensors, String)> {
        let name = path.display().to_string();
        let file = Source::named(path.into()).map_err(|error| Error::io(&*name, &error))?;
        Tensors::read(name, file)
    }

    pub(super) fn read(name: String, source: Source) -> Result<(Tensors, String)> {
        let damaged = |problem: &dyn core::fmt::Display| damaged(&name, problem);
        let header = header_of(&name, &source)?;
        let metadata: Metadata = serde_json::from_str(&header).map_err(|error| damaged(&error))?;
        let (length, found) = (header.len() as u64, source.len());
        match (length + 8).checked_add(metadata.data_len() as u64) {
            Some(expected) if found == expected => {}
            Some(expected) if found < expected => {
                return Err(Error::file(name, format!("truncated: it has {found} of {expected} bytes")));
            }
            expected => {
                let expected = expected.unwrap_or(u64::MAX);
                return Err(damaged(&format_args!("it has {found} bytes, and its header describes {expected}")));
            }
        }
        let (source, metadata) = (Arc::new(source), Arc::new(metadata));
        Ok((Tensors { name, source, start: length + 8, metadata, prefix: String::new() }, header))
    }

    /// Describes tensors in other files.
    pub(super) fn external(name: String, metadata: Metadata) -> Tensors {
        let (source, metadata) = (Arc::new(Source::External), Arc::new(metadata));
        Tensors { name, source, start: 0, metadata, prefix: String::new() }
    }

    /// Returns a model's tensors, by this prefix.
    pub(super) fn within(&self, model: &str, prefix: String) -> Tensors {
        let Tensors { source, start, metadata, .. } = self;
        let name = format!("{}: model `{model}`", self.name);
        Tensors { name, source: source.clone(), start: *start, metadata: metadata.clone(), prefix }
    }

    pub(super) fn get(&self, tensor: &str) -> Option<&TensorInfo> {
        if self.prefix.is_empty() {
            self.metadata.info(tensor)
        } else {
            self.metadata.info(&(self.prefix.clone() + tensor))
        }
    }

    pub(super) fn len(&self) -> usize {
        self.metadata.tensors().keys().filter(|tensor| tensor.starts_with(&self.prefix)).count()
    }

    /// Returns whether tensors are in memory, where nothing changes them.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(*self.source, Source::Bytes(_))
    }

    pub(super) fn display_name(&self, what: &str) -> String {
        if matches!(*self.source, Source::Bytes(Bytes::Owned(_))) {
            self.name.clone()
        } else {
            format!("{what} {}", self.name)
        }
    }

    pub(super) fn damaged(&self, problem: impl core::fmt::Display) -> Error {
        damaged(&self.name, problem)
    }

    fn reader(&self) -> Result<Reader<'_>> {
        self.source.reader().map_err(|error| unread(&self.name, &error))
    }

    pub(super) fn info(&self, tensor: &str) -> Result<&TensorInfo> {
        self.get(tensor).ok_or_else(|| self.damaged(format_args!("missing tensor `{tensor}`")))
    }

    pub(super) fn chunks(&self, tensor: &str, mut show: impl FnMut(&[u8])) -> Result<()> {
        let (mut place, mut left) = self.place(tensor)?;
        let (mut chunk, mut reader) = (vec![0; left.min(1 << 18)], self.reader()?);
        while left > 0 {
            let now = chunk.len().min(left);
            reader.read_at(place, &mut chunk[..now]).map_err(|error| unread(&self.name, &error))?;
            show(&chunk[..now]);
            (place, left) = (place + now as u64, left - now);
        }
        Ok(())
    }

    /// Fills a leaf of equal shape, passing on the bytes read. Other dtypes are rounded.
    pub(super) fn fill(&self, tensor: &str, leaf: &mut LeafMut<'_>, mut show: impl FnMut(&[u8])) -> Result<()> {
        if let Some(found) = leaf_dtype(self.info(tensor)?.dtype).filter(|found| *found != leaf.dtype()) {
            let mut bytes = Vec::new();
            self.chunks(tensor, |chunk| {
                show(chunk);
                bytes.extend_from_slice(chunk);
            })?;
            put_bytes(leaf, found, &bytes);
            return Ok(());
        }
        let ((mut place, _), mut reader) = (self.place(tensor)?, self.reader()?);
        leaf.write_bytes(|chunk| {
            reader.read_at(place, chunk).map_err(|error| unread(&self.name, &error))?;
            show(chunk);
            place += chunk.len() as u64;
            Ok(())
        })
    }

    /// Returns a tensor's start, and its bytes.
    fn place(&self, tensor: &str) -> Result<(u64, usize)> {
        let (begin, end) = self.info(tensor)?.data_offsets;
        Ok((self.start + begin as u64, end - begin))
    }
}

/// Writes a leaf from bytes; rounds another dtype.
pub(super) fn put_bytes(leaf: &mut LeafMut<'_>, found: DType, bytes: &[u8]) {
    if found == leaf.dtype() {
        return leaf.take_bytes(bytes);
    }
    let mut there = Buffer::zeros(found, elements(leaf.shape()).unwrap_or(0));
    let (shape, strides) = (leaf.shape().to_vec(), dense_strides(leaf.shape()));
    LeafMut::of_buffer(&mut there, &shape, &strides).take_bytes(bytes);
    leaf.copy_from(&LeafRef::of_buffer(&there, &shape, &strides));
}

/// Converts numbers to another dtype, rounding each.
pub(super) fn converted(bytes: &[u8], from: DType, to: DType) -> Vec<u8> {
    let len = bytes.len() / from.size();
    let mut there = Buffer::zeros(to, len);
    put_bytes(&mut LeafMut::of_buffer(&mut there, &[len], &[1]), from, bytes);
    LeafRef::of_buffer(&there, &[len], &[1]).to_bytes()
}

pub(super) fn header_of(name: &str, source: &Source) -> Result<String> {
    let mut reader = source.reader().map_err(|error| unread(name, &error))?;
    let mut read = |place, buffer: &mut [u8]| reader.read_at(place, buffer).map_err(|error| unread(name, &error));
    let found = source.len();
    let mut start = [0; 9];
    read(0, &mut start[..found.min(9) as usize])?;
    let other = |what: &dyn core::fmt::Display| Err(Error::file(name, format!("it is {what}")));
    let other_format = OTHERS.iter().find(|(begins, _)| start.starts_with(begins) && start[8] != b'{');
    if let Some((_, what)) = other_format {
        return other(&format_args!(
            "{what}, not a safetensors file: write one with `save_file` of the Python package `safetensors`"
        ));
    }
    if found < 9 {
        return other(&format_args!("not a safetensors file: it has {found} bytes"));
    }
    let length = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| start[i]));
    // Checked before the header is allocated.
    if length > MAX_HEADER_BYTES {
        return other(&format_args!("not a safetensors file: it announces a header of {length} bytes"));
    }
    if length + 8 > found {
        return Err(Error::file(name, format!("truncated in a header of {length} bytes: it has {found}")));
    }
    let mut header = vec![0; length as usize];
    read(8, &mut header)?;
    String::from_utf8(header).map_err(|error| damaged(name, error.utf8_error()))
}

pub(super) fn damaged(name: &str, problem: impl core::fmt::Display) -> Error {
    Error::file(name, format!("damaged: {problem}"))
}

/// Returns a read error: damage if the file is too short.
fn unread(name: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(name, error),
        _ => Error::io(name, error),
    }
}

pub(super) fn tensor_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        // The bytes of blocks; the manifest has their dtype.
        _ => Dtype::U8,
    }
}

/// Returns a leaf's dtype for a tensor; `None` for integers and the like.
pub(super) fn leaf_dtype(dtype: Dtype) -> Option<DType> {
    [DType::F16, DType::Bf16, DType::F32, DType::F64].into_iter().find(|leaf| tensor_dtype(*leaf) == dtype)
}
