//! Schedules match formulas, with arguments of both signs, around 1 and at the extremes.

use core::f64::consts::PI;

use gradchain::schedule::*;

const VALUES: [f64; 7] = [-30.0, -1.0, -0.25, 0.0, 0.125, 1.0, 12.5];
const STEPS: [u64; 4] = [1, 2, 7, 40];
const POWERS: [f64; 6] = [0.0, 0.3, 0.5, 1.0, 2.0, 3.5];
const BEGINS: [u64; 3] = [0, 1, 9];

fn follows(schedule: impl Into<Schedule>, formula: impl Fn(u64) -> f64) {
    let schedule = schedule.into();
    schedule.validate().unwrap();
    for count in (0..100).chain([1 << 30]) {
        let (found, expected) = (schedule.at(count), formula(count));
        let same = found == expected || (found - expected).abs() <= 1e-12 * expected.abs().max(1e-3);
        assert!(same, "{schedule} at {count}: {found} is not {expected}");
    }
}

fn between(count: u64, begin: u64, end: u64) -> f64 {
    ((count as f64 - begin as f64) / (end as f64 - begin as f64)).clamp(0.0, 1.0)
}

fn line(from: f64, to: f64, x: f64) -> f64 {
    (1.0 - x) * from + x * to
}

/// Returns half a cosine, from 1 to 0.
fn wave(x: f64) -> f64 {
    (1.0 + (PI * x).cos()) / 2.0
}

#[test]
fn lines_and_powers_of_them() {
    for (from, to) in VALUES.into_iter().flat_map(|a| VALUES.map(|b| (a, b))) {
        for (steps, begin) in STEPS.into_iter().flat_map(|a| BEGINS.map(|b| (a, b))) {
            let x = |count| between(count, begin, begin + steps);
            follows(linear(from, to, steps).transition_begin(begin), |count| line(from, to, x(count)));
            follows(warmup_constant(from, to, steps), |count| line(from, to, between(count, 0, steps)));
            for power in POWERS {
                follows(polynomial(from, to, power, steps).transition_begin(begin), |count| {
                    to + (from - to) * (1.0 - x(count)).powf(power)
                });
            }
        }
    }
}

#[test]
fn decays() {
    for (value, steps) in VALUES.into_iter().flat_map(|a| STEPS.map(|b| (a, b))) {
        for (alpha, exponent) in VALUES.into_iter().flat_map(|a| POWERS.map(|b| (a, b))) {
            follows(cosine_decay(value, steps).alpha(alpha).exponent(exponent), |count| {
                value * alpha + value * (1.0 - alpha) * wave(between(count, 0, steps)).powf(exponent)
            });
        }
        follows(inverse_sqrt(value, steps), |count| {
            let step = (count + 1) as f64;
            if step <= steps as f64 { value * step / steps as f64 } else { value * (steps as f64 / step).sqrt() }
        });
        follows(rex(value, steps), |count| {
            let left = 1.0 - between(count, 0, steps);
            value * left / (0.5 + 0.5 * left)
        });
    }
}

#[test]
fn exponentials_and_where_they_stop() {
    for (value, rate) in VALUES.into_iter().flat_map(|a| [0.1, 0.5, 0.96, 1.0, 1.04, 2.0].map(|b| (a, b))) {
        for (steps, begin) in STEPS.into_iter().flat_map(|a| BEGINS.map(|b| (a, b))) {
            for staircase in [false, true] {
                let times = |count: u64| {
                    let times = count.saturating_sub(begin) as f64 / steps as f64;
                    if staircase { times.floor() } else { times }
                };
                // Far beyond, a rate above 1 grows to infinity.
                let free = |count| if value == 0.0 { 0.0 } else { value * f64::powf(rate, times(count)) };
                let schedule = exponential_decay(value, steps, rate).transition_begin(begin).staircase(staircase);
                if rate <= 1.0 || value != 0.0 {
                    follows(schedule, free);
                }
                for end in VALUES {
                    let stops = |free: f64| if rate < 1.0 { free.max(end) } else { free.min(end) };
                    if rate <= 1.0 || value != 0.0 {
                        follows(schedule.end_value(end), |count| stops(free(count)));
                    }
                    let warm = warmup_exponential_decay(end, value, 5, steps, rate)
                        .staircase(staircase)
                        .transition_begin(begin);
                    if rate <= 1.0 || value != 0.0 {
                        follows(warm.end_value(end), |count| match count.checked_sub(5) {
                            None => line(end, value, count as f64 / 5.0),
                            Some(since) => stops(free(since)),
                        });
                    }
                }
            }
        }
    }
    // Optax ignores the end then.
    follows(exponential_decay(3.0, 0, 0.5).end_value(7.0), |_| 3.0);
    follows(exponential_decay(3.0, 4, 0.0).end_value(7.0), |_| 3.0);
}

