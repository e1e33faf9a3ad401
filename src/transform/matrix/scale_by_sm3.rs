use core::hint::select_unpredictable;
use std::sync::Arc;

use crate::engine::Job;
use crate::layout::axes_by_stride;
use crate::numeric::ahead::Reach;
use crate::numeric::isa::{Isa, Set, current_isa, dispatch};
use crate::numeric::split::{Split, half, in_parts};
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Divides updates by the root of a bound on the sum of their squares, which is kept as one number for each index of
/// each axis instead of one for each element, and averages the result.
///
/// # Arithmetic
///
/// For element `i, j, …`, with one array for each axis, all starting at 0:
///
/// ```text
/// v_ij… = b2·min(row_i, column_j, …) + (1 − b2)·u²       with b2 = 1: min(row_i, column_j, …) + u²
/// row_i ← max_j… v_ij…                                   and so for each axis
/// m ← b1·m + (1 − b1)·u / √(v + eps)                     0 for the quotient where v = 0
/// u ← m
/// ```
///
/// A leaf of one axis, or none, has `v` itself: with `b2` 1 that is Adagrad.
///
/// # Cost
///
/// For a leaf of `n × m`, `n + m` floats of state, and one for each parameter for the mean. One more pass, which only
/// looks at the updates: it needs the gradients once more, and stores them only if something has changed them before.
/// Reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` is not in `[0, 1)`, `b2` not in `[0, 1]`, or `eps` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use ndarray::array;
///
/// let optimizer = scale_by_sm3().b1(0.0).eps(0.0);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let mut state = optimizer.init(&params)?;
/// let grads = array![[3.0, -1.0], [0.0, 1.0]];
/// let updates = optimizer.update(&grads, &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [1.0, -1.0, 0.0, 1.0]);
/// // The largest squares of the rows are 9 and 1, those of the columns the same.
/// let updates = optimizer.update(&array![[4.0, 0.0], [0.0, 0.0]], &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [0.8, 0.0, 0.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Anil, Gupta, Koren and Singer, [Memory-efficient adaptive optimization](https://arxiv.org/abs/1901.11150), 2019,
/// SM3-II. Optax, [`scale_by_sm3`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: Optax
/// fails on leaves that are single numbers.
pub fn scale_by_sm3() -> ScaleBySm3 {
    ScaleBySm3::with()
}

part! {
    /// See [`scale_by_sm3`].
    pub ScaleBySm3 as "scale_by_sm3": Whole, OWN_SIZE;
    hyperparams {
        /// Decay of the mean of what is emitted.
        b1: DECAY = 0.9;
        /// Decay of the squares; 1 adds them up.
        b2: SHARE = 1.0;
        /// Added under the root.
        eps: NOT_NEGATIVE = 1e-8;
    }
}

/// What [`scale_by_sm3`] remembers, besides the array `nu`, the mean of what was emitted.
#[derive(Clone, Debug)]
pub struct ScaleBySm3State {
    /// Steps done.
    pub count: Count,
    /// One number for each index of each axis, the axes one after another.
    pub mu: Moments,
    /// `mu` as it was before the step, of leaves of two axes or more: what bounds their elements.
    before: Moments,
    /// Room for the next `mu`, as far as each block of a leaf knows.
    next: Moments,
    layouts: Arc<[Layout]>,
    now: Scalars<f64>,
}

state_fields!(ScaleBySm3State { count, mu } knows { layouts } room { before });

/// How a leaf of two axes or more lies. Of others there is nothing to know: each element has a bound of its own.
#[derive(Clone, Debug, Hash, Default)]
struct Layout {
    /// The axes in memory order, outermost first: how long each is, and where its numbers begin.
    axes: Vec<[usize; 2]>,
    /// How many numbers all axes have.
    sizes: usize,
    /// Elements for each index of the outermost axis, and how many of these indices make a block.
    row: usize,
    per: usize,
}

/// The most blocks that a leaf is cut into, and elements that are worth a block.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

