use super::{Problem, Subject, holds};
use crate::common::trees::map;
use crate::common::values;

fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    if !entry.about().elementwise {
        return;
    }
    let well = entry.run(params, grads);
    for bad in [f64::NAN, f64::INFINITY] {
        let poisoned = |g| map(plan, g, |i, value| if i == 0 { bad } else { value });
        let ill = entry.run(params, &grads.iter().map(poisoned).collect::<Vec<_>>());
        for ((path, a), (_, b)) in values(&well.params).iter().zip(&values(&ill.params)) {
            let bits = |v: &[f64]| v.iter().skip(1).map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(a), bits(b), "{}: a {bad} in {path} reached another element", entry.name());
        }
    }
}

#[test]
fn a_nan_in_one_element_stays_in_that_element() {
    holds(law, 2);
}
