//! `dynamic_loss_scale` works like PyTorch's `GradScaler`.

use gradchain::extra;
use gradchain::optimizer::polyak_sgd;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::state::same_bits;
use gradchain::transform::scale_by_schedule;
use gradchain::wrapper::dynamic_loss_scale;

type Params = (Vec<f64>, Vec<f32>);

fn params() -> Params {
    (vec![1.0, -2.0, 0.5], vec![4.0, -0.25])
}

fn noise(seed: u64, i: u64) -> f64 {
    let mut x = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i.wrapping_mul(0xD1B5_4A32_D192_ED03);
    x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Returns a scaled gradient; about every fifth overflows.
fn gradient(i: u64, scale: f64) -> Params {
    let g = |place: u64| noise(place, i) * scale;
    (vec![g(0), g(1), g(2)], vec![g(3) as f32, g(4) as f32])
}

fn overflows(i: u64) -> bool {
    noise(9, i) > 0.5
}

fn overflowed(i: u64, scale: f64) -> Params {
    let mut gradient = gradient(i, scale);
    match i % 3 {
        0 => gradient.0[2] = f64::NAN,
        1 => gradient.1[0] = f32::INFINITY,
        _ => gradient.1[1] = f32::NEG_INFINITY,
    }
    gradient
}

#[test]
fn the_scale_is_that_of_a_grad_scaler() {
    for (init, growth, backoff, interval, min, max) in
        [(1024.0, 2.0, 0.5, 3, 1.0, 2048.0), (3.0, 1.5, 0.25, 1, 0.5, 100.0), (16.0, 4.0, 0.9, 2, 16.0, 16.0)]
    {
        let optimizer = dynamic_loss_scale(sgd(0.1))
            .init_scale(init)
            .growth_factor(growth)
            .backoff_factor(backoff)
            .growth_interval(interval)
            .min_scale(min)
            .max_scale(max);
        let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
        let (mut scale, mut tracker, mut skipped) = (init, 0, 0);
        for i in 0..200 {
            assert_eq!(state.loss_scale(), Ok(scale), "step {i}");
            assert_eq!((state.scale(), state.growth_tracker().get()), (scale, tracker));
            let finite = !overflows(i);
            let gradient = if finite { gradient(i, scale) } else { overflowed(i, scale) };
            let before = params.clone();
            let outcome = optimizer.step(&mut params, &gradient, &mut state).unwrap();
            assert_eq!((outcome.emitted(), outcome.skipped()), (finite, !finite));
            assert_eq!(params != before, finite);
            if finite {
                tracker += 1;
                if tracker == interval {
                    (scale, tracker) = ((scale * growth).min(max), 0);
                }
            } else {
                (scale, tracker, skipped) = ((scale * backoff).max(min), 0, skipped + 1);
            }
            assert_eq!(state.last_finite().get(), finite);
        }
        assert!(skipped > 20);
        let readings = optimizer.readings(&state).unwrap();
        assert_eq!(readings.get("total_skipped"), Ok(f64::from(skipped)));
        assert_eq!(readings.get("dynamic_loss_scale.scale"), Ok(scale));
    }
}

/// Powers of two change no bit: the run equals one of the finite gradients without a scale.
#[test]
fn skipped_steps_leave_no_trace_in_moments_counts_and_schedules() {
    let inner = || chain((clip_by_global_norm(0.5), adamw(cosine_decay(0.1, 60)).weight_decay(0.01)));
    let after = || scale_by_schedule(linear(1.0, 0.5, 50));
    let scaled = chain((dynamic_loss_scale(inner()).growth_interval(4), after()));
    let plain = chain((chain((inner(),)), after()));
    let (mut a, mut b) = (params(), params());
    let (mut of_a, mut of_b) = (scaled.init(&a).unwrap(), plain.init(&b).unwrap());
    for i in 0..80 {
        let scale = of_a.loss_scale().unwrap();
        if overflows(i) {
            assert!(scaled.step(&mut a, &overflowed(i, scale), &mut of_a).unwrap().skipped());
        } else {
            scaled.step(&mut a, &gradient(i, scale), &mut of_a).unwrap();
            plain.step(&mut b, &gradient(i, 1.0), &mut of_b).unwrap();
        }
        assert_eq!(a, b, "step {i}");
    }
    assert!(same_bits(of_a.0.inner(), &of_b.0.0));
    assert!(same_bits(&of_a.1, &of_b.1));
}

#[test]
fn a_loss_is_handed_on_without_the_scale() {
    let scaled = dynamic_loss_scale(polyak_sgd());
    let (mut a, mut b) = (2.0_f64, 2.0_f64);
    let (mut of_a, mut of_b) = (scaled.init(&a).unwrap(), polyak_sgd().init(&b).unwrap());
    for _ in 0..3 {
        let (scale, loss, gradient) = (of_a.loss_scale().unwrap(), a * a, 2.0 * a);
        scaled.step_with(&mut a, &(gradient * scale), extra::value(loss), &mut of_a).unwrap();
        polyak_sgd().step_with(&mut b, &gradient, extra::value(loss), &mut of_b).unwrap();
        assert_eq!(a, b);
    }
}

#[test]
fn inside_an_accumulation_the_window_is_skipped_and_the_scale_waits_for_its_end() {
    let optimizer = multi_steps(dynamic_loss_scale(sgd(1.0)).init_scale(8.0).growth_interval(1), 2);
    let mut params = 0.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    for (gradient, scale, emitted, skipped, expected) in [
        (8.0, 8.0, false, false, 0.0),
        (24.0, 8.0, true, false, -2.0), // the mean of 1 and 3
        (f64::INFINITY, 16.0, false, false, -2.0),
        (16.0, 16.0, false, true, -2.0), // the window had an infinity
        (8.0, 8.0, false, false, -2.0),
        (8.0, 8.0, true, false, -3.0),
    ] {
        assert_eq!(state.loss_scale(), Ok(scale));
        let outcome = optimizer.step(&mut params, &gradient, &mut state).unwrap();
        assert_eq!((outcome.emitted(), outcome.skipped(), params), (emitted, skipped, expected));
    }
    // An incomplete window keeps its scale.
    optimizer.step(&mut params, &16.0, &mut state).unwrap();
    assert!(optimizer.flush(&mut params, &mut state).unwrap().emitted());
    assert_eq!(params, -4.0);
}

#[test]
fn around_an_accumulation_the_mini_step_alone_is_left_out() {
    let optimizer = dynamic_loss_scale(multi_steps(sgd(1.0), 2)).init_scale(8.0).growth_interval(2);
    let mut params = 0.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    for (gradient, scale, emitted, skipped, expected) in [
        (8.0, 8.0, false, false, 0.0),
        (f64::NAN, 8.0, false, true, 0.0),
        (12.0, 4.0, true, false, -2.0), // the mean of 1 and 3, of two scales
        (4.0, 4.0, false, false, -2.0), // the scale grows in a mini-step too
        (8.0, 8.0, true, false, -3.0),
    ] {
        assert_eq!(state.loss_scale(), Ok(scale));
        let outcome = optimizer.step(&mut params, &gradient, &mut state).unwrap();
        assert_eq!((outcome.emitted(), outcome.skipped(), params), (emitted, skipped, expected));
    }
}

#[test]
fn a_flush_that_only_passes_through_is_not_judged() {
    let optimizer = multi_steps(dynamic_loss_scale(multi_steps(sgd(1.0), 2)).init_scale(4.0).growth_interval(1), 2);
    let mut params = 0.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..2 {
        optimizer.step(&mut params, &4.0, &mut state).unwrap();
    }
    let scale = state.loss_scale().unwrap();
    assert_eq!((scale, params), (8.0, 0.0));
    assert!(optimizer.flush(&mut params, &mut state).unwrap().emitted());
    assert_eq!((state.loss_scale().unwrap(), params), (scale, -1.0));
}

#[cfg(feature = "half")]
#[test]
fn gradients_that_f16_cannot_hold_reach_the_parameters() {
    use half::f16;

    let (plain, scaled) = (sgd(1e5), dynamic_loss_scale(sgd(1e5)));
    let (mut a, mut b) = (vec![1.0_f32], vec![1.0_f32]);
    let (mut of_a, mut of_b) = (plain.init(&a).unwrap(), scaled.init(&b).unwrap());
    for _ in 0..10 {
        plain.step(&mut a, &vec![f16::from_f64(1e-8)], &mut of_a).unwrap();
        let scale = of_b.loss_scale().unwrap();
        scaled.step(&mut b, &vec![f16::from_f64(1e-8 * scale)], &mut of_b).unwrap();
    }
    assert_eq!(a, [1.0]);
    assert!((b[0] - 0.99).abs() < 1e-5, "{b:?}");
    // 2e5 overflows f16.
    assert!(scaled.step(&mut b, &vec![f16::from_f64(2e5)], &mut of_b).unwrap().skipped());
}

#[test]
fn invalid_loss_scale_arguments_are_refused() {
    let refused = |optimizer: Boxed| optimizer.init(&params()).unwrap_err().to_string();
    assert_eq!(
        refused(boxed(dynamic_loss_scale(sgd(0.1)).init_scale(0.5))),
        "dynamic_loss_scale: argument `init_scale` must be from `min_scale` (1) to `max_scale` (16777216), found 0.5"
    );
    for optimizer in [
        dynamic_loss_scale(sgd(0.1)).growth_factor(1.0),
        dynamic_loss_scale(sgd(0.1)).backoff_factor(1.0),
        dynamic_loss_scale(sgd(0.1)).growth_interval(0),
        dynamic_loss_scale(sgd(0.1)).min_scale(0.0),
        dynamic_loss_scale(sgd(0.1)).max_scale(f64::INFINITY),
    ] {
        assert!(optimizer.init(&params()).unwrap_err().is_argument());
    }
    let error = dynamic_loss_scale(lbfgs()).init(&params()).unwrap_err().to_string();
    assert!(
        error.starts_with("dynamic_loss_scale: argument `inner` must be without parts that compute their own"),
        "{error}"
    );

    let none = sgd(0.1).init(&params()).unwrap().loss_scale().unwrap_err();
    assert_eq!(none.to_string(), "loss_scale: this optimizer has no `dynamic_loss_scale`");
    let labels = Labels::tree([("0", "a"), ("1", "b")]);
    let two = partition((("a", dynamic_loss_scale(sgd(0.1))), ("b", dynamic_loss_scale(adam(0.1)))), labels);
    let error = two.init(&params()).unwrap().loss_scale().unwrap_err();
    assert_eq!(error.to_string(), "loss_scale: this optimizer has several, at `a`, `b`: put one around all");
}
