//! The loops over elements and axis accumulators, per SIMD level.

use core::hint::select_unpredictable;

use super::{BLOCK, Layout};
use crate::internal::numeric::{Always, Job, SimdType, Split, half, prefetch_to_read};
use crate::{Real, SimdLevel};

#[derive(Clone, Copy, Debug)]
pub(super) struct Scalars<C> {
    pub(super) keep: C,
    pub(super) take: C,
    pub(super) square_decay: C,
    pub(super) square_weight: C,
    pub(super) eps: C,
}

impl Scalars<f64> {
    pub(super) fn rounded<C: Real>(self) -> Scalars<C> {
        let Scalars { keep, take, square_decay, square_weight, eps } = self;
        let [keep, take, square_decay, square_weight, eps] = [keep, take, square_decay, square_weight, eps].map(C::of);
        Scalars { keep, take, square_decay, square_weight, eps }
    }
}

impl<C: Real> Scalars<C> {
    #[inline(always)]
    pub(super) fn square(&self, u: C, bound: C) -> C {
        self.square_weight * (u * u) + self.square_decay * bound
    }

    #[inline(always)]
    pub(super) fn mean(&self, u: C, v: C, nu: C) -> C {
        let scaled = u * select_unpredictable(v > C::zero(), C::one() / (v + self.eps).sqrt(), C::zero());
        self.keep * nu + self.take * scaled
    }
}

/// Computes the next bounds of elements with a bound each.
pub(super) struct Elements<'a, C> {
    pub(super) k: Scalars<C>,
    pub(super) u: &'a [C],
    pub(super) mu: &'a mut [C],
}

impl<C: Real> Split for Elements<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Some(half) = half(self.u.len(), BLOCK) else { return Err(self) };
        let ((u, later), (mu, later_mu)) = (self.u.split_at(half), self.mu.split_at_mut(half));
        Ok([Elements { u, mu, ..self }, Elements { u: later, mu: later_mu, ..self }])
    }
}

impl<C: Real> Job for Elements<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Elements { k, u, mu } = self;
        let n = u.len();
        let mu = &mut mu[..n];
        for i in 0..n {
            mu[i] = k.square(u[i], mu[i]);
        }
    }
}

/// The bounds of elements from `start` on: the minimum of their accumulators over all axes.
pub(super) struct Least<'a, C> {
    pub(super) layout: &'a Layout,
    pub(super) start: usize,
    pub(super) mu: &'a [C],
    pub(super) to: &'a mut [C],
}

impl<C: Real> Job for Least<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Least { layout, start, mu, to } = self;
        let Some(&[len, inner]) = layout.axes.last() else { return };
        let mut done = 0;
        while done < to.len() {
            let (run, first) = ((start + done) / len, (start + done) % len);
            let n = (len - first).min(to.len() - done);
            least(layout.bound(run, mu), &mu[inner + first..][..n], &mut to[done..][..n]);
            done += n;
        }
    }
}

#[inline(always)]
fn least<C: Real>(bound: C, mu: &[C], to: &mut [C]) {
    if bound.is_nan() {
        return to.fill(bound);
    }
    for i in 0..to.len() {
        to[i] = min_or_nan(bound, mu[i]);
    }
}

impl Layout {
    /// Returns the minimum of a run's accumulators over the outer axes.
    ///
    /// A run extends along the innermost axis.
    #[inline(always)]
    fn bound<C: Real>(&self, run: usize, mu: &[C]) -> C {
        let (mut rest, mut bound) = (run, C::infinity());
        for axis in (0..self.axes.len() - 1).rev() {
            let [len, first] = self.axes[axis];
            let number = mu[first + rest % len];
            bound = if bound.is_nan() { bound } else { min_or_nan(bound, number) };
            rest /= len;
        }
        bound
    }

    /// Raises a run's accumulators of the outer axes to at least `largest`.
    #[inline(always)]
    fn raise_maxima<C: Real>(&self, run: usize, largest: C, next: &mut [C]) {
        let mut rest = run;
        for axis in (0..self.axes.len() - 1).rev() {
            let [len, first] = self.axes[axis];
            next[first + rest % len] = next[first + rest % len].max_or_nan(largest);
            rest /= len;
        }
    }
}

/// Computes the next accumulators of all axes from a block of the outermost axis, run by run.
pub(super) struct Rows<'a, C> {
    pub(super) k: Scalars<C>,
    pub(super) layout: &'a Layout,
    pub(super) first: usize,
    pub(super) u: &'a [C],
    pub(super) mu: &'a [C],
    /// The accumulators of all axes, for this block.
    pub(super) next: &'a mut [C],
}

