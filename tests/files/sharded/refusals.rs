//! Ranks that disagree or are lost are an error on all others, never an endless wait.

use std::time::Duration;

use gradchain::collective::{Collective, Pending, gather, parts};
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::wrapper::{flatten, sharded};

use super::{Model, together, within};

/// Returns the messages without the rank's number.
fn errors(all: Vec<gradchain::Result<()>>) -> Vec<String> {
    let text = |error: gradchain::Error| {
        assert!(error.is_collective(), "{error}");
        error.to_string().split_once(": ").expect("a rank").1.to_owned()
    };
    all.into_iter().map(|result| text(result.expect_err("the ranks do not agree"))).collect()
}

#[test]
fn another_optimizer_is_an_error_before_the_first_step() {
    let all = together(3, |rank| {
        let learning_rate = if rank.rank() == 2 { 0.25 } else { 0.5 };
        sharded(sgd(learning_rate), rank).init(&Model::of(0)).map(drop)
    });
    for error in errors(all) {
        assert!(error.starts_with("the ranks differ in the optimizer: rank 0 has "), "{error}");
        assert!(error.contains("0.5") && error.contains("rank 2 has") && error.contains("0.25"), "{error}");
    }
}

#[test]
fn another_structure_names_the_leaf() {
    let all = together(2, |rank| {
        let n = 3 + rank.rank();
        sharded(sgd(0.5), rank).init(&(vec![0.0_f32; 2], vec![0.0_f32; n])).map(drop)
    });
    let expected = "the ranks differ in the parameters' structure: rank 0 has 1: f32 [3] in memory order [1]; rank 1 has \
                    1: f32 [4] in memory order [1]";
    assert_eq!(errors(all), [expected; 2]);
}

#[test]
fn another_type_names_the_leaf() {
    let all = together(2, |rank| match rank.rank() {
        0 => sharded(sgd(0.5), rank).init(&(vec![0.0_f32; 2], vec![0.0_f32; 3])).map(drop),
        _ => sharded(sgd(0.5), rank).init(&(vec![0.0_f32; 2], vec![0.0_f64; 3])).map(drop),
    });
    let expected = "the ranks differ in the parameters' structure: rank 0 has 1: f32 [3] in memory order [1]; rank 1 has \
                    1: f64 [3] in memory order [1]";
    assert_eq!(errors(all), [expected; 2]);
}

#[test]
fn another_step_is_an_error_that_names_the_count() {
    let all = together(2, |rank| {
        let (me, optimizer) = (rank.rank(), sharded(adamw(0.5), rank));
        let mut state = optimizer.init(&Model::of(0))?;
        if me == 1 {
            // Another step's count.
            state.inner_mut().0.count.increment();
        }
        optimizer.step(&mut Model::of(0), &Model::of(1), &mut state).map(drop)
    });
    for error in errors(all) {
        assert!(error.starts_with("the ranks differ in the step: rank 0 has `") && error.contains("count"), "{error}");
    }
}

#[test]
fn other_values_name_the_leaf_and_nothing_has_been_changed() {
    let all = together(2, |rank| {
        let mut params = Model::of(0);
        params.small[1] += rank.rank() as f64;
        let (before, optimizer) = (params.clone(), sharded(adamw(0.5), rank));
        let mut state = optimizer.init(&params)?;
        let fresh = state.clone();
        let refused = optimizer.step(&mut params, &before, &mut state).map(drop);
        assert!(params.bits() == before.bits() && same_bits(&*state, &*fresh));
        refused
    });
    for error in errors(all) {
        assert!(error.starts_with("the ranks differ in the parameters' values: rank 0 has `small` of"), "{error}");
    }
}

