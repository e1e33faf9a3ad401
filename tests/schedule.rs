//! How schedules print, and what they refuse. Their values are held to recorded ones in `conformance.rs`.

use gradchain::schedule::*;

/// One of each kind, with every option set, and how it prints.
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
            warmup_cosine_decay(0.0, 1.0, 2, 10, 0.1).exponent(2.0).into(),
            "warmup_cosine_decay(0.0, 1.0, 2, 10, 0.1).exponent(2.0)",
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
        (sgdr([warmup_cosine_decay(0.0, 1.0, 2, 10, 0.1)]).into(), "sgdr([warmup_cosine_decay(0.0, 1.0, 2, 10, 0.1)])"),
        (
            join([constant(1.0).into(), linear(1.0, 0.0, 5).into()], [3]).into(),
            "join([constant(1.0).into(), linear(1.0, 0.0, 5).into()], [3])",
        ),
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
fn refuses_what_is_out_of_range() {
    let refused: Vec<(Schedule, &str)> = vec![
        // Those that Optax refuses as well.
        (cosine_decay(0.031, 0).into(), "cosine_decay: argument `decay_steps`"),
        (linear_onecycle(0, 0.0098).into(), "linear_onecycle: argument `transition_steps`"),
        (cosine_onecycle(0, 0.0098).into(), "cosine_onecycle: argument `transition_steps`"),
        (piecewise_constant(0.054, [(3, -0.5)]).into(), "piecewise_constant: argument `boundaries_and_scales`"),
        (
            piecewise_interpolate(InterpolateType::Linear, 0.054, [(3, -0.5)]).into(),
            "piecewise_interpolate: argument `boundaries_and_scales`",
        ),
        (warmup_cosine_decay(0.0, 0.006, 10, 10, 0.0).into(), "warmup_cosine_decay: argument `decay_steps`"),
        // Those that only we refuse.
        (constant(f64::NAN).into(), "constant: argument `value`"),
        (linear(0.0, f64::INFINITY, 9).into(), "linear: argument `end_value`"),
        (polynomial(0.0, 1.0, -1.0, 9).into(), "polynomial: argument `power`"),
        (exponential_decay(1.0, 9, -0.5).into(), "exponential_decay: argument `decay_rate`"),
        (exponential_decay(1.0, 9, 0.5).end_value(f64::NAN).into(), "exponential_decay: argument `end_value`"),
        (cosine_decay(1.0, 9).exponent(-1.0).into(), "cosine_decay: argument `exponent`"),
        (warmup_constant(f64::NAN, 1.0, 9).into(), "warmup_constant: argument `init_value`"),
        (warmup_exponential_decay(0.0, f64::NAN, 9, 9, 0.5).into(), "warmup_exponential_decay: argument `peak_value`"),
        (piecewise_constant(1.0, [(3, 0.5), (3, 0.5)]).into(), "one scale a boundary, found two at 3"),
        (linear_onecycle(9, 1.0).pct_start(1.5).into(), "linear_onecycle: argument `pct_start`"),
        (linear_onecycle(9, 1.0).pct_final(0.1).into(), "linear_onecycle: argument `pct_final`"),
        (cosine_onecycle(9, 1.0).div_factor(0.0).into(), "cosine_onecycle: argument `div_factor`"),
        (sgdr([]).into(), "sgdr: argument `cycles`"),
        (sgdr([warmup_cosine_decay(0.0, 1.0, 5, 5, 0.0)]).into(), "sgdr: cycle 0: argument `decay_steps`"),
        (join([], []).into(), "join: argument `schedules`"),
        (join([constant(1.0).into()], [3]).into(), "join: argument `boundaries` must be 0, one fewer"),
        (join([constant(1.0).into(), constant(1.0).into(), constant(1.0).into()], [3, 2]).into(), "ascending"),
        (join([cosine_decay(1.0, 0).into()], []).into(), "cosine_decay: argument `decay_steps`"),
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
    // Both turning points fall on step 0, where a dictionary keeps the second: from peak/25² out.
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
