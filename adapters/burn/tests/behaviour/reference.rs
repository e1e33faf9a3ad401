//! A hundred steps match each of burn's optimizers, in `f64`.
//!
//! burn keeps its hyperparameters in `f32`; ours get the same values.

use burn::module::{Module, Param};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsParams, LBFGSConfig, LambConfig,
    LineSearchFn, LionConfig, ModuleOptimizer, MuonConfig, RmsPropConfig, SgdConfig,
};
use burn::tensor::{DType, Tensor, TensorData};
use gradchain::needs;
use gradchain::optimizer::{adan, amsgrad};
use gradchain::prelude::*;
use gradchain::schedule::piecewise_constant;
use gradchain::transform::scale_by_schedule;
use gradchain::tree::tree_assign;
use gradchain_burn::{Leaves, gradients, init, params, params_mut, step};

use crate::{device, values};

const RATE: f64 = 1e-2;
const STEPS: usize = 100;

/// Square, since no optimizer treats rows and columns differently.
#[derive(Module, Debug)]
struct Matrix {
    weight: Param<Tensor<2>>,
}

impl Matrix {
    fn new() -> Matrix {
        let start = TensorData::new((0..16).map(|i| f64::from(i).sin() * 2.0).collect(), [4, 4]);
        Matrix { weight: Param::from_tensor(Tensor::from_data(start, (&device(), DType::F64))) }
    }

    /// Returns gradients of both signs, from 1e-3 to 1e3.
    fn gradients(&self, step: usize) -> GradientsParams {
        let element = |i: usize| (0.7 * (step * 16 + i) as f64).sin() * 10_f64.powi((step + i) as i32 % 7 - 3);
        let data = TensorData::new((0..16).map(element).collect(), [4, 4]);
        let mut grads = GradientsParams::new();
        grads.register(self.weight.id, Tensor::<2>::from_data(data, (&device().inner(), DType::F64)));
        grads
    }
}

/// Returns the largest final difference, relative to the parameters' size.
fn apart<T>(mut theirs: ModuleOptimizer, ours: &T) -> f64
where
    T: GradientTransformation<Needs = needs::Nothing>,
{
    let (mut there, mut here) = (Matrix::new(), Matrix::new());
    let mut state = init(ours, &here).unwrap();
    for number in 0..STEPS {
        let grads = there.gradients(number);
        there = theirs.step(RATE, there, grads);
        let grads = here.gradients(number);
        step(ours, &mut here, &grads, &mut state).unwrap();
    }
    let (there, here) = (values(&there), values(&here));
    assert_ne!(here, values(&Matrix::new()));
    let difference = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs().max(1.0);
    there[0].iter().zip(&here[0]).map(difference).fold(0.0, f64::max)
}

fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Bounds the rounding of a few `f64` operations a step.
const ROUNDED: f64 = 1e-12;

/// Bounds the effect of burn's bias corrections in `f32`, for steps up to `reach`.
///
/// The relative error of `1 − βᵗ` is `t` roundings of `βᵗ`, and one of the difference.
fn by_corrections(b1: f64, b2: f64, reach: f64) -> f64 {
    let relative = |b: f64, t: i32| {
        let power = b.powi(t);
        f64::from(f32::EPSILON) * (0.5 * f64::from(t) * power / (1.0 - power) + 0.5)
    };
    (1..=STEPS as i32).map(|t| reach * (relative(b1, t) + 0.5 * relative(b2, t))).sum()
}

/// Returns Adam's longest step for these decays (Kingma and Ba, section 2.1).
fn reach(b1: f64, b2: f64) -> f64 {
    RATE * ((1.0 - b1) / (1.0 - b2).sqrt()).max(1.0)
}

#[test]
fn sgd_with_and_without_momentum() {
    assert!(apart(SgdConfig::new().init(), &sgd(RATE)) < ROUNDED);
    for nesterov in [false, true] {
        let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov };
        let theirs =
            SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(Some(WeightDecayConfig::new(0.1)));
        let ours = chain((add_decayed_weights(single(0.1)), sgd(RATE).momentum(single(0.9)).nesterov(nesterov)));
        assert!(apart(theirs.init(), &ours) < ROUNDED, "nesterov {nesterov}");
    }
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.25, nesterov: false };
    let dampened = scale_by_schedule(piecewise_constant(1.0, [(1, 0.75)]));
    let ours = chain((dampened, sgd(RATE).momentum(single(0.9))));
    assert!(apart(SgdConfig::new().with_momentum(Some(momentum)).init(), &ours) < ROUNDED);
}

