//! Buffers of a model in a checkpoint.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, TensorInfo};

use super::file::Checkpoint;
use super::save::{Spec, Take, param_name};
use super::tensors::{converted, leaf_dtype};
use crate::internal::numeric::elements;
use crate::internal::restore::Resolved;
use crate::internal::state::Moves;
use crate::tree::{Buffer, BufferSpec, TreeMut, WalkMut};
use crate::{DType, Error, Result};

pub(super) const PREFIX: &str = "buffers/";

/// Dtype and shape by path.
pub(super) type Buffers = std::collections::BTreeMap<String, (String, Vec<usize>)>;

pub(super) fn buffer_name(path: &str) -> String {
    format!("{PREFIX}{path}")
}

/// Returns a buffer's dtype in a file; `None` if saved as bytes.
fn tensor_dtype(dtype: &str) -> Option<Dtype> {
    Some(match dtype {
        "bool" => Dtype::BOOL,
        "i8" => Dtype::I8,
        "i16" => Dtype::I16,
        "i32" => Dtype::I32,
        "i64" => Dtype::I64,
        "u8" => Dtype::U8,
        "u16" => Dtype::U16,
        "u32" => Dtype::U32,
        "u64" => Dtype::U64,
        "f16" => Dtype::F16,
        "bf16" => Dtype::BF16,
        "f32" => Dtype::F32,
        "f64" => Dtype::F64,
        _ => return None,
    })
}

pub(super) fn is_of(info: &TensorInfo, buffer: &BufferSpec) -> bool {
    match tensor_dtype(buffer.dtype()) {
        Some(dtype) => info.dtype == dtype && info.shape == buffer.shape(),
        None => info.dtype == Dtype::U8 && info.shape.len() == 1,
    }
}

/// Converts a tensor's bytes to a buffer's, rounding other floats.
pub(super) fn value(bytes: Vec<u8>, found: Dtype, buffer: &BufferSpec) -> Vec<u8> {
    match (leaf_dtype(found), DType::from_name(buffer.dtype())) {
        (Some(found), Some(dtype)) if found != dtype => converted(&bytes, found, dtype),
        _ => bytes,
    }
}

/// Returns whether a tensor differs in float dtype only.
pub(super) fn can_be_cast(info: &TensorInfo, buffer: &BufferSpec) -> bool {
    let floats = leaf_dtype(info.dtype).is_some() && DType::from_name(buffer.dtype()).is_some();
    floats && info.shape == buffer.shape()
}

#[derive(Debug)]
pub(super) struct Saved<'a> {
    path: String,
    buffer: &'a dyn Buffer,
    len: usize,
}

impl<'a> Saved<'a> {
    /// # Errors
    ///
    /// If it cannot be read, or has another length than its dtype and shape require.
    pub(super) fn new(buffer: &'a dyn Buffer, spec: &BufferSpec) -> Result<(Spec, Saved<'a>)> {
        let dtype = tensor_dtype(spec.dtype());
        let expected = dtype.and_then(|dtype| elements(spec.shape())?.checked_mul(dtype.bitsize() / 8));
        let len = match (dtype, expected) {
            (Some(_), Some(len)) => len,
            (Some(_), None) => return Err(Error::state(spec.path(), "the buffer exceeds the address space")),
            (None, _) => {
                let mut len = 0;
                buffer.read(&mut |bytes| {
                    len += bytes.len();
                    Ok(())
                })?;
                len
            }
        };
        let shape = if dtype.is_some() { spec.shape().to_vec() } else { vec![len] };
        let written = Spec::of(buffer_name(spec.path()), dtype.unwrap_or(Dtype::U8), shape);
        Ok((written, Saved { path: spec.path().into(), buffer, len }))
    }

    pub(super) fn read_bytes(&self, take: Take<'_>) -> Result<()> {
        let mut shown = 0_usize;
        self.buffer.read(&mut |bytes| {
            shown = shown.saturating_add(bytes.len());
            if shown > self.len { Ok(()) } else { take(bytes) }
        })?;
        if shown == self.len {
            return Ok(());
        }
        Err(Error::state(&*self.path, format!("the buffer has {} bytes, its walk shows {shown}", self.len)))
    }
}

pub(super) fn specs(buffers: &Buffers) -> Vec<BufferSpec> {
    buffers.iter().map(|(path, (dtype, shape))| BufferSpec::new(path, dtype, shape.clone())).collect()
}

/// New values of buffers: bytes by path.
#[derive(Debug)]
pub(super) struct Values(HashMap<String, Vec<u8>>);

impl Values {
    pub(super) fn of(values: HashMap<String, Vec<u8>>) -> Values {
        Values(values)
    }

    pub(super) fn read(file: &Checkpoint, moves: &Resolved, here: &[BufferSpec]) -> Result<Values> {
        let filled = here.iter().filter(|buffer| !moves.is_kept(buffer.path()));
        let read = |buffer: &BufferSpec| {
            let old = moves.from(buffer.path()).unwrap_or_default();
            let tensor = if file.manifest.buffers.contains_key(old) { buffer_name(old) } else { param_name(old) };
            let (bytes, found) = (file.bytes(&tensor)?, file.tensors.info(&tensor)?.dtype);
            Ok((buffer.path().to_owned(), value(bytes, found, buffer)))
        };
        filled.map(read).collect::<Result<_>>().map(Values)
    }

    /// Checks that the tree shows each for writing.
    pub(super) fn fit<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        let mut shown = 0;
        each(params, &mut |path, _| {
            shown += usize::from(self.0.contains_key(path));
            Ok(())
        })?;
        if shown == self.0.len() {
            return Ok(());
        }
        let mut read_only: Vec<&str> = self.0.keys().map(String::as_str).collect();
        each(params, &mut |path, _| {
            read_only.retain(|other| *other != path);
            Ok(())
        })?;
        let first = read_only.iter().min().copied().unwrap_or_default();
        Err(Error::state(first, "`walk_mut` does not visit this buffer"))
    }

    pub(super) fn write<P: TreeMut + ?Sized>(&self, params: &mut P) -> Result<()> {
        each(params, &mut |path, buffer| self.0.get(path).map_or(Ok(()), |bytes| buffer.write(bytes)))
    }
}

fn each<P: TreeMut + ?Sized>(params: &mut P, f: &mut dyn FnMut(&str, &mut dyn Buffer) -> Result<()>) -> Result<()> {
    let mut done = Ok(());
    let mut sink = |path: &str, buffer: &mut dyn Buffer| {
        if done.is_ok() {
            done = f(path, buffer);
        }
    };
    params.walk_mut(&mut WalkMut::of_buffers(&mut String::new(), &mut |_, _| {}, &mut sink));
    done
}

impl Checkpoint {
    /// Returns the [buffers](Buffer) in the file, by path.
    pub fn buffers(&self) -> &[BufferSpec] {
        &self.buffers
    }

    /// Checks metadata against the header.
    pub(super) fn consistent_buffers(&self) -> Result<()> {
        for buffer in &self.buffers {
            let info = self.tensors.info(&buffer_name(buffer.path()))?;
            if !is_of(info, buffer) {
                return Err(self.damaged(format_args!("the tensor of buffer {buffer} has another dtype or shape")));
            }
        }
        Ok(())
    }
}
