//! If a transformation emits nothing, nothing behind or around it runs.

use gradchain::WarningKind;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::state::{Entry, State, StateWalk};
use gradchain::transform::{ema, identity, scale_by_schedule, trace};
use gradchain::tree::DynTree;
use gradchain::wrapper::{
    allow, cautious, conditionally_mask, conditionally_transform, flatten, freezable, master, mechanize, multi_steps,
    params_swa, partition, sam, schedule_free, skip_absent, skip_on_spike, step_lt,
};

use super::{Problem, Subject, holds, large_problem, problem, same_state};
use crate::common::extra_inputs::{Member, Registered, member};
use crate::common::subject::AnyState;
use crate::common::trees::map;
use crate::common::wrapped::Wrap;
use crate::common::{run, same_values, values};

/// Returns each gradient twice, for windows of two.
fn twice(grads: &[DynTree]) -> Vec<DynTree> {
    grads.iter().flat_map(|g| [g.clone(), g.clone()]).collect()
}

/// Returns each gradient followed by NaNs, which are skipped; `None` without a float.
fn with_nans(Problem { plan, params, grads }: &Problem) -> Option<Vec<DynTree>> {
    values(params).iter().any(|(_, leaf)| !leaf.is_empty()).then_some(())?;
    Some(grads.iter().flat_map(|g| [g.clone(), map(plan, g, |_, _| f64::NAN)]).collect())
}

/// Training behind windows of two, or behind skipped steps, is as without them.
fn after(entry: &dyn Subject, problem: &Problem) {
    let (name, params) = (entry.name(), &problem.params);
    let plain = entry.run(params, &problem.grads);
    let holders: [(Member, Option<Vec<DynTree>>); 2] = [
        (member(multi_steps(identity(), 2)), Some(twice(&problem.grads))),
        (member(apply_if_finite(identity(), 9)), with_nans(problem)),
    ];
    for (holder, grads) in holders {
        let Some(grads) = grads else { continue };
        let tuple = run(&chain((holder.clone(), entry.boxed())), params, &grads);
        same_values(&plain.params, &tuple.params).unwrap_or_else(|at| panic!("{name} after {holder:?}: {at}"));
        assert!(same_state(&plain.state, &tuple.state.1), "{name} after {holder:?}: the states differ");
        let vector = run(&chain(vec![holder.clone(), entry.boxed()]), params, &grads);
        same_values(&plain.params, &vector.params).unwrap_or_else(|at| panic!("{name} after {holder:?}: {at}"));
        assert!(same_state(&plain.state, &vector.state[1]), "{name} after {holder:?} in a vector: the states differ");
    }
}

#[test]
fn stages_after_a_held_step_do_not_run() {
    holds(after, 3);
}

/// Leaves whose group emits nothing rest in later stages, as frozen ones do.
fn after_a_group(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let is_held = || Mask::min_ndim(2);
    let frozen = freezable(entry.boxed());
    let Ok(mut frozen_state) = frozen.init(params) else { return };
    // If no group emits, nothing runs, but steps with all leaves frozen count.
    if plan.iter().all(|leaf| leaf.shape.len() >= 2) {
        return;
    }
    let groups = || {
        let label = |leaf: &gradchain::tree::LeafSpec| if leaf.ndim() >= 2 { "window" } else { "each" };
        partition((("window", multi_steps(identity(), 2)), ("each", identity())), Labels::by(label))
    };
    let tuple = chain((groups(), entry.boxed()));
    let vector: Vec<Member> = vec![member(groups()), entry.boxed()];
    let [mut p, mut q, mut r] = [params.clone(), params.clone(), params.clone()];
    let (mut of_tuple, mut of_vector) = (tuple.init(params).unwrap(), vector.init(params).unwrap());
    for (step, g) in twice(grads).iter().enumerate() {
        match step % 2 {
            0 => frozen_state.freeze(is_held()).unwrap(),
            _ => frozen_state.thaw(is_held()).unwrap(),
        }
        frozen.step_with_inputs(&mut p, g, &mut frozen_state).unwrap();
        tuple.step_with_inputs(&mut q, g, &mut of_tuple).unwrap();
        vector.step_with_inputs(&mut r, g, &mut of_vector).unwrap();
        for (how, other, state) in
            [("tuple", &q, AnyState::of(&of_tuple.1)), ("vector", &r, AnyState::of(&of_vector[1]))]
        {
            let name = entry.name();
            same_values(&p, other).unwrap_or_else(|at| panic!("{name} in a {how}, step {step}: {at}"));
            assert!(same_state(&state, frozen_state.inner()), "{name} in a {how}, step {step}: the states differ");
        }
    }
}

