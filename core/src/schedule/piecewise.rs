//! Transitions at boundaries, in jumps or smoothly.

use core::f64::consts::PI;
use core::fmt;

use super::declared::{Declared, Show};
use super::recipe::pairs;
use super::{Kind, finite, require};
use crate::error::Result;
use crate::recipe::Required;

/// Multiplies by a scale at each boundary.
///
/// # Arithmetic
///
/// ```text
/// value = init_value·Π scaleᵢ   over the boundaryᵢ ≤ count
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses negative scales, a boundary given twice, and values that are not
/// finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::piecewise_constant;
/// let steps = piecewise_constant(8.0, [(100, 0.5), (200, 0.25)]);
/// assert_eq!([0, 99, 100, 199, 200].map(|count| steps.at(count)), [8.0, 8.0, 4.0, 4.0, 1.0]);
/// ```
///
/// # References
///
/// Optax: `piecewise_constant_schedule`, whose boundaries are a dictionary. PyTorch: `MultiStepLR`, whose `gamma` is
/// the scale at each of its `milestones`. Differs: none.
pub fn piecewise_constant(
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> PiecewiseConstant {
    PiecewiseConstant { init_value, boundaries_and_scales: sorted(boundaries_and_scales) }
}

/// See [`piecewise_constant`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is evaluated"]
pub struct PiecewiseConstant {
    pub(super) init_value: f64,
    pub(super) boundaries_and_scales: Vec<(u64, f64)>,
}

impl PiecewiseConstant {
    /// Returns the first value.
    pub fn init_value(&self) -> f64 {
        self.init_value
    }

    /// Returns the boundaries in ascending order, and the factor at each.
    pub fn boundaries_and_scales(&self) -> &[(u64, f64)] {
        &self.boundaries_and_scales
    }
}

impl Declared for PiecewiseConstant {
    fn name(&self) -> &'static str {
        "piecewise_constant"
    }

    fn check_ranges(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn arguments(&mut self, visit: &mut Show<'_>) {
        visit("init_value", &mut Required(&mut self.init_value));
        visit("boundaries_and_scales", &mut pairs(&mut self.boundaries_and_scales));
    }
}

impl Kind for PiecewiseConstant {
    fn value(&self, count: u64) -> f64 {
        let passed = self.boundaries_and_scales.iter().take_while(|(boundary, _)| *boundary <= count);
        passed.fold(self.init_value, |value, (_, scale)| value * scale)
    }

    fn check(&self, function: &str) -> Result<()> {
        check(function, self.init_value, &self.boundaries_and_scales)
    }
}

impl fmt::Display for PiecewiseConstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "piecewise_constant({:?}, {:?})", self.init_value, self.boundaries_and_scales)
    }
}

/// Interpolates between the products of scales at successive boundaries.
///
/// # Arithmetic
///
/// ```text
/// vᵢ = init_value·scale₁·…·scaleᵢ      at boundaryᵢ; v₀ = init_value at 0
/// between boundaryᵢ and boundaryᵢ₊₁, x of the way:
///     linear:   vᵢ + (vᵢ₊₁ − vᵢ)·x
///     cosine:   vᵢ₊₁ + (vᵢ − vᵢ₊₁)·(1 + cos(π·x)) / 2
/// after the last boundary: the last v
/// ```
///
/// The scales are factors between neighbours, not fractions of `init_value`.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses negative scales, a boundary given twice, and values that are not
/// finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{InterpolateType, piecewise_interpolate};
/// let line = piecewise_interpolate(InterpolateType::Linear, 8.0, [(4, 0.5), (8, 0.5)]);
/// assert_eq!([0, 2, 4, 6, 8, 99].map(|count| line.at(count)), [8.0, 6.0, 4.0, 3.0, 2.0, 2.0]);
/// ```
///
/// # References
///
/// Optax: `piecewise_interpolate_schedule`, whose boundaries are a dictionary and whose type is a string. Differs: none
/// in the numbers.
pub fn piecewise_interpolate(
    interpolate_type: InterpolateType,
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> PiecewiseInterpolate {
    PiecewiseInterpolate { interpolate_type, init_value, boundaries_and_scales: sorted(boundaries_and_scales) }
}

/// The interpolation of [`piecewise_interpolate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterpolateType {
    /// Linear.
    Linear,
    /// On half a cosine, flat at both ends.
    Cosine,
}

