//! Functions of trees, against naive ones.

use gradchain::tree::{
    Norm, Tree, for_each_leaf, incremental_update, per_example_global_norm_clip, per_example_layer_norm_clip,
    periodic_update, tree_add_scaled, tree_assign, tree_fill, tree_map, tree_norm, tree_scale, tree_sum, tree_vdot,
    tree_zeros_like,
};
use ndarray::{Array1, Array2, Array3, ShapeBuilder, array, s};

fn wave(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64 + 0.3 * (i * i % 17) as f64).sin()).collect()
}

fn flat(tree: &impl Tree) -> Vec<f64> {
    let mut all = Vec::new();
    for_each_leaf(tree, |_, leaf| all.extend(leaf.to_f64()));
    all
}

type Mixed = (f32, Vec<f32>, Array2<f64>, Vec<f64>);

/// Returns axis-free and empty leaves, several chunks, Fortran order, two dtypes.
fn mixed(seed: f64) -> Mixed {
    let fortran = Array2::from_shape_vec((90, 20).f(), wave(1800, seed)).unwrap();
    (0.25, wave(600, seed).iter().map(|x| *x as f32).collect(), fortran, Vec::new())
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-13 * expected.abs().max(1.0), "{found:e} is not {expected:e}");
}

#[test]
fn norms_match_their_definitions() {
    let tree = mixed(0.3);
    let values = flat(&tree);
    let squares: f64 = values.iter().map(|x| x * x).sum();
    close(tree_norm(&tree), squares.sqrt());
    close(Norm::L2.of(&tree), squares.sqrt());
    close(Norm::L2.squared(&tree), squares);
    let sum: f64 = values.iter().map(|x| x.abs()).sum();
    close(Norm::L1.of(&tree), sum);
    close(Norm::L1.squared(&tree), sum * sum);
    let most = values.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    assert_eq!(Norm::Linf.of(&tree), most);
    assert_eq!(Norm::Linf.squared(&tree), most * most);
    close(tree_sum(&tree), values.iter().sum());
    close(tree_vdot(&tree, &mixed(0.9)).unwrap(), values.iter().zip(flat(&mixed(0.9))).map(|(x, y)| x * y).sum());
}

