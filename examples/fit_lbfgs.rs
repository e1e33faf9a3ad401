//! Fits a Poisson regression in `f64` with L-BFGS, to machine precision, with standard errors.
//!
//! ```text
//! cargo run --release --features minimize --example fit_lbfgs
//! cargo run --release --features minimize,plot --example fit_lbfgs -- FILE      plots the convergence
//! ```
//!
//! The data is the example of R's `glm`, after Dobson, An introduction to generalized linear models, 1990, page 93:
//! counts in a trial with three outcomes and three treatments. The program checks the result against the closed form.

use gradchain::minimize::{check_gradient, hessian};
use gradchain::prelude::*;

const COUNTS: [f64; 9] = [18.0, 17.0, 15.0, 20.0, 10.0, 20.0, 25.0, 13.0, 12.0];

/// Log-rates: the first outcome under the first treatment, and offsets.
#[derive(Clone, Tree)]
struct Poisson {
    intercept: f64,
    outcome: [f64; 2],
    treatment: [f64; 2],
}

impl Poisson {
    fn rate(&self, i: usize) -> f64 {
        let of = |effects: &[f64; 2], level: usize| if level == 0 { 0.0 } else { effects[level - 1] };
        (self.intercept + of(&self.outcome, i % 3) + of(&self.treatment, i / 3)).exp()
    }

    /// Returns `Σ rate − count·ln(rate)`, the negative log-likelihood, and its derivative.
    fn loss(&self) -> (f64, Poisson) {
        let mut value = 0.0;
        let mut gradient = Poisson { intercept: 0.0, outcome: [0.0; 2], treatment: [0.0; 2] };
        for (i, count) in COUNTS.iter().enumerate() {
            let rate = self.rate(i);
            value += rate - count * rate.ln();
            let residual = rate - count;
            gradient.intercept += residual;
            if i % 3 > 0 {
                gradient.outcome[i % 3 - 1] += residual;
            }
            if i / 3 > 0 {
                gradient.treatment[i / 3 - 1] += residual;
            }
        }
        (value, gradient)
    }

    /// Returns twice the log-likelihood ratio to the saturated model.
    fn deviance(&self) -> f64 {
        let terms = COUNTS.iter().enumerate().map(|(i, y)| y * (y / self.rate(i)).ln() - (y - self.rate(i)));
        2.0 * terms.sum::<f64>()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mean = COUNTS.iter().sum::<f64>() / COUNTS.len() as f64;
    let mut model = Poisson { intercept: mean.ln(), outcome: [0.0; 2], treatment: [0.0; 2] };

    check_gradient(&model, Poisson::loss).run()?;

    let optimizer = lbfgs();
    let mut state = optimizer.init(&model)?;
    let mut norms = Vec::new();
    for number in 0.. {
        let deviance = model.deviance();
        let step = optimizer.minimize_step(&mut model, Poisson::loss, &mut state)?;
        let (norm, calls) = (step.gradient_norm, step.evaluations);
        println!("step {number:2}  deviance {deviance:.12}  gradient {norm:.1e}  evaluations {calls}");
        norms.push(norm);
        if norm < 1e-10 {
            break;
        }
        if number == 100 {
            return Err("it did not converge".into());
        }
    }

    // The design is balanced: 63, 40 and 47 counts for the outcomes, equal for the treatments.
    let known = [21.0_f64.ln(), (40.0_f64 / 63.0).ln(), (47.0_f64 / 63.0).ln(), 0.0, 0.0];
    // The variance of the log-rate of n counts is 1/n, a difference's the sum of both. The intercept is one cell's: row
    // plus column minus total.
    let known_errors = [1.0 / 63.0 + 1.0 / 50.0 - 1.0 / 150.0, 1.0 / 63.0 + 1.0 / 40.0, 1.0 / 63.0 + 1.0 / 47.0];
    let [effect, treatment] = [&known_errors[..], &[2.0 / 50.0; 2]].map(|v| v.iter().map(|v: &f64| v.sqrt()));
    let known_errors: Vec<f64> = effect.chain(treatment).collect();
    let covariance = hessian(&model, Poisson::loss).run()?.covariance()?;

    let [o2, o3] = model.outcome;
    let [t2, t3] = model.treatment;
    let names = ["intercept", "outcome 2", "outcome 3", "treatment 2", "treatment 3"];
    for ((name, fitted), known) in names.iter().zip([model.intercept, o2, o3, t2, t3]).zip(known) {
        println!("{name:12} {fitted:14.10}  known {known:14.10}");
        if (fitted - known).abs() > 1e-10 {
            return Err(format!("{name} should be {known}").into());
        }
    }
    for ((name, variance), known) in names.iter().zip(covariance.matrix().diag()).zip(known_errors) {
        let error = variance.sqrt();
        println!("{name:12} ± {error:12.10}  known ± {known:12.10}");
        if (error - known).abs() > 1e-8 {
            return Err(format!("the standard error of {name} should be {known}").into());
        }
    }
    println!("deviance     {:14.10}", model.deviance());
    if let Some(path) = std::env::args_os().nth(1) {
        std::fs::write(path, picture(&norms)?)?;
    }
    Ok(())
}

/// Plots the gradient's norm before each step.
#[cfg(feature = "plot")]
fn picture(norms: &[f64]) -> gradchain::Result<String> {
    let chart = gradchain::plot::Chart::new("Poisson regression: norm of the gradient by step");
    chart.logarithmic(true).line("lbfgs", norms.iter().copied()).svg([600, 220])
}

#[cfg(not(feature = "plot"))]
fn picture(_: &[f64]) -> Result<String, &'static str> {
    Err("a picture needs the feature `plot`")
}
