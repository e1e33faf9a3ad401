//! Optimizers that find their step size, against naive `f64` oracles from the papers; evaluation parameters.

use gradchain::needs::Value;
use gradchain::optimizer::{dadapt_adamw, momo, momo_adam, polyak_sgd, schedule_free_sgd};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{PlateauMode, PolyakVariant, ReduceOnPlateau, reduce_on_plateau, scale_by_polyak};
use gradchain::wrapper::{mechanize, schedule_free};
use gradchain::{DType, GradientTransformation, extra};
use ndarray::{Array1, Array2};
use proptest::prelude::*;

/// Returns different numbers between −1 and 1.
fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

const N: usize = 12;

const LOSSES: [f64; 10] = [1.4, 0.9, 1.2, 0.7, 0.75, 0.72, 0.2, 0.5, 0.45, 0.44];

type Small<T> = (Array2<T>, Array1<T>, T);

fn tree<T: Copy>(values: &[f64], of: fn(f64) -> T) -> Small<T> {
    let values: Vec<T> = values.iter().map(|x| of(*x)).collect();
    (Array2::from_shape_vec((2, 3), values[..6].to_vec()).unwrap(), Array1::from(values[6..11].to_vec()), values[11])
}

fn flat<T: Copy + Into<f64>>(tree: &Small<T>) -> Vec<f64> {
    tree.0.iter().chain(&tree.1).chain([&tree.2]).map(|x| (*x).into()).collect()
}

type After = (Vec<f64>, Option<Vec<f64>>);

/// Maps parameters, gradients, loss and step, from 0, to the result.
trait Oracle: FnMut(&[f64], &[f64], f64, usize) -> After {}
impl<F: FnMut(&[f64], &[f64], f64, usize) -> After> Oracle for F {}

fn close(what: &str, step: usize, ours: &[f64], oracle: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), oracle.len());
    for (i, (a, b)) in ours.iter().zip(oracle).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}, step {step}, element {i}: {a} is not {b}");
    }
}

