//! 16-bit floats without the feature `half` of gradchain.

use gradchain::prelude::*;

fn main() {
    let _ = adam(0.1).init(&vec![half::f16::ONE]);
}
