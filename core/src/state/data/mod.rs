//! A state as a value for any format of serde.

mod array;
mod leaves;

use serde::{Deserialize, Serialize};

pub(crate) use self::array::{Array, QuantizedArray};
pub use self::leaves::{Leaves, fits_in_memory};
use super::{ItemMut, ItemName, ItemSpec, Kind, Owner, Single, exact};

/// A state with its optimizer and structure, for any format of serde: JSON, TOML, postcard.
///
/// It is for small states in a larger document, a log, a message, a test. Large states go into a checkpoint (feature
/// `checkpoint`), which is written without a copy, and has check sums.
///
/// Every bit is preserved: readable formats hold numbers as text, a NaN as its bits; binary formats hold the bytes of
/// arrays. Arrays are in row-major order; a loaded state has the memory order of the parameters it is loaded for.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::state::StateData;
///
/// let optimizer = sgd(0.5).momentum(0.5);
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, f32::NAN], &mut state)?;
/// let text = serde_json::to_string(&StateData::of(&optimizer, &state)?)?;
/// assert!(text.contains(r#""elements":"1.0 nan:7fc00000""#), "{text}");
///
/// let data: StateData = serde_json::from_str(&text)?;
/// let mut state = data.load(&optimizer, &params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, 1.0], &mut state)?;
/// assert_eq!(params[0], -0.5 - 0.75);
///
/// let error = data.load(&sgd(0.1).momentum(0.5), &params).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the state does not fit: 1 difference\n  optimizer: $.sgd.learning_rate: expected 0.1, found 0.5"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateData {
    pub(crate) format: u32,
    /// The optimizer as JSON, as in a checkpoint.
    pub(crate) optimizer: String,
    pub(crate) structure: Leaves,
    pub(crate) items: Vec<Entry>,
}

/// The format version; readers refuse unknown ones.
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) field: String,
    pub(crate) of: Owner,
    pub(crate) value: Datum,
}

/// Counts and keys are text in readable formats, which may lack `u64`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Datum {
    Count(#[serde(with = "whole")] u64),
    Flag(bool),
    Scalar(#[serde(with = "exact")] f64),
    Key(#[serde(with = "whole")] u64),
    Array(Array),
    #[serde(rename = "coded")]
    Quantized(QuantizedArray),
}

impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        match (self, other) {
            (Datum::Count(a), Datum::Count(b)) | (Datum::Key(a), Datum::Key(b)) => a == b,
            (Datum::Flag(a), Datum::Flag(b)) => a == b,
            // Bitwise, with NaN.
            (Datum::Scalar(a), Datum::Scalar(b)) => a.to_bits() == b.to_bits(),
            (Datum::Array(a), Datum::Array(b)) => a == b,
            (Datum::Quantized(a), Datum::Quantized(b)) => a == b,
            _ => false,
        }
    }
}

impl Entry {
    pub(crate) fn spec(&self) -> ItemSpec {
        let name = ItemName { field: self.field.clone(), of: self.of.clone() };
        let (kind, array) = match &self.value {
            Datum::Count(_) => (Kind::Count, None),
            Datum::Flag(_) => (Kind::Flag, None),
            Datum::Scalar(_) => (Kind::Scalar, None),
            Datum::Key(_) => (Kind::Key, None),
            Datum::Array(array) => (Kind::Moment, Some((array.dtype, array.shape.clone()))),
            Datum::Quantized(array) => (Kind::Moment, Some(array.what())),
        };
        // The value itself is needed only where a migration joins parts.
        ItemSpec { name, kind, array, single: None }
    }
}

impl Datum {
    pub(crate) fn assign(&self, into: ItemMut<'_>) -> bool {
        let single = match self {
            Datum::Count(count) => Single::Count(*count),
            Datum::Flag(flag) => Single::Flag(*flag),
            Datum::Scalar(scalar) => Single::Scalar(*scalar),
            Datum::Key(key) => Single::Key(*key),
            Datum::Quantized(array) => {
                let (ItemMut::Array(mut leaf), Some(from)) = (into, array.leaf()) else { return false };
                let fits = leaf.shape() == from.shape();
                fits.then(|| leaf.copy_from(&from));
                return fits;
            }
            Datum::Array(array) => {
                let ItemMut::Array(mut leaf) = into else { return false };
                let mut rest = &array.bytes[..];
                let done: Result<(), ()> = leaf.write_bytes(|chunk| {
                    let (now, later) = rest.split_at_checked(chunk.len()).ok_or(())?;
                    chunk.copy_from_slice(now);
                    rest = later;
                    Ok(())
                });
                return done == Ok(()) && rest.is_empty();
            }
        };
        into.set(single)
    }
}

/// A `u64` in any format.
mod whole {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(value) } else { to.serialize_u64(*value) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        if from.is_human_readable() {
            let text = String::deserialize(from)?;
            text.parse().map_err(|_| D::Error::custom(format_args!("`{text}` is not an integer")))
        } else {
            u64::deserialize(from)
        }
    }
}
