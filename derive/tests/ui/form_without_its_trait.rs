//! A part whose form asks for a trait that it has not got.

use gradchain::GradientTransformation as _;
use gradchain::part::{Around, OneElement, Part, TwoPass, Whole};

#[derive(Clone, Debug)]
struct Rescaled;

impl Part for Rescaled {
    const NAME: &'static str = "rescaled";
    type Form = TwoPass;
}

#[derive(Clone, Debug)]
struct Doubled;

impl Part for Doubled {
    const NAME: &'static str = "doubled";
    type Form = OneElement;
}

#[derive(Clone, Debug)]
struct Sorted;

impl Part for Sorted {
    const NAME: &'static str = "sorted";
    type Form = Whole;
}

gradchain::wrapper! {
    /// Holds another.
    pub Held<T> as "held" around inner: Around {}
}

fn main() {
    let _ = Held::with(gradchain::prelude::sgd(0.1)).init(&vec![1.0_f32]);
}
