use gradchain::state::same_bits;
use gradchain::tree::{DynTree, Structure};

use super::{LeafPlan, Locality, Number, Order, Problem, Subject, holds_on, noise, tree};
use crate::common::subject::Session;
use crate::common::trees::map;
use crate::common::{close, same_values};

/// Returns leaves sensitive to memory order: matrices that are not square, one row-major, and more axes.
fn plan(order: Order) -> Vec<LeafPlan> {
    let leaf = |number, shape: &[usize]| LeafPlan { number, shape: shape.into(), order };
    vec![leaf(Number::F32, &[4, 6]), leaf(Number::F64, &[3, 2, 5]), leaf(Number::F32, &[7]), leaf(Number::F64, &[8, 3])]
}

fn problem() -> Problem {
    let plan = plan(Order::C);
    let params = tree(&plan, |leaf, i| noise(1, leaf, i));
    let grads = (0..5).map(|t| tree(&plan, |leaf, i| noise(2 + t, leaf, i))).collect();
    Problem { plan, params, grads }
}

fn other_order(source: &DynTree) -> DynTree {
    map(&plan(Order::Fortran), source, |_, value| value)
}

fn go_on(session: &mut dyn Session, params: &DynTree, grads: &[DynTree]) -> gradchain::Result<DynTree> {
    let mut params = params.clone();
    grads.iter().try_for_each(|grads| session.step(&mut params, grads).map(drop))?;
    Ok(params)
}

/// A state copied by `replace`, or put in place, into another memory order.
fn orders(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) {
    let name = entry.name();
    let mut here = entry.init(params).unwrap();
    let at = go_on(&mut *here, params, &grads[..2]).unwrap();
    let before = other_order(params);
    // Sums follow the memory order.
    let same = |what: &str, found: &DynTree, expected: &DynTree| {
        let same = if entry.locality() == Locality::Element {
            same_values(found, expected)
        } else {
            close(found, expected, 2e-2)
        };
        same.unwrap_or_else(|at| panic!("{name}: {what}: {at}"));
    };
    let expected = go_on(&mut *here.copy(), &at, &grads[2..]).unwrap();
    let mut there = entry.init(&before).unwrap();
    there.replace(here.state()).unwrap_or_else(|error| panic!("{name}: {error}"));
    same("taken over", &go_on(&mut *there, &other_order(&at), &grads[2..]).unwrap(), &expected);

    // Without arrays it fits anywhere; otherwise it is an error, and changes nothing.
    let mut there = entry.init(&before).unwrap();
    there.put(here.state());
    let moved = other_order(&at);
    let mut after = moved.clone();
    match there.step(&mut after, &grads[2]) {
        Ok(_) => same("put", &go_on(&mut *there, &after, &grads[3..]).unwrap(), &expected),
        Err(error) => {
            assert!(error.to_string().starts_with("the replacement of the state does not fit"), "{name}: {error}");
            same_values(&after, &moved).unwrap_or_else(|at| panic!("{name}: {at}"));
        }
    }
}

#[test]
fn no_state_is_read_in_the_memory_order_of_another() {
    holds_on(orders, &problem());
}

/// A state of other shapes is refused, unless it is the same for all leaves.
fn leaves(entry: &dyn Subject, Problem { plan, params, grads }: &Problem) {
    let name = entry.name();
    let reversed: Vec<_> = plan.iter().rev().cloned().collect();
    let mut there = entry.init(&tree(&reversed, |leaf, i| noise(1, leaf, i))).unwrap();
    there
        .step(&mut tree(&reversed, |leaf, i| noise(1, leaf, i)), &tree(&reversed, |leaf, i| noise(2, leaf, i)))
        .unwrap();
    let mut here = entry.init(params).unwrap();
    go_on(&mut *here, params, &grads[..1]).unwrap();
    let expected = go_on(&mut *here.copy(), params, &grads[1..2]).unwrap();
    let same_values_inside = same_bits(&here.state(), &there.state());
    here.put(there.state());
    let mut after = params.clone();
    match here.step(&mut after, &grads[1]) {
        Ok(_) if same_values_inside => same_values(&after, &expected).unwrap_or_else(|at| panic!("{name}: {at}")),
        Ok(_) => assert!(here.schema().entries.iter().all(|entry| entry.leaf.is_none()), "{name}: accepted"),
        Err(_) => same_values(&after, params).unwrap_or_else(|at| panic!("{name}: {at}")),
    }
}

#[test]
fn a_state_of_other_leaves_is_refused() {
    holds_on(leaves, &problem());
}

#[test]
fn the_orders_differ() {
    let params = problem().params;
    assert_ne!(Structure::of(&params).unwrap(), Structure::of(&other_order(&params)).unwrap());
}
