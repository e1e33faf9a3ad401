//! A flag has no arithmetic.

use gradchain::state::Flag;

fn main() {
    let (a, mut b) = (Flag::new(true), Flag::new(false));
    let _ = a + b;
    let _ = a * 0.5;
    let _ = a as u8 as f64;
    b += a;
}
