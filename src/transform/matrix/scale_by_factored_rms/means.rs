//! The running means of squares, of elements and by rows and columns.

use crate::element::Real;
use crate::engine::Job;
use crate::numeric::split::{Split, half, in_parts};

/// An element-wise stretch of a leaf that is not factored.
pub(super) struct Plain<'a, C> {
    pub(super) u: &'a [C],
    pub(super) v: &'a mut [C],
    pub(super) keep: C,
    pub(super) take: C,
    pub(super) epsilon: C,
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
        let Plain { u, v, keep, take, epsilon } = self;
        let u = &u[..v.len()];
        for i in 0..v.len() {
            v[i] = keep * v[i] + take * (u[i] * u[i] + epsilon);
        }
    }
}

/// The means of the rows or of the columns of a matrix, evenly spaced, and what these are multiplied by.
pub(super) struct Factor<'a, C> {
    pub(super) mean: &'a mut [C],
    pub(super) by: &'a mut [C],
    pub(super) step: usize,
}

/// Sums kept side by side, so that adding up can be vectorised; their number fixes the order of addition.
const LANES: usize = 8;

/// The most blocks of rows that a matrix is cut into, and elements that are worth a block.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

/// One matrix and its factors.
pub(super) struct Factored<'a, C> {
    pub(super) u: &'a [C],
    /// How far apart the neighbours are along the first axis and along the second, and how many there are.
    pub(super) steps: [usize; 2],
    pub(super) size: [usize; 2],
    /// Of the second longest axis, and of the longest.
    pub(super) row: Factor<'a, C>,
    pub(super) col: Factor<'a, C>,
    /// Whether the second axis is that of the rows.
    pub(super) exchanged: bool,
    pub(super) room: &'a mut Vec<f64>,
}

impl<C: Real> Factored<'_, C> {
    pub(super) fn update(mut self, keep: f64, epsilon: f64) {
        let [n, m] = self.size;
        // Along the first axis squares are added up block by block, and these one after another: so many by the matrix
        // alone, whatever the number of threads.
        let per = n.div_ceil(BLOCKS).max(BLOCK.div_ceil(m));
        let lanes = if self.steps == [m, 1] { 1 } else { LANES };
        self.room.clear();
        self.room.resize(n * lanes + n.div_ceil(per) * m, 0.0);
        let (rows, cols) = self.room.split_at_mut(n * lanes);
        let size = [per, m];
        match self.steps {
            [down, 1] if down == m => in_parts(Squares { u: &self.u[..n * m], rows, cols, size, epsilon }),
            [1, along] if along == n => {
                in_parts(Turned { u: &self.u[..n * m], first: 0, n, rows, cols, size, epsilon })
            }
            _ => self.sum(per, epsilon),
        }
        let (rows, cols) = self.room.split_at_mut(n * lanes);
        for i in 0..n {
            rows[i] = rows[i * lanes..][..lanes].iter().sum();
        }
        let (cols, later) = cols.split_at_mut(m);
        for block in later.chunks_exact(m) {
            cols.iter_mut().zip(block).for_each(|(col, more)| *col += more);
        }

        let (rows, cols) = if self.exchanged { (&cols[..], &rows[..n]) } else { (&rows[..n], &cols[..]) };
        let (n, m) = (rows.len(), cols.len());
        let mut mean_row = 0.0;
        for (i, sum) in rows.iter().enumerate() {
            let row = &mut self.row.mean[i * self.row.step];
            *row = C::of(keep * row.as_f64() + (1.0 - keep) * (sum / m as f64));
            mean_row += row.as_f64() / n as f64;
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
                    lanes[i * LANES + j % LANES] += x;
                    *col += x;
                }
            }
        } else {
            for j in 0..m {
                let line = &self.u[j * along..];
                for i in 0..n {
                    let x = square(line[i * down]);
                    lanes[i * LANES + j % LANES] += x;
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
        for (i, rows) in rows.iter_mut().enumerate() {
            squares(&u[i * TOGETHER * m..][..TOGETHER * m], rows, cols, epsilon);
        }
        for (i, row) in last.iter_mut().enumerate() {
            squares(&u_last[i * m..][..m], core::array::from_mut(row), cols, epsilon);
        }
    }
}

/// Columns that lie one after another, each of `n` elements: the same sums in the same order as [`Squares`], of rows from
/// the `first` on, in lanes.
struct Turned<'a, C> {
    u: &'a [C],
    first: usize,
    n: usize,
    rows: &'a mut [f64],
    cols: &'a mut [f64],
    /// Rows of a block, and columns.
    size: [usize; 2],
    epsilon: f64,
}

