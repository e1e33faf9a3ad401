//! Custom rules.

use gradchain::Real;
use gradchain::part::{Clock, OneElement, Part, Rule, Slot};
use gradchain::prelude::*;

#[derive(Clone, Debug)]
struct Eight;

impl Part for Eight {
    const NAME: &'static str = "eight";
    type Form = OneElement;
}

impl Rule for Eight {
    const SLOTS: &'static [Slot] = &[
        Slot::exact("a"),
        Slot::exact("b"),
        Slot::exact("c"),
        Slot::exact("d"),
        Slot::exact("e"),
        Slot::exact("f"),
        Slot::exact("g"),
        Slot::exact("h"),
    ];
    type Slots<C: Real> = [C; 8];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    /// Keeps different sums, so that exchanged arrays show.
    fn apply<C: Real>((): (), slots: &mut [C; 8], u: C, _: C) -> C {
        let mut part = u;
        for slot in slots {
            *slot += part;
            part += u;
        }
        u
    }
}

#[test]
fn eight_arrays_are_as_many_as_a_rule_may_have() -> gradchain::Result<()> {
    let mut params = vec![0.0_f32; 3];
    let mut state = Eight.init(&params)?;
    Eight.step(&mut params, &vec![1.0_f32; 3], &mut state)?;
    for (i, name) in Eight::SLOTS.iter().map(|slot| slot.name()).enumerate() {
        let array = state.moment(name).and_then(|moments| moments.get::<f32>(0));
        assert_eq!(array, Some(&[i as f32 + 1.0; 3][..]), "{name}");
    }
    assert_eq!(params, [1.0; 3]);
    Ok(())
}
