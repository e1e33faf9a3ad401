//! Shared out among ranks, or by one: the same bits.

use std::thread;
use std::time::Duration;

use gradchain::collective::threads;
use gradchain::prelude::*;
use gradchain::tree::DynTree;

use super::{LeafPlan, Number, Order, Problem, noise, registry, tree};
use crate::common::given::{Member, Registered};
use crate::common::{run, same_values};

/// What is refused though it works on each leaf by itself, and why.
const REFUSED: &[(&str, &str)] = &[("sam_dog", "a measure of leaves as they were")];

/// How a refusal begins, before the name of the part.
const REFUSAL: &str =
    "sharded: argument `inner` must be of parts that work on each leaf by itself, or element by element, found ";

/// Whether it works on several leaves together: others refuse it for that too.
fn joins(member: &Member, params: &DynTree) -> bool {
    let error = freezable(member.clone()).init(params).err();
    error.is_some_and(|error| error.to_string().contains("several leaves together"))
}

/// Leaves of one and of two pieces, which ranks share, of all types and orders.
fn problem() -> Problem {
    let leaf = |number, shape: &[usize], order| LeafPlan { number, shape: shape.into(), order };
    let half = if cfg!(feature = "half") { Number::Bf16 } else { Number::F32 };
    let plan = vec![
        leaf(Number::F32, &[150, 120], Order::Fortran),
        leaf(Number::F64, &[3], Order::C),
        leaf(half, &[20, 9], Order::C),
        leaf(Number::F64, &[16_500], Order::Negative),
        leaf(Number::F32, &[], Order::C),
        leaf(Number::F32, &[10, 7], Order::Strided),
    ];
    // Of few bits, so that the sum of three is exact, and their mean what each of them is.
    let few = |seed| tree(&plan, move |leaf, i| (noise(seed, leaf, i) * 64.0).round() / 64.0);
    let (params, grads) = (few(1), vec![few(2), few(3)]);
    Problem { plan, params, grads }
}

/// What each of some ranks has in the end; if it was refused, the message.
fn shared(member: &Member, ranks: usize, Problem { params, grads, .. }: &Problem) -> Vec<Result<DynTree, String>> {
    let train = |rank| {
        let (optimizer, mut params) = (sharded(member.clone(), rank), params.clone());
        let mut state = optimizer.init(&params).map_err(|error| error.to_string())?;
        for grads in grads {
            optimizer.step_given(&mut params, grads, &mut state).map_err(|error| error.to_string())?;
        }
        Ok(params)
    };
    let train = &train;
    thread::scope(|scope| {
        let groups = threads(ranks, Duration::from_secs(300)).into_iter();
        let running: Vec<_> = groups.map(|rank| scope.spawn(move || train(rank))).collect();
        running.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
    })
}

#[test]
fn every_number_of_ranks_gives_the_bits_of_none() {
    let (problem, mut refused) = (problem(), Vec::new());
    let every = std::env::var("ENTRY").is_err();
    for (i, entry) in registry().iter().enumerate() {
        let (name, member) = (entry.name(), entry.boxed());
        let plain = run(&member, &problem.params, &problem.grads);
        // Each in turn, where there are many entries.
        let numbers = if every { vec![2, [3, 4, 8][i % 3]] } else { vec![1, 2, 3, 4, 8] };
        for ranks in numbers {
            let all = shared(&member, ranks, &problem);
            if let Some(Err(message)) = all.first() {
                let part = message.strip_prefix(REFUSAL).unwrap_or_else(|| panic!("{name}: {message}"));
                if !joins(&member, &problem.params) {
                    refused.push((name.to_owned(), part.to_owned()));
                }
                break;
            }
            assert!(!joins(&member, &problem.params), "{name} should be refused");
            for params in all {
                let params = params.unwrap_or_else(|error| panic!("{name} on {ranks} ranks: {error}"));
                same_values(&plain.params, &params).unwrap_or_else(|at| panic!("{name} on {ranks} ranks: {at}"));
            }
        }
    }
    let refused: Vec<_> = refused.iter().map(|(name, part)| (&**name, &**part)).collect();
    assert!(!every || refused == REFUSED, "other entries are refused: {refused:?}");
}
