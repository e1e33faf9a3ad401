//! Loops written for candle's trait work unchanged.

use candle_core::Var;
use candle_nn::Optimizer;
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain_candle::{VarOptimizer, init, step};

use super::*;

fn train<O: Optimizer>(optimizer: &mut O, network: &Network, steps: usize) -> candle_core::Result<()> {
    (0..steps).try_for_each(|_| optimizer.backward_step(&network.loss()))
}

#[test]
fn a_loop_of_candle_has_the_bits_of_our_own() -> Tested {
    let [theirs, ours] = [Network::new(DType::F32), Network::new(DType::F32)];
    let optimizer = chain((clip_by_global_norm(0.5), adamw(cosine_decay(0.1, 30)).mask(Mask::path("**/weight"))));
    train(&mut VarOptimizer::of(theirs.vars(), optimizer.clone())?, &theirs, 30)?;

    let vars = ours.vars();
    let mut state = init(&optimizer, &vars)?;
    for _ in 0..30 {
        step(&optimizer, &vars, &ours.grads(), &mut state)?;
    }
    assert_eq!(all_bits(&theirs.vars()), all_bits(&vars));
    Ok(())
}

#[test]
fn variables_without_names_are_numbered() -> Tested {
    let optimizer = VarOptimizer::new(vec![var(&[2], DType::F32, 0), var(&[3], DType::F64, 1)], sgd(0.5))?;
    assert_eq!(optimizer.vars().paths().collect::<Vec<_>>(), ["0", "1"]);
    let twice = var(&[2], DType::F32, 0);
    let error = VarOptimizer::new(vec![twice.clone(), twice], sgd(0.5)).unwrap_err().to_string();
    assert!(error.contains("`1` must be a variable of its own, found that of `0`"), "{error}");
    assert!(VarOptimizer::<_>::empty(sgd(0.5))?.vars().is_empty());
    Ok(())
}

#[test]
fn the_learning_rate_is_read_and_set() -> Tested {
    let w = Var::new(&[1.0_f64], &Device::Cpu)?;
    let optimizer = multi_steps(chain((clip(1.0), inject_hyperparams(sgd(0.5)))), 1);
    let mut optimizer = VarOptimizer::of(Vars::named([("w", w.clone())])?, optimizer)?;
    assert_eq!(optimizer.learning_rate(), 0.5);
    optimizer.set_learning_rate(0.125);
    optimizer.step(&gradients(&[(&w, Tensor::new(&[1.0_f64], &Device::Cpu)?)]))?;
    assert_eq!((w.to_vec1::<f64>()?, optimizer.learning_rate()), (vec![0.875], 0.125));

    // The last step's rate.
    let mut scheduled = VarOptimizer::new(vec![w.clone()], sgd(linear(1.0, 0.0, 4)))?;
    let grads = gradients(&[(&w, Tensor::new(&[0.0_f64], &Device::Cpu)?)]);
    let mut rates = Vec::new();
    for _ in 0..4 {
        scheduled.step(&grads)?;
        rates.push(scheduled.learning_rate());
    }
    assert_eq!(rates, [1.0, 0.75, 0.5, 0.25]);
    assert!(VarOptimizer::new(vec![w], clip(1.0))?.learning_rate().is_nan());
    Ok(())
}

#[test]
fn the_next_step_reports_a_rejected_learning_rate() -> Tested {
    let w = Var::new(&[1.0_f64], &Device::Cpu)?;
    let grads = gradients(&[(&w, Tensor::new(&[1.0_f64], &Device::Cpu)?)]);
    let mut fixed = VarOptimizer::new(vec![w.clone()], sgd(0.5))?;
    fixed.set_learning_rate(0.25);
    let error = fixed.step(&grads).unwrap_err().to_string();
    assert!(error.contains("`learning_rate` must be of one `inject_hyperparams`"), "{error}");

    let mut scheduled = VarOptimizer::new(vec![w.clone()], inject_hyperparams(sgd(cosine_decay(0.5, 9))))?;
    scheduled.set_learning_rate(0.25);
    let error = scheduled.step(&grads).unwrap_err().to_string();
    assert!(error.contains("`learning_rate` is given by a schedule"), "{error}");

    let mut set = VarOptimizer::new(vec![w.clone()], inject_hyperparams(sgd(0.5)))?;
    for rate in [f64::NAN, f64::INFINITY] {
        set.set_learning_rate(rate);
        let error = set.step(&grads).unwrap_err().to_string();
        assert!(error.contains("learning_rate"), "{error}");
    }
    assert_eq!(w.to_vec1::<f64>()?, [1.0], "nothing was changed");
    set.set_learning_rate(0.25);
    set.step(&grads)?;
    assert_eq!(w.to_vec1::<f64>()?, [0.75]);
    Ok(())
}
