//! 16-bit parameters: master copies, compensated sums, stochastic rounding.

use gradchain::needs::Nothing;
use gradchain::optimizer::{dog, sm3};
use gradchain::prelude::*;
use gradchain::state::{AverageOptions, average};
use gradchain::transform::{kahan_summation, scale, scale_by_trust_ratio, stochastic_rounding};
use gradchain::tree::DynElement;
use gradchain::wrapper::master;
use gradchain::{DType, GradientTransformation, Migration};
use half::{bf16, f16};
use ndarray::{Array1, Array2, ShapeBuilder};

fn wave(i: usize) -> f32 {
    (i as f32 * 0.7).sin()
}

/// Steps with gradients that every dtype holds exactly.
fn steps<T, P>(t: &T, params: &mut P, grads: impl Fn(usize) -> P, n: usize) -> OptState<T>
where
    T: GradientTransformation<Needs = Nothing>,
    P: gradchain::TreeMut,
{
    let mut state = t.init(params).unwrap();
    for step in 0..n {
        t.step(params, &grads(step), &mut state).unwrap();
    }
    state
}

/// Returns parameters away from 0, of both signs, around 1.
fn start(i: usize) -> f32 {
    let size = [0.5, 3.0, 40.0, 0.02][i % 4];
    bf16::from_f32(if i.is_multiple_of(3) { -size } else { size } * (1.5 + 0.4 * wave(i))).to_f32()
}

/// Checks that the master matches `f32` training bit for bit, and the leaf is its rounding.
///
/// That holds if no step halves a parameter.
fn master_is_training_in_f32<H, T>(inner: T, of: fn(f32) -> H, back: fn(H) -> f32)
where
    H: DynElement,
    Array1<H>: gradchain::TreeMut,
    T: GradientTransformation<Needs = Nothing> + Clone,
{
    let n = 1100;
    let gradient = |step: usize, i: usize| bf16::from_f32(wave(i * 31 + step * 7)).to_f32();
    let mut single = Array1::from_shape_fn(n, start);
    let mut held = single.mapv(of);
    steps(&inner, &mut single, |step| Array1::from_shape_fn(n, |i| gradient(step, i)), 20);
    let state = steps(&master(inner), &mut held, |step| Array1::from_shape_fn(n, |i| of(gradient(step, i))), 20);
    assert_eq!(state.master().get::<f32>(0).unwrap(), single.as_slice().unwrap());
    for (held, single) in held.iter().zip(&single) {
        assert_eq!(back(*held), back(of(*single)));
    }
}

#[test]
fn the_master_has_the_bits_of_training_in_f32() {
    master_is_training_in_f32(sgd(1e-4).momentum(0.9), bf16::from_f32, bf16::to_f32);
    master_is_training_in_f32(adamw(1e-4).weight_decay(0.1), bf16::from_f32, bf16::to_f32);
    master_is_training_in_f32(adamw(1e-4).weight_decay(0.1), f16::from_f32, f16::to_f32);
    // Passes that read parameters, and whole leaves.
    let passes = chain((clip_by_global_norm(0.5), scale_by_adam(), scale_by_trust_ratio(), scale(-1e-5)));
    master_is_training_in_f32(passes, bf16::from_f32, bf16::to_f32);
    master_is_training_in_f32(sm3(1e-4), bf16::from_f32, bf16::to_f32);
    master_is_training_in_f32(boxed(adamw(1e-4)), bf16::from_f32, bf16::to_f32);
    master_is_training_in_f32(dog(), bf16::from_f32, bf16::to_f32);
}

/// Compares typed loops, which know the rounding at compile time, with boxes, which get it as an argument.
fn known_and_told_are_the_same<H: DynElement>(of: fn(f32) -> H)
where
    Array1<H>: gradchain::TreeMut,
{
    for n in [1, 31, 64, 1100] {
        let trained = |t: &Boxed| {
            let gradient = |step: usize, i: usize| of(bf16::from_f32(wave(i * 31 + step * 7)).to_f32());
            let mut params = Array1::from_shape_fn(n, |i| of(start(i)));
            steps(t, &mut params, |step| Array1::from_shape_fn(n, |i| gradient(step, i)), 30);
            params
        };
        let kahan = boxed(chain((adamw(1e-3), kahan_summation())));
        let members: Vec<Boxed> = vec![boxed(adamw(1e-3)), boxed(kahan_summation())];
        assert_eq!(trained(&kahan), trained(&boxed(chain(members))), "kahan_summation, {}, {n}", H::DTYPE);
        let members: Vec<Boxed> = vec![boxed(scale(1.0)), boxed(master(adamw(1e-3)))];
        assert_eq!(trained(&boxed(master(adamw(1e-3)))), trained(&boxed(chain(members))), "master, {}, {n}", H::DTYPE);
    }
}

