//! Comparisons that do not lose a NaN, unlike [`f64::max`] and [`f64::min`], and an order of numbers.

/// The larger of two numbers; NaN if one is NaN.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller of two numbers; NaN if one is NaN.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

/// Brings numbers, each with the place it comes from, into order: the largest first, and of equal ones the one that
/// comes first. Nothing is allocated, as a stable sort would.
pub(crate) fn largest_first(numbers: &mut [(f64, usize)]) {
    numbers.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
}
