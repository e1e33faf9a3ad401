//! A stretch of one leaf on its way through a chain.

use core::ops::Range;

use super::ahead::Ahead;
use super::isa::Isa;
use super::limits::MOST_SLOTS;
use super::slots::SlotList;
use crate::element::{InRecord, Real, Term};

/// Elements of a tile: small enough that a tile and its state stay in the first-level cache.
pub(crate) const TILE: usize = 1024;

/// Elements of a tile where there are several loops and little to bring from one type to another.
pub(super) const SHORT: usize = 512;

/// Elements from one tile to the next in that room: each begins elsewhere in a page, since a processor that reads takes
/// what was just written at the same place of another page for what it looks for.
pub(super) const STEP: usize = TILE + 80;

/// Room for a tile's updates, parameters and state in the compute type, where they are not lying so already.
#[derive(Default)]
pub struct Spare {
    pub(crate) single: Room<f32>,
    pub(crate) double: Room<f64>,
}

/// Made when it is first asked for: clearing it takes as long as the loop of a piece may take.
pub(crate) struct Room<C>(Option<Lines<C>>);

/// Begins where a line of the cache does, so that no register is filled from two of them.
#[repr(align(64))]
struct Lines<C>([C; STEP * (MOST_SLOTS + 3)]);

impl<C> Default for Room<C> {
    fn default() -> Self {
        Room(None)
    }
}

impl<C: Real> Room<C> {
    #[inline]
    pub(crate) fn all(&mut self) -> &mut [C] {
        if self.0.is_none() {
            self.make();
        }
        self.0.as_mut().map_or(&mut [], |lines| &mut lines.0)
    }

    /// Not a part of who asks: the room goes over the stack, and a function with so much on it touches each page of
    /// that whenever it is called.
    #[cold]
    #[inline(never)]
    fn make(&mut self) {
        self.0 = Some(Lines([C::zero(); _]));
    }
}

/// A stretch of one leaf's updates, with the parameters it belongs to.
///
/// A stage rewrites [`u`](Tile::u). Elements are in the leaf's memory order.
pub struct Tile<'t, C> {
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    /// The updates, if they have not been written to `u` yet: gradients that can be read where they are.
    pub(crate) source: Option<&'t [C]>,
    pub(crate) u: &'t mut [C],
    /// Room for a loop that writes to another place than it reads from; changes place with `u`.
    pub(crate) other: &'t mut [C],
    /// Whether the two have changed places an odd number of times.
    pub(crate) swapped: bool,
    pub(crate) p: &'t [C],
    pub(crate) sums: &'t mut [f64],
    /// The updates are all zero, whatever `u` holds.
    pub(crate) zero: bool,
    /// The updates have been added to the parameters.
    pub(crate) added: bool,
    pub(crate) spare: &'t mut [C],
    /// Where the gradients of the tile after this one are.
    pub(crate) coming: usize,
    /// What the tile after this one reads, while no loop asks for it.
    pub(crate) ahead: Option<&'t mut Ahead>,
    pub(crate) isa: Isa,
}

/// What a part does to the state of an element, its update and its terms of sums: it returns the new update.
pub(crate) type DoesTo<'a, C> = &'a dyn Fn(&mut [C], C, &mut [Term<C>]) -> C;

impl<'t, C: Real> Tile<'t, C> {
    /// The one element that there is of a type that records.
    pub(crate) fn in_record(leaf: usize, u: &'t mut [C], p: &'t [C], isa: Isa) -> Tile<'t, C> {
        let (other, sums, spare): (&mut [C], &mut [f64], &mut [C]) = Default::default();
        let (swapped, zero, added, ahead) = (false, false, false, None);
        Tile { leaf, start: 0, source: None, u, other, swapped, p, sums, zero, added, spare, coming: 0, ahead, isa }
    }

    /// The number of the leaf.
    pub fn leaf(&self) -> usize {
        self.leaf
    }

    /// The number, in memory order, of the tile's first element.
    pub fn start(&self) -> usize {
        self.start
    }

    /// How many elements.
    #[allow(clippy::len_without_is_empty, reason = "a tile is never empty")]
    pub fn len(&self) -> usize {
        self.u.len()
    }

    /// Updates, to rewrite, and parameters.
    pub fn parts(&mut self) -> (&mut [C], &[C]) {
        self.settle();
        (self.u, self.p)
    }

    /// The updates, to read.
    pub(crate) fn input(&mut self) -> &[C] {
        if self.zero {
            self.settle();
        }
        self.source.unwrap_or(self.u)
    }

    /// Does something to the one element that there is of a type that records: to its state in these arrays, to its
    /// update, and to those sums of the chain.
    pub(crate) fn record(&mut self, arrays: &[Option<InRecord>], sums: Range<usize>, part: DoesTo<'_, C>) {
        self.settle();
        let u = self.u[0];
        self.u[0] = C::record(arrays, sums, &|slots, terms| part(slots, u, terms));
    }

    /// Prefetches a share of what the next tile reads, before a loop over this one.
    pub(crate) fn prefetch_share(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.prefetch_share();
        }
    }

    /// Says that a stretch of each of these arrays is read for this tile.
    pub(crate) fn reads(&mut self, arrays: &SlotList<'_>) {
        if let Some(ahead) = &mut self.ahead
            && ahead.is_first()
        {
            arrays.read(self.start, self.u.len(), ahead);
        }
    }

    /// Makes `u` hold the updates.
    pub(crate) fn settle(&mut self) {
        let source = self.source.take();
        if core::mem::take(&mut self.zero) {
            self.u.fill(C::zero());
        } else if let Some(source) = source {
            self.u.copy_from_slice(source);
        }
    }

    /// Where a loop reads from and where it writes to, which is `u` afterwards.
    pub(crate) fn io(&mut self) -> (&[C], &mut [C]) {
        if self.zero {
            self.settle();
        }
        let Some(source) = self.source.take() else {
            core::mem::swap(&mut self.u, &mut self.other);
            self.swapped = !self.swapped;
            return (self.other, self.u);
        };
        (source, self.u)
    }

    /// The input of a loop, and its output, which is empty if the loop writes no updates.
    pub(crate) fn input_output(&mut self, writes: bool) -> (&[C], &mut [C]) {
        if writes { self.io() } else { (self.input(), &mut []) }
    }

    /// The updates, to rewrite.
    pub fn u(&mut self) -> &mut [C] {
        self.parts().0
    }

    /// The sums of this stretch; a stage's own start at its [`Place::sum`](super::Place::sum).
    pub fn sums(&mut self) -> &mut [f64] {
        self.sums
    }

    /// Makes the updates zero without writing them: a parameter whose update is zero is not touched.
    pub fn set_zero(&mut self) {
        self.zero = true;
    }
}
