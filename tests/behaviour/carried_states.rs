//! States stepped by a transformation with other arguments than the maker's.

use gradchain::optimizer::{galore, shampoo, soap, stable_adamw};
use gradchain::prelude::*;
use gradchain::schedule::{Hyperparam, table};
use gradchain::select::Mask;
use gradchain::state::same_bits;
use gradchain::transform::{reduce_on_plateau, scale, scale_by_lbfgs, trace};
use gradchain::wrapper::{flatten, mechanize};
use gradchain::{GradientTransformation, extra};
use ndarray::{Array2, array};

const PARAMS: (f64, f64, f64) = (1.0, -2.0, 0.5);
const GRADS: (f64, f64, f64) = (0.5, 1.0, -0.25);

/// Asserts that refused steps and readings change nothing; returns the message.
fn refusal<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(before: &T, after: &T) -> String {
    let mut params = PARAMS;
    let mut state = before.init(&params).unwrap();
    before.step(&mut params, &GRADS, &mut state).unwrap();
    let (was, held) = (params, (*state).clone());
    let error = after.step(&mut params, &GRADS, &mut state).unwrap_err().to_string();
    assert_eq!(after.readings(&state).unwrap_err().to_string(), error);
    assert!(params == was && same_bits(&*state, &held), "{error}");
    before.step(&mut params, &GRADS, &mut state).unwrap();
    error
}

/// Its differences would be misread.
#[test]
fn lbfgs_refuses_a_state_of_another_memory_size() {
    for (made, stepped) in [(1, 2), (2, 1), (10, 3), (3, 10)] {
        let error = refusal(&scale_by_lbfgs().memory_size(made), &scale_by_lbfgs().memory_size(stepped));
        assert!(error.contains("the state was made with another `memory_size`"), "{error}");
        let in_chain = |size| chain((clip(1.0), lbfgs().without_linesearch().memory_size(size), scale(0.5)));
        let error = refusal(&in_chain(made), &in_chain(stepped));
        assert!(error.contains("the state was made with another `memory_size`"), "{error}");
        let error = refusal(&boxed(in_chain(made)), &boxed(in_chain(stepped)));
        assert!(error.contains("the state was made with another `memory_size`"), "{error}");
        let params = PARAMS;
        let mut own = scale_by_lbfgs().memory_size(stepped).init(&params).unwrap();
        let other = scale_by_lbfgs().memory_size(made).init(&params).unwrap();
        assert!(own.replace((*other).clone()).is_err());
    }
}

#[test]
fn arguments_that_determine_the_state_structure_are_compared() {
    let f64s = Some(gradchain::DType::F64);
    let refused = [
        refusal(&adam(0.1), &adam(0.1).mu_dtype(gradchain::DType::F32)),
        refusal(&masked(sgd(0.1), Mask::path("0")), &masked(sgd(0.1), Mask::path("1"))),
        refusal(&chain((None, sgd(0.1))), &chain((Some(trace(0.9)), sgd(0.1)))),
        refusal(&multi_steps(sgd(0.1), 3), &multi_steps(sgd(0.1), 3).use_grad_mean(false)),
        refusal(&params_ema(sgd(0.1), 0.9), &params_ema(sgd(0.1), 0.9).debias(true)),
        refusal(&mechanize(sgd(0.1)), &mechanize(sgd(0.1)).num_betas(2)),
        refusal(&flatten(scale_by_lbfgs().memory_size(2)), &flatten(scale_by_lbfgs())),
        refusal(&inject_hyperparams(adam(0.1)), &inject_hyperparams(adam(0.1).mu_dtype(gradchain::DType::F32))),
        refusal(&inject_hyperparams(adam(0.1)), &inject_hyperparams(adam(0.1)).static_args(["b1"])),
        refusal(&stable_adamw(0.1), &stable_adamw(0.1).mask(Mask::none())),
    ];
    for error in refused {
        assert!(error.contains("made with another `") || error.contains("made by another transformation"), "{error}");
    }
    let mut params = PARAMS;
    let mut state = adam(0.1).init(&params).unwrap();
    // This dtype is the default one.
    adam(0.1).mu_dtype(f64s).nesterov(true).step(&mut params, &GRADS, &mut state).unwrap();
    adam(0.1).step(&mut params, &GRADS, &mut state).unwrap();
}

