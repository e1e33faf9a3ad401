use core::hint::select_unpredictable;
use std::sync::Arc;

use crate::engine::Job;
use crate::layout::axes_by_stride;
use crate::numeric::ahead::Reach;
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

/// What [`scale_by_sm3`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleBySm3State {
    /// Steps done.
    pub count: Count,
    /// One number for each index of each axis, the axes one after another.
    pub mu: Moments,
    /// The mean of what was emitted.
    pub nu: Moments,
    /// Room for the next `mu`, as far as each block of a leaf knows.
    next: Moments,
    layouts: Arc<[Layout]>,
}

state_fields!(ScaleBySm3State { count, mu, nu } knows { layouts });

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
    // The mean is the update, and it is in the state.
    const LOOKS: bool = true;
    type State = ScaleBySm3State;
    type Needs = Nothing;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleBySm3State> {
        let compute = |leaf: &LeafSpec| leaf.dtype().compute();
        let each_axis = |leaf: &LeafSpec| Some(vec![if leaf.ndim() == 0 { 1 } else { leaf.shape().iter().sum() }]);
        let mu = Moments::with_shapes(at.structure(), at.active(), compute, each_axis)?;
        let of_blocks = |leaf: &LeafSpec| {
            let layout = Layout::new(leaf);
            Some(vec![layout.blocks() * layout.sizes])
        };
        let next = Moments::with_shapes(at.structure(), at.active(), compute, of_blocks)?;
        let layouts = at.structure().leaves().iter().map(Layout::new).collect();
        Ok(ScaleBySm3State { count: Count::default(), mu, nu: at.moments()?, next, layouts })
    }

    fn transform(&self, state: &mut ScaleBySm3State, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], state.count.get());
        state.count.increment();
        tree.look(&mut Sm3 { state, b1, b2, eps });
    }

    fn stretch<C: Real>(&self, state: &ScaleBySm3State, leaf: usize, start: usize, from: &[C], to: &mut [C]) {
        let mean = state.nu.get::<C>(leaf).and_then(|nu| nu.get(start..start + to.len()));
        to.copy_from_slice(mean.unwrap_or(from));
    }
}

struct Sm3<'a> {
    state: &'a mut ScaleBySm3State,
    b1: f64,
    b2: f64,
    eps: f64,
}

impl LeafLooker for Sm3<'_> {
    fn look<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
        let ScaleBySm3State { mu, nu, next, layouts, .. } = &mut *self.state;
        let (Some(mu), Some(nu), Some(next)) = (mu.get_mut::<C>(leaf), nu.get_mut::<C>(leaf), next.get_mut::<C>(leaf))
        else {
            return;
        };
        let k = Scalars {
            keep: C::of(self.b1),
            take: C::of(1.0 - self.b1),
            keep_squares: C::of(self.b2),
            take_squares: C::of(if self.b2 == 1.0 { 1.0 } else { 1.0 - self.b2 }),
            eps: C::of(self.eps),
        };
        let layout = &layouts[leaf];
        if layout.axes.is_empty() {
            return in_parts(Elements { k, u, nu, mu });
        }
        next.fill(C::zero());
        in_parts(Rows { k, layout, first: 0, u, nu, mu, next: &mut *next });
        mu.fill(C::zero());
        for block in next.chunks_exact(layout.sizes) {
            mu.iter_mut().zip(block).for_each(|(mu, block)| *mu = larger(*mu, *block));
        }
    }
}

#[derive(Clone, Copy)]
struct Scalars<C> {
    keep: C,
    take: C,
    keep_squares: C,
    take_squares: C,
    eps: C,
}

/// Elements that are worked on together: one simple loop after another, each of which vectorises.
const STRETCH: usize = 256;
const LANES: usize = 16;

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

/// Elements that have a bound each.
struct Elements<'a, C> {
    k: Scalars<C>,
    u: &'a [C],
    nu: &'a mut [C],
    mu: &'a mut [C],
}

impl<C: Real> Split for Elements<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Some(half) = half(self.u.len(), BLOCK) else { return Err(self) };
        let (u, later_u) = self.u.split_at(half);
        let [(nu, later_nu), (mu, later_mu)] = [self.nu, self.mu].map(|array| array.split_at_mut(half));
        Ok([Elements { u, nu, mu, ..self }, Elements { u: later_u, nu: later_nu, mu: later_mu, ..self }])
    }
}

impl<C: Real> Job for Elements<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Elements { k, u, nu, mu } = self;
        let n = u.len();
        let (nu, mu) = (&mut nu[..n], &mut mu[..n]);
        for i in 0..n {
            mu[i] = k.square(u[i], mu[i]);
            nu[i] = k.mean(u[i], mu[i], nu[i]);
        }
    }
}

/// Some indices of the outermost axis of a leaf: run by run along its innermost axis.
struct Rows<'a, C> {
    k: Scalars<C>,
    layout: &'a Layout,
    /// The index that comes first.
    first: usize,
    u: &'a [C],
    nu: &'a mut [C],
    mu: &'a [C],
    /// The numbers of all axes, for each block of these indices.
    next: &'a mut [C],
}

impl<C: Real> Split for Rows<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Layout { sizes, row, per, .. } = *self.layout;
        let Some(half) = half(self.u.len() / row, per) else { return Err(self) };
        let ((u, later_u), (nu, later_nu)) = (self.u.split_at(half * row), self.nu.split_at_mut(half * row));
        let (next, later) = self.next.split_at_mut(half / per * sizes);
        Ok([
            Rows { u, nu, next, ..self },
            Rows { first: self.first + half, u: later_u, nu: later_nu, next: later, ..self },
        ])
    }
}

impl<C: Real> Job for Rows<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Rows { k, layout, first, u, nu, mu, next } = self;
        let Some((&[len, inner], outer)) = layout.axes.split_last() else { return };
        let reach = Reach::here();
        let mut squares = [C::zero(); STRETCH];
        let runs = first * (layout.row / len);
        for (run, nu) in nu.chunks_exact_mut(len).enumerate() {
            let u = &u[run * len..][..len];
            // The place along each outer axis, innermost of them first.
            let places = |each: &mut dyn FnMut(usize)| {
                let mut rest = runs + run;
                for [len, first] in outer.iter().rev() {
                    each(first + rest % len);
                    rest /= len;
                }
            };
            let mut bound = C::infinity();
            places(&mut |place| bound = smaller(bound, mu[place]));
            let mut largest = [C::zero(); LANES];
            for start in (0..len).step_by(STRETCH) {
                let here = start..len.min(start + STRETCH);
                let n = here.len();
                let (u, nu, v) = (&u[here.clone()], &mut nu[here.clone()], &mut squares[..n]);
                let (mu, next) = (&mu[inner + start..][..n], &mut next[inner + start..][..n]);
                if reach.is_asked_to_read() {
                    reach.ask_to_read(u);
                    reach.ask_to_read(nu);
                }
                for i in 0..n {
                    v[i] = k.square(u[i], smaller(bound, mu[i]));
                }
                for i in 0..n {
                    nu[i] = k.mean(u[i], v[i], nu[i]);
                }
                for i in 0..n {
                    next[i] = larger(next[i], v[i]);
                }
                for v in v.chunks(LANES) {
                    for i in 0..v.len() {
                        largest[i] = larger(largest[i], v[i]);
                    }
                }
            }
            let largest = largest.into_iter().fold(C::zero(), larger);
            places(&mut |place| next[place] = larger(next[place], largest));
        }
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
