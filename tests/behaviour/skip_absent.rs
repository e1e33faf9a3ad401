//! Absent gradients: trees that can lack some, and errors.

use std::collections::BTreeMap;

use gradchain::optimizer::Adam;
use gradchain::prelude::*;
use gradchain::state::same_bits;
use gradchain::transform::{scale, scale_by_muon, trace};
use gradchain::tree::DynTree;
use gradchain::wrapper::{SkipAbsent, freezable, skip_absent};

type Params = (Vec<f32>, Vec<f64>, f32);
type Gradients = (Option<Vec<f32>>, Option<Vec<f64>>, Option<f32>);

fn params() -> Params {
    (vec![1.0, -2.0, 3.0], vec![0.5, -0.0], 2.0)
}

/// Returns gradients without some leaves'.
fn without(leaves: &[usize]) -> Gradients {
    let has = |leaf| !leaves.contains(&leaf);
    (has(0).then(|| vec![1.0, -2.0, 0.5]), has(1).then(|| vec![-1.0, 3.0]), has(2).then_some(-0.5))
}

#[test]
fn a_skipped_leaf_keeps_its_bits_without_decay_momentum_or_count() {
    let optimizer = skip_absent(chain((add_decayed_weights(0.1), scale_by_adam(), sgd(0.1).momentum(0.9))));
    let mut params = params();
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &without(&[]), &mut state).unwrap();
    let (before, old) = (params.clone(), state.clone());
    optimizer.step(&mut params, &without(&[0, 1]), &mut state).unwrap();
    assert_eq!(params.0, before.0);
    assert_eq!(
        params.1.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        before.1.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    );
    assert_ne!(params.2, before.2);
    assert_eq!(state.skipped(), [true, true, false]);
    let updates: Vec<u64> = state.inner().1.updates.iter().map(|(_, updates)| updates.get()).collect();
    assert_eq!((updates, state.inner().1.count.get()), (vec![1, 1, 2], 2));
    for (leaf, rests) in [true, true, false].into_iter().enumerate() {
        let [a, b] = [&old, &state].map(|state| state.inner().1.moment("mu").unwrap().to_array(leaf));
        assert_eq!(a == b, rests);
    }
}

#[test]
fn a_norm_leaves_them_out() {
    let optimizer = skip_absent(chain((clip_by_global_norm(1.0), scale(-1.0))));
    let mut params = [0.0_f64, 0.0].map(Some);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &[None, Some(4.0)], &mut state).unwrap();
    assert_eq!(params, [Some(0.0), Some(-1.0)]);
    optimizer.step(&mut params, &[Some(3.0), Some(4.0)], &mut state).unwrap();
    assert_eq!(params, [Some(-3.0 * 0.2), Some(-1.0 - 4.0 * 0.2)]);
}

#[test]
fn maps_vectors_and_trees_by_name_may_lack_leaves() {
    let optimizer = skip_absent(sgd(1.0));
    let tree = |leaves: &[&str]| {
        let mut tree = DynTree::new();
        leaves.iter().for_each(|name| tree.insert(*name, ndarray::arr1(&[1.0_f32])));
        tree
    };
    let mut params = tree(&["a", "b", "c/d", "c/e"]);
    let mut state = optimizer.init(&params).unwrap();
    for (present, expected) in [
        (&["b"][..], [1.0, 0.0, 1.0, 1.0]),
        (&["a", "c/e"], [0.0, 0.0, 1.0, 0.0]),
        (&[], [0.0, 0.0, 1.0, 0.0]),
        (&["a", "b", "c/d", "c/e"], [-1.0, -1.0, 0.0, -1.0]),
    ] {
        let outcome = optimizer.step(&mut params, &tree(present), &mut state).unwrap();
        assert_eq!(outcome.emitted(), !present.is_empty());
        let values = ["a", "b", "c/d", "c/e"].map(|name| params.get::<f32>(name).unwrap()[0]);
        assert_eq!(values, expected, "{present:?}");
    }

    let mut params: BTreeMap<String, f64> = [("x", 1.0), ("y", 1.0)].map(|(name, x)| (name.into(), x)).into();
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &BTreeMap::from([(String::from("y"), 0.5)]), &mut state).unwrap();
    assert_eq!(params.into_values().collect::<Vec<_>>(), [1.0, 0.5]);

    let mut params = vec![vec![1.0_f32], vec![1.0], vec![1.0]];
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &vec![None, Some(vec![2.0_f32])], &mut state).unwrap();
    assert_eq!(params, [[1.0], [-1.0], [1.0]]);
}

