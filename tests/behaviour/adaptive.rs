//! Adaptive optimizers against naive `f64` versions of their papers, which share no code with the library.
//!
//! Each recomputes an element's last update from all of its gradients.

use gradchain::needs::Nothing;
use gradchain::optimizer::{
    acprop, adabelief, adadelta, adamax, adamaxw, adan, ademamix, adopt, amsgrad, nadam, nadamw, optimistic_adam,
    optimistic_adam_v2, optimistic_gradient_descent, simplified_ademamix, yogi,
};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    StepLimit, scale_by_acprop, scale_by_adadelta, scale_by_adamax, scale_by_adan, scale_by_ademamix, scale_by_adopt,
    scale_by_amsgrad, scale_by_belief, scale_by_optimistic_gradient, scale_by_radam, scale_by_rms, scale_by_rss,
    scale_by_simplified_ademamix, scale_by_stddev, scale_by_yogi,
};
use gradchain::{Element, GradientTransformation};

/// Computes an element's update from all gradients, the current one last, and the parameter.
type Oracle = Box<dyn Fn(&[f64], f64) -> f64>;

type Leaves<T> = (Vec<T>, Vec<T>, T);

const STEPS: usize = 9;

fn leaves<T: Element>(values: &[f64]) -> Leaves<T> {
    let each: Vec<T> = values.iter().map(|x| T::from_f64(*x)).collect();
    (each[1..].to_vec(), Vec::new(), each[0])
}

/// Returns numbers that `f32` holds exactly, from 1/64 to 16; one in eight is zero.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut number = || match next() % 8 {
        0 => 0.0,
        size => (next() % 1023 + 1) as f64 / 64.0 / f64::from(1 << size) * if next() % 2 == 0 { 1.0 } else { -1.0 },
    };
    (0..len).map(|_| number()).collect()
}

fn run<T: Element, S: GradientTransformation<Needs = Nothing> + Clone + 'static>(
    name: &str,
    optimizer: &S,
    oracle: &Oracle,
    tolerance: f64,
) where
    Leaves<T>: TreeMut,
{
    const LEN: usize = 24;
    let mut params: Leaves<T> = leaves(&numbers(1, LEN));
    let mut state = optimizer.init(&params).unwrap();
    let grads: Vec<Vec<f64>> = (0..STEPS).map(|t| numbers(2 + t as u64, LEN)).collect();
    for t in 1..=STEPS {
        let before: Vec<f64> = [params.2].iter().chain(&params.0).map(|x| x.as_f64()).collect();
        let updates = optimizer.update(&leaves::<T>(&grads[t - 1]), &mut state, &params).unwrap();
        let found = ["2", "0"].map(|path| updates.to_vec::<T>(path).unwrap()).concat();
        for (i, found) in found.iter().map(|x| x.as_f64()).enumerate() {
            let history: Vec<f64> = grads[..t].iter().map(|g| g[i]).collect();
            let expected = oracle(&history, before[i]);
            let close = (found - expected).abs() <= tolerance * expected.abs().max(1e-2);
            assert!(close, "{name}, {}, step {t}: {found:e} is {expected:e} for {history:?}", T::DTYPE);
        }
        apply_updates(&mut params, &updates).unwrap();
    }
}

fn check<S: GradientTransformation<Needs = Nothing> + Clone + 'static>(
    name: &str,
    optimizer: S,
    oracle: impl Fn(&[f64], f64) -> f64 + 'static,
) {
    let oracle: Oracle = Box::new(oracle);
    run::<f32, S>(name, &optimizer, &oracle, 5e-5);
    run::<f64, S>(name, &optimizer, &oracle, 1e-10);
}

/// Checks a part and its optimizer with a learning rate of 0.25.
fn check_both<
    P: GradientTransformation<Needs = Nothing> + Clone + 'static,
    S: GradientTransformation<Needs = Nothing> + Clone + 'static,
