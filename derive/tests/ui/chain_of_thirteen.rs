//! A chain of more members than a tuple can have, and one of something else.

use gradchain::prelude::*;
use gradchain::transform::scale;

fn main() {
    let s = || scale(1.0);
    chain((s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s(), s()));
    chain((s(), 1.0));
    inject_hyperparams(chain((s(), s())));
}

fn half<T>(transformation: T) {
    chain((transformation, scale(0.5)));
}
