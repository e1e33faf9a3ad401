//! A scheduled argument equals, in each step, its value there as a number.

use std::collections::BTreeSet;

use gradchain::arguments::{Argument, Arguments, Visit};
use gradchain::needs::{Includes, ValueAndGradFn};
use gradchain::part::{self, Optimizer, Part};
use gradchain::prelude::*;
use gradchain::projection::{box_set, halfspace, hypercube, hyperplane, l2_ball, simplex};
use gradchain::schedule::{piecewise_constant, table};
use gradchain::state::same_bits;
use gradchain::transform::{
    LionMode, Scale, adaptive_grad_clip, clip_by_block_norm, normalize_by_update_norm, project, scale,
    scale_by_backtracking_linesearch, scale_by_distance_over_gradients, scale_by_lion, scale_by_polyak,
    scale_by_zoom_linesearch,
};
use gradchain::{GradientTransformation, wrapper};

use super::{LeafPlan, Number, Order, Problem, all_selected, assert_exceptions, noise, registry, tree};
use crate::common::extra_inputs::Registered;
#[cfg(feature = "config")]
use crate::common::registry::is_selected;
use crate::common::{same_values, values};

type Named = wrapper::Named<ValueAndGradFn>;

const STEPS: usize = 8;

const FACTORS: [f64; STEPS] = [1.0, 0.75, 0.875, 0.5, 0.625, 0.8125, 0.5625, 0.9375];

/// The count at which a schedule is evaluated, if not the number of previous steps.
#[derive(Clone, Copy)]
enum Evaluated {
    /// The number of evaluations, once in this many steps.
    Every(usize),
    /// Counted from 1.
    Next,
    /// Both from 0 and from 1.
    BothFromZeroAndOne,
}

/// Documented exceptions: entry, argument, count.
const COUNTS: &[(&str, &str, Evaluated)] = &[
    ("lookahead", "slow_step_size", Evaluated::Every(2)),
    ("lookahead_reset", "slow_step_size", Evaluated::Every(3)),
    ("lookahead_reset_dog", "slow_step_size", Evaluated::Every(2)),
    ("lookahead_reset_prodigy", "slow_step_size", Evaluated::Every(2)),
    ("lookahead_reset_schedule_free", "slow_step_size", Evaluated::Every(2)),
    ("lookahead_reset_settings", "slow_step_size", Evaluated::Every(2)),
    ("params_ema_of_passes", "decay", Evaluated::Every(2)),
    // The average's weight; the base optimizer's rate counts from 0.
    ("schedule_free", "learning_rate", Evaluated::Next),
    ("schedule_free_adamw", "learning_rate", Evaluated::BothFromZeroAndOne),
    ("schedule_free_sgd", "learning_rate", Evaluated::BothFromZeroAndOne),
    ("schedule_free_stored", "learning_rate", Evaluated::BothFromZeroAndOne),
];

/// Without an effect on later steps.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("adagrad: initial_accumulator_value", START),
    ("cautious_lion: smooth_beta", SMOOTH),
    ("cocob: eps", START),
    ("dadapt_adamw: estim_lr0", START),
    ("dowg: init_estim_sq_dist", START),
    ("lion: smooth_beta", SMOOTH),
    ("momo: lower_bound", START),
    ("momo_adam: lower_bound", START),
    ("project_halfspace: b", "the sums of the parameters stay inside; `halfspace alone` has it"),
    ("reduce_on_plateau_alone: atol", "the loss of these steps is always 1; `carried_states.rs` has others"),
    ("reduce_on_plateau_alone: rtol", "the loss of these steps is always 1; `carried_states.rs` has others"),
    ("rmsprop: initial_scale", START),
    ("rmsprop_all: initial_scale", START),
    ("rmsprop_centered: initial_scale", START),
    ("rmsprop_momentum: initial_scale", START),
    ("rowwise_adagrad: initial_accumulator_value", START),
    ("rprop: learning_rate", START),
    ("scale_by_cocob: eps", START),
    ("scale_by_distance_over_gradients alone: reps_rel", START),
    ("scale_by_lion: smooth_beta", SMOOTH),
    ("scale_by_lion_refined: smooth_beta", SMOOTH),
    ("scale_by_rms: initial_scale", START),
    ("scale_by_rms_outside: initial_scale", START),
    ("scale_by_rowwise_rss: initial_accumulator_value", START),
    ("scale_by_rprop: learning_rate", START),
    ("scale_by_rss: initial_accumulator_value", START),
    ("scale_by_rss_outside: initial_accumulator_value", START),
    ("scale_by_stddev: initial_scale", START),
    ("scale_by_yogi: initial_accumulator_value", START),
    ("scale_by_zoom_linesearch: curv_rtol", UPHILL),
    ("scale_by_zoom_linesearch: increase_factor", UPHILL),
    ("scale_by_zoom_linesearch: slope_rtol", UPHILL),
    ("scale_by_zoom_linesearch: stepsize_precision", UPHILL),
    ("zoom downhill: slope_rtol", PARABOLA),
    ("zoom downhill: stepsize_precision", PARABOLA),
    ("zoom downhill: tol", PARABOLA),
    ("sophia_without_clipping: b2", "these are fewer steps than from one estimate of the diagonal to the next"),
];