>(
    name: &str,
    part: P,
    optimizer: S,
    oracle: impl Fn(&[f64]) -> f64 + Clone + 'static,
) {
    let direction = oracle.clone();
    check(&format!("scale_by_{name}"), part, move |g, _| direction(g));
    check(name, optimizer, move |g, _| -0.25 * oracle(g));
}

/// Returns the sum of the weights in a running mean that starts from zero.
fn seen(decay: f64, steps: usize) -> f64 {
    (0..steps).map(|i| (1.0 - decay) * decay.powi(i as i32)).sum()
}

/// Returns a running mean that starts from zero.
fn mean(decay: f64, xs: &[f64]) -> f64 {
    xs.iter().rev().enumerate().map(|(age, x)| (1.0 - decay) * decay.powi(age as i32) * x).sum()
}

/// Returns a running mean with weights normalized to 1.
fn unbiased(decay: f64, xs: &[f64]) -> f64 {
    mean(decay, xs) / seen(decay, xs.len())
}

fn squares(xs: &[f64]) -> Vec<f64> {
    xs.iter().map(|x| x * x).collect()
}

fn last(xs: &[f64]) -> f64 {
    xs[xs.len() - 1]
}

/// Returns the unbiased first moment; Nesterov's is the next step's, with the gradient repeated.
fn first(decay: f64, g: &[f64], nesterov: bool) -> f64 {
    if !nesterov {
        return unbiased(decay, g);
    }
    let t = g.len();
    decay * mean(decay, g) / seen(decay, t + 1) + (1.0 - decay) * last(g) / seen(decay, t)
}

const BETAS: [(f64, f64); 3] = [(0.9, 0.999), (0.5, 0.75), (0.0, 0.9)];

#[test]
fn rms() {
    for (decay, start, inside, bias) in
        [(0.9, 0.0, true, false), (0.5, 0.25, true, false), (0.75, 0.0, false, true), (0.9, 0.5, false, false)]
    {
        let oracle = move |g: &[f64]| {
            let nu = f64::powi(decay, g.len() as i32) * start + mean(decay, &squares(g));
            let nu = if bias { nu / seen(decay, g.len()) } else { nu };
            last(g) / if inside { (nu + 1e-3).sqrt() } else { nu.sqrt() + 1e-3 }
        };
        let part = scale_by_rms().decay(decay).eps(1e-3).initial_scale(start).eps_in_sqrt(inside).bias_correction(bias);
        let optimizer =
            rmsprop(0.25).decay(decay).eps(1e-3).initial_scale(start).eps_in_sqrt(inside).bias_correction(bias);
        check_both("rms", part, optimizer, oracle);
    }
    assert_eq!(scale_by_rms(), scale_by_rms().decay(0.9).eps(1e-8).initial_scale(0.0).eps_in_sqrt(true));
}

#[test]
fn stddev() {
    for (decay, start, inside, bias) in [(0.9, 0.0, true, false), (0.5, 0.25, false, false), (0.75, 0.5, true, true)] {
        let oracle = move |g: &[f64]| {
            let seen = if bias { seen(decay, g.len()) } else { 1.0 };
            let mu = mean(decay, g) / seen;
            let nu = (decay.powi(g.len() as i32) * start + mean(decay, &squares(g))) / seen;
            // Squared deviations from the mean, including the initial zeros.
            let before = decay.powi(g.len() as i32) / seen;
            let spread = mean(decay, &g.iter().map(|x| (x - mu) * (x - mu)).collect::<Vec<_>>()) / seen;
            let total = before * start + spread + mu * mu * (1.0 - self::seen(decay, g.len()) / seen);
            assert!((total - (nu - mu * mu)).abs() < 1e-9, "two ways to say it");
            last(g) / if inside { (total + 1e-2).sqrt() } else { total.sqrt() + 1e-2 }
        };
        let part =
            scale_by_stddev().decay(decay).eps(1e-2).initial_scale(start).eps_in_sqrt(inside).bias_correction(bias);
        let optimizer = rmsprop(0.25)
            .centered()
            .decay(decay)
            .eps(1e-2)
            .initial_scale(start)
            .eps_in_sqrt(inside)
            .bias_correction(bias);
        check_both("stddev", part, optimizer, oracle);
    }
}

