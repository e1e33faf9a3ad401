//! Clipping, momentum and other small transformations against naive `f64` versions.

use gradchain::arguments::Arguments;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::ZeroNansState;
use gradchain::transform::{
    LionMode, clip_by_block_rms, ema, identity, keep_params_nonnegative, scale_by_lion, scale_by_schedule,
    scale_by_trust_ratio, set_to_zero, trace,
};
use gradchain::{Element, GradientTransformation};
use proptest::prelude::*;

type Leaves<T> = [Vec<T>; 2];

#[derive(Clone, Debug)]
struct Case {
    params: Leaves<f64>,
    grads: Vec<Leaves<f64>>,
}

/// Generates numbers that `f32` holds exactly, often zero.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![6 => (-1024_i32..=1024).prop_map(|n| f64::from(n) / 128.0), 1 => Just(0.0)]
}

fn leaves(lens: [usize; 2]) -> impl Strategy<Value = Leaves<f64>> {
    lens.map(|n| prop::collection::vec(number(), n))
}

fn cases() -> impl Strategy<Value = Case> {
    ([0_usize..40, 1..4], 1_usize..5).prop_flat_map(|(lens, steps)| {
        let grads = prop::collection::vec(leaves(lens), steps);
        (leaves(lens), grads).prop_map(|(params, grads)| Case { params, grads })
    })
}

fn to<T: Element>(tree: &Leaves<f64>) -> Leaves<T> {
    tree.each_ref().map(|leaf| leaf.iter().map(|x| T::from_f64(*x)).collect())
}

fn from<T: Element>(tree: &Leaves<T>) -> Leaves<f64> {
    tree.each_ref().map(|leaf| leaf.iter().map(|x| x.as_f64()).collect())
}

fn bits<T: Element>(tree: &Leaves<T>) -> Leaves<u64> {
    from(tree).map(|leaf| leaf.iter().map(|x| x.to_bits()).collect())
}

fn updates_of<T: Element>(updates: &Updates) -> Leaves<f64> {
    ["0", "1"].map(|path| updates.to_vec::<T>(path).unwrap().iter().map(|x| x.as_f64()).collect())
}

type Oracle = Box<dyn FnMut(&Leaves<f64>, &Leaves<f64>) -> Leaves<f64>>;

/// Checks updates against the oracle, `step` against `update`, and boxes bit for bit.
fn check_in<T: Element, S: GradientTransformation<Needs = gradchain::needs::Nothing> + Clone + 'static>(
    case: &Case,
    optimizer: S,
    mut oracle: Oracle,
    tolerance: f64,
) where
    Leaves<T>: TreeMut,
{
    let mut params: Leaves<T> = to(&case.params);
    let mut apart = params.clone();
    let mut state = optimizer.init(&params).unwrap();
    let mut step_state = optimizer.init(&params).unwrap();
    let dynamic = chain(vec![boxed(optimizer.clone())]);
    let mut dynamic_state = dynamic.init(&params).unwrap();
    for (t, grads) in case.grads.iter().enumerate() {
        let expected = oracle(grads, &from(&params));
        let grads: Leaves<T> = to(grads);
        let updates = optimizer.update(&grads, &mut state, &params).unwrap();
        for (found, expected) in updates_of::<T>(&updates).iter().flatten().zip(expected.iter().flatten()) {
            let close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
            assert!(close || found.is_nan() && expected.is_nan(), "step {t}: {found} is {expected}");
        }
        dynamic.step(&mut apart, &grads, &mut dynamic_state).unwrap();
        let mut applied = params.clone();
        apply_updates(&mut applied, &updates).unwrap();
        optimizer.step(&mut params, &grads, &mut step_state).unwrap();
        assert_eq!(bits(&params), bits(&applied), "step {t}: step is update and apply_updates");
        assert_eq!(bits(&params), bits(&apart), "step {t}: boxed or not");
    }
}

fn check<S: GradientTransformation<Needs = gradchain::needs::Nothing> + Clone + 'static>(
    case: &Case,
    optimizer: S,
    oracle: impl Fn() -> Oracle,
) {
    check_in::<f32, S>(case, optimizer.clone(), oracle(), 2e-5);
    check_in::<f64, S>(case, optimizer, oracle(), 1e-12);
}

