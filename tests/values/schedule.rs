//! Output and errors of schedules, and values of those that Optax lacks, by formulas.
//!
//! `tests/files/conformance.rs` compares the others with Optax.

use gradchain::schedule::*;

/// Returns one schedule of each kind, with every option set, and its output.
fn one_of_each() -> Vec<(Schedule, &'static str)> {
    vec![
        (constant(1e-5).into(), "constant(1e-5)"),
        (linear(1.0, 0.0, 10).into(), "linear(1.0, 0.0, 10)"),
        (polynomial(1.0, 0.5, 2.0, 10).transition_begin(3).into(), "polynomial(1.0, 0.5, 2.0, 10).transition_begin(3)"),
        (
            exponential_decay(1.0, 10, 0.5).transition_begin(1).staircase(true).end_value(0.1).into(),
            "exponential_decay(1.0, 10, 0.5).transition_begin(1).staircase(true).end_value(0.1)",
        ),
        (cosine_decay(1.0, 10).alpha(0.5).exponent(2.0).into(), "cosine_decay(1.0, 10).alpha(0.5).exponent(2.0)"),
        (piecewise_constant(1.0, [(9, 0.5), (3, 2.0)]).into(), "piecewise_constant(1.0, [(3, 2.0), (9, 0.5)])"),
        (
            piecewise_interpolate(InterpolateType::Cosine, 1.0, [(3, 0.5)]).into(),
            "piecewise_interpolate(InterpolateType::Cosine, 1.0, [(3, 0.5)])",
        ),
        (warmup_constant(0.0, 1.0, 10).into(), "warmup_constant(0.0, 1.0, 10)"),
        (
            warmup_cosine_decay(0.0, 1.0, 2, 10).end_value(0.1).exponent(2.0).into(),
            "warmup_cosine_decay(0.0, 1.0, 2, 10).end_value(0.1).exponent(2.0)",
        ),
        (
            warmup_exponential_decay(0.0, 1.0, 2, 10, 0.5).end_value(0.1).into(),
            "warmup_exponential_decay(0.0, 1.0, 2, 10, 0.5).end_value(0.1)",
        ),
        (
            linear_onecycle(10, 1.0).pct_start(0.5).pct_final(0.9).div_factor(10.0).final_div_factor(2.0).into(),
            "linear_onecycle(10, 1.0).pct_start(0.5).pct_final(0.9).div_factor(10.0).final_div_factor(2.0)",
        ),
        (cosine_onecycle(10, 1.0).pct_start(0.5).into(), "cosine_onecycle(10, 1.0).pct_start(0.5)"),
        (
            sgdr([warmup_cosine_decay(0.0, 1.0, 2, 10).end_value(0.1)]).into(),
            "sgdr([warmup_cosine_decay(0.0, 1.0, 2, 10).end_value(0.1)])",
        ),
        (
            join([constant(1.0).into(), linear(1.0, 0.0, 5).into()], [3]).into(),
            "join([constant(1.0).into(), linear(1.0, 0.0, 5).into()], [3])",
        ),
        (
            warmup_stable_decay(1.0, 2, 5, 3).init_value(0.5).end_value(0.1).shape(DecayShape::OneMinusSqrt).into(),
            "warmup_stable_decay(1.0, 2, 5, 3).init_value(0.5).end_value(0.1).shape(DecayShape::OneMinusSqrt)",
        ),
        (inverse_sqrt(1.0, 4).into(), "inverse_sqrt(1.0, 4)"),
        (rex(1.0, 10).into(), "rex(1.0, 10)"),
        (
            cosine_restarts(1.0, 10).steps_factor(2).value_factor(0.5).alpha(0.1).into(),
            "cosine_restarts(1.0, 10).steps_factor(2).value_factor(0.5).alpha(0.1)",
        ),
        (table([1.0, 0.5]).every(3).into(), "table([1.0, 0.5]).every(3)"),
        (clamp(rex(1.0, 10), 0.1, 0.9).into(), "clamp(rex(1.0, 10), 0.1, 0.9)"),
        (sum((0.5, rex(1.0, 10))).into(), "sum([constant(0.5).into(), rex(1.0, 10).into()])"),
        (product((0.5, rex(1.0, 10))).into(), "product([constant(0.5).into(), rex(1.0, 10).into()])"),
        (from_fn("mine", |count| count as f64).into(), "from_fn(\"mine\", ..)"),
    ]
}