#[test]
fn leaves_whose_group_emits_nothing_rest_after_it() {
    holds(after_a_group, 2);
}

/// Every wrapper, around one that may emit nothing.
const AROUND: &[(&str, Wrap)] = &[
    ("lookahead", |inner| member(lookahead(inner, 2, 0.5))),
    ("lookahead_each", |inner| member(lookahead(inner, 1, 0.5))),
    ("lookahead_reset", |inner| member(lookahead(inner, 3, 0.5).reset_state(true))),
    ("schedule_free", |inner| member(schedule_free(inner, 0.1))),
    ("params_ema", |inner| member(params_ema(inner, 0.9))),
    ("params_swa", |inner| member(params_swa(inner).start(1))),
    ("mechanize", |inner| member(mechanize(inner).s_init(0.1))),
    ("cautious", |inner| member(cautious(inner))),
    ("conditionally_transform", |inner| member(conditionally_transform(inner, step_lt(1_000)))),
    ("conditionally_mask", |inner| member(conditionally_mask(inner, step_lt(1_000)))),
    ("apply_if_finite", |inner| member(apply_if_finite(inner, 9))),
    ("skip_on_spike", |inner| member(skip_on_spike(inner, 1e9))),
    ("multi_steps", |inner| member(multi_steps(inner, 1))),
    ("masked", |inner| member(masked(inner, Mask::all()))),
    // The mask must select a leaf.
    ("freezing_mask", |inner| member(masked(inner, Mask::any_paths(["layer0/**"])).freeze_others())),
    ("master", |inner| member(master(inner))),
    ("quantized", |inner| member(quantized(inner))),
    ("flatten", |inner| member(flatten(inner))),
    ("sam", |inner| member(sam(inner, sgd(0.1)).sync_period(1))),
    ("inject_hyperparams", |inner| member(inject_hyperparams(schedule_free(inner, linear(0.1, 0.2, 3))))),
    ("partition", |inner| member(partition(vec![("all", inner)], Labels::by(|_| "all")))),
    ("chain", |inner| member(chain((identity(), inner, trace(0.5), scale_by_schedule(linear(1.0, 0.5, 3)))))),
    ("vector", |inner| {
        member(chain(vec![member(ema(0.5)), inner, member(trace(0.5)), member(add_decayed_weights(0.1))]))
    }),
    ("pair", |inner| member(lookahead(chain((params_ema(inner, 0.9), scale_by_adam())), 2, 0.5))),
];

/// Wrappers that refuse windows.
const AROUND_NO_WINDOW: &[(&str, Wrap)] =
    &[("freezable", |inner| member(freezable(inner))), ("skip_absent", |inner| member(skip_absent(inner)))];

/// Fields that depend on gradients even if nothing is emitted: those of windows and guards, and the master, which
/// follows parameters that it did not set.
const OF_GRADIENTS: &[&str] = &[
    "accumulator",
    "consecutive",
    "counted",
    "gradient_step",
    "last",
    "last_finite",
    "master",
    "mean",
    "measured",
    "mini_step",
    "next_weight",
    "notfinite_count",
    "skipped",
    "spiked",
    "total_notfinite",
    "total_spikes",
    "variance",
    "weight",
];