#[test]
fn adam_and_adamw() {
    let (b1, b2, eps) = (single(0.9), single(0.999), single(1e-5));
    let bound = by_corrections(b1, b2, reach(b1, b2));
    assert!(bound < 1e-3, "{bound}");
    assert!(apart(AdamConfig::new().init(), &adam(RATE).eps(eps)) < bound);
    let ours = adamw(RATE).eps(eps).weight_decay(single(0.1));
    assert!(apart(AdamWConfig::new().with_weight_decay(0.1).init(), &ours) < bound);
    let ours = amsgrad(RATE).eps(eps);
    let theirs = apart(AdamConfig::new().with_amsgrad(true).init(), &ours);
    assert!(theirs > bound, "burn's AMSGrad has the largest second moment before its correction: {theirs}");
}

#[test]
fn rmsprop_with_and_without_momentum_and_centered() {
    let (alpha, eps) = (single(0.99), single(1e-5));
    let theirs = RmsPropConfig::new().with_momentum(0.0);
    let ours = rmsprop(RATE).decay(alpha).eps(eps).eps_in_sqrt(false);
    assert!(apart(theirs.init(), &ours) < ROUNDED);
    assert!(apart(theirs.with_momentum(0.9).init(), &ours.clone().momentum(single(0.9))) < ROUNDED);
    assert!(apart(RmsPropConfig::new().with_momentum(0.0).with_centered(true).init(), &ours.centered()) < 1e-9);
}

#[test]
fn adagrad_with_and_without_epsilon() {
    for eps in [0.0, 0.25] {
        let ours = adagrad(RATE).initial_accumulator_value(0.0).eps(eps).eps_in_sqrt(false);
        assert!(apart(AdaGradConfig::new().with_epsilon(eps as f32).init(), &ours) < ROUNDED, "epsilon {eps}");
    }
}

#[test]
fn lion_with_decay() {
    let ours = lion(RATE).b1(single(0.9)).b2(single(0.99)).weight_decay(single(0.1));
    assert!(apart(LionConfig::new().with_weight_decay(0.1).init(), &ours) < ROUNDED);
}

#[test]
fn lamb_with_decay() {
    let (b1, b2) = (single(0.9), single(0.999));
    let ours = lamb(RATE).b1(b1).b2(b2).eps(single(1e-6)).weight_decay(single(0.1));
    // A step's length is the rate times the parameters' norm, which stays below 10; the direction's error enters
    // numerator and denominator.
    let bound = 2.0 * by_corrections(b1, b2, RATE * 10.0);
    assert!(apart(LambConfig::new().with_weight_decay(0.1).init(), &ours) < bound);
}

#[test]
fn muon_of_a_square_matrix() {
    let momentum = MomentumConfig { momentum: 0.95, dampening: 0.0, nesterov: false };
    let theirs = MuonConfig::new().with_momentum(momentum).with_weight_decay(Some(WeightDecayConfig::new(0.1)));
    let ours = muon(RATE)
        .ns_coeffs([single(3.4445), single(-4.775), single(2.0315)])
        .beta(single(0.95))
        .eps(0.0)
        .nesterov(false)
        .weight_decay(single(0.1));
    // Five iterations with slope at most 3.4445 at zero magnify a rounding of 1e-16 five hundred times, in each of a
    // hundred steps.
    assert!(apart(theirs.init(), &ours) < 1e-10);
}

/// Adan matches at one half.
///
/// burn multiplies the mean of changes by `beta_2`, as the authors do, ours by `1 − b2`, as Optax.
#[test]
fn adan_at_one_half() {
    let (b1, b3, eps) = (single(0.98), single(0.99), single(1e-8));
    let theirs = AdanConfig::new().with_beta_2(0.5);
    let ours = adan(RATE).b1(b1).b2(0.5).b3(b3).eps(eps).eps_root(0.0);
    // The means share one root; the second has at most the same correction.
    let bound = by_corrections(b1, b3, RATE * 10.0) + by_corrections(0.5, b3, RATE * 10.0);
    assert!(apart(theirs.init(), &ours) < bound);
    let ours = adan(RATE).b1(b1).b2(single(0.92)).b3(b3).eps(eps).eps_root(0.0);
    assert!(apart(AdanConfig::new().init(), &ours) > 1e-2);
}

#[test]
fn adafactor_of_matrices() {
    let theirs = AdafactorConfig::new().with_relative_step(false);
    let ours = adafactor(RATE).min_dim_size_to_factor(1).eps(single(1e-30));
    assert!(apart(theirs.clone().init(), &ours) < ROUNDED);
    let ours = ours.multiply_by_parameter_scale(false).clipping_threshold(0.5).weight_decay_rate(RATE * single(0.1));
    let theirs = theirs.with_scale_parameter(false).with_clip_threshold(0.5).with_weight_decay(0.1);
    assert!(apart(theirs.init(), &ours) < ROUNDED);
}