impl<C: Real> Split for Turned<'_, C> {
    fn split(self) -> Result<[Self; 2], Self> {
        let [per, m] = self.size;
        let Some(half) = half(self.rows.len() / LANES, per) else { return Err(self) };
        let (rows, later_rows) = self.rows.split_at_mut(half * LANES);
        let (cols, later_cols) = self.cols.split_at_mut(half / per * m);
        let first = self.first + half;
        Ok([Turned { rows, cols, ..self }, Turned { first, rows: later_rows, cols: later_cols, ..self }])
    }
}

impl<C: Real> Job for Turned<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Turned { u, first, n, rows, cols, size: [per, m], epsilon } = self;
        let (rows, _) = rows.as_chunks_mut::<LANES>();
        // Each column is gone through once, block by block of its rows.
        for b in 0..m / LANES {
            for block in 0..rows.len().div_ceil(per) {
                let rows = &mut rows[block * per..];
                let len = rows.len().min(per);
                let line = |lane: usize| &u[(b * LANES + lane) * n + first + block * per..][..len];
                let lines = [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)];
                let sums = turned(lines, &mut rows[..len], epsilon);
                cols[block * m + b * LANES..][..LANES].copy_from_slice(&sums);
            }
        }
        for j in m / LANES * LANES..m {
            for i in 0..rows.len() {
                let square = u[j * n + first + i].as_f64() * u[j * n + first + i].as_f64() + epsilon;
                rows[i][j % LANES] += square;
                cols[i / per * m + j] += square;
            }
        }
    }
}

/// Adds up the squares of some columns, side by side: to those of the rows, and by column. In a loop over columns the
/// compiler would gather them.
#[inline(always)]
fn turned<C: Real>(lines: [&[C]; LANES], rows: &mut [[f64; LANES]], epsilon: f64) -> [f64; LANES] {
    let lines = lines.map(|line| &line[..rows.len()]);
    let mut sums = [0.0; LANES];
    for i in 0..rows.len() {
        let numbers: [C; LANES] = core::array::from_fn(|lane| lines[lane][i]);
        for lane in 0..LANES {
            let square = numbers[lane].as_f64() * numbers[lane].as_f64() + epsilon;
            rows[i][lane] += square;
            sums[lane] += square;
        }
    }
    sums
}

/// Rows that are added up together: the sums of columns are brought from the cache and back once for all of them.
const TOGETHER: usize = 4;

/// Adds up the squares of some rows, each row and each column one element after another.
#[inline(always)]
fn squares<C: Real, const R: usize>(u: &[C], rows: &mut [f64; R], cols: &mut [f64], epsilon: f64) {
    let square = |u: C| u.as_f64() * u.as_f64() + epsilon;
    let m = cols.len();
    let (cols, last_cols) = cols.as_chunks_mut::<LANES>();
    let (mut blocks, mut ends): ([&[[C; LANES]]; R], [&[C]; R]) = ([&[]; R], [&[]; R]);
    for r in 0..R {
        let (whole, end) = u[r * m..][..m].as_chunks::<LANES>();
        (blocks[r], ends[r]) = (&whole[..cols.len()], &end[..last_cols.len()]);
    }
    let mut lanes = [[0.0; LANES]; R];
    for (b, cols) in cols.iter_mut().enumerate() {
        for r in 0..R {
            let mut squares = [0.0; LANES];
            for lane in 0..LANES {
                squares[lane] = square(blocks[r][b][lane]);
            }
            for lane in 0..LANES {
                lanes[r][lane] += squares[lane];
            }
            for lane in 0..LANES {
                cols[lane] += squares[lane];
            }
        }
    }
    for r in 0..R {
        for (i, col) in last_cols.iter_mut().enumerate() {
            let square = square(ends[r][i]);
            lanes[r][i] += square;
            *col += square;
        }
        rows[r] = lanes[r].iter().sum();
    }
}