/// Returns the other fields with their bytes.
fn fields<S: State>(state: &S, skips: &str) -> Vec<(String, Vec<u8>)> {
    let mut fields = Vec::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| {
        let name = path.rsplit('.').next().unwrap_or(path);
        if OF_GRADIENTS.contains(&name) || !skips.is_empty() && path.starts_with(skips) {
            return;
        }
        let bytes = match entry {
            Entry::Moments(m) => (0..m.len()).flat_map(|leaf| m.as_bytes(leaf).unwrap_or_default().to_vec()).collect(),
            other => format!("{other:?}").into_bytes(),
        };
        fields.push((path.to_owned(), bytes));
    }));
    fields
}

/// Asserts that a step that emits nothing changes nothing.
///
/// Returns the parameters, the evaluation parameters, and the number of such steps.
fn steps(name: &str, optimizer: &Member, params: &DynTree, grads: &[DynTree]) -> (DynTree, Option<DynTree>, usize) {
    let mut p = params.clone();
    let optimizer = allow(optimizer.clone(), [WarningKind::NegativeDecay]);
    let (mut state, mut still) = (optimizer.init(&p).unwrap(), 0);
    let before_it = if ["chain", "vector"].contains(&name) { "0." } else { "" };
    for (step, grads) in grads.iter().enumerate() {
        let (fields_before, params_before) = (fields(&*state, before_it), p.clone());
        let outcome = optimizer.step_with_inputs(&mut p, grads, &mut state).unwrap();
        assert!(!(outcome.emitted() && outcome.skipped()), "{name}, step {step}: {outcome:?}");
        let fields_after = fields(&*state, before_it);
        if !outcome.emitted() {
            still += 1;
            for (before, after) in fields_before.iter().zip(&fields_after) {
                assert_eq!(before, after, "{name}, step {step}: a step that emitted nothing changed the state");
            }
            assert_eq!(fields_before.len(), fields_after.len(), "{name}, step {step}");
            same_values(&params_before, &p).unwrap_or_else(|at| panic!("{name}, step {step}: {at}"));
        }
    }
    let evaluated = state.eval_params(&p).ok().map(|params| params.into_inner());
    (p, evaluated, still)
}

fn around(problem: &Problem) {
    let (params, grads) = (&problem.params, &problem.grads);
    let inner = || sgd(0.1).momentum(0.9);
    let windows = AROUND.iter().map(|(name, make)| (*name, make, true));
    let others = AROUND_NO_WINDOW.iter().map(|(name, make)| (*name, make, false));
    for (name, make, takes_windows) in windows.chain(others) {
        let plain = steps(name, &make(member(inner())), params, grads);
        assert_eq!(plain.2, 0, "{name}");
        let same = |how: &str, held: (DynTree, Option<DynTree>, usize)| {
            assert_eq!(held.2, grads.len(), "{name} around {how}");
            // Its earlier stage has seen other gradients.
            if name == "vector" {
                return;
            }
            same_values(&plain.0, &held.0).unwrap_or_else(|at| panic!("{name} around {how}: {at}"));
            match (&plain.1, &held.1) {
                (Some(a), Some(b)) => same_values(a, b).unwrap_or_else(|at| panic!("{name} around {how}: {at}")),
                (a, b) => assert_eq!(a.is_some(), b.is_some(), "{name} around {how}"),
            }
        };
        if takes_windows {
            same("a window", steps(name, &make(member(multi_steps(inner(), 2))), params, &twice(grads)));
        }
        if let Some(grads) = with_nans(problem).filter(|_| name != "vector") {
            same("apply_if_finite", steps(name, &make(member(apply_if_finite(inner(), 9))), params, &grads));
        }
    }
}

#[test]
fn a_wrapper_around_a_step_that_emits_nothing_does_not_run() {
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(super::config(super::cases()));
    // Also on the leaves that a mask selects.
    let has_elements = |(path, leaf): &(String, Vec<f64>)| path.starts_with("layer0/") && !leaf.is_empty();
    let is_there = |Problem { params, .. }: &Problem| values(params).iter().any(has_elements);
    runner
        .run(&problem(4), |problem| {
            if is_there(&problem) {
                around(&problem);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    around(&large_problem());
}