#[test]
fn rounding_is_the_same_where_a_loop_knows_the_type_and_where_it_is_told() {
    known_and_told_are_the_same(bf16::from_f32);
    known_and_told_are_the_same(f16::from_f32);
    known_and_told_are_the_same(|x| x);
}

#[test]
fn clipping_inside_and_in_front_are_the_same() {
    let grads = |step: usize| Array1::from_shape_fn(700, |i| bf16::from_f32(wave(i + step)));
    let params = Array1::from_shape_fn(700, |i| bf16::from_f32(start(i)));
    let [mut inside, mut front] = [params.clone(), params];
    let within = steps(&master(chain((clip_by_global_norm(0.1), adamw(1e-3)))), &mut inside, grads, 5);
    let before = steps(&chain((clip_by_global_norm(0.1), master(adamw(1e-3)))), &mut front, grads, 5);
    assert_eq!(inside, front);
    assert_eq!(within.master().get::<f32>(0), before.1.master().get::<f32>(0));
}

#[test]
fn only_leaves_of_16_bits_have_a_master() {
    let grads = |_: usize| (vec![bf16::ONE; 3], vec![1.0_f32; 3], vec![1.0_f64; 3]);
    let [mut held, mut plain] = [(); 2].map(|()| grads(0));
    let state = steps(&master(adamw(1e-3)), &mut held, grads, 5);
    steps(&adamw(1e-3), &mut plain, grads, 5);
    assert_eq!((&held.1, &held.2), (&plain.1, &plain.2));
    assert_eq!([0, 1, 2].map(|leaf| state.master().dtype(leaf)), [Some(DType::F32), None, None]);
    assert_eq!(state.master().bytes(), 3 * 4);
    let plan = master(adamw(1e-3)).plan(&held).unwrap();
    assert_eq!(plan.state.total_bytes(), adamw(1e-3).plan(&held).unwrap().state.total_bytes() + 3 * 4);
}

#[test]
fn the_master_adopts_only_externally_changed_parameters() {
    let optimizer = master(sgd(1.0));
    let small = || vec![bf16::from_f32(2.0_f32.powi(-12)); 5];
    let mut params = vec![bf16::ONE; 5];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &small(), &mut state).unwrap();
    assert_eq!(params, [bf16::ONE; 5]);
    // A loaded, a projected and a clipped parameter, and NaN.
    params[1] = bf16::from_f32(-3.0);
    params[2] = bf16::ZERO;
    params[3] = bf16::ONE;
    params[4] = bf16::NAN;
    optimizer.step(&mut params, &small(), &mut state).unwrap();
    let step = 2.0_f32.powi(-12);
    let held = state.master().get::<f32>(0).unwrap();
    assert_eq!(held[..4], [1.0 - 2.0 * step, -3.0 - step, -step, 1.0 - 2.0 * step]);
    assert!(held[4].is_nan() && params[4].is_nan());
    let optimizer = master(multi_steps(sgd(1.0), 2));
    let mut params = vec![bf16::ONE];
    let mut state = optimizer.init(&params).unwrap();
    for emitted in [false, true, false, true] {
        let outcome = optimizer.step(&mut params, &vec![bf16::from_f32(step)], &mut state).unwrap();
        assert_eq!(outcome.emitted(), emitted);
    }
    assert_eq!(state.master().get::<f32>(0), Some(&[1.0 - 2.0 * step][..]));
}

#[test]
fn parameters_stay_within_rounding_of_the_master() {
    // Steps across zero and back, larger than the parameter, with bits that an update cannot hold.
    let n = 2000;
    let mut params = Array1::from_shape_fn(n, |i| bf16::from_f32(start(i)));
    let optimizer = master(sgd(1.0));
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..6 {
        let before = params.clone();
        let gradient = Array1::from_shape_fn(n, |i| bf16::from_f32(start(i) * (1.0 + 1.3 * wave(i + 5 * step))));
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        for (i, master) in state.master().get::<f32>(0).unwrap().iter().enumerate() {
            let (p, before) = (params[i].to_f32(), before[i].to_f32());
            let rounded = bf16::from_f32(*master).to_f32();
            let update = (rounded - before).abs();
            assert!((p - rounded).abs() <= update * 2.0_f32.powi(-7), "{before:e} {master:e} {p:e}");
            let near = rounded / before;
            assert!(p == rounded || !(0.5..=2.0).contains(&near), "{before:e} {master:e} {p:e}");
        }
    }
    // Without gradients, parameters become the rounded master.
    let still = Array1::from_elem(n, bf16::ZERO);
    optimizer.step(&mut params, &still, &mut state).unwrap();
    let master = state.master().get::<f32>(0).unwrap();
    assert!(params.iter().zip(master).all(|(p, master)| *p == bf16::from_f32(*master)));
}

