use crate::engine::Job;
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
/// For a factored leaf of `n × m`, `n + m` floats of state; for others one for each parameter. One more pass; reads no
/// parameters.
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
    /// Room for sums and factors.
    room: Vec<f64>,
}

state_fields!(ScaleByFactoredRmsState { count, updates, v_row, v_col, v });

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
        Ok(ScaleByFactoredRmsState {
            count: Count::default(),
            updates: at.updates(),
            v_row: without(1)?,
            v_col: without(0)?,
            v,
            room: Vec::new(),
        })
    }

    fn transform(&self, state: &mut ScaleByFactoredRmsState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [decay_rate, epsilon] = Hyperparam::all_at([&self.decay_rate, &self.epsilon], clock.count);
        tree.visit(&mut Scale { rule: self, state, clock, decay_rate, epsilon });
    }
}

struct Scale<'a> {
    rule: &'a ScaleByFactoredRms,
    state: &'a mut ScaleByFactoredRmsState,
    clock: Clock,
    decay_rate: f64,
    epsilon: f64,
}

impl LeafVisitor for Scale<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let i = leaf.index;
        let ScaleByFactoredRmsState { updates, v_row, v_col, v, room, .. } = &mut *self.state;
        let before = i64::try_from(self.clock.of_leaf(updates, i).updates).unwrap_or(i64::MAX);
        let t = before.saturating_sub(self.rule.step_offset).saturating_add(1);
        let keep = if t > 1 { 1.0 - (t as f64).powf(-self.decay_rate) } else { 0.0 };
        if let Some(v) = v.get_mut::<C>(i) {
            let [keep, take, epsilon] = [keep, 1.0 - keep, self.epsilon].map(C::of);
            return in_parts(Plain { u: leaf.u, v, keep, take, epsilon });
        }
        let (Some([down, along]), Some(row), Some(col)) =
            (self.rule.axes(leaf.spec), v_row.get_mut::<C>(i), v_col.get_mut::<C>(i))
        else {
            return;
        };
        let (shape, strides) = (leaf.spec.shape(), leaf.spec.strides());
        let [n, m] = [shape[down], shape[along]];
        // Where matrix number `b` of the leaf begins, in the leaf and in both factors: the other axes, last fastest.
        for b in 0..leaf.u.len() / (n * m).max(1) {
            let (mut rest, mut at, mut at_row, mut at_col) = (b, 0, 0, 0);
            let [mut step_row, mut step_col] = [1, 1];
            let [mut row_step, mut col_step] = [0, 0];
            for a in (0..shape.len()).rev() {
                if a == down {
                    row_step = step_row;
                } else if a == along {
                    col_step = step_col;
                } else {
                    let place = rest % shape[a];
                    rest /= shape[a];
                    at += place * strides[a] as usize;
                    at_row += place * step_row;
                    at_col += place * step_col;
                }
                step_row *= if a == along { 1 } else { shape[a] };
                step_col *= if a == down { 1 } else { shape[a] };
            }
            let row = Line { data: &mut *row, first: at_row, step: row_step };
            let col = Line { data: &mut *col, first: at_col, step: col_step };
            let steps = [strides[down] as usize, strides[along] as usize];
            Factored { u: &mut leaf.u[at..], steps, size: [n, m], row, col, room }.scale(keep, self.epsilon);
        }
    }
}

/// An element-wise stretch of a leaf that is not factored.
struct Plain<'a, C> {
    u: &'a mut [C],
    v: &'a mut [C],
    keep: C,
    take: C,
    epsilon: C,
}

impl<C: Real> Split for Plain<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Some(half) = half(self.u.len(), BLOCK) else { return Err(self) };
        let ((u, later), (v, later_v)) = (self.u.split_at_mut(half), self.v.split_at_mut(half));
        Ok([Plain { u, v, ..self }, Plain { u: later, v: later_v, ..self }])
    }
}

impl<C: Real> Job for Plain<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (u, v) in self.u.iter_mut().zip(self.v) {
            *v = self.keep * *v + self.take * (*u * *u + self.epsilon);
            *u /= v.sqrt();
        }
    }
}

/// Evenly spaced elements of an array.
struct Line<'a, C> {
    data: &'a mut [C],
    first: usize,
    step: usize,
}

