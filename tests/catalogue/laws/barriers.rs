//! Chains with the most barriers equal their parts; longer ones are an error.

use std::thread;
use std::time::Duration;

use gradchain::collective::threads;
use gradchain::prelude::*;
use gradchain::transform::{
    clip_by_block_rms, ema, normalize_by_update_norm, scale, scale_by_galore, scale_by_trust_ratio, trace,
};
use gradchain::tree::DynTree;
use gradchain::wrapper::{flatten, sharded};

use super::{LeafPlan, Number, Order, noise, tree};
use crate::common::extra_inputs::{Member, Registered, member};
use crate::common::wrapped::WRAPPERS;
use crate::common::{close, run, same_values};

const MOST: usize = 31;

const COUNTS: [usize; 5] = [MOST, 32, 33, 40, 64];

/// Returns `f64` trees, so that updates lose no bits between parts.
fn trees() -> (DynTree, Vec<DynTree>) {
    let leaf = |shape: &[usize], order| LeafPlan { number: Number::F64, shape: shape.into(), order };
    let plan = [leaf(&[50], Order::C), leaf(&[5, 7], Order::Fortran), leaf(&[3], Order::Negative)];
    (
        tree(&plan, |leaf, i| noise(1, leaf, i)),
        (2..6).map(|seed| tree(&plan, move |leaf, i| noise(seed, leaf, i))).collect(),
    )
}

/// Returns stages with state, parameters and reductions between barriers.
fn mixed(barriers: usize) -> Vec<Member> {
    let mut members: Vec<Member> = vec![member(trace(0.5))];
    for barrier in 0..barriers {
        members.push(match barrier % 4 {
            0 => member(clip_by_global_norm(0.9)),
            1 => member(scale_by_trust_ratio()),
            2 => member(clip_by_block_rms(0.2)),
            _ => member(normalize_by_update_norm()),
        });
        match barrier % 5 {
            1 => members.push(member(scale_by_adam())),
            3 => members.push(member(add_decayed_weights(0.1))),
            _ => {}
        }
    }
    members.push(member(ema(0.5)));
    members.push(member(scale(-0.01)));
    members
}

/// Passes each part the previous one's updates.
fn in_chunks(members: Vec<Member>, len: usize) -> DynTree {
    let (mut params, grads) = trees();
    let chunks: Vec<_> = members.chunks(len).map(|chunk| chain(chunk.to_vec())).collect();
    let mut states: Vec<_> = chunks.iter().map(|chunk| chunk.init(&params).unwrap()).collect();
    for mut updates in grads {
        for (chunk, state) in chunks.iter().zip(&mut states) {
            updates = chunk.update_owned_with_inputs(updates, state, &params).unwrap().0;
        }
        apply_updates(&mut params, &updates).unwrap();
    }
    params
}

/// Asserts that the message has the limit, the number of barriers, and the part.
#[track_caller]
fn refused<T: Registered>(what: &str, barriers: usize, transformation: &T) {
    let error = transformation.init(&trees().0).map(drop).expect_err(what);
    let message = error.to_string();
    let found = format!("found {barriers} in ");
    assert!(error.is_argument() && message.contains("at most 31 barriers"), "{what}: {message}");
    assert!(message.contains(&found) && message.contains("clip_by_"), "{what}, not {barriers}: {message}");
}

#[test]
fn a_chain_with_the_most_barriers_equals_its_chunks_and_a_longer_one_is_refused() {
    let (params, grads) = trees();
    for barriers in COUNTS {
        let members = mixed(barriers);
        let (first, rest) = members.split_at(members.len() / 2);
        let nested = vec![member(chain(first.to_vec())), member(chain((member(chain(rest.to_vec())),)))];
        let vec = chain(members.clone());
        let forms = [("boxed", member(vec.clone())), ("nested", member(chain(nested)))];
        if barriers > MOST {
            refused("bare", barriers, &vec);
            forms.iter().for_each(|(form, chain)| refused(form, barriers, chain));
            continue;
        }
        let found = run(&vec, &params, &grads).params;
        for len in [1, 5, 12] {
            same_values(&found, &in_chunks(members.clone(), len)).unwrap_or_else(|at| panic!("pieces of {len}: {at}"));
        }
        assert!(same_values(&found, &params).is_err(), "nothing has moved");
        for (form, chain) in forms {
            same_values(&found, &run(&chain, &params, &grads).params).unwrap_or_else(|at| panic!("{form}: {at}"));
        }
    }
}

/// Returns clips with decreasing limits, which together equal the last, and that one.
fn clips(barriers: usize) -> (Vec<Member>, Vec<Member>) {
    let bound = |i: usize| 0.9_f64.powi(i as i32);
    let (first, last) = (member(trace(0.5)), [member(trace(0.25)), member(scale(-0.1))]);
    let chain = |bounds: &mut dyn Iterator<Item = usize>| {
        let clips = bounds.map(|i| member(clip_by_global_norm(bound(i))));
        [first.clone()].into_iter().chain(clips).chain(last.clone()).collect::<Vec<_>>()
    };
    (chain(&mut (1..=barriers)), chain(&mut [barriers].into_iter()))
}

