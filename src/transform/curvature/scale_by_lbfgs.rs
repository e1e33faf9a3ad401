use crate::internal::engine::Bounds;
use crate::internal::numeric::{Cursor, dense_strides, is_blocked, is_safe, length, sum_tile};
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Multiplies the updates by the inverse Hessian estimate of L-BFGS.
///
/// The estimate comes from the last few differences of parameters and gradients.
///
/// All leaves together are one vector. Put it where the updates are still gradients, usually first.
///
/// Needs the feature `minimize`.
///
/// # Arithmetic
///
/// At step `k`, counted from 0, with parameters `w`, updates `u`, and `m` = `memory_size`:
///
/// ```text
/// s_j = w_{j+1} − w_j,   y_j = u_{j+1} − u_j,   ρ_j = 1 / (s_jᵀ y_j), or 0 if that is 1/0
///
/// q ← u
/// for j = k−1, …, k−m:   α_j = ρ_j·s_jᵀ q;   q ← q − α_j·y_j
/// q ← γ·q                γ = s_{k−1}ᵀ y_{k−1} / y_{k−1}ᵀ y_{k−1}, or 1 if scale_init_precond is false or y_{k−1} = 0
/// for j = k−m, …, k−1:   β = ρ_j·y_jᵀ q;     q ← q + (α_j − β)·s_j
/// u ← q
/// ```
///
/// At the first step there is no difference yet, and `γ = min(1, 1/‖u‖)`: a step of length 1 at most. Inner products
/// are summed in `f64` over all leaves in order, each in row-major order whatever its memory order; vectors have the
/// compute type.
///
/// # Cost
///
/// `2·memory_size + 2` floats of state per parameter. One more pass; between the two, the vectors are read
/// `4·memory_size` times. Reads parameters.
///
/// # Errors
///
/// `init` fails if `memory_size` is 0.
///
/// # Example
///
/// On a quadratic with Hessian 4, one difference is enough to know the Hessian:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{scale, scale_by_lbfgs};
///
/// let optimizer = chain((scale_by_lbfgs(), scale(-1.0)));
/// let mut x = 3.0_f64;
/// let mut state = optimizer.init(&x)?;
/// let gradient = 4.0 * x;
/// optimizer.step(&mut x, &gradient, &mut state)?;
/// assert_eq!(x, 2.0); // the first step has length 1
/// let gradient = 4.0 * x;
/// optimizer.step(&mut x, &gradient, &mut state)?;
/// assert_eq!(x, 0.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu and Nocedal, [On the limited memory BFGS method for large scale
/// optimization](https://doi.org/10.1007/BF01589116), 1989; Nocedal and Wright, Numerical Optimization, 1999, algorithm
/// 7.4. Optax, [`scale_by_lbfgs`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: inner
/// products are summed in `f64`. Neither tests the curvature `s_jᵀ y_j` for its sign; a line search with the Wolfe
/// conditions keeps it positive, and so does a convex loss.
pub fn scale_by_lbfgs() -> ScaleByLbfgs {
    ScaleByLbfgs::with()
}

part! {
    /// See [`scale_by_lbfgs`].
    pub ScaleByLbfgs as "scale_by_lbfgs": Whole, SAME_DIRECTION;
    options {
        /// If true, the estimate starts from a scaled identity, `γ` above, else from the identity.
        scale_init_precond: bool = true;
    }
    integers {
        /// Number of differences kept.
        memory_size: usize = 10, AT_LEAST_1;
    }
    check Self::check_memory;
}

/// The state of [`scale_by_lbfgs`]. All arrays are in row-major order.
#[derive(Clone, Debug)]
pub struct ScaleByLbfgsState {
    /// Steps done.
    pub count: Count,
    /// Parameters at the last step.
    pub params: Moments,
    /// Updates of the last step, as passed in.
    pub updates: Moments,
    /// Differences of parameters: an axis of length `memory_size`, then the leaf's own; a ring buffer.
    pub diff_params_memory: Moments,
    /// Differences of updates, in the same places.
    pub diff_updates_memory: Moments,
    /// `ρ` of each place; 0 where there is no difference yet.
    pub weights_memory: Vec<Scalar>,
    /// Scratch space for `q` and `α`.
    direction: Moments,
    alphas: Vec<f64>,
}