/// Returns an oracle with `N` numbers of state: `f(t, state, u, p)`.
fn each<const N: usize>(f: impl Fn(f64, &mut [f64; N], f64, f64) -> f64 + 'static) -> Oracle {
    let mut memory: Leaves<[f64; N]> = Default::default();
    let mut t = 0.0;
    Box::new(move |grads, params| {
        t += 1.0;
        let mut updates = grads.clone();
        for (leaf, updates) in updates.iter_mut().enumerate() {
            memory[leaf].resize(updates.len(), [0.0; N]);
            for (i, u) in updates.iter_mut().enumerate() {
                *u = f(t, &mut memory[leaf][i], *u, params[leaf][i]);
            }
        }
        updates
    })
}

fn then(mut first: Oracle, mut second: Oracle) -> Oracle {
    Box::new(move |grads, params| second(&first(grads, params), params))
}

fn times(factor: f64) -> Oracle {
    each::<0>(move |_, _, u, _| factor * u)
}

fn norm<'a>(leaf: impl IntoIterator<Item = &'a f64>) -> f64 {
    leaf.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn by_trust_ratio(min_norm: f64, coefficient: f64, eps: f64) -> Oracle {
    Box::new(move |grads, params| {
        let mut updates = grads.clone();
        for (u, p) in updates.iter_mut().zip(params) {
            let (of_u, of_p) = (norm(&*u).max(min_norm), norm(p).max(min_norm));
            let ratio = if of_u == 0.0 || of_p == 0.0 { 1.0 } else { coefficient * of_p / (of_u + eps) };
            u.iter_mut().for_each(|u| *u *= ratio);
        }
        updates
    })
}

fn adam(b1: f64, b2: f64, eps: f64) -> Oracle {
    each::<2>(move |t, [m, v], u, _| {
        *m = b1 * *m + (1.0 - b1) * u;
        *v = b2 * *v + (1.0 - b2) * u * u;
        *m / (1.0 - b1.powf(t)) / ((*v / (1.0 - b2.powf(t))).sqrt() + eps)
    })
}

fn decay(weights: [f64; 2]) -> Oracle {
    Box::new(move |grads, params| {
        let mut updates = grads.clone();
        for ((updates, params), weight) in updates.iter_mut().zip(params).zip(weights) {
            updates.iter_mut().zip(params).for_each(|(u, p)| *u += weight * p);
        }
        updates
    })
}

fn lion_sign(b1: f64, b2: f64) -> Oracle {
    each::<1>(move |_, [m], u, _| {
        let x = b1 * *m + (1.0 - b1) * u;
        *m = b2 * *m + (1.0 - b2) * u;
        if x == 0.0 { 0.0 } else { x.signum() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_trace_is_a_decaying_sum(case in cases(), d in 0.0..1.2_f64) {
        check(&case, trace(d), || each::<1>(move |_, [m], u, _| { *m = u + d * *m; *m }));
        check(&case, trace(d).nesterov(true), || each::<1>(move |_, [m], u, _| { *m = u + d * *m; u + d * *m }));
    }

    #[test]
    fn an_ema_is_a_decaying_mean(case in cases(), d in 0.0..1.0_f64) {
        let mean = move |m: &mut f64, u: f64| { *m = d * *m + (1.0 - d) * u; *m };
        check(&case, ema(d).debias(false), || each::<1>(move |_, [m], u, _| mean(m, u)));
        // The first unbiased mean is the update.
        check(&case, ema(d), || each::<1>(move |t, [m], u, _| mean(m, u) / (1.0 - d.powf(t))));
    }

    #[test]
    fn clip_limits_elements(case in cases(), most in 0.0..9.0_f64) {
        check(&case, clip(most), || each::<0>(move |_, _, u, _| u.clamp(-most, most)));
    }

    #[test]
    fn lion_takes_the_sign(case in cases()) {
        // So that a zero mix is exactly zero in either dtype.
        check(&case, scale_by_lion().b1(0.5).b2(0.75), || lion_sign(0.5, 0.75));
        let optimizer = lion(0.5).b1(0.5).b2(0.75).weight_decay(0.25).mask(Mask::path("0"));
        check(&case, optimizer, || then(then(lion_sign(0.5, 0.75), decay([0.25, 0.0])), times(-0.5)));
    }

    #[test]
    fn lion_has_smoother_signs(case in cases(), b1 in 0.0..1.0_f64, b2 in 0.0..1.0_f64, slope in 0.1..3.0_f64) {
        let lion = scale_by_lion().b1(b1).b2(b2).smooth_beta(slope);
        let mix = move |m: &mut f64, u: f64| {
            let x = b1 * *m + (1.0 - b1) * u;
            *m = b2 * *m + (1.0 - b2) * u;
            x
        };
        check(&case, lion.clone().mode(LionMode::Smooth), || {
            each::<1>(move |_, [m], u, _| (slope * mix(m, u)).tanh())
        });
        let between = chain((clip_by_global_norm(1e9), lion.clone().mode(LionMode::Smooth), sgd(1.0)));
        check(&case, between, || each::<1>(move |_, [m], u, _| -(slope * mix(m, u)).tanh()));
        check(&case, lion.mode(LionMode::Refined), || each::<1>(move |_, [m], u, _| mix(m, u).clamp(-1.0, 1.0)));
    }

    #[test]
    fn parameters_stay_nonnegative(case in cases()) {
        let case = Case { params: case.params.clone().map(|leaf| leaf.iter().map(|x| x.abs()).collect()), ..case };
        check(&case, keep_params_nonnegative(), || each::<0>(|_, _, u, p| if p + u < 0.0 { -p } else { u }));
        let optimizer = keep_params_nonnegative();
        let mut params: Leaves<f32> = to(&case.params);
        let mut state = optimizer.init(&params).unwrap();
        for grads in &case.grads {
            optimizer.step(&mut params, &to::<f32>(grads), &mut state).unwrap();
            prop_assert!(params.iter().flatten().all(|p| *p >= 0.0));
        }
    }

    #[test]
    fn schedules_scale(case in cases()) {
        check(&case, scale_by_schedule(linear(1.0, 0.0, 3)), || {
            each::<0>(|t, _, u, _| (1.0 - (t - 1.0) / 3.0).max(0.0) * u)
        });
        check(&case, identity(), || times(1.0));
        check(&case, set_to_zero(), || times(0.0));
    }

    #[test]
    fn a_global_norm_is_clipped(case in cases(), most in 0.1..50.0_f64) {
        check(&case, clip_by_global_norm(most), || Box::new(move |grads, _| {
            let norm = norm(grads.iter().flatten());
            grads.clone().map(|leaf| leaf.iter().map(|u| if norm < most { *u } else { u / norm * most }).collect())
        }));
    }

    #[test]
    fn a_block_is_clipped_by_its_own_rms(case in cases(), most in 0.1..8.0_f64) {
        check(&case, clip_by_block_rms(most), || Box::new(move |grads, _| {
            grads.clone().map(|leaf| {
                let rms = norm(&leaf) / (leaf.len() as f64).sqrt();
                leaf.iter().map(|u| u / (rms / most).max(1.0)).collect()
            })
        }));
    }

    #[test]
    fn a_trust_ratio_relates_norms(case in cases(), min in 0.0..4.0_f64, c in 0.1..2.0_f64, eps in 0.0..1.0_f64) {
        check(&case, scale_by_trust_ratio(), || by_trust_ratio(0.0, 1.0, 0.0));
        let full = scale_by_trust_ratio().min_norm(min).trust_coefficient(c).eps(eps);
        check(&case, full, || by_trust_ratio(min, c, eps));
    }

    #[test]
    fn sgd_goes_down(case in cases(), lr in 0.0..1.0_f64, m in 0.0..1.0_f64) {
        check(&case, sgd(lr), || times(-lr));
        check(&case, sgd(lr).momentum(m), || each::<1>(move |_, [v], u, _| { *v = u + m * *v; -lr * *v }));
        check(&case, sgd(lr).momentum(m).nesterov(true), || {
            each::<1>(move |_, [v], u, _| { *v = u + m * *v; -lr * (u + m * *v) })
        });
    }

    #[test]
    fn lamb_is_adamw_with_a_trust_ratio(case in cases(), lr in 0.0..0.1_f64, w in 0.0..0.5_f64) {
        let optimizer = lamb(lr).b1(0.8).b2(0.9).eps(1e-3).weight_decay(w).mask(Mask::path("1"));
        check(&case, optimizer, || {
            let direction = then(adam(0.8, 0.9, 1e-3), decay([0.0, w]));
            then(then(direction, by_trust_ratio(0.0, 1.0, 0.0)), times(-lr))
        });
    }

    #[test]
    fn nans_become_zeros_and_are_counted(case in cases(), every in 1_usize..7) {
        let mut case = case;
        let mut expected = vec![];
        let mut total = [0_u64; 2];
        for grads in &mut case.grads {
            for (leaf, total) in grads.iter_mut().zip(&mut total) {
                leaf.iter_mut().step_by(every).for_each(|g| *g = f64::NAN);
                *total += leaf.iter().filter(|g| g.is_nan()).count() as u64;
            }
            expected.push((grads.each_ref().map(|leaf| leaf.iter().any(|g| g.is_nan())), total));
        }
        let zeroed = || each::<0>(|_, _, u, _| if u.is_nan() { 0.0 } else { u });
        check(&case, zero_nans(), zeroed);

        // After and behind a barrier, before stored updates, in a mask, boxed.
        let before = chain((zero_nans(), clip_by_global_norm(1.0), sgd(0.1)));
        flags(&case, &expected, before, |state| (*state.0).clone());
        let twice = chain((zero_nans(), clip_by_global_norm(1.0), clip_by_block_rms(0.1), sgd(0.1)));
        flags(&case, &expected, twice, |state| (*state.0).clone());
        let after = chain((clip(1.0), clip_by_block_rms(f64::INFINITY), zero_nans()));
        let per_leaf = |grads: &Leaves<f64>| grads.each_ref().map(|leaf| if leaf.iter().any(|g| g.is_nan()) {
            leaf.len() as u64
        } else {
            0
        });
        let mut total = [0; 2];
        let whole_leaves: Vec<_> = case.grads.iter().map(|grads| {
            let n = per_leaf(grads);
            total = [total[0] + n[0], total[1] + n[1]];
            (n.map(|n| n > 0), total)
        }).collect();
        flags(&case, &whole_leaves, after, |state| (*state.2).clone());
        let stored = chain((zero_nans(), trace(0.5), clip_by_global_norm(1.0), sgd(0.1)));
        flags(&case, &expected, stored, |state| (*state.0).clone());
        let inside = chain((masked(zero_nans(), Mask::all()), scale_by_trust_ratio(), sgd(0.1)));
        flags(&case, &expected, inside, |state| (**state.0.inner()).clone());
        let dynamic = chain(vec![boxed(zero_nans()), boxed(clip_by_global_norm(1.0)), boxed(sgd(0.1))]);
        flags(&case, &expected, dynamic, |state| state[0].downcast_ref::<ZeroNansState>().unwrap().clone());
    }

    /// Up to four barriers, two of them fused.
    #[test]
    fn clipping_composes(case in cases(), a in 0.5..20.0_f64, b in 0.1..4.0_f64) {
        one_by_one(&case, vec![boxed(clip_by_global_norm(a)), boxed(clip_by_block_rms(b)), boxed(sgd(0.1))],
            chain((clip_by_global_norm(a), clip_by_block_rms(b), sgd(0.1))));
        one_by_one(&case, vec![boxed(trace(0.5)), boxed(clip_by_global_norm(a)), boxed(ema(0.5)), boxed(clip_by_block_rms(b))],
            chain((trace(0.5), clip_by_global_norm(a), ema(0.5), clip_by_block_rms(b))));
        one_by_one(&case, vec![boxed(clip_by_block_rms(b)), boxed(trace(0.5)), boxed(scale_by_trust_ratio()),
            boxed(clip_by_global_norm(a)), boxed(add_decayed_weights(0.1)), boxed(clip_by_block_rms(b)), boxed(ema(0.9))],
            chain((clip_by_block_rms(b), trace(0.5), scale_by_trust_ratio(), clip_by_global_norm(a),
                add_decayed_weights(0.1), clip_by_block_rms(b), ema(0.9))));
    }
}

fn flags<S: GradientTransformation<Needs = gradchain::needs::Nothing>>(
    case: &Case,
    expected: &[([bool; 2], [u64; 2])],
    optimizer: S,
    state_of: impl Fn(&S::State) -> ZeroNansState,
) {
    let mut params: Leaves<f32> = to(&case.params);
    let mut state = optimizer.init(&params).unwrap();
    let mut other = optimizer.init(&params).unwrap();
    for (t, (grads, (found, total))) in case.grads.iter().zip(expected).enumerate() {
        optimizer.update(&to::<f32>(grads), &mut other, &params).unwrap();
        optimizer.step(&mut params, &to::<f32>(grads), &mut state).unwrap();
        for seen in [state_of(&state), state_of(&other)] {
            assert_eq!([0, 1].map(|i| seen.found_nan.get(i).unwrap().get()), *found, "step {t} of {optimizer:?}");
            assert_eq!([0, 1].map(|i| seen.zeroed.get(i).unwrap().get()), *total, "step {t} of {optimizer:?}");
            assert_eq!((seen.found_any(), seen.total_zeroed()), (found[0] || found[1], total[0] + total[1]));
        }
    }
}

/// Compares with the stages, one after another.
fn one_by_one<S: GradientTransformation<Needs = gradchain::needs::Nothing> + Clone + 'static>(
    case: &Case,
    members: Vec<Boxed>,
    chained: S,
) {
    let params: Leaves<f64> = to(&case.params);
    let states: Vec<_> = members.iter().map(|m| m.init(&params).unwrap()).collect();
    let mut parts: Vec<_> = members.into_iter().zip(states).collect();
    let by_hand: Oracle = Box::new(move |grads, params| {
        parts.iter_mut().fold(grads.clone(), |grads, (member, state)| {
            updates_of::<f64>(&member.update(&grads, state, params).unwrap())
        })
    });
    check_in::<f64, S>(case, chained, by_hand, 0.0);
}

/// Returns different values over many tiles and chunks.
fn large(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 8.0).collect()
}

#[test]
fn norms_are_reduced_over_all_chunks_of_a_leaf() {
    let grads = [large(40_000), large(513)];
    let exact = norm(from(&grads).iter().flatten());
    let params: Leaves<f32> = [vec![1.0; 40_000], vec![2.0; 513]];
    let optimizer = clip_by_global_norm(1.0);
    let mut state = optimizer.init(&params).unwrap();
    let updates = optimizer.update(&grads, &mut state, &params).unwrap();
    assert_eq!(state.factor(0), state.factor(1));
    approx::assert_relative_eq!(state.factor(0).unwrap(), 1.0 / exact, max_relative = 1e-14);
    approx::assert_relative_eq!(norm(updates_of::<f32>(&updates).iter().flatten()), 1.0, max_relative = 1e-6);

    let optimizer = scale_by_trust_ratio();
    let mut state = optimizer.init(&params).unwrap();
    optimizer.update(&grads, &mut state, &params).unwrap();
    for (i, of_params) in [(0, 200.0), (1, 4.0 * 513.0_f64.sqrt() / 2.0)] {
        let expected = of_params / norm(&from(&grads)[i]);
        approx::assert_relative_eq!(state.factor(i).unwrap(), expected, max_relative = 1e-14);
    }
}

fn updates_by<S: GradientTransformation<Needs = gradchain::needs::Nothing>>(
    optimizer: S,
    grads: Leaves<f32>,
) -> Leaves<f64> {
    let params = grads.each_ref().map(|leaf| vec![1.0_f32; leaf.len()]);
    updates_of::<f32>(&optimizer.update(&grads, &mut optimizer.init(&params).unwrap(), &params).unwrap())
}

fn same(found: Leaves<f64>, expected: [&[f64]; 2]) {
    // As text, since NaN is not equal to itself.
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
}

#[test]
fn nonfinite_gradients_propagate_as_documented() {
    const NAN: f64 = f64::NAN;
    let nan = || [vec![f32::NAN, 4.0], vec![3.0]];
    let infinite = || [vec![f32::INFINITY, 4.0], vec![3.0]];
    same(updates_by(clip(1.0), nan()), [&[NAN, 1.0], &[1.0]]);
    same(updates_by(clip(1.0), infinite()), [&[1.0, 1.0], &[1.0]]);
    same(updates_by(clip_by_global_norm(1.0), nan()), [&[NAN, NAN], &[NAN]]);
    same(updates_by(clip_by_global_norm(1.0), infinite()), [&[NAN, 0.0], &[0.0]]);
    same(updates_by(clip_by_global_norm(f64::INFINITY), infinite()), [&[f64::INFINITY, 4.0], &[3.0]]);
    same(updates_by(clip_by_block_rms(1.0), nan()), [&[NAN, NAN], &[1.0]]);
    same(updates_by(clip_by_block_rms(1.0), infinite()), [&[NAN, 0.0], &[1.0]]);
    same(updates_by(scale_by_trust_ratio(), nan()), [&[NAN, NAN], &[1.0]]);
    same(updates_by(scale_by_trust_ratio().min_norm(0.5), nan()), [&[NAN, NAN], &[1.0]]);
    same(updates_by(scale_by_trust_ratio(), infinite()), [&[NAN, 0.0], &[1.0]]);
    same(updates_by(zero_nans(), infinite()), [&[f64::INFINITY, 4.0], &[3.0]]);
    same(updates_by(zero_nans(), [vec![-0.0, f32::NAN], vec![-2.0]]), [&[-0.0, 0.0], &[-2.0]]);
    same(updates_by(set_to_zero(), nan()), [&[0.0, 0.0], &[0.0]]);
    same(updates_by(keep_params_nonnegative(), nan()), [&[NAN, 4.0], &[3.0]]);
    same(updates_by(scale_by_lion(), nan()), [&[NAN, 1.0], &[1.0]]);
    same(updates_by(scale_by_lion().mode(LionMode::Refined), nan()), [&[NAN, 0.4_f32.into()], &[0.3_f32.into()]]);
}

#[test]
fn norms_of_huge_and_tiny_numbers_are_numbers() {
    let clipped = updates_by(clip_by_global_norm(5.0), [vec![3e30, 0.0], vec![-4e30]]);
    approx::assert_relative_eq!(clipped[0][0], 3.0, max_relative = 1e-6);
    approx::assert_relative_eq!(clipped[1][0], -4.0, max_relative = 1e-6);
    let rescaled = updates_by(scale_by_trust_ratio(), [vec![3e-30, 4e-30], vec![0.0]]);
    approx::assert_relative_eq!(rescaled[0][1], 0.8 * 2.0_f64.sqrt(), max_relative = 1e-6);
    // The quotient of norms overflows `f32`; zero must not become NaN.
    let extreme = updates_by(scale_by_trust_ratio(), [vec![1e-44, 0.0], vec![1.0]]);
    assert!(extreme[0][0] > 0.0 && extreme[0][0].is_finite());
    assert_eq!(extreme[0][1], 0.0);
    same(updates_by(clip_by_global_norm(0.0), [vec![0.0], vec![0.0]]), [&[0.0], &[0.0]]);
    same(updates_by(clip_by_block_rms(0.0), [vec![0.0], vec![2.0]]), [&[0.0], &[0.0]]);
}

#[test]
fn masked_leaves_do_not_count_towards_a_norm() {
    let optimizer = masked(clip_by_global_norm(5.0), Mask::path("0"));
    same(updates_by(optimizer, [vec![6.0, 8.0], vec![100.0]]), [&[3.0, 4.0], &[100.0]]);
    let nan = masked(zero_nans(), Mask::path("0"));
    same(updates_by(nan, [vec![f32::NAN], vec![f32::NAN]]), [&[0.0], &[f64::NAN]]);
}

#[test]
fn set_to_zero_keeps_parameter_bits_and_updates_state() {
    let mut params: Leaves<f32> = [vec![-0.0, 1.0], vec![f32::MIN_POSITIVE / 4.0]];
    let before = bits(&params);
    let optimizer = chain((trace(0.5), clip_by_global_norm(100.0), trace(0.5), set_to_zero()));
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..2 {
        optimizer.step(&mut params, &[vec![1.0_f32, 1.0], vec![1.0]], &mut state).unwrap();
    }
    assert_eq!(bits(&params), before);
    assert_eq!(state.0.moment("trace").unwrap().get::<f32>(0), Some(&[1.5, 1.5][..]));
    assert_eq!(state.2.moment("trace").unwrap().get::<f32>(1), Some(&[2.0][..]));
}

#[test]
fn limits_can_be_scheduled_and_injected() {
    let mut params = [vec![0.0_f64; 2], vec![0.0]];
    let grads = [vec![0.0_f64, 4.0], vec![3.0]];
    let optimizer = clip_by_global_norm(linear(5.0, 2.5, 1));
    let mut state = optimizer.init(&params).unwrap();
    for _ in 0..2 {
        optimizer.step(&mut params, &grads, &mut state).unwrap();
    }
    assert_eq!(params, [vec![0.0, 6.0], vec![4.5]]);
    assert_eq!(state.count.get(), 2);

    let optimizer = chain((inject_hyperparams(clip_by_global_norm(5.0)), sgd(1.0)));
    let mut state = optimizer.init(&params).unwrap();
    state.0.hyperparams_mut().set("max_norm", 2.5).unwrap();
    let updates = optimizer.update(&grads, &mut state, &params).unwrap();
    assert_eq!(updates_of::<f64>(&updates), [vec![-0.0, -2.0], vec![-1.5]]);
}

#[test]
fn momentum_is_in_the_type_and_the_state() {
    let params = vec![0.0_f32; 10];
    assert_eq!(sgd(0.1).init(&params).unwrap().schema().size().total_bytes(), 8, "one count");
    let state = sgd(0.1).momentum(0.9).init(&params).unwrap();
    assert_eq!(state.0.moment("trace").unwrap().get::<f32>(0), Some(&[0.0; 10][..]));
    assert_eq!(sgd(0.1).plan(&params).unwrap().bytes_per_element(), 12.0);
    assert_eq!(sgd(0.1).momentum(0.9).plan(&params).unwrap().bytes_per_element(), 20.0);
    // Clipping reads the gradients once more.
    assert_eq!(chain((clip_by_global_norm(1.0), sgd(0.1))).plan(&params).unwrap().bytes_per_element(), 16.0);
    let mut names = vec![];
    let mut heavy = sgd(0.1).momentum(0.9);
    heavy.arguments(&mut |name, _| names.push(name));
    assert_eq!(names, ["learning_rate", "momentum", "nesterov", "accumulator_dtype"]);
}

#[test]
fn arguments_out_of_range_are_refused() {
    fn refused(optimizer: impl GradientTransformation, message: &str) {
        assert_eq!(optimizer.init(&1.0_f32).unwrap_err().to_string(), message);
    }
    refused(clip(-1.0), "clip: argument `max_delta` must be not negative, found -1");
    refused(clip_by_global_norm(f64::NAN), "clip_by_global_norm: argument `max_norm` must be not negative, found NaN");
    refused(clip_by_block_rms(-1.0), "clip_by_block_rms: argument `threshold` must be not negative, found -1");
    refused(
        scale_by_trust_ratio().eps(-1.0),
        "scale_by_trust_ratio: argument `eps` must be finite and not negative, found -1",
    );
    refused(ema(1.0), "ema: argument `decay` must be in [0, 1), found 1");
    refused(sgd(0.1).momentum(f64::INFINITY), "trace: argument `decay` must be finite, found inf");
    refused(lion(0.1).b2(1.5), "scale_by_lion: argument `b2` must be in [0, 1], found 1.5");
    refused(lamb(0.1).b1(1.0), "scale_by_adam: argument `b1` must be in [0, 1), found 1");
    refused(
        scale_by_schedule(cosine_decay(1.0, 0)),
        "cosine_decay: argument `decay_steps` must be at least 1, found 0",
    );
}

#[cfg(feature = "half")]
#[test]
fn accumulators_have_the_type_asked_for() {
    use gradchain::DType;
    let params = vec![half::bf16::ONE; 3];
    let plain = sgd(0.1).momentum(0.9).init(&params).unwrap();
    assert_eq!(plain.0.moment("trace").unwrap().dtype(0), Some(DType::F32));
    let asked = sgd(0.1).momentum(0.9).accumulator_dtype(DType::Bf16).init(&params).unwrap();
    assert_eq!(asked.0.moment("trace").unwrap().dtype(0), Some(DType::Bf16));
    let asked = lion(0.1).mu_dtype(DType::F64).init(&params).unwrap();
    assert_eq!(asked.0.moment("mu").unwrap().dtype(0), Some(DType::F64));
    // Rounded when stored, not when emitted.
    let optimizer = trace(0.5).accumulator_dtype(DType::Bf16);
    let params = 0.0_f32;
    let mut state = optimizer.init(&params).unwrap();
    let fine = 1.0 + 2.0_f32.powi(-10);
    let first = optimizer.update(&fine, &mut state, &params).unwrap();
    assert_eq!(first.to_vec::<f32>("").unwrap(), [fine]);
    let second = optimizer.update(&0.0_f32, &mut state, &params).unwrap();
    assert_eq!(second.to_vec::<f32>("").unwrap(), [0.5]);
}
