//! Eight arrays are as many as a rule may have. (With this file `trybuild` makes programs, which some errors need.)

use gradchain::prelude::*;
use gradchain::{Clock, Real, Rule};

macro_rules! rule {
    ($Name:ident: $n:literal, $slots:expr) => {
        #[derive(Clone, Debug)]
        struct $Name;

        impl Rule for $Name {
            const NAME: &'static str = stringify!($Name);
            const SLOTS: &'static [&'static str] = &$slots;
            type Slots<C: Real> = [C; $n];
            type Scalars<C: Real> = ();
            fn scalars<C: Real>(&self, _: Clock) {}
            fn apply<C: Real>((): (), _: &mut [C; $n], u: C, _: C) -> C {
                u
            }
        }
    };
}
rule!(Eight: 8, ["a", "b", "c", "d", "e", "f", "g", "h"]);

fn main() -> gradchain::Result<()> {
    let state = Eight.init(&1.0_f32)?;
    assert!(state.moment("h").is_some(), "each name has its array");
    Ok(())
}
