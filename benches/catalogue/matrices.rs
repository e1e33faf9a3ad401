//! Optimizers that multiply matrices, against ndarray's products in `f32`.

use std::time::Instant;

#[cfg(feature = "faer")]
use gradchain::optimizer::soap;
use gradchain::prelude::*;
use ndarray::{Array2, s};

use crate::bench::in_pool;
use crate::limit::median;

/// A square, and a transformer's wide matrix.
const SHAPES: [(usize, usize); 2] = [(1024, 1024), (512, 1536)];
/// A basis is kept this long; times are means over it.
#[cfg(feature = "faer")]
const PERIOD: usize = 10;

/// Prints a line for each shape; names begin with `mat_`.
pub fn run(filter: &str) {
    for (n, m) in SHAPES {
        // X·Xᵀ, its square, and the product of that with X.
        line(filter, "muon", (n, m), 5, muon(1e-3), |x| {
            for _ in 0..5 {
                let a = x.g.dot(&x.g.t());
                std::hint::black_box((a.dot(&a), a.dot(&x.g)));
            }
        });
        // Gradient and mean into the basis, the update back, and the gradient's two products with itself.
        #[cfg(feature = "faer")]
        line(filter, "soap", (n, m), PERIOD, soap(1e-3).precondition_frequency(PERIOD as u64), |x| {
            for _ in 0..3 {
                std::hint::black_box(x.left.t().dot(&x.g).dot(&x.right));
            }
            std::hint::black_box((x.g.dot(&x.g.t()), x.g.t().dot(&x.g)));
        });
    }
}

struct Factors {
    g: Array2<f32>,
    #[cfg_attr(not(feature = "faer"), allow(dead_code, reason = "bases are of decompositions"))]
    left: Array2<f32>,
    #[cfg_attr(not(feature = "faer"), allow(dead_code, reason = "bases are of decompositions"))]
    right: Array2<f32>,
}

fn line<T: GradientTransformation<Needs = Nothing>>(
    filter: &str,
    name: &str,
    (n, m): (usize, usize),
    steps: usize,
    optimizer: T,
    products: impl Fn(&Factors) + Send + Sync,
) {
    let label = format!("chain=mat_{name} dtype=f32 tree={n}x{m} threads=1");
    if !label.contains(filter) {
        return;
    }
    let random = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    let big = Array2::from_shape_fn((n.max(m), n.max(m)), |(i, j)| random(i, j));
    let part = |rows, columns| big.slice(s![..rows, ..columns]).to_owned();
    let factors = Factors { g: part(n, m), left: part(n, n), right: part(m, m) };
    let mut params = part(n, m);
    let mut state = optimizer.init(&params).expect("a state");
    in_pool(1, || {
        // Some compute a basis first.
        optimizer.step(&mut params, &factors.g, &mut state).expect("a step");
        let (mut ratios, mut means, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut pairs = Vec::new();
            for _ in 0..steps {
                let start = Instant::now();
                products(&factors);
                let needed = start.elapsed().as_secs_f64();
                let start = Instant::now();
                optimizer.step(&mut params, &factors.g, &mut state).expect("a step");
                pairs.push((start.elapsed().as_secs_f64(), needed));
            }
            ratios.extend(pairs.iter().map(|(step, needed)| step / needed));
            times.extend(pairs.iter().map(|(step, _)| *step));
            let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
            means.push(sum(|p| p.0) / sum(|p| p.1));
        }
        println!(
            "roofline {label} ratio={:.3} ratio_of_means={:.3} ms_per_step={:.2}",
            median(&mut ratios),
            median(&mut means),
            median(&mut times) * 1e3,
        );
    });
}