#[test]
fn prints_as_the_call_that_makes_it() {
    for (schedule, printed) in one_of_each() {
        assert_eq!(schedule.to_string(), printed);
        assert_eq!(Hyperparam::from(schedule.clone()).to_string(), printed);
        assert!(!format!("{schedule:?}").is_empty());
    }
}

#[test]
fn clones_are_equal_and_every_value_is_finite() {
    for (schedule, printed) in one_of_each() {
        schedule.validate().unwrap();
        assert_eq!(schedule, schedule.clone());
        for count in (0..100).chain([1 << 40, u64::MAX]) {
            assert!(schedule.at(count).is_finite(), "{printed} at {count}");
        }
    }
    assert_ne!(from_fn("mine", |_| 1.0), from_fn("mine", |_| 2.0));
}

#[test]
fn out_of_range_arguments_are_refused() {
    let refused: Vec<(Schedule, &str)> = vec![
        // Those that Optax refuses too.
        (cosine_decay(0.031, 0).into(), "cosine_decay: argument `decay_steps`"),
        (linear_onecycle(0, 0.0098).into(), "linear_onecycle: argument `transition_steps`"),
        (cosine_onecycle(0, 0.0098).into(), "cosine_onecycle: argument `transition_steps`"),
        (piecewise_constant(0.054, [(3, -0.5)]).into(), "piecewise_constant: argument `boundaries_and_scales`"),
        (
            piecewise_interpolate(InterpolateType::Linear, 0.054, [(3, -0.5)]).into(),
            "piecewise_interpolate: argument `boundaries_and_scales`",
        ),
        (warmup_cosine_decay(0.0, 0.006, 10, 10).into(), "warmup_cosine_decay: argument `decay_steps`"),
        // Those that only this crate refuses.
        (constant(f64::NAN).into(), "constant: argument `value`"),
        (linear(0.0, f64::INFINITY, 9).into(), "linear: argument `end_value`"),
        (polynomial(0.0, 1.0, -1.0, 9).into(), "polynomial: argument `power`"),
        (exponential_decay(1.0, 9, -0.5).into(), "exponential_decay: argument `decay_rate`"),
        (exponential_decay(1.0, 9, 0.5).end_value(f64::NAN).into(), "exponential_decay: argument `end_value`"),
        (cosine_decay(1.0, 9).exponent(-1.0).into(), "cosine_decay: argument `exponent`"),
        (warmup_constant(f64::NAN, 1.0, 9).into(), "warmup_constant: argument `init_value`"),
        (warmup_exponential_decay(0.0, f64::NAN, 9, 9, 0.5).into(), "warmup_exponential_decay: argument `peak_value`"),
        (piecewise_constant(1.0, [(3, 0.5), (3, 0.5)]).into(), "one scale per boundary, found two at 3"),
        (linear_onecycle(9, 1.0).pct_start(1.5).into(), "linear_onecycle: argument `pct_start`"),
        (linear_onecycle(9, 1.0).pct_final(0.1).into(), "linear_onecycle: argument `pct_final`"),
        (cosine_onecycle(9, 1.0).div_factor(0.0).into(), "cosine_onecycle: argument `div_factor`"),
        (sgdr([]).into(), "sgdr: argument `cycles`"),
        (sgdr([warmup_cosine_decay(0.0, 1.0, 5, 5)]).into(), "sgdr: cycle 0: argument `decay_steps`"),
        (join([], []).into(), "join: argument `schedules`"),
        (join([constant(1.0).into()], [3]).into(), "join: argument `boundaries` must be 0, one fewer"),
        (join([constant(1.0).into(), constant(1.0).into(), constant(1.0).into()], [3, 2]).into(), "ascending"),
        (join([cosine_decay(1.0, 0).into()], []).into(), "cosine_decay: argument `decay_steps`"),
        (warmup_stable_decay(f64::NAN, 1, 1, 1).into(), "warmup_stable_decay: argument `peak_value`"),
        (warmup_stable_decay(1.0, 1, 1, 1).end_value(f64::NAN).into(), "warmup_stable_decay: argument `end_value`"),
        (inverse_sqrt(1.0, 0).into(), "inverse_sqrt: argument `warmup_steps`"),
        (noam(0, 4).into(), "inverse_sqrt: argument `peak_value`"),
        (rex(1.0, 0).into(), "rex: argument `decay_steps`"),
        (rex(f64::INFINITY, 1).into(), "rex: argument `init_value`"),
        (cosine_restarts(1.0, 0).into(), "cosine_restarts: argument `cycle_steps`"),
        (cosine_restarts(1.0, 1).steps_factor(0).into(), "cosine_restarts: argument `steps_factor`"),
        (cosine_restarts(1.0, 1).value_factor(1.5).into(), "cosine_restarts: argument `value_factor`"),
        (cosine_restarts(1.0, 1).alpha(f64::NAN).into(), "cosine_restarts: argument `alpha`"),
        (table([]).into(), "table: argument `values`"),
        (table([1.0, f64::NAN]).into(), "table: argument `values`"),
        (table([1.0]).every(0).into(), "table: argument `every`"),
        (clamp(1.0, 2.0, 1.0).into(), "clamp: argument `max_value` must be at least `min_value` (2), found 1"),
        (clamp(1.0, f64::NAN, 1.0).into(), "clamp: argument `min_value`"),
        (clamp(rex(1.0, 0), 0.0, 1.0).into(), "rex: argument `decay_steps`"),
        (sum(()).into(), "sum: argument `schedules`"),
        (sum((rex(1.0, 0), 1.0)).into(), "rex: argument `decay_steps`"),
        (product(vec![]).into(), "product: argument `schedules`"),
    ];
    for (schedule, message) in refused {
        let error = schedule.validate().unwrap_err();
        assert!(error.is_argument());
        assert!(error.to_string().contains(message), "{error}, not {message}");
        let hyperparam = Hyperparam::from(schedule);
        assert_eq!(hyperparam.validate("sgd", "learning_rate", "any number", |_| true).unwrap_err(), error);
    }
}

