//! The state of a monitor.

use core::any::Any;
use std::borrow::Cow;

use super::quantity::{Mean, Measured};
use crate::Element;
use crate::internal::numeric::with_dtype;
use crate::part::{Clock, InitContext, Sums};
use crate::state::{Count, PerLeaf, Scalar, State, StateWalk, StateWalkMut};

/// The measurements of a [`monitor`](crate::transform::monitor), by name.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    values: Vec<(String, Scalar)>,
}

impl Measurements {
    /// Returns the last measurement of this name, if it exists; NaN before the first step.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, value)| value.get())
    }

    /// Iterates over names and last measurements.
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

/// Returns every set of measurements in a state, at any depth, with its path: for transformations of unknown type, such
/// as those built from a config.
///
/// ```
/// use gradchain::transform::{measurements, snapshot};
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

/// The state of a [`monitor`](crate::transform::monitor).
#[derive(Clone, Debug)]
pub struct MonitorState {
    measurements: Measurements,
    by_leaf: Named<PerLeaf<Scalar>>,
    by_group: Named<Named<Scalar>>,
    means: Named<MeanState>,
    /// Measured leaves, their groups and shapes; derived from the parameters.
    active: Vec<bool>,
    group_of: Vec<usize>,
    shapes: Vec<Vec<usize>>,
}

/// States by name.
#[derive(Clone, Debug, Default)]
struct Named<S>(Vec<(String, S)>);

impl<S: State> State for Named<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.0.iter().for_each(|(name, state)| walk.child(name, state));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.0.iter_mut().for_each(|(name, state)| walk.child(name, state));
    }
}

#[derive(Clone, Debug)]
struct MeanState {
    count: Count,
    /// Measurements of each leaf, if leaves may rest.
    updates: PerLeaf<Count>,
    ema: Scalar,
    by_leaf: PerLeaf<Scalar>,
    by_group: Named<Scalar>,
}

crate::internal::state::state_fields!(MeanState { count, updates, ema, by_leaf, by_group });

impl State for MonitorState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.fact("measured", &(&self.active, &self.group_of, &self.shapes));
        walk.child("measurements", &self.measurements);
        walk.child("by_leaf", &self.by_leaf);
        walk.child("by_group", &self.by_group);
        walk.child("measure_states", &self.means);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("measurements", &mut self.measurements);
        walk.child("by_leaf", &mut self.by_leaf);
        walk.child("by_group", &mut self.by_group);
        walk.child("measure_states", &mut self.means);
    }
}

impl MonitorState {
    pub(super) fn new(
        measures: &[(String, Measured)],
        at: &InitContext<'_>,
        by_leaf: bool,
        groups: Option<(Vec<Cow<'static, str>>, Vec<usize>)>,
    ) -> MonitorState {
        let (groups, group_of) = groups.unwrap_or_default();
        let of_leaves = by_leaf;
        let by_leaf = |start| by_leaf.then(|| PerLeaf::new(at.active(), Scalar::new(start)));
        let by_group = |start| Named(groups.iter().map(|name| (name.to_string(), Scalar::new(start))).collect());
        let names = || measures.iter().map(|(name, _)| name.clone());
        let mean = |(name, _): &(String, Measured)| {
            let (by_leaf, by_group) = (by_leaf(0.0).unwrap_or_default(), by_group(0.0));
            let updates = if of_leaves { at.updates() } else { PerLeaf::default() };
            (name.clone(), MeanState { count: Count::default(), updates, ema: Scalar::default(), by_leaf, by_group })
        };
        MonitorState {
            measurements: Measurements { values: names().map(|name| (name, Scalar::new(f64::NAN))).collect() },
            by_leaf: Named(names().filter_map(|name| Some((name, by_leaf(f64::NAN)?))).collect()),
            by_group: Named(names().filter(|_| !groups.is_empty()).map(|name| (name, by_group(f64::NAN))).collect()),
            means: Named(measures.iter().filter(|(_, measure)| measure.mean.is_some()).map(mean).collect()),
            active: at.active().into(),
            group_of,
            shapes: at.structure().leaves().iter().map(|leaf| leaf.shape().into()).collect(),
        }
    }

    /// Returns the last measurement of this name, if it exists; NaN before the first step.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.measurements.get(name)
    }

