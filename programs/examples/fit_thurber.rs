//! Fits a curve to data with L-BFGS and with Levenberg-Marquardt.
//!
//! The second is by the crate `levenberg-marquardt`, made for least squares. The guide explains this program, in
//! `docs/least-squares.md`.
//!
//! ```text
//! cargo run --release --example fit_thurber
//! cargo run --release --example fit_thurber -- FILE      plots data and curve
//! ```
//!
//! Data and certified parameters are those of Thurber, in the Statistical Reference Datasets of NIST.

use gradchain::plot::Chart;
use gradchain::prelude::*;
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::{Dyn, OMatrix, OVector, Owned, SVector, U7};

/// Electron mobility, and the logarithm of the density.
const DATA: [(f64, f64); 37] = [
    (80.574, -3.067),
    (84.248, -2.981),
    (87.264, -2.921),
    (87.195, -2.912),
    (89.076, -2.840),
    (89.608, -2.797),
    (89.868, -2.702),
    (90.101, -2.699),
    (92.405, -2.633),
    (95.854, -2.481),
    (100.696, -2.363),
    (101.060, -2.322),
    (401.672, -1.501),
    (390.724, -1.460),
    (567.534, -1.274),
    (635.316, -1.212),
    (733.054, -1.100),
    (759.087, -1.046),
    (894.206, -0.915),
    (990.785, -0.714),
    (1090.109, -0.566),
    (1080.914, -0.545),
    (1122.643, -0.400),
    (1178.351, -0.309),
    (1260.531, -0.109),
    (1273.514, -0.103),
    (1288.339, 0.010),
    (1327.543, 0.119),
    (1353.863, 0.377),
    (1414.509, 0.790),
    (1425.208, 0.963),
    (1421.384, 1.006),
    (1442.962, 1.115),
    (1464.350, 1.572),
    (1468.705, 1.841),
    (1447.894, 2.047),
    (1457.628, 2.200),
];
const START: [f64; 7] = [1000.0, 1000.0, 400.0, 40.0, 0.7, 0.3, 0.03];

/// Returns a quotient of two cubics, and its derivatives.
fn curve(b: &[f64; 7], x: f64) -> (f64, [f64; 7]) {
    let above = b[0] + x * (b[1] + x * (b[2] + x * b[3]));
    let below = 1.0 + x * (b[4] + x * (b[5] + x * b[6]));
    let y = above / below;
    let derivative = |k| if k < 4 { x.powi(k as i32) / below } else { -y * x.powi(k as i32 - 3) / below };
    (y, std::array::from_fn(derivative))
}

fn parameters(q: &[f64; 7]) -> [f64; 7] {
    std::array::from_fn(|k| q[k] * START[k])
}

fn loss(q: &[f64; 7]) -> (f64, [f64; 7]) {
    let (mut value, mut gradient) = (0.0, [0.0; 7]);
    for (y, x) in DATA {
        let (fitted, derivatives) = curve(&parameters(q), x);
        let residual = fitted - y;
        value += residual * residual;
        for k in 0..7 {
            gradient[k] += 2.0 * residual * derivatives[k] * START[k];
        }
    }
    (value, gradient)
}

fn by_lbfgs() -> Result<[f64; 7], gradchain::Error> {
    let optimizer = lbfgs();
    let mut q = [1.0; 7];
    let mut state = optimizer.init(&q)?;
    let report = optimizer.minimize(&mut q, loss, &mut state).gradient_rtol(1e-12).run()?;
    println!("{report}");
    Ok(parameters(&q))
}

struct Curve {
    b: SVector<f64, 7>,
}

impl LeastSquaresProblem<f64, Dyn, U7> for Curve {
    type ParameterStorage = Owned<f64, U7>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, U7>;

    fn set_params(&mut self, b: &SVector<f64, 7>) {
        self.b = *b;
    }

    fn params(&self) -> SVector<f64, 7> {
        self.b
    }

    fn residuals(&self) -> Option<OVector<f64, Dyn>> {
        let residuals = DATA.iter().map(|(y, x)| curve(&self.b.into(), *x).0 - y);
        Some(OVector::<f64, Dyn>::from_iterator(DATA.len(), residuals))
    }

    fn jacobian(&self) -> Option<OMatrix<f64, Dyn, U7>> {
        let derivatives = |i: usize, k: usize| curve(&self.b.into(), DATA[i].1).1[k];
        Some(OMatrix::<f64, Dyn, U7>::from_fn(DATA.len(), derivatives))
    }
}

fn by_levenberg_marquardt() -> [f64; 7] {
    let (fitted, report) = LevenbergMarquardt::new().minimize(Curve { b: START.into() });
    println!("{:?} after {} evaluations", report.termination, report.number_of_evaluations);
    fitted.b.into()
}

/// Plots data and curve.
fn picture(b: &[f64; 7]) -> gradchain::Result<String> {
    let mut data = DATA.map(|(y, x)| (x, y));
    data.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (data[0].0, data[DATA.len() - 1].0);
    let places = (0..=200).map(|i| first + (last - first) * f64::from(i) / 200.0);
    let fitted = places.map(|x| (x, curve(b, x).0));
    Chart::new("electron mobility by the logarithm of the density")
        .points("NIST's data", data)
        .faint()
        .points("fitted by lbfgs", fitted)
        .svg([600, 260])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let certified = [
        1.2881396800e3,
        1.4910792535e3,
        5.8323836877e2,
        7.5416644291e1,
        9.6629502864e-1,
        3.9797285797e-1,
        4.9727297349e-2,
    ];
    let fits = [by_lbfgs()?, by_levenberg_marquardt()];
    println!("{:>18} {:>18} {:>18}", "L-BFGS", "L.-Marquardt", "certified");
    for (k, certified) in certified.iter().enumerate() {
        println!("{:18.10} {:18.10} {certified:18.10}", fits[0][k], fits[1][k]);
        if fits.iter().any(|b| (b[k] - certified).abs() > 1e-6 * certified.abs()) {
            return Err(format!("parameter {} should be {certified}", k + 1).into());
        }
    }
    if let Some(path) = std::env::args_os().nth(1) {
        std::fs::write(path, picture(&fits[0])?)?;
    }
    Ok(())
}
