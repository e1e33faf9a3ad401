use super::{Problem, Subject, holds, tree};
use crate::common::values;

fn law(entry: &dyn Subject, Problem { plan, params, .. }: &Problem) {
    let zero = tree(plan, |_, _| 0.0);
    let after = entry.run(params, &[zero.clone(), zero.clone(), zero]);
    let finite = values(&after.params).iter().all(|(_, v)| v.iter().all(|x| x.is_finite()));
    assert!(finite, "{}: {:?}", entry.name(), after.params);
}

#[test]
fn zero_gradients_give_no_nan() {
    holds(law, 2);
}
