//! A form that is none, and slots that are no array.

use gradchain::Real;
use gradchain::part::{Clock, OneElement, Part, Rule};

#[derive(Clone, Debug)]
struct Halved;

impl Part for Halved {
    const NAME: &'static str = "halved";
    type Form = Self;
}

#[derive(Clone, Debug)]
struct Summed;

impl Part for Summed {
    const NAME: &'static str = "summed";
    type Form = OneElement;
}

impl Rule for Summed {
    type Slots<C: Real> = Vec<C>;
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}
    fn apply<C: Real>(_: (), _: &mut Vec<C>, u: C, _: C) -> C {
        u
    }
}

fn main() {}
