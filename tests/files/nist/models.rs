//! The models, with exact derivatives by complex steps.
//!
//! Parameters have an imaginary step of 1e-100. The result's imaginary part is the derivative, too small to change the
//! value.

use std::f64::consts::PI;
use std::fs;
use std::path::Path;

use num_complex::Complex64;
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Problem {
    pub(super) name: String,
    pub(super) starts: [Vec<f64>; 2],
    pub(super) certified: Vec<f64>,
    y: Vec<f64>,
    /// All observations, by predictor.
    x: Vec<Vec<f64>>,
}

type Model = fn(&[Complex64], &[f64]) -> Complex64;

pub(super) fn problems() -> Vec<Problem> {
    #[derive(Deserialize)]
    struct File {
        problems: Vec<Problem>,
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nist.json");
    serde_json::from_str::<File>(&fs::read_to_string(file).unwrap()).unwrap().problems
}

impl Problem {
    /// Returns the sum of squared residuals, and its gradient.
    pub(super) fn loss(&self, b: &[f64]) -> (f64, Vec<f64>) {
        const STEP: f64 = 1e-100;
        let model = model(&self.name);
        let mut at: Vec<_> = b.iter().map(|b| Complex64::from(*b)).collect();
        let (mut value, mut gradient) = (0.0, vec![0.0; b.len()]);
        for (i, y) in self.y.iter().enumerate() {
            let x: Vec<_> = self.x.iter().map(|x| x[i]).collect();
            let y = if self.name == "Nelson" { y.ln() } else { *y };
            let mut residual = f64::NAN;
            for (k, gradient) in gradient.iter_mut().enumerate() {
                at[k].im = STEP;
                let reached = model(&at, &x);
                at[k].im = 0.0;
                if k == 0 {
                    residual = reached.re - y;
                    value += residual * residual;
                }
                *gradient += 2.0 * residual * (reached.im / STEP);
            }
        }
        (value, gradient)
    }

    pub(super) fn digits(&self, b: &[f64]) -> f64 {
        let digits = |(b, c): (&f64, &f64)| -((b - c).abs() / c.abs()).log10();
        b.iter().zip(&self.certified).map(digits).fold(11.0, f64::min).max(0.0)
    }
}

fn model(name: &str) -> Model {
    match name {
        "Bennett5" => |b, x| b[0] * (b[1] + x[0]).powc(-1.0 / b[2]),
        "BoxBOD" | "Misra1a" => |b, x| b[0] * (1.0 - (-b[1] * x[0]).exp()),
        "Chwirut1" | "Chwirut2" => |b, x| (-b[0] * x[0]).exp() / (b[1] + b[2] * x[0]),
        "DanWood" => |b, x| b[0] * (b[1] * x[0].ln()).exp(),
        "ENSO" => |b, x| {
            let wave = |period: Complex64, c: Complex64, s: Complex64| {
                let angle = 2.0 * PI * x[0] / period;
                c * angle.cos() + s * angle.sin()
            };
            b[0] + wave(12.0.into(), b[1], b[2]) + wave(b[3], b[4], b[5]) + wave(b[6], b[7], b[8])
        },
        "Eckerle4" => |b, x| b[0] / b[1] * (-0.5 * square((x[0] - b[2]) / b[1])).exp(),
        "Gauss1" | "Gauss2" | "Gauss3" => |b, x| {
            let peak =
                |height: Complex64, at: Complex64, width: Complex64| height * (-square((x[0] - at) / width)).exp();
            b[0] * (-b[1] * x[0]).exp() + peak(b[2], b[3], b[4]) + peak(b[5], b[6], b[7])
        },
        "Hahn1" | "Kirby2" | "Thurber" => |b, x| {
            let (above, below) = b.split_at(b.len() / 2 + 1);
            let horner = |b: &[Complex64]| b.iter().rev().fold(Complex64::from(0.0), |sum, b| sum * x[0] + b);
            horner(above) / (1.0 + horner(below) * x[0])
        },
        "Lanczos1" | "Lanczos2" | "Lanczos3" => |b, x| b.chunks(2).map(|b| b[0] * (-b[1] * x[0]).exp()).sum(),
        "MGH09" => |b, x| b[0] * (x[0] * x[0] + x[0] * b[1]) / (x[0] * x[0] + x[0] * b[2] + b[3]),
        "MGH10" => |b, x| b[0] * (b[1] / (x[0] + b[2])).exp(),
        "MGH17" => |b, x| b[0] + b[1] * (-x[0] * b[3]).exp() + b[2] * (-x[0] * b[4]).exp(),
        "Misra1b" => |b, x| b[0] * (1.0 - 1.0 / square(1.0 + b[1] * x[0] / 2.0)),
        "Misra1c" => |b, x| b[0] * (1.0 - 1.0 / (1.0 + 2.0 * b[1] * x[0]).sqrt()),
        "Misra1d" => |b, x| b[0] * b[1] * x[0] / (1.0 + b[1] * x[0]),
        "Nelson" => |b, x| b[0] - b[1] * x[0] * (-b[2] * x[1]).exp(),
        "Rat42" => |b, x| b[0] / (1.0 + (b[1] - b[2] * x[0]).exp()),
        "Rat43" => |b, x| b[0] / (1.0 + (b[1] - b[2] * x[0]).exp()).powc(1.0 / b[3]),
        "Roszman1" => |b, x| {
            let z = b[2] / (x[0] - b[3]);
            // A difference of logarithms would lose the imaginary part.
            let arctan = Complex64::new(z.re.atan(), z.im / (1.0 + z.re * z.re));
            b[0] - b[1] * x[0] - arctan / PI
        },
        other => panic!("{other}"),
    }
}

fn square(z: Complex64) -> Complex64 {
    z * z
}