impl Layout {
    fn new(leaf: &LeafSpec) -> Layout {
        let shape = leaf.shape();
        if shape.len() < 2 || leaf.len() == 0 {
            return Layout::default();
        }
        // An axis of length 1 bounds nothing that another does not, but where there is no other.
        let axes: Vec<_> =
            axes_by_stride(shape, leaf.strides()).into_iter().map(|a| [shape[a], shape[..a].iter().sum()]).collect();
        let rows = axes[0][0];
        let row = leaf.len() / rows;
        Layout { axes, sizes: shape.iter().sum(), row, per: rows.div_ceil(BLOCKS).max(BLOCK.div_ceil(row)) }
    }

    fn blocks(&self) -> usize {
        self.axes.first().map_or(0, |[rows, _]| rows.div_ceil(self.per))
    }
}

impl WholeTreeTransformation for ScaleBySm3 {
    const BY_LEAF: bool = true;
    const LOOKS: bool = true;
    const SLOTS: &'static [Slot] = &[Slot::signed("nu")];
    type State = ScaleBySm3State;
    type Needs = Nothing;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleBySm3State> {
        let compute = |leaf: &LeafSpec| leaf.dtype().compute();
        let each_axis = |leaf: &LeafSpec| Some(vec![if leaf.ndim() == 0 { 1 } else { leaf.shape().iter().sum() }]);
        let mu = Moments::with_shapes(at.structure(), at.active(), compute, each_axis)?;
        let room = |of: fn(&Layout) -> usize| {
            Moments::with_shapes(at.structure(), at.active(), compute, |leaf| Some(vec![of(&Layout::new(leaf))]))
        };
        Ok(ScaleBySm3State {
            count: Count::default(),
            mu,
            before: room(|layout| layout.sizes)?,
            next: room(|layout| layout.blocks() * layout.sizes)?,
            layouts: at.structure().leaves().iter().map(Layout::new).collect(),
            now: self.scalars(0),
        })
    }

    fn transform(&self, state: &mut ScaleBySm3State, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        state.now = self.scalars(state.count.get());
        state.count.increment();
        tree.look(&mut Bounds(state));
    }

    fn stretch<C: Real>(
        &self,
        state: &ScaleBySm3State,
        leaf: usize,
        start: usize,
        slots: &mut [&mut [C]],
        from: &[C],
        to: &mut [C],
    ) {
        let ScaleBySm3State { mu, before, layouts, now, .. } = state;
        let (Some(mu), Some(before), [nu]) = (mu.get::<C>(leaf), before.get::<C>(leaf), slots) else {
            return to.copy_from_slice(from);
        };
        let (k, isa, layout) = (now.rounded(), current_isa(), &layouts[leaf]);
        if layout.axes.is_empty() {
            return dispatch(isa, ByElement { k, from, to, nu, mu: &mu[start..] });
        }
        dispatch(isa, ByBounds { k, layout, start, from, to, nu, mu: before });
    }
}

struct Bounds<'a>(&'a mut ScaleBySm3State);

impl LeafLooker for Bounds<'_> {
    fn look<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
        let ScaleBySm3State { mu, before, next, layouts, now, .. } = &mut *self.0;
        let (Some(mu), Some(before), Some(next)) =
            (mu.get_mut::<C>(leaf), before.get_mut::<C>(leaf), next.get_mut::<C>(leaf))
        else {
            return;
        };
        let (k, layout) = (now.rounded(), &layouts[leaf]);
        if layout.axes.is_empty() {
            return in_parts(Elements { k, u, mu });
        }
        next.fill(C::zero());
        in_parts(Rows { k, layout, first: 0, u, mu: &*mu, next: &mut *next });
        before.copy_from_slice(mu);
        mu.fill(C::zero());
        for block in next.chunks_exact(layout.sizes) {
            mu.iter_mut().zip(block).for_each(|(mu, block)| *mu = larger(*mu, *block));
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Scalars<C> {
    keep: C,
    take: C,
    keep_squares: C,
    take_squares: C,
    eps: C,
}

impl ScaleBySm3 {
    /// In step number `count`.
    fn scalars(&self, count: u64) -> Scalars<f64> {
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], count);
        let take_squares = if b2 == 1.0 { 1.0 } else { 1.0 - b2 };
        Scalars { keep: b1, take: 1.0 - b1, keep_squares: b2, take_squares, eps }
    }
}

