//! Safe code outside the crate cannot implement the engine's protocols: this program would free, alias and race memory,
//! with a dropped state array and the same array twice.

use gradchain::part::{InitContext, StepContext};
use gradchain::state::Moments;
use gradchain::{SlotList, Stage};

#[derive(Clone, Debug)]
struct Dangling;

impl Stage for Dangling {
    fn slots(&self, state: &Moments, leaf: usize, list: &mut SlotList) {
        list.push(&state.clone(), leaf);
        list.push(state, leaf);
        list.push(state, leaf);
    }
}

/// Nor through a transformation: there is no list to give it, and no step to say it is in.
fn through<T: gradchain::GradientTransformation>(t: &T, state: &mut T::State, init: &InitContext<'_>, at: &StepContext<'_>) {
    let run = t.begin(state, at);
    let mut list = gradchain::engine::SlotList::default();
    t.slots(state, 0, &mut list);
    let _ = (init, run);
}

fn main() {}
