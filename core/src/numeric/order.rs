//! Comparisons that propagate NaN, unlike [`f64::max`] and [`f64::min`], and a sort.

/// Returns the larger number; NaN if one is NaN.
pub fn max_or_nan(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns the smaller number; NaN if one is NaN.
pub fn min_or_nan(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

/// Sorts numbers with their places in descending order, equal ones by place; allocates nothing.
pub fn largest_first(numbers: &mut [(f64, usize)]) {
    numbers.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
}
