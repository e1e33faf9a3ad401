//! Wrappers, and what looks on: held to naive oracles in `f64` written from the papers, and to what they promise.

use gradchain::extra;
use gradchain::prelude::*;
use ndarray::{Array1, Array2};

/// Numbers between −1 and 1 that differ from place to place.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

#[track_caller]
fn close(ours: f64, oracle: f64, tolerance: f64) {
    assert!((ours - oracle).abs() <= tolerance * (1.0 + oracle.abs()), "{ours} is not {oracle}");
}

/// A matrix in `f64` and a vector in `f32`.
type Params = (Array2<f64>, Array1<f32>);

fn params(seed: f64) -> Params {
    let vector = wave(5, seed + 0.5).into_iter().map(|x| x as f32).collect();
    (Array2::from_shape_vec((3, 4), wave(12, seed)).unwrap(), vector)
}

/// All elements, in order.
fn flat((matrix, vector): &Params) -> Vec<f64> {
    matrix.iter().copied().chain(vector.iter().map(|x| f64::from(*x))).collect()
}

/// The tolerance of each element: that of its type.
fn tolerance(i: usize) -> f64 {
    if i < 12 { 1e-12 } else { 3e-6 }
}

#[track_caller]
fn same(ours: &Params, oracle: &[f64]) {
    flat(ours).iter().zip(oracle).enumerate().for_each(|(i, (ours, oracle))| close(*ours, *oracle, tolerance(i)));
}

/// Adam on plain vectors, as in the paper.
#[derive(Clone)]
struct NaiveAdam {
    t: i32,
    m: Vec<f64>,
    v: Vec<f64>,
}

impl NaiveAdam {
    fn new(n: usize) -> NaiveAdam {
        NaiveAdam { t: 0, m: vec![0.0; n], v: vec![0.0; n] }
    }

    fn update(&mut self, lr: f64, g: &[f64]) -> Vec<f64> {
        self.t += 1;
        let mut u = Vec::new();
        for (i, g) in g.iter().enumerate() {
            self.m[i] = 0.9 * self.m[i] + 0.1 * g;
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g;
            let (m, v) = (self.m[i] / (1.0 - 0.9_f64.powi(self.t)), self.v[i] / (1.0 - 0.999_f64.powi(self.t)));
            u.push(-lr * m / (v.sqrt() + 1e-8));
        }
        u
    }
}

fn add(p: &mut [f64], u: &[f64]) {
    p.iter_mut().zip(u).for_each(|(p, u)| *p += u);
}

#[test]
fn what_runs_in_some_steps_waits_in_the_others() {
    fn check<W: Condition<Needs = Nothing>>(condition: W, holds: impl Fn(usize) -> bool) {
        let transforms = conditionally_transform(adam(0.1), condition.clone());
        let masks = conditionally_mask(adam(0.1), condition);
        let (mut a, mut b) = (params(0.1), params(0.1));
        let (mut state_a, mut state_b) = (transforms.init(&a).unwrap(), masks.init(&b).unwrap());
        let (mut naive_a, mut naive_b) = (flat(&a), flat(&b));
        let mut naive = NaiveAdam::new(17);
        for step in 0..8 {
            let grads = params(2.0 + step as f64);
            let outcome = transforms.step(&mut a, &grads, &mut state_a).unwrap();
            assert!(outcome.emitted() && !outcome.skipped());
            let outcome = masks.step(&mut b, &grads, &mut state_b).unwrap();
            assert_eq!((outcome.emitted(), outcome.skipped()), (holds(step), !holds(step)));
            if holds(step) {
                let u = naive.update(0.1, &flat(&grads));
                add(&mut naive_a, &u);
                add(&mut naive_b, &u);
            } else {
                add(&mut naive_a, &flat(&grads));
            }
            same(&a, &naive_a);
            same(&b, &naive_b);
        }
        assert_eq!((state_a.step().get(), state_b.step().get()), (8, 8));
        assert_eq!(state_b.inner().0.count.get(), naive.t as u64);
    }
    check(step_lt(3), |step| step < 3);
    check(step_lt(0), |_| false);
    check(step_ge(3), |step| step >= 3);
    check(step_mod(3, 2), |step| step % 3 == 2);
    check(step_mod(2, 5), |_| false);
    check(step_if("first and fifth", |step| step % 4 == 0), |step| step == 0 || step == 4);
}