impl Scalars<f64> {
    fn rounded<C: Real>(self) -> Scalars<C> {
        let Scalars { keep, take, keep_squares, take_squares, eps } = self;
        let [keep, take, keep_squares, take_squares, eps] = [keep, take, keep_squares, take_squares, eps].map(C::of);
        Scalars { keep, take, keep_squares, take_squares, eps }
    }
}

impl<C: Real> Scalars<C> {
    #[inline(always)]
    fn square(&self, u: C, bound: C) -> C {
        self.take_squares * (u * u) + self.keep_squares * bound
    }

    /// The next mean.
    #[inline(always)]
    fn mean(&self, u: C, v: C, nu: C) -> C {
        let scaled = u * select_unpredictable(v > C::zero(), C::one() / (v + self.eps).sqrt(), C::zero());
        self.keep * nu + self.take * scaled
    }
}

/// Elements that have a bound each: the next bounds.
struct Elements<'a, C> {
    k: Scalars<C>,
    u: &'a [C],
    mu: &'a mut [C],
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

/// What becomes of elements whose bounds are their squares.
struct ByElement<'a, C> {
    k: Scalars<C>,
    from: &'a [C],
    to: &'a mut [C],
    nu: &'a mut [C],
    mu: &'a [C],
}

impl<C: Real> Job for ByElement<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ByElement { k, from, to, nu, mu } = self;
        let n = to.len();
        let (from, nu, mu) = (&from[..n], &mut nu[..n], &mu[..n]);
        for i in 0..n {
            nu[i] = k.mean(from[i], mu[i], nu[i]);
            to[i] = nu[i];
        }
    }
}

/// What becomes of elements that are bound by the numbers of the axes.
struct ByBounds<'a, C> {
    k: Scalars<C>,
    layout: &'a Layout,
    /// The number of the first element.
    start: usize,
    from: &'a [C],
    to: &'a mut [C],
    nu: &'a mut [C],
    mu: &'a [C],
}

impl<C: Real> Job for ByBounds<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ByBounds { k, layout, start, from, to, nu, mu } = self;
        let Some((&[len, inner], _)) = layout.axes.split_last() else { return };
        let mut done = 0;
        while done < to.len() {
            let (run, first) = ((start + done) / len, (start + done) % len);
            let n = (len - first).min(to.len() - done);
            let bound = layout.bound(run, mu);
            let (from, to, nu) = (&from[done..][..n], &mut to[done..][..n], &mut nu[done..][..n]);
            let mu = &mu[inner + first..][..n];
            run_of(k, bound, from, to, nu, mu);
            done += n;
        }
    }
}

/// Some neighbours along the innermost axis. A function of its own, since arguments are known not to overlap.
#[inline(always)]
fn run_of<C: Real>(k: Scalars<C>, bound: C, from: &[C], to: &mut [C], nu: &mut [C], mu: &[C]) {
    let (from, from_end) = from.as_chunks::<AT_ONCE>();
    let ((to, to_end), (nu, nu_end)) = (to.as_chunks_mut::<AT_ONCE>(), nu.as_chunks_mut::<AT_ONCE>());
    let (mu, mu_end) = mu.as_chunks::<AT_ONCE>();
    let reach = Reach::here();
    for b in 0..from.len() {
        if reach.is_asked_to_read() {
            reach.ask_after(&from[b]);
            reach.ask_after(&nu[b]);
        }
        for i in 0..AT_ONCE {
            nu[b][i] = k.mean(from[b][i], k.square(from[b][i], smaller(bound, mu[b][i])), nu[b][i]);
            to[b][i] = nu[b][i];
        }
    }
    for i in 0..from_end.len() {
        nu_end[i] = k.mean(from_end[i], k.square(from_end[i], smaller(bound, mu_end[i])), nu_end[i]);
        to_end[i] = nu_end[i];
    }
}

