use gradchain::Mask;
use gradchain::tree::DynTree;
use gradchain::wrapper::masked;

use super::{Problem, Subject, holds};
use crate::common::{run, same_values, values};

pub(super) fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let frozen = masked(entry.boxed(), Mask::by(|leaf| !leaf.path().starts_with("layer1"))).freeze_others();
    let after = run(&frozen, params, grads);
    let only = |tree: &DynTree, layer: &str| {
        let keep = values(tree).into_iter().filter(|(path, _)| path.starts_with(layer));
        keep.map(|(path, v)| (path, v.iter().map(|x| x.to_bits()).collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    assert_eq!(only(&after.params, "layer1"), only(params, "layer1"), "{name}: frozen leaves keep their bits");
    let fields = after.state.schema().entries;
    let acted_on = fields.iter().filter_map(|f| f.leaf.as_deref()).all(|leaf| !leaf.starts_with("layer1"));
    assert!(acted_on, "{name}: there is state for a leaf that is not acted on");

    // As if other leaves did not exist.
    let without = |tree: &DynTree| {
        let mut tree = tree.clone();
        let gone: Vec<String> = tree.names().filter(|n| n.starts_with("layer1")).map(String::from).collect();
        gone.iter().for_each(|name| assert!(tree.remove(name)));
        tree
    };
    let alone = entry.run(&without(params), &grads.iter().map(without).collect::<Vec<_>>());
    same_values(&without(&after.params), &alone.params).unwrap_or_else(|at| panic!("{name}: {at}"));
}

#[test]
fn masked_leaves_are_unchanged_and_have_no_effect() {
    holds(law, 2);
}
