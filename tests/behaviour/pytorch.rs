//! PyTorch's optimizers, schedulers, clips and averages match `docs/from-pytorch.md`.
//!
//! `tests/data/pytorch/record.py` recorded the numbers.

use gradchain::needs::Nothing;
use gradchain::optimizer::{adadelta, adamax, amsgrad, nadam, rprop};
use gradchain::prelude::*;
use gradchain::schedule::{
    Schedule, cosine_restarts, from_fn, join, linear, linear_onecycle, piecewise_constant, polynomial, product, table,
};
use gradchain::transform::{reduce_on_plateau, scale, scale_by_radam, scale_by_schedule};
use gradchain::wrapper::params_swa;
use ndarray::{Array1, Array2};
use serde_json::Value;

type Tree = (Array2<f64>, Array1<f64>);

fn recorded() -> Value {
    serde_json::from_str(include_str!("../data/pytorch/runs.json")).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn tree(lists: &Value) -> Tree {
    let weight = lists[0].as_array().unwrap().iter().flat_map(numbers).collect();
    (Array2::from_shape_vec((2, 3), weight).unwrap(), Array1::from(numbers(&lists[1])))
}

fn trees(run: &Value) -> Vec<Tree> {
    run.as_array().unwrap().iter().map(tree).collect()
}

/// Checks a kind's recorded runs; a missing or additional one fails.
fn check_all<T>(kind: &str, ours: Vec<(&str, T)>, check: impl Fn(&str, &Value, T)) {
    let recorded = recorded();
    let runs = recorded[kind].as_array().unwrap();
    assert_eq!(runs.len(), ours.len(), "{kind}");
    for (call, ours) in ours {
        let run = runs.iter().find(|run| run["torch"] == call).unwrap_or_else(|| panic!("{call} is not recorded"));
        check(call, run, ours);
    }
}

/// Compares within 1e-12 of 1 plus the magnitude.
///
/// The worst rounding is `1 − 0.999^t`, which loses ten of 53 bits in the first steps: some 1e-13 of a step, over
/// twelve steps.
fn check_near(what: &str, step: usize, found: &Tree, expected: &Tree) {
    let pairs = found.0.iter().chain(&found.1).zip(expected.0.iter().chain(&expected.1));
    for (i, (found, expected)) in pairs.enumerate() {
        let near = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
        assert!(near, "{what}: step {step}, element {i}: {found} here, {expected} by PyTorch");
    }
}

fn train<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, recorded: &Value) -> Vec<Tree> {
    let mut params = tree(&recorded["params"]);
    let mut state = optimizer.init(&params).unwrap();
    let step = |gradients: &Tree| {
        optimizer.step(&mut params, gradients, &mut state).unwrap();
        params.clone()
    };
    trees(&recorded["gradients"]).iter().map(step).collect()
}

/// Returns a power of the root of the second moment's bias correction.
fn corrected(value: f64, b2: f64, power: f64) -> Schedule {
    from_fn("corrected", move |t| value * (1.0 - b2.powi(t as i32 + 1)).powf(power / 2.0)).into()
}

/// Returns Adafactor's limit of the rate.
fn rho(rate: f64) -> Schedule {
    from_fn("rho", move |t| rate.min(1.0 / (t as f64 + 1.0).sqrt())).into()
}

/// Rounds the rate to `f32`, as PyTorch does.
fn asgd(lambd: f64) -> impl GradientTransformation<Needs = Nothing> {
    let rate = move |t| f64::from((0.1 / (1.0 + lambd * 0.1 * t as f64).powf(0.75)) as f32);
    chain((add_decayed_weights(lambd), sgd(from_fn("asgd", rate))))
}