fn refused<G: Tree>(optimizer: &SkipAbsent<Adam>, grads: &G) -> String {
    let mut after = params();
    let mut state = optimizer.init(&after).unwrap();
    let before = state.clone();
    let error = optimizer.step(&mut after, grads, &mut state).unwrap_err().to_string();
    assert!(after == params() && same_bits(&*state, &*before));
    optimizer.step(&mut after, &without(&[1]), &mut state).unwrap();
    assert_eq!(state.skipped(), [false, true, false]);
    error
}

#[test]
fn mismatched_gradients_are_still_errors() {
    let optimizer = skip_absent(adam(0.1));
    let what = "the gradients do not fit the parameters that the state was made for: 1 difference\n  ";
    let named = |leaves: [(&str, Vec<f32>); 2]| BTreeMap::from(leaves.map(|(path, x)| (String::from(path), x)));
    let found = refused(&optimizer, &named([("0", vec![1.0; 3]), ("1x", vec![1.0; 2])]));
    assert_eq!(found, format!("{what}unexpected leaf 1x: f32 [2]"));
    let found = refused(&optimizer, &named([("0", vec![1.0; 3]), ("1", vec![1.0; 3])]));
    assert_eq!(found, format!("{what}1: expected shape [2], found [3]"));
    let found = refused(&optimizer, &named([("2", vec![1.0]), ("3", vec![1.0])]));
    assert!(found.contains("unexpected leaf 3") && found.contains("2: expected shape [], found [1]"), "{found}");
    struct Turned;
    impl Tree for Turned {
        fn walk<'a>(&'a self, walk: &mut gradchain::tree::Walk<'a, '_>) {
            walk.child("2", &1.0_f32);
            walk.child("1", &[1.0_f64, 2.0]);
        }
    }
    let order = "the leaves are in another order: expected 1, found 2; maps are ordered by name, structs by \
                 declaration";
    assert_eq!(refused(&optimizer, &Turned), format!("{what}{order}"));
}

#[test]
fn skip_absent_must_wrap_every_stage_that_reads_gradients() {
    fn takes<T: gradchain::GradientTransformation<Needs = Nothing>>(optimizer: T) -> bool {
        let mut after = params();
        let mut state = optimizer.init(&after).unwrap();
        let step = optimizer.step(&mut after, &without(&[1]), &mut state);
        assert_eq!(after.1, params().1, "{optimizer:?}");
        assert_eq!(after.0 != params().0, step.is_ok(), "{optimizer:?}");
        step.is_ok()
    }
    let skips = || skip_absent(adam(0.1));
    assert!(takes(skips()));
    assert!(takes(boxed(inject_hyperparams(skips()))));
    assert!(takes(chain((skips(), Some(skip_absent(trace(0.5))), ()))));
    assert!(takes(vec![boxed(skips())]));
    assert!(takes(named_chain(["a"], (skips(),))));
    assert!(takes(freezable(skips())));
    assert!(takes(skip_absent(freezable(adam(0.1)))));
    assert!(takes(masked(skips(), Mask::path("0")).freeze_others()));
    let groups = || Labels::tree([("0", "a"), ("1", "b"), ("2", "a")]);
    assert!(takes(partition((("a", skips()), ("b", skips())), groups())));
    assert!(takes(partition(vec![("a", boxed(skips())), ("b", boxed(skips()))], groups())));

    assert!(!takes(adam(0.1)));
    assert!(!takes(freezable(adam(0.1))));
    assert!(!takes(chain((clip(1.0), skips()))));
    assert!(!takes(partition((("a", skips()), ("b", adam(0.1))), groups())));
    assert!(takes(multi_steps(skips(), 1)));
    assert!(takes(apply_if_finite(skips(), 1)));
    assert!(!takes(lookahead(skips(), 1, 0.5)));
}

/// The error names the wrapper that skips leaves.
#[test]
fn a_missing_gradient_is_an_error_that_names_the_way_out() {
    let said = |grads: &dyn Tree| {
        let mut params = params();
        let mut state = adamw(0.1).init(&params).unwrap();
        let error = adamw(0.1).step(&mut params, grads, &mut state).unwrap_err();
        assert!(error.is_structure() && params == self::params(), "{error}");
        error.to_string()
    };
    let hint = "; if leaves may lack a gradient in a step, wrap the optimizer in `skip_absent`";
    let missing = said(&without(&[0, 2]));
    assert!(missing.contains(hint), "{missing}");
    assert!(missing.ends_with("\n  missing leaf 0: f32 [3]\n  missing leaf 2: f32 []"), "{missing}");
    let shapes = said(&(None::<Vec<f32>>, vec![-1.0_f64], -0.5_f32));
    assert!(!shapes.contains("skip_absent"), "{shapes}");
}

