//! The same bits for every number of ranks, and a share of the state each.

use gradchain::collective::{Collective, PairwiseMean, Threads};
use gradchain::prelude::*;
use gradchain::state::Kind;

use super::{Model, together};

/// The batch of a step is cut into so many parts.
const PARTS: u64 = 8;

fn optimizer() -> impl GradientTransformation<Needs = Nothing> {
    let labels = Labels::paths([("small", "norms"), ("large", "norms")]).otherwise("moments");
    let parts = partition((("norms", novograd(0.01)), ("moments", adamw(0.02))), labels);
    chain((clip_by_global_norm(20.0), zero_nans(), parts, params_ema(identity(), 0.9)))
}

/// The mean of a rank's parts of a batch.
fn gradient(ranks: &Threads, step: u64) -> Model {
    let share = PARTS / ranks.size() as u64;
    let mut mean = PairwiseMean::new();
    for part in ranks.rank() as u64 * share..(ranks.rank() as u64 + 1) * share {
        mean.add(Model::of(1 + 100 * step + part)).unwrap();
    }
    mean.mean().unwrap()
}

fn train<T: GradientTransformation<Needs = Nothing>>(
    ranks: usize,
    around: impl Fn(gradchain::wrapper::Sharded<Boxed>) -> T + Sync,
) -> Vec<Model> {
    together(ranks, |rank| {
        let mine: Vec<Model> = (0..6).map(|step| gradient(&rank, step)).collect();
        let optimizer = around(sharded(boxed(optimizer()), rank));
        let mut params = Model::of(0);
        let mut state = optimizer.init(&params).unwrap();
        for gradient in &mine {
            optimizer.step(&mut params, gradient, &mut state).unwrap();
        }
        params
    })
}

#[test]
fn every_number_of_ranks_gives_the_same_bits() {
    let alone = train(1, |optimizer| optimizer)[0].bits();
    for ranks in [2, 4, 8] {
        let all = train(ranks, |optimizer| optimizer);
        assert!(all.iter().all(|params| params.bits() == alone), "{ranks} ranks");
    }
}

#[test]
fn mini_steps_may_be_outside_and_inside() {
    let alone = train(1, |optimizer| multi_steps(optimizer, 3))[0].bits();
    for params in train(4, |optimizer| multi_steps(optimizer, 3)) {
        // The mean over a window of means over ranks is another than the other way round, but for rounding.
        let pairs = params.bits().into_iter().zip(&alone).map(|(a, b)| (f64::from_bits(a), f64::from_bits(*b)));
        pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-3, "{a} {b}"));
    }
    let inside = |ranks| {
        together(ranks, |rank| {
            let mine: Vec<Model> = (0..6).map(|step| gradient(&rank, step)).collect();
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

#[test]
fn each_rank_has_its_share_of_the_state() {
    let whole = adamw(0.1).init(&Model::of(0)).unwrap().schema().size().bytes(Kind::Moment);
    for ranks in [1, 2, 3, 5] {
        let bytes = together(ranks, |rank| {
            let state = sharded(adamw(0.1), rank).init(&Model::of(0)).unwrap();
            state.schema().size().bytes(Kind::Moment)
        });
        assert_eq!(bytes.iter().sum::<usize>(), whole, "{ranks} ranks: {bytes:?}");
        // A piece of two moments more or less, and those of the small leaves.
        let share = whole / ranks;
        assert!(bytes.iter().all(|bytes| bytes.abs_diff(share) <= 2 * 8 * 16_384), "{ranks} ranks: {bytes:?}");
    }
}

#[test]
fn of_many_pieces_each_rank_has_as_much_within_five_percent() {
    let params = (vec![1.0_f32; 2_000_000], 0.0_f64, vec![1.0_f32; 1_200_000]);
    let whole = adamw(0.1).init(&params).unwrap().schema().size().bytes(Kind::Moment) as f64;
    for ranks in [2, 4, 8] {
        let bytes = together(ranks, |rank| {
            sharded(adamw(0.1), rank).init(&params).unwrap().schema().size().bytes(Kind::Moment) as f64
        });
        let share = whole / ranks as f64;
        assert!(bytes.iter().all(|bytes| (bytes / share - 1.0).abs() < 0.05), "{ranks} ranks: {bytes:?} of {whole}");
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
fn more_ranks_than_pieces_do_no_harm() {
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
