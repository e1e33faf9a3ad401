//! Any number of ranks gives the same bits, and each rank holds its share of the state.

use gradchain::DType;
use gradchain::collective::{PairwiseMean, Threads, parts};
use gradchain::constraint::{Constraints, positive};
use gradchain::optimizer::novograd;
use gradchain::prelude::*;
use gradchain::state::Kind;
use gradchain::transform::{identity, trace};
use gradchain::wrapper::{cautious, sharded};

use super::{Model, together};
use crate::chunk::CHUNK;

const PARTS: usize = 8;

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    let labels = Labels::paths([("small", "norms"), ("large", "norms")]).otherwise("moments");
    let parts = partition((("norms", novograd(0.01)), ("moments", adamw(0.02))), labels);
    chain((clip_by_global_norm(20.0), zero_nans(), parts, params_ema(identity(), 0.9)))
}

/// Returns the mean over a rank's parts.
fn gradient(ranks: &Threads, batch: usize, step: u64) -> Model {
    let mut mean = PairwiseMean::new();
    for part in parts(ranks, batch).unwrap() {
        mean.add(Model::of(1 + 100 * step + part as u64)).unwrap();
    }
    mean.mean().unwrap()
}

fn train<T: GradientTransformation<Needs = Nothing>>(
    (ranks, batch): (usize, usize),
    around: impl Fn(gradchain::wrapper::Sharded<Boxed>) -> T + Sync,
) -> Vec<Model> {
    together(ranks, |rank| {
        let mine: Vec<Model> = (0..6).map(|step| gradient(&rank, batch, step)).collect();
        let here = parts(&rank, batch).unwrap().len();
        let optimizer = around(sharded(boxed(optimizer()), rank).parts(here));
        let mut params = Model::of(0);
        let mut state = optimizer.init(&params).unwrap();
        for gradient in &mine {
            optimizer.step(&mut params, gradient, &mut state).unwrap();
        }
        params
    })
}

#[test]
fn every_number_of_ranks_is_bitwise_identical() {
    for (batch, numbers) in [(PARTS, &[2, 3, 4, 5, 7, 8][..]), (12, &[2, 3, 5]), (7, &[3, 7])] {
        let alone = train((1, batch), |optimizer| optimizer)[0].bits();
        for ranks in numbers {
            let all = train((*ranks, batch), |optimizer| optimizer);
            assert!(all.iter().all(|params| params.bits() == alone), "{ranks} ranks, {batch} parts");
        }
    }
}

#[test]
fn parts_belong_to_one_rank_and_indivisible_batches_are_errors() {
    let of = |size: usize, batch| -> Vec<_> { together(size, |rank| parts(&rank, batch).map_err(|e| e.to_string())) };
    for batch in 1..40_usize {
        for size in 1..batch + 3 {
            let all = of(size, batch);
            if size > 1 && !(batch.count_ones() as usize..=batch).contains(&size) {
                assert!(all.iter().all(|part| part.is_err()), "{batch} {size}");
                continue;
            }
            let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
            assert_eq!((all[0].start, all[size - 1].end), (0, batch), "{all:?}");
            assert!(size == 1 || all.iter().all(|part| part.len().is_power_of_two()), "{all:?}");
        }
    }
    let expected = "parts: argument `ranks` must be from 2 to 12, found 13";
    assert_eq!(of(13, 12), [(); 13].map(|()| Err(expected.to_owned())));
    assert!(of(1, 0)[0].is_err());
    for refused in [0, (1 << 24) + 1, usize::MAX] {
        let errors = together(1, |rank| sharded(sgd(1.0), rank).parts(refused).init(&1.0_f32).unwrap_err().to_string());
        assert_eq!(errors, [format!("sharded: argument `parts` must be from 1 to 2²⁴, found {refused}")]);
    }
}

#[test]
fn mini_steps_may_be_outside_and_inside() {
    let alone = train((1, PARTS), |optimizer| multi_steps(optimizer, 3))[0].bits();
    for params in train((4, PARTS), |optimizer| multi_steps(optimizer, 3)) {
        // Means over windows and ranks commute up to rounding.
        let pairs = params.bits().into_iter().zip(&alone).map(|(a, b)| (f64::from_bits(a), f64::from_bits(*b)));
        pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-3, "{a} {b}"));
    }
    let inside = |ranks| {
        together(ranks, |rank| {
            let mine: Vec<Model> = (0..6).map(|step| gradient(&rank, PARTS, step)).collect();
            let optimizer = sharded(multi_steps(optimizer(), 3), rank);
            let mut params = Model::of(0);
            let mut state = optimizer.init(&params).unwrap();
            let emitted = mine.iter().map(|g| optimizer.step(&mut params, g, &mut state).unwrap().emitted());
            assert_eq!(emitted.collect::<Vec<_>>(), [false, false, true, false, false, true]);
            params.bits()
        })
    };
    let alone = inside(1);
    assert!(inside(2).iter().all(|bits| *bits == alone[0]));
}

