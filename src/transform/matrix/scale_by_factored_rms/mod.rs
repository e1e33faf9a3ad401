mod means;

use core::ops::Range;
use std::sync::Arc;

use crate::internal::numeric::{Job, axes_by_stride, current_simd_level, dispatch, run_parallel};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::tree::LeafSpec;

use means::{Factor, Factored, Plain};

/// Divides updates by their running root mean square, factored into row and column means for large leaves.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `β = 1 − (t − step_offset)^−decay_rate`. For a leaf that is factored, over its two
/// longest axes (of equally long ones the later), the rows along the shorter and the columns along the longer,
/// separately for each index of the other axes:
///
/// ```text
/// r_i ← β·r_i + (1 − β)·mean_j (u_ij² + epsilon)
/// c_j ← β·c_j + (1 − β)·mean_i (u_ij² + epsilon)
/// u_ij ← u_ij / √(r_i / mean(r)) / √c_j
/// ```
///
/// For any other leaf:
///
/// ```text
/// v ← β·v + (1 − β)·(u² + epsilon)
/// u ← u / √v
/// ```
///
/// Means are summed in `f64`, row by row whatever the memory order.
///
/// # Cost
///
/// For a factored leaf of `n × m`, `n + m` floats of state; for others one per parameter. One more pass, which only
/// reads the updates. They are stored in memory if an earlier stage changed them, and gradients are copied if they are
/// 16-bit or have another memory order than the parameters. Reads no parameters.
///
/// # Errors
///
/// `init` fails if `decay_rate` or `epsilon` is negative or not finite.
///
/// # Example
///
/// A matrix whose squares are an outer product is described by its row and column means exactly:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_factored_rms;
/// use ndarray::array;
///
/// let optimizer = scale_by_factored_rms().min_dim_size_to_factor(2);
/// let params = array![[0.0, 0.0], [0.0, 0.0]];
/// let mut state = optimizer.init(&params)?;
/// let updates = optimizer.update(&array![[1.0, -2.0], [2.0, 4.0]], &mut state, &params)?;
/// let expected = [1.0, -1.0, 1.0, 1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], max_relative = 1e-12);
/// assert_eq!(state.v_row.shape(0), Some(&[2][..]));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Shazeer and Stern, [Adafactor: adaptive learning rates with sublinear memory
/// cost](https://arxiv.org/abs/1804.04235), 2018, algorithms 4 and 5. Optax,
/// [`scale_by_factored_rms`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: until step
/// `step_offset` is past, `β` is 0, where Optax gives NaN; squares are summed in `f64`; unused arrays of a leaf are
/// absent, where Optax's have length 1; no `decay_rate_fn`, since `decay_rate` takes a schedule.
pub fn scale_by_factored_rms() -> ScaleByFactoredRms {
    ScaleByFactoredRms::with()
}

part! {
    /// See [`scale_by_factored_rms`].
    pub ScaleByFactoredRms as "scale_by_factored_rms": WithLeafStatistics, SCALE_INVARIANT;
    hyperparams {
        /// Exponent in the decay `β = 1 − t^−decay_rate`.
        decay_rate: NOT_NEGATIVE = 0.8;
        /// Added to squares.
        epsilon: NOT_NEGATIVE = 1e-30;
    }
    options {
        /// If false, no leaf is factored.
        factored: bool = true;
    }
    integers {
        /// The step at which fine-tuning begins; may be negative, to start with a decay close to 1.
        step_offset: i64 = 0;
        /// Least length of the second longest axis of a factored leaf.
        min_dim_size_to_factor: usize = 128;
    }
}

/// The state of [`scale_by_factored_rms`].
#[derive(Clone, Debug)]
pub struct ScaleByFactoredRmsState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// Row means of factored leaves: the leaf's shape without its longest axis.
    pub v_row: Moments,
    /// Column means of factored leaves: the leaf's shape without its second longest axis.
    pub v_col: Moments,
    /// Means of leaves that are not factored.
    pub v: Moments,
    /// Factors of rows and columns in this step, shaped like the means.
    by_row: Moments,
    by_col: Moments,
    layouts: Arc<[Layout]>,
    scratch: Vec<f64>,
}

state_fields!(ScaleByFactoredRmsState { count, updates, v_row, v_col, v } facts { layouts } scratch { by_row, by_col });