#[test]
fn barriers_inside_every_wrapper_run_or_are_refused() {
    let (params, grads) = trees();
    let passes = |transformation: &Member| transformation.plan(&params).unwrap().passes.len() - 1;
    let (mut equal, mut over) = (0, 0);
    for (name, wrap) in WRAPPERS {
        let inside = |barriers: usize| wrap(member(chain(clips(barriers).0)));
        // A wrapper that runs its inner transformation itself adds none of its barriers.
        let [one, two] = [1, 2].map(|barriers| passes(&inside(barriers)));
        let own = if two > one { one - 1 } else { 0 };
        for barriers in [MOST - own].into_iter().chain(COUNTS) {
            let all = inside(barriers);
            if barriers + own > MOST {
                refused(name, barriers + own, &all);
                over += 1;
                continue;
            }
            let (all, last) =
                (run(&all, &params, &grads), run(&wrap(member(chain(clips(barriers).1))), &params, &grads));
            close(&all.params, &last.params, 1e-9).unwrap_or_else(|at| panic!("{barriers} in {name}: {at}"));
            equal += 1;
        }
    }
    println!("{} wrappers: {equal} equal, {over} refused", WRAPPERS.len());
    assert!(equal >= WRAPPERS.len() && over >= 4 * WRAPPERS.len());
}

/// The inner transformation reads no parameters.
#[test]
fn barriers_inside_galore_run_or_are_refused() {
    let (params, grads) = trees();
    let inside = |clips: usize| -> Vec<Boxed> {
        (1..=clips).map(|i| boxed(clip_by_global_norm(0.9_f64.powi(i as i32)))).collect()
    };
    let galore = |inner: Vec<Boxed>| scale_by_galore().rank(2).base_optimizer(chain(inner));
    for barriers in COUNTS {
        if barriers > MOST {
            refused("galore", barriers, &galore(inside(barriers)));
            continue;
        }
        let last = inside(barriers).split_off(barriers - 1);
        let [all, last] = [inside(barriers), last].map(|inner| run(&galore(inner), &params, &grads).params);
        close(&all, &last, 1e-9).unwrap_or_else(|at| panic!("{barriers} in galore: {at}"));
    }
}

/// All ranks refuse the chain, or all run it.
#[test]
fn barriers_on_two_ranks_run_or_are_refused() {
    for barriers in COUNTS {
        let (params, grads) = &trees();
        let train = |rank| {
            let optimizer = sharded(member(chain(clips(barriers).0)), rank);
            match barriers > MOST {
                true => refused("sharded", barriers, &optimizer),
                false => {
                    let alone = run(&member(chain(clips(barriers).0)), params, grads).params;
                    let shared = run(&optimizer, params, grads).params;
                    close(&alone, &shared, 1e-12).unwrap_or_else(|at| panic!("{barriers} on two ranks: {at}"));
                }
            }
        };
        thread::scope(|scope| {
            for rank in threads(2, Duration::from_secs(300)) {
                scope.spawn(move || train(rank));
            }
        });
    }
}

/// Tuples combine pass structures at compile time.
#[test]
fn a_tuple_with_the_most_barriers_equals_its_boxes_and_a_longer_one_is_refused() {
    let clip = || clip_by_global_norm(0.9);
    let twelve =
        || chain((clip(), clip(), clip(), clip(), clip(), clip(), clip(), clip(), clip(), clip(), clip(), clip()));
    let most =
        || chain((twelve(), chain((clip(), clip(), clip(), clip(), clip(), clip(), clip())), trace(0.5), twelve()));
    let (params, grads) = trees();
    let mut boxes: Vec<Member> = (0..MOST).map(|_| member(clip())).collect();
    boxes.insert(19, member(trace(0.5)));
    let [tuple, boxes] = [run(&most(), &params, &grads).params, run(&chain(boxes), &params, &grads).params];
    same_values(&tuple, &boxes).unwrap_or_else(|at| panic!("{at}"));
    refused("a tuple", 32, &chain((most(), clip())));
    refused("a tuple", 33, &chain((clip(), most(), clip())));
    refused("a tuple", 62, &chain((most(), most())));
    refused("a flattened tuple", 32, &flatten(chain((clip(), most()))));
}

#[cfg(feature = "config")]
#[test]
fn a_config_with_the_most_barriers_equals_its_boxes_and_a_longer_one_is_refused() {
    use serde_json::json;
    let (params, grads) = trees();
    for barriers in COUNTS {
        let clips: Vec<_> = (0..barriers).map(|_| json!({"clip_by_global_norm": {"max_norm": 0.5}})).collect();
        let built = |config: serde_json::Value| gradchain::config::build(&config).expect("a config");
        let (plain, flat) = (built(json!({"chain": clips})), built(json!({"flatten": {"inner": {"chain": clips}}})));
        if barriers > MOST {
            refused("a config", barriers, &plain);
            refused("a config", barriers, &flat);
            continue;
        }
        let boxes: Vec<Member> = (0..barriers).map(|_| member(clip_by_global_norm(0.5))).collect();
        let boxes = run(&chain(boxes), &params, &grads).params;
        same_values(&run(&plain, &params, &grads).params, &boxes).unwrap_or_else(|at| panic!("{at}"));
        close(&run(&flat, &params, &grads).params, &boxes, 1e-12).unwrap_or_else(|at| panic!("flattened: {at}"));
    }
}
