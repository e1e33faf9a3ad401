//! Wrappers and observers against naive `f64` oracles from the papers.

use gradchain::extra;
use gradchain::optimizer::{dpsgd, sign_sgd, sophia};
use gradchain::part::WholeTreeTransformation;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    GlobalNorm, TreeSum, add_noise, clip_by_block_rms, differentially_private_aggregate,
    hutchinson_estimator_diag_hessian, identity, measure_fn, measure_with_ema, monitor, scale, scale_by_factored_rms,
    scale_by_lbfgs, scale_by_param_block_rms, scale_by_sophia, snapshot, trace,
};
use gradchain::tree::tree_norm;
use gradchain::wrapper::{
    Condition, cautious, conditionally_mask, conditionally_transform, flatten, freezable, freeze, graft,
    injected_hyperparams, mechanize, sam, selective_transform, skip_on_spike, step_ge, step_if, step_lt, step_mod,
    value_if, value_lt,
};
use ndarray::{Array1, Array2};

/// Returns different numbers between −1 and 1.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

#[track_caller]
fn close(ours: f64, oracle: f64, tolerance: f64) {
    assert!((ours - oracle).abs() <= tolerance * (1.0 + oracle.abs()), "{ours} is not {oracle}");
}

type Params = (Array2<f64>, Array1<f32>);

fn params(seed: f64) -> Params {
    let vector = wave(5, seed + 0.5).into_iter().map(|x| x as f32).collect();
    (Array2::from_shape_vec((3, 4), wave(12, seed)).unwrap(), vector)
}

fn flat((matrix, vector): &Params) -> Vec<f64> {
    matrix.iter().copied().chain(vector.iter().map(|x| f64::from(*x))).collect()
}

/// Returns the dtype's tolerance.
fn tolerance(i: usize) -> f64 {
    if i < 12 { 1e-12 } else { 3e-6 }
}

#[track_caller]
fn same(ours: &Params, oracle: &[f64]) {
    flat(ours).iter().zip(oracle).enumerate().for_each(|(i, (ours, oracle))| close(*ours, *oracle, tolerance(i)));
}

