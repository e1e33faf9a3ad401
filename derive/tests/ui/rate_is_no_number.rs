//! A learning rate that is neither an `f64` nor a schedule.

use gradchain::prelude::*;
use gradchain::transform::trace;

fn main() {
    let rate = 0.1_f32;
    adam(rate);
    adam(1);
    adam(|step: u64| 0.1 / step as f64);
    trace(0.9).decay(rate);
}
