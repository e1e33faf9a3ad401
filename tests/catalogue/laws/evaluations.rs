//! Evaluation parameters in 16 bits match `f32` training, up to the parameters' rounding.

use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::tree::DynTree;
use gradchain::wrapper::{master, params_swa, sam, schedule_free};

use super::{LeafPlan, Number, Order, noise, registry, tree};
use crate::common::extra_inputs::{Member, Registered, describe, member};
use crate::common::values;
use crate::common::wrapped::Wrap;

/// Each step moves a parameter by less than half the distance to the next 16-bit float.
const STEPS: usize = 60;
const RATE: f64 = 2e-3;

#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// `f32` parameters: rounded once, by at most half an ulp.
    Single,
    /// Plus trained parameters, rounded once, with at most this weight.
    Mixed(f64),
    /// Trained parameters, rounded in every step.
    ///
    /// Their mean is off by at most half an ulp for each step, and half an ulp for its own rounding.
    Trained,
}

/// All wrappers with evaluation parameters.
const AVERAGING: &[(&str, Wrap, Of)] = &[
    ("schedule_free", |inner| member(schedule_free(inner, RATE)), Of::Single),
    ("schedule_free", |inner| member(schedule_free(inner, linear(0.0, RATE, 20)).b1(0.5)), Of::Single),
    ("schedule_free", |inner| member(schedule_free(multi_steps(inner, 2), RATE)), Of::Single),
    (
        "schedule_free",
        |inner| member(inject_hyperparams(schedule_free(inner, RATE).b1(linear(0.5, 0.9, 30)))),
        Of::Single,
    ),
    ("schedule_free", |inner| member(master(schedule_free(inner, RATE))), Of::Mixed(1.0 / 0.9)),
    ("params_ema", |inner| member(params_ema(inner, 0.9)), Of::Trained),
    ("params_ema", |inner| member(master(params_ema(inner, 0.9))), Of::Mixed(0.1)),
    ("params_swa", |inner| member(params_swa(inner).start(3)), Of::Trained),
    ("params_swa", |inner| member(master(params_swa(inner).start(3))), Of::Mixed(0.1)),
    ("lookahead", |inner| member(lookahead(inner, 3, 0.5)), Of::Trained),
    ("sam", |inner| member(sam(inner, sgd(RATE))), Of::Trained),
    ("lookahead", |inner| member(master(lookahead(inner, 3, 0.5))), Of::Single),
];

fn numbers(number: Number, seed: u64, shift: f64) -> DynTree {
    let leaf = |shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    tree(&[leaf(&[40]), leaf(&[3, 4]), leaf(&[])], |leaf, i| {
        let x = noise(seed, leaf, i);
        half::bf16::from_f64(x + if x < 0.0 { -shift } else { shift }).to_f64()
    })
}

/// Returns final and evaluation parameters.
fn trained(optimizer: &Member, number: Number) -> [Vec<(String, Vec<f64>)>; 2] {
    let mut params = numbers(number, 1, 2.0);
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..STEPS {
        // Constant signs, so that each element moves in one direction.
        let grads = numbers(number, 2, 0.5 + (step % 3) as f64 / 8.0);
        optimizer.step_with_inputs(&mut params, &grads, &mut state).unwrap();
    }
    let evaluated = state.eval_params(&params).unwrap();
    [values(&params), values(&*evaluated)]
}

#[test]
fn half_precision_evaluation_parameters_are_near_single_precision() {
    let bases: [(&str, Member); 3] = [
        ("sgd", member(sgd(RATE))),
        ("momentum", member(sgd(RATE / 4.0).momentum(0.75))),
        ("adam", member(adam(RATE))),
    ];
    let (mut cases, mut stood_still) = (0, 0);
    for (base, inner) in &bases {
        for (name, make, of) in AVERAGING {
            let optimizer = make(inner.clone());
            let single = trained(&optimizer, Number::F32);
            for (number, digits) in [(Number::Bf16, 7), (Number::F16, 10)] {
                let rounded = trained(&optimizer, number);
                for ((path, a), (_, b)) in single[1].iter().zip(&rounded[1]) {
                    for (i, (a, b)) in a.iter().zip(b).enumerate() {
                        // Parameters are between 1 and 4.
                        let ulp = 2.0 / f64::from(1 << digits);
                        // Roundings in `f32` are far below a hundredth.
                        let most = match of {
                            Of::Single => 0.51,
                            Of::Mixed(weight) => 0.51 + weight / 2.0,
                            Of::Trained => 0.51 + STEPS as f64 / 2.0,
                        };
                        let off = (a - b).abs() / ulp;
                        assert!(
                            off <= most,
                            "{name} of {base} as {number:?}, {path}[{i}]: {b}, in f32 {a}: {off} ulps"
                        );
                        cases += 1;
                    }
                }
                stood_still += usize::from(rounded[0] == values(&numbers(number, 1, 2.0)));
            }
        }
    }
    assert!(cases > 3_000, "{cases} numbers were compared");
    assert!(stood_still > 0, "no training was so slow that rounded parameters stood still");
}

#[test]
fn all_evaluation_parameters_are_tested() {
    let params = numbers(Number::Bf16, 1, 2.0);
    for entry in registry() {
        let optimizer = entry.boxed();
        let is_there = optimizer.init(&params).unwrap().eval_params(&params).is_ok();
        let described = describe(&optimizer);
        let is_held = AVERAGING.iter().any(|(name, ..)| described.contains(name) || entry.name().contains(name));
        assert!(!is_there || is_held, "{}: {described} has evaluation parameters", entry.name());
    }
}
