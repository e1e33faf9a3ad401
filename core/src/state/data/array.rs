//! An exact array: numbers as text in readable formats, bytes in binary ones.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::element::DType;
use crate::tree::LeafRef;

/// Elements in row-major order, whatever their memory order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Little-endian.
    pub(crate) bytes: Vec<u8>,
}

impl Array {
    pub(crate) fn of(leaf: &LeafRef<'_>) -> Array {
        Array { dtype: leaf.dtype(), shape: leaf.shape().into(), bytes: leaf.to_bytes() }
    }
}

/// An array for serialization, with elements as `E`.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Array")]
struct Form<E> {
    dtype: DType,
    shape: Vec<usize>,
    elements: E,
}

impl Serialize for Array {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (dtype, shape) = (self.dtype, self.shape.clone());
        if to.is_human_readable() {
            let numbers: Vec<String> = self.bytes.chunks_exact(dtype.size()).map(|bytes| text(dtype, bytes)).collect();
            Form { dtype, shape, elements: numbers.join(" ") }.serialize(to)
        } else {
            Form { dtype, shape, elements: Bytes(self.bytes.clone()) }.serialize(to)
        }
    }
}

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Array, D::Error> {
        let array = if from.is_human_readable() {
            let Form { dtype, shape, elements } = Form::<String>::deserialize(from)?;
            let mut bytes = Vec::new();
            for number in elements.split_ascii_whitespace() {
                let element = parse(dtype, number);
                bytes.extend(
                    element.ok_or_else(|| D::Error::custom(format_args!("`{number}` is not of type {dtype}")))?,
                );
            }
            Array { dtype, shape, bytes }
        } else {
            let Form { dtype, shape, elements: Bytes(bytes) } = Form::deserialize(from)?;
            Array { dtype, shape, bytes }
        };
        let len = array.shape.iter().try_fold(array.dtype.size(), |len, axis| len.checked_mul(*axis));
        if len != Some(array.bytes.len()) {
            let found = array.bytes.len() / array.dtype.size();
            return Err(D::Error::custom(format_args!("an array of shape {:?} has {found} elements", array.shape)));
        }
        Ok(array)
    }
}

/// Returns the shortest number that identifies this element; for NaN, its bits.
fn text(dtype: DType, bytes: &[u8]) -> String {
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let (nan, number) = match dtype {
        DType::F64 => (f64::from_bits(bits).is_nan(), format!("{:?}", f64::from_bits(bits))),
        DType::F32 => (f32::from_bits(bits as u32).is_nan(), format!("{:?}", f32::from_bits(bits as u32))),
        #[cfg(feature = "half")]
        DType::F16 => short(half::f16::from_bits(bits as u16).to_f32()),
        #[cfg(feature = "half")]
        DType::Bf16 => short(half::bf16::from_bits(bits as u16).to_f32()),
        // No leaf has this dtype.
        _ => (true, String::new()),
    };
    if nan { format!("nan:{bits:0width$x}", width = 2 * dtype.size()) } else { number }
}

#[cfg(feature = "half")]
fn short(x: f32) -> (bool, String) {
    (x.is_nan(), format!("{x:?}"))
}

fn parse(dtype: DType, text: &str) -> Option<Vec<u8>> {
    let size = dtype.size();
    if let Some(digits) = text.strip_prefix("nan:") {
        let hex = digits.len() == 2 * size && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = u64::from_str_radix(digits, 16).ok().filter(|_| hex)?;
        return Some(bits.to_le_bytes()[..size].to_vec());
    }
    // NaN is written by bits only.
    let wide: f64 = text.parse().ok().filter(|x: &f64| !x.is_nan())?;
    Some(match dtype {
        DType::F64 => wide.to_le_bytes().to_vec(),
        DType::F32 => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        #[cfg(feature = "half")]
        DType::F16 => half::f16::from_f32(text.parse().ok()?).to_le_bytes().to_vec(),
        #[cfg(feature = "half")]
        DType::Bf16 => half::bf16::from_f32(text.parse().ok()?).to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// An 8-bit array in memory order; in readable formats an integer per byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuantizedArray {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    #[serde(serialize_with = "octets", deserialize_with = "from_octets")]
    bytes: Vec<u8>,
}

impl QuantizedArray {
    pub(crate) fn of(leaf: &LeafRef<'_>) -> QuantizedArray {
        let strides = leaf.parts.strides.to_vec();
        QuantizedArray { dtype: leaf.dtype(), shape: leaf.shape().into(), strides, bytes: leaf.to_bytes() }
    }

    pub(crate) fn what(&self) -> (DType, Vec<usize>) {
        (self.dtype, self.shape.clone())
    }

    /// Returns `None` if the bytes are invalid.
    pub(crate) fn leaf(&self) -> Option<LeafRef<'_>> {
        LeafRef::quantized(&self.bytes, self.dtype, &self.shape, &self.strides)
    }
}

fn octets<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        to.serialize_str(&numbers.join(" "))
    } else {
        to.serialize_bytes(bytes)
    }
}

fn from_octets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    if !from.is_human_readable() {
        return Bytes::deserialize(from).map(|bytes| bytes.0);
    }
    let text = String::deserialize(from)?;
    let byte = |number: &str| {
        number.parse().map_err(|_| D::Error::custom(format_args!("`{number}` is not an integer from 0 to 255")))
    };
    text.split_ascii_whitespace().map(byte).collect()
}

/// Bytes, if the format has them.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.into()))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = all.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        from.deserialize_byte_buf(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_type_comes_back_from_text() {
        let mut all = vec![
            (DType::F32, f32::MIN_POSITIVE.to_bits().into()),
            (DType::F32, 1),
            (DType::F32, (-0.0_f32).to_bits().into()),
            (DType::F32, 0x7fa0_0001),
            (DType::F32, f32::NEG_INFINITY.to_bits().into()),
            (DType::F64, 1),
            (DType::F64, f64::MAX.to_bits()),
            (DType::F64, 0xfff4_0000_0000_0001),
        ];
        if cfg!(feature = "half") {
            all.extend((0..=u64::from(u16::MAX)).flat_map(|bits| [(DType::F16, bits), (DType::Bf16, bits)]));
        }
        for (dtype, bits) in all {
            let bytes = &bits.to_le_bytes()[..dtype.size()];
            let text = text(dtype, bytes);
            assert_eq!(parse(dtype, &text).as_deref(), Some(bytes), "{dtype} {bits:x}: {text}");
        }
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for bad in ["", "one", "nan", "NaN", "nan:", "nan:7fc0000", "nan:+fc00000", "nan:7fc000000", "1,5", "0x1"] {
            assert!(parse(DType::F32, bad).is_none(), "{bad}");
        }
    }
}
