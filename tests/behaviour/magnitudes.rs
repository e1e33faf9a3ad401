//! Norms neither overflow nor underflow: results scale with gradients or parameters over the whole range.

use gradchain::optimizer::{fromage, lars, sign_sgd};
use gradchain::prelude::*;
use gradchain::transform::{
    GlobalNorm, Preconditioning, adaptive_grad_clip, clip_by_block_norm, clip_by_block_rms, normalize,
    normalize_by_update_norm, scale, scale_by_muon, scale_by_param_block_norm, scale_by_param_block_rms,
    scale_by_trust_ratio, snapshot, trace,
};
use gradchain::tree::tree_norm;
use gradchain::wrapper::graft;
use ndarray::{Array1, Array2};

type Params = (Array2<f64>, Array1<f64>);

fn params(seed: f64, power: i32) -> Params {
    let x = move |i: usize| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin() * 2.0_f64.powi(power);
    (Array2::from_shape_fn((3, 4), |(i, j)| x(4 * i + j)), Array1::from_shape_fn(5, |i| x(12 + i)))
}

fn flat((matrix, vector): &Params) -> Vec<f64> {
    matrix.iter().chain(vector).copied().collect()
}

/// Steps with gradients and parameters that are noise times powers of two.
fn updates<T: GradientTransformation<Needs = Nothing>>(t: &T, of_grads: i32, of_params: i32) -> Vec<Vec<f64>> {
    let at = params(0.3, of_params);
    let mut state = t.init(&at).unwrap();
    let update = |step: usize| {
        let updates = t.update(&params(step as f64, of_grads), &mut state, &at).unwrap();
        ["0", "1"].iter().flat_map(|path| updates.to_vec::<f64>(path).unwrap()).collect()
    };
    (1..4).map(update).collect()
}

/// From 1e-301 to 1e301.
const POWERS: [i32; 12] = [-1000, -700, -560, -530, -300, -40, 40, 300, 500, 520, 700, 1000];

/// Powers of two for gradients, parameters and updates.
type Scaling = fn(i32) -> [i32; 3];

/// Scaled gradients scale updates (`SAME_DIRECTION`) or do not (`SCALE_INVARIANT`); the others scale
/// parameters.
const SAME_DIRECTION: Scaling = |power| [power, 0, power];
const SCALE_INVARIANT: Scaling = |power| [power, 0, 0];
const OF_PARAMS: Scaling = |power| [0, power, power];
const WITH_PARAMS: Scaling = |power| [power, power, power];

#[track_caller]
fn scales<T: GradientTransformation<Needs = Nothing>>(what: &str, t: &T, scaling: Scaling, tolerance: f64) -> usize {
    let plain = updates(t, 0, 0);
    for power in POWERS {
        let [of_grads, of_params, of_updates] = scaling(power);
        let ours = updates(t, of_grads, of_params);
        for (ours, plain) in ours.iter().flatten().zip(plain.iter().flatten()) {
            let expected = plain * 2.0_f64.powi(of_updates);
            let near = (ours - expected).abs() <= tolerance * expected.abs().max(f64::MIN_POSITIVE);
            assert!(near, "{what}, times 2^{power}: {ours:e}, not {expected:e}");
        }
    }
    POWERS.len()
}

#[test]
fn norm_based_updates_scale_with_inputs_of_any_magnitude() {
    let near = 1e-14;
    let mut cases = 0;
    let mut of_size = |what: &str, t: Boxed<Nothing>| cases += scales(what, &t, SCALE_INVARIANT, near);
    of_size("normalize", boxed(normalize()));
    of_size("normalize_by_update_norm", boxed(normalize_by_update_norm().eps(0.0)));
    of_size("clip_by_global_norm", boxed(chain((scale(2.0_f64.powi(20)), normalize(), clip_by_global_norm(0.5)))));
    // Before the norm; in boxes, under masks, beside others.
    of_size("trace", boxed(chain((trace(0.5), normalize()))));
    of_size("decayed", boxed(chain((trace(0.5), scale(3.0), normalize(), scale(0.5)))));
    of_size("twice", boxed(chain((clip_by_block_rms(f64::INFINITY), scale(0.5), normalize(), normalize()))));
    of_size("boxes", boxed(chain(vec![boxed(trace(0.5)), boxed(normalize()), boxed(scale(2.0))])));
    of_size("masked", boxed(partition((("0", chain((trace(0.5), normalize()))), ("1", normalize())), by_leaf())));
    of_size("beside", boxed(partition((("0", normalize()), ("1", chain((normalize(), adam(0.1))))), by_leaf())));
    of_size("in a window", boxed(multi_steps(normalize(), 1)));
    of_size("watched", boxed(chain((snapshot("norm", GlobalNorm), normalize()))));
    of_size("graft", boxed(graft(sgd(1.0).momentum(0.5), chain((normalize(), sgd(0.5))))));
    // Matrix products round.
    let mut of_size = |what: &str, t: Boxed<Nothing>| cases += scales(what, &t, SCALE_INVARIANT, 1e-12);
    let only_matrices = |of| boxed(partition((("0", of), ("1", boxed(normalize()))), by_leaf()));
    of_size("muon", only_matrices(boxed(scale_by_muon().eps(0.0))));
    of_size(
        "muon, spectral",
        only_matrices(boxed(scale_by_muon().eps(0.0).preconditioning(Preconditioning::Spectral))),
    );
    let mut along = |what: &str, t: Boxed<Nothing>| cases += scales(what, &t, SAME_DIRECTION, near);
    along("a limit that is never reached", boxed(clip_by_global_norm(f64::INFINITY)));
    along("graft to gradients", boxed(graft(sign_sgd(1.0), sgd(1.0))));
    let mut of_params = |what: &str, t: Boxed<Nothing>| cases += scales(what, &t, OF_PARAMS, near);
    of_params("scale_by_param_block_norm", boxed(scale_by_param_block_norm().min_scale(0.0)));
    of_params("scale_by_param_block_rms", boxed(scale_by_param_block_rms().min_scale(0.0)));
    let mut with_params = |what: &str, t: Boxed<Nothing>| cases += scales(what, &t, WITH_PARAMS, near);
    with_params("scale_by_trust_ratio", boxed(scale_by_trust_ratio()));
    with_params("lars", boxed(lars(0.1).weight_decay(0.1)));
    with_params("fromage", boxed(fromage(0.1).min_norm(0.0)));
    assert_eq!(cases, 21 * POWERS.len());
}

