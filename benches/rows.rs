//! Times a step with row-sparse gradients, 64 rows of an embedding, against a hand-written loop.
//!
//! `cargo bench --bench rows [-- ROWS]` prints a line for each optimizer and number of rows: median times of step and
//! loop, and the median of their ratios. Both get the same rows in turn, different and unsorted, and end with equal
//! parameters. A step with gradients in all rows is timed beside them, up to a million rows.
#![allow(missing_docs, reason = "a program")]

use gradchain::optimizer::rowwise_adagrad;
use std::time::Instant;

use gradchain::prelude::*;
use gradchain::tree::SparseRows;
use ndarray::Array2;

const COLUMNS: usize = 32;
const TOUCHED: usize = 64;
/// Including a tenth of warmup.
const STEPS: usize = 2_000;
const BEFORE: i32 = 3;

fn main() {
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with("--")).and_then(|rows| rows.parse().ok());
    for rows in [10_000, 100_000, 1_000_000, 10_000_000] {
        if wanted.is_none_or(|wanted: usize| wanted == rows) {
            run("adam", adam(1e-3), rows, 2, |hand, g, t| hand.adam(g, t));
            run("momentum", sgd(1e-3).momentum(0.9), rows, 1, |hand, g, _| hand.momentum(g));
            run("rowwise_adagrad", rowwise_adagrad(1e-3), rows, 0, |hand, g, _| hand.rowwise_adagrad(g));
        }
    }
}

struct HandWritten {
    params: Vec<f32>,
    arrays: [Vec<f32>; 2],
    of_rows: Vec<f32>,
}

impl HandWritten {
    fn adam(&mut self, g: &SparseRows<Array2<f32>>, t: i32) {
        let [mean_weight, square_weight] = [0.9_f64, 0.999].map(|b| (1.0 / (1.0 - b.powi(t))) as f32);
        let [m, v] = &mut self.arrays;
        for (row, g) in g.indices.iter().zip(g.values.as_slice().expect("dense").chunks_exact(COLUMNS)) {
            let here = row * COLUMNS..(row + 1) * COLUMNS;
            let (p, m, v) = (&mut self.params[here.clone()], &mut m[here.clone()], &mut v[here]);
            for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(g) {
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * (g * g);
                *p -= 1e-3 * (mean_weight * *m / ((square_weight * *v).sqrt() + 1e-8));
            }
        }
    }

    fn momentum(&mut self, g: &SparseRows<Array2<f32>>) {
        for (row, g) in g.indices.iter().zip(g.values.as_slice().expect("dense").chunks_exact(COLUMNS)) {
            let here = row * COLUMNS..(row + 1) * COLUMNS;
            let (p, m) = (&mut self.params[here.clone()], &mut self.arrays[0][here]);
            for ((p, m), g) in p.iter_mut().zip(m).zip(g) {
                *m = 0.9 * *m + g;
                *p -= 1e-3 * *m;
            }
        }
    }

    fn rowwise_adagrad(&mut self, g: &SparseRows<Array2<f32>>) {
        for (row, g) in g.indices.iter().zip(g.values.as_slice().expect("dense").chunks_exact(COLUMNS)) {
            let mut squares = [0.0; 8];
            for g in g.chunks_exact(8) {
                squares.iter_mut().zip(g).for_each(|(sum, g)| *sum += g * g);
            }
            let sum = &mut self.of_rows[*row];
            *sum += squares.iter().sum::<f32>() / COLUMNS as f32;
            let rate = 1e-3 / (sum.sqrt() + 1e-8);
            let p = &mut self.params[row * COLUMNS..(row + 1) * COLUMNS];
            p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * g);
        }
    }
}

fn run<T: GradientTransformation<Needs = Nothing>>(
    name: &str,
    optimizer: T,
    rows: usize,
    arrays: usize,
    step_by_hand: fn(&mut HandWritten, &SparseRows<Array2<f32>>, i32),
) {
    // So that each page exists.
    let mut params = Array2::<f32>::from_elem((rows, COLUMNS), 1.0);
    let mut state = optimizer.init(&params).expect("a state");
    let zeros = |there: bool, n: usize| {
        let mut array = vec![1.0_f32; if there { n } else { 0 }];
        array.fill(0.0);
        array
    };
    let elements = rows * COLUMNS;
    let mut hand = HandWritten {
        params: vec![1.0; elements],
        arrays: [0, 1].map(|i| zeros(i < arrays, elements)),
        of_rows: zeros(arrays == 0, rows),
    };
    // Touches the state's pages; zero gradients change nothing.
    let dense = {
        let zeros = Array2::<f32>::zeros((rows, COLUMNS));
        let mut step = |_| timed(|| _ = optimizer.step(&mut params, &zeros, &mut state).expect("a step"));
        let mut times: Vec<f64> = (0..BEFORE).map(&mut step).collect();
        (rows <= 1_000_000).then(|| median(&mut times))
    };
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..STEPS {
        let mut indices: Vec<usize> = Vec::new();
        while indices.len() < TOUCHED {
            let row = random() % rows;
            if !indices.contains(&row) {
                indices.push(row);
            }
        }
        let values = Array2::from_shape_fn((TOUCHED, COLUMNS), |_| (random() % 1000) as f32 * 1e-3 - 0.5);
        let gradient = SparseRows::new(indices, values);
        let [mut stepped, mut looped] = [0.0; 2];
        // The order alternates.
        for turn in [step % 2, 1 - step % 2] {
            match turn {
                0 => stepped = timed(|| _ = optimizer.step(&mut params, &gradient, &mut state).expect("a step")),
                _ => looped = timed(|| step_by_hand(&mut hand, &gradient, step as i32 + 1 + BEFORE)),
            }
        }
        if step >= STEPS / 10 {
            ours.push(stepped);
            theirs.push(looped);
            ratios.push(stepped / looped);
        }
    }
    for (i, (ours, theirs)) in params.iter().zip(&hand.params).enumerate() {
        assert!((ours - theirs).abs() <= 1e-5 * theirs.abs(), "element {i} is {ours} instead of {theirs}");
    }
    println!(
        "rows optimizer={name} rows={rows} us_per_step={:.2} us_by_hand={:.2} ratio={:.2} us_of_all_rows={}",
        median(&mut ours) * 1e6,
        median(&mut theirs) * 1e6,
        median(&mut ratios),
        dense.map_or("not_timed".into(), |dense| format!("{:.0}", dense * 1e6)),
    );
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