#[test]
fn ends_are_exact() {
    // `(a − b) + b` is not `a` for these.
    let line = linear(0.0351, 0.357, 10).transition_begin(12);
    assert_eq!([line.at(0), line.at(12), line.at(22)], [0.0351, 0.0351, 0.357]);
    assert_eq!(polynomial(1.0, 0.3, 0.0, 4).at(9), 1.0, "a power of 0 never falls");
    assert_eq!(cosine_decay(2.67, 7).at(7), 0.0);
}

#[test]
fn one_cycles_of_few_steps_merge_their_boundaries() {
    // Both turning points are at step 0, where a dictionary keeps the second: from peak/25² on.
    let cycle = linear_onecycle(1, 25.0);
    assert_eq!(cycle.at(0), 1.0 / 25.0);
    assert_eq!(cosine_onecycle(1, 25.0).at(0), 25.0);
    assert_eq!(linear_onecycle(10, 25.0).pct_final(1.0).final_div_factor(5.0).at(10), 5.0);
}

#[test]
fn boundaries_at_nought_and_equal_ones() {
    assert_eq!(piecewise_constant(1.0, [(0, 0.5)]).at(0), 0.5);
    assert_eq!(piecewise_interpolate(InterpolateType::Linear, 1.0, [(0, 0.5), (2, 0.5)]).at(1), 0.375);
    let skipping = join([constant(1.0).into(), constant(2.0).into(), constant(3.0).into()], [4, 4]);
    assert_eq!([3, 4].map(|count| skipping.at(count)), [1.0, 3.0]);
}

