//! A part whose form asks for a trait that it has not got.

use gradchain::part::{OneElement, Part, TwoPass, Whole};

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

fn main() {}
