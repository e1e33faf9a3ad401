//! Optimizers that measure the distance from the start, against naive versions of the papers.

use crate::oracle::{Leaf, Oracle, check, check_to, each_element, each_leaf, global_norm, norm};
use gradchain::DType;
use gradchain::optimizer::{cocob, dog, dowg, madgrad};
use gradchain::prelude::*;
use gradchain::transform::{InitStep, scale_by_distance_over_gradients, scale_by_dog};

/// COCOB, algorithm 2 of Orabona and Tommasi; their `g` is the negative gradient.
#[derive(Clone, Default)]
struct Cocob {
    w1: Option<f64>,
    l: f64,
    sizes: f64,
    reward: f64,
    theta: f64,
}

#[test]
fn cocob_is_algorithm_2() {
    for (rate, alpha, eps, decay) in [(1.0, 100.0, 1e-8, 0.0), (1.5, 10.0, 1e-3, 0.0), (1.0, 2.0, 1e-8, 0.1)] {
        check_to(
            &cocob().learning_rate(rate).alpha(alpha).eps(eps).weight_decay(decay),
            2e-4,
            each_element(move |m: &mut Cocob, _, g, w| {
                let w1 = *m.w1.get_or_insert(w);
                let g = -rate * (g + decay * w);
                m.l = m.l.max(eps).max(g.abs());
                m.sizes += g.abs();
                m.reward = (m.reward + (w - w1) * g).max(0.0);
                m.theta += g;
                w1 + m.theta / (m.l * (m.sizes + m.l).max(alpha * m.l)) * (m.l + m.reward) - w
            }),
        );
    }
}

#[test]
fn madgrad_is_algorithm_1() {
    for (rate, momentum, eps, decay) in [(0.1, 0.9, 1e-6, 0.0), (0.3, 0.0, 1e-3, 0.0), (0.2, 0.7, 1e-6, 0.05)] {
        // The authors add `eps` to the learning rate.
        check_to(
            &madgrad(rate).momentum(momentum).eps(eps).weight_decay(decay),
            1e-4,
            each_element(move |m: &mut (Option<f64>, f64, f64), step, g, x| {
                let g = g + decay * x;
                let x0 = *m.0.get_or_insert(x);
                let lambda = (rate + eps) * (step as f64).sqrt();
                m.1 += lambda * g;
                m.2 += lambda * g * g;
                let z = x0 - m.1 / (m.2.cbrt() + eps);
                momentum * x + (1.0 - momentum) * z - x
            }),
        );
    }
}

