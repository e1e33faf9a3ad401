//! Running means of squares: per element, and per row and column.

use crate::Real;
use crate::internal::numeric::{Job, PARALLEL_THRESHOLD, Split, half, is_parallel, parallel_for_each, run_parallel};

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

/// Evenly spaced means of rows or columns, and their factors.
pub(super) struct Factor<'a, C> {
    pub(super) mean: &'a mut [C],
    pub(super) by: &'a mut [C],
    pub(super) step: usize,
}

/// Independent partial sums, so that reductions vectorize; they fix the order of addition.
const LANES: usize = 8;

/// The most row blocks of a matrix, and a block's least elements.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

pub(super) struct Factored<'a, C> {
    pub(super) u: &'a [C],
    pub(super) steps: [usize; 2],
    pub(super) size: [usize; 2],
    /// The factors of the second longest axis and of the longest.
    pub(super) row: Factor<'a, C>,
    pub(super) col: Factor<'a, C>,
    /// True if the rows are the second axis.
    pub(super) exchanged: bool,
    pub(super) scratch: &'a mut Vec<f64>,
}

impl<C: Real> Factored<'_, C> {
    pub(super) fn update(self, keep: f64, epsilon: f64) {
        let [n, m] = self.size;
        // Sums squares along the first axis by block, then the blocks, which depend on the matrix alone, not on the
        // number of threads.
        let per = n.div_ceil(BLOCKS).max(BLOCK.div_ceil(m));
        let lanes = if self.steps == [m, 1] { 1 } else { LANES };
        self.scratch.clear();
        self.scratch.resize(n * lanes + n.div_ceil(per) * m, 0.0);
        let (rows, cols) = self.scratch.split_at_mut(n * lanes);
        match lanes {
            1 => run_parallel(n * m, Squares { u: &self.u[..n * m], rows, cols, size: [per, m], epsilon }),
            _ => {
                let blocks = rows.chunks_mut(per * LANES).zip(cols.chunks_exact_mut(m)).enumerate();
                let one = |(block, (rows, cols)): &mut (usize, (&mut [f64], &mut [f64]))| {
                    sum(&self.u[*block * per * self.steps[0]..], self.steps, rows, cols, epsilon);
                };
                if is_parallel(n * m, PARALLEL_THRESHOLD) {
                    parallel_for_each(&mut Vec::from_iter(blocks), &one);
                } else {
                    blocks.for_each(|mut block| one(&mut block));
                }
            }
        }
        let (rows, cols) = self.scratch.split_at_mut(n * lanes);
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
}

/// Sums the squares of a row block by row, in lanes, and by column, in the order of [`Squares`].
fn sum<C: Real>(u: &[C], [down, along]: [usize; 2], rows: &mut [f64], cols: &mut [f64], epsilon: f64) {
    let square = |u: C| u.as_f64() * u.as_f64() + epsilon;
    let (rows, _) = rows.as_chunks_mut::<LANES>();
    if along <= down {
        for (i, row) in rows.iter_mut().enumerate() {
            for (j, col) in cols.iter_mut().enumerate() {
                let x = square(u[i * down + j * along]);
                row[j % LANES] += x;
                *col += x;
            }
        }
        return;
    }
    // Side by side, because each column is a dependent chain of additions.
    for (b, cols) in cols.chunks_mut(LANES).enumerate() {
        for (i, row) in rows.iter_mut().enumerate() {
            for (lane, col) in cols.iter_mut().enumerate() {
                let x = square(u[i * down + (b * LANES + lane) * along]);
                row[lane] += x;
                *col += x;
            }
        }
    }
}

/// Sums squares of contiguous rows by row, and per row block by column.
struct Squares<'a, C> {
    u: &'a [C],
    rows: &'a mut [f64],
    cols: &'a mut [f64],
    /// Rows per block, and columns.
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
        let (rows, last) = rows.as_chunks_mut::<ROW_BLOCK>();
        let (u, u_last) = u.split_at(rows.len() * ROW_BLOCK * m);
        for (i, rows) in rows.iter_mut().enumerate() {
            squares(&u[i * ROW_BLOCK * m..][..ROW_BLOCK * m], rows, cols, epsilon);
        }
        for (i, row) in last.iter_mut().enumerate() {
            squares(&u_last[i * m..][..m], core::array::from_mut(row), cols, epsilon);
        }
    }
}

/// Rows summed together, which loads and stores column sums once.
const ROW_BLOCK: usize = 4;

/// Sums the squares of `R` rows, each row and column in order.
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
