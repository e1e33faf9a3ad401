//! States reset in `lookahead` and `sam`, with `reset_state`.

use std::thread;
use std::time::Duration;

use gradchain::collective::{Threads, threads};
use gradchain::extra;
use gradchain::needs::Provides;
use gradchain::optimizer::{cocob, dog, madgrad, schedule_free_sgd};
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::transform::scale;
use gradchain::wrapper::{flatten, freezable, injected_hyperparams, sam, sharded};
use ndarray::{Array1, Array2, Axis, ShapeBuilder, Slice, array};

fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

/// Schedule-free SGD keeps parameters in its state; as in Optax.
#[test]
fn lookahead_restarts_its_optimizer_at_the_parameters_of_the_step() {
    let optimizer = lookahead(schedule_free_sgd().learning_rate(0.1), 3, 1.0).reset_state(true);
    let mut p = 10.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let mut seen = Vec::new();
    for _ in 0..12 {
        let gradient = 2.0 * p; // of p²
        optimizer.step(&mut p, &gradient, &mut state).unwrap();
        seen.push(p);
    }
    #[allow(clippy::approx_constant, reason = "one of the numbers happens to look like π")]
    let expected = [6.31, 5.858, 5.214, 4.621, 4.289, 3.818, 3.383, 3.141, 2.795, 2.478];
    seen[2..].iter().zip(expected).for_each(|(seen, expected)| close(*seen, expected, 5e-4));
}

/// DoG's anchor and largest distance restart, in any nesting.
#[test]
fn a_reset_state_equals_a_fresh_one() {
    let optimizer = lookahead(dog(), 2, 0.5).reset_state(true);
    let mut params = (array![3.0_f32, -2.0], array![[1.0_f64, 4.0]]);
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..7 {
        let (before, gradients) = (params.clone(), params.clone());
        optimizer.step(&mut params, &gradients, &mut state).unwrap();
        let fresh = dog().init(&before).unwrap();
        assert_eq!(same_bits(state.inner(), &*fresh), step % 2 == 1, "after step {step}");
    }
}

#[test]
fn an_adversary_restarts_at_the_start_of_the_round() {
    let adversary = || chain((dog(), scale(-0.5)));
    let (seen, opaque) = (sam(sgd(0.1), adversary()), sam(sgd(0.1), adversary()).opaque_mode());
    let (mut p, mut q) = (array![3.0_f64, -2.0], array![3.0_f64, -2.0]);
    let (mut of_seen, mut of_opaque) = (seen.init(&p).unwrap(), opaque.init(&q).unwrap());
    for _ in 0..4 {
        let began = adversary().init(&p).unwrap();
        for _ in 0..2 {
            let gradient = p.clone();
            seen.step(&mut p, &gradient, &mut of_seen).unwrap();
        }
        assert!(same_bits(of_seen.adv_state(), &*began));
        let (gradient, loss) = (q.clone(), |q: &ndarray::Array1<f64>| (q.dot(q) / 2.0, q.clone()));
        let value = loss(&q).0;
        opaque.step_with(&mut q, &gradient, extra::value_and_grad_fn(value, loss), &mut of_opaque).unwrap();
        assert!(same_bits(of_opaque.0.adv_state(), &*began));
        p.iter().zip(&q).for_each(|(p, q)| close(*p, *q, 1e-12));
    }
}