fn optimizers() -> Vec<(&'static str, Boxed)> {
    let l2 = || add_decayed_weights(0.01);
    let after_one = |factor| scale_by_schedule(piecewise_constant(1.0, [(1, factor)]));
    let factored = |rate| adafactor(rho(rate)).min_dim_size_to_factor(1);
    let (times, over) = (|x, b2| corrected(x, b2, 1.0), |x, b2| corrected(x, b2, -1.0));
    let decayed = adamw(0.1).weight_decay(0.01);
    vec![
        ("SGD(ps, lr=0.1)", boxed(sgd(0.1))),
        ("SGD(ps, lr=0.1, momentum=0.9)", boxed(sgd(0.1).momentum(0.9))),
        ("SGD(ps, lr=0.1, momentum=0.9, nesterov=True)", boxed(sgd(0.1).momentum(0.9).nesterov(true))),
        ("SGD(ps, lr=0.1, momentum=0.9, dampening=0.25)", boxed(chain((after_one(0.75), sgd(0.1).momentum(0.9))))),
        ("SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01)", boxed(chain((l2(), sgd(0.1).momentum(0.9))))),
        ("SGD(ps, lr=0.1, momentum=0.9, maximize=True)", boxed(chain((scale(-1.0), sgd(0.1).momentum(0.9))))),
        ("Adam(ps, lr=0.1)", boxed(adam(0.1))),
        ("Adam(ps, lr=0.1, betas=(0.8, 0.95), eps=1e-4)", boxed(adam(0.1).b1(0.8).b2(0.95).eps(1e-4))),
        ("Adam(ps, lr=0.1, weight_decay=0.01)", boxed(chain((l2(), adam(0.1))))),
        (
            "Adam(ps, lr=0.1, amsgrad=True, eps=1e-4)",
            boxed(amsgrad(times(0.1, 0.999)).eps(times(1e-4, 0.999)).bias_correction_nu(false)),
        ),
        ("AdamW(ps, lr=0.1)", boxed(decayed.clone())),
        ("AdamW(ps, lr=0.1, maximize=True)", boxed(chain((scale(-1.0), decayed.clone())))),
        ("RAdam(ps, lr=0.1, betas=(0.8, 0.9), eps=1e-4)", boxed(radam(0.1).b1(0.8).b2(0.9).eps(over(1e-4, 0.9)))),
        (
            "RAdam(ps, lr=0.1, betas=(0.9, 0.95), weight_decay=0.01, decoupled_weight_decay=True)",
            boxed(chain((scale_by_radam().b2(0.95).eps(over(1e-8, 0.95)), l2(), scale_by_learning_rate(0.1)))),
        ),
        ("Adamax(ps, lr=0.1)", boxed(adamax(0.1))),
        ("Adamax(ps, lr=0.1, weight_decay=0.01)", boxed(chain((l2(), adamax(0.1))))),
        (
            "Adagrad(ps, lr=0.1, eps=1e-4)",
            boxed(adagrad(0.1).initial_accumulator_value(0.0).eps(1e-4).eps_in_sqrt(false)),
        ),
        (
            "Adagrad(ps, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1)",
            boxed(adagrad(from_fn("decay", |t| 0.1 / (1.0 + 0.1 * t as f64))).eps(1e-10).eps_in_sqrt(false)),
        ),
        ("Adadelta(ps)", boxed(adadelta(1.0))),
        ("Adadelta(ps, lr=0.5, rho=0.8, weight_decay=0.01)", boxed(adadelta(0.5).rho(0.8).weight_decay(0.01))),
        ("RMSprop(ps, lr=0.1, eps=1e-4)", boxed(rmsprop(0.1).decay(0.99).eps(1e-4).eps_in_sqrt(false))),
        ("RMSprop(ps, lr=0.1, alpha=0.9, momentum=0.9)", boxed(rmsprop(0.1).momentum(0.9).eps_in_sqrt(false))),
        ("RMSprop(ps, lr=0.1, alpha=0.9, centered=True)", boxed(rmsprop(0.1).centered().eps_in_sqrt(false))),
        ("Rprop(ps, lr=0.1)", boxed(rprop(0.1))),
        (
            "Rprop(ps, lr=0.1, etas=(0.4, 1.5), step_sizes=(0.01, 0.2))",
            boxed(rprop(0.1).eta_minus(0.4).eta_plus(1.5).min_step_size(0.01).max_step_size(0.2)),
        ),
        ("ASGD(ps, lr=0.1, lambd=0.01, t0=3)", boxed(asgd(0.01))),
        ("Adafactor(ps, lr=0.1)", boxed(factored(0.1))),
        (
            "Adafactor(ps, lr=0.5, beta2_decay=-0.7, d=1.5, weight_decay=0.01)",
            boxed(factored(0.5).decay_rate(0.7).clipping_threshold(1.5).weight_decay_rate(0.5 * 0.01)),
        ),
        (
            "three backward passes, clip_grad_value_(ps, 0.01), AdamW(ps, lr=0.1)",
            boxed(multi_steps(chain((clip(0.01), decayed)), 3)),
        ),
    ]
}

#[test]
fn optimizers_give_the_parameters() {
    let recorded = recorded();
    check_all("optimizers", optimizers(), |call, run, optimizer| {
        let found = train(&optimizer, &recorded);
        for (step, (found, expected)) in found.iter().zip(trees(&run["params"])).enumerate() {
            check_near(call, step, found, &expected);
        }
    });
}

