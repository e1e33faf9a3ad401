use super::{LeafPlan, Locality, Number, Order, Problem, Subject, assert_exceptions, holds, noise, registry, tree};
use crate::common::trees::map;
use crate::common::values;

fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    if entry.locality() == Locality::Whole {
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

/// Declared to depend on others, although none reaches another here.
const BY_PLACE: &[(&str, &str)] = &[
    ("hutchinson_estimator_diag_hessian", "what is drawn depends on the place"),
    ("sophia_hutchinson", "what is drawn depends on the place"),
    ("scale_by_shape", "it depends on the shape of the leaf"),
    ("add_noise", "what is drawn depends on the place"),
    ("stochastic_rounding", "what is drawn depends on the place"),
    ("noisy_sgd", "what is drawn depends on the place"),
    ("quantized_some", "its leaves here are below the least number of elements"),
    ("scale_by_zoom_linesearch", "the search takes the first step that it tries, whatever the others are"),
];

/// Only entries whose elements reach each other are exempt.
#[test]
fn entries_marked_whole_have_dependent_elements() {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = vec![leaf(Number::F32, &[6, 2]), leaf(Number::F64, &[5]), leaf(Number::F32, &[2, 2, 2])];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    // Small gradients, and large ones.
    let reaches = |entry: &dyn Subject| {
        [(1.0, 9.0), (1.0, f64::NAN), (0.05, -0.3)].into_iter().any(|(size, other)| {
            let run = |first: f64| {
                let grads = (0..9)
                    .map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i) * if i == 0 { first * size } else { size }));
                values(&entry.run(&params, &grads.collect::<Vec<_>>()).params)
            };
            let bits = |v: &[f64]| v.iter().skip(1).map(|x| x.to_bits()).collect::<Vec<_>>();
            run(1.0).iter().zip(&run(other)).any(|((_, a), (_, b))| bits(a) != bits(b))
        })
    };
    let entries = registry();
    let whole = entries.iter().filter(|entry| entry.locality() == Locality::Whole);
    let alone: Vec<String> = whole.filter(|entry| !reaches(&***entry)).map(|entry| entry.name().to_owned()).collect();
    assert_exceptions(&alone, BY_PLACE, "`WHOLE` stands in the registry, but no element reached another in");
}
