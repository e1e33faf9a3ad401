use gradchain::tree::DynTree;

use super::{Locality, Subject, noise, registry};
use crate::common::values;

/// Returns one leaf of 700 elements, two leaves, and two under names in reverse order.
fn cuts(values: &dyn Fn(usize) -> f64) -> [DynTree; 3] {
    let part = |range: std::ops::Range<usize>| ndarray::Array1::from_iter(range.map(values));
    let tree = |parts: [(&str, std::ops::Range<usize>); 2]| {
        let mut tree = DynTree::new();
        parts
            .into_iter()
            .filter(|(_, range)| !range.is_empty())
            .for_each(|(name, range)| tree.insert(name, part(range)));
        tree
    };
    [tree([("a", 0..700), ("b", 0..0)]), tree([("a", 0..300), ("b", 300..700)]), tree([("b", 0..300), ("a", 300..700)])]
}

fn law(entry: &dyn Subject) {
    let (name, elementwise) = (entry.name(), entry.locality() == Locality::Element);
    // Those of whole leaves may differ; those of the tree at most in the last bit.
    let of_the_tree = ["clip_by_global_norm", "chain_of_four", "nested_chain", "named_chain", "multi_steps_clip"];
    if !elementwise && !of_the_tree.contains(&name) {
        return;
    }
    let params = cuts(&|i| noise(1, 0, i));
    let grads: Vec<_> = (0..4).map(|step| cuts(&move |i| noise(2 + step, 0, i))).collect();
    let results: Vec<Vec<f64>> = (0..3)
        .map(|cut| {
            let grads: Vec<_> = grads.iter().map(|g| g[cut].clone()).collect();
            let mut leaves = values(&entry.run(&params[cut], &grads).params);
            if cut == 2 {
                leaves.reverse();
            }
            leaves.into_iter().flat_map(|(_, values)| values).collect()
        })
        .collect();
    for (cut, result) in results.iter().enumerate().skip(1) {
        for (i, (whole, cut_up)) in results[0].iter().zip(result).enumerate() {
            let close = if elementwise { whole == cut_up } else { (whole - cut_up).abs() <= 1e-12 };
            assert!(close, "{name}, cut {cut}: element {i} is {cut_up:e} instead of {whole:e}");
        }
    }
}

#[test]
fn cutting_a_leaf_in_two_and_the_order_of_leaves_do_not_matter() {
    registry().iter().for_each(|entry| law(&**entry));
}
