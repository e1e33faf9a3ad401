//! A window counts a missing gradient as zeros; a leaf without any rests.

use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::tree::DynTree;
use gradchain::wrapper::skip_absent;

use super::{LeafPlan, Problem, Subject, holds, tree};
use crate::common::extra_inputs::Registered;
use crate::common::{same_values, values};

/// Mini-steps, in three windows of three, with a gradient under `layer1`.
const THERE: [bool; 9] = [false, true, false, false, false, false, true, false, true];

fn layer1(tree: &DynTree) -> Vec<String> {
    tree.names().filter(|name| name.starts_with("layer1")).map(String::from).collect()
}

fn without(tree: &DynTree) -> DynTree {
    let mut tree = tree.clone();
    layer1(&tree).iter().for_each(|name| assert!(tree.remove(name)));
    tree
}

fn zeroed(plan: &[LeafPlan], source: &DynTree) -> DynTree {
    let values = values(source);
    tree(plan, |leaf, i| {
        let path = format!("layer{}/p{leaf}", leaf % 2);
        let (_, there) = values.iter().find(|(found, _)| *found == path).expect("a leaf of the same path");
        if path.starts_with("layer1") { 0.0 } else { there[i] }
    })
}

fn law(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let (name, optimizer) = (entry.name(), multi_steps(skip_absent(entry.boxed()), 3));
    let Ok(mut state) = optimizer.init(params) else { return };
    let (mut other, [mut after, mut expected]) = (state.clone(), [params, params].map(Clone::clone));
    let (mut of_updates, mut updated) = (state.clone(), params.clone());
    for (step, (grads, there)) in grads.iter().zip(THERE).enumerate() {
        let bits = |tree: &DynTree| {
            let kept = values(tree).into_iter().filter(|(path, _)| path.starts_with("layer1"));
            kept.map(|(_, v)| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let (before, given) = (bits(&after), if there { grads.clone() } else { without(grads) });
        let is_window_of_none = step / 3 == 1;
        let with_zeros = if there || is_window_of_none { given.clone() } else { zeroed(plan, grads) };
        optimizer.step_with_inputs(&mut after, &given, &mut state).unwrap();
        optimizer.step_with_inputs(&mut expected, &with_zeros, &mut other).unwrap();
        same_values(&after, &expected).unwrap_or_else(|at| panic!("{name}, step {step}: {at}"));
        assert!(same_bits(state.inner(), other.inner()), "{name}, step {step}: the states differ");
        assert!(!is_window_of_none || bits(&after) == before, "{name}, step {step}: it rests");

        let updates = optimizer.update_with_inputs(&given, &mut of_updates, &updated).unwrap();
        apply_updates(&mut updated, &updates).unwrap();
        same_values(&after, &updated).unwrap_or_else(|at| panic!("{name}, step {step}, by updates: {at}"));
    }
    assert!(same_bits(&*state, &*other), "{name}: the states differ");
}

#[test]
fn a_window_counts_a_missing_gradient_as_zeros() {
    holds(law, THERE.len());
}
