use gradchain::prelude::*;
use proptest::test_runner::TestRunner;

use super::{About, Law, cases, config, errors, fusing, masks, problem, registry, schemas, step_and_update};
use crate::common::given::{Member, describe, member};
use crate::common::subject::{Anonymous as _, Entry};

/// A chain of entries drawn by `draws`, some of them wrapped, wrapped itself.
fn random_nesting(entries: &[Member], draws: &[usize]) -> Member {
    let wrap = |inner: Member, how: usize| match how % 7 {
        0 => member(multi_steps(inner, 2)),
        1 => member(masked(inner, Mask::min_ndim(1))),
        2 => member(masked(inner, !Mask::min_ndim(2)).freeze_others()),
        3 => member(apply_if_finite(inner, 2)),
        4 => member(lookahead(inner, 2, 0.5)),
        _ => inner,
    };
    let members = draws.chunks(2).map(|d| wrap(entries[d[0] % entries.len()].clone(), d[d.len() - 1] / 128));
    let chain: Vec<Member> = members.collect();
    wrap(member(chain), draws.iter().sum::<usize>() / 7)
}

#[test]
fn random_chains_and_nestings_keep_the_laws() {
    const LAWS: [Law; 5] = [schemas::law, step_and_update::law, fusing::law, errors::law, masks::law];
    let entries: Vec<Member> = registry().iter().map(|entry| entry.boxed()).collect();
    let draws = proptest::collection::vec(0..100_000_usize, 2..8);
    let mut runner = TestRunner::new(config(cases() * 2));
    runner
        .run(&(problem(2), draws), |(problem, draws)| {
            let transformation = random_nesting(&entries, &draws);
            let entry = Entry { name: describe(&transformation), about: About::Whole, transformation }.subject();
            LAWS.iter().for_each(|law| law(&*entry, &problem));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
