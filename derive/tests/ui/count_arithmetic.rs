//! A count goes up by one and back to zero, and nothing else.

use gradchain::state::Count;

fn main() {
    let (a, mut b) = (Count::new(1), Count::new(2));
    let _ = a + b;
    let _ = a * 0.5;
    let _ = a as f64;
    b += 1;
    let _: Count = 0.5.into();
}