/// A decaying sum of scaled gradients, each with its own step's rate.
#[test]
fn rmsprop_with_momentum() {
    let scaled = |g: &[f64]| last(g) / (mean(0.75, &squares(g)) + 1e-3).sqrt();
    let rate = |step: usize| 0.5 - 0.1 * step.min(4) as f64;
    let sum = move |g: &[f64], momentum: f64| -> f64 {
        let each = |s: usize| -rate(s - 1) * scaled(&g[..s]);
        (1..=g.len()).map(|s| momentum.powi((g.len() - s) as i32) * each(s)).sum()
    };
    let plain = || rmsprop(linear(0.5, 0.1, 4)).decay(0.75).eps(1e-3).momentum(0.6);
    check("momentum", plain(), move |g, _| sum(g, 0.6));
    check("nesterov", plain().nesterov(true), move |g, _| 0.6 * sum(g, 0.6) - rate(g.len() - 1) * scaled(g));
}

#[test]
fn rss() {
    for (start, eps, inside) in
        [(0.1, 1e-7, true), (0.0, 1e-3, true), (2.0, 0.0, true), (0.1, 1e-2, false), (0.0, 3.0, false)]
    {
        check_both(
            "rss",
            scale_by_rss().initial_accumulator_value(start).eps(eps).eps_in_sqrt(inside),
            adagrad(0.25).initial_accumulator_value(start).eps(eps).eps_in_sqrt(inside),
            move |g| {
                let sum = start + squares(g).iter().sum::<f64>();
                let (under, beside) = if inside { (eps, 0.0) } else { (0.0, eps) };
                if sum == 0.0 { 0.0 } else { last(g) / ((sum + under).sqrt() + beside) }
            },
        );
    }
    check("adagrad", adagrad(1.0), |g, _| -last(g) / (0.1 + 1e-7 + squares(g).iter().sum::<f64>()).sqrt());
}

#[test]
fn amsgrads() {
    for ((b1, b2), correct_mu, correct_nu) in
        [(BETAS[0], true, true), (BETAS[1], true, false), (BETAS[1], false, true), (BETAS[1], true, true)]
    {
        let part = scale_by_amsgrad().b1(b1).b2(b2).eps(1e-3).eps_root(1e-4);
        let optimizer = amsgrad(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4);
        check_both(
            "amsgrad",
            part.bias_correction_mu(correct_mu).bias_correction_nu(correct_nu),
            optimizer.bias_correction_mu(correct_mu).bias_correction_nu(correct_nu),
            move |g| {
                let mu = if correct_mu { unbiased(b1, g) } else { mean(b1, g) };
                let second = if correct_nu { unbiased } else { mean };
                let most = (1..=g.len()).map(|s| second(b2, &squares(&g[..s]))).fold(0.0, f64::max);
                mu / ((most + 1e-4).sqrt() + 1e-3)
            },
        );
    }
}

#[test]
fn nadams() {
    for (b1, b2) in BETAS {
        let direction = move |g: &[f64]| first(b1, g, true) / ((unbiased(b2, &squares(g)) + 1e-4).sqrt() + 1e-3);
        check("nadam", nadam(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4), move |g, _| -0.25 * direction(g));
        check("nadamw", nadamw(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4).weight_decay(0.1), move |g, p| {
            -0.25 * (direction(g) + 0.1 * p)
        });
    }
}

