//! Listed optimizers without a trial nearly reach the minimum with the best of a few rates.
//!
//! Their losses on the way are unchecked.

use gradchain::arguments::{Arguments, required};
use gradchain::optimizer::*;
use gradchain::prelude::*;
use gradchain::transform::scale;

use super::naive::Naive;
use super::problems::{Problem, problems};
use super::{Member, STEPS, Trial, losses, member, of_fading};
use crate::common::extra_inputs::Registered;
use crate::common::registry::with_rate;

const RATES: [f64; 5] = [1.0, 0.1, 0.01, 1e-3, 1e-4];
/// The allowed fraction of the initial excess.
const LEFT: f64 = 0.01;

/// Returns a trial for each optimizer not in `tried`.
pub(super) fn untried(tried: &[&str]) -> Vec<Trial> {
    let mut to = Others { tried, problems: problems(), trials: Vec::new() };
    include!("../../../src/optimizer/list.rs");
    to.trials
}

struct Others<'a> {
    tried: &'a [&'a str],
    problems: [Problem; 3],
    trials: Vec<Trial>,
}

impl Others<'_> {
    fn part<T: Registered + Arguments>(&mut self, make: impl Fn() -> T + 'static) {
        let name = <T as Arguments>::NAME;
        if self.tried.contains(&name) {
            return;
        }
        let of = move |rate: Schedule| member(with_rate(make(), rate));
        let rates = self.problems.each_ref().map(|problem| best_rate(&of, problem));
        let excess = self.problems.each_ref().map(|it| LEFT * ((it.loss)(&it.start).0 - it.least));
        self.trials.push(Trial { name, of: Box::new(of), rates, excess, naive: Naive::Unknown });
    }

    fn boxed_members<T: Registered + Arguments>(&mut self, make: impl Fn() -> T + 'static) {
        self.part(make);
    }
}

fn best_rate(of: &impl Fn(Schedule) -> Member, problem: &Problem) -> f64 {
    let last = |rate| {
        let loss = losses(&of_fading(of, rate), problem).nth(STEPS as usize - 1).expect("there is always another step");
        if loss.is_nan() { f64::INFINITY } else { loss }
    };
    RATES.into_iter().map(|rate| (last(rate), rate)).min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are rates").1
}

#[test]
fn optimizers_without_a_line_must_converge_too() {
    let names: Vec<_> = super::optimizers().iter().map(|trial| trial.name).collect();
    let others = |name: &str| names.iter().copied().filter(|known| *known != name).collect::<Vec<_>>();
    for name in ["adam", "yogi", "sign_sgd"] {
        let trials = untried(&others(name));
        let [trial] = &trials[..] else { panic!("{name} is in the list once") };
        let problems = problems();
        assert_eq!(super::faults(trial, &problems, |same| same), [] as [String; 0]);
        let climbing = |optimizer| member(chain((optimizer, member(scale(-1.0)))));
        assert_eq!(super::faults(trial, &problems, climbing).len(), 3, "{name} uphill is found");
    }
}