const START: &str = "it says what the state begins with";
const PARABOLA: &str = "the first interpolation is the minimum of the parabola";
const SMOOTH: &str = "only `LionMode::Smooth` goes by it";
const UPHILL: &str = "no step along the gradients is accepted; `zoom downhill` has it";

/// No entry shows their arguments.
#[cfg(feature = "config")]
const UNSEEN: &[(&str, &str)] = &[
    ("allow", "its inner transformation has them"),
    ("apply_every", NONE),
    ("centralize", NONE),
    ("chain", "its members have them"),
    ("freezable", "its inner transformation has them"),
    ("freeze", NONE),
    ("graft", "its two optimizers have them"),
    ("hutchinson_estimator_diag_hessian", NONE),
    ("kahan_summation", NONE),
    ("masked", "its inner transformation has them"),
    ("monitor", "its decays are those of its measures, and no named arguments"),
    ("nadam", "it is an `adam`"),
    ("nadamw", "it is an `adamw`"),
    ("named_chain", "its members have them"),
    ("partition", "its members have them"),
    ("sam", "its optimizers have them"),
    ("selective_transform", "it is a `masked`"),
    ("skip_absent", "its inner transformation has them"),
    ("snapshot", "it is a `monitor`"),
    ("stochastic_rounding", NONE),
];

#[cfg(feature = "config")]
const NONE: &str = "it has no such argument";

/// Returns untested names in the registry's recipes.
#[cfg(feature = "config")]
fn unseen(seen: &BTreeSet<String>) -> Vec<String> {
    let all = gradchain::config::transformations();
    all.into_iter().filter(|name| is_selected(name) && !seen.contains(*name)).map(String::from).collect()
}

/// Reverses the gradients.
#[derive(Clone, Debug)]
struct Downhill<T>((Scale, T));

impl<T: Arguments + GradientTransformation> Part for Downhill<T> {
    const NAME: &'static str = "downhill";
    type Form = part::Named;
}

impl<T: Arguments + GradientTransformation> Optimizer for Downhill<T> {
    type Chain = (Scale, T);
    fn chain(&self) -> &(Scale, T) {
        &self.0
    }
}

impl<T: Arguments> Arguments for Downhill<T> {
    const NAME: &'static str = T::NAME;
    fn arguments(&mut self, visit: &mut Visit<'_>) {
        self.0.1.arguments(visit);
    }
}

/// Returns parts that the registry has only in chains, where arguments have no names.
fn others() -> Vec<(String, Named)> {
    fn named<T: Arguments + Registered>(name: &str, part: T) -> (String, Named)
    where
        ValueAndGradFn: Includes<T::Needs>,
    {
        (name.into(), Box::new(part))
    }
    vec![
        named("adaptive_grad_clip alone", adaptive_grad_clip(0.1)),
        named("clip_by_block_norm alone", clip_by_block_norm(0.5)),
        named("normalize_by_update_norm alone", normalize_by_update_norm()),
        named("scale_by_distance_over_gradients alone", scale_by_distance_over_gradients()),
        named("scale_by_polyak alone", scale_by_polyak().max_learning_rate(0.1)),
        named("zoom downhill", Downhill((scale(-0.1), scale_by_zoom_linesearch(20)))),
        named("backtracking downhill", Downhill((scale(-3.0), scale_by_backtracking_linesearch(20)))),
        named("smooth lion", scale_by_lion().mode(LionMode::Smooth)),
        named("box_set alone", project(box_set(-0.5, 0.5))),
        named("hypercube alone", project(hypercube(0.7))),
        named("hyperplane alone", project(hyperplane(1.0, 0.5))),
        named("l2_ball alone", project(l2_ball(0.5))),
        named("halfspace alone", project(halfspace(1.0, -4.0))),
        named("simplex alone", project(simplex(1.0))),
    ]
}

