//! What a monitor remembers.

use core::any::Any;

use super::measure::{Mean, Measured};
use crate::element::{Element, with_dtype};
use crate::engine::{Clock, Sums};
use crate::state::{Count, Scalar, State, StateWalk, StateWalkMut};

/// The measurements of a [`monitor`](crate::monitor), by name.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    values: Vec<(String, Scalar)>,
}

impl Measurements {
    /// The last measurement of this name, if there is one; NaN before the first step.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, value)| value.get())
    }

    /// Names and last measurements.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> + '_ {
        self.values.iter().map(|(name, value)| (&**name, value.get()))
    }
}

impl State for Measurements {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        if let Some(measurements) = walk.part(self) {
            measurements.values.iter().for_each(|(name, value)| walk.child(name, value));
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.values.iter_mut().for_each(|(name, value)| walk.child(name, value));
    }
}

/// Every set of measurements in a state, however deep, with its path: for transformations whose type is not known, such as
/// those built from a config.
///
/// ```
/// use gradchain::measurements;
/// use gradchain::prelude::*;
/// use gradchain::transform::GlobalNorm;
///
/// let optimizer: Boxed = boxed(chain((snapshot("norm", GlobalNorm), sgd(0.5))));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
/// for (path, measurements) in measurements(&*state) {
///     assert_eq!((&*path, measurements.get("norm")), ("0.measurements", Some(5.0)));
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn measurements<'a, S: State>(state: &'a S) -> Vec<(String, &'a Measurements)> {
    let mut found = Vec::new();
    let mut show = |path: &str, part: &'a dyn Any| {
        if let Some(measurements) = part.downcast_ref() {
            found.push((path.into(), measurements));
        }
    };
    state.walk(&mut StateWalk::of_parts(&mut show));
    found
}

/// The state of a [`monitor`](crate::monitor).
#[derive(Clone, Debug)]
pub struct MonitorState {
    measurements: Measurements,
    means: Vec<(String, MeanState)>,
    /// How many elements are measured; known from the parameters.
    elements: usize,
}

#[derive(Clone, Debug, Default)]
struct MeanState {
    count: Count,
    ema: Scalar,
}

crate::state::state_fields!(MeanState { count, ema });

impl State for MonitorState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("elements", &self.elements);
        walk.child("measurements", &self.measurements);
        walk.within("measure_states", |walk| self.means.iter().for_each(|(name, mean)| walk.child(name, mean)));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("measurements", &mut self.measurements);
        walk.within("measure_states", |walk| self.means.iter_mut().for_each(|(name, mean)| walk.child(name, mean)));
    }
}

impl MonitorState {
    pub(super) fn new(measures: &[(String, Measured)], elements: usize) -> MonitorState {
        let values = measures.iter().map(|(name, _)| (name.clone(), Scalar::new(f64::NAN))).collect();
        let means = measures.iter().filter(|(_, measure)| measure.mean.is_some());
        let means = means.map(|(name, _)| (name.clone(), MeanState::default())).collect();
        MonitorState { measurements: Measurements { values }, means, elements }
    }

    /// The last measurement of this name, if there is one; NaN before the first step.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.measurements.get(name)
    }

    /// All last measurements.
    pub fn measurements(&self) -> &Measurements {
        &self.measurements
    }

    pub(super) fn record(&mut self, measures: &[(String, Measured)], sums: Sums<'_>) {
        let mut means = self.means.iter_mut();
        for (i, ((_, measure), (_, value))) in measures.iter().zip(&mut self.measurements.values).enumerate() {
            let measured = measure.of_sum(sums.total(i), self.elements);
            value.set(match (&measure.mean, measure.mean.as_ref().and_then(|_| means.next())) {
                (Some(mean), Some((_, state))) => state.next(mean, measured),
                _ => measured,
            });
        }
    }
}

impl MeanState {
    /// The running mean with one more measurement in it.
    fn next(&mut self, mean: &Mean, measured: f64) -> f64 {
        let clock = Clock::after(self.count.get());
        self.count.increment();
        let decay = mean.decay.at(clock.count);
        let ema = decay * self.ema.get() + (1.0 - decay) * measured;
        let kept = mean.accumulator_dtype.map_or(ema, |dtype| with_dtype!(dtype, T => T::from_f64(ema).as_f64()));
        self.ema.set(kept);
        if mean.debias { ema / clock.bias_correction(decay) } else { ema }
    }
}