fn by_leaf() -> Labels {
    Labels::by(|leaf| if leaf.ndim() == 2 { "0" } else { "1" })
}

#[test]
fn clips_limit_large_updates_and_pass_small_ones() {
    let clips: [(&str, Boxed<Nothing>); 4] = [
        ("clip_by_global_norm", boxed(clip_by_global_norm(0.5))),
        ("clip_by_block_norm", boxed(clip_by_block_norm(0.5))),
        ("clip_by_block_rms", boxed(clip_by_block_rms(0.5))),
        ("adaptive_grad_clip", boxed(adaptive_grad_clip(0.5))),
    ];
    for (what, clip) in clips {
        let plain = updates(&clip, 40, 0);
        for power in POWERS {
            let ours = updates(&clip, power, 0);
            for (step, (ours, plain)) in ours.iter().zip(&plain).enumerate() {
                let small = flat(&params(step as f64 + 1.0, power));
                let expected = if power < 0 { &small } else { plain };
                for (ours, expected) in ours.iter().zip(expected) {
                    assert!(
                        (ours - expected).abs() <= 1e-14 * expected.abs(),
                        "{what}, 2^{power}: {ours:e}, {expected:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn norm_readings_are_accurate_at_any_magnitude() {
    for power in POWERS {
        let (grads, optimizer) = (params(1.0, power), chain((trace(0.5), clip_by_block_norm(1.0), sgd(0.1))));
        let mut at = params(0.3, 0);
        let mut state = optimizer.init(&at).unwrap();
        optimizer.step(&mut at, &grads, &mut state).unwrap();
        let watched = chain((trace(0.5), snapshot("norm", GlobalNorm)));
        let (mut of_watched, at) = (watched.init(&params(0.3, 0)).unwrap(), params(0.3, 0));
        watched.update(&grads, &mut of_watched, &at).unwrap();
        let measured = of_watched.1.get("norm").unwrap();
        assert!((measured - tree_norm(&grads)).abs() <= 1e-14 * measured, "2^{power}: {measured:e}");
        let read = optimizer.readings(&state).unwrap().get("clip_by_block_norm.norm").unwrap();
        let norm = tree_norm(&grads);
        assert!((read - norm).abs() <= 1e-14 * norm, "2^{power}: {read:e}, not {norm:e}");
    }
}

#[test]
fn a_clip_knows_norms_whose_squares_overflow() {
    let optimizer = chain((clip_by_global_norm(1.0), sgd(1.0)));
    let mut params = vec![0.0_f64; 4];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![1e160; 4], &mut state).unwrap();
    params.iter().for_each(|p| assert!((p + 0.5).abs() < 1e-15, "{params:?}"));
    // Beside an `f32` leaf with a contribution that rounds to zero.
    let mut params = (vec![0.0_f64; 4], vec![0.0_f32; 2]);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(vec![1e160; 4], vec![1.0_f32; 2]), &mut state).unwrap();
    params.0.iter().for_each(|p| assert!((p + 0.5).abs() < 1e-15, "{params:?}"));
    assert_eq!(params.1, [0.0; 2]);
    // Infinity and NaN are propagated.
    for (bad, rest) in [(f64::INFINITY, 0.0), (f64::NAN, f64::NAN)] {
        let mut params = vec![0.0_f64; 2];
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &vec![bad, 1.0], &mut state).unwrap();
        assert!(params[0].is_nan() && (params[1] == rest || params[1].is_nan() && rest.is_nan()), "{params:?}");
    }
}

/// Scale-invariant, even with its `eps`.
#[test]
fn muon_orthogonalizes_small_gradients_too() {
    for method in
        [Preconditioning::Frobenius, Preconditioning::Spectral, Preconditioning::Aol, Preconditioning::Schatten]
    {
        let optimizer = scale_by_muon().preconditioning(method);
        let update = |size: f64| {
            let params = Array2::<f32>::zeros((3, 4));
            let grads =
                Array2::from_shape_fn((3, 4), |(i, j)| (size * (1.0 + (1.7 * (4 * i + j) as f64).sin())) as f32);
            let mut state = optimizer.init(&params).unwrap();
            optimizer.update(&grads, &mut state, &params).unwrap().to_vec::<f32>("").unwrap()
        };
        let plain = update(1.0);
        for size in [1e-30, 1e-12, 1e-6, 1e-3, 1e3, 1e12, 1e30] {
            for (ours, plain) in update(size).iter().zip(&plain) {
                assert!((ours - plain).abs() < 1e-4, "{method:?}, {size:e}: {ours}, not {plain}");
            }
        }
    }
}
