//! An impossible step is an error that names the path, and changes nothing.

use gradchain::prelude::*;
use gradchain::wrapper::skip_absent;
use gradchain_candle::{init, step};

use super::*;

/// Asserts that nothing else changed.
fn refused(change: impl FnOnce(&Vars, &mut GradStore)) -> String {
    let network = Network::new(DType::F32);
    let vars = network.vars();
    let optimizer = adam(0.1);
    let mut state = init(&optimizer, &vars).unwrap();
    step(&optimizer, &vars, &network.grads(), &mut state).unwrap();
    let (before, shown) = (all_bits(&vars), format!("{:?}", state.schema()) + &format!("{state:?}"));

    let mut grads = network.grads();
    change(&vars, &mut grads);
    let error = step(&optimizer, &vars, &grads, &mut state).unwrap_err();
    assert_eq!(all_bits(&vars), before);
    assert_eq!(format!("{:?}", state.schema()) + &format!("{state:?}"), shown);
    step(&optimizer, &vars, &network.grads(), &mut state).unwrap();
    assert_ne!(all_bits(&vars), before, "it goes on");
    error.to_string()
}

fn of<'v>(vars: &'v Vars, path: &str) -> &'v Var {
    vars.iter().find(|(found, _)| *found == path).expect("a variable").1
}

#[test]
fn a_missing_gradient() {
    let error = refused(|vars, grads| _ = grads.remove(of(vars, "fc2/bias")));
    assert!(error.contains("missing leaf fc2/bias: f32 [3]"), "{error}");
}

#[test]
fn a_gradient_of_another_shape() {
    let error = refused(|vars, grads| _ = grads.insert(of(vars, "fc2/bias"), tensor(&[1, 3], DType::F32, 0)));
    assert!(error.contains("fc2/bias: expected shape [3], found [1, 3]"), "{error}");
}

#[test]
fn a_gradient_that_would_be_rounded() {
    let error = refused(|vars, grads| _ = grads.insert(of(vars, "fc1/bias"), tensor(&[8], DType::F64, 0)));
    assert!(error.contains("fc1/bias: expected type f32, found f64"), "{error}");
}

#[test]
fn a_gradient_that_has_no_floats() {
    let whole = Tensor::zeros(8, DType::U32, &Device::Cpu).unwrap();
    let error = refused(|vars, grads| _ = grads.insert(of(vars, "fc1/bias"), whole));
    assert!(error.contains("`fc1/bias` must be of type f32, f64, f16 or bf16"), "{error}");
}

#[test]
fn a_gradient_in_the_memory_of_a_variable() {
    let error = refused(|vars, grads| {
        _ = grads.insert(of(vars, "fc1/bias"), of(vars, "fc2/bias").as_tensor().clone());
    });
    assert_eq!(
        error,
        "gradient: argument `fc1/bias` must be in memory of its own, found the memory of the variable `fc2/bias`"
    );
}

#[test]
fn wider_gradients_are_no_error() -> Tested {
    let w = var(&[2], DType::BF16, 1);
    let vars = Vars::named([("w", w.clone())])?;
    let mut state = init(&sgd(1.0), &vars)?;
    let gradient = w.to_dtype(DType::F32)?;
    step(&sgd(1.0), &vars, &gradients(&[(&w, gradient)]), &mut state)?;
    assert_eq!(bits(&w), [0, 0]);
    Ok(())
}

#[test]
fn variables_without_gradients_rest_when_told() -> Tested {
    let network = Network::new(DType::F32);
    let vars = network.vars();
    let (before, optimizer) = (all_bits(&vars), skip_absent(adamw(0.1)));
    let mut state = init(&optimizer, &vars)?;
    let mut grads = network.grads();
    grads.remove(of(&vars, "fc1/weight"));
    step(&optimizer, &vars, &grads, &mut state)?;
    let moved: Vec<_> = all_bits(&vars).iter().zip(&before).map(|(after, before)| after != before).collect();
    assert_eq!(moved, [true, false, true, true]);
    Ok(())
}

#[test]
fn one_variable_under_two_names() {
    let w = var(&[2], DType::F32, 0);
    let error = Vars::named([("head.weight", w.clone()), ("wte.weight", w)]).unwrap_err().to_string();
    assert_eq!(
        error,
        "Vars: argument `wte/weight` must be a variable of its own, found that of `head/weight`; leave one of the two \
         names out with `Vars::of_some`"
    );
}

#[test]
fn integers_are_left_alone_and_small_floats_refused() -> Tested {
    let steps = Var::from_tensor(&Tensor::zeros(3, DType::I64, &Device::Cpu)?)?;
    let vars = Vars::named([("w", var(&[1], DType::F32, 0)), ("steps", steps)])?;
    assert_eq!((vars.len(), vars.is_empty()), (1, false));
    let eighths = Var::zeros(2, DType::F8E4M3, &Device::Cpu)?;
    let error = Vars::named([("small", eighths)]).unwrap_err().to_string();
    assert_eq!(error, "Vars: argument `small` must be of type f32, f64, f16 or bf16, found F8E4M3");
    Ok(())
}

#[test]
fn a_state_for_other_variables() {
    let (one, other) = (Network::new(DType::F32), Network::new(DType::F64));
    let mut state = init(&adam(0.1), &other.vars()).unwrap();
    let error = step(&adam(0.1), &one.vars(), &one.grads(), &mut state).unwrap_err().to_string();
    assert!(error.contains("fc1/bias: expected type f64, found f32"), "{error}");
}

#[test]
fn two_names_that_make_one_path() {
    let vars = Vars::named([("a.b", var(&[1], DType::F32, 0)), ("a/b", var(&[1], DType::F32, 1))]).unwrap();
    let error = init(&sgd(0.1), &vars).unwrap_err().to_string();
    assert!(error.contains("a/b: more than one leaf has this path"), "{error}");
}