const PLACES: usize = 8;

/// Puts it behind state, between barriers, behind a mask, in a group, not in every step, or before an observer.
fn placed(inner: Boxed, place: usize) -> Boxed {
    match place {
        0 => boxed(chain((trace(0.5), inner, add_decayed_weights(-0.25)))),
        1 => boxed(chain((clip_by_global_norm(8.0), inner, clip_by_global_norm(4.0)))),
        2 => boxed(chain((masked(inner, Mask::paths(["large", "double"])), trace(0.5)))),
        3 => {
            let labels = Labels::paths([("large", "a"), ("small", "a")]).otherwise("b");
            boxed(partition((("a", inner), ("b", sgd(0.5))), labels))
        }
        4 => boxed(multi_steps(inner, 2)),
        5 => boxed(apply_if_finite(inner, 3)),
        6 => boxed(cautious(inner)),
        _ => boxed(params_ema(inner, 0.5)),
    }
}

#[test]
fn it_may_stand_anywhere_and_updates_may_be_applied_later() {
    // Few bits: the mean of equal gradients is exact.
    let few = |seed| {
        let mut model = Model::of(seed);
        gradchain::tree::tree_map(&mut model, |x| (x * 16.0).round() / 16.0);
        model
    };
    let run = |optimizer: &Boxed, applies: bool| {
        let mut params = few(0);
        let mut state = optimizer.init(&params).unwrap();
        for step in 1..5 {
            match applies {
                false => {
                    optimizer.step(&mut params, &few(step), &mut state).unwrap();
                }
                true => {
                    let updates = optimizer.update(&few(step), &mut state, &params).unwrap();
                    gradchain::apply_updates(&mut params, &updates).unwrap();
                }
            }
        }
        params.bits()
    };
    let inside = || chain((clip_by_global_norm(6.0), zero_nans(), adamw(0.125)));
    for place in 0..PLACES {
        let expected = run(&placed(boxed(inside()), place), false);
        for (ranks, applies) in [(1, false), (1, true), (2, false), (4, true)] {
            let all = together(ranks, |rank| run(&placed(boxed(sharded(inside(), rank)), place), applies));
            assert!(all.iter().all(|bits| *bits == expected), "place {place}, {ranks} ranks");
        }
    }
}

#[test]
fn each_rank_has_its_share_of_the_state() {
    let whole = adamw(0.1).init(&Model::of(0)).unwrap().schema().size().bytes(Kind::Moment);
    for ranks in [1, 2, 3, 5] {
        let bytes = together(ranks, |rank| {
            let state = sharded(adamw(0.1), rank).init(&Model::of(0)).unwrap();
            state.schema().size().bytes(Kind::Moment)
        });
        assert_eq!(bytes.iter().sum::<usize>(), whole, "{ranks} ranks: {bytes:?}");
        // At most one chunk of two moments, and the small leaves' ones.
        let share = whole / ranks;
        assert!(bytes.iter().all(|bytes| bytes.abs_diff(share) <= 2 * 8 * CHUNK), "{ranks} ranks: {bytes:?}");
    }
}

/// Returns each rank's bytes, and the total.
fn shares(ranks: usize, optimizer: impl Fn() -> Boxed + Sync) -> (Vec<f64>, f64) {
    let params = (vec![1.0_f32; 2_000_000], 0.0_f64, vec![1.0_f32; 1_200_000]);
    let bytes = |schema: gradchain::state::Schema| schema.size().bytes(Kind::Moment) as f64;
    let whole = bytes(optimizer().init(&params).unwrap().schema());
    (together(ranks, |rank| bytes(sharded(optimizer(), rank).init(&params).unwrap().schema())), whole)
}