/// A zero value stays zero: 0 times infinity.
#[test]
fn nothing_that_grows_stays_nothing() {
    for count in [0, 1, 1 << 20, u64::MAX] {
        assert_eq!(exponential_decay(0.0, 1, 2.0).at(count), 0.0);
        assert_eq!(exponential_decay(0.0, 1, 2.0).end_value(-1.0).at(count), -1.0);
        assert_eq!(exponential_decay(0.0, 1, 2.0).end_value(1.0).at(count), 0.0);
    }
}

#[test]
fn warm_ups_and_cycles() {
    for (from, peak) in VALUES.into_iter().flat_map(|a| VALUES.map(|b| (a, b))) {
        for (end, exponent) in VALUES.into_iter().flat_map(|a| POWERS.map(|b| (a, b))) {
            let of = |warm: u64, all: u64| {
                move |count: u64| {
                    if count < warm {
                        return line(from, peak, count as f64 / warm as f64);
                    }
                    // With a peak of 0 the end has no ratio.
                    let end = if peak == 0.0 { 0.0 } else { end };
                    end + (peak - end) * wave(between(count, warm, all)).powf(exponent)
                }
            };
            let one = warmup_cosine_decay(from, peak, 3, 11).end_value(end).exponent(exponent);
            follows(one, of(3, 11));
            let other = warmup_cosine_decay(from, peak, 0, 6).end_value(end).exponent(exponent);
            follows(sgdr([one, other]), move |count| if count < 11 { of(3, 11)(count) } else { of(0, 6)(count - 11) });
        }
    }
}

#[test]
fn one_cycles() {
    for (peak, start, rest) in VALUES.into_iter().flat_map(|p| [(p, 0.3, 0.85), (p, 0.0, 0.5), (p, 0.5, 1.0)]) {
        for (div, last) in [(25.0, 1e4), (0.5, 0.25), (1.0, 1.0), (3.0, 0.1), (0.2, 7.0)] {
            const STEPS: u64 = 40;
            let turn = |part: f64| (part * STEPS as f64) as u64;
            let cycle = linear_onecycle(STEPS, peak).pct_start(start).pct_final(rest);
            let (first, top, low) = (peak / div, peak, peak / div);
            follows(cycle.div_factor(div).final_div_factor(last), |count| match count {
                _ if count < turn(start) => line(first, top, between(count, 0, turn(start))),
                // The last two turning points coincide.
                _ if rest == 1.0 => line(top, top / last, between(count, turn(start), STEPS)),
                _ if count < turn(rest) => line(top, low, between(count, turn(start), turn(rest))),
                _ => line(low, low / last, between(count, turn(rest), STEPS)),
            });
            let cycle = cosine_onecycle(STEPS, peak).pct_start(start).div_factor(div).final_div_factor(last);
            let end = peak / (div * last);
            follows(cycle, |count| match count {
                _ if count < turn(start) => top + (first - top) * wave(between(count, 0, turn(start))),
                _ => end + (top - end) * wave(between(count, turn(start), STEPS)),
            });
        }
    }
}

#[test]
fn chunks() {
    let points = [(3, 0.5), (10, 3.0), (11, 0.0), (40, 2.0)];
    for value in VALUES {
        let at = |n: usize| points[..n].iter().fold(value, |value, (_, scale)| value * scale);
        let passed = |count| points.iter().filter(|(boundary, _)| *boundary <= count).count();
        follows(piecewise_constant(value, points), |count| at(passed(count)));
        let x = |count| {
            let n = passed(count);
            let begin = if n == 0 { 0 } else { points[n - 1].0 };
            (n, points.get(n).map_or(0.0, |(end, _)| between(count, begin, *end)))
        };
        follows(piecewise_interpolate(InterpolateType::Linear, value, points), |count| {
            let (n, x) = x(count);
            line(at(n), at((n + 1).min(4)), x)
        });
        follows(piecewise_interpolate(InterpolateType::Cosine, value, points), |count| {
            let (n, x) = x(count);
            let next = at((n + 1).min(4));
            if n == 4 { at(4) } else { next + (at(n) - next) * wave(x) }
        });
    }
}

/// A NaN of a schedule is detected inside any other schedule.
#[test]
fn a_nan_is_not_taken_for_a_number() {
    let broken = || Schedule::from(from_fn("broken", |count| if count == 3 { f64::NAN } else { 1.0 }));
    let around: [Schedule; 5] = [
        clamp(broken(), -1.0, 2.0).into(),
        clamp(broken(), f64::NEG_INFINITY, f64::INFINITY).into(),
        sum((broken(), 1.0)).into(),
        product((broken(), 0.0)).into(),
        join([broken(), constant(1.0).into()], [5]).into(),
    ];
    for schedule in around {
        assert!(schedule.at(3).is_nan() && schedule.at(2).is_finite(), "{schedule}");
    }
    assert_eq!(clamp(f64::INFINITY, -1.0, 2.0).at(0), 2.0);
    assert_eq!(clamp(f64::NEG_INFINITY, -1.0, 2.0).at(0), -1.0);
}