/// Adam on plain vectors.
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
fn conditional_wrappers_run_only_when_their_condition_holds() {
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
    // A reduction before a barrier, and a box.
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
fn frozen_leaves_count_towards_norms_of_earlier_stages() {
    // The whole gradient's norm is 5, with any leaves frozen behind it.
    let frozen = chain((clip_by_global_norm(1.0), masked(scale(-1.0), Mask::path("0")).freeze_others()));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = frozen.init(&p).unwrap();
    frozen.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    close(p.0, -0.6, 1e-15);
    assert_eq!(p.1, 0.0);
    // The same with stored updates, and in a loop over tiles.
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
    state.1.freeze(Mask::path("1")).unwrap();
    thawing.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    close(p.0, -0.6, 1e-15);
    assert_eq!(p.1, 0.0);
}

#[test]
fn held_steps_keep_updates_stored_for_a_barrier() {
    // The clip's passes store the trace's output; a hold must not clear it before the norm is known.
    let optimizer = chain((trace(0.0), clip_by_global_norm(1.0), multi_steps(scale(-1.0), 2)));
    let mut p = (0.0_f64, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &(3.0, 4.0), &mut state).unwrap();
    assert_eq!(p, (0.0, 0.0));
    optimizer.step(&mut p, &(0.3, 0.4), &mut state).unwrap();
    close(p.0, -0.45, 1e-15);
    close(p.1, -0.6, 1e-15);
}

/// A window of 3 equals the inner transformation on the mean, bit for bit.
///
/// The mean is recomputed in each pass, or stored if the inner transformation has state before a barrier, also in
/// boxes, and beside stages with more or fewer passes.
#[test]
fn the_inner_transformation_gets_the_mean_of_mini_steps_with_or_without_a_barrier() {
    fn inside(kind: usize) -> Boxed {
        match kind {
            0 => boxed(chain((zero_nans(), clip_by_global_norm(0.5), adam(0.1)))),
            1 => boxed(chain((trace(0.5), clip_by_global_norm(0.5), adam(0.1), clip_by_global_norm(0.05)))),
            2 => boxed(chain((clip_by_global_norm(0.5), scale(2.0), clip_by_global_norm(0.6), sgd(0.1)))),
            3 => boxed(chain((scale_by_param_block_rms(), sgd(0.1)))),
            4 => boxed(chain((scale_by_factored_rms().min_dim_size_to_factor(2), sgd(0.1)))),
            _ => boxed(adam(0.1)),
        }
    }
    fn bits(p: &Params) -> Vec<u64> {
        flat(p).iter().map(|x| x.to_bits()).collect()
    }
    fn check<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(kind: usize, optimizer: &T) {
        let (mut p, mut naive) = (params(0.0), params(0.0));
        let mut state = optimizer.init(&p).unwrap();
        let one = inside(kind);
        let mut of_one = one.init(&naive).unwrap();
        for window in 0..3 {
            let mut mean = (Array2::<f64>::zeros((3, 4)), Array1::<f32>::zeros(5));
            for i in 0..3 {
                let before = bits(&p);
                let grads = params(1.0 + (3 * window + i) as f64);
                optimizer.step(&mut p, &grads, &mut state).unwrap();
                let weight = 1.0 / (i + 1) as f64;
                mean.0.zip_mut_with(&grads.0, |mean, g| *mean += (g - *mean) * weight);
                mean.1.zip_mut_with(&grads.1, |mean, g| *mean += (g - *mean) * weight as f32);
                assert!(i == 2 || before == bits(&p), "{kind}: a mini-step that holds moves nothing");
            }
            one.step(&mut naive, &mean, &mut of_one).unwrap();
            assert_eq!(bits(&p), bits(&naive), "{kind}, window {window}");
        }
    }
    for kind in 0..6 {
        check(kind, &multi_steps(inside(kind), 3));
        check(kind, &chain(vec![boxed(scale(1.0)), boxed(multi_steps(inside(kind), 3))]));
        // The other group has no leaves, but its passes.
        for other in [boxed(sgd(0.1)), inside(0), inside(1), inside(2)] {
            check(kind, &partition((("all", multi_steps(inside(kind), 3)), ("none", other)), Labels::by(|_| "all")));
        }
    }
    check(0, &multi_steps(chain((zero_nans(), clip_by_global_norm(0.5), adam(0.1))), 3));
    check(2, &multi_steps(chain((clip_by_global_norm(0.5), scale(2.0), clip_by_global_norm(0.6), sgd(0.1))), 3));
    check(3, &multi_steps(chain((scale_by_param_block_rms(), sgd(0.1))), 3));
    check(5, &multi_steps(adam(0.1), 3));
}

#[test]
fn mini_steps_store_no_updates_besides_their_accumulator() {
    let stored = |plan: gradchain::Plan| plan.passes.iter().map(|pass| pass.stored).collect::<Vec<_>>();
    let p = vec![0.0_f32; 1000];
    let clipped = || chain((zero_nans(), clip_by_global_norm(1.0), adamw(1e-3)));
    let plan = multi_steps(clipped(), 4).plan(&p).unwrap();
    assert_eq!(plan.passes.iter().map(|pass| pass.bytes()).collect::<Vec<_>>(), [8_000, 36_000]);
    assert_eq!(stored(plan), [0, 0]);
    assert_eq!(stored(multi_steps(boxed(clipped()), 4).plan(&p).unwrap()), [0, 0]);
    // State before a barrier is updated once; updates are stored.
    let traced = chain((trace(0.9), clip_by_global_norm(1.0), sgd(1e-3)));
    assert_eq!(stored(multi_steps(traced, 4).plan(&p).unwrap()), [4_000, 0]);
}

#[test]
fn monitors_measure_the_updates_that_pass_through() {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let watch = monitor()
        .measure("norm", GlobalNorm)
        .measure("total", TreeSum)
        .measure("ema", measure_with_ema(GlobalNorm, 0.7))
        .measure("raw", measure_with_ema(TreeSum, 0.9).debias(false))
        .measure("rounded", measure_with_ema(GlobalNorm, 0.7).accumulator_dtype(gradchain::DType::F32))
        .measure("large", measure_fn("large", |u| f64::from(u.abs() > 0.5), |n, of| n / of as f64));
    // After state, between barriers, in a box, under a mask.
    let optimizer = chain((
        trace(0.5),
        clip_by_global_norm(1e9),
        boxed(watch.clone()),
        masked(snapshot("matrix", GlobalNorm), Mask::path("0")),
        clip_by_global_norm(0.1),
        snapshot("clipped", GlobalNorm),
        scale(-1.0),
    ));
    let mut p = params(0.3);
    let mut state = optimizer.init(&p).unwrap();
    assert!(gradchain::transform::measurements(&*state).iter().all(|(_, m)| m.iter().all(|(_, x)| x.is_nan())));
    let (mut naive, mut traced, mut ema, mut raw) = (flat(&p), vec![0.0; 17], 0.0, 0.0);
    for t in 1..=5 {
        let grads = params(f64::from(t));
        optimizer.step(&mut p, &grads, &mut state).unwrap();
        traced.iter_mut().zip(flat(&grads)).for_each(|(trace, g)| *trace = 0.5 * *trace + g);
        let total: f64 = traced.iter().sum();
        ema = 0.7 * ema + 0.3 * norm(&traced);
        raw = 0.9 * raw + 0.1 * total;
        let found = gradchain::transform::measurements(&*state);
        let get = |name: &str| found.iter().find_map(|(_, m)| m.get(name)).unwrap();
        close(get("norm"), norm(&traced), 1e-7);
        close(get("total"), total, 1e-6);
        close(get("ema"), ema / (1.0 - 0.7_f64.powi(t)), 1e-7);
        close(get("rounded"), ema / (1.0 - 0.7_f64.powi(t)), 1e-6);
        // The state is rounded to f32, the reading is not.
        assert_eq!(get("rounded") == get("ema"), t == 1);
        close(get("raw"), raw, 1e-6);
        assert_eq!(get("large"), traced.iter().filter(|u| u.abs() > 0.5).count() as f64 / 17.0);
        close(get("matrix"), norm(&traced[..12]), 1e-7);
        close(get("clipped"), 0.1, 1e-6);
        let shrink = 0.1 / norm(&traced);
        add(&mut naive, &traced.iter().map(|u| -u * shrink).collect::<Vec<_>>());
        flat(&p).iter().zip(&naive).for_each(|(ours, naive)| close(*ours, *naive, 1e-6));
    }
    assert!(watch.clone().measure("norm", TreeSum).init(&p).is_err(), "two of one name");
    assert!(monitor().measure("x", measure_with_ema(TreeSum, 1.0)).init(&p).is_err());
    assert_eq!(chain((clip(1.0), watch, sgd(0.1))).plan(&p).unwrap().passes.len(), 1);
}

#[test]
fn held_updates_are_not_measured() {
    let optimizer = multi_steps(chain((snapshot("norm", GlobalNorm), sgd(1.0))), 2);
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &2.0, &mut state).unwrap();
    assert!(state.inner().0.get("norm").unwrap().is_nan());
    optimizer.step(&mut p, &4.0, &mut state).unwrap();
    assert_eq!(state.inner().0.get("norm"), Some(3.0));
}

#[test]
fn a_frozen_leaf_keeps_its_bits() {
    let mut p = params(0.3);
    for frozen in ["0", "1"] {
        let (mask, still) = (Mask::path(frozen), [frozen == "0", frozen == "1"]);
        let before = p.clone();
        let optimizer = chain((adam(0.1), freeze(mask.clone())));
        let mut state = optimizer.init(&p).unwrap();
        optimizer.step(&mut p, &params(1.0), &mut state).unwrap();
        assert_eq!([p.0 == before.0, p.1 == before.1], still);

        let before = p.clone();
        let optimizer = selective_transform(adam(0.1), mask.clone());
        let mut state = optimizer.init(&p).unwrap();
        assert_eq!(state.inner().0.moment("mu").unwrap().leaves().count(), 1, "a frozen leaf has no state");
        optimizer.step(&mut p, &params(1.0), &mut state).unwrap();
        assert_eq!([p.0 == before.0, p.1 == before.1], still);
    }
}