#[test]
fn may_be_shared_between_threads() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug + std::fmt::Display>() {}
    check::<Schedule>();
    check::<Hyperparam>();
}

fn follows(schedule: impl Into<Schedule>, formula: impl Fn(f64) -> f64) {
    let schedule = schedule.into();
    schedule.validate().unwrap();
    for count in (0..400).chain([5_000, 1_000_000]) {
        let (found, expected) = (schedule.at(count), formula(count as f64));
        assert!(
            (found - expected).abs() <= 1e-14 * expected.abs().max(1.0),
            "{schedule} at {count}: {found} {expected}"
        );
    }
}

#[test]
fn warmup_stable_decay_is_a_trapezoid() {
    for (warmup, stable, decay) in [(10.0, 100.0, 50.0), (0.0, 7.0, 1.0), (30.0, 0.0, 200.0), (3.0, 5.0, 0.0)] {
        let of = |peak, init, end: f64, f: fn(f64) -> f64| {
            move |count: f64| {
                if count < warmup {
                    return init * (1.0 - count / warmup) + peak * (count / warmup);
                }
                let since = count - warmup - stable;
                match since {
                    _ if since < 0.0 => peak,
                    _ if since >= decay => end,
                    _ => end + (peak - end) * f(since / decay),
                }
            }
        };
        let plain = warmup_stable_decay(0.3, warmup as u64, stable as u64, decay as u64);
        follows(plain, of(0.3, 0.0, 0.0, |x| 1.0 - x));
        let raised = plain.init_value(0.1).end_value(0.02);
        follows(raised.shape(DecayShape::OneMinusSqrt), of(0.3, 0.1, 0.02, |x| 1.0 - x.sqrt()));
        follows(raised.shape(DecayShape::Cosine), of(0.3, 0.1, 0.02, |x| (std::f64::consts::PI * x).cos() / 2.0 + 0.5));
    }
}

#[test]
fn noam_is_the_formula_of_the_transformer() {
    for (width, warmup) in [(512.0, 4000.0), (64.0, 100.0), (1.0, 1.0)] {
        follows(noam(width as u64, warmup as u64), |count| {
            let step = count + 1.0;
            f64::powf(width, -0.5) * f64::min(step.powf(-0.5), step * f64::powf(warmup, -1.5))
        });
    }
    follows(inverse_sqrt(0.7, 50), |count| {
        if count < 49.0 { 0.7 * (count + 1.0) / 50.0 } else { 0.7 * (50.0 / (count + 1.0)).sqrt() }
    });
}

#[test]
fn rex_is_the_formula_of_its_paper() {
    for steps in [1.0, 90.0, 350.0] {
        follows(rex(0.4, steps as u64), |count| {
            let z = f64::min(count / steps, 1.0);
            0.4 * (1.0 - z) / (0.5 + 0.5 * (1.0 - z))
        });
    }
}

#[test]
fn cosine_restarts_go_through_their_cycles_one_by_one() {
    for (steps, longer, lower, alpha) in [(10, 1, 1.0, 0.0), (7, 2, 0.9, 0.1), (1, 3, 0.5, -0.2), (40, 1, 0.8, 0.5)] {
        let schedule = cosine_restarts(0.6, steps).steps_factor(longer).value_factor(lower).alpha(alpha);
        let (mut cycle, mut length, mut height) = (0, steps, 0.6);
        for count in 0..3000 {
            if cycle == length {
                (cycle, length, height) = (0, length * longer, height * lower);
            }
            let cosine = (std::f64::consts::PI * cycle as f64 / length as f64).cos() / 2.0 + 0.5;
            let expected = height * (alpha + (1.0 - alpha) * cosine);
            assert!((schedule.at(count) - expected).abs() < 1e-14, "{schedule} at {count}");
            cycle += 1;
        }
    }
}