state_fields!(ScaleByLbfgsState { count, params, updates, diff_params_memory, diff_updates_memory, weights_memory });

impl ScaleByLbfgs {
    /// Checks that the memory fits, even if every leaf is empty.
    fn check_memory(&self) -> Result<()> {
        Vec::<[f64; 2]>::new()
            .try_reserve_exact(self.memory_size)
            .map_err(|_| Error::argument(Self::NAME, "memory_size", "small enough to fit in memory", self.memory_size))
    }
}

impl WholeTreeTransformation for ScaleByLbfgs {
    const SCOPE: Scope = Scope::TREE.reads_params();
    type State = ScaleByLbfgsState;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByLbfgsState> {
        let of = |places: Option<usize>| {
            Moments::with_shapes(
                at.structure(),
                at.active(),
                |leaf| leaf.dtype().compute(),
                |leaf| Some(places.into_iter().chain(leaf.shape().iter().copied()).collect()),
            )
        };
        Ok(ScaleByLbfgsState {
            count: Count::default(),
            params: of(None)?,
            updates: of(None)?,
            diff_params_memory: of(Some(self.memory_size))?,
            diff_updates_memory: of(Some(self.memory_size))?,
            weights_memory: vec![Scalar::default(); self.memory_size],
            direction: of(None)?,
            alphas: vec![0.0; self.memory_size],
        })
    }

    fn transform(&self, state: &mut ScaleByLbfgsState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let (count, places) = (state.count.get(), self.memory_size as u64);
        state.count.increment();
        let last = (count > 0).then(|| ((count - 1) % places) as usize);
        tree.visit(&mut StorePair { state, last });
        let free = free_elements(state, tree);
        if let Some(last) = last {
            let curvature =
                dot(Vector::at(&state.diff_updates_memory, last), Vector::at(&state.diff_params_memory, last));
            state.weights_memory[last].set(if curvature == 0.0 { 0.0 } else { 1.0 / curvature });
        }
        let oldest = (count % places) as usize;
        let (free, last) = match &free {
            None => (None, last),
            Some(free) => {
                let (weights, newest) = weights_among(state, free, oldest);
                (Some((free, weights)), newest)
            }
        };
        let gamma = self.first_factor(state, last, free.as_ref().map(|(free, _)| *free));
        two_loop_recursion(state, oldest, gamma, free);
        tree.visit(&mut Emit { direction: &state.direction });
    }
}

impl ScaleByLbfgs {
    fn first_factor(&self, state: &ScaleByLbfgsState, last: Option<usize>, free: Option<&Moments>) -> f64 {
        match last {
            _ if !self.scale_init_precond => 1.0,
            None => {
                let u = Vector::all(&state.direction);
                // `min` would drop NaN.
                let squares = dot(u, u);
                let safe = is_safe(squares);
                let inverse = 1.0 / if safe { squares.sqrt() } else { length(&mut || state.direction.sizes()) };
                if inverse > 1.0 { 1.0 } else { inverse }
            }
            Some(last) => {
                let [s, y] = [&state.diff_params_memory, &state.diff_updates_memory].map(|m| Vector::at(m, last));
                let [squared, curvature] = match free {
                    None => [dot(y, y), dot(y, s)],
                    Some(free) => products_among(y, s, free),
                };
                if squared > 0.0 { curvature / squared } else { 1.0 }
            }
        }
    }
}

/// Returns 1 for movable elements and 0 for those held at a bound.
///
/// Held elements leave the direction.
fn free_elements(state: &mut ScaleByLbfgsState, tree: &mut WholeTree<'_>) -> Option<Moments> {
    let bounds = tree.bounds()?;
    let mut free = state.direction.clone();
    tree.visit(&mut MaskFree { bounds: &bounds, free: &mut free });
    mask_out(&free, &mut state.direction);
    Some(free)
}

/// Returns `yᵀy` and `yᵀs` over the free elements.
fn products_among(y: Vector<'_>, s: Vector<'_>, free: &Moments) -> [f64; 2] {
    let mut among = free.clone();
    among.fill(0.0);
    add_scaled(&mut among, 1.0, y);
    mask_out(free, &mut among);
    let among = Vector::all(&among);
    [dot(among, y), dot(among, s)]
}