#[test]
fn nadam_has_the_momentum_of_pytorch_if_it_is_told() {
    let recorded = recorded();
    let run = &recorded["others"][0];
    assert_eq!(run["torch"], "NAdam(ps, lr=0.1)");
    let found = train(&nadam(0.1).momentum_decay(4e-3), &recorded);
    let expected = trees(&run["params"]);
    assert_eq!(found.len(), expected.len());
    // PyTorch rounds the product of momenta to `f32`; `behaviour adaptive` has the `f64` formula.
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (found, expected) in found.0.iter().chain(&found.1).zip(expected.0.iter().chain(&expected.1)) {
            assert!((found - expected).abs() <= 1e-7 * expected.abs(), "step {step}: {found} and {expected}");
        }
    }
    // Without the product the first step differs.
    let [found, expected] = [&train(&nadam(0.1), &recorded)[0], &tree(&run["params"][0])];
    assert!((found.0[[0, 0]] - expected.0[[0, 0]]).abs() > 0.01, "{found:?}, {expected:?}");
}

fn schedules() -> Vec<(&'static str, Schedule)> {
    let triangle = |t| match t % 10 {
        up @ 0..4 => 0.1 + 0.1 * up as f64,
        down => 0.5 - 0.4 / 6.0 * (down - 4) as f64,
    };
    vec![
        ("StepLR(opt, step_size=7, gamma=0.5)", exponential_decay(0.5, 7, 0.5).staircase(true).into()),
        (
            "MultiStepLR(opt, milestones=[5, 11, 30], gamma=0.5)",
            piecewise_constant(0.5, [(5, 0.5), (11, 0.5), (30, 0.5)]).into(),
        ),
        ("ExponentialLR(opt, gamma=0.9)", exponential_decay(0.5, 1, 0.9).into()),
        ("ConstantLR(opt, factor=0.25, total_iters=6)", piecewise_constant(0.125, [(6, 4.0)]).into()),
        ("LinearLR(opt, start_factor=0.1, end_factor=0.8, total_iters=9)", linear(0.05, 0.4, 9).into()),
        ("PolynomialLR(opt, total_iters=25, power=2.0)", polynomial(0.5, 0.0, 2.0, 25).into()),
        ("CosineAnnealingLR(opt, T_max=39, eta_min=0.05)", cosine_decay(0.5, 39).alpha(0.1).into()),
        (
            "CosineAnnealingWarmRestarts(opt, T_0=5, T_mult=2, eta_min=0.05)",
            cosine_restarts(0.5, 5).steps_factor(2).alpha(0.1).into(),
        ),
        ("LambdaLR(opt, lambda t: 1 / (1 + t))", from_fn("lambda", |t| 0.5 / (1.0 + t as f64)).into()),
        ("OneCycleLR(opt, max_lr=0.5, total_steps=40)", cosine_onecycle(39, 0.5).into()),
        (
            "OneCycleLR(opt, max_lr=0.5, total_steps=40, anneal_strategy=\"linear\", three_phase=True)",
            linear_onecycle(39, 0.5).pct_final(22.5 / 39.0).into(),
        ),
        (
            "SequentialLR(opt, [LinearLR(opt, 0.1, 1.0, 5), CosineAnnealingLR(opt, 35)], milestones=[5])",
            join((linear(0.05, 0.5, 5), cosine_decay(0.5, 35)), [5]).into(),
        ),
        (
            "ChainedScheduler([ConstantLR(opt, 0.5, 4), ExponentialLR(opt, 0.9)])",
            product((piecewise_constant(0.5, [(4, 2.0)]), exponential_decay(0.5, 1, 0.9))).into(),
        ),
        (
            "CyclicLR(opt, base_lr=0.1, max_lr=0.5, step_size_up=4, step_size_down=6)",
            from_fn("triangle", triangle).into(),
        ),
    ]
}

/// A recursive scheduler rounds four times in each of forty steps, at rates up to a half.
#[test]
fn schedules_give_the_rates() {
    check_all("schedulers", schedules(), |call, run, schedule| {
        for (t, expected) in numbers(&run["rates"]).into_iter().enumerate() {
            let found = schedule.at(t as u64);
            let near = (found - expected).abs() <= 40.0 * 4.0 * f64::EPSILON * 0.5;
            assert!(near, "{call}: at {t} {found} here, {expected} by PyTorch");
        }
    });
}