impl<C: Real> Line<'_, C> {
    fn at(&mut self, i: usize) -> &mut C {
        &mut self.data[self.first + i * self.step]
    }
}

/// Sums kept side by side, so that adding up can be vectorised; their number fixes the order of addition.
const LANES: usize = 8;

/// The most blocks of rows that a matrix is cut into, and elements that are worth a block.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

/// One matrix and its factors.
struct Factored<'a, C> {
    u: &'a mut [C],
    /// How far apart the neighbours are down and along.
    steps: [usize; 2],
    size: [usize; 2],
    row: Line<'a, C>,
    col: Line<'a, C>,
    room: &'a mut Vec<f64>,
}

impl<C: Real> Factored<'_, C> {
    fn scale(mut self, keep: f64, epsilon: f64) {
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
            let row = self.row.at(i);
            *row = C::of(keep * row.as_f64() + (1.0 - keep) * (sum / m as f64));
            mean_row += row.as_f64() / n as f64;
        }
        let (cols, later) = cols.split_at_mut(m);
        for block in later.chunks_exact(m) {
            cols.iter_mut().zip(block).for_each(|(col, more)| *col += more);
        }
        for (j, sum) in cols.iter_mut().enumerate() {
            let col = self.col.at(j);
            *col = C::of(keep * col.as_f64() + (1.0 - keep) * (*sum / n as f64));
            *sum = 1.0 / col.as_f64().sqrt();
        }
        for (i, factor) in rows[..n].iter_mut().enumerate() {
            *factor = 1.0 / (self.row.at(i).as_f64() / mean_row).sqrt();
        }
        let (rows, cols) = (&rows[..n], &*cols);
        if dense {
            in_parts(Multiply { u: &mut self.u[..n * m], rows, cols, per });
        } else {
            multiply(self.u, self.steps, rows, cols);
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

fn multiply<C: Real>(u: &mut [C], [down, along]: [usize; 2], rows: &[f64], cols: &[f64]) {
    let mut one = |i: usize, j: usize| {
        let u = &mut u[i * down + j * along];
        *u = *u * C::of(rows[i]) * C::of(cols[j]);
    };
    if along <= down {
        (0..rows.len()).for_each(|i| (0..cols.len()).for_each(|j| one(i, j)));
    } else {
        (0..cols.len()).for_each(|j| (0..rows.len()).for_each(|i| one(i, j)));
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
        for (u, row) in u.chunks_exact(m).zip(rows) {
            let mut lanes = [0.0; LANES];
            let ((u, last), (cols, last_cols)) = (u.as_chunks::<LANES>(), cols.as_chunks_mut::<LANES>());
            // Loop after loop over the lanes, each of which is some registers.
            for (u, cols) in u.iter().zip(cols) {
                let mut squares = [0.0; LANES];
                (0..LANES).for_each(|lane| squares[lane] = u[lane].as_f64() * u[lane].as_f64() + epsilon);
                (0..LANES).for_each(|lane| lanes[lane] += squares[lane]);
                (0..LANES).for_each(|lane| cols[lane] += squares[lane]);
            }
            for ((u, col), lane) in last.iter().zip(last_cols).zip(&mut lanes) {
                let square = u.as_f64() * u.as_f64() + epsilon;
                *lane += square;
                *col += square;
            }
            *row = lanes.iter().sum();
        }
    }
}

/// Rows that lie one after another, to multiply by the factors of their row and of their columns.
struct Multiply<'a, C> {
    u: &'a mut [C],
    rows: &'a [f64],
    cols: &'a [f64],
    per: usize,
}

impl<C: Real> Split for Multiply<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let Some(half) = half(self.rows.len(), self.per) else { return Err(self) };
        let (u, later) = self.u.split_at_mut(half * self.cols.len());
        let (rows, later_rows) = self.rows.split_at(half);
        Ok([Multiply { u, rows, ..self }, Multiply { u: later, rows: later_rows, ..self }])
    }
}

impl<C: Real> Job for Multiply<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (u, row) in self.u.chunks_exact_mut(self.cols.len()).zip(self.rows) {
            let row = C::of(*row);
            u.iter_mut().zip(self.cols).for_each(|(u, col)| *u = *u * row * C::of(*col));
        }
    }
}
