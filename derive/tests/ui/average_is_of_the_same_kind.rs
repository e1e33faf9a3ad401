//! The mean of flags is a flag, never a number.

use gradchain::state::{AverageOptions, Flag, average};

fn main() {
    let (a, b) = (Flag::new(true), Flag::new(false));
    let _: f64 = average(&[(&a, 1.0), (&b, 1.0)], AverageOptions::default()).unwrap();
    let _ = average(&[(&true, 1.0), (&false, 1.0)], AverageOptions::default());
}