#[test]
fn a_master_is_averaged_migrated_and_masked_like_other_state() {
    let grads = |step: usize| (vec![bf16::from_f32(1e-3 * (1.0 + step as f32)); 2], vec![bf16::ONE; 2]);
    let ones = || (vec![bf16::ONE; 2], vec![bf16::ONE; 2]);
    let optimizer = master(sgd(0.1));
    let [mut one, mut other] = [ones(), ones()];
    let first = steps(&optimizer, &mut one, grads, 1);
    let second = steps(&optimizer, &mut other, |step| grads(step + 1), 1);
    let mean = average(&[(&*first, 1.0), (&*second, 1.0)], AverageOptions::default()).unwrap();
    let [a, b, m] = [&*first, &*second, &mean].map(|state| f64::from(state.master().get::<f32>(0).unwrap()[0]));
    assert_eq!(m as f32, ((a + b) / 2.0) as f32);

    // Into an optimizer with another part in front, and back.
    let chained = chain((clip(10.0), optimizer.clone()));
    let moved = first.migrate(&chained, &one, &Migration::new().wrap_in_chain("", 1)).unwrap();
    assert_eq!(moved.1.master().get::<f32>(0), first.master().get::<f32>(0));

    let some = masked(optimizer.clone(), Mask::path("1"));
    let mut params = ones();
    let state = steps(&some, &mut params, grads, 3);
    assert_eq!(state.inner().master().leaves().collect::<Vec<_>>(), [1]);

    let groups = partition(
        (("held", optimizer), ("plain", sgd(0.1))),
        Labels::by(|leaf| if leaf.path() == "0" { "held" } else { "plain" }),
    );
    let mut params = ones();
    steps(&groups, &mut params, grads, 3);
    let mut plain = ones();
    steps(&sgd(0.1), &mut plain, grads, 3);
    assert_eq!(params.1, plain.1);
}

/// Returns the end of a hundred steps towards 0.9, each too small for rounding to nearest.
fn after<T: GradientTransformation<Needs = Nothing>>(last: T) -> f64 {
    let mut params = vec![bf16::ONE; 2048];
    steps(&last, &mut params, |_| vec![bf16::ONE; 2048], 100);
    params.iter().map(|p| p.to_f64()).sum::<f64>() / 2048.0
}

#[test]
fn master_kahan_and_stochastic_rounding_prevent_stalled_training() {
    assert_eq!(after(sgd(1e-3)), 1.0);
    assert_eq!(after(adam(1e-3)), 1.0);
    let nearest = f64::from(bf16::from_f32(0.9));
    assert_eq!(after(master(sgd(1e-3))), nearest);
    assert_eq!(after(master(adam(1e-3))), nearest);
    assert_eq!(after(chain((sgd(1e-3), kahan_summation()))), nearest);
    assert_eq!(after(chain((adam(1e-3), kahan_summation()))), nearest);
    // Five standard deviations of the mean of 2048 walks of 100 steps; a step's is at most half the distance of two
    // neighbours.
    let tolerance = 5.0 * 2.0_f64.powi(-9) * (100.0_f64 / 2048.0).sqrt();
    assert!((after(chain((sgd(1e-3), stochastic_rounding(1)))) - 0.9).abs() < tolerance);
    assert!((after(chain((adam(1e-3), stochastic_rounding(2)))) - 0.9).abs() < tolerance);
}

