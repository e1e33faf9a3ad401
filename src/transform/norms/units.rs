//! Groups of a leaf's elements: a unit is the elements that differ only in their indices along some axes.

use core::ops::Range;

use crate::Real;
use crate::internal::numeric::{Job, axes_by_stride, sum_tile};
use crate::tree::LeafSpec;

/// A leaf in memory as a sequence of units, numbered in memory order.
#[derive(Clone, Debug, Hash)]
pub(super) struct Units {
    /// Lengths in memory order, outermost first; true if indices belong to one unit. Adjacent axes merge if alike.
    axes: Vec<(usize, bool)>,
    pub(super) count: usize,
    /// Elements per unit.
    pub(super) len: usize,
}

impl Units {
    /// Returns units whose elements differ along the axes for which `within` holds.
    pub(super) fn new(leaf: &LeafSpec, within: impl Fn(usize) -> bool) -> Units {
        let shape = leaf.shape();
        // Even if the other axes are long.
        if leaf.len() == 0 {
            return Units { axes: Vec::new(), count: 0, len: 0 };
        }
        let mut axes: Vec<(usize, bool)> = Vec::new();
        for a in axes_by_stride(shape, leaf.strides()) {
            match axes.last_mut() {
                Some((len, kind)) if *kind == within(a) => *len *= shape[a],
                _ => axes.push((shape[a], within(a))),
            }
        }
        let product = |kind| axes.iter().filter(|axis| axis.1 == kind).map(|axis| axis.0).product();
        Units { count: product(false), len: product(true), axes }
    }

    #[inline(always)]
    fn runs(&self) -> usize {
        self.axes.split_last().map_or(1, |(_, outer)| outer.iter().map(|axis| axis.0).product())
    }

    /// Returns a run's range, its first unit, and true if all its elements belong to it, not each to the next.
    #[inline(always)]
    fn run(&self, run: usize) -> (Range<usize>, usize, bool) {
        let Some((&(len, same), outer)) = self.axes.split_last() else { return (0..1, 0, true) };
        let (mut rest, mut unit, mut step) = (run, 0, if same { 1 } else { len });
        for &(len, same) in outer.iter().rev() {
            if !same {
                unit += rest % len * step;
                step *= len;
            }
            rest /= len;
        }
        (run * len..(run + 1) * len, unit, same)
    }
}

/// Adds `f` of every element to its unit's sum.
pub(super) struct AccumulateUnits<'a, C, F> {
    pub(super) units: &'a Units,
    pub(super) x: &'a [C],
    pub(super) sums: &'a mut [f64],
    pub(super) f: F,
}

impl<C: Real, F: Fn(C) -> f64 + Copy> Job for AccumulateUnits<'_, C, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let AccumulateUnits { units, x, sums, f } = self;
        for run in 0..units.runs() {
            let (run, unit, same) = units.run(run);
            let x = &x[run];
            if same {
                sums[unit] += sum_tile(x, f);
            } else {
                let sums = &mut sums[unit..][..x.len()];
                for i in 0..x.len() {
                    sums[i] += f(x[i]);
                }
            }
        }
    }
}

/// Maps every element, given its unit.
pub(super) struct MapUnits<'a, C, F> {
    pub(super) units: &'a Units,
    pub(super) x: &'a mut [C],
    pub(super) by: &'a [f64],
    pub(super) f: F,
}

impl<C: Real, F: Fn(C, f64) -> C> Job for MapUnits<'_, C, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let MapUnits { units, x, by, f } = self;
        for run in 0..units.runs() {
            let (run, unit, same) = units.run(run);
            let x = &mut x[run];
            if same {
                let by = by[unit];
                x.iter_mut().for_each(|x| *x = f(*x, by));
            } else {
                let by = &by[unit..][..x.len()];
                for i in 0..x.len() {
                    x[i] = f(x[i], by[i]);
                }
            }
        }
    }
}
