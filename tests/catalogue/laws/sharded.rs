//! Shared out among ranks, or by one: the same bits.

use std::thread;
use std::time::Duration;

use gradchain::collective::threads;
use gradchain::prelude::*;
use gradchain::tree::DynTree;

use super::{LeafPlan, Number, Order, Problem, Subject, noise, registry, tree};
use crate::common::given::{Member, Registered};
use crate::common::{run, same_values};

/// What cannot be shared out, and what it is called.
const REFUSED: &[(&str, &str)] = &[];

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
    for entry in registry() {
        let (name, member) = (entry.name(), entry.boxed());
        let plain = run(&member, &problem.params, &problem.grads);
        for ranks in [1, 2, 3, 4, 8] {
            let all = shared(&member, ranks, &problem);
            if let Some(Err(message)) = all.first() {
                let part = message.strip_prefix("sharded: argument `inner` must be of parts that work on each leaf by itself, or element by element, found ");
                refused.push((name.to_owned(), part.unwrap_or_else(|| panic!("{name}: {message}")).to_owned()));
                break;
            }
            for params in all {
                let params = params.unwrap_or_else(|error| panic!("{name} on {ranks} ranks: {error}"));
                same_values(&plain.params, &params).unwrap_or_else(|at| panic!("{name} on {ranks} ranks: {at}"));
            }
        }
    }
    let refused: Vec<_> = refused.iter().map(|(name, part)| (&**name, &**part)).collect();
    if std::env::var("ENTRY").is_err() {
        assert_eq!(refused, REFUSED, "what is refused");
    }
}