#[test]
fn tables_are_looked_up() {
    let values = [0.3, 0.1, -0.2, 7.0];
    for every in [1.0, 13.0] {
        follows(table(values).every(every as u64), |count| values[f64::min((count / every).floor(), 3.0) as usize]);
    }
}

#[test]
fn combinations_are_made_of_the_values_of_their_members() {
    let (a, b) = (Schedule::from(rex(1.0, 100)), Schedule::from(linear(-1.0, 2.0, 60)));
    let at = |schedule: &Schedule, count: f64| schedule.at(count as u64);
    follows(sum((rex(1.0, 100), linear(-1.0, 2.0, 60), 0.25)), |count| at(&a, count) + at(&b, count) + 0.25);
    follows(product(vec![a.clone(), b.clone()]), |count| at(&a, count) * at(&b, count));
    follows(clamp(b.clone(), -0.5, 1.5), |count| at(&b, count).clamp(-0.5, 1.5));
    follows(clamp(b.clone(), f64::NEG_INFINITY, 0.0), |count| at(&b, count).min(0.0));
    let each = join((rex(1.0, 100), 0.25, clamp(linear(-1.0, 2.0, 60), 0.0, 1.0)), [30, 90]);
    follows(each, |count| match count {
        _ if count < 30.0 => at(&a, count),
        _ if count < 90.0 => 0.25,
        _ => at(&b, count - 90.0).clamp(0.0, 1.0),
    });
}

#[test]
#[cfg(feature = "config")]
fn each_kind_is_written_out_and_read_again() {
    use gradchain::config::{self, Config};
    for (schedule, printed) in one_of_each() {
        if matches!(schedule, Schedule::FromFn(_)) {
            continue;
        }
        let config = Config::of(&gradchain::sgd(schedule.clone())).unwrap();
        let written = &serde_json::to_value(config).unwrap()["sgd"]["learning_rate"]["schedule"];
        assert_eq!(config::schedule(written).unwrap(), schedule, "{printed}: {written}");
    }
    let read = |json: serde_json::Value| config::schedule(&json).unwrap();
    assert_eq!(read(serde_json::json!({"noam": {"model_width": 64, "warmup_steps": 9}})), noam(64, 9).into());
    let plain = serde_json::json!({"peak_value": 1.0, "warmup_steps": 1, "stable_steps": 2, "decay_steps": 3});
    assert_eq!(read(serde_json::json!({"warmup_stable_decay": plain})), warmup_stable_decay(1.0, 1, 2, 3).into());
    let plain = serde_json::json!({"cosine_restarts": {"init_value": 1.0, "cycle_steps": 9}});
    assert_eq!(read(plain), cosine_restarts(1.0, 9).into());
    assert_eq!(read(serde_json::json!({"table": {"values": [1.0, 2.0]}})), table([1.0, 2.0]).into());
    let plain = serde_json::json!({"piecewise_constant": {"init_value": -2.5}});
    assert_eq!(read(plain), piecewise_constant(-2.5, []).into());
}

/// The example `schedule_gallery` draws the gallery.
#[test]
fn each_kind_has_its_picture_in_the_guide() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = std::fs::read_to_string(docs.join("schedules.md")).unwrap();
    for (_, printed) in one_of_each() {
        let name = printed.split('(').next().unwrap();
        let picture = format!("images/schedules/{name}.svg");
        assert!(docs.join(&picture).exists(), "run the example schedule_gallery: there is no {picture}");
        assert!(page.contains(&format!("]: {picture}")), "docs/schedules.md should show {picture}");
    }
}