#[test]
fn limits_of_both_signs_and_beyond_one() {
    for (least, most) in [(1.5, 3.0), (-3.0, -0.5), (-2.0, 2.0), (0.25, 0.25)] {
        let member = |count| line(-4.0, 4.0, between(count, 0, 40));
        follows(clamp(linear(-4.0, 4.0, 40), least, most), |count| member(count).clamp(least, most));
    }
    for (least, most) in [(-1.0, -2.0), (2.5, 1.5), (0.5, 0.25)] {
        let error = Schedule::from(clamp(1.0, least, most)).validate().unwrap_err().to_string();
        let expected = format!("clamp: argument `max_value` must be at least `min_value` ({least}), found {most}");
        assert_eq!(error, expected);
    }
    let error = Schedule::from(linear_onecycle(9, 1.0).pct_final(2.5)).validate().unwrap_err().to_string();
    assert_eq!(error, "linear_onecycle: argument `pct_final` must be in [`pct_start`, 1], found 2.5");
}

#[test]
fn restarts_of_both_signs_and_shares_beyond_one() {
    for (value, alpha) in VALUES.into_iter().flat_map(|a| VALUES.map(|b| (a, b))) {
        follows(cosine_restarts(value, 20).value_factor(0.5), |count| {
            value * 0.5_f64.powf((count / 20) as f64) * wave(between(count % 20, 0, 20))
        });
        follows(cosine_restarts(value, 20).alpha(alpha), |count| {
            value * line(wave(between(count % 20, 0, 20)), 1.0, alpha)
        });
    }
}

#[test]
fn omitted_arguments_have_their_documented_defaults() {
    let cycle = linear_onecycle(200, 3.0).pct_start(0.3).pct_final(0.85).div_factor(25.0).final_div_factor(1e4);
    assert_eq!(linear_onecycle(200, 3.0), cycle);
    let cycle = cosine_onecycle(200, 3.0).pct_start(0.3).div_factor(25.0).final_div_factor(1e4);
    assert_eq!(cosine_onecycle(200, 3.0), cycle);
    assert_eq!(cosine_restarts(1.0, 9), cosine_restarts(1.0, 9).steps_factor(1).value_factor(1.0).alpha(0.0));
    assert_eq!(cosine_decay(1.0, 9), cosine_decay(1.0, 9).alpha(0.0).exponent(1.0));
    assert_eq!(linear(1.0, 2.0, 9), linear(1.0, 2.0, 9).transition_begin(0));
    assert_eq!(polynomial(1.0, 2.0, 3.0, 9), polynomial(1.0, 2.0, 3.0, 9).transition_begin(0));
    let decay = exponential_decay(1.0, 9, 0.5);
    assert_eq!(decay, decay.transition_begin(0).staircase(false).end_value(None));
    let decay = warmup_exponential_decay(0.0, 1.0, 3, 9, 0.5);
    assert_eq!(decay, decay.transition_begin(0).staircase(false).end_value(None));
    let decay = warmup_cosine_decay(0.5, 1.0, 3, 9);
    assert_eq!(decay, decay.end_value(0.0).exponent(1.0));
    let decay = warmup_stable_decay(1.0, 1, 2, 3);
    assert_eq!(decay, decay.init_value(0.0).end_value(0.0).shape(DecayShape::Linear));
    assert_eq!(table([1.0, 2.0]), table([1.0, 2.0]).every(1));
}

#[test]
fn piecewise_schedules_return_their_arguments() {
    for value in VALUES {
        let chunks = piecewise_constant(value, [(7, 2.5), (3, -0.5)]);
        assert_eq!((chunks.init_value(), chunks.boundaries_and_scales()), (value, &[(3, -0.5), (7, 2.5)][..]));
    }
}

#[test]
fn nonfinite_piecewise_schedules_are_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for (schedule, of_value) in [
            (Schedule::from(piecewise_constant(bad, [(3, 0.5)])), true),
            (piecewise_interpolate(InterpolateType::Linear, bad, [(3, 0.5)]).into(), true),
            (piecewise_constant(1.0, [(3, bad)]).into(), false),
            (piecewise_interpolate(InterpolateType::Cosine, 1.0, [(3, bad)]).into(), false),
        ] {
            let error = schedule.validate().unwrap_err().to_string();
            assert!(error.contains("argument `init_value`") == of_value, "{error}");
        }
    }
}
