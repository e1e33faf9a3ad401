//! Readings of a run.

use gradchain::optimizer::optimistic_adam;
use gradchain::part::{Named, Optimizer, Part};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    ClipByGlobalNorm, GlobalNorm, NotFinite, clip_by_block_norm, measure_with_ema, monitor, of_params, ratio,
    set_to_zero,
};
use gradchain::wrapper::{flatten, schedule_free};

type Params = (Vec<f64>, Vec<f32>);

fn params() -> Params {
    (vec![1.0, -2.0, 0.5], vec![4.0, -0.25])
}

fn gradient(step: usize) -> Params {
    let x = step as f64 + 1.0;
    (vec![x, -3.0 * x, 0.1], vec![-0.7 * x as f32, 1e3])
}

fn norm(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn first((first, _): &Params) -> f64 {
    norm(first.iter().copied())
}

fn second((_, second): &Params) -> f64 {
    norm(second.iter().map(|x| f64::from(*x)))
}

fn whole(tree: &Params) -> f64 {
    norm([first(tree), second(tree)])
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} and {b}");
}

#[test]
fn a_clip_tells_the_norm_of_the_gradient_of_the_tree_and_of_each_leaf() {
    let optimizer = chain((clip_by_global_norm(0.5), sgd(0.1)));
    let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
    assert!(optimizer.readings(&state).unwrap().get("norm").unwrap().is_nan(), "before the first step");
    for step in 0..3 {
        optimizer.step(&mut params, &gradient(step), &mut state).unwrap();
        let (readings, gradient) = (optimizer.readings(&state).unwrap(), gradient(step));
        close(readings.get("clip_by_global_norm.norm").unwrap(), whole(&gradient));
        close(readings.get("norm[0]").unwrap(), first(&gradient));
        close(readings.get("0.norm[1]").unwrap(), second(&gradient));
        close(readings.get("factor").unwrap(), 0.5 / whole(&gradient));
    }
}

#[test]
fn a_rate_is_read_as_the_last_step_took_it() {
    let schedule = || linear(1.0, 0.0, 8);
    let optimizers: [Boxed; 6] = [
        boxed(adamw(schedule())),
        boxed(chain((clip(1.0), named_chain(["deep", "end"], (sgd(schedule()).momentum(0.9), zero_nans()))))),
        boxed(inject_hyperparams(adam(schedule()))),
        boxed(partition((("a", lion(schedule())), ("b", set_to_zero())), Labels::tree([("0", "a"), ("1", "b")]))),
        boxed(masked(apply_if_finite(rmsprop(schedule()), 3), Mask::path("0"))),
        boxed(flatten(params_ema(lookahead(sgd(schedule()), 2, 0.5), 0.9))),
    ];
    for optimizer in optimizers {
        let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
        for step in 0..10 {
            optimizer.step(&mut params, &gradient(step), &mut state).unwrap();
            let readings = optimizer.readings(&state).unwrap();
            assert_eq!(readings.get("learning_rate"), Ok(schedule().at(step as u64)), "{optimizer:?}\n{readings}");
        }
    }
}

#[test]
fn mini_steps_that_do_not_emit_leave_the_rate_of_the_last_that_did() {
    let optimizer = multi_steps(sgd(linear(1.0, 0.0, 4)), 2);
    let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
    let mut rates = Vec::new();
    for step in 0..6 {
        optimizer.step(&mut params, &gradient(step), &mut state).unwrap();
        rates.push(optimizer.readings(&state).unwrap().get("learning_rate").unwrap());
    }
    assert_eq!(rates, [1.0, 1.0, 1.0, 0.75, 0.75, 0.5]);
}

#[test]
fn set_hyperparameters_are_read_after_the_next_step() {
    let optimizer = inject_hyperparams(adam(0.5));
    let (mut params, mut state) = (0.0_f64, optimizer.init(&0.0_f64).unwrap());
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    state.hyperparams_mut().set("learning_rate", 0.25).unwrap();
    assert_eq!(optimizer.readings(&state).unwrap().get("adam.learning_rate"), Ok(0.5));
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    assert_eq!(optimizer.readings(&state).unwrap().get("adam.learning_rate"), Ok(0.25));
}

