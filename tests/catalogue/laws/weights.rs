//! A weight declared `[out, in]` is treated like its transpose `[in, out]`.

use gradchain::GradientTransformation as _;
use gradchain::tree::{DynTree, Layout, Tree, Walk};
use ndarray::{ArrayD, IxDyn};

use super::{LeafPlan, Number, Order, Problem, Subject, all_selected, noise, registry, tree};
use crate::common::extra_inputs::Registered;
use crate::common::{close, same_values, values};

struct Stored<'a>(&'a DynTree, Layout);

impl Tree for Stored<'_> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.layout(self.1);
        self.0.walk(walk);
    }
}

fn trained(entry: &dyn Subject, params: &DynTree, grads: &[DynTree], layout: Layout) -> DynTree {
    let transformation = entry.boxed();
    let mut state = transformation.init(&Stored(params, layout)).unwrap();
    let mut params = params.clone();
    for grads in grads {
        transformation.step_with_inputs(&mut params, grads, &mut state).unwrap();
    }
    params
}

fn plan(transposed: bool) -> Vec<LeafPlan> {
    let matrix = |number, rows: usize, cols: usize| {
        let shape = if transposed { vec![cols, rows] } else { vec![rows, cols] };
        LeafPlan { number, shape, order: Order::C }
    };
    vec![
        matrix(Number::F32, 2, 32),
        matrix(Number::F64, 32, 2),
        matrix(Number::F32, 5, 4),
        LeafPlan { number: Number::F32, shape: vec![3], order: Order::C },
    ]
}

fn transposed(source: &DynTree, to: &[LeafPlan]) -> DynTree {
    let values = values(source);
    let turned: Vec<Vec<f64>> = to
        .iter()
        .zip(0..)
        .map(|(leaf, number)| {
            let path = format!("layer{}/p{number}", number % 2);
            let (_, values) = values.iter().find(|(p, _)| *p == path).unwrap();
            let mut shape = leaf.shape.clone();
            shape.reverse();
            let array = ArrayD::from_shape_vec(IxDyn(&shape), values.clone()).unwrap();
            array.reversed_axes().iter().copied().collect()
        })
        .collect();
    tree(to, |leaf, i| turned[leaf][i])
}

/// Returns true if the entry depends on the layout.
fn law(entry: &dyn Subject, Problem { params, grads, .. }: &Problem) -> bool {
    let [as_flax, as_torch] = [Layout::InOut, Layout::OutIn].map(|layout| trained(entry, params, grads, layout));
    if same_values(&as_flax, &as_torch).is_ok() {
        return false;
    }
    let turned = plan(true);
    let turn = |source: &DynTree| transposed(source, &turned);
    let grads: Vec<_> = grads.iter().map(turn).collect();
    let expected = trained(entry, &turn(params), &grads, Layout::InOut);
    close(&as_torch, &transposed(&expected, &plan(false)), 1e-4).unwrap_or_else(|at| panic!("{}: {at}", entry.name()));
    true
}

#[test]
fn weights_stored_out_in_are_their_transposes() {
    let of = |seed: u64| tree(&plan(false), |leaf, i| noise(seed, leaf, i));
    let problem = Problem { plan: plan(false), params: of(1), grads: (2..4).map(of).collect() };
    let goes_by_it: Vec<_> =
        registry().iter().filter(|entry| law(&***entry, &problem)).map(|e| e.name().to_owned()).collect();
    println!("{goes_by_it:?}");
    for name in ["scale_by_shape", "muon", "inject_muon", "master_of_matrices"] {
        assert!(
            !all_selected() || goes_by_it.iter().any(|entry| entry == name),
            "{name} does not go by it: {goes_by_it:?}"
        );
    }
}