impl InterpolateType {
    fn between(self, start: f64, end: f64, x: f64) -> f64 {
        match self {
            InterpolateType::Linear => (end - start) * x + start,
            InterpolateType::Cosine => end + (start - end) / 2.0 * ((PI * x).cos() + 1.0),
        }
    }

    /// Returns the value at a count; boundaries ascend.
    ///
    /// Of two equal boundaries the second wins, as in a dictionary; short one-cycle schedules have such pairs.
    pub(super) fn value(self, init_value: f64, points: &[(u64, f64)], count: u64) -> f64 {
        let (mut start, mut begin) = (init_value, 0);
        for (i, &(boundary, scale)) in points.iter().enumerate() {
            if points.get(i + 1).is_some_and(|next| next.0 == boundary) {
                continue;
            }
            let end = start * scale;
            if count < boundary {
                return self.between(start, end, (count - begin) as f64 / (boundary - begin) as f64);
            }
            (start, begin) = (end, boundary);
        }
        start
    }
}

/// See [`piecewise_interpolate`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is evaluated"]
pub struct PiecewiseInterpolate {
    pub(super) interpolate_type: InterpolateType,
    pub(super) init_value: f64,
    pub(super) boundaries_and_scales: Vec<(u64, f64)>,
}

impl PiecewiseInterpolate {
    /// Returns the interpolation.
    pub fn interpolate_type(&self) -> InterpolateType {
        self.interpolate_type
    }

    /// Returns the first value.
    pub fn init_value(&self) -> f64 {
        self.init_value
    }

    /// Returns the boundaries in ascending order, and the factor at each.
    pub fn boundaries_and_scales(&self) -> &[(u64, f64)] {
        &self.boundaries_and_scales
    }
}

impl Declared for PiecewiseInterpolate {
    fn name(&self) -> &'static str {
        "piecewise_interpolate"
    }

    fn check_ranges(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn arguments(&mut self, visit: &mut Show<'_>) {
        visit("interpolate_type", &mut Required(&mut self.interpolate_type));
        visit("init_value", &mut Required(&mut self.init_value));
        visit("boundaries_and_scales", &mut pairs(&mut self.boundaries_and_scales));
    }
}

impl Kind for PiecewiseInterpolate {
    fn value(&self, count: u64) -> f64 {
        self.interpolate_type.value(self.init_value, &self.boundaries_and_scales, count)
    }

    fn check(&self, function: &str) -> Result<()> {
        check(function, self.init_value, &self.boundaries_and_scales)
    }
}

impl fmt::Display for PiecewiseInterpolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PiecewiseInterpolate { interpolate_type, init_value, boundaries_and_scales } = self;
        write!(
            f,
            "piecewise_interpolate(InterpolateType::{interpolate_type:?}, {init_value:?}, {boundaries_and_scales:?})"
        )
    }
}

pub(super) fn sorted(boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>) -> Vec<(u64, f64)> {
    let mut sorted: Vec<_> = boundaries_and_scales.into_iter().collect();
    sorted.sort_by_key(|(boundary, _)| *boundary);
    sorted
}

fn check(function: &str, init_value: f64, points: &[(u64, f64)]) -> Result<()> {
    const ARGUMENT: &str = "boundaries_and_scales";
    finite(function, &[("init_value", init_value)])?;
    for (boundary, scale) in points {
        let fits = scale.is_finite() && *scale >= 0.0;
        require(fits, function, ARGUMENT, "scales of at least 0", format!("{scale} at {boundary}"))?;
    }
    points.windows(2).try_for_each(|pair| {
        let boundary = pair[0].0;
        require(boundary != pair[1].0, function, ARGUMENT, "one scale per boundary", format!("two at {boundary}"))
    })
}