#[test]
fn the_schedules_of_wrappers_have_clocks_of_their_own() {
    let optimizer = lookahead(params_ema(sgd(0.1), linear(0.5, 0.9, 4)).update_every(2), 3, linear(1.0, 0.0, 4));
    let (mut params, mut state) = (0.0_f64, optimizer.init(&0.0_f64).unwrap());
    for _ in 0..6 {
        optimizer.step(&mut params, &1.0, &mut state).unwrap();
    }
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!(readings.get("slow_step_size"), Ok(0.75), "there were two syncs");
    assert_eq!(readings.get("params_ema.decay"), Ok(linear(0.5, 0.9, 4).at(2)), "three were averaged");
}

#[test]
fn paths_are_those_of_the_schema_and_names_of_parts_do_too() {
    let labels = Labels::tree([("0", "fast"), ("1", "slow")]);
    let optimizer = named_chain(
        ["clip", "descend"],
        (clip_by_block_norm(1.0), partition((("fast", sgd(0.5)), ("slow", adam(0.25))), labels)),
    );
    let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
    optimizer.step(&mut params, &gradient(0), &mut state).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    for (key, value) in [
        ("descend.fast.learning_rate", 0.5),
        ("fast.learning_rate", 0.5),
        ("sgd.learning_rate", 0.5),
        ("adam.learning_rate", 0.25),
        ("slow.b1", 0.9),
        ("clip.factor[0]", 1.0 / first(&gradient(0))),
        ("clip_by_block_norm.factor[1]", 1.0 / second(&gradient(0))),
    ] {
        close(readings.get(key).unwrap(), value);
    }
    let error = readings.get("learning_rate").unwrap_err().to_string(); // neither holds the other
    assert!(error.contains("`descend.fast.learning_rate`, `descend.slow.learning_rate`"), "{error}");
    for none in ["rate", "", "norm", "sgd", "adam.norm", "clip.factor", "adam.learning_rate[0]"] {
        let found = readings.get(none);
        assert!(found.is_err() || none == "norm", "{none}: {found:?}");
    }
}

#[test]
fn a_full_path_wins_over_a_suffix_match() {
    let optimizer = named_chain(["a", "norm"], (monitor().measure("a.norm", GlobalNorm), clip_by_global_norm(1.0)));
    let state = optimizer.init(&1.0_f32).unwrap();
    let readings = optimizer.readings(&state).unwrap().with("norm", 3.0);
    assert_eq!(readings.get("norm"), Ok(3.0));
}

#[test]
fn an_optimizer_has_its_own_arguments_and_those_of_other_values_stay_where_they_are() {
    // Momentum is `b1` of the outer and 0 in the base.
    let optimizer = chain((zero_nans(), schedule_free(scale_by_adam().b1(0.0), 0.5).b1(0.75)));
    let state = optimizer.init(&1.0_f64).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!(readings.get("scale_by_adam.b1"), Ok(0.0), "{readings}");
    assert_eq!(readings.get("interpolate.b1"), Ok(0.75), "{readings}");
    assert_eq!(readings.get("b1"), Ok(0.75), "that of what holds the other\n{readings}");
}

#[test]
fn a_rate_that_no_part_has_by_this_name_is_the_optimizers() {
    let optimizer = boxed(chain((clip(1.0), optimistic_adam(0.5).optimism(0.25))));
    let (mut params, mut state) = (1.0_f64, optimizer.init(&1.0_f64).unwrap());
    optimizer.step(&mut params, &1.0, &mut state).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!(readings.get("learning_rate"), Ok(0.5), "{readings}");
}

#[derive(Clone, Debug)]
struct Clipped {
    chain: (ClipByGlobalNorm, ClipByGlobalNorm),
}

impl Part for Clipped {
    const NAME: &'static str = "clipped";
    type Form = Named;
}

impl Optimizer for Clipped {
    type Chain = (ClipByGlobalNorm, ClipByGlobalNorm);
    fn chain(&self) -> &Self::Chain {
        &self.chain
    }
}

