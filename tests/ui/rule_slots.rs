//! A rule says how many arrays it has in two places, and has at most eight.

use gradchain::prelude::*;
use gradchain::Real;
use gradchain::part::{Clock, OneElement, Part, Rule, Slot};

macro_rules! rule {
    ($Name:ident: $n:literal, $slots:expr) => {
        #[derive(Clone, Debug)]
        struct $Name;

        impl Part for $Name {
            const NAME: &'static str = stringify!($Name);
            type Form = OneElement;
        }

        impl Rule for $Name {
            const SLOTS: &'static [Slot] = &$slots;
            type Slots<C: Real> = [C; $n];
            type Scalars<C: Real> = ();
            fn scalars<C: Real>(&self, _: Clock) {}
            fn apply<C: Real>((): (), _: &mut [C; $n], u: C, _: C) -> C {
                u
            }
        }
    };
}
rule!(TwoWithOneName: 2, [Slot::signed("mean")]);
rule!(Nine: 9, [Slot::signed("a"); 9]);

fn main() -> gradchain::Result<()> {
    TwoWithOneName.init(&1.0_f32)?;
    Nine.init(&1.0_f32)?;
    Ok(())
}