    /// Returns the last measurements of the tree as a whole. Those of leaves and groups are
    /// [readings](crate::GradientTransformation::readings).
    pub fn measurements(&self) -> &Measurements {
        &self.measurements
    }

    pub(super) fn record(&mut self, measures: &[(String, Measured)], sums: Sums<'_>) {
        let MonitorState { measurements, by_leaf, by_group, means, active, group_of, .. } = self;
        let leaves = || active.iter().enumerate().filter(|(_, on)| **on).map(|(leaf, _)| leaf);
        let elements = leaves().map(|leaf| sums.leaf_len(leaf)).sum();
        let (mut first, mut means) = (0, means.0.iter_mut());
        for (i, ((_, measured), (_, value))) in measures.iter().zip(&mut measurements.values).enumerate() {
            let quantity = &measured.quantity;
            let mut state = if measured.mean.is_some() { means.next().map(|(_, state)| state) } else { None };
            let mean = measured.mean.as_ref();
            let clock = state.as_mut().map(|state| state.next(&sums));
            let put = |clock: Option<Clock>, value: &mut Scalar, ema: Option<&mut Scalar>, number| {
                value.set(match (mean, clock, ema) {
                    (Some(mean), Some(clock), Some(ema)) => mean.next(clock, ema, number),
                    _ => number,
                });
            };
            put(
                clock,
                value,
                state.as_mut().map(|state| &mut state.ema),
                quantity.of_sums(first, &|i| sums.total(i), elements),
            );
            if let Some((_, by_leaf)) = by_leaf.0.get_mut(i) {
                let (mut emas, updates) = match state.as_mut() {
                    Some(MeanState { by_leaf, updates, .. }) => (Some(by_leaf.iter_mut()), Some(&*updates)),
                    None => (None, None),
                };
                for (leaf, value) in by_leaf.iter_mut() {
                    let ema = emas.as_mut().and_then(Iterator::next).map(|(_, ema)| ema);
                    if sums.rests(leaf) {
                        continue;
                    }
                    let clock = clock.zip(updates).map(|(clock, updates)| clock.of_leaf(updates, leaf));
                    put(clock, value, ema, quantity.of_sums(first, &|i| sums.leaf(i, leaf), sums.leaf_len(leaf)));
                }
            }
            if let Some((_, by_group)) = by_group.0.get_mut(i) {
                let mut emas = state.as_mut().map(|state| state.by_group.0.iter_mut());
                for (group, (_, value)) in by_group.0.iter_mut().enumerate() {
                    let ema = emas.as_mut().and_then(Iterator::next).map(|(_, ema)| ema);
                    let inside = || leaves().filter(|leaf| group_of[*leaf] == group);
                    let sum = |i| inside().map(|leaf| sums.leaf(i, leaf)).sum();
                    let elements = inside().map(|leaf| sums.leaf_len(leaf)).sum();
                    put(clock, value, ema, quantity.of_sums(first, &sum, elements));
                }
            }
            first += quantity.sums();
        }
    }
}

impl MeanState {
    /// Counts a measurement; returns the clock before it.
    fn next(&mut self, sums: &Sums<'_>) -> Clock {
        let clock = Clock::after(self.count.get());
        self.count.increment();
        self.updates.iter_mut().filter(|(leaf, _)| !sums.rests(*leaf)).for_each(|(_, updates)| updates.increment());
        clock
    }
}

impl Mean {
    fn next(&self, clock: Clock, kept: &mut Scalar, measured: f64) -> f64 {
        let decay = self.decay.at(clock.count);
        let ema = decay * kept.get() + (1.0 - decay) * measured;
        kept.set(self.accumulator_dtype.map_or(ema, |dtype| with_dtype!(dtype, T => T::from_f64(ema).as_f64())));
        if self.debias { ema / clock.bias_correction(decay) } else { ema }
    }
}