impl<C: Real> Split for Rows<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Layout { sizes, row, per, .. } = *self.layout;
        let Some(half) = half(self.u.len() / row, per) else { return Err(self) };
        let (u, later_u) = self.u.split_at(half * row);
        let (next, later) = self.next.split_at_mut(half / per * sizes);
        Ok([Rows { u, next, ..self }, Rows { first: self.first + half, u: later_u, next: later, ..self }])
    }
}

impl<C: Real> Job for Rows<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.interleaved::<2>();
    }

    #[inline(always)]
    fn run_on<S: SimdType>(self) {
        // Each run's maxima stay in registers, of which AVX-512 has more.
        match S::SIMD {
            SimdLevel::Avx512 => self.interleaved::<8>(),
            _ => self.interleaved::<2>(),
        }
    }
}

impl<C: Real> Rows<'_, C> {
    /// Handles `R` runs: loads the inner axis's accumulators once, reads `R` memory streams.
    #[inline(always)]
    fn interleaved<const R: usize>(self) {
        let Rows { k, layout, first, u, mu, next } = self;
        let Some(&[len, _]) = layout.axes.last() else { return };
        let (first, runs) = (first * (layout.row / len), u.len() / len);
        let interleaved = runs - runs % R;
        for run in (0..interleaved).step_by(R) {
            bounds::<C, R>(k, layout, first + run, &u[run * len..][..R * len], mu, next);
        }
        for run in interleaved..runs {
            bounds::<C, 1>(k, layout, first + run, &u[run * len..][..len], mu, next);
        }
    }
}

/// Maxima kept side by side, and blocks prefetched at once.
const LANES: usize = 16;
const PREFETCHED: usize = 16;

/// Updates all axes' next accumulators with `R` runs.
#[inline(always)]
fn bounds<C: Real, const R: usize>(k: Scalars<C>, layout: &Layout, first: usize, u: &[C], mu: &[C], next: &mut [C]) {
    let [len, inner] = layout.axes[layout.axes.len() - 1];
    let (mut bound, mut largest) = ([C::zero(); R], [[C::zero(); LANES]; R]);
    for (r, bound) in bound.iter_mut().enumerate() {
        *bound = layout.bound(first + r, mu);
    }
    let (mu, mu_end) = mu[inner..][..len].as_chunks::<LANES>();
    let (inner_next, next_end) = next[inner..][..len].as_chunks_mut::<LANES>();
    let inner_next = &mut inner_next[..mu.len()];
    let (mut blocks, mut ends): ([&[[C; LANES]]; R], [&[C]; R]) = ([&[]; R], [&[]; R]);
    for r in 0..R {
        let (whole, end) = u[r * len..][..len].as_chunks::<LANES>();
        (blocks[r], ends[r]) = (&whole[..mu.len()], &end[..mu_end.len()]);
    }
    let always = Always::new();
    let mut from = 0;
    while from < mu.len() {
        let to = mu.len().min(from + PREFETCHED);
        for blocks in &blocks {
            prefetch_to_read(&blocks[from..to]);
        }
        for b in from..to {
            let mut most = inner_next[b];
            for r in 0..R {
                for i in 0..LANES {
                    let v = k.square(blocks[r][b][i], min_or_nan(bound[r], mu[b][i]));
                    // With several runs the last `max_or_nan` does not choose the stored value, so LLVM makes no masked
                    // store.
                    let before = if R == 1 { always.store(most[i]) } else { most[i] };
                    most[i] = before.max_or_nan(v);
                    largest[r][i] = largest[r][i].max_or_nan(v);
                }
            }
            inner_next[b] = most;
        }
        from = to;
    }
    for i in 0..mu_end.len() {
        for r in 0..R {
            let v = k.square(ends[r][i], min_or_nan(bound[r], mu_end[i]));
            next_end[i] = next_end[i].max_or_nan(v);
            largest[r][i] = largest[r][i].max_or_nan(v);
        }
    }
    for (r, largest) in largest.iter().enumerate() {
        let mut all = C::zero();
        for lane in largest {
            all = all.max_or_nan(*lane);
        }
        if bound[r].is_nan() {
            all = bound[r];
            next[inner..][..len].fill(all);
        }
        layout.raise_maxima(first + r, all, next);
    }
}

/// Returns the smaller number, NaN if `number` is, in one instruction. The caller handles NaN bounds.
#[inline(always)]
fn min_or_nan<C: Real>(bound: C, number: C) -> C {
    select_unpredictable(bound < number, bound, number)
}