/// Computes a valley, twenty times as steep in one direction, and not quite a parabola.
fn valley(weight: Tensor<2>) -> Tensor<1> {
    let x = weight.reshape([16]);
    let steep = Tensor::<1>::from_data(
        TensorData::new((0..16).map(|i| 1.0 + 1.2 * f64::from(i)).collect::<Vec<f64>>(), [16]),
        (&x.device(), DType::F64),
    );
    ((x.clone() * x.clone() * steep).sum() + x.powi_scalar(4).sum() * 0.1) * 1e-3
}

impl Matrix {
    fn loss_and_gradients(&self) -> (f64, GradientsParams) {
        let loss = valley(self.weight.val());
        let value = loss.clone().into_scalar::<f64>();
        (value, GradientsParams::from_grads(loss.backward(), self))
    }
}

/// The first step is no longer than the rate: burn divides by the gradient's 1-norm above 1, ours by the 2-norm. This
/// loss is so flat that neither does.
#[test]
fn lbfgs_without_a_line_search() {
    let ones = || Tensor::<2>::ones([4, 4], (&device(), DType::F64));
    let start = || Matrix { weight: Param::from_tensor(ones()) };
    let (mut there, mut here, rate) = (start(), start(), 0.05);
    let mut theirs = LBFGSConfig::new()
        .with_max_iter(1)
        .with_history_size(10)
        .with_tolerance_grad(0.0)
        .with_tolerance_change(0.0)
        .init();
    let ours = lbfgs().without_linesearch().learning_rate(rate);
    let mut state = init(&ours, &here).unwrap();
    for _ in 0..STEPS {
        there = theirs.step(rate, there, |matrix| matrix.loss_and_gradients()).0;
        let grads = here.loss_and_gradients().1;
        step(&ours, &mut here, &grads, &mut state).unwrap();
    }
    let (there, here) = (values(&there), values(&here));
    let apart = there[0].iter().zip(&here[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    // Each step forgets a twentieth of earlier errors.
    assert!(apart < ROUNDED && here[0].iter().all(|x| x.abs() < 0.1), "{apart:e} {here:?}");
}

/// The line search evaluates the module's loss at trial points; a snapshot of its parameters is minimized.
#[test]
fn lbfgs_with_a_line_search_finds_the_minimum_that_burns_finds() {
    let (mut matrix, optimizer) = (Matrix::new(), lbfgs());
    let mut found = params(&matrix).unwrap();
    let mut state = optimizer.init(&found).unwrap();
    let loss = |point: &Leaves| {
        tree_assign(&mut params_mut(&mut matrix)?, point)?;
        let (value, grads) = matrix.loss_and_gradients();
        Ok::<_, gradchain::Error>((value, gradients(&matrix, &grads)?))
    };
    let report = optimizer.minimize(&mut found, loss, &mut state).gradient_atol(1e-9).max_steps(100).run().unwrap();
    assert!(report.converged(), "{report:?}");
    tree_assign(&mut params_mut(&mut matrix).unwrap(), &found).unwrap();

    let mut there = Matrix::new();
    let mut theirs = LBFGSConfig::new().with_line_search_fn(LineSearchFn::StrongWolfe).init();
    for _ in 0..STEPS {
        there = theirs.step(1.0, there, |matrix| matrix.loss_and_gradients()).0;
    }
    for (ours, theirs) in values(&matrix)[0].iter().zip(&values(&there)[0]) {
        // The curvature is at least 2e-3, and gradients end at 1e-9 here and at 1e-7 in burn.
        assert!(ours.abs() < 1e-6 && theirs.abs() < 1e-4, "{ours:e} {theirs:e}");
    }
}

/// burn keeps state by `ParamId`.
#[test]
fn burn_loses_the_state_of_a_replaced_parameter() {
    let run = |replace: bool| {
        let momentum = MomentumConfig { momentum: 0.5, dampening: 0.0, nesterov: false };
        let mut optimizer: ModuleOptimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
        let mut matrix = Matrix::new();
        for number in 0..4 {
            if replace {
                matrix.weight = Param::from_tensor(matrix.weight.val().detach());
            }
            let grads = matrix.gradients(number);
            matrix = optimizer.step(RATE, matrix, grads);
        }
        values(&matrix)
    };
    assert_ne!(run(false), run(true));
}