#[test]
fn another_step_or_another_injected_number_is_an_error_of_the_step() {
    let all = together(2, |rank| {
        let (me, mut params) = (rank.rank(), Model::of(0));
        let optimizer = sharded(inject_hyperparams(adamw(0.5)), rank);
        let mut state = optimizer.init(&params)?;
        if me == 1 {
            state.inner_mut().hyperparams_mut().set("learning_rate", 0.25)?;
        }
        optimizer.step(&mut params, &Model::of(1), &mut state).map(drop)
    });
    for error in errors(all) {
        assert!(
            error.starts_with("the ranks differ in the step: rank 0 has `") && error.contains("learning_rate"),
            "{error}"
        );
    }
}

#[test]
fn stages_that_join_leaves_are_refused_by_name() {
    let refused = together(2, |rank| {
        let error = sharded(chain((clip(1.0), flatten(adam(0.1)))), rank).init(&Model::of(0)).unwrap_err();
        error.to_string()
    });
    let expected = "sharded: argument `inner` must be made of parts that treat each leaf or element separately, found \
                    flatten";
    assert_eq!(refused, [expected; 2]);
}

/// Counts ranks from 1.
#[derive(Debug)]
struct FromOne;

impl Collective for FromOne {
    fn rank(&self) -> usize {
        1
    }
    fn size(&self) -> usize {
        1
    }
    fn begin_all_to_all(&self, _: Vec<u8>, _: &[usize], _: Vec<u8>, _: &[usize]) -> Pending<'_> {
        unreachable!("it is refused before it is called")
    }
    fn begin_all_gather(&self, _: Vec<u8>, _: Vec<u8>, _: &[usize]) -> Pending<'_> {
        unreachable!("as above")
    }
}

#[test]
fn a_rank_outside_of_the_group_is_refused() {
    let expected = "Collective: argument `rank` must be below the group's size of 1, found 1";
    let all = [sharded(adam(0.1), FromOne).init(&vec![0.0_f32; 3]).map(drop), parts(&FromOne, 4).map(drop)];
    assert_eq!(all.map(|result| result.unwrap_err().to_string()), [expected; 2]);
}

#[test]
fn a_lost_rank_is_an_error_of_all_others() {
    for lost_at in [0, 1, 3] {
        let all = together(3, |rank| {
            let (me, mut params) = (rank.rank(), Model::of(0));
            let optimizer = sharded(chain((clip_by_global_norm(1.0), adamw(0.5))), rank);
            let mut state = optimizer.init(&params)?;
            for step in 0..5 {
                if me == 1 && step == lost_at {
                    return Err(gradchain::Error::collective(1, "lost"));
                }
                let before = params.bits();
                if let Err(error) = optimizer.step(&mut params, &Model::of(step), &mut state) {
                    assert_eq!(params.bits(), before);
                    return Err(error);
                }
            }
            Ok(())
        });
        assert_eq!(errors(all), ["rank 1 has left the group", "lost", "rank 1 has left the group"], "at {lost_at}");
    }
}

#[test]
fn a_late_rank_is_an_error_of_all() {
    let all = within(Duration::from_millis(200), 2, |rank| {
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(600));
        }
        rank.barrier()
    });
    assert_eq!(errors(all), ["rank 1 did not arrive within 200ms"; 2]);
}

#[test]
fn another_call_or_another_length_is_an_error() {
    let all = together(2, |rank| match rank.rank() {
        0 => rank.barrier(),
        _ => rank.all_to_all(&mut vec![1, 2], &[1, 1], &mut Vec::new(), &[1, 1]),
    });
    assert!(errors(all).iter().all(|error| error.contains("called `all_")));
    let all = together(2, |rank| rank.all_gather(&mut vec![0; rank.rank()], &mut Vec::new(), &[0, 2]));
    let all = errors(all);
    assert!(all.iter().all(|error| error.contains("sent 1 bytes")), "{all:?}");
}