#[test]
fn nadams_whose_momentum_grows() {
    for ((b1, b2), momentum_decay) in [(BETAS[0], 0.004), (BETAS[1], 0.0), (BETAS[2], 30.0), (BETAS[0], 1e6)] {
        let direction = move |g: &[f64]| {
            let momentum = |t: usize| b1 * (1.0 - 0.5 * 0.96_f64.powf(t as f64 * momentum_decay));
            let t = g.len();
            let product: f64 = (1..=t).map(momentum).product();
            let ahead = momentum(t + 1) * mean(b1, g) / (1.0 - product * momentum(t + 1));
            let now = (1.0 - momentum(t)) * g[t - 1] / (1.0 - product);
            (ahead + now) / ((unbiased(b2, &squares(g)) + 1e-4).sqrt() + 1e-3)
        };
        let optimizer = nadam(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4).momentum_decay(momentum_decay);
        check("nadam", optimizer, move |g, _| -0.25 * direction(g));
        let optimizer = nadamw(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4).momentum_decay(momentum_decay);
        check("nadamw", optimizer.weight_decay(0.1), move |g, p| -0.25 * (direction(g) + 0.1 * p));
    }
}

#[test]
fn beliefs() {
    for ((b1, b2), nesterov, root) in [(BETAS[0], false, 1e-4), (BETAS[1], true, 1e-2), (BETAS[2], false, 1e-3)] {
        check_both(
            "belief",
            scale_by_belief().b1(b1).b2(b2).eps(1e-3).eps_root(root).nesterov(nesterov),
            adabelief(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(root).nesterov(nesterov),
            move |g| {
                let surprise = |s: usize| (g[s - 1] - mean(b1, &g[..s])).powi(2) + root / (1.0 - b2);
                let surprises: Vec<f64> = (1..=g.len()).map(surprise).collect();
                first(b1, g, nesterov) / (unbiased(b2, &surprises).sqrt() + 1e-3)
            },
        );
    }
}

#[test]
fn radams() {
    for ((b1, b2), threshold, nesterov) in
        [(BETAS[0], 5.0, false), (BETAS[1], 4.5, true), ((0.6, 0.9), 7.0, false), ((0.6, 0.9), 5.5, true)]
    {
        let oracle = move |g: &[f64]| {
            let (t, most) = (g.len() as f64, 2.0 / (1.0 - b2) - 1.0);
            let rho = most - 2.0 * t * b2.powf(t) / (1.0 - b2.powf(t));
            if rho < threshold {
                return first(b1, g, nesterov);
            }
            let r = ((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho)).sqrt();
            r * first(b1, g, nesterov) / ((unbiased(b2, &squares(g)) + 1e-4).sqrt() + 1e-3)
        };
        check_both(
            "radam",
            scale_by_radam().b1(b1).b2(b2).eps(1e-3).eps_root(1e-4).threshold(threshold).nesterov(nesterov),
            radam(0.25).b1(b1).b2(b2).eps(1e-3).eps_root(1e-4).threshold(threshold).nesterov(nesterov),
            oracle,
        );
    }
}

fn adadeltas(rho: f64, eps: f64, g: &[f64]) -> Vec<f64> {
    let mut steps: Vec<f64> = Vec::new();
    for s in 1..=g.len() {
        let (of_steps, of_gradients) = (mean(rho, &squares(&steps)), mean(rho, &squares(&g[..s])));
        steps.push(((of_steps + eps) / (of_gradients + eps)).sqrt() * g[s - 1]);
    }
    steps
}

#[test]
fn adadelta_is_the_papers() {
    for (rho, eps) in [(0.9, 1e-2), (0.5, 1.0), (0.75, 1e-4)] {
        check_both("adadelta", scale_by_adadelta().rho(rho).eps(eps), adadelta(0.25).rho(rho).eps(eps), move |g| {
            last(&adadeltas(rho, eps, g))
        });
    }
    // Decay is part of the gradient; the oracle knows only the last parameter, so one step.
    let optimizer = adadelta(2.0).rho(0.5).eps(1.0).weight_decay(0.5);
    let params = 4.0_f64;
    let updates = optimizer.update(&2.0_f64, &mut optimizer.init(&params).unwrap(), &params).unwrap();
    let expected = -2.0 * adadeltas(0.5, 1.0, &[2.0 + 0.5 * 4.0])[0];
    assert!((updates.to_vec::<f64>("").unwrap()[0] - expected).abs() < 1e-12);
}

#[test]
fn adamaxes() {
    for (b1, b2) in BETAS {
        let direction = move |g: &[f64]| {
            let sizes = g.iter().rev().enumerate().map(|(age, x)| b2.powi(age as i32) * (x.abs() + 1e-2));
            unbiased(b1, g) / sizes.fold(0.0, f64::max)
        };
        check_both(
            "adamax",
            scale_by_adamax().b1(b1).b2(b2).eps(1e-2),
            adamax(0.25).b1(b1).b2(b2).eps(1e-2),
            direction,
        );
        check("adamaxw", adamaxw(0.25).b1(b1).b2(b2).eps(1e-2).weight_decay(0.1), move |g, p| {
            -0.25 * (direction(g) + 0.1 * p)
        });
    }
}

#[test]
fn adans() {
    for (b1, b2, b3) in [(0.98, 0.92, 0.99), (0.5, 0.75, 0.25), (0.0, 0.5, 0.9)] {
        let direction = move |g: &[f64]| {
            let changes: Vec<f64> = (0..g.len()).map(|i| if i == 0 { 0.0 } else { g[i] - g[i - 1] }).collect();
            let sums: Vec<f64> = g.iter().zip(&changes).map(|(g, d)| g + (1.0 - b2) * d).collect();
            let numerator = unbiased(b1, g) + (1.0 - b2) * unbiased(b2, &changes);
            numerator / ((unbiased(b3, &squares(&sums)) + 1e-3).sqrt() + 1e-2)
        };
        let optimizer = adan(0.25).b1(b1).b2(b2).b3(b3).eps(1e-2).eps_root(1e-3);
        check_both("adan", scale_by_adan().b1(b1).b2(b2).b3(b3).eps(1e-2).eps_root(1e-3), optimizer.clone(), direction);
        check("adan with decay", optimizer.weight_decay(0.1), move |g, p| -0.25 * (direction(g) + 0.1 * p));
    }
}

#[test]
fn yogis() {
    for ((b1, b2), start) in [(BETAS[0], 1e-6), (BETAS[1], 0.25), (BETAS[1], 1.0), (BETAS[2], 0.0)] {
        let oracle = move |g: &[f64], root: f64, start: f64| {
            let mut second = start;
            for x in squares(g) {
                let step = (1.0 - b2) * x;
                second += match second.partial_cmp(&x).unwrap() {
                    std::cmp::Ordering::Less => step,
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => -step,
                };
            }
            let (t, n) = (g.len() as i32, g.len());
            let mu = b1.powi(t) * start / seen(b1, n) + unbiased(b1, g);
            mu / ((second / seen(b2, n) + root).sqrt() + 1e-2)
        };
        let part = scale_by_yogi().b1(b1).b2(b2).eps(1e-2).eps_root(1e-3).initial_accumulator_value(start);
        check("scale_by_yogi", part, move |g, _| oracle(g, 1e-3, start));
        check("yogi", yogi(0.25).b1(b1).b2(b2).eps(1e-2), move |g, _| -0.25 * oracle(g, 0.0, 1e-6));
    }
}

#[test]
fn optimistic_ones() {
    let optimistic = |alpha: f64, beta: f64, d: &[f64]| {
        let change = if d.len() > 1 { last(d) - d[d.len() - 2] } else { 0.0 };
        alpha * last(d) + beta * change
    };
    for (alpha, beta) in [(1.0, 1.0), (0.5, 2.0), (0.75, 0.0)] {
        check_both(
            "optimistic_gradient",
            scale_by_optimistic_gradient().alpha(alpha).beta(beta),
            optimistic_gradient_descent(0.25).alpha(alpha).beta(beta),
            move |g| optimistic(alpha, beta, g),
        );
    }
    let directions = |g: &[f64], nesterov: bool| -> Vec<f64> {
        let second = |g: &[f64]| unbiased(0.75, &squares(g)).sqrt() + 1e-3;
        (1..=g.len()).map(|s| first(0.5, &g[..s], nesterov) / second(&g[..s])).collect()
    };
    let v2 = || optimistic_adam_v2(0.25).b1(0.5).b2(0.75).eps(1e-3);
    check("optimistic_adam_v2", v2(), move |g, _| -0.25 * optimistic(1.0, 1.0, &directions(g, true)));
    check("optimistic_adam_v2 with all", v2().alpha(0.5).beta(2.0).nesterov(false), move |g, _| {
        -0.25 * optimistic(0.5, 2.0, &directions(g, false))
    });
    let old = || optimistic_adam(0.25).b1(0.5).b2(0.75).eps(1e-3);
    check("optimistic_adam", old(), move |g, _| -optimistic(0.25, 0.25, &directions(g, true)));
    check("optimistic_adam with optimism", old().nesterov(false).optimism(0.75), move |g, _| {
        -optimistic(0.25, 0.75, &directions(g, false))
    });
}

#[test]
fn ademamixes() {
    for (b1, b2, b3, alpha) in [(0.9, 0.999, 0.9999, 6.0), (0.5, 0.75, 0.9, 2.0)] {
        let direction = move |g: &[f64]| {
            let numerator = unbiased(b1, g) + alpha * mean(b3, g);
            numerator / ((unbiased(b2, &squares(g)) + 1e-4).sqrt() + 1e-3)
        };
        let optimizer = ademamix(0.25).b1(b1).b2(b2).b3(b3).alpha(alpha).eps(1e-3).eps_root(1e-4);
        check_both(
            "ademamix",
            scale_by_ademamix().b1(b1).b2(b2).b3(b3).alpha(alpha).eps(1e-3).eps_root(1e-4),
            optimizer.clone(),
            direction,
        );
        check("ademamix with decay", optimizer.weight_decay(0.1), move |g, p| -0.25 * (direction(g) + 0.1 * p));
    }
    let part = scale_by_ademamix().b1(0.5).b2(0.75).eps(1e-3);
    check("ademamix with schedules", part.b3(linear(0.5, 0.9, 4)).alpha(linear(0.0, 8.0, 4)), |g, _| {
        let at = |from: f64, to: f64, count: usize| from + (to - from) * count.min(4) as f64 / 4.0;
        let slow = g.iter().enumerate().fold(0.0, |m, (i, g)| {
            let b3 = at(0.5, 0.9, i);
            b3 * m + (1.0 - b3) * g
        });
        let numerator = unbiased(0.5, g) + at(0.0, 8.0, g.len() - 1) * slow;
        numerator / (unbiased(0.75, &squares(g)).sqrt() + 1e-3)
    });
}

#[test]
fn simplified_ademamixes() {
    for (b1, b2, alpha) in [(0.99, 0.95, 0.0), (0.5, 0.75, 2.0), (0.75, 0.0, -0.5)] {
        let direction = move |g: &[f64]| {
            let sum: f64 = g.iter().rev().enumerate().map(|(age, g)| f64::powi(b1, age as i32) * g).sum();
            (sum + alpha * last(g)) / ((unbiased(b2, &squares(g)) + 1e-3).sqrt() + 1e-2)
        };
        let optimizer = simplified_ademamix(0.25).b1(b1).b2(b2).alpha(alpha).eps(1e-2).eps_root(1e-3);
        check_both(
            "simplified_ademamix",
            scale_by_simplified_ademamix().b1(b1).b2(b2).alpha(alpha).eps(1e-2).eps_root(1e-3),
            optimizer.clone(),
            direction,
        );
        check("simplified with decay", optimizer.weight_decay(0.1), move |g, p| -0.25 * (direction(g) + 0.1 * p));
    }
}

#[test]
fn adopts() {
    for (b1, b2, eps, power, nesterov) in
        [(0.9, 0.9999, 0.25, Some(0.25), false), (0.5, 0.75, 0.5, Some(0.5), true), (0.5, 0.75, 0.5, None, true)]
    {
        let oracle = move |g: &[f64]| {
            // No estimate precedes the first square, so it has full weight.
            let known = |s: usize| f64::powi(b2, s as i32 - 1) * g[0] * g[0] + mean(b2, &squares(&g[1..s]));
            let scaled = |s: usize| {
                let x = g[s] / known(s).sqrt().max(eps);
                power.map_or(x, |power: f64| x.clamp(-(s as f64).powf(power), (s as f64).powf(power)))
            };
            let taken: Vec<f64> = (1..g.len()).map(scaled).collect();
            let mu = mean(b1, &taken);
            if nesterov && !taken.is_empty() { b1 * mu + (1.0 - b1) * last(&taken) } else { mu }
        };
        // A power, and an equivalent schedule.
        let limits = [power.unwrap_or(0.25), power.unwrap_or(1.0)].map(StepLimit::Power);
        let same = gradchain::schedule::from_fn("power", move |t| (t as f64).powf(power.unwrap_or(0.25)));
        let part = scale_by_adopt().b1(b1).b2(b2).eps(eps).nesterov(nesterov).use_clipping(power.is_some());
        let optimizer = adopt(0.25).b1(b1).b2(b2).eps(eps).nesterov(nesterov).use_clipping(power.is_some());
        for limit in limits.into_iter().chain([StepLimit::from(same)]) {
            let (part, optimizer) = (part.clone().clip_value_fn(limit.clone()), optimizer.clone().clip_value_fn(limit));
            check_both("adopt", part, optimizer, oracle);
        }
    }
    assert_eq!(scale_by_adopt().clip_value_fn, StepLimit::Power(0.25));
}

#[test]
fn acprops() {
    for ((b1, b2), root) in [(BETAS[0], 1e-3), (BETAS[1], 1e-2), (BETAS[2], 0.0)] {
        let direction = move |g: &[f64]| {
            let surprise = |s: usize| (g[s - 1] - mean(b1, &g[..s - 1])).powi(2) + root / (1.0 - b2);
            let surprises: Vec<f64> = (1..g.len()).map(surprise).collect();
            // Without a gradient so far this counts as the first step.
            let unseen = g[..g.len() - 1].iter().all(|g| *g == 0.0);
            let before = if unseen { 1.0 } else { unbiased(b2, &surprises) };
            last(g) / (before.sqrt() + 0.25)
        };
        let optimizer = acprop(0.25).b1(b1).b2(b2).eps(0.25).eps_root(root);
        check_both("acprop", scale_by_acprop().b1(b1).b2(b2).eps(0.25).eps_root(root), optimizer.clone(), direction);
        check("acprop with decay", optimizer.weight_decay(0.1), move |g, p| -0.25 * (direction(g) + 0.1 * p));
    }
}

fn updates<S: GradientTransformation<Needs = Nothing>>(optimizer: &S, gradients: &[f32]) -> Vec<f32> {
    let mut state = optimizer.init(&0.0_f32).unwrap();
    let update = |g| optimizer.update(g, &mut state, &0.0_f32).unwrap().to_vec::<f32>("").unwrap()[0];
    gradients.iter().map(update).collect()
}

#[test]
fn squares_that_overflow_give_no_update_and_a_nan_is_not_hidden() {
    assert_eq!(updates(&scale_by_rss(), &[1e30, 1.0]), [0.0, 0.0]);
    assert_eq!(updates(&scale_by_rms(), &[1e30]), [0.0]);
    assert_eq!(updates(&scale_by_simplified_ademamix(), &[1e30, 1.0]), [0.0, 0.0]);
    // The first step only records the gradient; Optax multiplies 0 by 1/0 here.
    assert_eq!(updates(&scale_by_adopt().use_clipping(false).eps(0.0), &[1.0, 0.5]), [0.0, 0.05]);
    // NaN stays in the sum, and only a positive sum is a divisor.
    assert!(matches!(updates(&scale_by_rss(), &[f32::NAN, 1.0])[..], [a, b] if a.is_nan() && b == 0.0));
    let nan = |updates: Vec<f32>| assert!(updates.iter().all(|u| u.is_nan()), "{updates:?}");
    nan(updates(&scale_by_amsgrad(), &[f32::NAN, 1.0]));
    nan(updates(&scale_by_adamax(), &[f32::NAN, 1.0]));
    nan(updates(&scale_by_stddev(), &[f32::NAN, 1.0]));
    nan(updates(&scale_by_yogi(), &[f32::NAN, 1.0]));
    nan(updates(&scale_by_adopt(), &[f32::NAN, 1.0]));
}

#[test]
fn a_variance_that_rounding_makes_negative_is_zero() {
    let optimizer = scale_by_stddev().eps_in_sqrt(false).bias_correction(true).eps(0.5);
    for gradient in [0.1_f32, 0.3, 0.7, 1.1, 1e3] {
        let found = updates(&optimizer, &[gradient; 50]);
        assert!(found.iter().all(|u| u.is_finite() && *u > 0.0), "{found:?}");
    }
}

#[test]
fn arguments_out_of_range_are_refused_by_name() {
    let refused = |error: gradchain::Result<()>, expected: &str| {
        let error = error.unwrap_err();
        assert!(error.is_argument(), "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    refused(
        rmsprop(0.1).decay(1.0).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_rms: argument `decay` must be in [0, 1), found 1",
    );
    refused(
        rmsprop(0.1).centered().eps(-1.0).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_stddev: argument `eps` must be finite and not neg",
    );
    refused(
        adagrad(0.1).initial_accumulator_value(-1.0).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_rss: argument `initial_accumulator_value`",
    );
    refused(
        amsgrad(0.1).b1(1.5).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_amsgrad: argument `b1` must be in [0, 1), found 1.5",
    );
    refused(
        radam(0.1).threshold(3.0).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_radam: argument `threshold` must be at least 4, found 3",
    );
    refused(adan(0.1).b3(1.0).init(&vec![1.0_f32; 2]).map(drop), "scale_by_adan: argument `b3`");
    refused(
        ademamix(0.1).b3(1.5).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_ademamix: argument `b3` must be in [0, 1], found 1.5",
    );
    refused(
        ademamix(0.1).alpha(f64::NAN).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_ademamix: argument `alpha` must be finite",
    );
    refused(
        optimistic_adam_v2(0.1).beta(f64::INFINITY).init(&vec![1.0_f32; 2]).map(drop),
        "scale_by_optimistic_gradient: argument `beta`",
    );
    refused(adadelta(0.1).rho(-0.1).init(&vec![1.0_f32; 2]).map(drop), "scale_by_adadelta: argument `rho`");
}

#[test]
fn injected_arguments_are_the_builders() {
    let optimizer = inject_hyperparams(rmsprop(0.5).momentum(0.9));
    let mut state = optimizer.init(&0.0_f64).unwrap();
    for name in ["learning_rate", "decay", "eps", "initial_scale", "momentum"] {
        assert!(state.hyperparams().get(name).is_some(), "{name}");
    }
    state.hyperparams_mut().set("learning_rate", 0.0).unwrap();
    let updates = optimizer.update(&1.0_f64, &mut state, &0.0_f64).unwrap();
    assert_eq!(updates.to_vec::<f64>("").unwrap(), [0.0]);
    // Its learning rate is also its default optimism.
    let mut together = inject_hyperparams(optimistic_adam(0.5)).init(&0.0_f64).unwrap();
    assert!(together.hyperparams_mut().set("optimism", 0.1).is_err());
    let mut apart = inject_hyperparams(optimistic_adam(0.5).optimism(0.1)).init(&0.0_f64).unwrap();
    apart.hyperparams_mut().set("optimism", 0.2).unwrap();
}
