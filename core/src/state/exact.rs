//! Exact numbers as text: JSON has no NaN, and not every reader rounds to nearest.

use serde::{Deserialize, Deserializer, Serializer};

/// Returns the shortest text that identifies a number; for NaN, its bits.
pub(crate) fn text(value: f64) -> String {
    if value.is_nan() { format!("nan:{:016x}", value.to_bits()) } else { format!("{value:?}") }
}

pub(crate) fn number(text: &str) -> Option<f64> {
    match text.strip_prefix("nan:") {
        Some(bits) => Some(f64::from_bits(u64::from_str_radix(bits, 16).ok()?)).filter(|value| value.is_nan()),
        None => text.parse().ok().filter(|value: &f64| !value.is_nan()),
    }
}

pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { to.serialize_str(&text(*value)) } else { to.serialize_u64(value.to_bits()) }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    if from.is_human_readable() {
        let text = String::deserialize(from)?;
        number(&text).ok_or_else(|| serde::de::Error::custom(format_args!("`{text}` is not a number")))
    } else {
        Ok(f64::from_bits(u64::deserialize(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_bit_for_bit() {
        let odd = [0.1, -0.0, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0 / 3.0, 1e22];
        let payload = f64::from_bits(0xfff4_0000_0000_0001);
        for value in odd.into_iter().chain([payload]) {
            assert_eq!(number(&text(value)).map(f64::to_bits), Some(value.to_bits()), "{value}");
        }
        assert!(number("nan:3ff0000000000000").is_none() && number("nan").is_none() && number("one").is_none());
    }
}