/// Returns the differences' weights over the free elements, and the newest place with one.
///
/// The weight is 0 without positive curvature, which a line search along a bent path does not guarantee.
fn weights_among(state: &ScaleByLbfgsState, free: &Moments, oldest: usize) -> (Vec<f64>, Option<usize>) {
    let places = state.weights_memory.len();
    let (mut weights, mut newest) = (vec![0.0; places], None);
    for place in (0..places).rev().map(|j| (oldest + j) % places) {
        let [y, s] = [&state.diff_updates_memory, &state.diff_params_memory].map(|m| Vector::at(m, place));
        let [squared, curvature] = products_among(y, s, free);
        if curvature > f64::EPSILON * squared {
            weights[place] = 1.0 / curvature;
            newest = newest.or(Some(place));
        }
    }
    (weights, newest)
}

/// Computes the direction in place of the updates, from the `oldest` place on.
///
/// Within bounds only free elements count, with their own weights.
fn two_loop_recursion(state: &mut ScaleByLbfgsState, oldest: usize, gamma: f64, free: Option<(&Moments, Vec<f64>)>) {
    let ScaleByLbfgsState {
        diff_params_memory: s, diff_updates_memory: y, weights_memory, direction: q, alphas, ..
    } = state;
    let places = weights_memory.len();
    let weight = |j: usize| free.as_ref().map_or_else(|| weights_memory[j].get(), |(_, weights)| weights[j]);
    let keep_free = |q: &mut Moments| free.iter().for_each(|(free, _)| mask_out(free, q));
    let place = |j: usize| (oldest + j) % places;
    for j in (0..places).map(place).rev() {
        let rho = weight(j);
        if rho != 0.0 {
            alphas[j] = rho * dot(Vector::at(s, j), Vector::all(q));
            add_scaled(q, -alphas[j], Vector::at(y, j));
            keep_free(q);
        }
    }
    if gamma != 1.0 {
        scale_by(q, gamma);
    }
    for j in (0..places).map(place) {
        let rho = weight(j);
        if rho != 0.0 {
            let beta = rho * dot(Vector::at(y, j), Vector::all(q));
            add_scaled(q, alphas[j] - beta, Vector::at(s, j));
            keep_free(q);
        }
    }
}

/// Writes 1 for movable elements and 0 for held ones, in row-major order.
struct MaskFree<'a> {
    bounds: &'a Bounds,
    free: &'a mut Moments,
}

impl LeafVisitor for MaskFree<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (Some(bounds), Some(free)) = (self.bounds.leaf::<C>(leaf.index), self.free.get_mut::<C>(leaf.index)) else {
            return;
        };
        let bounds: Vec<_> = bounds.collect();
        in_row_major_order(&leaf, |at, row_major| {
            let held = is_blocked(leaf.p[at], -leaf.u[at], bounds[at]);
            free[row_major] = if held { C::zero() } else { C::one() };
        });
    }
}

fn mask_out(free: &Moments, q: &mut Moments) {
    fn of<C: Real>(free: &Moments, q: &mut Moments, leaf: usize) {
        let (Some(free), Some(q)) = (free.get::<C>(leaf), q.get_mut::<C>(leaf)) else { return };
        q.iter_mut().zip(free).filter(|(_, free)| **free == C::zero()).for_each(|(q, _)| *q = C::zero());
    }
    for leaf in 0..q.len() {
        match q.dtype(leaf) {
            Some(DType::F64) => of::<f64>(free, q, leaf),
            Some(_) => of::<f32>(free, q, leaf),
            None => {}
        }
    }
}

struct StorePair<'a> {
    state: &'a mut ScaleByLbfgsState,
    last: Option<usize>,
}

impl LeafVisitor for StorePair<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (i, state) = (leaf.index, &mut *self.state);
        for (now, before, memory) in [
            (leaf.p, &mut state.params, &mut state.diff_params_memory),
            (&*leaf.u, &mut state.updates, &mut state.diff_updates_memory),
        ] {
            let (Some(before), Some(memory)) = (before.get_mut::<C>(i), memory.get_mut::<C>(i)) else { continue };
            let len = before.len();
            let mut difference = self.last.map(|last| &mut memory[last * len..][..len]);
            in_row_major_order(&leaf, |at, row_major| {
                if let Some(difference) = &mut difference {
                    difference[row_major] = now[at] - before[row_major];
                }
                before[row_major] = now[at];
            });
        }
        if let (Some(updates), Some(direction)) = (state.updates.get::<C>(i), state.direction.get_mut::<C>(i)) {
            direction.copy_from_slice(updates);
        }
    }
}

