//! A hundred steps match candle's own optimizers.

use candle_core::Var;
use candle_nn::{AdamW, Optimizer, ParamsAdamW, SGD};
use gradchain::prelude::*;
use gradchain_candle::{init, step};

use super::*;

const STEPS: u64 = 100;

/// Returns the greatest final difference, with equal values and gradients.
fn distance<T>(dtype: DType, optimizer: &T, theirs: impl FnOnce(Vec<Var>) -> Box<dyn FnMut(&GradStore)>) -> f64
where
    T: GradientTransformation<Needs = gradchain::needs::Nothing>,
{
    let [our, their] = [var(&[40, 5], dtype, 7), var(&[40, 5], dtype, 7)];
    let vars = Vars::named([("w", our.clone())]).unwrap();
    let mut state = init(optimizer, &vars).unwrap();
    let mut theirs = theirs(vec![their.clone()]);
    for t in 0..STEPS {
        let gradient = tensor(&[40, 5], dtype, 1000 + t);
        step(optimizer, &vars, &gradients(&[(&our, gradient.clone())]), &mut state).unwrap();
        theirs(&gradients(&[(&their, gradient)]));
    }
    let [our, their] = [our, their].map(|var| bits(&var));
    our.iter().zip(&their).map(|(a, b)| (f64::from_bits(*a) - f64::from_bits(*b)).abs()).fold(0.0, f64::max)
}

#[test]
fn sgd_is_bitwise_identical() {
    for dtype in [DType::F32, DType::F64] {
        let apart = distance(dtype, &sgd(0.1), |vars| {
            let mut sgd = SGD::new(vars, 0.1).unwrap();
            Box::new(move |grads| sgd.step(grads).unwrap())
        });
        assert_eq!(apart, 0.0, "{dtype:?}");
    }
}

/// Bounds the rounding errors of both programs.
///
/// With gradients between 0.25 and 2 in size, √v̂ is at least 0.25 and m̂ at most 2 in size, so an update u is at most
/// 8 learning rates. Errors of one program at step t, in units of ε/2 of the type (relatively half a unit in the last
/// place):
///
/// - m is an exponential mean: three roundings a step of at most 2 each, a tenth of which is forgotten per step, give
///   at most 3·2/(1 − 0.9) = 60 absolutely. Division by 0.25 and by the correction, at least 0.1, gives 2400.
/// - v is a sum of positive terms: four roundings a step give a relative error of 4t, and 2t for its root. For an
///   update of 8: 16t.
/// - At most ten more roundings follow: for an update of 8, 80.
///
/// The error of an update is thus at most (2400 + 16t + 80)·ε/2·lr. A parameter, of at most 2 + 8·lr·t in size, is
/// rounded three times a step, which adds 3·(2 + 8·lr·t)·ε/2. The bound is twice the sum over all steps, for both
/// programs.
fn bound(epsilon: f64, lr: f64) -> f64 {
    let at = |t: u64| lr * (2400.0 + 16.0 * t as f64 + 80.0) + 3.0 * (2.0 + 8.0 * lr * t as f64);
    epsilon * (1..=STEPS).map(at).sum::<f64>()
}

#[test]
fn adamw_differs_by_roundings_only() {
    for (dtype, epsilon) in [(DType::F64, f64::EPSILON), (DType::F32, f64::from(f32::EPSILON))] {
        let (lr, weight_decay) = (0.01, 0.1);
        let params = ParamsAdamW { lr, weight_decay, ..ParamsAdamW::default() };
        let ours = adamw(lr).weight_decay(weight_decay).b1(params.beta1).b2(params.beta2).eps(params.eps);
        let apart = distance(dtype, &ours, |vars| {
            let mut adamw = AdamW::new(vars, params).unwrap();
            Box::new(move |grads| adamw.step(grads).unwrap())
        });
        assert!(apart <= bound(epsilon, lr), "{dtype:?}: {apart:e} where {:e} is the bound", bound(epsilon, lr));
        println!("{dtype:?} {apart:e}");
    }
}
