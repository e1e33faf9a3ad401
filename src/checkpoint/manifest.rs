//! The description of a file: JSON in its one entry of metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::buffers::Buffers;
use crate::internal::numeric::elements;
use crate::internal::recipe::{bounded, from_text};
use crate::internal::state::{ItemName, Leaves, PartOf, Single, fits_in_memory};
use crate::tree::Structure;
use crate::{DType, Error, Result};

pub(super) const KEY: &str = "gradchain";

/// The format version; readers refuse unknown ones.
pub(super) const FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// CRC-32 of the header, computed with zeros in its own place. The first field, so that it can be located in the
    /// text.
    pub(super) check: Crc,
    pub(super) format: u32,
    #[serde(rename = "crate")]
    pub(super) version: String,
    /// The optimizer as data; functions are strings in angle brackets.
    #[serde(deserialize_with = "bounded")]
    pub(super) optimizer: Value,
    pub(super) structure: Leaves,
    /// True if the file has the parameters.
    pub(super) params: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) buffers: Buffers,
    /// The single values, in order.
    pub(super) values: Vec<(ItemName, Single)>,
    /// The arrays, in order, with the names of their tensors.
    pub(super) arrays: Vec<(ItemName, String)>,
    /// The check sums, by tensor.
    pub(super) crc32: BTreeMap<String, Crc>,
    pub(super) notes: BTreeMap<String, String>,
    /// Rank and number of ranks of a shard; `None` for a complete file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shard: Option<(usize, usize)>,
    /// Arrays with a chunk in the file, by tensor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parts: BTreeMap<String, PartOf>,
    /// Tensors that are bytes of 8-bit arrays in memory order.
    #[serde(rename = "coded", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) quantized: BTreeMap<String, Quantized>,
    /// The descriptions of several models, by name; the names of a model's tensors begin with its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) models: BTreeMap<String, Manifest>,
}

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest {
            check: Crc(0),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            optimizer: Value::Null,
            structure: Leaves::of(&Structure::from_parts(core::iter::empty())),
            params: false,
            buffers: Buffers::new(),
            values: Vec::new(),
            arrays: Vec::new(),
            crc32: BTreeMap::new(),
            notes: BTreeMap::new(),
            shard: None,
            parts: BTreeMap::new(),
            quantized: BTreeMap::new(),
            models: BTreeMap::new(),
        }
    }
}

/// The layout of an 8-bit array, of which the file has only bytes; that of the whole array, if the file has a chunk of
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantized {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<isize>,
}

impl Quantized {
    /// Returns its bytes in a file; `None` if invalid.
    pub(super) fn len(&self) -> Option<usize> {
        let fits = self.dtype.is_quantized() && fits_in_memory(&self.shape, DType::F32);
        fits.then(|| self.dtype.bytes(elements(&self.shape).unwrap_or(0)))
    }
}

/// A CRC-32, serialized as text of fixed length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crc(pub(super) u32);

impl Serialize for Crc {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:08x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Crc {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Crc, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let value = u32::from_str_radix(&text, 16).ok().filter(|_| digits);
        value.map(Crc).ok_or_else(|| serde::de::Error::custom(format_args!("`{text}` is not a checksum")))
    }
}

/// Returns the notes in a header, skipping the rest.
///
/// # Errors
///
/// With the defect of a damaged header.
pub(super) fn notes(header: &str) -> Result<BTreeMap<String, String>, String> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(rename = "__metadata__")]
        entries: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct NotesHeader {
        check: Crc,
        notes: BTreeMap<String, String>,
    }
    let Header { entries } = serde_json::from_str(header).map_err(|error| error.to_string())?;
    let text = entries.get(KEY).ok_or("it is a safetensors file, but not a checkpoint of gradchain")?;
    let NotesHeader { check, notes } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_whole = check_of(header) == Some(check);
    if is_whole { Ok(notes) } else { Err("the header does not match its checksum".into()) }
}

/// The beginning of `check`, where JSON is a string in JSON.
const MARK: &str = r#"{\"check\":\""#;

/// Returns a header's check sum, its own replaced by zeros.
pub(super) fn check_of(header: &str) -> Option<Crc> {
    let at = header.find(MARK)? + MARK.len();
    let (before, after) = (header.get(..at)?, header.get(at + 8..)?);
    let mut hasher = crc32fast::Hasher::new();
    [before, "00000000", after].into_iter().for_each(|part| hasher.update(part.as_bytes()));
    Some(Crc(hasher.finalize()))
}

impl Manifest {
    pub(super) fn parse(file: &str, text: &str) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let bad = |error: serde_json::Error| Error::file(file, format!("damaged: invalid metadata: {error}"));
        let Version { format } = serde_json::from_str(text).map_err(bad)?;
        if format != FORMAT {
            let problem = format!("it has format {format}, and this version of gradchain reads {FORMAT}");
            return Err(Error::file(file, problem));
        }
        from_text(text).map_err(bad)
    }
}
