use core::ops::Range;
use std::sync::Arc;

use crate::engine::{Job, current_isa, dispatch};
use crate::layout::axes_by_stride;
use crate::numeric::split::{Split, half, in_parts};
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Divides updates by the root of a running mean of their squares, of which only row and column means are kept where a
/// leaf is large enough.
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
/// For a factored leaf of `n × m`, `n + m` floats of state; for others one for each parameter. One more pass, which
/// only reads the updates. They are stored in memory for it where something before it in the chain has changed them,
/// and gradients are copied for it that are of 16 bits or do not lie as the parameters do. Reads no parameters.
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
/// `step_offset` is past, `β` is 0, where Optax gives NaN; squares are summed in `f64`; the arrays of the other kind of
/// leaf are absent instead of of length 1; no `decay_rate_fn`, since `decay_rate` takes a schedule.
pub fn scale_by_factored_rms() -> ScaleByFactoredRms {
    ScaleByFactoredRms::with()
}

part! {
    /// See [`scale_by_factored_rms`].
    pub ScaleByFactoredRms as "scale_by_factored_rms": Whole, OWN_SIZE;
    hyperparams {
        /// How fast the mean becomes long.
        decay_rate: NOT_NEGATIVE = 0.8;
        /// Added to squares.
        epsilon: NOT_NEGATIVE = 1e-30;
    }
    options {
        /// Whether any leaf is factored.
        factored: bool = true;
    }
    integers {
        /// The step at which fine-tuning begins; may be negative, to start with a long mean.
        step_offset: i64 = 0;
        /// How long at least the second longest axis of a factored leaf is.
        min_dim_size_to_factor: usize = 128;
    }
}

/// What [`scale_by_factored_rms`] remembers.
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
    /// What the rows and columns of factored leaves are multiplied by in this step; arrays like the means.
    by_row: Moments,
    by_col: Moments,
    layouts: Arc<[Layout]>,
    /// Room for sums.
    room: Vec<f64>,
}

state_fields!(ScaleByFactoredRmsState { count, updates, v_row, v_col, v } knows { layouts } room { by_row, by_col });

/// How far apart the neighbours along axis `a` are in means over the axis `gone`, which are in row-major order.
fn step_without(shape: &[usize], gone: usize, a: usize) -> usize {
    if a == gone { 0 } else { (a + 1..shape.len()).filter(|&b| b != gone).map(|b| shape[b]).product() }
}

/// How a factored leaf lies: its axes in memory order, outermost first. Of each how long it is, and how far apart the
/// neighbours along it are in the row means and in the column means.
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

    /// Goes through so many elements, by neighbours along the innermost axis: how many, and where the means of their
    /// rows and columns begin.
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
    /// The axes that a leaf's rows and columns go along: its second longest and its longest.
    fn axes(&self, leaf: &LeafSpec) -> Option<[usize; 2]> {
        let shape = leaf.shape();
        // The longest; of equally long ones the last.
        let longest = |but: Option<usize>| (0..shape.len()).filter(|a| Some(*a) != but).max_by_key(|&a| shape[a]);
        let along = longest(None)?;
        let down = longest(Some(along))?;
        (self.factored && shape[down] >= self.min_dim_size_to_factor).then_some([down, along])
    }
}

impl WholeTreeTransformation for ScaleByFactoredRms {
    const BY_LEAF: bool = true;
    const LOOKS: bool = true;
    type State = ScaleByFactoredRmsState;
    type Needs = Nothing;

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
            room: Vec::new(),
        })
    }

    fn transform(&self, state: &mut ScaleByFactoredRmsState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [decay_rate, epsilon] = Hyperparam::all_at([&self.decay_rate, &self.epsilon], clock.count);
        tree.look(&mut Means { rule: self, state, clock, decay_rate, epsilon });
    }

    fn stretch<C: Real>(&self, state: &ScaleByFactoredRmsState, leaf: usize, start: usize, from: &[C], to: &mut [C]) {
        let isa = current_isa();
        if let Some(v) = state.v.get::<C>(leaf) {
            return dispatch(isa, ByRoot { from, to, v: &v[start..] });
        }
        let (Some(row), Some(col)) = (state.by_row.get::<C>(leaf), state.by_col.get::<C>(leaf)) else {
            return to.copy_from_slice(from);
        };
        let layout = &state.layouts[leaf];
        let [_, rows, cols] = layout.axes.last().copied().unwrap_or_default();
        layout.each(start, from.len(), |here, [in_rows, in_cols]| {
            let row = Line { data: &row[in_rows..], step: rows };
            let col = Line { data: &col[in_cols..], step: cols };
            dispatch(isa, ByFactors { from: &from[here.clone()], to: &mut to[here], row, col });
        });
    }
}

/// Elements to divide by the roots of their means.
struct ByRoot<'a, C> {
    from: &'a [C],
    to: &'a mut [C],
    v: &'a [C],
}