/// Returns the stride of axis `a` in row-major means over axis `gone`.
fn step_without(shape: &[usize], gone: usize, a: usize) -> usize {
    if a == gone { 0 } else { (a + 1..shape.len()).filter(|&b| b != gone).map(|b| shape[b]).product() }
}

/// Axes in memory order, outermost first: length, strides in row and column means.
#[derive(Clone, Debug, Hash, Default)]
struct Layout {
    axes: Vec<[usize; 3]>,
}

impl Layout {
    fn new(leaf: &LeafSpec, [down, along]: [usize; 2]) -> Layout {
        let shape = leaf.shape();
        let axes = axes_by_stride(shape, leaf.strides()).into_iter();
        Layout { axes: axes.map(|a| [shape[a], step_without(shape, along, a), step_without(shape, down, a)]).collect() }
    }

    /// Visits runs along the innermost axis: their ranges, and the places of their first means.
    fn each(&self, start: usize, len: usize, mut run: impl FnMut(Range<usize>, [usize; 2])) {
        let (inner, outer) = self.axes.split_last().map_or(([1, 0, 0], &[][..]), |(inner, outer)| (*inner, outer));
        let mut done = 0;
        while done < len {
            let (mut rest, first) = ((start + done) / inner[0], (start + done) % inner[0]);
            let mut at = [inner[1] * first, inner[2] * first];
            for axis in outer.iter().rev() {
                let place = rest % axis[0];
                rest /= axis[0];
                at = [at[0] + place * axis[1], at[1] + place * axis[2]];
            }
            let end = len.min(done + inner[0] - first);
            run(done..end, at);
            done = end;
        }
    }
}

impl ScaleByFactoredRms {
    /// Returns the axes of rows and columns: the second longest and the longest.
    fn axes(&self, leaf: &LeafSpec) -> Option<[usize; 2]> {
        let shape = leaf.shape();
        // The longest, and the last of several.
        let longest = |but: Option<usize>| (0..shape.len()).filter(|a| Some(*a) != but).max_by_key(|&a| shape[a]);
        let along = longest(None)?;
        let down = longest(Some(along))?;
        (self.factored && shape[down] >= self.min_dim_size_to_factor).then_some([down, along])
    }
}

impl LeafStatistics for ScaleByFactoredRms {
    const BY_LEAF: bool = true;
    type State = ScaleByFactoredRmsState;
    type Slots<C: Real> = [C; 0];
    type Expanded<C: Real> = [C; 1];
    type Scalars<C: Real> = ();

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByFactoredRmsState> {
        let compute = |leaf: &LeafSpec| leaf.dtype().compute();
        let without = |which: usize| {
            Moments::with_shapes(at.structure(), at.active(), compute, |leaf| {
                let gone = self.axes(leaf)?[which];
                Some(leaf.shape().iter().enumerate().filter(|(a, _)| *a != gone).map(|(_, len)| *len).collect())
            })
        };
        let leaves = at.structure().leaves().iter().zip(at.active());
        let whole: Vec<bool> = leaves.map(|(leaf, on)| *on && self.axes(leaf).is_none()).collect();
        let v = Moments::like(at.structure(), &whole, 0.0, compute)?;
        let layout = |leaf: &LeafSpec| self.axes(leaf).map_or_else(Layout::default, |axes| Layout::new(leaf, axes));
        Ok(ScaleByFactoredRmsState {
            count: Count::default(),
            updates: at.updates(),
            v_row: without(1)?,
            v_col: without(0)?,
            v,
            by_row: without(1)?,
            by_col: without(0)?,
            layouts: at.structure().leaves().iter().map(layout).collect(),
            scratch: Vec::new(),
        })
    }

    fn collect_statistics(&self, state: &mut ScaleByFactoredRmsState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [decay_rate, epsilon] = Hyperparam::all_at([&self.decay_rate, &self.epsilon], clock.count);
        tree.observe(&mut Means { rule: self, state, clock, decay_rate, epsilon });
    }

    fn scalars<C: Real>(&self, _: &ScaleByFactoredRmsState, _: usize) {}