/// Computes LAMB on one vector, from algorithm 2 of the paper, with Optax's defaults.
fn naive_lamb(adam: &mut NaiveAdam, lr: f64, decay: f64, p: &mut [f64], g: &[f64]) {
    // Adam's update is negative, with another epsilon.
    adam.t += 1;
    let mut r = Vec::new();
    for (i, g) in g.iter().enumerate() {
        adam.m[i] = 0.9 * adam.m[i] + 0.1 * g;
        adam.v[i] = 0.999 * adam.v[i] + 0.001 * g * g;
        let (m, v) = (adam.m[i] / (1.0 - 0.9_f64.powi(adam.t)), adam.v[i] / (1.0 - 0.999_f64.powi(adam.t)));
        r.push(m / (v.sqrt() + 1e-6) + decay * p[i]);
    }
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let ratio = norm(p) / norm(&r);
    p.iter_mut().zip(&r).for_each(|(p, r)| *p -= lr * ratio * r);
}

#[test]
fn flattened_leaves_are_one() {
    let optimizer = flatten(lamb(0.1).weight_decay(0.01));
    let mut p = params(0.3);
    let mut state = optimizer.init(&p).unwrap();
    let (mut naive, mut adam) = (flat(&p), NaiveAdam::new(17));
    for t in 1..=4 {
        let grads = params(f64::from(t));
        assert!(optimizer.step(&mut p, &grads, &mut state).unwrap().emitted());
        naive_lamb(&mut adam, 0.1, 0.01, &mut naive, &flat(&grads));
        // The vector is `f64`, but the norm includes the rounded `f32` leaf.
        flat(&p).iter().zip(&naive).for_each(|(ours, naive)| close(*ours, *naive, 1e-6));
    }
    // Leaf by leaf the result differs.
    let apart = lamb(0.1).weight_decay(0.01);
    let (mut p, mut q) = (params(0.3), params(0.3));
    let (mut state, mut of_apart) = (optimizer.init(&p).unwrap(), apart.init(&q).unwrap());
    optimizer.step(&mut p, &params(1.0), &mut state).unwrap();
    apart.step(&mut q, &params(1.0), &mut of_apart).unwrap();
    assert!((p.0[[0, 0]] - q.0[[0, 0]]).abs() > 1e-3);
}

/// Adam's direction and the norm of gradient descent with momentum, per leaf.
#[test]
fn a_graft_has_the_direction_of_one_and_the_norm_of_the_other() {
    let optimizer = graft(adamw(0.7).weight_decay(0.0), sgd(0.1).momentum(0.5));
    let [adam, descent] = [boxed(adamw(0.7).weight_decay(0.0)), boxed(sgd(0.1).momentum(0.5))];
    let mut p = params(0.3);
    let mut state = optimizer.init(&p).unwrap();
    let [mut of_adam, mut of_descent] = [adam.init(&p).unwrap(), descent.init(&p).unwrap()];
    for t in 1..=4 {
        let grads = params(f64::from(t));
        let update = |of: &Boxed<Nothing>, state: &mut OptState<Boxed<Nothing>>| {
            let updates = of.update(&grads, state, &p).unwrap();
            let vector = updates.to_vec::<f32>("1").unwrap();
            [updates.to_vec::<f64>("0").unwrap(), vector.into_iter().map(f64::from).collect()]
        };
        let (directions, sizes) = (update(&adam, &mut of_adam), update(&descent, &mut of_descent));
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut expected = flat(&p);
        let updates = directions.iter().zip(&sizes).flat_map(|(d, m)| {
            let factor = norm(m) / norm(d);
            d.iter().map(move |d| d * factor)
        });
        expected.iter_mut().zip(updates).for_each(|(p, u)| *p += u);
        assert!(optimizer.step(&mut p, &grads, &mut state).unwrap().emitted());
        same(&p, &expected);
    }
    let optimizer = graft(sign_sgd(1.0), sgd(1.0));
    let mut zeros = vec![1.0_f64; 3];
    let mut state = optimizer.init(&zeros).unwrap();
    optimizer.step(&mut zeros, &vec![0.0; 3], &mut state).unwrap();
    assert_eq!(zeros, [1.0; 3]);
}

fn fortran(x: &Array2<f64>) -> Array2<f64> {
    use ndarray::ShapeBuilder;
    let mut y = Array2::zeros(x.dim().f());
    y.assign(x);
    y
}

