//! What the engine is told cannot be said in safe code outside: this program freed, aliased and raced memory once, with
//! an array of state that it had dropped, and the same array twice.

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
