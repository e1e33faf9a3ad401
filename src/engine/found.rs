//! Numbers that a part has found out of whole leaves and gives to the loop of each element: worked out for a stretch
//! when it is come to, so that they are nowhere as long as the leaf.

use core::any::Any;
use core::marker::PhantomData;

use crate::element::{ByReal, Real};

/// Fills stretches of a leaf, each with one of the numbers that every element has: out of a state, for the leaf of this
/// number, from the element of this number on.
pub(super) type Fill<C> = fn(&dyn Any, usize, usize, &mut [&mut [C]]);

/// What has been found out of a leaf, and how it is brought to elements.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    pub(super) state: &'a dyn Any,
    pub(super) leaf: usize,
    pub(super) single: Fill<f32>,
    pub(super) double: Fill<f64>,
}

impl Found<'_> {
    /// Fills stretches of the same length that begin at the element of a number.
    pub(super) fn fill<C: Real>(self, start: usize, to: &mut [&mut [C]]) {
        C::split(From(self, start, PhantomData), to);
    }
}

/// From an element on, to some stretches.
struct From<'a, 't, 's>(Found<'a>, usize, PhantomData<&'t mut &'s ()>);

impl<'t, 's> ByReal for From<'_, 't, 's> {
    type Argument<C: Real> = &'t mut [&'s mut [C]];
    type Output = ();
    fn single(self, to: &mut [&mut [f32]]) {
        (self.0.single)(self.0.state, self.0.leaf, self.1, to);
    }
    fn double(self, to: &mut [&mut [f64]]) {
        (self.0.double)(self.0.state, self.0.leaf, self.1, to);
    }
    /// What is recorded is nowhere in memory.
    fn recorded<C: Real>(self, _: &mut [&mut [C]], _: fn(C) -> u32, _: fn(u32) -> C) {}
}
