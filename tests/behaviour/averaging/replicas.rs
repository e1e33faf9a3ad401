//! Means of parameters and states of replicas, and training loops with them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradchain::Result;
use gradchain::prelude::*;
use gradchain::schedule::from_fn;
use gradchain::state::{AverageOptions, CountPolicy, FlagPolicy, KeyPolicy, same_bits};
use gradchain::transform::{add_noise, trace};
use gradchain::tree::{BufferPolicy, DynTree, average_params, average_params_with};
use ndarray::{Array2, ArrayD, IxDyn, ShapeBuilder, array};

use super::noise;

#[test]
fn parameters_of_any_layout_are_averaged_by_path() -> Result<()> {
    let logical = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let mut columns = Array2::<f32>::zeros((2, 3).f());
    columns.assign(&logical.mapv(|x| 3.0 * x));
    let mean = average_params(&[(&logical, 1.0), (&columns, 1.0)])?;
    assert_eq!(mean, logical.mapv(|x| 2.0 * x));
    let mean = average_params(&[(&columns, 1.0), (&logical, 3.0)])?;
    assert_eq!(mean, logical.mapv(|x| 1.5 * x));
    Ok(())
}

#[test]
fn the_mean_of_equal_replicas_is_bitwise_identical() -> Result<()> {
    let params: Vec<f64> = (0..2000).map(|i| noise(3, i)).collect();
    let weights = [0.1, 0.7, 3.0, 1e-9, 11.0];
    let replicas: Vec<_> = weights.iter().map(|w| (&params, *w)).collect();
    assert_eq!(average_params(&replicas)?, params);

    let optimizer = adam(0.1);
    let mut state = optimizer.init(&params)?;
    optimizer.update(&params, &mut state, &params)?;
    let replicas: Vec<_> = weights.iter().map(|w| (&state, *w)).collect();
    let mean = OptState::average(&replicas, AverageOptions::default())?;
    assert!(same_bits(&*mean, &*state));
    Ok(())
}

#[test]
fn a_mean_is_rounded_once() -> Result<()> {
    // In `f32`, 2²⁴ + 1 + 1 is 2²⁴ in any order.
    let of = |x: f32| vec![x];
    let (a, b, c) = (of(16_777_216.0), of(1.0), of(1.0));
    assert_eq!(average_params(&[(&a, 1.0), (&b, 1.0), (&c, 1.0)])?, [(16_777_218.0_f64 / 3.0) as f32]);
    #[cfg(feature = "half")]
    {
        use half::bf16;
        let of = |x: f64| vec![bf16::from_f64(x)];
        let (a, b, c) = (of(256.0), of(1.0), of(1.0));
        assert_eq!(average_params(&[(&a, 1.0), (&b, 1.0), (&c, 1.0)])?, [bf16::from_f64(86.0)]);
    }
    Ok(())
}

#[test]
fn huge_and_infinite_values_have_the_mean_they_should() -> Result<()> {
    let mean = |a: f64, b: f64| average_params(&[(&a, 1.0), (&b, 1.0)]);
    assert_eq!(mean(f64::MAX, -f64::MAX)?, 0.0);
    assert_eq!(mean(f64::MAX, f64::MAX)?, f64::MAX);
    assert_eq!(mean(1.0, f64::INFINITY)?, f64::INFINITY);
    assert_eq!(mean(f64::INFINITY, f64::INFINITY)?, f64::INFINITY);
    assert!(mean(f64::INFINITY, f64::NEG_INFINITY)?.is_nan() && mean(f64::NAN, 1.0)?.is_nan());
    assert_eq!(average_params(&[(&f64::NAN, 0.0), (&2.0, 1.0)])?, 2.0, "what has no weight does not count");
    Ok(())
}

#[test]
fn weights_are_checked() {
    let error = average_params::<f64>(&[]).unwrap_err();
    assert_eq!(error.to_string(), "average_params: argument `replicas` must be at least one tree, found 0");
    for weights in [[0.0, 0.0], [1.0, -0.5], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
        let error = average_params(&[(&1.0, weights[0]), (&2.0, weights[1])]).unwrap_err();
        let expected = "average_params: argument `weights` must be non-negative with a positive sum, found";
        assert!(error.to_string().starts_with(expected), "{error}");
        let optimizer = sgd(0.1);
        let state = optimizer.init(&0.0).unwrap();
        let error = OptState::average(&[(&state, weights[0]), (&state, weights[1])], AverageOptions::default());
        assert!(error.unwrap_err().is_argument());
    }
    let none: &[(&OptState<()>, f64)] = &[];
    assert!(OptState::average(none, AverageOptions::default()).unwrap_err().is_argument());
}

