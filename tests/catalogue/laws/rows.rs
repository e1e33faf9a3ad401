//! Row-sparse gradients of all rows equal dense ones; other rows stay untouched.
//!
//! For elementwise transformations, the touched rows equal a leaf of these rows.

use std::collections::BTreeMap;

use gradchain::Tree;
use gradchain::state::{Entry, State, StateWalk, same_bits};
use gradchain::tree::{DynElement, DynTree, SparseRows};
use ndarray::Axis;

use super::{
    LeafPlan, Locality, Number, Order, Problem, Subject, all_selected, assert_exceptions, holds, noise, registry, tree,
};
use crate::common::trees::map;
use crate::common::{same_values, values};

type Trees = BTreeMap<String, Box<dyn Tree>>;

/// Returns a leaf by name: dense without axes, else the rows that `of` selects.
fn leaf<T: DynElement>(tree: &DynTree, name: &str, of: &dyn Fn(usize) -> Vec<usize>) -> Option<Box<dyn Tree>> {
    let array = tree.get::<T>(name)?;
    if array.ndim() == 0 {
        return Some(Box::new(array.to_owned()));
    }
    let indices = of(array.shape()[0]);
    let values = if indices.len() == array.shape()[0] { array.to_owned() } else { array.select(Axis(0), &indices) };
    Some(Box::new(SparseRows::new(indices, values)))
}

fn rows(tree: &DynTree, of: &dyn Fn(usize) -> Vec<usize>) -> Trees {
    let one = |name: &str| {
        let found = leaf::<f32>(tree, name, of).or_else(|| leaf::<f64>(tree, name, of));
        #[cfg(feature = "half")]
        let found = found.or_else(|| leaf::<half::f16>(tree, name, of)).or_else(|| leaf::<half::bf16>(tree, name, of));
        (name.to_owned(), found.expect("a leaf of some type"))
    };
    tree.names().map(one).collect()
}

/// Returns true if a step that needs whole leaves is refused without changes.
fn refuses(entry: &dyn Subject, params: &DynTree, grads: &Trees) -> bool {
    let (mut after, mut session) = (params.clone(), entry.init(params).unwrap());
    let before = session.state();
    let Err(error) = session.step(&mut after, grads) else { return false };
    let name = entry.name();
    assert!(
        error.is_argument() && error.to_string().contains("must be dense, found a row-sparse gradient of `"),
        "{name}: {error}"
    );
    same_values(params, &after).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&before, &session.state()), "{name}: the state was changed");
    true
}

fn all(rows: usize) -> Vec<usize> {
    (0..rows).collect()
}

fn all_rows(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let name = entry.name();
    // Every transformation refuses column-major parameters.
    let by_rows: Vec<_> = plan
        .iter()
        .map(|leaf| match leaf.order {
            Order::Fortran => LeafPlan { order: Order::C, ..leaf.clone() },
            _ => leaf.clone(),
        })
        .collect();
    let params = map(&by_rows, params, |_, value| value);
    let whole = entry.run(&params, grads);
    let (mut after, mut session) = (params.clone(), entry.init(&params).unwrap());
    for grads in grads {
        let grads = rows(grads, &all);
        if refuses(entry, &params, &grads) {
            return;
        }
        session.step(&mut after, &grads).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    same_values(&whole.params, &after).unwrap_or_else(|at| panic!("{name}: {at}"));
    assert!(same_bits(&whole.state, &session.state()), "{name}: the states differ");
}

#[test]
fn all_rows_are_the_whole_leaf() {
    holds(all_rows, 2);
}

const ROWS: usize = 11;
const TOUCHED: [usize; 4] = [9, 2, 3, 7];

fn problem() -> Problem {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order: Order::C };
    let plan = vec![leaf(Number::F32, &[ROWS, 5]), leaf(Number::F64, &[ROWS]), leaf(Number::F64, &[ROWS, 2, 3])];
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..4).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