impl Layout {
    /// The least number of the places along the outer axes of a run, which are the neighbours along the innermost one.
    #[inline(always)]
    fn bound<C: Real>(&self, run: usize, mu: &[C]) -> C {
        let (mut rest, mut bound) = (run, C::infinity());
        for axis in (0..self.axes.len() - 1).rev() {
            let [len, first] = self.axes[axis];
            bound = smaller(bound, mu[first + rest % len]);
            rest /= len;
        }
        bound
    }

    /// Raises the numbers of these places.
    #[inline(always)]
    fn raise<C: Real>(&self, run: usize, largest: C, next: &mut [C]) {
        let mut rest = run;
        for axis in (0..self.axes.len() - 1).rev() {
            let [len, first] = self.axes[axis];
            next[first + rest % len] = larger(next[first + rest % len], largest);
            rest /= len;
        }
    }
}

/// Some indices of the outermost axis of a leaf: run by run along its innermost axis, the next numbers of all axes.
struct Rows<'a, C> {
    k: Scalars<C>,
    layout: &'a Layout,
    /// The index that comes first.
    first: usize,
    u: &'a [C],
    mu: &'a [C],
    /// The numbers of all axes, for each block of these indices.
    next: &'a mut [C],
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
        self.together::<2>();
    }

    #[inline(always)]
    fn run_on<S: Set>(self) {
        // The largest of each run stay in registers, of which there are more here.
        match S::ISA {
            Isa::Baseline | Isa::Avx2 => self.together::<2>(),
            Isa::Avx512 => self.together::<8>(),
        }
    }
}

impl<C: Real> Rows<'_, C> {
    /// So many runs at a time: the numbers of the inner axis are brought from the cache once for all of them, and
    /// memory is read at as many places.
    #[inline(always)]
    fn together<const R: usize>(self) {
        let Rows { k, layout, first, u, mu, next } = self;
        let Some(&[len, _]) = layout.axes.last() else { return };
        let (first, runs) = (first * (layout.row / len), u.len() / len);
        let together = runs - runs % R;
        for run in (0..together).step_by(R) {
            bounds::<C, R>(k, layout, first + run, &u[run * len..][..R * len], mu, next);
        }
        for run in together..runs {
            bounds::<C, 1>(k, layout, first + run, &u[run * len..][..len], mu, next);
        }
    }
}

/// The largest are kept side by side, and memory is asked for so many blocks at once.
const LANES: usize = 16;
const ASKED: usize = 16;
/// Elements of a run of which the memory is asked for at once.
const AT_ONCE: usize = 64;

/// The next numbers of all axes, as far as some runs know them.
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
    let reach = Reach::here();
    let mut from = 0;
    while from < mu.len() {
        let to = mu.len().min(from + ASKED);
        if reach.is_asked_to_read() {
            for blocks in &blocks {
                reach.ask_to_read(&blocks[from..to]);
            }
        }
        for b in from..to {
            let mut most = inner_next[b];
            for r in 0..R {
                for i in 0..LANES {
                    let v = k.square(blocks[r][b][i], smaller(bound[r], mu[b][i]));
                    most[i] = larger(most[i], v);
                    largest[r][i] = larger(largest[r][i], v);
                }
            }
            inner_next[b] = most;
        }
        from = to;
    }
    for i in 0..mu_end.len() {
        for r in 0..R {
            let v = k.square(ends[r][i], smaller(bound[r], mu_end[i]));
            next_end[i] = larger(next_end[i], v);
            largest[r][i] = larger(largest[r][i], v);
        }
    }
    for (r, largest) in largest.iter().enumerate() {
        let mut all = C::zero();
        for lane in largest {
            all = larger(all, *lane);
        }
        layout.raise(first + r, all, next);
    }
}

/// The smaller, or NaN.
#[inline(always)]
fn smaller<C: Real>(a: C, b: C) -> C {
    select_unpredictable(b < a || b.is_nan(), b, a)
}

/// The larger, or NaN.
#[inline(always)]
fn larger<C: Real>(a: C, b: C) -> C {
    select_unpredictable(b > a || b.is_nan(), b, a)
}