/// Checks that sums are unbiased.
fn is_right_in_the_mean<H>(of: fn(f32) -> H, back: fn(H) -> f64, digits: i32)
where
    H: DynElement,
    Vec<H>: gradchain::TreeMut,
{
    let n = 20_000;
    for (i, p) in [0.0, 1.0, -1.0, 1.99, 0.003, -700.0, 1e-7].into_iter().enumerate() {
        for (j, part) in [0.0, 1e-5, -1e-4, 0.013, -0.4, 0.98, -0.77, -1.0].into_iter().enumerate() {
            let p = of(p);
            let u = if back(p) == 0.0 { part } else { part * back(p) };
            let optimizer = chain((sgd(1.0), stochastic_rounding((8 * i + j) as u64)));
            let mut params = vec![p; n];
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &vec![-u as f32; n], &mut state).unwrap();
            let wanted = back(p) + f64::from(u as f32);
            let shrinks = wanted.abs() < back(p).abs() && wanted.abs() < u.abs();
            let size = if shrinks { u.abs() } else { wanted.abs() };
            let size = size.max(2.0_f64.powi(if digits == 11 { -14 } else { -126 }));
            let step = 2.0_f64.powi(size.log2().floor() as i32 + 1 - digits);
            let mean = params.iter().map(|p| back(*p)).sum::<f64>() / n as f64;
            // A neighbour is at most one step away: five standard deviations, plus the rounding of the sum in `f32`.
            let tolerance = step * (2.5 / (n as f64).sqrt() + 2.0_f64.powi(digits - 23));
            assert!((mean - wanted).abs() <= tolerance, "{} {u:e}: {mean:e}, expected {wanted:e}", back(p));
            assert!(params.iter().all(|x| (back(*x) - wanted).abs() <= step), "{} {u:e}: neighbours", back(p));
        }
    }
}

#[test]
fn rounding_by_chance_is_right_in_the_mean() {
    is_right_in_the_mean(bf16::from_f32, bf16::to_f64, 8);
    is_right_in_the_mean(f16::from_f32, f16::to_f64, 11);
}

#[test]
fn stochastic_rounding_depends_on_seed_step_path_and_index_only() {
    let optimizer = |seed| chain((sgd(1e-3), stochastic_rounding(seed)));
    let shape = (130, 150);
    let rows = Array2::from_elem(shape, bf16::ONE);
    let columns = Array2::from_elem(shape.f(), bf16::ONE);
    let run = |seed: u64, params: &Array2<bf16>, n| {
        let mut params = params.clone();
        steps(&optimizer(seed), &mut params, |_| rows.clone(), n);
        params
    };
    let first = run(1, &rows, 3);
    assert_eq!(first, run(1, &columns, 3), "memory order");
    assert_ne!(first, run(2, &rows, 3), "seed");
    assert_ne!(run(1, &rows, 1), rows, "some moved");
    #[cfg(feature = "rayon")]
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(first, pool.install(|| run(1, &rows, 3)), "{threads} threads");
    }
    // Other leaves do not matter.
    let mut beside = (vec![1.0_f32; 3], first.mapv(|_| bf16::ONE), vec![bf16::ONE; 7]);
    let mut alone = ((), rows.clone(), ());
    steps(&optimizer(1), &mut beside, |_| (vec![1.0; 3], rows.clone(), vec![bf16::ONE; 7]), 3);
    steps(&optimizer(1), &mut alone, |_| ((), rows.clone(), ()), 3);
    assert_eq!(beside.1, alone.1);
    assert_ne!(beside.1, first, "a leaf of another path");
    let mut single = vec![1.0_f32; 5];
    let mut plain = single.clone();
    steps(&optimizer(1), &mut single, |_| vec![0.3; 5], 3);
    steps(&sgd(1e-3), &mut plain, |_| vec![0.3; 5], 3);
    assert_eq!(single, plain);
}

#[test]
fn compensation_holds_the_rounding_error() {
    // Steps of all sizes, also across zero: parameter plus compensation is the `f64` sum, up to 32 bits.
    let n = 500;
    let optimizer = chain((sgd(1.0), kahan_summation()));
    let mut params = Array1::from_shape_fn(n, |i| bf16::from_f32(start(i)));
    let mut sums: Vec<f64> = params.iter().map(|p| p.to_f64()).collect();
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..50 {
        let size = 10.0_f32.powi(-(step as i32 % 5));
        let gradient = Array1::from_shape_fn(n, |i| bf16::from_f32(0.1 * size * start(i) * wave(i + 3 * step)));
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        sums.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum -= g.to_f64());
    }
    let compensation = state.1.moment("compensation").unwrap();
    assert_eq!(compensation.dtype(0), Some(DType::Bf16));
    for (i, c) in compensation.get::<bf16>(0).unwrap().iter().enumerate() {
        let (p, size) = (params[i].to_f64(), f64::from(start(i)).abs());
        // Each of 50 compensations is rounded by at most 2⁻⁹ of 2⁻⁸ of the parameter.
        assert!((p + c.to_f64() - sums[i]).abs() <= 50.0 * 2.0_f64.powi(-16) * size, "{p:e} {c:e} {:e}", sums[i]);
        assert!(c.to_f64().abs() <= 2.0_f64.powi(-7) * size, "{p:e} {c:e}");
    }
}