#[test]
fn an_optimizer_of_ones_own_is_read_part_by_part() {
    let optimizer = Clipped { chain: (clip_by_global_norm(2.0), clip_by_global_norm(1.0)) };
    let (mut params, mut state) = (vec![0.0_f64; 2], optimizer.init(&vec![0.0_f64; 2]).unwrap());
    optimizer.step(&mut params, &vec![3.0, 4.0], &mut state).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!([readings.get("0.norm"), readings.get("1.norm")], [Ok(5.0), Ok(2.0)]);
    assert_eq!([readings.get("0.max_norm"), readings.get("1.max_norm")], [Ok(2.0), Ok(1.0)]);
}

#[test]
fn counts_and_flags_are_numbers() {
    let optimizer = apply_if_finite(chain((zero_nans(), sgd(0.1))), 5);
    let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
    optimizer.step(&mut params, &(vec![f64::NAN, 1.0, 1.0], vec![1.0, f32::INFINITY]), &mut state).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!(readings.get("total_notfinite"), Ok(1.0));
    assert_eq!(readings.get("last_finite"), Ok(0.0));
    assert_eq!(readings.get("zeroed[0]"), Ok(0.0), "what is inside did not run");
}

#[test]
fn monitors_measure_leaves_groups_parameters_and_ratios() {
    let watch = || {
        monitor()
            .measure("gradient", GlobalNorm)
            .measure("size", of_params(GlobalNorm))
            .measure("far", ratio(GlobalNorm, of_params(GlobalNorm)))
            .measure("mean", measure_with_ema(ratio(GlobalNorm, of_params(GlobalNorm)), 0.5))
            .measure("bad", NotFinite)
            .by_leaf(true)
            .by_group(Labels::tree([("0", "a"), ("1", "b")]))
    };
    let optimizer = chain((watch(), sgd(0.125)));
    let plain = sgd(0.125).plan(&params()).unwrap();
    assert_eq!(optimizer.plan(&params()).unwrap().passes.len(), plain.passes.len(), "no pass of its own");
    let (mut params, mut state) = (params(), optimizer.init(&params()).unwrap());
    let mut means = [0.0; 3];
    for step in 0..4 {
        let (before, gradient) = (params.clone(), gradient(step));
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
        let readings = optimizer.readings(&state).unwrap();
        let of = [whole, first, second].map(|norm| (norm(&gradient), norm(&before)));
        for (((g, p), mean), [leaf, group]) in
            of.into_iter().zip(&mut means).zip([["", ""], ["[0]", ".a"], ["[1]", ".b"]])
        {
            *mean = 0.5 * *mean + 0.5 * g / p;
            for end in [leaf, group] {
                close(readings.get(&format!("gradient{end}")).unwrap(), g);
                close(readings.get(&format!("size{end}")).unwrap(), p);
                close(readings.get(&format!("far{end}")).unwrap(), g / p);
                close(readings.get(&format!("mean{end}")).unwrap(), *mean / (1.0 - 0.5_f64.powi(step as i32 + 1)));
                assert_eq!(readings.get(&format!("bad{end}")), Ok(0.0));
            }
        }
    }
    optimizer.step(&mut params, &(vec![f64::NAN, 1.0, f64::INFINITY], vec![0.0_f32, 1.0]), &mut state).unwrap();
    let readings = optimizer.readings(&state).unwrap();
    assert_eq!(["bad", "bad[0]", "bad.b"].map(|key| readings.get(key)), [Ok(2.0), Ok(2.0), Ok(0.0)]);
}

#[test]
fn a_leaf_without_a_group_is_refused() {
    let watch = monitor().measure("norm", GlobalNorm).by_group(Labels::paths([("0", "a")]));
    let error = watch.init(&params()).unwrap_err().to_string();
    assert!(error.contains("by_group of monitor") && error.contains("no match for `1`"), "{error}");
}

#[test]
fn a_state_of_another_transformation_is_refused() {
    let (one, other): (Boxed, Boxed) = (boxed(sgd(0.1)), boxed(adam(0.1)));
    let state = one.init(&1.0_f32).unwrap();
    let error = other.readings(&state).unwrap_err();
    assert!(error.to_string().contains("made by another transformation"), "{error}");
}

#[test]
fn readings_suggest_similar_names() {
    let optimizer = adam(0.1);
    let state = optimizer.init(&1.0_f32).unwrap();
    let error = optimizer.readings(&state).unwrap().get("learning_rat").unwrap_err();
    assert!(error.to_string().contains("did you mean `learning_rate`?"), "{error}");
}