#[test]
fn norms_neither_overflow_nor_vanish_nor_hide_a_nan() {
    close(tree_norm(&vec![3e200, -4e200]) / 1e200, 5.0);
    close(tree_norm(&vec![3e-200, 4e-200]) / 1e-200, 5.0);
    assert!((tree_norm(&vec![3e-320, 4e-320]) / 5e-320 - 1.0).abs() < 1e-3);
    assert_eq!(tree_norm(&vec![0.0, -0.0]), 0.0);
    assert_eq!(tree_norm(&Vec::<f32>::new()), 0.0);
    for norm in [Norm::L1, Norm::L2, Norm::Linf] {
        assert!(norm.of(&(f64::NAN, vec![1.0, f64::INFINITY])).is_nan() || norm == Norm::Linf);
        assert!(norm.of(&vec![1.0, f64::NAN, 2.0]).is_nan());
        assert!(norm.of(&vec![f64::NAN, 2.0]).is_nan());
        assert_eq!(norm.of(&vec![1.0, f64::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(norm.of(&Vec::<f64>::new()), 0.0);
    }
    // 256² overflows f16, and a long sum is inexact in f32.
    #[cfg(feature = "half")]
    assert_eq!(tree_norm(&vec![half::f16::from_f32(300.0); 4]), 600.0);
    assert_eq!(tree_sum(&vec![16_777_216.0_f32, 1.0, 1.0]), 16_777_218.0);
}

#[test]
fn combining_is_element_by_element_in_any_layout_and_type() {
    let (x, y) = (mixed(0.1), mixed(0.2));
    let expect = |found: &Mixed, f: &dyn Fn(f64, f64) -> f64| {
        let wide: Vec<f64> = flat(&x).iter().zip(flat(&y)).map(|(x, y)| f(*x, y)).collect();
        let found = flat(found);
        assert_eq!(found[0], f64::from(wide[0] as f32));
        assert!((1..601).all(|i| found[i] == f64::from(wide[i] as f32)));
        assert!((601..2401).all(|i| found[i] == wide[i]));
    };
    let mut z = x.clone();
    tree_add_scaled(&mut z, -0.3, &y).unwrap();
    expect(&z, &|x, y| x + -0.3 * y);
    tree_assign(&mut z, &y).unwrap();
    expect(&z, &|_, y| y);
    z = x.clone();
    tree_scale(&mut z, 0.7);
    expect(&z, &|x, _| 0.7 * x);
    z = x.clone();
    tree_map(&mut z, |x| x * x);
    expect(&z, &|x, _| x * x);
    expect(&tree_zeros_like(&x), &|_, _| 0.0);
    tree_fill(&mut z, 0.1);
    expect(&z, &|_, _| 0.1);
    z = x.clone();
    incremental_update(&y, &mut z, 0.3).unwrap();
    expect(&z, &|old, new| 0.3 * new + (1.0 - 0.3) * old);
    z = x.clone();
    assert!(!periodic_update(&y, &mut z, 7, 3).unwrap());
    expect(&z, &|old, _| old);
    for steps in [0, 9] {
        z = x.clone();
        assert!(periodic_update(&y, &mut z, steps, 3).unwrap());
        expect(&z, &|_, new| new);
    }
    // A reversed view with gaps.
    let mut all = Array1::<f64>::zeros(2000);
    tree_assign(&mut all.slice_mut(s![..;-2]), &Array1::from_iter((0..1000).map(f64::from))).unwrap();
    assert_eq!((all[1999], all[1997], all[1], all[0]), (0.0, 1.0, 999.0, 0.0));
}

#[test]
fn other_structures_are_refused_and_nothing_is_changed() {
    let (mut x, other) = ((1.0_f32, vec![2.0_f64]), (1.0_f32, vec![2.0_f64, 3.0], 0.0_f64));
    for error in [
        tree_vdot(&x, &other).map(|_| ()),
        tree_add_scaled(&mut x, 1.0, &other),
        tree_assign(&mut x, &other),
        incremental_update(&other, &mut x, 0.5),
        periodic_update(&other, &mut x, 1, 2).map(|_| ()),
        per_example_global_norm_clip(&other, &mut x, 1.0).map(|_| ()),
    ] {
        assert!(error.as_ref().unwrap_err().differences().len() >= 2, "{error:?}");
    }
    assert!(periodic_update(&x.clone(), &mut x, 1, 0).unwrap_err().is_argument());
    assert!(per_example_global_norm_clip(&array![[1.0]], &mut array![1.0], -1.0).unwrap_err().is_argument());
    assert!(per_example_layer_norm_clip(&array![[1.0]], &mut array![1.0], f64::NAN, true).unwrap_err().is_argument());
    // Leaves with different numbers of examples.
    let grads = (array![[1.0_f64], [2.0]], array![1.0_f64, 2.0, 3.0]);
    let error = per_example_global_norm_clip(&grads, &mut (array![0.0_f64], 0.0_f64), 1.0).unwrap_err();
    assert_eq!(error.differences().len(), 1, "{error}");
    assert_eq!(x, (1.0, vec![2.0]));
}

type Grads = (Array3<f64>, Array2<f32>, Array1<f64>);

fn grads(examples: usize) -> Grads {
    let matrix = Array3::from_shape_vec((examples, 30, 20).f(), wave(600 * examples, 0.1)).unwrap();
    let vector: Vec<f32> = wave(7 * examples, 0.2).iter().map(|x| *x as f32).collect();
    (matrix, Array2::from_shape_vec((examples, 7), vector).unwrap(), wave(examples, 0.3).into())
}

/// Returns squared norms of example `b`, by leaf.
fn squares((x, y, z): &Grads, b: usize) -> [f64; 3] {
    let matrix = x.index_axis(ndarray::Axis(0), b).iter().map(|x| x * x).sum();
    [matrix, y.row(b).iter().map(|x| f64::from(*x).powi(2)).sum(), z[b] * z[b]]
}

fn check(grads: &Grads, factor: impl Fn(usize, usize) -> f64, sum: &(Array2<f64>, Array1<f32>, f64)) {
    let examples = grads.2.len();
    for ((i, j), found) in sum.0.indexed_iter() {
        close(*found, (0..examples).map(|b| factor(b, 0) * grads.0[[b, i, j]]).sum());
    }
    for (i, found) in sum.1.iter().enumerate() {
        let expected: f64 = (0..examples).map(|b| factor(b, 1) * f64::from(grads.1[[b, i]])).sum();
        assert!((f64::from(*found) - expected).abs() <= 1e-7);
    }
    close(sum.2, (0..examples).map(|b| factor(b, 2) * grads.2[b]).sum());
}

#[test]
fn the_gradient_of_each_example_is_clipped() {
    let grads = grads(5);
    let norms: Vec<f64> = (0..5).map(|b| squares(&grads, b).iter().sum::<f64>().sqrt()).collect();
    for clip in [0.0, 17.3, 100.0, f64::INFINITY] {
        let mut sum = (Array2::ones((30, 20)), Array1::ones(7), 1.0);
        let clipped = per_example_global_norm_clip(&grads, &mut sum, clip).unwrap();
        assert_eq!(clipped as usize, norms.iter().filter(|norm| **norm > clip).count());
        check(&grads, |b, _| (clip / norms[b]).min(1.0), &sum);
    }
    for uniform in [true, false] {
        for clip in [0.0, 17.3, 1000.0] {
            let share = if uniform { [1.0 / 3.0; 3] } else { [600.0 / 608.0, 7.0 / 608.0, 1.0 / 608.0] };
            let factor = |b, leaf: usize| (clip * f64::sqrt(share[leaf]) / squares(&grads, b)[leaf].sqrt()).min(1.0);
            let mut sum = (Array2::ones((30, 20)), Array1::ones(7), 1.0);
            let clipped = per_example_layer_norm_clip(&grads, &mut sum, clip, uniform).unwrap();
            let expected = [0, 1, 2].map(|leaf| (0..5).filter(|b| factor(*b, leaf) < 1.0).count() as u64);
            assert_eq!(clipped, expected);
            check(&grads, factor, &sum);
        }
    }
}

#[test]
fn examples_of_zeros_and_no_examples() {
    let mut sum = array![1.0_f64, 1.0];
    assert_eq!(per_example_global_norm_clip(&array![[0.0, 0.0], [3.0, 4.0]], &mut sum, 0.0).unwrap(), 1);
    assert_eq!(sum, array![0.0, 0.0]);
    assert_eq!(per_example_global_norm_clip(&Array2::<f64>::zeros((0, 2)), &mut sum, 1.0).unwrap(), 0);
    assert_eq!(sum, array![0.0, 0.0]);
    let (mut sum, grads) =
        ((array![1.0_f64], Array1::<f64>::zeros(0)), (array![[2.0_f64]], Array2::<f64>::zeros((1, 0))));
    assert_eq!(per_example_layer_norm_clip(&grads, &mut sum, 1.0, false).unwrap(), [1, 0]);
    assert_eq!(sum.0, array![1.0]);
}

/// The message lists the first differences, or all on request.
#[test]
fn a_long_list_of_differences_is_truncated() {
    use gradchain::prelude::*;

    let (params, gradients) = (vec![vec![1.0_f32]; 40], vec![vec![1.0_f64]; 40]);
    let mut state = sgd(0.1).init(&params).unwrap();
    let error = sgd(0.1).step(&mut params.clone(), &gradients, &mut state).unwrap_err();
    let (shown, all) = (error.to_string(), format!("{error:#}"));
    assert!(shown.contains("40 differences") && shown.ends_with("\n  and 16 more (`{:#}` shows all)"), "{shown}");
    assert_eq!([shown.lines().count(), all.lines().count(), error.differences().len()], [1 + 24 + 1, 1 + 40, 40]);
    let both = gradchain::Error::all([Err(error), Err(gradchain::Error::argument("mine", "b1", "in [0, 1)", 2.0))]);
    let both = both.unwrap_err();
    assert_eq!([both.to_string(), format!("{both:#}")].map(|text| text.lines().count()), [26 + 1, 41 + 1]);
}