    fn expand<C: Real>(state: &ScaleByFactoredRmsState, leaf: usize, start: usize, to: &mut [&mut [C]]) {
        let (simd, [to]) = (current_simd_level(), to) else { return };
        if let Some(v) = state.v.get::<C>(leaf) {
            return dispatch(simd, Roots { v: &v[start..], to });
        }
        let (Some(row), Some(col)) = (state.by_row.get::<C>(leaf), state.by_col.get::<C>(leaf)) else {
            return to.fill(C::one());
        };
        let layout = &state.layouts[leaf];
        let [_, rows, cols] = layout.axes.last().copied().unwrap_or_default();
        layout.each(start, to.len(), |here, [in_rows, in_cols]| {
            let (row, col) = ((&row[in_rows..], rows), (&col[in_cols..], cols));
            dispatch(simd, Products { row, col, to: &mut to[here] });
        });
    }

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], [by]: &[C; 1], u: C) -> C {
        u * *by
    }
}

struct Roots<'a, C> {
    v: &'a [C],
    to: &'a mut [C],
}

impl<C: Real> Job for Roots<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Roots { v, to } = self;
        let v = &v[..to.len()];
        for i in 0..to.len() {
            to[i] = C::one() / v[i].sqrt();
        }
    }
}

/// Factors along an axis: of rows and columns, with strides.
struct Products<'a, C> {
    row: (&'a [C], usize),
    col: (&'a [C], usize),
    to: &'a mut [C],
}

impl<C: Real> Job for Products<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Products { row: (row, rows), col: (col, cols), to } = self;
        match (rows, cols) {
            (0, 1) => times(row[0], col, to),
            (1, 0) => times(col[0], row, to),
            _ => {
                for i in 0..to.len() {
                    to[i] = row[i * rows] * col[i * cols];
                }
            }
        }
    }
}

#[inline(always)]
fn times<C: Real>(by: C, from: &[C], to: &mut [C]) {
    let from = &from[..to.len()];
    for i in 0..to.len() {
        to[i] = by * from[i];
    }
}

struct Means<'a> {
    rule: &'a ScaleByFactoredRms,
    state: &'a mut ScaleByFactoredRmsState,
    clock: Clock,
    decay_rate: f64,
    epsilon: f64,
}

impl LeafObserver for Means<'_> {
    fn observe<C: Real>(&mut self, i: usize, leaf: &LeafSpec, u: &[C]) {
        let ScaleByFactoredRmsState { updates, v_row, v_col, v, by_row, by_col, scratch, .. } = &mut *self.state;
        let before = i64::try_from(self.clock.of_leaf(updates, i).updates).unwrap_or(i64::MAX);
        let t = before.saturating_sub(self.rule.step_offset).saturating_add(1);
        let keep = if t > 1 { 1.0 - (t as f64).powf(-self.decay_rate) } else { 0.0 };
        if let Some(v) = v.get_mut::<C>(i) {
            let [keep, take, epsilon] = [keep, 1.0 - keep, self.epsilon].map(C::of);
            return run_parallel(u.len(), Plain { u, v, keep, take, epsilon });
        }
        let (Some([down, along]), Some(row), Some(col), Some(by_row), Some(by_col)) = (
            self.rule.axes(leaf),
            v_row.get_mut::<C>(i),
            v_col.get_mut::<C>(i),
            by_row.get_mut::<C>(i),
            by_col.get_mut::<C>(i),
        ) else {
            return;
        };
        let (shape, strides) = (leaf.shape(), leaf.strides());
        let [n, m] = [shape[down], shape[along]];
        let steps = |a: usize| [strides[a] as usize, step_without(shape, along, a), step_without(shape, down, a)];
        // Where matrix `b` starts in the leaf and both factors: the other axes, last fastest.
        for b in 0..u.len() / (n * m).max(1) {
            let (mut rest, mut at) = (b, [0; 3]);
            for a in (0..shape.len()).rev().filter(|&a| a != down && a != along) {
                let (place, steps) = (rest % shape[a], steps(a));
                rest /= shape[a];
                (0..3).for_each(|of| at[of] += place * steps[of]);
            }
            let [at, at_row, at_col] = at;
            let row = Factor { mean: &mut row[at_row..], by: &mut by_row[at_row..], step: steps(down)[1] };
            let col = Factor { mean: &mut col[at_col..], by: &mut by_col[at_col..], step: steps(along)[2] };
            // Sums in the order of the axes, which usually are in memory order.
            let (exchanged, axes) = (down > along, [down.min(along), down.max(along)]);
            let (steps, size) = (axes.map(|a| strides[a] as usize), axes.map(|a| shape[a]));
            Factored { u: &u[at..], steps, size, row, col, exchanged, scratch }.update(keep, self.epsilon);
        }
    }
}