#[derive(Clone, Debug, PartialEq, Tree)]
struct Norm {
    scale: Vec<f32>,
    #[tree(buffer)]
    running_var: Vec<f32>,
    #[tree(buffer)]
    batches: u64,
    #[tree(buffer)]
    frozen: bool,
    #[tree(buffer)]
    by_channel: Array2<i32>,
    #[tree(skip)]
    name: &'static str,
}

fn norm(scale: f32, running_var: f32, batches: u64, frozen: bool, by_channel: i32, name: &'static str) -> Norm {
    let by_channel = array![[by_channel, 3]];
    Norm { scale: vec![scale], running_var: vec![running_var, 1.0], batches, frozen, by_channel, name }
}

#[test]
fn buffers_are_averaged_by_type() -> Result<()> {
    let (a, b) = (norm(1.0, 0.5, 7, false, -2, "a"), norm(5.0, 4.5, 3, true, -5, "b"));
    assert_eq!(average_params(&[(&a, 3.0), (&b, 1.0)])?, norm(2.0, 1.5, 7, true, -2, "a"));
    assert_eq!(average_params(&[(&a, 0.0), (&b, 1.0)])?, norm(5.0, 4.5, 3, true, -5, "a"), "no weight, no say");
    let first = average_params_with(&[(&a, 3.0), (&b, 1.0)], BufferPolicy::First)?;
    assert_eq!(first, norm(2.0, 0.5, 7, false, -2, "a"));
    assert_eq!(average_params_with(&[(&a, 3.0), (&a, 1.0)], BufferPolicy::Equal)?, a);
    let error = average_params_with(&[(&a, 3.0), (&b, 1.0)], BufferPolicy::Equal).unwrap_err();
    assert_eq!(error.to_string(), "average: buffer `running_var`: the trees differ in it");
    let other = Norm { running_var: vec![0.5], ..a.clone() };
    let error = average_params(&[(&a, 1.0), (&other, 1.0)]).unwrap_err().to_string();
    assert!(error.starts_with("average_params: tree 1: the buffers are [\"running_var: f32 [1]\""), "{error}");
    Ok(())
}

