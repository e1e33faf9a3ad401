//! The optimizers that must converge, one to a line.

use gradchain::prelude::*;

use super::naive;
use super::naive::Naive::{self, *};
use super::{Member, Trial, member};

pub(super) fn trial(
    name: &'static str,
    of: fn(Schedule) -> Member,
    rates: [f64; 3],
    excess: [f64; 3],
    naive: Naive,
) -> Trial {
    Trial { name, of, rates, excess, naive }
}

/// For each problem a learning rate, which fades to 0, and how much more than the least loss may be left at the end.
#[rustfmt::skip]
pub(super) fn optimizers() -> Vec<Trial> {
    let mut trials = vec![
        trial("sgd", |rate| member(sgd(rate)), [0.018, 0.0018, 3.0], [1e-14, 0.1, 1e-14], Element(naive::sgd)),
        trial("momentum", |rate| member(sgd(rate).momentum(0.9)), [0.018, 0.0032, 0.5], [1e-14; 3], Element(naive::momentum)),
        trial("adam", |rate| member(adam(rate)), [0.2, 0.4, 0.2], [1e-14; 3], Element(naive::adam)),
        trial("adamw", |rate| member(adamw(rate)), [0.5, 0.2, 0.5], [1e-9, 1e-6, 1e-10], Element(naive::adamw)),
        trial("lion", |rate| member(lion(rate)), [0.003, 0.018, 0.003], [1e-9, 1e-7, 1e-14], Element(naive::lion)),
        trial("lamb", |rate| member(lamb(rate)), [0.003, 0.02, 0.002], [1e-12, 1e-7, 1e-14], Leaf(naive::lamb)),
        trial("adafactor", |rate| member(adafactor(rate)), [0.2, 0.04, 0.03], [1e-14, 1e-2, 1e-14], Leaf(naive::adafactor)),
        trial("lbfgs", |rate| member(lbfgs().learning_rate(rate).without_linesearch()), [0.5, 0.5, 0.3], [1e-14; 3], Whole(naive::lbfgs)),
        trial("muon", |rate| member(muon(rate)), [0.01, 0.1, 0.1], [1e-10, 1e-10, 1e-14],
            Recorded([77.24530561622402, 4.24085522770559, 0.3374676629486638])),
    ];
    trials.extend(super::beyond::optimizers());
    trials
}