/// Compares with an oracle, in `f64` and `f32`.
fn agrees<O: Oracle>(t: Boxed<Value>, oracle: impl Fn() -> O, tolerance: f64) {
    macro_rules! run {
        ($T:ty, $of:expr, $tolerance:expr) => {{
            let (mut oracle, mut p) = (oracle(), wave(N, 0.1));
            let mut params: Small<$T> = tree(&p, $of);
            let mut state = t.init(&params).unwrap();
            for (step, loss) in LOSSES.into_iter().enumerate() {
                let g = wave(N, 0.5 + (step / 2) as f64);
                t.step_with(&mut params, &tree::<$T>(&g, $of), extra::value(loss), &mut state).unwrap();
                let (after, evaluated) = oracle(&p, &g, loss, step);
                close(&format!("{t:?}"), step, &flat(&params), &after, $tolerance);
                if let Some(evaluated) = evaluated {
                    close("to evaluate", step, &flat(&*state.eval_params(&params).unwrap()), &evaluated, $tolerance);
                }
                p = after;
            }
        }};
    }
    run!(f64, |x| x, tolerance);
    run!(f32, |x| x as f32, 5e-5);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn zip(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fn mean(a: &mut [f64], keep: f64, take: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = keep * *a + take * b);
}

/// Equation 4 of Loizou et al., with and without the cap.
#[test]
fn polyaks_step_is_the_gap_over_the_squared_norm() {
    for (f_min, most, eps, plus) in [(0.0, 1.0, 0.0, false), (0.8, 0.05, 0.5, false), (0.8, 1.0, 0.1, true)] {
        let variant = if plus { PolyakVariant::SpsPlus } else { PolyakVariant::Sps };
        let size = move |g: &[f64], loss: f64| {
            let gap = if plus && loss < f_min { 0.0 } else { loss - f_min };
            (gap / (dot(g, g) + eps)).min(most)
        };
        let scale = scale_by_polyak().f_min(f_min).max_learning_rate(most).eps(eps).variant(variant);
        let plain = || move |p: &[f64], g: &[f64], loss, _| (zip(p, g, |p, u| p + size(g, loss) * u), None);
        agrees(Box::new(scale), plain, 1e-13);
        let descent = polyak_sgd().f_min(f_min).max_learning_rate(most).eps(eps).variant(variant);
        let scaling = |step: usize| 0.9 - 0.1 * step.min(5) as f64;
        let scaled = || {
            move |p: &[f64], g: &[f64], loss, step| {
                let g: Vec<f64> = g.iter().map(|g| -scaling(step) * g).collect();
                (zip(p, &g, |p, u| p + size(&g, loss) * u), None)
            }
        };
        agrees(Box::new(descent.scaling(linear(0.9, 0.4, 5))), scaled, 1e-13);
    }
}

#[test]
fn polyaks_step_is_zero_without_a_gradient_and_nan_without_a_loss() {
    let t = polyak_sgd();
    let mut params = vec![1.0_f32, 2.0];
    let mut state = t.init(&params).unwrap();
    t.step_with(&mut params, &vec![0.0_f32, 0.0], extra::value(3.0), &mut state).unwrap();
    assert_eq!(params, [1.0, 2.0]);
    t.step_with(&mut params, &vec![1.0_f32, 0.0], extra::value(f64::NAN), &mut state).unwrap();
    assert!(params[0].is_nan());
}

#[test]
fn a_plateau_is_a_number_of_means_without_improvement() {
    for (factor, patience, rtol, atol, cooldown, size, min_scale) in [
        (0.5, 1, 1e-4, 0.0, 0, 1, 0.0),
        (0.5, 2, 0.0, 0.1, 0, 1, 0.0),
        (0.25, 1, 0.05, 0.0, 2, 1, 0.1),
        (0.5, 1, 0.0, 0.05, 1, 2, 0.0),
    ] {
        let t = reduce_on_plateau().factor(factor).rtol(rtol).atol(atol).min_scale(min_scale);
        let t = t.patience(patience).cooldown(cooldown).accumulation_size(size);
        let oracle = || {
            let mut losses: Vec<f64> = Vec::new();
            move |p: &[f64], g: &[f64], loss, _| {
                losses.push(loss);
                let means = losses.chunks_exact(size as usize).map(|c| c.iter().sum::<f64>() / size as f64);
                let (mut best, mut bad, mut wait, mut scale) = (f64::INFINITY, 0, 0, 1.0_f64);
                for mean in means {
                    let better = mean < best - rtol * best - atol || best == f64::INFINITY;
                    (best, bad) = if better { (mean, 0) } else { (best, bad + 1) };
                    if wait > 0 {
                        (wait, bad) = (wait - 1, 0);
                    } else if bad == patience {
                        (scale, wait, bad) = ((scale * factor).max(min_scale), cooldown, 0);
                    }
                }
                (zip(p, g, |p, g| p - 0.1 * scale * g), None)
            }
        };
        agrees(Box::new(chain((sgd(0.1), t))), oracle, 1e-13);
    }
}

/// Returns scale and best value after each loss.
fn watched(plateau: &ReduceOnPlateau, losses: &[f64]) -> Vec<[f64; 2]> {
    let mut state = plateau.init(&0.0_f64).unwrap();
    let watch = |loss: &f64| {
        plateau.step_with(&mut 0.0_f64, &0.0, extra::value(*loss), &mut state).unwrap();
        [state.scale.get(), state.best_value.get()]
    };
    losses.iter().map(watch).collect()
}

/// -99.995 is above -100, though below 0.9999 times -100.
#[test]
fn a_negative_loss_that_rises_is_no_improvement() {
    let plateau = reduce_on_plateau().factor(0.5).patience(1);
    let seen = watched(&plateau, &[-100.0, -99.995, -100.005, -100.02]);
    assert_eq!(seen, [[1.0, -100.0], [0.5, -100.0], [0.25, -100.0], [0.25, -100.02]]);
    let rising = reduce_on_plateau().factor(0.5).patience(1).mode(PlateauMode::Max);
    assert_eq!(watched(&rising, &[1.0, 1.00005, 2.0, 1.5]), [[1.0, 1.0], [0.5, 1.0], [0.5, 2.0], [0.25, 2.0]]);
    // A relative tolerance of 1 is all of the best value.
    let all = reduce_on_plateau().factor(0.5).patience(1).rtol(1.0);
    assert_eq!(watched(&all, &[3.0, 1.0, -1.0, -1.9]), [[1.0, 3.0], [0.5, 3.0], [0.5, -1.0], [0.25, -1.0]]);
}

proptest! {
    /// For values of any sign; maximizing negates them.
    #[test]
    fn plateaus_know_better_from_worse(
        centre in prop::sample::select(vec![-1e3, -1.0, 0.0, 1.0, 1e3]),
        noise in prop::collection::vec(-1.0..1.0_f64, 1..20),
        rtol in prop::sample::select(vec![1e-4, 0.1, 1.0]),
        atol in prop::sample::select(vec![0.0, 0.05]),
    ) {
        let losses: Vec<f64> = noise.iter().map(|x| centre + x).collect();
        let plateau = reduce_on_plateau().factor(0.5).patience(2).rtol(rtol).atol(atol);
        let (mut best, mut bad, mut scale, mut expected) = (f64::INFINITY, 0, 1.0, Vec::new());
        for loss in &losses {
            let better = best.is_infinite() || *loss < best - rtol * best.abs() - atol;
            (best, bad) = if better { (*loss, 0) } else { (best, bad + 1) };
            (bad, scale) = if bad == 2 { (0, 0.5 * scale) } else { (bad, scale) };
            expected.push([scale, best]);
        }
        prop_assert_eq!(&watched(&plateau, &losses), &expected);
        let negative: Vec<f64> = losses.iter().map(|loss| -loss).collect();
        let seen = watched(&plateau.mode(PlateauMode::Max), &negative);
        prop_assert_eq!(seen, expected.iter().map(|[scale, best]| [*scale, -best]).collect::<Vec<_>>());
    }
}

#[test]
fn invalid_plateau_arguments_are_refused() {
    let refused = |t: ReduceOnPlateau, argument: &str| {
        let error = t.init(&0.0_f32).unwrap_err();
        assert!(error.is_argument() && error.to_string().contains(argument), "{error}");
    };
    refused(reduce_on_plateau().factor(1.0), "factor");
    refused(reduce_on_plateau().factor(-0.5), "factor");
    refused(reduce_on_plateau().rtol(-0.1), "rtol");
    refused(reduce_on_plateau().rtol(1.5), "rtol");
    refused(reduce_on_plateau().rtol(0.0), "rtol");
    refused(reduce_on_plateau().atol(-1.0), "atol");
    refused(reduce_on_plateau().patience(0), "patience");
    refused(reduce_on_plateau().accumulation_size(0), "accumulation_size");
}

/// Computes algorithm 1 of Defazio et al., with all three sequences, and powers of the largest learning rate as
/// weights.
fn schedule_free_oracle(
    b1: f64,
    power: f64,
    rate: impl Fn(usize) -> f64,
    mut base: impl FnMut(&[f64], &[f64], usize) -> Vec<f64>,
) -> impl Oracle {
    let (mut z, mut x, mut largest, mut total) = (Vec::new(), Vec::new(), 0.0_f64, 0.0);
    move |p: &[f64], g: &[f64], _, step| {
        if step == 0 {
            (z, x) = (p.to_vec(), p.to_vec());
        }
        largest = largest.max(rate(step + 1));
        let weight = largest.powf(power);
        total += weight;
        let moved = base(p, g, step);
        z = zip(&z, &moved, |z, d| z + d);
        x = zip(&x, &z, |x, z| x + weight / total * (z - x));
        (zip(&x, &z, |x, z| b1 * x + (1.0 - b1) * z), Some(x.clone()))
    }
}

#[test]
fn schedule_free_is_the_papers() {
    for (b1, power, rate, steps) in [(0.9, 2.0, 0.5, 0), (0.5, 1.0, 0.2, 4), (1.0, 0.0, 0.3, 3)] {
        let warm = move |count: usize| rate * if steps > 0 { (count as f64 / steps as f64).min(1.0) } else { 1.0 };
        let t = schedule_free_sgd().learning_rate(rate).b1(b1).weight_lr_power(power).weight_decay(0.1);
        let descend = move || {
            schedule_free_oracle(b1, power, warm, move |p, g, step| zip(p, g, |p, g| -warm(step) * (g + 0.1 * p)))
        };
        agrees(Box::new(t.warmup_steps(Some(steps))), descend, 1e-12);

        let t = schedule_free_adamw().learning_rate(rate).b1(b1).b2(0.9).eps(1e-3).weight_lr_power(power);
        let adam = move || {
            let mut v = vec![0.0; N];
            schedule_free_oracle(b1, power, warm, move |p, g, step| {
                mean(&mut v, 0.9, 0.1, &zip(g, g, |a, b| a * b));
                let unbias = 1.0 - 0.9_f64.powi(step as i32 + 1);
                let scaled = zip(g, &v, |g, v| g / ((v / unbias).sqrt() + 1e-3));
                zip(p, &scaled, |p, u| -warm(step) * (u + 0.2 * p))
            })
        };
        agrees(Box::new(t.weight_decay(0.2).warmup_steps(Some(steps))), adam, 1e-12);
    }
    // Decreasing, and different for the base.
    let rate = |count: usize| 0.5 - 0.05 * count.min(8) as f64;
    let t = schedule_free(sgd(0.3), linear(0.5, 0.1, 8)).b1(0.7);
    agrees(Box::new(t), || schedule_free_oracle(0.7, 2.0, rate, |_, g, _| g.iter().map(|g| -0.3 * g).collect()), 1e-12);
}

#[test]
fn a_warm_up_multiplies_a_schedule() {
    let mixed = schedule_free_sgd().learning_rate(linear(0.4, 0.0, 10)).warmup_steps(Some(5));
    let rate = |count: usize| (0.4 - 0.04 * count as f64) * (count as f64 / 5.0).min(1.0);
    let oracle = || schedule_free_oracle(0.9, 2.0, rate, move |_, g, step| g.iter().map(|g| -rate(step) * g).collect());
    agrees(Box::new(mixed), oracle, 1e-12);
}

/// Algorithm 4 of Mischenko and Defazio.
///
/// Its factors `1 − √β₂` cancel; it lacks the division by the first `d`.
#[test]
fn prodigy_is_the_papers() {
    let mut grown = 0;
    for (rate, b1, b2, b3, eps, d0, coef, decay, safe) in [
        (1.0, 0.9, 0.999, None, 1e-8, 1e-6, 1.0, 0.0, false),
        (0.5, 0.8, 0.9, Some(0.7), 0.1, 0.02, 50.0, 0.1, false),
        (1.0, 0.9, 0.99, None, 1e-8, 0.01, 50.0, 0.0, true),
    ] {
        let t = prodigy().learning_rate(linear(rate, 0.1, 20)).betas((b1, b2)).eps(eps).estim_lr0(d0);
        let t = t.estim_lr_coef(coef).weight_decay(decay).safeguard_warmup(safe);
        let t = b3.map_or(t.clone(), |b3| t.beta3(b3));
        let oracle = || {
            let b3 = b3.unwrap_or(b2.sqrt());
            let (mut x0, mut m, mut v, mut s) = (Vec::new(), vec![0.0; N], vec![0.0; N], vec![0.0; N]);
            let (mut r, mut d) = (0.0, d0);
            move |p: &[f64], g: &[f64], _, step: usize| {
                if step == 0 {
                    x0 = p.to_vec();
                }
                let t = step as i32 + 1;
                let gamma = rate + (0.1 - rate) * step as f64 / 20.0;
                let gamma = gamma * (1.0 - b2.powi(t)).sqrt() / (1.0 - b1.powi(t));
                mean(&mut m, b1, (1.0 - b1) * d, g);
                mean(&mut v, b2, (1.0 - b2) * d * d, &zip(g, g, |a, b| a * b));
                r = b3 * r + (1.0 - b3) * gamma * d * d * dot(g, &zip(&x0, p, |x0, p| x0 - p));
                // The safeguard omits the rate from the denominator.
                mean(&mut s, b3, (1.0 - b3) * if safe { 1.0 } else { gamma } * d * d, g);
                let next = d.max(coef * r / s.iter().map(|s| s.abs()).sum::<f64>());
                let step = zip(&m, &v, |m, v| m / (v.sqrt() + next * eps));
                let after = zip(p, &step, |p, u| p - gamma * d * (u + decay * p));
                d = next;
                (after, None)
            }
        };
        agrees(Box::new(t.clone()), oracle, 1e-11);
        let mut state = t.init(&wave(N, 0.1)).unwrap();
        after_all(&t, &mut state);
        grown += usize::from(state.estim_lr.get() > d0);
    }
    assert!(grown >= 2, "in most of the settings the estimate grows: it did in {grown}");
}

fn after_all<T: GradientTransformation<Needs = Nothing>>(t: &T, state: &mut OptState<T>) {
    let mut params = wave(N, 0.1);
    for step in 0..LOSSES.len() {
        t.step(&mut params, &wave(N, 0.5 + (step / 2) as f64), state).unwrap();
    }
}

/// Algorithm 5 of Defazio and Mishchenko.
#[test]
fn dadapt_adamw_is_the_papers() {
    for (rate, b1, b2, eps, d0, decay) in [(1.0, 0.9, 0.999, 1e-8, 1e-6, 0.0), (0.7, 0.5, 0.9, 1e-2, 0.02, 0.1)] {
        let t = dadapt_adamw().learning_rate(rate).betas((b1, b2)).eps(eps).estim_lr0(d0).weight_decay(decay);
        let oracle = || {
            let (mut m, mut v, mut s) = (vec![0.0; N], vec![0.0; N], vec![0.0; N]);
            let (mut r, mut d) = (0.0, d0);
            move |p: &[f64], g: &[f64], _, step: usize| {
                let t = step as i32 + 1;
                let lambda = d * rate * (1.0 - f64::powi(b2, t)).sqrt() / (1.0 - f64::powi(b1, t));
                let root = f64::sqrt(b2);
                r = root * r + (1.0 - root) * lambda * dot(g, &zip(&s, &v, |s, v| s / (v.sqrt() + eps)));
                mean(&mut m, b1, (1.0 - b1) * lambda, g);
                mean(&mut v, b2, 1.0 - b2, &zip(g, g, |a, b| a * b));
                mean(&mut s, root, (1.0 - root) * lambda, g);
                let step = zip(&m, &v, |m, v| m / (v.sqrt() + eps));
                d = d.max(r / ((1.0 - root) * s.iter().map(|s| s.abs()).sum::<f64>()));
                (zip(p, &step, |p, u| p - u - lambda * decay * p), None)
            }
        };
        agrees(Box::new(t.clone()), oracle, 1e-11);
        let mut state = t.init(&wave(N, 0.1)).unwrap();
        after_all(&t, &mut state);
        assert!(state.estim_lr.get() > d0, "the estimate grows");
    }
}

#[test]
fn estimates_stay_while_gradients_are_zero() {
    let mut params = vec![1.0_f64, 2.0];
    let (a, b) = (prodigy(), dadapt_adamw());
    let (mut of_a, mut of_b) = (a.init(&params).unwrap(), b.init(&params).unwrap());
    for _ in 0..3 {
        a.step(&mut params, &vec![0.0, 0.0], &mut of_a).unwrap();
        b.step(&mut params, &vec![0.0, 0.0], &mut of_b).unwrap();
    }
    assert_eq!((params, of_a.estim_lr.get(), of_b.estim_lr.get()), (vec![1.0, 2.0], 1e-6, 1e-6));
}

/// Algorithms 1 and 2 of Schaipp et al. with the proximal decay of section 3.2; `b2` selects MoMo-Adam.
fn momo_oracle(alpha: f64, b1: f64, b2: Option<(f64, f64)>, decay: f64, least: f64, adapt: bool) -> impl Oracle {
    let (mut m, mut v) = (vec![0.0; N], vec![0.0; N]);
    let (mut f, mut gamma, mut bound) = (0.0, 0.0, least);
    move |p: &[f64], g: &[f64], loss, step| {
        let t = step as i32 + 1;
        // MoMo starts from the first gradient, MoMo-Adam from zero.
        let keep = if b2.is_none() && step == 0 { 0.0 } else { b1 };
        let rho = if b2.is_some() { 1.0 - b1.powi(t) } else { 1.0 };
        mean(&mut m, keep, 1.0 - keep, g);
        f = keep * f + (1.0 - keep) * loss;
        gamma = keep * gamma + (1.0 - keep) * dot(g, p);
        let d = match b2 {
            None => vec![1.0; N],
            Some((b2, eps)) => {
                mean(&mut v, b2, 1.0 - b2, &zip(g, g, |a, b| a * b));
                v.iter().map(|v| eps + (v / (1.0 - b2.powi(t))).sqrt()).collect()
            }
        };
        let norm = dot(&m, &zip(&m, &d, |m, d| m / d));
        let (lambda, inner) = (1.0 + alpha * decay, dot(&m, p));
        let cap = lambda * (f - gamma) + inner;
        if adapt && cap < lambda * rho * bound {
            bound = (cap / (2.0 * rho * lambda)).max(least);
        }
        let tau = (alpha / rho).min((cap - lambda * rho * bound).max(0.0) / norm);
        if adapt {
            bound = ((f + inner - gamma - 0.5 * tau * norm) / rho).max(least);
        }
        let step = zip(&m, &d, |m, d| tau * m / d);
        (zip(p, &step, |p, u| p - u - alpha * decay / lambda * p), None)
    }
}

#[test]
fn momo_is_the_papers() {
    for (alpha, beta, decay, least, adapt) in [
        (1.0, 0.9, 0.0, 0.0, false),
        (0.2, 0.5, 0.3, 0.4, false),
        (0.5, 0.9, 0.1, -1.5, true),
        (0.5, 0.3, 0.0, 0.1, true),
    ] {
        let t = momo().learning_rate(alpha).beta(beta).weight_decay(decay).lower_bound(least).adapt_lower_bound(adapt);
        agrees(Box::new(t), || momo_oracle(alpha, beta, None, decay, least, adapt), 1e-12);
        let t = momo_adam().learning_rate(alpha).b1(beta).b2(0.9).eps(1e-3).weight_decay(decay).lower_bound(least);
        let t = t.adapt_lower_bound(adapt);
        agrees(Box::new(t), || momo_oracle(alpha, beta, Some((0.9, 1e-3)), decay, least, adapt), 1e-11);
    }
}

/// Algorithm 1 of Cutkosky et al.; it accumulates the base optimizer's path.
#[test]
fn mechanic_is_the_papers() {
    for (decay, start, betas) in [(0.01, 0.5, 6), (0.0, 0.1, 1), (0.3, 1.0, 3)] {
        let eps = 1e-9;
        let t = mechanize(sgd(0.4)).weight_decay(decay).eps(eps).s_init(start).num_betas(betas);
        let oracle = || {
            let (mut x0, mut path) = (Vec::new(), vec![0.0; N]);
            let mut tuners = vec![[0.0, 0.0, 0.0, start]; betas];
            move |p: &[f64], g: &[f64], _, step| {
                if step == 0 {
                    x0 = p.to_vec();
                }
                let factor: f64 = tuners.iter().map(|tuner| tuner[3]).sum();
                let pull = decay * factor * dot(g, g).sqrt() / dot(p, p).sqrt();
                let h = -dot(&zip(g, p, |g, p| g + pull * p), &path);
                for (i, [m, v, r, s]) in tuners.iter_mut().enumerate() {
                    let beta = 1.0 - 10.0_f64.powi(-(i as i32 + 1));
                    let clipped = h.max(-*m).min(*m);
                    *m = (beta * *m).max(h.abs() + eps);
                    *v = beta * beta * *v + h * h;
                    *r = beta * *r + clipped * *s;
                    *s = (start / betas as f64 * *m + r.max(0.0)) / (v.sqrt() + eps);
                }
                mean(&mut path, 1.0, -0.4, g);
                let factor: f64 = tuners.iter().map(|tuner| tuner[3]).sum();
                (zip(&x0, &path, |x0, d| x0 + factor * d), None)
            }
        };
        agrees(Box::new(t), oracle, 1e-7);
    }
}

#[test]
fn sums_are_over_the_leaves_acted_on() {
    let alone = |t: Boxed<Value>| {
        let mut params = (vec![1.0_f64, 2.0],);
        let mut state = t.init(&params).unwrap();
        for loss in LOSSES {
            t.step_with(&mut params, &(vec![0.3, -0.1],), extra::value(loss), &mut state).unwrap();
        }
        params.0
    };
    let beside = |t: Boxed<Value>| {
        let t = masked(t, Mask::path("0")).freeze_others();
        let mut params = (vec![1.0_f64, 2.0], vec![5.0_f64; 7]);
        let mut state = t.init(&params).unwrap();
        for loss in LOSSES {
            t.step_with(&mut params, &(vec![0.3, -0.1], vec![9.0; 7]), extra::value(loss), &mut state).unwrap();
        }
        assert_eq!(params.1, [5.0; 7]);
        params.0
    };
    let all: [Boxed<Value>; 7] = [
        Box::new(polyak_sgd()),
        Box::new(momo()),
        Box::new(momo_adam()),
        Box::new(prodigy().estim_lr0(0.01)),
        Box::new(dadapt_adamw().estim_lr0(0.01)),
        Box::new(mechanize(sgd(1.0)).s_init(0.1)),
        Box::new(schedule_free_sgd().learning_rate(0.1)),
    ];
    for t in all {
        assert_eq!(alone(t.clone()), beside(t.clone()), "{t:?}");
    }
}

#[test]
fn evaluation_parameters_are_found_wherever_they_are() {
    let step = |t: &Boxed, params: &mut (f64, f64)| {
        let mut state = t.init(params).unwrap();
        for _ in 0..3 {
            t.step(params, &(1.0, 1.0), &mut state).unwrap();
        }
        state
    };
    let averaged = || schedule_free(sgd(1.0), 1.0).b1(0.5);
    // z goes to −1, −2, −3; x is their mean.
    let everywhere: [Boxed; 4] = [
        Box::new(averaged()),
        Box::new(chain((clip(5.0), chain((averaged(),))))),
        Box::new(inject_hyperparams(averaged())),
        Box::new(apply_if_finite(averaged(), 3)),
    ];
    for t in everywhere {
        let mut params = (0.0, 0.0);
        let state = step(&t, &mut params);
        assert_eq!((params, *state.eval_params(&params).unwrap()), ((-2.5, -2.5), (-2.0, -2.0)), "{t:?}");
    }
    // Outside a mask trained parameters are evaluated.
    let mut params = (0.0, 0.0);
    let state = step(&(Box::new(masked(averaged(), Mask::path("0"))) as Boxed), &mut params);
    assert_eq!(*state.eval_params(&params).unwrap(), (-2.0, params.1));
    // Each group has its own.
    let groups = partition(
        (("a", averaged()), ("b", lookahead(sgd(1.0), 3, 0.5))),
        Labels::by(|leaf| if leaf.path() == "0" { "a" } else { "b" }),
    );
    let mut params = (0.0, 0.0);
    let state = step(&(Box::new(groups) as Boxed), &mut params);
    assert_eq!(*state.eval_params(&params).unwrap(), (-2.0, -1.5));
}

#[test]
fn ambiguous_evaluation_parameters_are_refused() {
    let mut params = vec![0.0_f32; 2];
    let plain = adam(0.1);
    let error = plain.init(&params).unwrap().eval_params(&params).unwrap_err();
    assert!(error.to_string().contains("this optimizer keeps no evaluation parameters"), "{error}");
    let twice = lookahead(schedule_free_sgd(), 2, 0.5);
    let state = twice.init(&params).unwrap();
    let error = state.eval_params(&params).unwrap_err();
    assert!(error.to_string().contains("both keep evaluation parameters"), "{error}");
    params.push(0.0);
    let state = schedule_free_sgd().init(&vec![0.0_f32; 2]).unwrap();
    assert!(state.eval_params(&params).unwrap_err().is_structure());
}

#[test]
fn changing_b1_does_not_move_the_average() {
    let t = inject_hyperparams(schedule_free(sgd(1.0), 1.0).b1(0.5));
    let mut params = 0.0_f64;
    let mut state = t.init(&params).unwrap();
    for (b1, average) in [(0.5, -1.0), (0.25, -1.5), (0.75, -2.0), (0.75, -2.5)] {
        state.hyperparams_mut().set("b1", b1).unwrap();
        t.step(&mut params, &1.0, &mut state).unwrap();
        approx::assert_relative_eq!(*state.eval_params(&params).unwrap(), average, max_relative = 1e-14);
    }
}

#[test]
fn schedule_free_interpolates_its_rounded_state() {
    let t = schedule_free(sgd(1.0), 1.0).b1(0.5).state_dtype(DType::F32);
    // In `f32`, 1 + 2⁻³⁰ is 1.
    let (mut params, step) = (1.0_f64, 2.0_f64.powi(-30));
    let mut state = t.init(&params).unwrap();
    t.step(&mut params, &-step, &mut state).unwrap();
    assert_eq!((params, *state.eval_params(&params).unwrap()), (1.0, 1.0));
    assert_eq!(state.1.moment("z").unwrap().dtype(0), Some(DType::F32));
}