/// Axes are compared even if shapes are equal, as for square matrices.
#[test]
fn the_axes_of_matrices_are_compared_also_where_shapes_are_the_same() {
    use gradchain::transform::{DimensionNumbers, WeightDimensionNumbers};
    let numbers = |reduction: isize, output: isize| {
        WeightDimensionNumbers::tree([("", Some(DimensionNumbers::new(vec![reduction], vec![output])))])
    };
    let params = Array2::<f64>::eye(3);
    let grads = array![[1.0, 2.0, 3.0], [0.5, -1.0, 2.0], [0.0, 1.0, 0.25]];
    fn holds<T: GradientTransformation<Needs = gradchain::needs::Nothing>>(
        [before, after]: [T; 2],
        params: &Array2<f64>,
        grads: &Array2<f64>,
    ) {
        let (mut params, mut state) = (params.clone(), before.init(params).unwrap());
        before.step(&mut params, grads, &mut state).unwrap();
        let error = after.step(&mut params, grads, &mut state).unwrap_err().to_string();
        assert!(error.contains("another `weight_dimension_numbers`"), "{error}");
        let error = after.init(&params).unwrap().replace((*state).clone()).unwrap_err().to_string();
        assert!(error.contains("another argument"), "{error}");
    }
    let both = [numbers(0, 1), numbers(1, 0)];
    holds(both.clone().map(|numbers| shampoo(0.1).weight_dimension_numbers(numbers)), &params, &grads);
    holds(both.clone().map(|numbers| soap(0.1).weight_dimension_numbers(numbers)), &params, &grads);
    holds(both.map(|numbers| galore(0.1).rank(2).weight_dimension_numbers(numbers)), &params, &grads);
}

/// Arguments without an effect on the state apply from the next step on.
#[test]
fn arguments_that_no_state_depends_on_count_from_the_next_step_on() {
    let (mut params, mut other) = (PARAMS, PARAMS);
    let [plain, nesterov] = [false, true].map(|nesterov| inject_hyperparams(adam(0.1).nesterov(nesterov)));
    let mut state = plain.init(&params).unwrap();
    nesterov.step(&mut params, &GRADS, &mut state).unwrap();
    let mut own = nesterov.init(&other).unwrap();
    nesterov.step(&mut other, &GRADS, &mut own).unwrap();
    assert_eq!(params, other);
}

/// Masks by a function are compared: non-capturing functions by identity, others by the leaves they select.
#[test]
fn masks_by_a_function_are_compared() {
    let mask = || Mask::by(|leaf| leaf.ndim() == 0);
    assert_eq!(mask(), mask());
    let name = String::from("0");
    let captures = |name: String| Mask::by(move |leaf| leaf.path() == name);
    assert_ne!(captures(name.clone()), captures(name.clone()));
    let mut params = PARAMS;
    let mut state = masked(adam(0.1), captures(name.clone())).init(&params).unwrap();
    masked(adam(0.1), captures(name)).step(&mut params, &GRADS, &mut state).unwrap();
    let error = refusal(&masked(adam(0.1), captures("0".into())), &masked(adam(0.1), captures("1".into())));
    assert!(error.contains("another `mask`"), "{error}");
}

/// The inner transformation has other barriers.
#[test]
fn flatten_refuses_the_state_of_a_flatten_of_another_shape() {
    let error = refusal(&flatten(boxed(clip_by_global_norm(1.0))), &flatten(boxed(clip(1.0))));
    assert!(error.contains("made by another transformation") || error.contains("made with another"), "{error}");
    let inside = |member| chain((flatten(member), scale(0.5)));
    let error = refusal(&inside(boxed(clip(1.0))), &inside(boxed(clip_by_global_norm(1.0))));
    assert!(error.contains("made by another transformation") || error.contains("made with another"), "{error}");
}

/// With losses on both sides of the tolerance.
#[test]
fn tolerances_of_a_plateau_are_those_of_the_step() {
    let losses = [1.0, 0.8, 0.75, 0.74, 0.5, 0.49, 0.2, 0.19];
    let values = [0.3, 0.1, 0.3, 0.01, 0.5, 0.01, 0.3, 0.01];
    type Plateau = gradchain::transform::ReduceOnPlateau;
    let rtol = |plateau: Plateau, value: Hyperparam| plateau.rtol(value);
    let atol = |plateau: Plateau, value: Hyperparam| plateau.rtol(0.0).atol(value);
    for set in [rtol, atol] {
        let plateau = || reduce_on_plateau().patience(1).factor(0.5);
        let run = |of: &dyn Fn(usize) -> Hyperparam| {
            let (mut params, mut state) = (0.0_f64, set(plateau(), of(0)).init(&0.0_f64).unwrap());
            for (t, loss) in losses.into_iter().enumerate() {
                set(plateau(), of(t)).step_with(&mut params, &1.0, extra::value(loss), &mut state).unwrap();
            }
            (params, (*state).clone())
        };
        let (scheduled, state) = run(&|_| table(values).into());
        let (carried, other) = run(&|t| values[t].into());
        assert!(scheduled == carried && same_bits(&state, &other), "{scheduled} and {carried}");
        assert_ne!(scheduled, run(&|_| values[0].into()).0);
    }
}