impl<C: Real> Job for ByRoot<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((to, from), v) in self.to.iter_mut().zip(self.from).zip(self.v) {
            *to = *from / v.sqrt();
        }
    }
}

/// Evenly spaced elements of an array.
struct Line<'a, C> {
    data: &'a [C],
    step: usize,
}

/// Neighbours along one axis, to multiply by the factors of their rows and columns.
struct ByFactors<'a, C> {
    from: &'a [C],
    to: &'a mut [C],
    row: Line<'a, C>,
    col: Line<'a, C>,
}

impl<C: Real> Job for ByFactors<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ByFactors { from, to, row, col } = self;
        let both = to.iter_mut().zip(from);
        match (row.step, col.step) {
            (0, 1) => both.zip(col.data).for_each(|((to, from), col)| *to = *from * row.data[0] * *col),
            (1, 0) => both.zip(row.data).for_each(|((to, from), row)| *to = *from * *row * col.data[0]),
            (rows, cols) => {
                both.enumerate().for_each(|(i, (to, from))| *to = *from * row.data[i * rows] * col.data[i * cols]);
            }
        }
    }
}

struct Means<'a> {
    rule: &'a ScaleByFactoredRms,
    state: &'a mut ScaleByFactoredRmsState,
    clock: Clock,
    decay_rate: f64,
    epsilon: f64,
}

impl LeafLooker for Means<'_> {
    fn look<C: Real>(&mut self, i: usize, leaf: &LeafSpec, u: &[C]) {
        let ScaleByFactoredRmsState { updates, v_row, v_col, v, by_row, by_col, room, .. } = &mut *self.state;
        let before = i64::try_from(self.clock.of_leaf(updates, i).updates).unwrap_or(i64::MAX);
        let t = before.saturating_sub(self.rule.step_offset).saturating_add(1);
        let keep = if t > 1 { 1.0 - (t as f64).powf(-self.decay_rate) } else { 0.0 };
        if let Some(v) = v.get_mut::<C>(i) {
            let [keep, take, epsilon] = [keep, 1.0 - keep, self.epsilon].map(C::of);
            return in_parts(Plain { u, v, keep, take, epsilon });
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
        // Where matrix number `b` of the leaf begins, in the leaf and in both factors: the other axes, last fastest.
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
            let steps = [down, along].map(|a| strides[a] as usize);
            Factored { u: &u[at..], steps, size: [n, m], row, col, room }.update(keep, self.epsilon);
        }
    }
}

/// An element-wise stretch of a leaf that is not factored.
struct Plain<'a, C> {
    u: &'a [C],
    v: &'a mut [C],
    keep: C,
    take: C,
    epsilon: C,
}

impl<C: Real> Split for Plain<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Some(half) = half(self.u.len(), BLOCK) else { return Err(self) };
        let ((u, later), (v, later_v)) = (self.u.split_at(half), self.v.split_at_mut(half));
        Ok([Plain { u, v, ..self }, Plain { u: later, v: later_v, ..self }])
    }
}

impl<C: Real> Job for Plain<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (u, v) in self.u.iter().zip(self.v) {
            *v = self.keep * *v + self.take * (*u * *u + self.epsilon);
        }
    }
}

/// The means of the rows or of the columns of a matrix, evenly spaced, and what these are multiplied by.
struct Factor<'a, C> {
    mean: &'a mut [C],
    by: &'a mut [C],
    step: usize,
}

/// Sums kept side by side, so that adding up can be vectorised; their number fixes the order of addition.
const LANES: usize = 8;

/// The most blocks of rows that a matrix is cut into, and elements that are worth a block.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

/// One matrix and its factors.
struct Factored<'a, C> {
    u: &'a [C],
    /// How far apart the neighbours are down and along.
    steps: [usize; 2],
    size: [usize; 2],
    row: Factor<'a, C>,
    col: Factor<'a, C>,
    room: &'a mut Vec<f64>,
}

