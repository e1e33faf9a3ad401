//! Trees that have no order, and gradients that are no floats.

use std::collections::HashMap;

use gradchain::prelude::*;

fn main() {
    let map: HashMap<String, Vec<f32>> = HashMap::new();
    let _ = adam(0.1).init(&map);
    let _ = adam(0.1).init(&vec![1_i32]);
}
