//! Leaf statistics, expanded to one value per element by slice, never by leaf.

use core::any::Any;
use core::marker::PhantomData;

use crate::element::{Real, TypedJob};

/// Fills slices with statistics, from a state, for a leaf, from element `start` on.
pub(super) type Fill<C> = fn(&dyn Any, usize, usize, &mut [&mut [C]]);

/// A leaf's statistics, with the functions that expand them.
#[derive(Clone, Copy)]
pub struct Expansion<'a> {
    pub(super) state: &'a dyn Any,
    pub(super) leaf: usize,
    pub(super) single: Fill<f32>,
    pub(super) double: Fill<f64>,
}

impl Expansion<'_> {
    pub(super) fn fill<C: Real>(self, start: usize, to: &mut [&mut [C]]) {
        C::dispatch_type(From(self, start, PhantomData), to);
    }
}

struct From<'a, 't, 's>(Expansion<'a>, usize, PhantomData<&'t mut &'s ()>);

impl<'t, 's> TypedJob for From<'_, 't, 's> {
    type Argument<C: Real> = &'t mut [&'s mut [C]];
    fn single(self, to: &mut [&mut [f32]]) {
        (self.0.single)(self.0.state, self.0.leaf, self.1, to);
    }
    fn double(self, to: &mut [&mut [f64]]) {
        (self.0.double)(self.0.state, self.0.leaf, self.1, to);
    }
}
