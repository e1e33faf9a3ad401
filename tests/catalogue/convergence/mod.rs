//! Every optimizer converges on three problems, and its first steps match an independent implementation.
//!
//! The first losses detect errors without an effect on the end, such as a missing bias correction.

mod beyond;
mod naive;
mod optimizers;
mod problems;
mod starts;
mod untried;

use gradchain::part::{Clock, OneElement, Part, Rule, Slot};
use gradchain::prelude::*;
use gradchain::schedule::from_fn;
use gradchain::transform::{scale, scale_by_schedule};
use gradchain::wrapper::allow;
use gradchain::{Real, WarningKind, extra};

use self::naive::Naive;
use self::optimizers::optimizers;
use self::problems::{Leaves, Problem, problems};
use crate::common::extra_inputs::{Member, member};
use crate::common::registry::is_selected;

const STEPS: u64 = 3_000;
/// Steps compared with another implementation.
const FIRST: usize = 10;

/// An optimizer and its expected results.
struct Trial {
    name: &'static str,
    of: Box<dyn Fn(Schedule) -> Member>,
    rates: [f64; 3],
    /// The allowed excess over the minimum.
    excess: [f64; 3],
    naive: Naive,
}

/// Falls to 0, so that optimizers with fixed step sizes converge too.
fn fading(step: u64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * step as f64 / STEPS as f64).cos())
}

fn of_fading(of: &impl Fn(Schedule) -> Member, rate: f64) -> Member {
    of(from_fn("fading", move |step| rate * fading(step)).into())
}

fn losses<'a>(optimizer: &'a Member, problem: &'a Problem) -> impl Iterator<Item = f64> + 'a {
    let optimizer = allow(optimizer.clone(), [WarningKind::Climbs, WarningKind::NegativeDecay]);
    let mut params = problem.start.clone();
    let mut state = optimizer.init(&params).unwrap();
    let mut here = (problem.loss)(&params);
    std::iter::repeat_with(move || {
        let given = extra::value_and_grad_fn(here.0, |params: &Leaves| (problem.loss)(params));
        optimizer.step_with(&mut params, &here.1, given, &mut state).unwrap();
        here = (problem.loss)(&params);
        here.0
    })
}

/// Returns the first losses of another implementation.
fn expected(how: &Naive, number: usize, problem: &Problem, rate: f64) -> Vec<(usize, f64)> {
    match how {
        Naive::Recorded(losses) => return vec![(FIRST - 1, losses[number])],
        Naive::Unknown => return Vec::new(),
        _ => {}
    }
    let mut params = problem.start.clone();
    let mut memory: Vec<_> = params.iter().map(|leaf| vec![[0.0; 4]; leaf.len()]).collect();
    let (mut gradients, mut places): (Vec<Leaves>, Vec<Leaves>) = (Vec::new(), Vec::new());
    let step = |step: usize| {
        gradients.push((problem.loss)(&params).1);
        places.push(params.clone());
        let updates = naive::updates(how, rate * fading(step as u64), &mut memory, &gradients, &places);
        params.iter_mut().zip(updates).for_each(|(x, update)| *x += &update);
        (step, (problem.loss)(&params).0)
    };
    (0..FIRST).map(step).collect()
}

/// Returns an optimizer's failure, if any.
fn fault(trial: &Trial, optimizer: &Member, number: usize, problem: &Problem) -> Option<String> {
    let (name, place) = (trial.name, problem.name);
    let mut losses = losses(optimizer, problem);
    let first: Vec<f64> = losses.by_ref().take(FIRST).collect();
    for (step, expected) in expected(&trial.naive, number, problem, trial.rates[number]) {
        if (first[step] - expected).abs() > 1e-9 * expected {
            return Some(format!("{name}, {place}: after step {step} the loss is {}, not {expected}", first[step]));
        }
    }
    let excess = losses.nth(STEPS as usize - FIRST - 1).expect("there is always another step") - problem.least;
    let (most, rate) = (trial.excess[number], trial.rates[number]);
    (excess > most || excess.is_nan()).then(|| {
        format!("{name}, {place}, rate {rate}: in the end the loss is {excess:e} above the least, {most:e} is allowed")
    })
}

fn faults(trial: &Trial, problems: &[Problem], change: impl Fn(Member) -> Member) -> Vec<String> {
    let of = |(number, problem)| fault(trial, &change(of_fading(&trial.of, trial.rates[number])), number, problem);
    problems.iter().enumerate().filter_map(of).collect()
}

#[test]
fn every_optimizer_converges() {
    let problems = problems();
    let trials = optimizers().into_iter().filter(|trial| is_selected(trial.name));
    let faults: Vec<_> = trials.flat_map(|trial| faults(&trial, &problems, |same| same)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Emits the updates of the previous step.
#[derive(Clone, Debug)]
struct Late;

impl Part for Late {
    const NAME: &'static str = "late";
    type Form = OneElement;
}

impl Rule for Late {
    const SLOTS: &'static [Slot] = &[Slot::signed("late")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = ();

    fn scalars<C: Real>(&self, _: Clock) {}

    #[inline(always)]
    fn apply<C: Real>((): (), [late]: &mut [C; 1], u: C, _: C) -> C {
        std::mem::replace(late, u)
    }
}

#[test]
fn faulty_optimizers_are_found_on_every_problem() {
    let problems = problems();
    let trials: Vec<_> = optimizers().into_iter().filter(|trial| !matches!(trial.naive, Naive::Unknown)).collect();
    let must_be_found = |what: &str, change: fn(Member) -> Member| {
        let missed = |trial: &&Trial| faults(trial, &problems, change).len() < 3;
        let missed: Vec<_> = trials.iter().filter(missed).map(|trial| trial.name).collect();
        // L-BFGS corrects a small error on its way.
        let excused: &[&str] = if what == "off by a millionth" { &["lbfgs_zoom"] } else { &[] };
        assert_eq!(missed, excused, "{what}: found everywhere but in these");
    };
    must_be_found("of the wrong sign", |optimizer| member(chain((optimizer, member(scale(-1.0))))));
    must_be_found("a step late", |optimizer| member(chain((optimizer, member(Late)))));
    must_be_found("off by a millionth", |optimizer| member(chain((optimizer, member(scale(1.0 + 1e-6))))));
    // Without the corrections the first step is (1 − b1) / √(1 − b2), about 3.2, times the correct one.
    let uncorrected = from_fn("uncorrected", |t| {
        (1.0 - 0.9_f64.powf(t as f64 + 1.0)) / (1.0 - 0.999_f64.powf(t as f64 + 1.0)).sqrt()
    });
    let adam = trials.iter().find(|trial| trial.name == "adam").expect("adam is an optimizer");
    let found =
        faults(adam, &problems, |optimizer| member(chain((optimizer, member(scale_by_schedule(uncorrected.clone()))))));
    assert_eq!(found.len(), 3, "adam without the correction of its biases is found");
}
