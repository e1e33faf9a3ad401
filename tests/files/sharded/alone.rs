//! Ranks that train alone for a while, then average.

use gradchain::collective::{Collective, average};
use gradchain::prelude::*;
use gradchain::state::{AverageOptions, Entry, KeyPolicy, State, StateWalk, same_bits};
use gradchain::transform::add_noise;

use super::{Model, together};

fn optimizer() -> impl GradientTransformation<Needs = Nothing> + Clone {
    chain((zero_nans(), clip_by_global_norm(20.0), adamw(0.02)))
}

/// Steps with a NaN on the second rank.
fn trained<T: GradientTransformation<Needs = Nothing>>(optimizer: &T, rank: usize) -> (Model, OptState<T>) {
    let mut params = Model::of(0);
    let mut state = optimizer.init(&params).unwrap();
    for step in 0..=rank as u64 {
        let mut gradient = Model::of(10 * rank as u64 + step);
        if step == 1 {
            gradient.small[2] = f64::NAN;
        }
        optimizer.step(&mut params, &gradient, &mut state).unwrap();
    }
    (params, state)
}

#[test]
fn states_are_averaged_over_ranks_as_in_one_process() {
    for ranks in [1, 2, 3, 4] {
        let optimizer = optimizer();
        let alone: Vec<_> = (0..ranks).map(|rank| trained(&optimizer, rank)).collect();
        let states: Vec<_> = alone.iter().map(|(_, state)| (state, 1.0)).collect();
        let expected = OptState::average(&states, AverageOptions::default()).unwrap();
        let all = together(ranks, |rank| {
            let (mut params, mut state) = trained(&optimizer, rank.rank());
            average(&rank, &mut params).unwrap();
            state.average_over(&rank, AverageOptions::default()).unwrap();
            (params.bits(), state)
        });
        let (bits, first) = &all[0];
        assert!(all.iter().all(|(others, state)| others == bits && same_bits(&**state, &**first)), "{ranks} ranks");
        // Counts, flags and numbers are one process's, and arrays up to the order of summation.
        let ((singles, arrays), (of_one, arrays_of_one)) = (values(first), values(&expected));
        assert_eq!(singles, of_one, "{ranks} ranks");
        for (a, b) in arrays.into_iter().zip(arrays_of_one) {
            assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-3), "{ranks} ranks: {a} {b}");
        }
    }
}

fn values<T: GradientTransformation>(state: &OptState<T>) -> (Vec<String>, Vec<f64>) {
    let (mut singles, mut arrays) = (Vec::new(), Vec::new());
    state.walk(&mut StateWalk::new(&mut |field, entry| match entry {
        Entry::Moments(moments) => {
            let elements = moments.leaves().filter_map(|leaf| moments.to_array(leaf));
            arrays.extend(elements.flat_map(|array| array.into_iter().collect::<Vec<_>>()));
        }
        single => singles.push(format!("{field} {single:?}")),
    }));
    (singles, arrays)
}

#[test]
fn equal_replicas_are_averaged_bitwise_identically() {
    for ranks in [2, 3, 5] {
        let (params, state) = trained(&optimizer(), 1);
        let all = together(ranks, |rank| {
            let (mut params, mut state) = (params.clone(), state.clone());
            average(&rank, &mut params).unwrap();
            state.average_over(&rank, AverageOptions::default()).unwrap();
            (params, state)
        });
        assert!(all.iter().all(|(p, s)| p.bits() == params.bits() && same_bits(&**s, &*state)), "{ranks} ranks");
    }
}

#[test]
fn keys_are_refused_or_kept_and_other_states_are_errors_that_name_them() {
    let noisy = || chain((add_noise(0.1, 0.0, 7), sgd(0.1)));
    let all = together(2, |rank| {
        let mut state = noisy().init(&Model::of(0)).unwrap();
        let before = state.clone();
        let refused = state.average_over(&rank, AverageOptions::default()).unwrap_err().to_string();
        assert!(same_bits(&*state, &*before));
        let options = AverageOptions::default().keys(KeyPolicy::First);
        state.average_over(&rank, options).unwrap();
        assert!(same_bits(&*state, &*before));
        refused
    });
    assert!(all.iter().all(|error| error.contains("random keys have no mean")), "{all:?}");

    let all = together(2, |rank| {
        let params = (vec![1.0_f32; 2], vec![1.0_f32; 2 + rank.rank()]);
        let mut state = adam(0.1).init(&params).unwrap();
        let state = state.average_over(&rank, AverageOptions::default()).unwrap_err();
        (state, average(&rank, &mut params.clone()).unwrap_err())
    });
    for (state, params) in all {
        for error in [state, params] {
            assert!(error.is_collective(), "{error}");
            assert!(error.to_string().ends_with("rank 0 has 1: f32 [2]; rank 1 has 1: f32 [3]"), "{error}");
        }
    }
}

#[test]
fn a_lost_rank_is_an_error_of_the_others() {
    let all = together(2, |rank| {
        if rank.rank() == 1 {
            return None;
        }
        let (mut params, mut state) = trained(&optimizer(), 0);
        let error = state.average_over(&rank, AverageOptions::default()).unwrap_err();
        assert!(optimizer().step(&mut params, &Model::of(1), &mut state).is_ok());
        Some(error.is_collective() && average(&rank, &mut params).unwrap_err().is_collective())
    });
    assert_eq!(all, [Some(true), None]);
}