/// Returns the arguments that are a number or a schedule, with their first value.
fn hyperparams(named: &Named) -> Vec<(&'static str, f64)> {
    let mut found = Vec::new();
    named.clone().arguments(&mut |name, argument| {
        if let Argument::Hyperparam(hyperparam) = argument {
            found.push((name, hyperparam.at(0)));
        }
    });
    found
}

fn with(named: &Named, name: &str, value: impl IntoHyperparam) -> Named {
    let (mut named, mut value) = (named.clone(), Some(value.into()));
    named.arguments(&mut |of, argument| match argument {
        Argument::Hyperparam(hyperparam) if of == name => *hyperparam = value.take().expect("names are different"),
        _ => {}
    });
    named
}

fn problem() -> Problem {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = vec![leaf(Number::F32, &[3, 4]), leaf(Number::F64, &[5]), leaf(Number::F32, &[])];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..STEPS as u64).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

/// Compares a schedule's run with the schedule's values as numbers.
///
/// Returns true if a run with the first number differs.
fn follows(entry: &str, Problem { params, grads, .. }: &Problem, named: &Named, name: &str, values_of: &[f64]) -> bool {
    let what = format!("{entry}: `{name}` of {values_of:?}");
    let counts = COUNTS.iter().find(|(of, argument, _)| (*of, *argument) == (entry, name)).map(|(_, _, counts)| counts);
    let value = |count: usize| values_of[count.min(STEPS - 1)];
    let in_step = |t: usize| match counts {
        None => with(named, name, value(t)),
        Some(Evaluated::Every(steps)) => with(named, name, value(t / steps)),
        Some(Evaluated::Next) => with(named, name, value(t + 1)),
        Some(Evaluated::BothFromZeroAndOne) => {
            let change = value(t + 1) / value(t);
            with(named, name, piecewise_constant(value(t), [(t as u64 + 1, change)]))
        }
    };
    let (scheduled, first) = (with(named, name, table(values_of.iter().copied())), with(named, name, values_of[0]));
    let mut runs = [&scheduled, &in_step(0), &first].map(|named| (params.clone(), named.init(params).expect(&what)));
    for (t, grads) in grads.iter().enumerate() {
        for ((params, state), named) in runs.iter_mut().zip([&scheduled, &in_step(t), &first]) {
            named.step_with_inputs(params, grads, state).unwrap_or_else(|error| panic!("{what}, step {t}: {error}"));
        }
        let [(ours, state), (theirs, carried), _] = &runs;
        same_values(theirs, ours).unwrap_or_else(|at| panic!("{what}, step {t}: {at}"));
        assert!(same_bits(&**carried, &**state), "{what}, step {t}: the states differ");
    }
    let [(ours, state), _, (still, stays)] = &runs;
    values(still) != values(ours) || !same_bits(&**stays, &**state)
}

#[test]
fn a_schedule_of_any_argument_is_the_number_of_each_step() {
    let problem = problem();
    let (mut held, mut without_effect, mut seen) = (0, Vec::new(), BTreeSet::new());
    let named = registry().into_iter().filter_map(|entry| Some((entry.name().to_owned(), entry.named()?)));
    for (entry, named) in named.chain(others()) {
        seen.insert(named.name().to_owned());
        for (name, number) in hyperparams(&named) {
            // Schedules must return finite numbers.
            let number = if number == 0.0 || !number.is_finite() { 0.25 } else { number };
            let scales = [1.0, 2.0, 8.0, 1e3, 1e5, 1e6, 1e-3, -1.0, -8.0].map(|scale| scale * number);
            let choices: Vec<_> = scales.into_iter().chain([1.0 + number, 1.5]).collect();
            let choices: Vec<_> = choices.into_iter().map(|number| FACTORS.map(|factor| factor * number)).collect();
            let fits = |values: &&[f64; STEPS]| {
                values.iter().all(|value| with(&named, name, *value).init(&problem.params).is_ok())
            };
            let mut tried = choices.iter().filter(fits).map(|values| {
                held += 1;
                follows(&entry, &problem, &named, name, values)
            });
            if !tried.any(|differs| differs) {
                without_effect.push(format!("{entry}: {name}"));
            }
        }
    }
    println!("{held} schedules of arguments");
    assert!(!all_selected() || held > 900, "{held}");
    assert_exceptions(&without_effect, WITHOUT_EFFECT, "change nothing from one step to the next");
    #[cfg(feature = "config")]
    assert_exceptions(&unseen(&seen), UNSEEN, "have arguments that no entry names");
}