/// Returns the untouched rows.
fn untouched(params: &DynTree, state: &impl State) -> Vec<u64> {
    let mut kept = Vec::new();
    let mut keep = |values: &[f64]| {
        let row = values.len() / ROWS;
        let rows = (0..ROWS).filter(|row| !TOUCHED.contains(row));
        kept.extend(rows.flat_map(|i| values[i * row..][..row].iter().map(|x| x.to_bits())));
    };
    values(params).iter().for_each(|(_, values)| keep(values));
    state.walk(&mut StateWalk::new(&mut |_, entry| {
        if let Entry::Moments(arrays) = entry {
            let arrays = (0..arrays.len()).filter_map(|leaf| arrays.to_array(leaf));
            arrays
                .filter(|array| array.shape().first() == Some(&ROWS))
                .for_each(|array| keep(array.as_slice().unwrap()));
        }
    }));
    kept
}

#[test]
fn untouched_rows_keep_their_bits() {
    let Problem { params, grads, .. } = problem();
    for entry in registry() {
        let (mut after, mut session) = (params.clone(), entry.init(&params).unwrap());
        session.step(&mut after, &grads[0]).unwrap();
        for grads in &grads[1..] {
            let grads = rows(grads, &|_| TOUCHED.to_vec());
            if refuses(&*entry, &params, &grads) {
                break;
            }
            let before = untouched(&after, &session.state());
            session.step(&mut after, &grads).unwrap();
            assert!(before == untouched(&after, &session.state()), "{}", entry.name());
        }
    }
}

/// Elementwise entries that need whole leaves, with the reason.
const WHOLE_LEAVES: &[(&str, &str)] = &[
    ("apply_every", ACCUMULATES),
    ("project_windows", ACCUMULATES),
    ("multi_steps", ACCUMULATES),
    ("multi_steps_in_chain", ACCUMULATES),
    ("multi_steps_then_decay", ACCUMULATES),
    ("multi_steps_nested", ACCUMULATES),
    ("lookahead", "all parameters synchronize"),
    ("lookahead_reset", "all parameters synchronize"),
    ("lookahead_reset_schedule_free", "all parameters synchronize"),
    ("lookahead_reset_settings", "all parameters synchronize"),
    ("master_of_windows", ACCUMULATES),
    ("params_ema", "the averages of all parameters move"),
    ("params_ema_boxed", "the averages of all parameters move"),
    ("params_swa", "the averages of all parameters move"),
    ("params_swa_of_mini_steps", "the averages of all parameters move"),
    ("sophia", "it adds up over all elements how many were clipped"),
    ("sophia_without_clipping", "it adds up over all elements how many were clipped"),
    ("flatten", "all leaves are one, of which rows are no rows"),
    ("sam_schedule_free", "all parameters go back to where the round began"),
];

const ACCUMULATES: &str = "what it holds back of other rows would be due";

fn only(tree: &DynTree) -> DynTree {
    let mut ascending = TOUCHED;
    ascending.sort();
    let mut only = DynTree::new();
    for name in tree.names() {
        match (tree.get::<f32>(name), tree.get::<f64>(name)) {
            (Some(array), _) => only.insert(name, array.select(Axis(0), &ascending)),
            (_, Some(array)) => only.insert(name, array.select(Axis(0), &ascending)),
            _ => unreachable!("the leaves of the problem"),
        }
    }
    only
}

#[test]
fn rows_fare_as_a_leaf_of_these_rows() {
    let Problem { params, grads, .. } = problem();
    let few: Vec<_> = grads.iter().map(only).collect();
    let grads: Vec<_> = grads.iter().map(|grads| rows(grads, &|_| TOUCHED.to_vec())).collect();
    let (mut refused, mut tried) = (Vec::new(), 0);
    for entry in registry().iter().filter(|entry| entry.locality() == Locality::Element) {
        if refuses(&**entry, &params, &grads[0]) {
            refused.push(entry.name().to_owned());
            continue;
        }
        tried += 1;
        let (mut after, mut session) = (params.clone(), entry.init(&params).unwrap());
        for grads in &grads {
            session.step(&mut after, grads).unwrap();
        }
        let alone = entry.run(&only(&params), &few);
        same_values(&only(&after), &alone.params).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    }
    assert!(!all_selected() || tried > 60, "{tried} entries were tried");
    assert_exceptions(&refused, WHOLE_LEAVES, "need whole leaves");
}