#[test]
fn flattening_does_not_depend_on_memory_order_and_keeps_to_its_leaves() {
    for optimizer in [
        boxed(flatten(chain((add_noise(0.01, 0.1, 3), clip_by_block_rms(0.3), adam(0.1))))),
        boxed(chain((trace(0.5), clip(0.7), flatten(lamb(0.1)), clip(0.05), scale(0.5)))),
        boxed(masked(flatten(lamb(0.1)), Mask::path("1"))),
        boxed(flatten(multi_steps(flatten(lookahead(adam(0.1), 2, 0.5)), 2))),
        boxed(flatten(lbfgs().learning_rate(0.1).without_linesearch())),
    ] {
        let (mut rows, mut cols) = (params(0.1), params(0.1));
        cols.0 = fortran(&cols.0);
        let (mut of_rows, mut of_cols) = (optimizer.init(&rows).unwrap(), optimizer.init(&cols).unwrap());
        for t in 0..5 {
            let grads = params(1.0 + f64::from(t));
            optimizer.step(&mut rows, &grads, &mut of_rows).unwrap();
            let copy = of_cols.clone();
            optimizer.step(&mut cols, &(fortran(&grads.0), grads.1.clone()), &mut of_cols).unwrap();
            assert_eq!(rows, cols, "{optimizer:?}");
            drop(copy);
        }
    }
    // The mask passes the other leaf through.
    let optimizer = masked(flatten(clip_by_global_norm(1.0)), Mask::path("0"));
    let mut p = (0.0_f64, 0.0_f32, 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step(&mut p, &(2.0_f64, 2.0_f32, 2.0_f64), &mut state).unwrap();
    assert_eq!(p, (1.0, 2.0, 2.0));
    assert_eq!(flatten(adam(0.1)).init(&p).unwrap().schema().entries[1].leaf, None, "the vector's state is no leaf's");
    // No leaves, and empty leaves.
    let optimizer = flatten(lamb(0.1));
    let mut none = gradchain::tree::DynTree::new();
    let mut state = optimizer.init(&none).unwrap();
    optimizer.step(&mut none, &gradchain::tree::DynTree::new(), &mut state).unwrap();
    let mut empty = (Vec::<f32>::new(), 1.0_f64);
    let mut state = optimizer.init(&empty).unwrap();
    optimizer.step(&mut empty, &(Vec::<f32>::new(), 1.0_f64), &mut state).unwrap();
    close(empty.1, 0.9, 1e-6);
}

/// Newton's method by element, from values at three points.
#[derive(Clone, Debug)]
struct NewtonByValues;

impl gradchain::part::Part for NewtonByValues {
    const NAME: &'static str = "newton_by_values";
    type Form = gradchain::part::Whole<gradchain::needs::ValueAndGradFn>;
}

impl WholeTreeTransformation for NewtonByValues {
    type State = gradchain::state::Moments;
    const SCOPE: gradchain::part::Scope = gradchain::part::Scope::TREE.reads_params();

    fn start(&self, at: &gradchain::part::InitContext<'_>) -> gradchain::Result<Self::State> {
        at.moments()
    }

    fn transform(
        &self,
        point: &mut Self::State,
        _: &gradchain::part::StepContext<'_>,
        tree: &mut gradchain::part::WholeTree<'_>,
    ) {
        for leaf in tree.leaves() {
            if let Some(at) = tree.leaf::<f64>(leaf) {
                let (p, g) = (at.p.to_vec(), at.u.to_vec());
                let to: Vec<f64> = p.iter().zip(&g).map(|(p, g)| p - 0.5 * g).collect();
                point.get_mut::<f64>(leaf).unwrap().copy_from_slice(&to);
                let mut gradient = point.clone();
                let value = tree.value_and_grad_at(point, &mut gradient);
                assert_eq!(value, tree.value_at(point));
                let there = gradient.get::<f64>(leaf).unwrap();
                let secant = p.iter().zip(&g).zip(&to).zip(there).map(|(((p, g), to), g1)| -g * (to - p) / (g1 - g));
                tree.leaf::<f64>(leaf).unwrap().u.copy_from_slice(&secant.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn the_loss_is_asked_for_at_a_vector() {
    // 1·x² + 2·y² + 3·z²: the secant is exact.
    type Three = (Array2<f64>, Array1<f64>);
    let loss = |p: &Three| {
        let weights = (Array2::from_shape_vec((2, 1), vec![1.0, 2.0]).unwrap(), Array1::from(vec![3.0]));
        let value = (&p.0 * &p.0 * &weights.0).sum() + (&p.1 * &p.1 * &weights.1).sum();
        (value, (&p.0 * &weights.0 * 2.0, &p.1 * &weights.1 * 2.0))
    };
    let optimizer = flatten(NewtonByValues);
    let mut p = (Array2::from_shape_vec((2, 1), vec![5.0, -3.0]).unwrap(), Array1::from(vec![2.0]));
    let mut state = optimizer.init(&p).unwrap();
    let (value, gradient) = loss(&p);
    optimizer.step_with(&mut p, &gradient, extra::value_and_grad_fn(value, loss), &mut state).unwrap();
    assert!(loss(&p).0 < 1e-25);

    let optimizer = flatten(lbfgs());
    let mut p = (Array2::from_shape_vec((2, 1), vec![5.0, -3.0]).unwrap(), Array1::from(vec![2.0]));
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..12 {
        let (value, gradient) = loss(&p);
        optimizer.step_with(&mut p, &gradient, extra::value_and_grad_fn(value, loss), &mut state).unwrap();
    }
    assert!(loss(&p).0 < 1e-20, "{p:?}");
}

/// Computes rounds of `period` gradients.
///
/// The last is Adam's with decay, from the round's start. The others climb by `rho` times the gradient, clipped to a
/// norm of 0.5.
fn naive_sam(period: usize, rho: f64, steps: usize, check: &mut dyn FnMut(usize, &[f64])) {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut p = flat(&params(0.3));
    let (mut c, mut adam) = (p.clone(), NaiveAdam::new(17));
    for step in 0..steps {
        let g = flat(&params(step as f64));
        if step % period == 0 {
            c = p.clone();
        }
        if step % period == period - 1 {
            let mut u = adam.update(0.1, &g);
            u.iter_mut().zip(&c).for_each(|(u, c)| *u -= 0.1 * 0.2 * c);
            p = c.clone();
            add(&mut p, &u);
        } else {
            let shrink = (0.5 / norm(&g)).min(1.0);
            add(&mut p, &g.iter().map(|g| rho * shrink * g).collect::<Vec<_>>());
        }
        check(step, &p);
    }
}

#[test]
fn sharpness_aware_minimization_descends_from_where_it_began_to_climb() {
    for period in 1..=4 {
        let optimizer =
            sam(adamw(0.1).weight_decay(0.2), chain((clip_by_global_norm(0.5), sgd(0.3)))).sync_period(period);
        let mut p = params(0.3);
        let mut state = optimizer.init(&p).unwrap();
        let mut began = p.clone();
        naive_sam(period as usize, 0.3, 9, &mut |step, naive| {
            if step % period as usize == 0 {
                began = p.clone();
            }
            optimizer.step(&mut p, &params(step as f64), &mut state).unwrap();
            flat(&p).iter().zip(naive).for_each(|(ours, naive)| close(*ours, *naive, 2e-6));
            let evaluated = state.eval_params(&p).unwrap();
            let between = (step + 1) % period as usize != 0;
            assert_eq!(*evaluated, if between { began.clone() } else { p.clone() });
        });
    }
    assert!(sam(sgd(0.1), sgd(0.1)).sync_period(0).init(&0.0_f32).is_err());
}

#[test]
fn the_adversary_forgets_or_remembers() {
    // Adam's first step is the rate times the sign; later ones are shorter if the sign changes.
    for (reset, expected) in [(true, 1.0), (false, 0.0)] {
        let optimizer = sam(sgd(0.0), scale_by_adam().b1(0.5).b2(0.5).eps(0.0)).reset_state(reset);
        let mut p = 0.0_f64;
        let mut state = optimizer.init(&p).unwrap();
        for g in [1.0, 9.0, -1.0] {
            optimizer.step(&mut p, &g, &mut state).unwrap();
        }
        // m = 0.25 − 0.5, v = 0.75, both over 0.75: −1/3 without a reset.
        close(p, if expected == 1.0 { 1.0 } else { 1.0 / 3.0 }, 1e-12);
    }
}

#[test]
fn a_round_in_one_step_is_a_round_in_several() {
    fn loss(p: &Params) -> (f64, Params) {
        let matrix = p.0.iter().enumerate().map(|(i, p)| (1.0 + i as f64 / 12.0) * p.powi(4)).sum::<f64>();
        let vector = p.1.iter().map(|p| f64::from(p.powi(4))).sum::<f64>();
        let mut gradient = p.clone();
        gradient.0.iter_mut().enumerate().for_each(|(i, p)| *p = 4.0 * (1.0 + i as f64 / 12.0) * p.powi(3));
        gradient.1.mapv_inplace(|p| 4.0 * p.powi(3));
        (matrix + vector, gradient)
    }
    fn check<O: gradchain::GradientTransformation<Needs = Nothing> + Clone>(optimizer: O, period: u64, reset: bool) {
        let adversary = chain((clip_by_global_norm(0.1), scale_by_adam().eps(0.1), scale(-0.05)));
        let seen = sam(optimizer, adversary).sync_period(period).reset_state(reset);
        let opaque = seen.clone().opaque_mode();
        let (mut p, mut q) = (params(0.3), params(0.3));
        let (mut of_seen, mut of_opaque) = (seen.init(&p).unwrap(), opaque.init(&q).unwrap());
        for _ in 0..4 {
            for _ in 0..period {
                let gradient = loss(&p).1;
                seen.step(&mut p, &gradient, &mut of_seen).unwrap();
            }
            let (value, gradient) = loss(&q);
            opaque.step_with(&mut q, &gradient, extra::value_and_grad_fn(value, loss), &mut of_opaque).unwrap();
            flat(&p).iter().zip(flat(&q)).for_each(|(p, q)| close(*p, q, 2e-6));
        }
        assert!(loss(&q).0 < loss(&params(0.3)).0);
    }
    for period in 1..=3 {
        for reset in [false, true] {
            check(adamw(0.05).weight_decay(0.1), period, reset);
            check(lamb(0.05).weight_decay(0.1), period, reset);
            // Stored parameter differences must be taken at the starts of rounds.
            check(chain((trace(0.1), scale_by_lbfgs(), scale(-0.02))), period, reset);
        }
    }
}

/// The previous diagonal is 1.5 times the gradient.
#[test]
fn sophia_divides_by_the_diagonal_that_it_knew_before() {
    for (clip, interval, decay, gamma, eps) in
        [(Some(1.0), 1, 0.0, 0.5, 1e-3), (Some(0.7), 3, 0.1, 1.3, 0.02), (None, 2, 0.05, 2.0, 0.3)]
    {
        let mut optimizer = sophia(0.1, scale(1.5))
            .b1(0.8)
            .b2(0.6)
            .gamma(gamma)
            .eps(eps)
            .weight_decay(decay)
            .weight_decay_mask(Mask::path("0"))
            .update_interval(interval);
        optimizer = match clip {
            Some(clip) => optimizer.clip_threshold(clip),
            None => optimizer.without_clipping(),
        };
        let mut p = params(0.3);
        let mut state = optimizer.init(&p).unwrap();
        let (mut naive, mut m, mut h) = (flat(&p), [0.0; 17], [0.0; 17]);
        for t in 1..=7_i32 {
            let grads = params(f64::from(t));
            optimizer.step(&mut p, &grads, &mut state).unwrap();
            let (mut won, g) = (0, flat(&grads));
            for i in 0..17 {
                m[i] = 0.8 * m[i] + 0.2 * g[i];
                let mut d: f64 = m[i] / (1.0 - 0.8_f64.powi(t)) / f64::max(gamma * h[i], eps);
                won += usize::from(d.abs() < clip.unwrap_or(f64::INFINITY));
                d = clip.map_or(d, |clip: f64| d.clamp(-clip, clip));
                if (t - 1) % interval as i32 == 0 {
                    h[i] = 0.6 * h[i] + 0.4 * 1.5 * g[i];
                }
                naive[i] -= 0.1 * (d + if i < 12 { decay * naive[i] } else { 0.0 });
            }
            flat(&p).iter().zip(&naive).enumerate().for_each(|(i, (p, naive))| close(*p, *naive, 10.0 * tolerance(i)));
            assert_eq!(state.0.win_rate(), won as f64 / 17.0);
        }
    }
    assert!(sophia(0.1, identity()).update_interval(0).init(&0.0_f32).is_err());
    assert!(sophia(0.1, identity()).clip_threshold(-1.0).init(&0.0_f32).is_err());
}

#[test]
fn wrappers_with_updates_of_their_own_emit_over_held_inner_steps() {
    let mut p = 1.0_f64;
    // Before the first estimate the clipped mean is used.
    let optimizer = scale_by_sophia(multi_steps(identity(), 2)).update_interval(1);
    let mut state = optimizer.init(&p).unwrap();
    assert!(optimizer.step(&mut p, &0.5, &mut state).unwrap().emitted());
    assert_eq!(p, 2.0);
    assert_eq!(state.inner().mini_step().get(), 1);

    let optimizer = mechanize(multi_steps(sgd(1.0), 2)).s_init(1.0);
    let mut state = optimizer.init(&p).unwrap();
    for gradient in [0.5, 0.5, 0.25] {
        let before = p;
        let emitted = optimizer.step(&mut p, &gradient, &mut state).unwrap().emitted();
        assert!(emitted || p == before, "what has moved was emitted");
    }

    let optimizer = cautious(multi_steps(sgd(1.0), 2));
    let mut state = optimizer.init(&p).unwrap();
    let before = p;
    assert!(!optimizer.step(&mut p, &0.5, &mut state).unwrap().emitted());
    assert_eq!(p, before);
    assert!(optimizer.step(&mut p, &0.5, &mut state).unwrap().emitted());
    assert!(p < before);
}

#[test]
fn differences_of_gradients_estimate_the_diagonal() {
    // Σ wᵢ·pᵢ² + (Σ pᵢ)²/17: the Hessian's diagonal is 2·wᵢ + 2/17, its other elements 2/17.
    fn loss(p: &Params) -> (f64, Params) {
        let sum: f64 = flat(p).iter().sum();
        let mut gradient = p.clone();
        gradient.0.iter_mut().enumerate().for_each(|(i, p)| *p = 2.0 * i as f64 * *p + 2.0 * sum / 17.0);
        gradient
            .1
            .iter_mut()
            .enumerate()
            .for_each(|(i, p)| *p = (2.0 * i as f64 * f64::from(*p) + 2.0 * sum / 17.0) as f32);
        (0.0, gradient)
    }
    let p = params(0.3);
    let estimate = hutchinson_estimator_diag_hessian(7);
    let mut state = estimate.init(&p).unwrap();
    let (n, mut mean, mut spread) = (400, vec![0.0; 17], 0.0);
    for _ in 0..n {
        let (value, gradient) = loss(&p);
        let with = extra::value_and_grad_fn(value, loss);
        let updates = estimate.update_with(&gradient, with, &mut state, &p).unwrap();
        let vector = updates.to_vec::<f32>("1").unwrap().into_iter().map(f64::from);
        let diagonal: Vec<f64> = updates.to_vec::<f64>("0").unwrap().into_iter().chain(vector).collect();
        spread += (diagonal[0] - 2.0 / 17.0).powi(2) / n as f64;
        mean.iter_mut().zip(diagonal).for_each(|(mean, d)| *mean += d / n as f64);
    }
    let weights = (0..12).chain(0..5);
    mean.iter().zip(weights).for_each(|(mean, w)| {
        // The standard deviation of one estimate is √16·2/17, of the mean 0.024.
        assert!((mean - 2.0 * f64::from(w) - 2.0 / 17.0).abs() < 0.1, "{mean} {w}");
    });
    assert!((spread.sqrt() - 8.0 / 17.0).abs() < 0.1, "{spread}: the signs are random");
    assert_eq!(state.count.get(), n);
    assert!(estimate.step_size(0.0).init(&p).is_err());
    // In a mask, in a box, in a vector, in Sophia.
    let optimizer =
        flatten(boxed(masked(sophia(0.05, hutchinson_estimator_diag_hessian(1)).update_interval(2), Mask::all())));
    let mut p = params(0.3);
    let mut state = optimizer.init(&p).unwrap();
    let before = tree_norm(&loss(&p).1);
    for _ in 0..150 {
        let (value, gradient) = loss(&p);
        optimizer.step_with(&mut p, &gradient, extra::value_and_grad_fn(value, loss), &mut state).unwrap();
    }
    assert!(tree_norm(&loss(&p).1) < 0.2 * before, "{before} {}", tree_norm(&loss(&p).1));
}

type Batch = (ndarray::Array3<f64>, Array2<f32>);

fn examples(n: usize, seed: f64) -> (Batch, Vec<Vec<f64>>) {
    let each: Vec<Params> = (0..n).map(|i| params(seed + 0.77 * i as f64)).collect();
    let matrices = ndarray::stack(ndarray::Axis(0), &each.iter().map(|e| e.0.view()).collect::<Vec<_>>()).unwrap();
    let vectors = ndarray::stack(ndarray::Axis(0), &each.iter().map(|e| e.1.view()).collect::<Vec<_>>()).unwrap();
    ((matrices, vectors), each.iter().map(flat).collect())
}

#[test]
fn each_example_is_clipped_before_they_are_added() {
    for (clip, momentum, nesterov) in [(1.5, 0.0, false), (2.4, 0.7, false), (100.0, 0.7, true)] {
        let optimizer = dpsgd(0.1, clip, 0.0, 1).momentum(momentum).nesterov(nesterov);
        let mut p = params(0.3);
        let mut state = optimizer.init(&p).unwrap();
        let (mut naive, mut trace) = (flat(&p), vec![0.0; 17]);
        for step in 0..4 {
            let (grads, each) = examples(3 + step, step as f64);
            let (mut mean, mut clipped) = (vec![0.0; 17], 0);
            for g in &each {
                let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
                clipped += usize::from(norm > clip);
                mean.iter_mut().zip(g).for_each(|(m, g)| *m += g * (clip / norm).min(1.0) / each.len() as f64);
            }
            // Last axis first.
            let before = (p.clone(), state.clone());
            let swapped = grads.0.clone().permuted_axes([2, 1, 0]).as_standard_layout().into_owned();
            let grads_in_fortran = (swapped.permuted_axes([2, 1, 0]), grads.1.clone());
            let (mut q, mut of_q) = before;
            optimizer.step_per_example(&mut p, &grads, &mut state).unwrap();
            optimizer.step_per_example(&mut q, &grads_in_fortran, &mut of_q).unwrap();
            flat(&p).iter().zip(flat(&q)).for_each(|(p, q)| close(*p, q, 1e-14));
            for ((p, trace), g) in naive.iter_mut().zip(&mut trace).zip(&mean) {
                *trace = momentum * *trace + g;
                *p -= 0.1 * if nesterov { momentum * *trace + g } else { *trace };
            }
            same(&p, &naive);
            assert_eq!(state.num_clipped(), clipped);
        }
    }
}

#[test]
fn the_noise_of_a_private_mean_is_as_large_as_it_says() {
    let n = 4;
    let optimizer = differentially_private_aggregate(0.5, 3.0, 42);
    let params = (vec![0.0_f64; 5000], Array2::<f32>::zeros((50, 100)));
    let grads = (Array2::<f64>::zeros((n, 5000)), ndarray::Array3::<f32>::zeros((n, 50, 100)));
    let mut state = optimizer.init(&params).unwrap();
    let mut first = Vec::new();
    for _ in 0..2 {
        let updates = optimizer.update_per_example(&grads, &mut state, &params).unwrap();
        let mut all = updates.to_vec::<f64>("0").unwrap();
        all.extend(updates.to_vec::<f32>("1").unwrap().into_iter().map(f64::from));
        // Standard deviation 0.5·3/4.
        let (mean, square) =
            all.iter().fold((0.0, 0.0), |(m, s), x| (m + x / all.len() as f64, s + x * x / all.len() as f64));
        assert!(mean.abs() < 0.02 && (square.sqrt() - 0.375).abs() < 0.01, "{mean} {square}");
        assert!(first.iter().zip(&all).all(|(a, b)| a != b), "every step has its own noise");
        first = all;
    }
    assert_eq!(state.aggregate().count.get(), 2);
    // Fortran order does not matter.
    let mut again = optimizer.init(&(vec![0.0_f64; 5000], fortran32(&params.1))).unwrap();
    let params = (vec![0.0_f64; 5000], fortran32(&params.1));
    optimizer.update_per_example(&grads, &mut again, &params).unwrap();
    let updates = optimizer.update_per_example(&grads, &mut again, &params).unwrap();
    let matrix: Vec<f64> = updates.to_vec::<f32>("1").unwrap().into_iter().map(f64::from).collect();
    assert_eq!(first[5000..], matrix);
}

fn fortran32(x: &Array2<f32>) -> Array2<f32> {
    use ndarray::ShapeBuilder;
    let mut y = Array2::zeros(x.dim().f());
    y.assign(x);
    y
}

#[test]
fn gradients_of_examples_must_fit() {
    let optimizer = dpsgd(0.1, 1.0, 1.0, 7);
    let mut p = (vec![0.0_f32; 2], 0.0_f64);
    let mut state = optimizer.init(&p).unwrap();
    let two = Array2::<f32>::zeros((2, 2));
    let error = optimizer.step_per_example(&mut p, &(two.clone(), vec![0.0_f64; 3]), &mut state).unwrap_err();
    assert!(error.is_structure(), "{error}");
    assert!(error.to_string().contains("1: expected shape [2], found [3]"), "{error}");
    assert!(
        optimizer.step_per_example(&mut p, &(vec![0.0_f32; 2], 0.0_f64), &mut state).is_err(),
        "no axis of examples"
    );
    assert!(
        optimizer.step_per_example(&mut p, &(Array2::<f32>::zeros((0, 2)), Vec::<f64>::new()), &mut state).is_err()
    );
    assert_eq!((p.clone(), state.aggregate().count.get()), ((vec![0.0; 2], 0.0), 0));
    optimizer.step_per_example(&mut p, &(two, vec![0.0_f64; 2]), &mut state).unwrap();
    assert!(dpsgd(0.1, 0.0, 1.0, 7).init(&p).is_err());
    assert!(dpsgd(0.1, 1.0, -1.0, 7).init(&p).is_err());
    let mut p = vec![0.0_f64; 2];
    let optimizer = dpsgd(0.1, 1.0, 0.0, 7);
    let mut state = optimizer.init(&p).unwrap();
    optimizer.step_per_example(&mut p, &ndarray::arr2(&[[1.0, f64::NAN], [1.0, 1.0]]), &mut state).unwrap();
    assert!(p.iter().all(|p| p.is_nan()));
}

/// Mean and deviation are computed while all values have equal weight.
#[test]
fn skip_on_spike_skips_norms_far_above_the_mean() {
    let norms: Vec<f64> =
        (0..40).map(|i| 2.0 + (1.3 * f64::from(i)).sin() + if i % 9 == 8 { 6.0 } else { 0.0 }).collect();
    // In a chain, behind a stateful stage.
    let optimizer =
        chain((trace(0.0), skip_on_spike(adam(0.1), 3.0).decay(0.95).warmup_steps(5).max_consecutive(3), scale(2.0)));
    let mut p = params(0.3);
    let mut state = optimizer.init(&p).unwrap();
    let (mut naive, mut adam) = (flat(&p), NaiveAdam::new(17));
    let (mut n, mut mean, mut variance, mut counted, mut spikes) = (0, 0.0, 0.0, Vec::new(), 0);
    for (step, norm) in norms.iter().enumerate() {
        let mut grads = params(step as f64);
        let length = flat(&grads).iter().map(|x| x * x).sum::<f64>().sqrt();
        grads.0.mapv_inplace(|x| x * norm / length);
        grads.1.mapv_inplace(|x| (f64::from(x) * norm / length) as f32);
        let outcome = optimizer.step(&mut p, &grads, &mut state).unwrap();
        let spike = n >= 5 && *norm > mean + 3.0 * f64::sqrt(variance);
        assert_eq!((outcome.skipped(), outcome.emitted()), (spike, !spike), "step {step}");
        if spike {
            spikes += 1;
        } else {
            counted.push(*norm);
            n += 1;
            if n <= 20 {
                mean = counted.iter().sum::<f64>() / f64::from(n);
                variance = counted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
            } else {
                let d = norm - mean;
                mean += 0.05 * d;
                variance = 0.95 * (variance + 0.05 * d * d);
            }
            let u = adam.update(0.1, &flat(&grads));
            add(&mut naive, &u.iter().map(|u| 2.0 * u).collect::<Vec<_>>());
        }
        close(state.1.mean(), mean, 1e-6);
        close(state.1.deviation(), variance.sqrt(), 1e-6);
        flat(&p).iter().zip(&naive).for_each(|(ours, naive)| close(*ours, *naive, 2e-5));
    }
    assert!(spikes >= 3);
    assert_eq!(state.1.total_spikes().get(), spikes);
}

#[test]
fn skip_on_spike_accepts_persistent_spikes() {
    let optimizer = skip_on_spike(sgd(1.0), 6.0).of_loss().warmup_steps(2).max_consecutive(2);
    let mut p = 0.0_f64;
    let mut state = optimizer.init(&p).unwrap();
    let done = |loss: f64, p: &mut f64, state: &mut gradchain::OptState<_>| {
        !optimizer.step_with(p, &1.0, extra::value(loss), state).unwrap().skipped()
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let losses = [1.0, nan, 1.5, 1.0, 9.0, inf, 9.0, 9.0, 9.5, 8.0, -50.0, 999.0];
    let expected = [true, false, true, true, false, false, false, true, true, true, true, false];
    for (i, (loss, expected)) in losses.into_iter().zip(expected).enumerate() {
        assert_eq!(done(loss, &mut p, &mut state), expected, "step {i}");
    }
    assert_eq!(p, -7.0);
    assert!(skip_on_spike(sgd(1.0), -1.0).init(&p).is_err());
    assert!(skip_on_spike(sgd(1.0), 1.0).decay(1.0).init(&p).is_err());
    // Not finite: always skipped.
    let optimizer = skip_on_spike(sgd(1.0), 6.0).max_consecutive(0);
    let mut state = optimizer.init(&p).unwrap();
    for _ in 0..5 {
        assert!(optimizer.step(&mut p, &f64::NAN, &mut state).unwrap().skipped());
    }
    assert_eq!(p, -7.0);
}

#[test]
fn a_hyperparameter_is_set_wherever_it_is_injected_or_nowhere() {
    let groups = |b: Boxed| {
        let members = vec![("a", boxed(inject_hyperparams(sgd(0.5)))), ("b", b)];
        partition(members, Labels::tree([("0", "a"), ("1", "b")]))
    };
    let params = (1.0_f64, 1.0_f64);
    let rates = |state: &mut OptState<_>| {
        let mut rates = Vec::new();
        for (_, hyperparams) in injected_hyperparams(&mut **state) {
            rates.push(hyperparams.get("learning_rate"));
        }
        rates
    };
    let optimizer = groups(boxed(chain((clip(9.0), inject_hyperparams(adamw(0.5))))));
    let mut state = optimizer.init(&params).unwrap();
    state.set_hyperparam("learning_rate", 0.25).unwrap();
    assert_eq!(rates(&mut state), [Some(0.25); 2]);
    state.set_hyperparam("weight_decay", 0.5).unwrap();
    let mut moved = params;
    optimizer.step(&mut moved, &(1.0, 0.0), &mut state).unwrap();
    assert_eq!(moved, (1.0 - 0.25, 1.0 - 0.25 * 0.5));
    // By the group, or any part of the path.
    state.set_hyperparam("a.learning_rate", 0.125).unwrap();
    assert_eq!(rates(&mut state), [Some(0.125), Some(0.25)]);
    state.set_hyperparam("b.learning_rate", 0.5).unwrap();
    assert_eq!(rates(&mut state), [Some(0.125), Some(0.5)]);
    for (name, value, said) in [
        (".learning_rate", 0.1, "unknown hyperparameter `.learning_rate`; did you mean `a.learning_rate`?"),
        ("c.learning_rate", 0.1, "unknown hyperparameter `c.learning_rate`; did you mean `a.learning_rate`?"),
        ("a.b.learning_rate", 0.1, "unknown hyperparameter `a.b.learning_rate`"),
        ("learning_rate", f64::NAN, "argument `learning_rate` must be finite, found NaN"),
        ("learning_rat", 0.1, "set_hyperparam: unknown hyperparameter `learning_rat`; did you mean `learning_rate`?"),
        ("weight_decay", f64::INFINITY, "argument `weight_decay`"),
    ] {
        let error = state.set_hyperparam(name, value).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }

    let scheduled = groups(boxed(inject_hyperparams(adamw(linear(0.5, 0.1, 9)))));
    let mut state = scheduled.init(&params).unwrap();
    let error = state.set_hyperparam("learning_rate", 0.25).unwrap_err().to_string();
    assert!(error.contains("put `inject_hyperparams(scale(1.0))` behind it and set `step_size`"), "{error}");
    assert_eq!(rates(&mut state), [Some(0.5); 2], "the first is as it was");

    let error = sgd(0.1).init(&params).unwrap().set_hyperparam("learning_rate", 0.1).unwrap_err().to_string();
    assert!(error.contains("this optimizer has no `inject_hyperparams`"), "{error}");
}

/// Surrounding wrappers do not matter.
#[test]
fn wrappers_add_no_level_to_the_paths_of_hyperparameters() {
    let backbone = |inner: Boxed| {
        partition(
            vec![("backbone", inner), ("head", boxed(sgd(0.1)))],
            Labels::tree([("0", "backbone"), ("1", "head")]),
        )
    };
    let inside: [Boxed; 4] = [
        boxed(inject_hyperparams(sgd(0.5))),
        boxed(freezable(inject_hyperparams(sgd(0.5)))),
        boxed(inject_hyperparams(freezable(sgd(0.5)))),
        boxed(multi_steps(apply_if_finite(inject_hyperparams(params_ema(freezable(sgd(0.5)), 0.9)), 3), 1)),
    ];
    for inner in inside {
        let is_injected = !format!("{inner:?}").contains("ParamsEma");
        let optimizer = backbone(inner);
        let mut params = (1.0_f64, 1.0_f64);
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &(1.0, 1.0), &mut state).unwrap();
        let readings = optimizer.readings(&state).unwrap();
        let rate = readings.iter().find(|reading| reading.path() == "backbone.learning_rate").unwrap();
        assert_eq!((rate.value(), rate.name(), rate.part()), (0.5, "learning_rate", "sgd"), "{readings}");
        assert_eq!(readings.get("backbone.learning_rate"), Ok(0.5));
        let paths: std::collections::BTreeSet<String> = readings.iter().map(ToString::to_string).collect();
        assert_eq!(paths.len(), readings.iter().count(), "no two have one path: {readings}");
        if is_injected {
            let error = state.set_hyperparam("backbone.learning_rat", 0.25).unwrap_err().to_string();
            assert!(error.contains("did you mean `backbone.learning_rate`?"), "{error}");
            state.set_hyperparam(rate.path(), 0.25).unwrap();
            optimizer.step(&mut params, &(1.0, 1.0), &mut state).unwrap();
            assert_eq!(optimizer.readings(&state).unwrap().get("backbone.learning_rate"), Ok(0.25));
        }
    }
    // The outer one keeps the path.
    let nested = params_ema(params_ema(sgd(0.5), 0.5), 0.75);
    let state = nested.init(&1.0_f64).unwrap();
    let readings = nested.readings(&state).unwrap();
    let decays: Vec<_> = readings.iter().filter(|r| r.name() == "decay").map(|r| (r.path(), r.value())).collect();
    assert!(decays.contains(&("decay", 0.75)) && decays.contains(&("inner.decay", 0.5)), "{readings}");
    assert_eq!((readings.get("decay"), readings.get("inner.decay")), (Ok(0.75), Ok(0.5)));
}

/// The error for setting a scheduled rate suggests this.
#[test]
fn a_scheduled_rate_is_scaled_by_hand() {
    let optimizer = chain((sgd(linear(0.5, 0.25, 1)), inject_hyperparams(scale(1.0))));
    let mut params = 0.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    state.set_hyperparam("step_size", 0.5).unwrap();
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    assert_eq!(params, -0.5 - 0.5 * 0.25);
}