/// PyTorch's patience counts tolerated values without improvement, ours sufficient ones.
#[test]
fn plateaus_give_the_rates() {
    let halve = || reduce_on_plateau().factor(0.5);
    let ours = vec![
        ("ReduceLROnPlateau(opt, factor=0.5, patience=3)", halve().patience(4)),
        (
            "ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.05, cooldown=4)",
            halve().patience(3).rtol(0.05).cooldown(4),
        ),
        (
            "ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.05, threshold_mode=\"abs\")",
            halve().patience(3).rtol(0.0).atol(0.05),
        ),
    ];
    check_all("plateaus", ours, |call, run, optimizer| {
        let (mut params, rates) = (0.0, numbers(&run["rates"]));
        let mut state = optimizer.init(&params).unwrap();
        for (step, (loss, rate)) in numbers(&run["losses"]).into_iter().zip(&rates).enumerate() {
            optimizer.step_with(&mut params, &1.0, gradchain::extra::value(loss), &mut state).unwrap();
            assert_eq!(0.5 * state.scale.get(), *rate, "{call}: after step {step}");
        }
        assert!(rates[59] < 0.1, "{call}: it was reduced {rates:?}");
    });
}

fn clipped<T: GradientTransformation<Needs = Nothing>>(clip: &T, recorded: &Value) -> Vec<Tree> {
    let params = tree(&recorded["params"]);
    let mut state = clip.init(&params).unwrap();
    let mut clipped = |gradients: &Tree| {
        let updates = clip.update(gradients, &mut state, &params).unwrap();
        let [weight, bias] = ["0", "1"].map(|path| updates.to_vec::<f64>(path).unwrap());
        (Array2::from_shape_vec((2, 3), weight).unwrap(), Array1::from(bias))
    };
    trees(&recorded["gradients"]).iter().map(&mut clipped).collect()
}

/// PyTorch divides by the norm plus a millionth.
#[test]
fn clips_give_the_gradients() {
    let all = recorded();
    let ours = vec![
        ("clip_grad_norm_(ps, 1.0)", boxed(clip_by_global_norm(1.0))),
        ("clip_grad_value_(ps, 0.5)", boxed(clip(0.5))),
    ];
    check_all("clips", ours, |call, run, clip| {
        let found = clipped(&clip, &all);
        let mut shortened = 0;
        for (step, (mut found, expected)) in found.into_iter().zip(trees(&run["gradients"])).enumerate() {
            let gradient = tree(&all["gradients"][step]);
            let norm = gradient.0.iter().chain(&gradient.1).map(|g| g * g).sum::<f64>().sqrt();
            if call.starts_with("clip_grad_norm_") && norm > 1.0 {
                shortened += 1;
                found = (found.0 * (norm / (norm + 1e-6)), found.1 * (norm / (norm + 1e-6)));
            }
            check_near(call, step, &found, &expected);
        }
        assert!(call.starts_with("clip_grad_value_") || (3..12).contains(&shortened), "{shortened}");
    });
}

fn averages<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, recorded: &Value) -> Vec<Tree> {
    let mut params = tree(&recorded["params"]);
    let mut state = optimizer.init(&params).unwrap();
    let step = |gradients: &Tree| {
        optimizer.step(&mut params, gradients, &mut state).unwrap();
        (*state.eval_params(&params).unwrap()).clone()
    };
    trees(&recorded["gradients"]).iter().map(step).collect()
}

/// PyTorch's averages start with the first result, as ours do with an initial decay of zero.
#[test]
fn averages_are_the_same() {
    let all = recorded();
    let ours = vec![
        ("AveragedModel(model)", boxed(params_swa(sgd(0.1)))),
        (
            "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))",
            boxed(params_ema(sgd(0.1), table([0.0, 0.9]))),
        ),
    ];
    check_all("averages", ours, |call, run, optimizer| {
        let found = averages(&optimizer, &all);
        for (step, (found, expected)) in found.iter().zip(trees(&run["averages"])).enumerate() {
            check_near(call, step, found, &expected);
        }
    });
}

/// From the second step after t0 on.
///
/// The weight of a new point is kept in `f32` too: a third loses some 1e-8, times the distance to the new point.
#[test]
fn asgd_averages_from_the_second_step_after_t0() {
    let all = recorded();
    let runs = all["optimizers"].as_array().unwrap();
    let run = runs.iter().find(|run| run["torch"] == "ASGD(ps, lr=0.1, lambd=0.01, t0=3)").unwrap();
    let found = averages(&params_swa(asgd(0.01)).start(5), &all);
    let (trained, averaged) = (trees(&run["params"]), trees(&run["averages"]));
    let all_of = |tree: &Tree| tree.0.iter().chain(&tree.1).copied().collect::<Vec<_>>();
    let mut lost = [0.0; 8];
    for step in 4..found.len() {
        let [found, trained, averaged] = [&found[step], &trained[step], &averaged[step]].map(all_of);
        for i in 0..8 {
            lost[i] += f64::from(f32::EPSILON) * (trained[i] - averaged[i]).abs() + 1e-12;
            let near = (found[i] - averaged[i]).abs() <= lost[i];
            assert!(near, "step {step}, element {i}: {} here, {} by PyTorch", found[i], averaged[i]);
        }
    }
}