#[cfg(feature = "half")]
#[test]
fn buffers_of_16_bits_are_averaged_in_full_and_rounded_once() -> Result<()> {
    use half::bf16;

    #[derive(Clone, Tree)]
    struct Running(#[tree(buffer)] Vec<bf16>);
    let of = |x: f64| Running(vec![bf16::from_f64(x)]);
    let mean = average_params(&[(&of(256.0), 1.0), (&of(1.0), 1.0), (&of(1.0), 1.0)])?;
    assert_eq!(mean.0, [bf16::from_f64(86.0)]);
    Ok(())
}

#[test]
fn ranks_average_buffers_as_replicas_do() -> Result<()> {
    use gradchain::collective::{Collective, average, average_with, threads};

    let all = [norm(1.0, 0.5, 7, false, -2, "a"), norm(5.0, 4.5, 3, true, -5, "b"), norm(0.0, 1.0, 0, false, 9, "c")];
    let expected = average_params(&all.each_ref().map(|norm| (norm, 1.0)))?;
    std::thread::scope(|scope| {
        for ranks in threads(3, std::time::Duration::from_secs(60)) {
            let (all, expected) = (&all, &expected);
            scope.spawn(move || {
                let own = all[ranks.rank()].clone();
                let mut mean = own.clone();
                let refused = average_with(&ranks, &mut mean, BufferPolicy::Equal).unwrap_err().to_string();
                assert_eq!(refused, "average: buffer `running_var`: the trees differ in it");
                assert_eq!(mean, own, "nothing has been changed");
                average(&ranks, &mut mean).unwrap();
                assert_eq!(mean, Norm { name: own.name, ..expected.clone() });
            });
        }
    });
    Ok(())
}

fn dynamic(leaves: &[(&str, usize)]) -> DynTree {
    let mut tree = DynTree::new();
    for (name, len) in leaves {
        tree.insert(*name, ArrayD::<f32>::zeros(IxDyn(&[*len])));
    }
    tree
}

#[test]
fn all_differences_in_structure_are_listed() {
    let (a, b) = (dynamic(&[("bias", 2), ("weight", 3)]), dynamic(&[("extra", 1), ("weight", 4)]));
    let error = average_params(&[(&a, 1.0), (&a, 1.0), (&b, 1.0)]).unwrap_err();
    assert_eq!(error.differences().len(), 3, "{error}");
    assert!(error.to_string().starts_with("average_params: tree 2 does not fit tree 0: 3 differences"), "{error}");

    let optimizer = adam(0.1);
    let (of_a, of_b) = (optimizer.init(&a).unwrap(), optimizer.init(&b).unwrap());
    let error = OptState::average(&[(&of_a, 1.0), (&of_b, 1.0)], AverageOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("state 1 was made for other parameters than state 0: 3 differences"));
}

#[test]
fn states_of_other_transformations_are_refused() -> Result<()> {
    let init = |member: Boxed| member.init(&vec![0.0_f32; 2]);
    let (adam, momentum) = (init(boxed(adam(0.1)))?, init(boxed(sgd(0.1).momentum(0.9)))?);
    let error = OptState::average(&[(&adam, 1.0), (&momentum, 1.0)], AverageOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "OptState::average: state 1: its optimizer or arguments differ from those of state 0: expected 0.mu[]: moment \
         f32 [2], found 0.trace[]: moment f32 [2]"
    );
    Ok(())
}

#[test]
fn a_half_written_state_is_refused() -> Result<()> {
    let optimizer = sgd(from_fn("bad", |count| if count == 1 { panic!("on purpose") } else { 0.1 }));
    let mut params = 1.0_f64;
    let mut state = optimizer.init(&params)?;
    let fine = state.clone();
    optimizer.step(&mut params, &1.0, &mut state)?;
    let stopped = catch_unwind(AssertUnwindSafe(|| optimizer.step(&mut params, &1.0, &mut state)));
    assert!(stopped.is_err());
    let error = OptState::average(&[(&fine, 1.0), (&state, 0.0)], AverageOptions::default()).unwrap_err();
    assert!(error.is_poisoned());
    Ok(())
}

#[test]
fn each_kind_goes_by_its_policy() -> Result<()> {
    let optimizer = chain((zero_nans(), add_noise(0.1, 0.5, 7), trace(0.5)));
    let params = (0.0_f64, vec![0.0_f32; 2]);
    let (mut a, mut b) = (optimizer.init(&params)?, optimizer.init(&params)?);
    optimizer.update(&(f64::NAN, vec![1.0_f32, 2.0]), &mut a, &params)?;
    optimizer.update(&(1.0_f64, vec![1.0_f32, 2.0]), &mut b, &params)?;
    optimizer.update(&(1.0_f64, vec![1.0_f32, 2.0]), &mut b, &params)?;
    let mean = |options| OptState::average(&[(&a, 3.0), (&b, 1.0)], options);

    let error = mean(AverageOptions::default()).unwrap_err();
    assert!(error.to_string().contains("random keys have no mean"), "{error}");
    let keys = KeyPolicy::First;
    let any = mean(AverageOptions::default().keys(keys))?;
    assert!(any.0.found_nan.get(0).unwrap().get() && !any.0.found_nan.get(1).unwrap().get());
    assert_eq!(any.2.count.get(), 2);
    let all = mean(AverageOptions::default().keys(keys).flags(FlagPolicy::All))?;
    assert!(!all.0.found_nan.get(0).unwrap().get());
    let error = mean(AverageOptions::default().keys(keys).flags(FlagPolicy::Equal)).unwrap_err();
    assert!(error.to_string().contains("`0.found_nan`: the flags differ"), "{error}");
    let error = mean(AverageOptions::default().keys(keys).counts(CountPolicy::Equal)).unwrap_err();
    assert!(error.to_string().contains("the counts differ"), "{error}");

    let of = |state: &OptState<_>| -> Vec<f64> { traced(state) };
    let (of_a, of_b) = (of(&a), of(&b));
    for ((mean, a), b) in of(&any).iter().zip(&of_a).zip(&of_b) {
        approx::assert_relative_eq!(*mean, (3.0 * a + b) / 4.0, max_relative = 1e-6);
    }
    Ok(())
}

fn traced<A: gradchain::GradientTransformation, B: gradchain::GradientTransformation>(
    state: &OptState<(A, B, gradchain::transform::Trace)>,
) -> Vec<f64> {
    let trace = state.2.moment("trace").unwrap();
    (0..trace.len()).flat_map(|leaf| trace.to_array(leaf).unwrap().into_iter()).collect()
}

/// Returns the gradient of a replica's least-squares problem; all have the same solution.
fn gradient(replica: u64, step: u64, params: &[f64]) -> Vec<f64> {
    let pull = |i: usize| 0.5 + noise(replica << 32 | step, i).abs();
    params.iter().enumerate().map(|(i, p)| pull(i) * (p - i as f64)).collect()
}

#[test]
fn federated_averaging_is_the_naive_one() -> Result<()> {
    let (optimizer, sizes) = (sgd(0.1), [10.0, 30.0, 60.0]);
    let mut global = vec![1.0_f64; 5];
    let mut naive = global.clone();
    for round in 0..4 {
        let mut clients = Vec::new();
        let mut sum = [0.0; 5];
        for (client, size) in sizes.iter().enumerate() {
            let (mut params, mut by_hand) = (global.clone(), naive.clone());
            let mut state = optimizer.init(&params)?;
            for step in 0..3 {
                let slope = gradient(client as u64, 3 * round + step, &params);
                optimizer.step(&mut params, &slope, &mut state)?;
                let slope = gradient(client as u64, 3 * round + step, &by_hand);
                by_hand.iter_mut().zip(slope).for_each(|(p, g)| *p -= 0.1 * g);
            }
            sum.iter_mut().zip(&by_hand).for_each(|(sum, p)| *sum += size * p);
            clients.push((params, *size));
        }
        let clients: Vec<_> = clients.iter().map(|(params, size)| (params, *size)).collect();
        global = average_params(&clients)?;
        naive = sum.iter().map(|sum| sum / 100.0).collect();
        approx::assert_relative_eq!(&global[..], &naive[..], max_relative = 1e-13);
    }
    Ok(())
}

/// DiLoCo's outer step with rate 1 and no momentum.
#[test]
fn the_plainest_outer_step_is_the_mean() -> Result<()> {
    let (inner, outer) = (adamw(0.1), sgd(1.0));
    let mut global = vec![1.0_f64; 5];
    let mut outer_state = outer.init(&global)?;
    let mut replicas = Vec::new();
    for replica in 0..3 {
        let mut params = global.clone();
        let mut state = inner.init(&params)?;
        for step in 0..4 {
            let slope = gradient(replica, step, &params);
            inner.step(&mut params, &slope, &mut state)?;
        }
        replicas.push(params);
    }
    let mean = average_params(&replicas.iter().map(|params| (params, 1.0)).collect::<Vec<_>>())?;
    let mut outer_gradient = global.clone();
    gradchain::tree::tree_add_scaled(&mut outer_gradient, -1.0, &mean)?;
    outer.step(&mut global, &outer_gradient, &mut outer_state)?;
    approx::assert_relative_eq!(&global[..], &mean[..], max_relative = 1e-14);
    Ok(())
}

/// The mean of averages is the average of means.
#[test]
fn averages_of_replicas_are_averaged_with_them() -> Result<()> {
    let optimizer = params_ema(sgd(0.1), 0.5);
    let start = vec![1.0_f64; 5];
    let mut replicas = Vec::new();
    for replica in 0..3 {
        let (mut params, mut state) = (start.clone(), optimizer.init(&start)?);
        for step in 0..4 {
            let slope = gradient(replica, step, &params);
            optimizer.step(&mut params, &slope, &mut state)?;
        }
        let eval = state.eval_params(&params)?.into_inner();
        replicas.push((params, state, eval));
    }
    let params = average_params(&replicas.iter().map(|r| (&r.0, 1.0)).collect::<Vec<_>>())?;
    let states = replicas.iter().map(|r| (&r.1, 1.0)).collect::<Vec<_>>();
    let state = OptState::average(&states, AverageOptions::default())?;
    let expected = average_params(&replicas.iter().map(|r| (&r.2, 1.0)).collect::<Vec<_>>())?;
    approx::assert_relative_eq!(&state.eval_params(&params)?[..], &expected[..], max_relative = 1e-14);
    Ok(())
}