#[test]
fn of_many_chunks_each_rank_has_as_much_within_five_percent() {
    type Chain = (&'static str, fn() -> Boxed);
    let chains: [Chain; 6] = [
        ("adamw", || boxed(adamw(0.1))),
        ("of other types", || boxed(adam(0.1).mu_dtype(DType::F64))),
        ("several", || boxed(chain((clip_by_global_norm(1.0), zero_nans(), adamw(0.1), params_ema(identity(), 0.9))))),
        ("windows", || boxed(multi_steps(adamw(0.1), 4))),
        ("injected", || boxed(inject_hyperparams(sgd(0.1).momentum(0.9)))),
        ("masked", || boxed(chain((masked(scale_by_adam(), "0"), trace(0.9))))),
    ];
    for (name, chain) in chains {
        for ranks in [2, 3, 4, 8] {
            let (bytes, whole) = shares(ranks, chain);
            let share = whole / ranks as f64;
            let even = bytes.iter().all(|bytes| (bytes / share - 1.0).abs() < 0.05);
            // Even over all leaves together: a mask may select more elements of one rank.
            assert_eq!(even, name != "masked", "{name} on {ranks} ranks: {bytes:?} of {whole}");
            assert_eq!(bytes.iter().sum::<f64>(), whole, "{name} on {ranks} ranks");
        }
    }
}

#[test]
fn hyperparameters_can_be_injected_inside() {
    let trained = |ranks| {
        together(ranks, |rank| {
            let (optimizer, mut params) = (sharded(inject_hyperparams(adamw(0.1)), rank), Model::of(0));
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &Model::of(1), &mut state).unwrap();
            state.inner_mut().hyperparams_mut().set("learning_rate", 0.5).unwrap();
            optimizer.step(&mut params, &Model::of(2), &mut state).unwrap();
            params.bits()
        })
    };
    let alone = trained(1);
    assert!(trained(4).iter().all(|bits| *bits == alone[0]));
}

/// Steps raw values; returns positive parameters.
fn constrained<T: GradientTransformation<Needs = Nothing>>(optimizer: &T) -> [Vec<f64>; 2] {
    let start: Vec<f64> = (0..40_000).map(|i| 0.1 + f64::from(i % 19) * 0.3).collect();
    let mut raw = Constraints::new().at("", positive()).unconstrain(&start).unwrap();
    let mut state = optimizer.init(&raw).unwrap();
    for slope in [-1.5, 0.5, 3.0] {
        let gradient: Vec<f64> = start.iter().map(|p| slope * (p - 1.0)).collect();
        let gradient = raw.pull_back(gradient).unwrap();
        optimizer.step(&mut raw, &gradient, &mut state).unwrap();
    }
    [start, raw.constrain().unwrap().into_inner()]
}

#[test]
fn raw_numbers_of_constrained_parameters_are_shared_out() {
    let [start, plain] = constrained(&adamw(0.1));
    assert!(plain != start && plain.iter().all(|p| *p > 0.0));
    let shared = together(3, |rank| constrained(&sharded(adamw(0.1), rank)));
    assert!(shared.iter().all(|[_, params]| *params == plain));
}

#[test]
fn whole_leaves_are_shared_out_by_their_work() {
    let trained = |ranks| {
        together(ranks, |rank| {
            let mut params: Vec<ndarray::Array2<f32>> = (0..5)
                .map(|i| ndarray::Array2::from_shape_fn((8 + i, 6), |(r, c)| (r * 7 + c * 3 + i) as f32))
                .collect();
            let gradient: Vec<_> = params.iter().map(|p| p.mapv(f32::sin)).collect();
            let optimizer = sharded(muon(0.1), rank);
            let mut state = optimizer.init(&params).unwrap();
            optimizer.step(&mut params, &gradient, &mut state).unwrap();
            optimizer.step(&mut params, &gradient, &mut state).unwrap();
            (params, state.schema().size().bytes(Kind::Moment))
        })
    };
    let [(alone, whole)] = &trained(1)[..] else { panic!("one rank") };
    let shared = trained(2);
    assert!(shared.iter().all(|(params, bytes)| params == alone && *bytes < whole * 7 / 10));
    assert_eq!(shared.iter().map(|(_, bytes)| bytes).sum::<usize>(), *whole);
}

#[test]
fn more_ranks_than_chunks_do_no_harm() {
    let trained = together(4, |rank| {
        let (optimizer, mut params) = (sharded(chain((clip_by_global_norm(1.0), adam(0.1))), rank), vec![1.0_f32; 3]);
        let mut state = optimizer.init(&params).unwrap();
        optimizer.step(&mut params, &vec![3.0_f32, 0.0, -4.0], &mut state).unwrap();
        params
    });
    let (plain, mut params) = (chain((clip_by_global_norm(1.0), adam(0.1))), vec![1.0_f32; 3]);
    let mut state = plain.init(&params).unwrap();
    plain.step(&mut params, &vec![3.0_f32, 0.0, -4.0], &mut state).unwrap();
    assert!(trained.iter().all(|other| *other == params));
}
