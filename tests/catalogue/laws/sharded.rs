//! Sharded training is bitwise identical on any number of ranks, after changes of it, and unsharded.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gradchain::checkpoint::{Checkpoint, Save};
use gradchain::collective::threads;
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::tree::DynTree;
use gradchain::wrapper::{freezable, sharded};

use super::{LeafPlan, Number, Order, Problem, all_selected, noise, registry, tree};
use crate::common::chunk::CHUNK;
use crate::common::extra_inputs::{Member, Registered};
use crate::common::registry::is_selected;
use crate::common::{StateAfter, run, same_values};

/// Entries that are refused although they work on each leaf separately, with the reason.
const REFUSED: &[(&str, &str)] = &[("sam_dog", "a measure of unchanged whole leaves")];

/// Precedes the part's name.
const REFUSAL: &str =
    "sharded: argument `inner` must be made of parts that treat each leaf or element separately, found ";

/// Returns true for a transformation of several leaves together.
fn joins(member: &Member, params: &DynTree) -> bool {
    let error = freezable(member.clone()).init(params).err();
    error.is_some_and(|error| error.to_string().contains("join leaves in memory"))
}

/// Returns leaves of one and two chunks, of all dtypes and orders.
fn problem() -> Problem {
    let leaf = |number, shape: &[usize], order| LeafPlan { number, shape: shape.into(), order };
    let half = if cfg!(feature = "half") { Number::Bf16 } else { Number::F32 };
    let plan = vec![
        leaf(Number::F32, &[CHUNK / 126, 127], Order::Fortran),
        leaf(Number::F64, &[3], Order::C),
        leaf(half, &[20, 9], Order::C),
        leaf(Number::F64, &[CHUNK + 116], Order::Negative),
        leaf(Number::F32, &[], Order::C),
        leaf(Number::F32, &[10, 7], Order::Strided),
    ];
    // Few bits: sums of three are exact, and a mean of equal gradients is the gradient.
    let few = |seed| tree(&plan, move |leaf, i| (noise(seed, leaf, i) * 64.0).round() / 64.0);
    let (params, grads) = (few(1), vec![few(2), few(3)]);
    Problem { plan, params, grads }
}

/// Returns each rank's parameters, or the message of a refusal.
///
/// It resumes from the checkpoint if steps precede, and saves there.
fn shared(
    member: &Member,
    ranks: usize,
    Problem { params, grads, .. }: &Problem,
    steps: Range<usize>,
    path: &Path,
) -> Vec<Result<DynTree, String>> {
    let train = |rank| {
        let (optimizer, mut params) = (sharded(member.clone(), rank), params.clone());
        let mut state = match steps.start {
            0 => optimizer.init(&params)?,
            _ => Checkpoint::open(path)?.load(&optimizer, &mut params)?,
        };
        for grads in &grads[steps.clone()] {
            optimizer.step_with_inputs(&mut params, grads, &mut state)?;
        }
        Save::new(&optimizer, &state).params(&params).to_shards(path, &**optimizer.collective())?;
        Ok(params)
    };
    let train = |rank| train(rank).map_err(|error: gradchain::Error| error.to_string());
    thread::scope(|scope| {
        let groups = threads(ranks, Duration::from_secs(300)).into_iter();
        let running: Vec<_> = groups.map(|rank| scope.spawn(move || train(rank))).collect();
        running.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
    })
}

/// Checks that training on these numbers of ranks in turn ends as unsharded training.
///
/// A refused part's name is an error.
fn law(
    name: &str,
    member: &Member,
    problem: &Problem,
    plain: &StateAfter<OptState<Member>>,
    numbers: &[usize],
) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("list");
    let all = problem.grads.len();
    for (i, ranks) in numbers.iter().enumerate() {
        let steps = i..if i + 1 == numbers.len() { all } else { i + 1 };
        for params in shared(member, *ranks, problem, steps.clone(), &path) {
            let params = match params {
                Err(message) if steps.start == 0 => {
                    let part = message.strip_prefix(REFUSAL).unwrap_or_else(|| panic!("{name}: {message}"));
                    return Err(part.to_owned());
                }
                params => params.unwrap_or_else(|error| panic!("{name} on {numbers:?} ranks: {error}")),
            };
            if steps.end == all {
                same_values(&plain.params, &params).unwrap_or_else(|at| panic!("{name} on {numbers:?} ranks: {at}"));
            }
        }
    }
    // In one process too.
    let mut params = problem.params.clone();
    let state = Checkpoint::open(&path).and_then(|file| file.load(member, &mut params));
    let state = state.unwrap_or_else(|error| panic!("{name} on {numbers:?} ranks: {error}"));
    same_values(&plain.params, &params).unwrap_or_else(|at| panic!("{name} on {numbers:?} ranks, saved: {at}"));
    assert!(same_bits(&*plain.state, &*state), "{name} on {numbers:?} ranks: another state");
    Ok(())
}

/// Returns numbers of ranks to train on in turn: constant ones, and changes.
///
/// With many entries, each takes some.
fn numbers(i: usize) -> Vec<Vec<usize>> {
    let pairs = [[4, 3], [2, 1], [3, 4], [1, 2], [8, 2], [2, 3]].map(Vec::from);
    if all_selected() {
        return vec![vec![2], vec![[3, 4, 8][i % 3]], pairs[i % pairs.len()].clone()];
    }
    [1, 2, 3, 4, 8].map(|n| vec![n]).into_iter().chain(pairs).collect()
}

/// One test covers all, since the unsharded run takes half of the time.
#[test]
fn the_run_on_every_number_of_ranks_and_on_others_after_it_is_the_run_on_none() {
    let (problem, mut refused) = (problem(), Vec::new());
    for (i, entry) in registry().iter().enumerate() {
        let (name, member) = (entry.name(), entry.boxed());
        let plain = run(&member, &problem.params, &problem.grads);
        let joins = joins(&member, &problem.params);
        for numbers in numbers(i) {
            let held = law(name, &member, &problem, &plain, &numbers);
            match joins {
                true => assert!(held.is_err(), "{name} should be refused"),
                false => refused.extend(held.err().map(|part| (name.to_owned(), part))),
            }
        }
    }
    refused.dedup();
    let refused: Vec<_> = refused.iter().map(|(name, part)| (&**name, &**part)).collect();
    let listed: Vec<_> = REFUSED.iter().copied().filter(|(name, _)| is_selected(name)).collect();
    assert_eq!(refused, listed, "these are refused, and those are in the list");
}