#[test]
fn conditions_are_checked() {
    assert!(conditionally_mask(adam(0.1), step_mod(0, 0)).init(&1.0_f32).is_err());
    assert!(conditionally_transform(adam(0.1), value_lt(f64::NAN)).init(&1.0_f32).is_err());
    assert!(conditionally_transform(adam(-f64::NAN), step_lt(1)).init(&1.0_f32).is_err());
}

#[test]
fn a_condition_on_the_loss_is_told_the_loss_through_every_wrapper() {
    // An infinite norm of sums before a barrier, and a box.
    let inside = chain((clip_by_global_norm(0.5), conditionally_mask(sgd(1.0), value_lt(1.0))));
    let optimizer = masked(chain((boxed(inside), scale(2.0))), Mask::all());
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    let losses = [2.0, 0.5, 1.0, f64::NAN, -1.0];
    for (loss, expected) in losses.into_iter().zip([0.0, -1.0, -1.0, -1.0, -2.0]) {
        optimizer.step_with(&mut p, &(3.0, 0.0), extra::value(loss), &mut state).unwrap();
        assert_eq!(p, (expected, 0.0));
    }
    let between = conditionally_transform(scale(0.0), value_if("in (1, 2)", |_, loss| loss > 1.0 && loss < 2.0));
    let mut p = 0.0_f64;
    let mut state = between.init(&p).unwrap();
    for (loss, expected) in [(1.5, 0.0), (2.5, 1.0), (1.0, 2.0)] {
        between.step_with(&mut p, &1.0, extra::value(loss), &mut state).unwrap();
        assert_eq!(p, expected);
    }
}

#[test]
fn freezing_the_others_is_after_what_comes_before_it() {
    // The norm of the whole gradient is 5, whichever leaves are frozen after it.
    let frozen = chain((clip_by_global_norm(1.0), masked(scale(-1.0), Mask::path("0")).freeze_others()));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = frozen.init(&p).unwrap();
    frozen.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    close(p.0, -0.6, 1e-15);
    assert_eq!(p.1, 0.0);
    // The same where the updates are stored, and in a loop of tiles.
    for optimizer in [
        chain(vec![boxed(clip_by_global_norm(1.0)), boxed(masked(scale(-1.0), Mask::path("0")).freeze_others())]),
        chain(vec![
            boxed(trace(0.0)),
            boxed(clip_by_global_norm(1.0)),
            boxed(masked(scale(-1.0), Mask::path("0")).freeze_others()),
        ]),
    ] {
        let mut p = (0.0_f64, 0.0_f64);
        let mut state = optimizer.init(&p).unwrap();
        optimizer.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
        close(p.0, -0.6, 1e-15);
        assert_eq!(p.1, 0.0);
    }
    let thawing = chain((clip_by_global_norm(1.0), freezable(scale(-1.0))));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = thawing.init(&p).unwrap();
    state.1.freeze(&Mask::path("1")).unwrap();
    thawing.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    close(p.0, -0.6, 1e-15);
    assert_eq!(p.1, 0.0);
}

#[test]
fn what_is_held_back_is_what_comes_after_a_barrier() {
    // The clip's passes store what the trace gives; holding it back must not empty the store before the norm is known.
    let optimizer = chain((trace(0.0), clip_by_global_norm(1.0), multi_steps(scale(-1.0), 2)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    assert_eq!(p, (0.0, 0.0));
    optimizer.step(&mut p, &(0.3, 0.4), &mut state).unwrap();
    close(p.0, -0.45, 1e-15);
    close(p.1, -0.6, 1e-15);
}
