//! Averages in the model's own variables, and restored trained values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradchain::prelude::*;
use gradchain::tree::{DynTree, tree_norm};
use gradchain_candle::{init, step};

use super::*;

#[test]
fn a_model_is_evaluated_with_averages_and_trains_on() -> Tested {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let (network, plain) = (Network::new(dtype), Network::new(dtype));
        let (vars, optimizer) = (network.vars(), params_ema(adamw(0.05), 0.9));
        let mut state = init(&optimizer, &vars)?;
        let (plain_vars, mut plain_state) = (plain.vars(), init(&adamw(0.05), &plain.vars())?);
        for _ in 0..5 {
            step(&optimizer, &vars, &network.grads(), &mut state)?;
            step(&adamw(0.05), &plain_vars, &plain.grads(), &mut plain_state)?;
            let (trained, copy) = (all_bits(&vars), vars.read(|params| DynTree::of(params))??);
            let expected = state.eval_params(&copy)?;
            let (seen, norm) = vars.evaluating(&state, || {
                let norm = vars.read(|params| tree_norm(params)).expect("on the CPU");
                network.loss();
                (all_bits(&vars), norm)
            })?;
            assert_eq!(norm, tree_norm(&expected), "{dtype:?}");
            assert_ne!(seen, trained, "{dtype:?}");
            assert_eq!(seen, all_bits(&vars.eval_params(&state)?), "{dtype:?}");
            assert_eq!(all_bits(&vars), trained, "{dtype:?}");
        }
        assert_eq!(all_bits(&vars), all_bits(&plain_vars), "evaluating changes no bit of the run");
    }
    Ok(())
}

#[test]
fn a_panic_puts_the_trained_values_back() -> Tested {
    let network = Network::new(DType::F32);
    let (vars, optimizer) = (network.vars(), lookahead(sgd(0.1), 5, 0.5));
    let mut state = init(&optimizer, &vars)?;
    step(&optimizer, &vars, &network.grads(), &mut state)?;
    let trained = all_bits(&vars);
    let panics = AssertUnwindSafe(|| vars.evaluating(&state, || -> () { panic!("in an evaluation") }));
    assert!(catch_unwind(panics).is_err());
    assert_eq!(all_bits(&vars), trained);
    Ok(())
}

#[test]
fn an_optimizer_without_averages_is_an_error() -> Tested {
    let network = Network::new(DType::F32);
    let (vars, mut called) = (network.vars(), false);
    let (state, before) = (init(&adam(0.1), &vars)?, all_bits(&vars));
    let error = vars.evaluating(&state, || called = true).unwrap_err().to_string();
    assert!(error.contains("`params_ema`"), "{error}");
    assert!(!called);
    assert_eq!(all_bits(&vars), before);
    Ok(())
}