impl<C: Real> Factored<'_, C> {
    fn update(mut self, keep: f64, epsilon: f64) {
        let [n, m] = self.size;
        // Columns are added up block by block of rows, and these one after another: so many by the matrix alone,
        // whatever the number of threads.
        let per = n.div_ceil(BLOCKS).max(BLOCK.div_ceil(m));
        let dense = self.steps == [m, 1];
        self.room.clear();
        self.room.resize(n * if dense { 1 } else { LANES } + n.div_ceil(per) * m, 0.0);
        if dense {
            let (rows, cols) = self.room.split_at_mut(n);
            in_parts(Squares { u: &self.u[..n * m], rows, cols, size: [per, m], epsilon });
        } else {
            self.sum(per, epsilon);
        }
        let (rows, cols) = self.room.split_at_mut(if dense { n } else { n * LANES });
        let mut mean_row = 0.0;
        for i in 0..n {
            let sum = if dense { rows[i] } else { (0..LANES).map(|lane| rows[lane * n + i]).sum() };
            let row = &mut self.row.mean[i * self.row.step];
            *row = C::of(keep * row.as_f64() + (1.0 - keep) * (sum / m as f64));
            mean_row += row.as_f64() / n as f64;
        }
        let (cols, later) = cols.split_at_mut(m);
        for block in later.chunks_exact(m) {
            cols.iter_mut().zip(block).for_each(|(col, more)| *col += more);
        }
        for (j, sum) in cols.iter().enumerate() {
            let j = j * self.col.step;
            let col = &mut self.col.mean[j];
            *col = C::of(keep * col.as_f64() + (1.0 - keep) * (*sum / n as f64));
            self.col.by[j] = C::of(1.0 / col.as_f64().sqrt());
        }
        for i in (0..n).map(|i| i * self.row.step) {
            self.row.by[i] = C::of(1.0 / (self.row.mean[i].as_f64() / mean_row).sqrt());
        }
    }

    /// Adds up squares by row, in lanes, and by column: the same sums in the same order as [`Squares`], however the
    /// memory lies.
    fn sum(&mut self, per: usize, epsilon: f64) {
        let ([n, m], [down, along]) = (self.size, self.steps);
        let (lanes, cols) = self.room.split_at_mut(n * LANES);
        let square = |u: C| u.as_f64() * u.as_f64() + epsilon;
        if along <= down {
            for i in 0..n {
                let (line, cols) = (&self.u[i * down..], &mut cols[i / per * m..][..m]);
                for (j, col) in cols.iter_mut().enumerate() {
                    let x = square(line[j * along]);
                    lanes[j % LANES * n + i] += x;
                    *col += x;
                }
            }
        } else {
            for j in 0..m {
                let line = &self.u[j * along..];
                let lane = &mut lanes[j % LANES * n..][..n];
                for (i, lane) in lane.iter_mut().enumerate() {
                    let x = square(line[i * down]);
                    *lane += x;
                    cols[i / per * m + j] += x;
                }
            }
        }
    }
}

/// Rows that lie one after another: squares are added up by row, and by column for each block of rows.
struct Squares<'a, C> {
    u: &'a [C],
    rows: &'a mut [f64],
    cols: &'a mut [f64],
    /// Rows of a block, and columns.
    size: [usize; 2],
    epsilon: f64,
}

impl<C: Real> Split for Squares<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let [per, m] = self.size;
        let Some(half) = half(self.rows.len(), per) else { return Err(self) };
        let (u, later) = self.u.split_at(half * m);
        let (rows, later_rows) = self.rows.split_at_mut(half);
        let (cols, later_cols) = self.cols.split_at_mut(half / per * m);
        Ok([Squares { u, rows, cols, ..self }, Squares { u: later, rows: later_rows, cols: later_cols, ..self }])
    }
}

impl<C: Real> Job for Squares<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Squares { u, rows, cols, size: [_, m], epsilon } = self;
        let (rows, last) = rows.as_chunks_mut::<TOGETHER>();
        let (u, u_last) = u.split_at(rows.len() * TOGETHER * m);
        for (u, rows) in u.chunks_exact(TOGETHER * m).zip(rows) {
            squares(u, rows, cols, epsilon);
        }
        for (u, row) in u_last.chunks_exact(m).zip(last) {
            squares(u, core::array::from_mut(row), cols, epsilon);
        }
    }
}

/// Rows that are added up together: the sums of columns are brought from the cache and back once for all of them.
const TOGETHER: usize = 4;

/// Adds up the squares of some rows, each row and each column one element after another.
#[inline(always)]
fn squares<C: Real, const R: usize>(u: &[C], rows: &mut [f64; R], cols: &mut [f64], epsilon: f64) {
    let square = |u: C| u.as_f64() * u.as_f64() + epsilon;
    let mut lines = u.chunks_exact(cols.len());
    let lines: [&[C]; R] = core::array::from_fn(|_| lines.next().unwrap_or_default());
    let (cols, last_cols) = cols.as_chunks_mut::<LANES>();
    let blocks = lines.map(|line| &line.as_chunks::<LANES>().0[..cols.len()]);
    let mut lanes = [[0.0; LANES]; R];
    for (b, cols) in cols.iter_mut().enumerate() {
        for (lanes, blocks) in lanes.iter_mut().zip(&blocks) {
            let squares = blocks[b].map(square);
            (0..LANES).for_each(|lane| lanes[lane] += squares[lane]);
            (0..LANES).for_each(|lane| cols[lane] += squares[lane]);
        }
    }
    for ((line, lanes), row) in lines.iter().zip(&mut lanes).zip(rows) {
        let last = line.as_chunks::<LANES>().1;
        for ((u, col), lane) in last.iter().zip(&mut *last_cols).zip(&mut *lanes) {
            let square = square(*u);
            *lane += square;
            *col += square;
        }
        *row = lanes.iter().sum();
    }
}
