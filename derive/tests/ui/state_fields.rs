//! Every field of a state is of a kind, or skipped; what it consists of does not depend on its values.

use gradchain::state::{Count, State};

#[derive(State, Clone, Debug)]
struct Plain {
    count: Count,
    beta: f64,
    #[state(skip)]
    name: String,
}

#[derive(State, Clone, Debug)]
struct Renamed {
    #[state(rename = "n")]
    count: Count,
}

#[derive(State, Clone, Debug)]
enum Either {
    Count(Count),
}

#[derive(State)]
struct NotClone {
    count: Count,
}

fn main() {}