#[test]
fn stages_that_join_leaves_or_hold_windows_are_refused_at_init() {
    let error = skip_absent(lbfgs()).init(&params()).unwrap_err();
    assert!(error.is_argument());
    assert!(error.to_string().contains("without parts that join leaves in memory"), "{error}");
    let error = skip_absent(chain((clip(1.0), multi_steps(adam(0.1), 2)))).init(&params()).unwrap_err();
    assert!(error.to_string().contains("put it around `skip_absent`"), "{error}");
}

/// As PyTorch's sum of `grad`s.
#[test]
fn a_window_counts_absent_gradients_as_zeros_and_skips_absent_leaves() {
    let optimizer = multi_steps(skip_absent(chain((add_decayed_weights(0.5), sgd(1.0)))), 2);
    let mut params = (8.0_f64, 8.0_f64);
    let mut state = optimizer.init(&params).unwrap();
    optimizer.step(&mut params, &(None::<f64>, Some(4.0_f64)), &mut state).unwrap();
    optimizer.step(&mut params, &(None::<f64>, None::<f64>), &mut state).unwrap();
    // The first rests, without decay; the second's mean is over both mini-steps: 8 − (2 + 0.5·8).
    assert_eq!(params, (8.0, 2.0));
    optimizer.step(&mut params, &(Some(2.0_f64), None::<f64>), &mut state).unwrap();
    // Leaves with a gradient only.
    assert!(optimizer.flush(&mut params, &mut state).unwrap().emitted());
    assert_eq!(params, (2.0, 2.0));

    // Without a gradient an update has no place.
    let mut state = optimizer.init(&params).unwrap();
    let error = optimizer.update_owned((None::<f64>, Some(1.0_f64)), &mut state, &params).unwrap_err().to_string();
    assert!(error.contains("use `step` or `update`") && error.contains("missing leaf 0"), "{error}");
}

/// Zeros in memory, absent in gradients given by value.
#[test]
fn updates_of_skipped_leaves_are_zero_or_absent() {
    let optimizer = skip_absent(adamw(0.1));
    let mut expected = params();
    let mut state = optimizer.init(&expected).unwrap();
    let [mut by_updates, mut owned, mut other] = [&state, &state, &state].map(Clone::clone);
    optimizer.step(&mut expected, &without(&[0]), &mut state).unwrap();

    let updates = optimizer.update(&without(&[0]), &mut by_updates, &params()).unwrap();
    assert_eq!(updates.to_vec::<f32>("0").unwrap(), [0.0; 3]);
    let mut after = params();
    apply_updates(&mut after, &updates).unwrap();
    assert_eq!(after, expected);

    let (grads, outcome) = optimizer.update_owned(without(&[0]), &mut owned, &params()).unwrap();
    assert!(outcome.emitted() && grads.0.is_none());
    assert_eq!(grads.2.unwrap(), updates.to_vec::<f32>("2").unwrap()[0]);

    let wide = (None::<Vec<f32>>, vec![-1.0_f32, 3.0], -0.5_f32);
    let mut after = params();
    optimizer.step(&mut after, &wide, &mut other).unwrap();
    assert_eq!(after, expected);
}

/// They start at their first gradient.
#[test]
fn matrices_rest_too() {
    use ndarray::{Array2, array};
    let optimizer = skip_absent(chain((scale_by_muon(), scale(-0.1))));
    let mut params: [Array2<f64>; 2] = [array![[1.0, 2.0], [3.0, 4.0]], array![[1.0, 2.0], [3.0, 4.0]]];
    let mut state = optimizer.init(&params).unwrap();
    let gradient = array![[0.5, -1.0], [2.0, 0.25]];
    optimizer.step(&mut params, &[None, Some(gradient.clone())], &mut state).unwrap();
    assert_eq!(params[0], array![[1.0, 2.0], [3.0, 4.0]]);
    let moved = params[1].clone();
    optimizer.step(&mut params, &[Some(gradient.clone()), None], &mut state).unwrap();
    assert_eq!(params, [moved.clone(), moved]);
}