#[test]
fn a_reset_keeps_frozen_leaves_and_injected_hyperparameters() {
    let optimizer = lookahead(freezable(inject_hyperparams(sgd(0.5).momentum(0.5))), 2, 1.0).reset_state(true);
    let mut params = (8.0_f64, 8.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    state.inner_mut().freeze(Mask::path("0")).unwrap();
    state.inner_mut().inner_mut().hyperparams_mut().set("learning_rate", 1.0).unwrap();
    // The trace is 1, 1.5, and then 1 again.
    for expected in [7.0, 5.5, 4.5, 3.0] {
        optimizer.step(&mut params, &(1.0, 1.0), &mut state).unwrap();
        assert_eq!(params, (8.0, expected));
    }

    let optimizer = sam(sgd(0.0), inject_hyperparams(sgd(1.0)));
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    injected_hyperparams(&mut *state)[0].1.set("learning_rate", 0.25).unwrap();
    for expected in [0.25, 0.0, 0.25] {
        optimizer.step(&mut p, &1.0, &mut state).unwrap();
        assert_eq!(p, expected);
    }
}

type Apart = (Array1<f64>, Array2<f64>, Array1<f64>);

fn apart() -> Apart {
    let mut far = Array1::zeros(300_001);
    far.slice_axis_inplace(Axis(0), Slice::new(0, None, 100_000));
    far.assign(&array![3.0, -2.0, 0.5, 1.0]);
    let mut columns = Array2::zeros((3, 5).f());
    columns.indexed_iter_mut().for_each(|((i, j), x)| *x = (i * 5 + j) as f64 / 4.0 - 2.0);
    let mut backwards = array![4.0, 1.5, -3.0];
    backwards.invert_axis(Axis(0));
    (far, columns, backwards)
}

/// Trains on half the sum of squares, alone and flattened.
fn flattened_equals<T>(name: &str, inner: impl Fn() -> T)
where
    T: GradientTransformation,
    for<'a> extra::ValueAndGradFn<Apart, &'a dyn Fn(&Apart) -> (f64, Apart)>: Provides<T::Needs>,
{
    let loss = |(a, b, c): &Apart| {
        ((a * a).sum() / 2.0 + (b * b).sum() / 2.0 + (c * c).sum() / 2.0, (a.clone(), b.clone(), c.clone()))
    };
    let loss: &dyn Fn(&Apart) -> (f64, Apart) = &loss;
    let (alone, flat) = (inner(), flatten(inner()));
    let (mut p, mut q) = (apart(), apart());
    let (mut of_alone, mut of_flat) = (alone.init(&p).unwrap(), flat.init(&q).unwrap());
    for step in 1..=7 {
        let (at_p, at_q) = (p.clone(), q.clone());
        let given = |at: &Apart| extra::value_and_grad_fn(loss(at).0, loss);
        alone.step_with(&mut p, &at_p, given(&at_p), &mut of_alone).unwrap();
        flat.step_with(&mut q, &at_q, given(&at_q), &mut of_flat).unwrap();
        let pairs = p.0.iter().zip(&q.0).chain(p.1.iter().zip(&q.1)).chain(p.2.iter().zip(&q.2));
        for (p, q) in pairs {
            assert!((p - q).abs() <= 1e-12 * (1.0 + p.abs()), "{name}, step {step}: {p} alone, {q} flattened");
        }
    }
}

/// For any layouts.
#[test]
fn a_state_inside_flatten_restarts_at_the_vector() {
    flattened_equals("lookahead", || lookahead(lookahead(sgd(0.1), 1000, 0.5), 2, 0.5).reset_state(true));
    flattened_equals("schedule-free", || lookahead(schedule_free_sgd().learning_rate(0.1), 3, 0.5).reset_state(true));
    flattened_equals("dog", || lookahead(dog(), 2, 0.5).reset_state(true));
    flattened_equals("prodigy", || lookahead(prodigy().estim_lr0(0.01), 2, 0.5).reset_state(true));
    flattened_equals("cocob", || lookahead(cocob(), 2, 0.5).reset_state(true));
    flattened_equals("madgrad", || lookahead(madgrad(0.1), 2, 0.5).reset_state(true));
    flattened_equals("an adversary", || sam(sgd(0.1), chain((dog(), scale(-0.5)))).sync_period(3));
    flattened_equals("an opaque adversary", || {
        sam(sgd(0.1), schedule_free_sgd().learning_rate(0.1)).sync_period(3).opaque_mode()
    });
    flattened_equals("where a round began", || sam(lookahead(dog(), 1, 0.5).reset_state(true), sgd(0.1)));
    flattened_equals("a flattened one", || {
        flatten(lookahead(schedule_free_sgd().learning_rate(0.1), 2, 0.5).reset_state(true))
    });
    flattened_equals("in a round", || {
        sam(flatten(lookahead(schedule_free_sgd().learning_rate(0.1), 1, 0.5).reset_state(true)), sgd(0.1))
    });
    flattened_equals("masked leaves", || {
        masked(flatten(lookahead(dog(), 2, 0.5).reset_state(true)), Mask::min_ndim(1))
    });
}

/// From its share of the vector or of the round's start.
#[test]
fn sharded_states_restart_at_the_vector_or_the_start_of_the_round() {
    fn train<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) -> Apart {
        let mut params = apart();
        let mut state = optimizer.init(&params).unwrap();
        for _ in 0..6 {
            let gradient = params.clone();
            optimizer.step(&mut params, &gradient, &mut state).unwrap();
        }
        params
    }
    fn holds<T: GradientTransformation<Needs = Nothing>>(name: &str, of: impl Fn(Threads) -> T + Sync) {
        let ranks = |count| -> Vec<Apart> {
            thread::scope(|scope| {
                let of = &of;
                let ranks = threads(count, Duration::from_secs(300)).into_iter();
                let ranks: Vec<_> = ranks.map(|rank| scope.spawn(move || train(&of(rank)))).collect();
                ranks.into_iter().map(|rank| rank.join().expect(name)).collect()
            })
        };
        let alone = ranks(1);
        assert_eq!(ranks(2), [alone[0].clone(), alone[0].clone()], "{name}");
        assert_ne!(alone[0], apart(), "{name}: nothing has moved");
    }
    let inner = |period| lookahead(schedule_free_sgd().learning_rate(0.1), period, 0.5).reset_state(true);
    holds("a vector", |rank| flatten(sharded(inner(2), rank)));
    holds("where a round began", |rank| sam(sharded(inner(1), rank), sgd(0.1)));
    holds("some leaves", |rank| masked(sam(sharded(inner(1), rank), sgd(0.1)).sync_period(3), Mask::min_ndim(2)));
}