#[test]
fn messages_of_any_length_arrive_in_order() {
    for ranks in [1, 2, 5] {
        let all = together(ranks, |rank| {
            let me = rank.rank() as u8;
            let (mut send, mut received) = (Vec::new(), Vec::new());
            let to: Vec<usize> = (0..ranks).map(|other| (usize::from(me) + other) % 3).collect();
            to.iter().enumerate().for_each(|(other, n)| send.extend([10 * me + other as u8].repeat(*n)));
            let before = send.clone();
            for _ in 0..20 {
                rank.all_to_all(&mut send, &to, &mut received, &to)?;
                let expected: Vec<u8> =
                    to.iter().enumerate().flat_map(|(other, n)| [10 * other as u8 + me].repeat(*n)).collect();
                assert_eq!((&received, &send), (&expected, &before));
            }
            let mut word = if me == 0 { vec![1, 2, 3] } else { vec![0; 3] };
            rank.broadcast(0, &mut word)?;
            assert_eq!(word, [1, 2, 3]);
            assert!(rank.broadcast(ranks, &mut word).unwrap_err().is_argument());
            assert_eq!(gather(&rank, &[me])?, (0..ranks as u8).map(|rank| vec![rank]).collect::<Vec<_>>());
            rank.barrier()
        });
        all.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn calls_that_have_begun_travel_together_and_one_may_be_dropped() {
    for ranks in [1, 2, 5] {
        let all = together(ranks, |rank| {
            let (me, from) = (rank.rank() as u8, vec![3; ranks]);
            let begin = |call: u8| rank.begin_all_gather(vec![call, me, call], Vec::new(), &from);
            let expected = |call| (0..ranks as u8).flat_map(|of| [call, of, call]).collect::<Vec<_>>();
            for calls in 0..20 {
                let [first, dropped, last] = [0, 1, 2].map(begin);
                // The order differs by rank.
                if (me + calls) % 2 == 0 {
                    drop(dropped);
                } else {
                    assert_eq!(first.wait()?, [vec![0, me, 0], expected(0)]);
                    assert_eq!(last.wait()?[1], expected(2));
                    continue;
                }
                assert_eq!(first.wait()?[1], expected(0));
                assert_eq!(last.wait()?[1], expected(2));
            }
            // Some wait at once.
            let (mut send, mut received) = (vec![7; ranks], Vec::new());
            let ones = vec![1; ranks];
            if me % 2 == 0 {
                rank.all_to_all(&mut send, &ones, &mut received, &ones)?;
            } else {
                [send, received] = rank.begin_all_to_all(send, &ones, received, &ones).wait()?;
            }
            assert_eq!([send, received], [vec![7; ranks], vec![7; ranks]]);
            rank.barrier()
        });
        all.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_call_that_nobody_waits_for_is_an_error_and_so_is_one_that_others_never_begin() {
    let leaked = within(Duration::from_millis(300), 2, |rank| {
        let begun = rank.begin_all_gather(vec![1], Vec::new(), &[1, 1]);
        if rank.rank() == 1 {
            core::mem::forget(begun);
        } else {
            begun.wait()?;
        }
        rank.barrier()
    });
    assert!(leaked.iter().all(|result| result.as_ref().is_err_and(gradchain::Error::is_collective)), "{leaked:?}");
    let lost = together(3, |rank| {
        let begun = rank.begin_all_gather(vec![1], Vec::new(), &[1; 3]);
        if rank.rank() == 1 {
            return begun.wait().map(drop);
        }
        let later = rank.begin_all_gather(vec![1], Vec::new(), &[1; 3]);
        begun.wait()?;
        later.wait().map(drop)
    });
    assert!(lost[1].is_ok());
    for error in [0, 2].map(|rank| lost[rank].as_ref().unwrap_err().to_string()) {
        assert!(error.ends_with("rank 1 has left the group"), "{error}");
    }
    // Refused at the call, reported by the wait.
    let error = together(1, |rank| rank.begin_all_gather(vec![1], Vec::new(), &[1, 1]).wait().unwrap_err());
    assert!(error[0].is_argument(), "{error:?}");
}
