//! A state that starts anew while training runs: in `lookahead` and `sam`, with `reset_state`.

use gradchain::extra;
use gradchain::prelude::*;
use gradchain::state::same_bits;
use ndarray::array;

fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

/// Schedule-free SGD keeps a sequence of parameters in its state. These are Optax's numbers.
#[test]
fn lookahead_starts_its_optimizer_anew_at_the_parameters_of_the_step() {
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

/// Distance over gradients: the anchor and the largest distance are those of the step's parameters, in any nesting.
#[test]
fn a_new_state_is_the_one_that_init_makes() {
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
fn an_adversary_starts_anew_where_the_round_began() {
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

/// What a user has set is no memory of training.
#[test]
fn what_was_set_in_a_state_stays_when_it_starts_anew() {
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
