//! The problems: a badly scaled quadratic, Rosenbrock's valley, a logistic regression.

use ndarray::{Array1, ArrayD, IxDyn};

use crate::common::trees::noise;

pub(super) type Leaves = Vec<ArrayD<f64>>;

/// Returns the loss and its gradient.
type Loss = Box<dyn Fn(&Leaves) -> (f64, Leaves)>;

pub(super) struct Problem {
    pub(super) name: &'static str,
    pub(super) start: Leaves,
    pub(super) least: f64,
    pub(super) loss: Loss,
}

pub(super) fn problems() -> [Problem; 3] {
    let regression = vec![leaf(&[4], vec![0.5, -0.5, 0.25, 1.0]), leaf(&[], vec![0.5])];
    [
        Problem { name: "quadratic", start: vec![leaf(&[2, 5], vec![1.0; 10])], least: 0.0, loss: quadratic() },
        Problem {
            name: "Rosenbrock",
            start: vec![leaf(&[2], vec![-1.2, 1.0])],
            least: 0.0,
            loss: Box::new(rosenbrock),
        },
        Problem {
            name: "logistic regression",
            least: descended(&logistic(), regression.clone()),
            start: regression,
            loss: logistic(),
        },
    ]
}

fn leaf(shape: &[usize], values: Vec<f64>) -> ArrayD<f64> {
    ArrayD::from_shape_vec(IxDyn(shape), values).expect("as many values as the shape has places")
}

/// Returns `½ (x − c)ᵀ H (x − c)`, with eigenvalues of `H` from 1 to 100.
///
/// Its eigenvectors are reflected unit vectors, so that all elements interact.
fn quadratic() -> Loss {
    let normal = Array1::from_shape_fn(10, |i| noise(5, 0, i));
    let centre = Array1::from_shape_fn(10, |i| 0.5 * noise(6, 0, i));
    let eigenvalues = Array1::from_shape_fn(10, |i| 100.0_f64.powf(i as f64 / 9.0));
    let reflect = move |v: &Array1<f64>| v - &(2.0 * normal.dot(v) / normal.dot(&normal) * &normal);
    Box::new(move |x| {
        let y = reflect(&(Array1::from_iter(x[0].iter().copied()) - &centre));
        let scaled = &eigenvalues * &y;
        (0.5 * y.dot(&scaled), vec![leaf(&[2, 5], reflect(&scaled).to_vec())])
    })
}

/// Returns `(1 − x)² + 100·(y − x²)²`.
fn rosenbrock(x: &Leaves) -> (f64, Leaves) {
    let (x, y) = (x[0][0], x[0][1]);
    let (slope, valley) = (1.0 - x, y - x * x);
    let gradient = vec![-2.0 * slope - 400.0 * x * valley, 200.0 * valley];
    (slope * slope + 100.0 * valley * valley, vec![leaf(&[2], gradient)])
}

/// Returns the mean of `ln(1 + exp(−yᵢ (w·xᵢ + b)))` over 60 inseparable points, plus `0.01·(‖w‖² + b²)`.
fn logistic() -> Loss {
    // Fixed-length arrays, since these tests are unoptimized.
    let point = |i| -> [f64; 4] { std::array::from_fn(|j| noise(7, i, j) * [1.0, 2.0, 0.5, 3.0][j]) };
    let side = |i, x: [f64; 4]| x[0] - x[1] + 0.5 * x[3] + 0.7 * noise(8, i, 0) + 0.2;
    let points: Vec<_> = (0..60).map(|i| (point(i), side(i, point(i)).signum())).collect();
    Box::new(move |x| {
        let [a, b, c, d] = *x[0].as_slice().expect("it is contiguous") else { unreachable!("it has four elements") };
        let bias = x[1].sum();
        let mut loss = 0.01 * (a * a + b * b + c * c + d * d + bias * bias);
        let (mut by_weight, mut by_bias) = ([a, b, c, d].map(|w| w * 0.02), bias * 0.02);
        for ([p, q, r, s], label) in &points {
            let margin = label * (a * p + b * q + c * r + d * s + bias);
            loss += (-margin).exp().ln_1p() / 60.0;
            let pull = -label / (1.0 + margin.exp()) / 60.0;
            by_weight[0] += pull * p;
            by_weight[1] += pull * q;
            by_weight[2] += pull * r;
            by_weight[3] += pull * s;
            by_bias += pull;
        }
        (loss, vec![leaf(&[4], by_weight.to_vec()), leaf(&[], vec![by_bias])])
    })
}

/// Descends until nothing moves.
fn descended(loss: &Loss, mut x: Leaves) -> f64 {
    for _ in 0..5_000 {
        let (_, gradient) = loss(&x);
        x.iter_mut().zip(gradient).for_each(|(x, g)| x.scaled_add(-0.5, &g));
    }
    loss(&x).0
}
