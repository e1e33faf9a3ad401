//! Fits a probability constrained to the interval from 0 to 1, in three ways.
//!
//! ```text
//! cargo run --release --features constraint --example constrained
//! ```
//!
//! One of 1000 trials succeeded. The likelihood has its maximum at 1/1000 and poles at 0 and 1.

use gradchain::constraint::{Constraints, interval};
use gradchain::prelude::*;

/// The derivative of `−ln p − 999·ln(1 − p)`.
fn slope(p: f64) -> f64 {
    999.0 / (1.0 - p) - 1.0 / p
}

const STEPS: usize = 10_000;

/// Computes the probability from the raw parameter at every read.
fn constrained() -> gradchain::Result<f64> {
    let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64)?;
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&raw)?;
    for _ in 0..STEPS {
        let p = raw.constrain()?;
        let gradient = raw.pull_back(slope(*p))?;
        optimizer.step(&mut raw, &gradient, &mut state)?;
    }
    Ok(raw.constrain()?.into_inner())
}

/// Computes the probability once, so that the raw value becomes an ordinary parameter.
fn transformed_once() -> gradchain::Result<f64> {
    let raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64)?;
    let mut p = raw.constrain()?.into_inner();
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&p)?;
    for _ in 0..STEPS {
        let gradient = slope(p);
        optimizer.step(&mut p, &gradient, &mut state)?;
    }
    Ok(p)
}

/// Clips after each step, at a margin that the caller chooses.
fn clipped(margin: f64) -> gradchain::Result<f64> {
    let mut p = 0.5_f64;
    let optimizer = adam(0.05);
    let mut state = optimizer.init(&p)?;
    for _ in 0..STEPS {
        let gradient = slope(p);
        optimizer.step(&mut p, &gradient, &mut state)?;
        p = p.clamp(margin, 1.0 - margin);
    }
    Ok(p)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let p = constrained()?;
    println!("known answer                    {:14.9}", 0.001);
    println!("raw stepped, constrained looked at {p:11.9}");
    println!("transformed once at construction{:14.9}   it left (0, 1) and does not come back", transformed_once()?);
    println!("clipped to [0.01, 0.99]         {:14.9}   it sits at the bound", clipped(0.01)?);
    println!("clipped to [1e-6, 1 - 1e-6]     {:14.9}   thrown back by the slope at the bound", clipped(1e-6)?);
    if (p - 0.001).abs() > 1e-12 {
        return Err("the fit should be the known answer".into());
    }
    Ok(())
}
