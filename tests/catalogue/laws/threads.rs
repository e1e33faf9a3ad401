#![cfg(feature = "rayon")]

use gradchain::state::same_bits;

use super::{Problem, Subject, holds_on, large_problem};
use crate::common::same_values;

fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let runs = [1, 2, 8].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| entry.run(params, grads))
    });
    for other in &runs[1..] {
        same_values(&runs[0].params, &other.params).unwrap_or_else(|at| panic!("{name}: {at}"));
        assert!(same_bits(&runs[0].state, &other.state), "{name}: the states differ");
    }
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    holds_on(law, &large_problem());
}