struct Emit<'a> {
    direction: &'a Moments,
}

impl LeafVisitor for Emit<'_> {
    fn visit<C: Real>(&mut self, mut leaf: WholeLeaf<'_, C>) {
        let Some(direction) = self.direction.get::<C>(leaf.index) else { return };
        let u = core::mem::take(&mut leaf.u);
        in_row_major_order(&leaf, |at, row_major| u[at] = direction[row_major]);
    }
}

/// Calls `each` with every element's place in memory and in row-major order.
fn in_row_major_order<C>(leaf: &WholeLeaf<'_, C>, mut each: impl FnMut(usize, usize)) {
    let shape = leaf.spec.shape();
    let order = dense_strides(shape);
    let mut row_major = 0;
    for run in Cursor::new(shape, &order, leaf.strides(), 0).take(leaf.p.len()) {
        for k in 0..run.len {
            each((run.offset + k as isize * run.stride) as usize, row_major);
            row_major += 1;
        }
    }
}

/// All leaves, or one place of the memory, as a vector.
#[derive(Clone, Copy)]
struct Vector<'a> {
    arrays: &'a Moments,
    place: Option<usize>,
}

impl<'a> Vector<'a> {
    fn all(arrays: &'a Moments) -> Vector<'a> {
        Vector { arrays, place: None }
    }

    fn at(arrays: &'a Moments, place: usize) -> Vector<'a> {
        Vector { arrays, place: Some(place) }
    }

    fn leaf<C: Real>(self, leaf: usize) -> &'a [C] {
        let data = self.arrays.get::<C>(leaf).unwrap_or_default();
        let Some(place) = self.place else { return data };
        let places = self.arrays.shape(leaf).and_then(|shape| shape.first().copied()).unwrap_or(1);
        let len = data.len() / places;
        &data[place * len..][..len]
    }
}

const SLICE_LEN: usize = 512;

fn dot(a: Vector<'_>, b: Vector<'_>) -> f64 {
    fn of<C: Real>(a: &[C], b: &[C]) -> f64 {
        let mut products = [0.0; SLICE_LEN];
        let stretches = a.chunks(SLICE_LEN).zip(b.chunks(SLICE_LEN));
        let sum = stretches.map(|(a, b)| {
            let products = &mut products[..a.len()];
            for ((product, a), b) in products.iter_mut().zip(a).zip(b) {
                *product = a.as_f64() * b.as_f64();
            }
            sum_tile(products, |x: f64| x)
        });
        sum.sum()
    }
    let leaf = |i| match a.arrays.dtype(i) {
        Some(DType::F64) => of::<f64>(a.leaf(i), b.leaf(i)),
        _ => of::<f32>(a.leaf(i), b.leaf(i)),
    };
    a.arrays.leaves().map(leaf).sum()
}

/// `q ← q + factor·x`
fn add_scaled(q: &mut Moments, factor: f64, x: Vector<'_>) {
    fn of<C: Real>(q: &mut Moments, leaf: usize, factor: f64, x: Vector<'_>) {
        let factor = C::of(factor);
        for (q, x) in q.get_mut::<C>(leaf).unwrap_or_default().iter_mut().zip(x.leaf::<C>(leaf)) {
            *q += factor * *x;
        }
    }
    for i in 0..q.len() {
        match q.dtype(i) {
            Some(DType::F64) => of::<f64>(q, i, factor, x),
            Some(_) => of::<f32>(q, i, factor, x),
            None => {}
        }
    }
}

/// `q ← factor·q`
fn scale_by(q: &mut Moments, factor: f64) {
    fn of<C: Real>(q: &mut Moments, leaf: usize, factor: f64) {
        let factor = C::of(factor);
        q.get_mut::<C>(leaf).unwrap_or_default().iter_mut().for_each(|q| *q *= factor);
    }
    for i in 0..q.len() {
        match q.dtype(i) {
            Some(DType::F64) => of::<f64>(q, i, factor),
            Some(_) => of::<f32>(q, i, factor),
            None => {}
        }
    }
}
