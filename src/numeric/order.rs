//! Comparisons that do not lose a NaN, unlike [`f64::max`] and [`f64::min`].

/// The larger of two numbers; NaN if one is NaN.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller of two numbers; NaN if one is NaN.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}