#[test]
fn without_a_gradient_nothing_is_divided_by_zero() {
    let zeros = vec![0.0_f32; 3];
    let both = (madgrad(0.1).eps(0.0), cocob().eps(0.0));
    let updates = both.0.update(&zeros, &mut both.0.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
    let updates = both.1.update(&zeros, &mut both.1.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
    let dogs = (dog().eps(0.0), dowg().eps(0.0));
    let updates = dogs.0.update(&zeros, &mut dogs.0.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
    let updates = dogs.1.update(&zeros, &mut dogs.1.init(&zeros).unwrap(), &zeros).unwrap();
    assert_eq!(updates.to_vec::<f32>("").unwrap(), zeros);
}

fn distance(a: &[Leaf], b: &[Leaf]) -> f64 {
    global_norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// Returns DoG's step size: the largest distance over the root of the sum of squared gradients.
fn dog_oracle(init_step: InitStep, eps: f64, rate: f64, decay: f64) -> impl Fn() -> Oracle {
    move || {
        let (mut x0, mut farthest, mut squares): (Option<Vec<Leaf>>, f64, f64) = (None, 0.0, 0.0);
        Box::new(move |step, grads, x| {
            let x0 = x0.get_or_insert_with(|| x.to_vec());
            let grads: Vec<Leaf> = grads.iter().zip(x).map(|(g, x)| g + &(x * decay)).collect();
            farthest = farthest.max(distance(x, x0)).max(match init_step {
                InitStep::Distance(r) => r,
                InitStep::Heuristic(alpha) => alpha * (1.0 + global_norm(x0)),
                _ => 0.0,
            });
            squares += global_norm(&grads).powi(2);
            let eta = match init_step {
                InitStep::LearningRate(eta) if step == 1 => eta,
                _ => farthest / (squares + eps).sqrt(),
            };
            grads.iter().map(|g| g * (-rate * eta)).collect()
        })
    }
}

#[test]
fn dog_is_distance_over_gradients() {
    for init_step in [InitStep::Distance(0.2), InitStep::Heuristic(0.01), InitStep::LearningRate(0.05)] {
        let optimizer = dog().init_step(init_step);
        check(&optimizer, dog_oracle(init_step, 1e-8, 1.0, 0.0));
        let optimizer = optimizer.eps(0.5).learning_rate(0.3).weight_decay(0.1);
        check(&optimizer, dog_oracle(init_step, 0.5, 0.3, 0.1));
    }
    assert!(dog().init_step(InitStep::Distance(-1.0)).init(&0.0_f32).is_err());
}

#[test]
fn dowg_is_algorithm_1() {
    for (guess, eps, rate) in [(None, 1e-4, 1.0), (Some(0.3), 1e-4, 1.0), (Some(2.0), 0.1, 0.5)] {
        let plain = dowg().eps(eps).learning_rate(rate);
        let optimizer = match guess {
            Some(guess) => plain.init_estim_sq_dist(guess),
            None => plain,
        };
        check(&optimizer, move || {
            let (mut x0, mut r, mut v): (Option<Vec<Leaf>>, f64, f64) = (None, guess.unwrap_or(eps), 0.0);
            Box::new(move |_, grads, x| {
                let x0 = x0.get_or_insert_with(|| x.to_vec());
                r = r.max(distance(x, x0).powi(2));
                v += r * global_norm(grads).powi(2);
                let eta = r / (v.sqrt() + eps);
                grads.iter().map(|g| g * (-rate * eta)).collect()
            })
        });
    }
}

#[test]
fn distance_over_gradients_goes_leaf_by_leaf() {
    for (rel, eps, scale) in [(1e-2, 1e-8, 1.0), (0.2, 0.3, -0.5)] {
        let optimizer = scale_by_distance_over_gradients().reps_rel(rel).eps(eps).global_scale(scale);
        let oracle = each_leaf(move |m: &mut (Option<Leaf>, f64, f64), _, g, x| {
            if m.0.is_none() {
                m.1 = rel * (1.0 + norm(x));
            }
            let x0 = m.0.get_or_insert_with(|| x.clone());
            m.1 = m.1.max(norm(&(x - &*x0)));
            m.2 += norm(g).powi(2);
            g * (scale * m.1 / (m.2 + eps).sqrt())
        });
        check(&optimizer.clone().param_dtype(DType::F64), &oracle);
        check(&optimizer, oracle);
    }
}

#[test]
fn the_first_parameters_are_kept_in_the_type_that_was_asked_for() {
    let third = 1.0_f64 / 3.0;
    for (dtype, kept) in [(DType::F32, f64::from(third as f32)), (DType::F64, third)] {
        let optimizer = scale_by_distance_over_gradients().param_dtype(dtype);
        let state = optimizer.init(&third).unwrap();
        assert_eq!(state.moment("init_params").unwrap().to_array(0).unwrap()[[]], kept);
    }
    #[cfg(feature = "half")]
    {
        let optimizer = scale_by_distance_over_gradients().param_dtype(DType::Bf16);
        let state = optimizer.init(&third).unwrap();
        assert_eq!(state.moment("init_params").unwrap().to_array(0).unwrap()[[]], half::bf16::from_f64(third).to_f64());
    }
}

#[test]
fn masked_leaves_do_not_count() {
    let optimizer = masked(scale_by_dog(InitStep::Heuristic(0.1)), Mask::path("0"));
    let params = (vec![3.0_f64, 4.0], 1e9_f64);
    let mut state = optimizer.init(&params).unwrap();
    let updates = optimizer.update(&(vec![0.0_f64, 5.0], 1e9_f64), &mut state, &params).unwrap();
    let moved = updates.to_vec::<f64>("0").unwrap();
    assert!((moved[1] - 0.1 * 6.0).abs() < 1e-9, "{moved:?}");
    assert_eq!(updates.to_vec::<f64>("1").unwrap(), [1e9]);
}
